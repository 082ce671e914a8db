"""A log-likelihood is the same however questions are packed, batched and padded and whatever examples they share, and
the same call gives the same bits."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.accuracy import passes, scoring
from engine.accuracy.restarts import score_each
from engine.accuracy.scoring import MIN_PREFIX, read_rows, score, shared_prefix
from engine.errors import HeadroomError
from engine.importance.activity import gate_gradients
from engine.kernels.cpu_kernels import FP32, INTEGER, Kernels
from engine.models.loading import LoadSpec, load
from engine.models.masks import parse_mask, pruned
from engine.models.slicing import applied, sliced
from engine.questions import encoding
from engine.questions.encoding import Encoded, batches, encode_questions, joined, pack
from engine.questions.rendering import Question, TaskSpec, render_questions
from tests.conftest import some_of
from tests.engine.fixtures import EXAMINED, STOCK, finished, in_turns, loaded, refused_by, run, write_questions


def scores_of(model, encoded):
    return finished(score(model, encoded))[0]


def test_packed_equals_one_row_a_choice(tiny_opt, tmp_path, monkeypatch):
    model = loaded(tiny_opt)
    questions = render_questions(TaskSpec(str(write_questions(tmp_path / "own.jsonl", 20)))).questions
    encoded = encode_questions(questions, model.tokenizer, True, model.identity.shape.n_ctx)
    packed = scores_of(model, encoded)
    monkeypatch.setattr(encoding, "MIN_SHARED", 2.0)  # nothing shares that much: a row a choice
    np.testing.assert_allclose(scores_of(model, encoded), packed, atol=1e-4, equal_nan=True)
    monkeypatch.setattr(encoding, "BATCH_TOKENS", 1)
    np.testing.assert_allclose(scores_of(model, encoded), packed, atol=1e-4, equal_nan=True)
    alone = np.concatenate(
        [
            np.pad(row, ((0, 0), (0, packed.shape[1] - row.shape[1])), constant_values=np.nan)
            for row in (scores_of(model, [choices]) for choices in encoded)
        ]
    )
    np.testing.assert_allclose(alone, packed, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("precision", ["int8", "bf16", "fp32"])
def test_the_same_call_repeats_exactly_and_a_limit_changes_nothing(precision, tiny_opt, tmp_path, session):
    questions = write_questions(tmp_path / "own.jsonl", 40)
    first = run(session, tiny_opt, precision, questions, "").value
    session.store.clear()
    again = run(session, tiny_opt, precision, questions, "").value
    np.testing.assert_array_equal(first.log_likelihood_nats, again.log_likelihood_nats)
    session.store.clear()
    some = run(session, tiny_opt, precision, questions, "", limit=21).value
    np.testing.assert_array_equal(some.log_likelihood_nats[:, :2], first.log_likelihood_nats[:21, :2])


@given(st.lists(st.lists(st.integers(3, 6), min_size=1, max_size=30), min_size=1, max_size=5), st.integers(0, 12))
def test_every_token_is_read_once_at_its_own_place(tails, n_shared):
    trunk = tuple(range(100, 100 + n_shared))
    choices = [Encoded(0, number, (trunk + (2, *tail))[:-1], tuple(tail), 0) for number, tail in enumerate(tails)]
    rows = pack(choices)
    read = {}
    for row in rows:
        for number, position, target in row.read:
            # the token before the target, seen from the row, is the one before it in the choice's own sequence
            read.setdefault(row.choices[number].choice, []).append(
                (row.tokens[position], row.positions[position], target)
            )
    for choice in choices:
        whole = choice.inputs
        start = len(whole) - len(choice.targets)
        expected = [(whole[start + i], start + i, target) for i, target in enumerate(choice.targets)]
        assert read[choice.choice] == expected
    assert sum(map(len, batches(rows))) == len(rows)


def test_an_empty_continuation_is_refused(tiny_opt):
    model = loaded(tiny_opt)
    question = Question(7, ("Some text", "Some text"), (" more", ""), (0,), (4, 1), "x")
    refused_by(HeadroomError, "question 7: a choice", lambda: encode_questions([question], model.tokenizer, True, 256))


def test_a_long_context_is_cut_on_the_left(tiny_opt):
    model = loaded(tiny_opt)
    question = Question(0, ("boats " * 500,), (" letters",), (0,), (8,), "x")
    choice = encode_questions([question], model.tokenizer, True, 256)[0][0]
    assert len(choice.inputs) == 256 and choice.n_cut > 0


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    return render_questions(TaskSpec(str(write_questions(tmp_path_factory.mktemp("task") / "own.jsonl", 20)))).questions


def otherwise(model, monkeypatch):
    """Has passes be padded, or, in families that never are, attention read each row by itself."""
    if model.family.is_adapted:
        monkeypatch.setattr(passes, "batches", lambda rows: [[row] for row in rows])
    else:
        monkeypatch.setattr(passes, "_are_separate", lambda _: True)


PACKED_MASKS = ["L1H2 L2H0-2 F1", "", "L0H*"]
IN_FP32 = in_turns(EXAMINED, ["fp32"], PACKED_MASKS)
IN_BF16 = in_turns(some_of(EXAMINED, 3), ["bf16"], PACKED_MASKS)


@pytest.mark.thorough
@pytest.mark.parametrize("family, precision, text", IN_FP32 + IN_BF16)
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
        otherwise(model, monkeypatch)
        padded = finished(score(model, encoded))
    tolerance = 1e-4 if precision == "fp32" else 0.05
    np.testing.assert_allclose(found[0], padded[0], atol=tolerance, rtol=tolerance)
    if precision == "fp32":
        np.testing.assert_array_equal(found[1], padded[1])
    rows = [row for choices in encoded for row in pack(choices)]
    assert sum(rows * tokens for rows, tokens in lengths) == sum(len(row.tokens) for row in rows)
    assert model.model.config._attn_implementation == model.family.attends_by


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


@pytest.mark.thorough
@pytest.mark.parametrize("family, way", in_turns(EXAMINED, [Kernels(), Kernels(attention=FP32)]))
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
            otherwise(model, monkeypatch)
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


ALIKE_MASKS = ["", "L0H1 F1", "L0H*", "L2H* F2", "L1H0-2 F0"]


@pytest.fixture(scope="module")
def alike():
    return render_questions(TaskSpec("demo_outfit", 2, same_examples=True)).questions[:8]


@pytest.mark.thorough
@pytest.mark.parametrize("family, text", in_turns([name for name in EXAMINED if name in STOCK], ALIKE_MASKS))
def test_a_shared_prefix_changes_no_number(family, text, folder_of, alike, monkeypatch):
    model = loaded(folder_of(family))
    encoded = encode_questions(alike, model.tokenizer, True, 256)
    assert len(alike) > 3 and shared_prefix([row for choices in encoded for row in pack(choices)]) > MIN_PREFIX
    mask, calls = parse_mask(text, model.identity.shape), []
    real = scoring.hidden_states
    monkeypatch.setattr(scoring, "hidden_states", lambda *a: calls.append(a[2].n) or real(*a))
    with applied(model, sliced(model, mask)):
        shared = finished(score(model, encoded))
    assert min(calls) > MIN_PREFIX
    monkeypatch.setattr(scoring, "MIN_PREFIX", 10_000)
    monkeypatch.setattr(scoring, "hidden_states", real)
    with pruned(model, mask):
        apart = finished(score(model, encoded))
    np.testing.assert_allclose(shared[0], apart[0], atol=2e-4)
    np.testing.assert_array_equal(shared[1], apart[1])


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_low_precision_stays_near_and_repeats(precision, folder_of, alike, monkeypatch):
    model = loaded(folder_of("opt"), precision)
    encoded = encode_questions(alike, model.tokenizer, True, 256)
    first, again = finished(score(model, encoded)), finished(score(model, encoded))
    np.testing.assert_array_equal(first[0], again[0])
    monkeypatch.setattr(scoring, "MIN_PREFIX", 10_000)
    apart = finished(score(model, encoded))[0]
    assert np.nanmax(np.abs(first[0] - apart) / (1 + np.abs(apart))) < 0.1


def test_the_oracle_agrees_with_single_evaluations(folder_of, alike):
    model = loaded(folder_of("opt"), "bf16")
    encoded = encode_questions(alike, model.tokenizer, True, 256)
    masks = [parse_mask(text, model.identity.shape) for text in ALIKE_MASKS]
    for mask, found in zip(masks, finished(score_each(model, encoded, masks)), strict=True):
        with applied(model, sliced(model, mask)):
            np.testing.assert_array_equal(found[0], finished(score(model, encoded))[0])


def test_examples_are_those_of_the_harnesss_first_question():
    own = render_questions(TaskSpec("demo_outfit", 3)).questions
    same = render_questions(TaskSpec("demo_outfit", 3, same_examples=True)).questions
    assert same[0].contexts == own[0].contexts and same[0].golds == own[0].golds
    none = render_questions(TaskSpec("demo_outfit", 0)).questions
    examples = same[0].contexts[0].removesuffix(none[0].contexts[0])
    assert examples and all(q.contexts[0] == examples + plain.contexts[0] for q, plain in zip(same, none, strict=True))
    assert [q.contexts for q in own[1:5]] != [q.contexts for q in same[1:5]]
    assert [q.golds for q in own] == [q.golds for q in same]


def test_what_shares_little_is_not_split(folder_of, tmp_path):
    alike = render_questions(TaskSpec(str(write_questions(tmp_path / "own.jsonl", 6)), 2)).questions
    model = loaded(folder_of("opt"))
    rows = [row for choices in encode_questions(alike, model.tokenizer, True, 256) for row in pack(choices)]
    assert shared_prefix(rows) == 0 and shared_prefix(rows[:1]) == 0
