"""What a key says of a model, what every receipt says of a measurement, and no result under another model's key."""

import re
import shutil

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
from tests.engine.fixtures import finished, questions_in, target_in, write_questions

HOW = {"name", "measured_at", "python", "machine", "seconds", "kind", "model", "versions", "precision", "device", "bos"}
NOT_MEASURED = ("requests", "tuning", "rates")  # of no model, or of its pace alone


def test_every_record_says_what_it_is_of_and_how_it_was_measured(session, tiny_opt, tmp_path):
    target = target_in(session, tiny_opt)
    questions = questions_in(write_questions(tmp_path / "own.jsonl", 4), session)
    mask = parse_mask("L0H1", target.shape)
    runs = [importance(target, questions, what).run(session) for what in WHAT]
    runs += [evaluation(target, questions, mask).run(session), cost(target, questions, mask).run(session)]
    runs += [induction(target, "olsson").run(session), token_losses(target, TEXT, mask).run(session)]
    runs += [texts_of(target, Source("text", "mine", TEXT * 6, n_texts=1)).run(session)]
    runs += [head_ablations(target, [TEXT], Ablating(mask)).run(session)]
    runs += [overview(target, TEXT, mask).run(session), head_views(target, TEXT, mask, [(1, 0)]).run(session)]
    for run in runs:
        list(run)
    kinds, masks = set(), set()
    for key in session.store.keys():
        record, kind = decode(session.store.get(key)), key.split("/")[1] if key.count("/") > 1 else ""
        if record is None or kind in NOT_MEASURED:
            continue
        kinds.add(kind)
        receipt = record.receipt
        assert receipt.keys() >= HOW, f"{kind} lacks {HOW - receipt.keys()}"
        assert receipt["name"] == target.identity.name and receipt["model"] == target.identity.digest
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", receipt["measured_at"])
        assert receipt["python"] and receipt["machine"] and receipt["seconds"] >= 0 and receipt["versions"]["torch"]
        if "/answers/" in key and kind == "answers":
            assert receipt["task"]["name"] == questions.task.name and receipt["bos"] is True
            masks.add(receipt["mask"])
    of_texts = {"induction", "tokenloss", "texts", "attribution", "attention"}
    assert "L0H1" in masks
    assert kinds == {"answers", "importance", "activity", "magnitudes", "cost"} | of_texts


@pytest.mark.parametrize("held", [False, True], ids=["not loaded yet", "loaded before"])
def test_a_model_whose_files_have_changed_is_refused_in_one_plain_line(held, session, tiny_opt, tmp_path):
    folder = shutil.copytree(tiny_opt, tmp_path / "model")
    target = target_in(session, folder)
    mask, questions = parse_mask("F1", target.shape), questions_in(write_questions(tmp_path / "own.jsonl", 4), session)
    if held:
        assert finished(session.loaded(target)).identity == target.identity
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    with pytest.raises(HeadroomError, match="have changed since they were read; start it once more") as refused:
        list(evaluation(target, questions, mask).run(session))
    assert str(folder) in str(refused.value) and "\n" not in str(refused.value)
    assert not [key for key in session.store.keys() if "/answers/" in key], "nothing lies under a wrong key"
    again = target_in(session, folder)
    assert again.identity.digest != target.identity.digest
    assert len(list(evaluation(again, questions, mask).run(session))[-1].value) == 4
