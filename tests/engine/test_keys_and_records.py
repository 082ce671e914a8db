"""A result is found again by what it is of and never by anything else, with its receipt (promise P6); none lies under
another model's key."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from engine import records as results
from engine.accuracy.evaluation import chunk_pieces, evaluation
from engine.accuracy.speed import speed
from engine.errors import HeadroomError
from engine.heads.ablation import Ablating, head_ablations
from engine.heads.attention import head_views, overview
from engine.heads.induction import induction
from engine.importance.scores import WHAT, importance
from engine.models import session as sessions
from engine.models.loading import LoadSpec, identify
from engine.models.masks import Mask, parse_mask
from engine.models.session import target_of
from engine.questions.rendering import Questions, TaskSpec, render_questions
from engine.records import Record, canonical_key, decode, encode
from engine.texts.passages import Source, texts_of
from engine.texts.tokenloss import token_losses
from tests.conftest import TEXT
from tests.engine.fixtures import finished, python, questions_in, target_in, write_questions

DTYPES = st.sampled_from([np.float16, np.float32, np.float64, np.int32, np.int64, np.uint8])
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)


@given(st.dictionaries(st.text("abcxyz_", min_size=1), ARRAYS, max_size=4), st.booleans())
def test_a_record_round_trips(arrays, transposed):
    arrays = {name: array.T if transposed else array for name, array in arrays.items()}
    receipt = {"kind": "test", "nested": {"list": [1, None, "ü"]}}
    record = decode(encode(Record(arrays, receipt)))
    assert record.receipt == receipt and set(record.arrays) == set(arrays)
    for name, array in arrays.items():
        assert record.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(record.arrays[name], array)


@given(st.binary(max_size=200))
def test_malformed_bytes_are_a_miss(blob):
    assert decode(blob) is None


def test_a_huge_header_and_an_absurd_shape_are_a_miss():
    huge = b'{"a":"' + b"x" * 2_000_000 + b'"}'
    assert decode(len(huge).to_bytes(8, "little") + huge) is None
    absurd = json.dumps({"a": {"dtype": "F64", "shape": [2**40, 2**20], "data_offsets": [0, 8]},
                         "__metadata__": {"record": "{}"}}).encode()  # fmt: skip
    assert decode(len(absurd).to_bytes(8, "little") + absurd + b"\0" * 8) is None


KEY_PROGRAM = """
from engine.records import canonical_key
print(canonical_key("answers", {"b": [1, 2], "a": {"y": None, "x": "ü"}, "c": True}))
"""


def test_keys_are_the_same_in_every_process():
    keys = {python(KEY_PROGRAM, PYTHONHASHSEED=seed) for seed in ("0", "77")}
    assert keys == {canonical_key("answers", {"c": True, "a": {"x": "ü", "y": None}, "b": [1, 2]}) + "\n"}


@pytest.mark.parametrize("value", [0.5, {1, 2}, b"x", {"a": 1.0}, [0.1], float("nan")])
def test_floats_sets_and_bytes_are_no_keys(value):
    with pytest.raises(TypeError):
        canonical_key("x", {"field": value})


def test_every_field_of_the_key_counts(tiny_opt, tmp_path, monkeypatch):
    rendered = render_questions(TaskSpec(str(write_questions(tmp_path / "own.jsonl", 20))))
    spec = LoadSpec(str(tiny_opt), "int8")
    identity = identify(spec)
    full = Mask.full(identity.shape)

    def key(identity=identity, spec=spec, rendered=rendered, chunk=(0, 1), mask=full, bos=True):
        (piece,) = chunk_pieces(target_of(spec, identity, bos), Questions(rendered, chunk, len(chunk)), mask)
        return piece.key

    others = write_questions(tmp_path / "other.jsonl", 20, seed=1)
    found = [
        key(),
        key(identity=dataclasses.replace(identity, digest="0" * 32)),
        key(identity=dataclasses.replace(identity, tokenizer_digest="0" * 32)),
        key(spec=dataclasses.replace(spec, precision="bf16")),
        key(spec=dataclasses.replace(spec, precision="fp32")),
        key(spec=dataclasses.replace(spec, int8_threshold=0.0)),
        key(rendered=render_questions(TaskSpec(str(others)))),
        key(rendered=render_questions(TaskSpec(rendered.task.name, shots=1))),
        key(chunk=(1, 0)),
        key(chunk=(0, 1, 2)),
        key(mask=parse_mask("F1", identity.shape)),
        key(mask=parse_mask("L1H1", identity.shape)),
        key(bos=False),
    ]
    here = (sessions, "version", lambda name: "0.0"), (sessions, "device_class", lambda: "cuda")
    for module, name, value in (*here, (results, "SCHEMA", "another")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            found.append(key())
    assert len(set(found)) == len(found)
    assert key(bos=None) == key() == key(mask=parse_mask(" , ", identity.shape)), "the same meaning, typed differently"
    assert key(spec=dataclasses.replace(spec, model="elsewhere")) == key(), "a path is not part of a model"
    fp32 = dataclasses.replace(spec, precision="fp32")
    assert key(spec=dataclasses.replace(fp32, int8_threshold=0.0)) == key(spec=fp32), "only int8 has outliers"
    targets = [target_of(each, identity, bos) for each in (spec, fp32) for bos in (True, False)]
    assert len({str(each) for each in targets}) == 4, "each says in words what it is"


HOW = {"name", "measured_at", "python", "machine", "seconds", "kind", "model", "versions", "precision", "device", "bos"}
NOT_MEASURED = ("requests", "tuning", "rates", "self-check")  # of no model, of its pace alone, or of its layout


def test_every_record_says_what_it_is_of_and_how_it_was_measured(session, tiny_opt, tmp_path):
    target = target_in(session, tiny_opt)
    questions = questions_in(write_questions(tmp_path / "own.jsonl", 4), session)
    mask = parse_mask("L0H1", target.shape)
    runs = [importance(target, questions, what).run(session) for what in WHAT]
    runs += [evaluation(target, questions, mask).run(session), speed(target, mask).run(session)]
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
    of_texts = {"induction", "tokenloss", "texts", "attribution", "attention", "copy suppression", "retrieval"}
    assert "L0H1" in masks
    assert (
        kinds
        == {"answers", "importance", "activity", "magnitudes", "speed", "function vectors", "entity induction"}
        | of_texts
    )


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
