"""Rows that lie end to end score as padded ones do, and only the arg-max counts as greedy."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.accuracy import passes, scoring
from engine.accuracy.scoring import read_rows, score
from engine.importance.gradients import gate_gradients
from engine.kernels.kinds import FP32, INTEGER, Kernels
from engine.models.loading import LoadSpec, load
from engine.models.masks import parse_mask
from engine.models.slicing import applied, sliced
from engine.questions import encoding
from engine.questions.encoding import Encoded, batches, encode_questions, joined, pack
from engine.questions.requests import TaskSpec, get_requests
from tests.engine.fixtures import FAMILIES, finished, loaded, write_questions


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    return get_requests(TaskSpec(str(write_questions(tmp_path_factory.mktemp("task") / "own.jsonl", 20)))).questions


@pytest.mark.parametrize("text", ["", "L1H2 L2H0-2 F1", "L0H*"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_padding_no_difference(family, precision, text, folder_of, questions, monkeypatch):
    model = loaded(folder_of(family), precision)
    encoded = encode_questions(questions, model.tokenizer, True, 256)
    parts, lengths = sliced(model, parse_mask(text, model.identity.shape)), []
    hook = model.model.get_input_embeddings().register_forward_pre_hook(
        lambda module, args: lengths.append(args[0].shape)
    )
    with applied(model, parts):
        found = finished(score(model, encoded))
        hook.remove()
        monkeypatch.setattr(passes, "_padding_counts", lambda _: True)
        padded = finished(score(model, encoded))
    tolerance = 1e-4 if precision == "fp32" else 0.05
    np.testing.assert_allclose(found[0], padded[0], atol=tolerance, rtol=tolerance)
    if precision == "fp32":
        np.testing.assert_array_equal(found[1], padded[1])
    rows = [row for choices in encoded for row in pack(choices)]
    assert sum(rows * tokens for rows, tokens in lengths) == sum(len(row.tokens) for row in rows)
    assert model.model.config._attn_implementation == "sdpa"


def test_groups_share_a_pass_up_to_a_size(monkeypatch):
    rows = [encoding._row([Encoded(n, 0, tuple(range(length)), (1,), 0)], length)
            for n, length in enumerate([700, 300, 290, 120, 40, 39, 5])]  # fmt: skip
    monkeypatch.setattr(encoding, "PASS_TOKENS", 1)
    together = joined(batches(rows))
    assert [[[len(row.tokens) for row in group] for group in groups] for groups in together] == [
        [[700]], [[300, 290]], [[120], [40, 39], [5]]]  # fmt: skip


def test_padding_stays_where_stored_results_were_computed_with_it(folder_of, questions):
    """bitsandbytes' own layers look for outlier columns in padding too: their numbers lie under keys without a way."""
    folder = folder_of("opt")

    def n_passes(model):
        rows = [row for choices in encode_questions(questions, model.tokenizer, True, 256) for row in pack(choices)]
        return len(passes.passes(model, rows)), len(batches(rows))

    own = load(LoadSpec(str(folder), "int8"))
    object.__setattr__(own, "products", type(own.products)())
    assert n_passes(own)[0] == n_passes(own)[1] > 1
    object.__setattr__(own, "products", type(own.products)(int8=INTEGER))
    assert n_passes(own)[0] < n_passes(own)[1]
    without = load(LoadSpec(str(folder), "int8", int8_threshold=0.0))
    assert n_passes(without)[0] < n_passes(without)[1]


def test_log_probabilities_and_the_first_of_equal_logits(folder_of, monkeypatch):
    model = loaded(folder_of("opt"))
    choices = [Encoded(0, number, (2, 9, 8), (target,), 0) for number, target in enumerate((7, 5, 6))]
    (row,) = pack(choices)
    logits = torch.randn(1, 512)
    logits[0, 5] = logits[0, 7] = 9.0
    monkeypatch.setattr(model.model, "get_output_embeddings", lambda: lambda hidden: logits.clone())
    monkeypatch.setattr(scoring, "CACHED_POSITIONS", 1)
    ((sums, exact),) = read_rows(model, [row], torch.zeros(1, 32))
    np.testing.assert_allclose(sums, torch.log_softmax(logits, -1)[0, [7, 5, 6]], rtol=1e-6)
    assert exact.tolist() == [False, True, False] and int(logits.argmax()) == 5


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("way", [Kernels(), Kernels(attention=FP32)])
def test_gradients_without_padding_are_those_with_it(family, way, folder_of, questions, monkeypatch):
    """In fp32 up to the order of sums; in bf16 attention in fp32 is no further from fp32 than bf16's own."""
    gradients = {}
    for precision in ("fp32", "bf16"):
        model = loaded(folder_of(family), precision)
        if precision == "bf16":
            model = replace(model, products=way)
        encoded = encode_questions(questions, model.tokenizer, True, 256)
        rows = sorted((pack([choices[0]])[0] for choices in encoded), key=lambda row: -len(row.tokens))
        gradients[precision] = gate_gradients(model, rows)
        if precision == "fp32":
            monkeypatch.setattr(passes, "_padding_counts", lambda _: True)
            padded = gate_gradients(model, rows)
            monkeypatch.undo()
            for found, expected in zip(gradients["fp32"], padded, strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())
    for found, exact in zip(gradients["bf16"], gradients["fp32"], strict=True):
        assert np.linalg.norm(found - exact) < 0.1 * np.linalg.norm(exact)


def test_attention_of_a_gradient_pass_may_be_in_fp32(folder_of, questions, monkeypatch):
    model, seen = loaded(folder_of("llama"), "bf16"), []
    plain = passes.sdpa_attention()

    def spy(module, query, *rest, **options):
        seen.append(query.dtype)
        return plain(module, query, *rest, **options)

    monkeypatch.setattr(passes, "sdpa_attention", lambda: spy)
    encoded = encode_questions(questions[:2], model.tokenizer, True, 256)
    for way, expected in ((Kernels(), torch.bfloat16), (Kernels(attention=FP32), torch.float32)):
        model = replace(model, products=way)
        seen.clear()
        gate_gradients(model, [pack([encoded[0][0]])[0]])
        assert set(seen) == {expected}
        seen.clear()
        finished(score(model, encoded))
        assert set(seen) == {torch.bfloat16}, "answers need no gradient"
