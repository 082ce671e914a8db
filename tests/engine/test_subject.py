"""What a key says of a model, what every receipt says of a measurement, and no result under another model's key."""

import re
import shutil
from dataclasses import replace

import pytest

from engine.accuracy.costs import cost
from engine.accuracy.evaluation import evaluation
from engine.errors import HeadroomError
from engine.heads.ablation import Ablating, head_ablations
from engine.heads.attention import head_views, overview
from engine.heads.induction import induction
from engine.importance.importance import WHAT, importance
from engine.models.masks import parse_mask
from engine.records import decode
from engine.texts.sources import Source, texts_of
from engine.texts.tokenloss import token_losses
from tests.conftest import TEXT
from tests.engine.fixtures import finished, questions_in, subject_in, write_questions

HOW = {"name", "measured_at", "python", "machine", "seconds", "kind", "model", "versions", "precision", "device", "bos"}
NOT_MEASURED = ("requests", "tuning", "rates")  # of no model, or of its pace alone


def test_a_key_differs_with_everything_that_changes_a_number(lab, tiny_opt):
    subject = subject_in(lab, tiny_opt, "int8", bos=True)
    found = [
        subject,
        subject_in(lab, tiny_opt, "bf16", bos=True),
        subject_in(lab, tiny_opt, "fp32", bos=True),
        replace(subject, bos=False),
        replace(subject, spec=replace(subject.spec, int8_threshold=0.0)),
        replace(subject, identity=replace(subject.identity, digest="0" * 32)),
    ]
    assert len({str(each.key()) for each in found}) == len({str(each) for each in found}) == len(found)
    other_tokenizer = replace(subject, identity=replace(subject.identity, tokenizer_digest="0" * 32))
    assert other_tokenizer.key() != subject.key()
    assert subject_in(lab, tiny_opt, "int8").key() == subject.key(), "as the tokenizer does, which is with BOS"
    moved = replace(subject, spec=replace(subject.spec, model="elsewhere"))
    assert moved.key() == subject.key(), "a path is not part of a model"
    fp32 = found[2]
    assert replace(fp32, spec=replace(fp32.spec, int8_threshold=0.0)).key() == fp32.key(), "only int8 has outliers"


def test_every_record_says_what_it_is_of_and_how_it_was_measured(lab, tiny_opt, tmp_path):
    subject = subject_in(lab, tiny_opt)
    questions = questions_in(write_questions(tmp_path / "own.jsonl", 4), lab)
    mask = parse_mask("L0H1", subject.shape)
    runs = [importance(subject, questions, what).run(lab) for what in WHAT]
    runs += [evaluation(subject, questions, mask).run(lab), cost(subject, questions, mask).run(lab)]
    runs += [induction(subject, "olsson").run(lab), token_losses(subject, TEXT, mask).run(lab)]
    runs += [texts_of(subject, Source("text", "mine", TEXT * 6, n_texts=1)).run(lab)]
    runs += [head_ablations(subject, [TEXT], Ablating(mask)).run(lab)]
    runs += [overview(subject, TEXT, mask).run(lab), head_views(subject, TEXT, mask, [(1, 0)]).run(lab)]
    for run in runs:
        list(run)
    kinds = set()
    for key in lab.store.keys():
        record, kind = decode(lab.store.get(key)), key.split("/")[1] if key.count("/") > 1 else ""
        if record is None or kind in NOT_MEASURED:
            continue
        kinds.add(kind)
        receipt = record.receipt
        assert receipt.keys() >= HOW, f"{kind} lacks {HOW - receipt.keys()}"
        assert receipt["name"] == subject.identity.name and receipt["model"] == subject.identity.digest
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", receipt["measured_at"])
        assert receipt["python"] and receipt["machine"] and receipt["seconds"] >= 0
    of_texts = {"induction", "tokenloss", "texts", "attribution", "attention"}
    assert kinds == {"answers", "importance", "activity", "magnitudes", "cost"} | of_texts


@pytest.mark.parametrize("held", [False, True], ids=["not loaded yet", "loaded before"])
def test_a_model_whose_files_have_changed_is_refused_in_one_plain_line(held, lab, tiny_opt, tmp_path):
    folder = shutil.copytree(tiny_opt, tmp_path / "model")
    subject = subject_in(lab, folder)
    mask, questions = parse_mask("F1", subject.shape), questions_in(write_questions(tmp_path / "own.jsonl", 4), lab)
    if held:
        assert finished(lab.loaded(subject)).identity == subject.identity
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    with pytest.raises(HeadroomError, match="have changed since they were read; start it once more") as refused:
        list(evaluation(subject, questions, mask).run(lab))
    assert str(folder) in str(refused.value) and "\n" not in str(refused.value)
    assert not [key for key in lab.store.keys() if "/answers/" in key], "nothing lies under a wrong key"
    again = subject_in(lab, folder)
    assert again.identity.digest != subject.identity.digest
    assert len(list(evaluation(again, questions, mask).run(lab))[-1].value) == 4
