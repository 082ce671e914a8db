"""Estimates are what the gate gradients say, to first order, and calibrations say no more than what was measured."""

import time
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.accuracy.evaluation import Accuracy, Answers, evaluate
from engine.errors import UsageError
from engine.importance.calibration import Calibration, Check, recall_calibration
from engine.importance.estimates import (
    Estimate,
    Gradients,
    estimate,
    estimated_correct,
    gradients,
    predicted,
    pruned_at,
    pruned_by,
    recall_gradients,
)
from engine.importance.importance import importance, recall_scores
from engine.importance.rankings import mask_at
from engine.models.masks import Mask, parse_mask
from engine.models.subject import Lab
from engine.progress import final
from engine.questions.encoding import Encoded, encode_questions
from engine.questions.requests import Question
from engine.shapes import ModelShape
from tests.engine.fixtures import family_folder, finished, last, masks_of, questions_in, subject_in, write_questions


def asked(lab, folder, tmp_path, n=6):
    """(lab, subject, questions)."""
    return lab, subject_in(lab, folder, bos=True), questions_in(write_questions(tmp_path / "own.jsonl", n), lab)


def made_up(n=200, n_choices=4, n_layers=12, n_heads=12, seed=0):
    """Gradients of no model; questions have 2 to `n_choices` choices, some scores tie, some choices are two golds."""
    rng = np.random.default_rng(seed)
    questions = []
    for number in range(n):
        count = int(rng.integers(2, n_choices + 1))
        golds = tuple(sorted(rng.choice(count, rng.integers(1, 3), replace=False).tolist()))
        n_chars = tuple(rng.integers(0 if number % 9 == 0 else 1, 9, count).tolist())
        questions.append(Question(number, ("",) * count, ("",) * count, golds, n_chars, str(number)))
    scores = -np.round(rng.gamma(2, 4, (n, n_choices)))  # whole numbers, so that some are equal
    heads = rng.normal(0, 0.5, (n, n_choices, n_layers, n_heads)).astype(np.float16)
    ffns = rng.normal(0, 2, (n, n_choices, n_layers)).astype(np.float16)
    for row, question in enumerate(questions):
        for array in (scores, heads, ffns):
            array[row, len(question.contexts) :] = np.nan
    return Gradients(tuple(questions), scores, heads, ffns)


@pytest.mark.parametrize("family", ["opt", "llama"])
def test_gradients_are_finite_differences_of_the_gates(family, tiny_opt, tmp_path, lab, monkeypatch):
    """Gates of 1 +- step on a head's z and an FFN's output, one at a time, in a float64 copy of the model."""
    import torch

    _, subject, questions = about = asked(lab, family_folder(family, tiny_opt, tmp_path / "model"), tmp_path, 4)
    found = final(gradients(*about))
    model = finished(lab.loaded(subject))
    model.model.double()
    monkeypatch.setattr(  # its own casts to float32 even here
        "transformers.models.llama.modeling_llama.LlamaRMSNorm.forward",
        lambda norm, x: norm.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon),
    )
    shape, step = model.identity.shape, 1e-6  # a ReLU that flips within the step would spoil the slope
    encoded = encode_questions(questions.requests.questions, model.tokenizer, True, shape.n_ctx)
    gate = {"head": np.ones(shape.n_heads), "ffn": 1.0}

    def log_likelihood(choice, modules):
        def on_z(module, args):
            z = args[0].view(*args[0].shape[:-1], shape.n_heads, shape.d_head)
            return (z * torch.from_numpy(gate["head"])[:, None]).view(args[0].shape), *args[1:]

        hooks = [
            modules[0].register_forward_pre_hook(on_z),
            modules[1].register_forward_hook(lambda module, args, output: output * gate["ffn"]),
        ]
        with torch.no_grad():
            logits = model.model(torch.tensor([choice.inputs])).logits[0, -len(choice.targets) :]
        for hook in hooks:
            hook.remove()
        return float(torch.log_softmax(logits, -1)[range(len(choice.targets)), choice.targets].sum())

    for layer, modules in enumerate(model.family.layer_modules(model.model)):
        for part in (*range(shape.n_heads), "ffn"):
            for choice in (choice for choices in encoded for choice in choices):
                values = []
                for value in (1 + step, 1 - step):
                    gate = {"head": np.ones(shape.n_heads), "ffn": 1.0}
                    if part == "ffn":
                        gate["ffn"] = value
                    else:
                        gate["head"][part] = value
                    values.append(log_likelihood(choice, modules))
                slope = (values[0] - values[1]) / (2 * step)
                array = found.ffns[..., layer] if part == "ffn" else found.heads[..., layer, part]
                assert array[choice.question, choice.choice] == pytest.approx(slope, rel=2e-3, abs=1e-4)
    assert found.heads.dtype == found.ffns.dtype == np.float16


def test_where_pruning_changes_little_the_estimate_is_what_is_measured(tiny_opt, tmp_path, lab):
    """With branches scaled down to a thousandth the effect of any mask is linear but for a percent or two of it."""
    import torch
    import transformers

    folder = family_folder("opt", tiny_opt, tmp_path / "model")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        for layer in model.model.decoder.layers:
            for parameter in (layer.self_attn.out_proj.weight, layer.fc2.weight, layer.fc2.bias):
                parameter.mul_(0.001)
    model.save_pretrained(folder)
    about = asked(lab, folder, tmp_path)
    found = final(gradients(*about))
    for mask in masks_of(about[1].shape):
        measured = final(evaluate(*about, mask)).log_likelihood_nats
        effect = measured - found.log_likelihood_nats
        off = predicted(found, mask) - measured
        assert np.nanmax(np.abs(off)) < 0.02 * np.nanmax(np.abs(effect))
        assert np.nanmax(np.abs(effect)) > 0.001


def test_without_a_mask_the_estimate_is_the_measurement(tiny_opt, tmp_path, lab):
    about = asked(lab, tiny_opt, tmp_path, 20)
    found, full = final(gradients(*about)), Mask.full(about[1].shape)
    answers = final(evaluate(*about, full))
    np.testing.assert_array_equal(predicted(found, full), answers.log_likelihood_nats)
    assert estimate(found, full).estimated == answers.correct.mean()
    assert estimate(found, full, "acc_norm").estimated == answers.correct_norm.mean()


def test_they_are_the_gradients_of_importance(tiny_opt, tmp_path, lab):
    """The mean of |g| over gold choices, in the gradient of a mean loss, is Michel et al.'s score."""
    _, subject, questions = about = asked(lab, tiny_opt, tmp_path, 20)
    found = final(gradients(*about))
    scores, by_heads = recall_scores(*about, "gate"), final(importance(*about, "heads"))
    all_questions, tokenizer = questions.requests.questions, finished(lab.loaded(subject)).tokenizer
    encoded = encode_questions(all_questions, tokenizer, True, subject.shape.n_ctx)
    golds = [question.golds[0] for question in all_questions]
    tokens = np.array([len(choices[gold].targets) for choices, gold in zip(encoded, golds, strict=True)])
    rows = np.arange(len(golds))
    mine = found.heads[rows, golds].astype(float) / tokens[:, None, None]
    np.testing.assert_allclose(np.abs(mine).mean(0), scores.scores, rtol=2e-3)
    # those of the gold choice alone in a row: the choices that share a packed row do not touch each other
    np.testing.assert_allclose(-mine, by_heads.gate_heads[:, 0], rtol=4e-3, atol=1e-5)


def test_choices_share_a_pass_where_that_is_cheaper():
    """A pass of the packed row and one back for each choice, against both for each choice alone."""
    from engine.importance.importance import _groups, _rows

    def choices(question, n_shared, n_own, count):
        inputs = [tuple(range(n_shared)) + (100 + choice,) * n_own for choice in range(count)]
        return [Encoded(question, choice, each, (1,), 0) for choice, each in enumerate(inputs)]

    few_shots, long_answers = _rows(choices(0, 60, 2, 4)), _rows(choices(1, 20, 30, 4))
    assert [len(row.choices) for row in few_shots] == [4]  # 68 x 5 tokens against 62 x 8
    assert [len(row.choices) for row in long_answers] == [1] * 4  # 140 x 5 against 50 x 8
    groups = _groups([*long_answers, *few_shots], 200)
    assert [[len(row.choices) for row in group] for group in groups] == [[4], [1] * 4]
    assert [len(group) for group in _groups([*long_answers, *few_shots], 199)] == [1, 3, 1], "50 tokens each"


def test_predicted_equals_a_plain_loop():
    found = made_up(n=12, n_layers=3, n_heads=2)
    shape = ModelShape(3, 2, 2, 8, 4, 16, 64, 64)
    masks = [parse_mask(text, shape) for text in ("", "L0H0", "L2H1 F0", "L*H* F*")]
    together = predicted(found, masks)
    assert together.shape == (4, 12, 4)
    for mask, result in zip(masks, together, strict=True):
        np.testing.assert_allclose(predicted(found, mask), result, atol=1e-4)
        for row in range(12):
            for choice in range(4):
                expected = found.log_likelihood_nats[row, choice]
                for layer in range(3):
                    for head in range(2):
                        if not mask.heads[layer][head]:
                            expected -= float(found.heads[row, choice, layer, head])
                    if not mask.ffns[layer]:
                        expected -= float(found.ffns[row, choice, layer])
                assert result[row, choice] == pytest.approx(expected, abs=1e-4, nan_ok=True)


@pytest.mark.parametrize("metric", ["acc", "acc_norm"])
def test_choices_are_made_as_answers_makes_them(metric):
    """Ties, several golds, missing choices, and lengths of 0 among them."""
    found = made_up(n=200, n_layers=2, n_heads=2)
    scores = found.log_likelihood_nats
    answers = Answers(found.questions, scores, np.zeros(scores.shape, bool), np.zeros(200), False)
    expected = answers.correct if metric == "acc" else answers.correct_norm
    np.testing.assert_array_equal(estimated_correct(found, scores, metric), expected)
    best = np.sort(np.where(np.isnan(scores), -np.inf, scores), 1)
    assert 0 < expected.mean() < 1 and (best[:, -1] == best[:, -2]).any()
    np.testing.assert_array_equal(estimated_correct(found, np.stack([scores] * 2), metric), np.stack([expected] * 2))


def test_every_level_of_two_orders_at_once(monkeypatch):
    found, shape = made_up(), ModelShape(12, 12, 12, 768, 64, 3072, 50272, 2048)
    rng = np.random.default_rng(1)
    heads, ffns = rng.permutation(144), rng.permutation(12)
    head_levels, ffn_levels = list(range(0, 1001, 10)), [0, 83, 84, 500, 1000]
    grid = pruned_at(shape, heads, ffns, head_levels, ffn_levels)
    assert grid.shape == (101, 5, 156)
    for i, h in enumerate(head_levels):
        for j, f in enumerate(ffn_levels):
            np.testing.assert_array_equal(grid[i, j], pruned_by(mask_at(shape, heads, ffns, h, f)))
    started = time.process_time()
    result = estimate(found, grid)
    assert time.process_time() - started < 1.0  # tens of milliseconds of this process's own
    assert result.estimated.shape == (101, 5) and len(np.unique(result.estimated)) > 10
    monkeypatch.setattr("engine.importance.estimates.BLOCK", 1)
    for i, j in ((0, 0), (1, 2), (57, 3), (100, 4)):
        alone = estimate(found, mask_at(shape, heads, ffns, head_levels[i], ffn_levels[j]))
        assert result.estimated[i, j] == pytest.approx(float(alone.estimated), abs=0.006)  # one near-tie of 200
    np.testing.assert_allclose(estimate(found, grid[:3]).estimated, result.estimated[:3], atol=0.006)


def test_the_first_questions_alone():
    found = made_up(n=50, n_layers=2, n_heads=2)
    full = np.zeros(6, bool)
    part = estimate(found, full, n=20)
    assert part.n_questions == 20
    assert part.estimated == estimated_correct(found, found.log_likelihood_nats)[:20].mean()
    assert estimate(found, full, n=99).n_questions == 50


def test_masks_of_another_model_are_refused():
    found = made_up(n=4, n_layers=2, n_heads=2)
    other = ModelShape(3, 2, 2, 8, 4, 16, 64, 64)
    with pytest.raises(UsageError, match="over 9 heads and FFNs, the gradients over 6"):
        predicted(found, Mask.full(other))
    with pytest.raises(UsageError, match="do not fit"):
        pruned_at(other, np.arange(4), np.arange(2), [0], [0])
    with pytest.raises(UsageError, match="'f1'"):
        estimate(found, np.zeros(6, bool), "f1")


def test_a_greedy_task_is_refused_in_one_line(tiny_opt, tmp_path, lab):
    _, subject, questions = asked(lab, tiny_opt, tmp_path)
    greedy = replace(questions, requests=replace(questions.requests, greedy=True))
    with pytest.raises(UsageError, match="greedy decoding.*measure it") as refused:
        next(gradients(lab, subject, greedy))
    assert "\n" not in str(refused.value) and lab.models.loaded is None


def test_keys_differ_with_everything_that_changes_the_gradients(tiny_opt, tmp_path, lab):
    _, subject, questions = about = asked(lab, tiny_opt, tmp_path)
    found = final(gradients(*about))
    again = recall_gradients(*about)
    for name in ("log_likelihood_nats", "heads", "ffns"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    assert again.questions == found.questions
    for other_subject, other_questions in (
        (replace(subject, spec=replace(subject.spec, precision="bf16")), questions),
        (replace(subject, bos=False), questions),
        (subject, asked(lab, tiny_opt, tmp_path / "..", 7)[2]),
        (subject, replace(questions, order=questions.order[::-1])),
        (replace(subject, identity=replace(subject.identity, digest="other")), questions),
    ):
        assert recall_gradients(lab, other_subject, other_questions) is None
    assert recall_scores(*about, "gate", parse_mask("L0H0", subject.shape)) is None


def test_a_cancelled_run_loses_at_most_a_chunk(tiny_opt, tmp_path, lab, monkeypatch):
    import engine.importance.importance as module

    _, subject, questions = about = asked(lab, tiny_opt, tmp_path, 40)
    whole = final(gradients(Lab(_Nothing()), subject, questions))
    steps = gradients(*about)
    first = next(step for step in steps if step.value is not None)
    steps.close()
    assert len(first.value) == 16 and first.done == 40 + 16 and first.total == 80
    assert recall_gradients(*about) is None
    measured, real = [], module._measured

    def counted(loaded, chunk, **rest):
        measured.append(chunk)
        return (yield from real(loaded, chunk=chunk, **rest))

    monkeypatch.setattr(module, "_measured", counted)
    end = last(gradients(*about))
    assert measured == questions.chunks()[1:] and not end.cached
    assert end.done == end.total
    for name in ("log_likelihood_nats", "heads", "ffns"):
        np.testing.assert_array_equal(getattr(end.value, name), getattr(whole, name))
    fresh = Lab(lab.store)
    again = last(gradients(fresh, subject, questions))
    assert again.cached and len(measured) == 2 and fresh.models.loaded is None


class _Nothing:
    """A store that keeps nothing."""

    def get(self, key):
        return None

    def put(self, key, blob):
        pass


def test_chunks_of_a_time_when_lengths_were_not_kept_are_made_again(tiny_opt, tmp_path, lab):
    from engine.records import Record, decode, encode

    about = asked(lab, tiny_opt, tmp_path)
    found = final(gradients(*about))
    (key,) = [key for key in lab.store.keys() if "/importance/" in key]
    record = decode(lab.store.get(key))
    arrays = {name: array for name, array in record.arrays.items() if name != "n_targets"}
    lab.store.put(key, encode(Record(arrays, record.receipt)))
    assert recall_gradients(*about) is None
    again = final(gradients(*about))
    np.testing.assert_array_equal(again.heads, found.heads)


def test_an_estimate_cannot_be_taken_for_a_measurement():
    assert not {field.name for field in fields(Estimate)} & {field.name for field in fields(Accuracy)}
    assert not issubclass(Estimate, Accuracy) and not issubclass(Accuracy, Estimate)
    bare = estimate(made_up(n=5, n_layers=2, n_heads=2), np.zeros((3, 6), bool))
    assert not bare.is_calibrated and not bare.is_trusted.any() and np.isnan(bare.expected_error).all()


def checks(*rows):
    return Calibration(tuple(Check(*row, 200) for row in rows))


def test_leave_one_out_by_hand():
    # residuals (measured - estimated): -.10 at 10 %, -.20 at 20 %, -.24 at 40 %
    calibration = checks((100, 0, 0.9, 0.8), (200, 0, 0.9, 0.7), (400, 0, 0.8, 0.56))
    # 10 %: halfway between 0 at the full model and -.20, so right. 20 %: a third of the way from -.10 to -.24.
    # 40 %: beyond what is left, the residual of 20 %.
    assert calibration.errors_left_out == pytest.approx((0.0, 0.9 - 0.1 - 0.14 / 3 - 0.7, 0.8 - 0.2 - 0.56))
    assert calibration.expected_error(250, 0) == pytest.approx(np.mean([0.0, 0.1 - 0.14 / 3, 0.04]))
    assert calibration.corrected(0.85, 300, 0) == pytest.approx(0.85 - 0.22)
    assert calibration.corrected(0.85, 50, 0) == pytest.approx(0.85 - 0.05)
    assert calibration.corrected(0.85, 900, 0) == pytest.approx(0.85 - 0.24)
    bands = {(band.low, band.high): band for band in calibration.bands()}
    assert list(bands) == [(1, 100), (101, 300), (301, 500)]
    middle = bands[101, 300]
    assert (middle.n_levels, middle.mean_absolute_error, middle.bias) == (1, pytest.approx(0.2), pytest.approx(0.2))
    assert middle.mean_absolute_error_corrected == pytest.approx(0.1 - 0.14 / 3)


def test_the_error_is_that_of_the_three_nearest_levels():
    rows = [
        (level, 0, 0.5, 0.5 + residual)
        for level, residual in zip((100, 200, 300, 400, 500), (0.0, 0.0, 0.0, 0.3, 0.0), strict=True)
    ]
    calibration = checks(*rows)
    assert calibration.errors_left_out == pytest.approx((0.0, 0.0, 0.15, 0.3, 0.3))
    assert calibration.expected_error(110, 0) == pytest.approx(0.05)
    assert calibration.trusted(110, 0) is (calibration.expected_error(110, 0) <= 0.05)
    assert calibration.expected_error(450, 0) == pytest.approx(0.25)
    assert not calibration.trusted(450, 0)


@pytest.mark.parametrize(
    "rows, level",
    [
        ([], (100, 0)),
        ([(100, 0, 0.5, 0.5), (200, 0, 0.5, 0.5)], (150, 0)),  # two levels leave one to correct by
        ([(0, 0, 0.5, 0.5), (100, 0, 0.5, 0.5), (200, 0, 0.5, 0.5)], (150, 0)),  # the full model is no level
        ([(100, 0, 0.5, 0.5), (100, 0, 0.5, 0.5), (200, 0, 0.5, 0.5)], (150, 0)),  # twice the same level
        ([(100, 0, 0.5, 0.5), (200, 0, 0.5, 0.5), (300, 0, 0.5, 0.5)], (301, 0)),  # beyond what was measured
        ([(100, 0, 0.5, 0.5), (200, 0, 0.5, 0.5), (0, 200, 0.5, 0.5)], (100, 100)),  # never both at once
    ],
)
def test_an_error_nobody_measured_is_unknown(rows, level):
    calibration = checks(*rows)
    assert calibration.expected_error(*level) is None
    assert calibration.trusted(*level) is False


def test_few_errors_are_trusted():
    calibration = checks(*((level, 0, 0.5, 0.48) for level in (100, 200, 300, 400)))
    assert calibration.expected_error(260, 0) == pytest.approx(0.0) and calibration.trusted(260, 0)
    assert calibration.expected_error(50, 0) == pytest.approx(0.01 / 3) and calibration.trusted(50, 0)


accuracies = st.integers(0, 200).map(lambda right: right / 200)
levels = st.tuples(st.sampled_from(range(0, 1001, 50)), st.sampled_from((0, 100, 250, 500, 1000)))
measured_points = st.dictionaries(levels.filter(any), st.tuples(accuracies, accuracies), max_size=12)


@settings(deadline=None)  # the machine may be busy
@given(measured_points, levels, accuracies)
def test_corrected_estimates_pass_through_the_measured_points(points, anywhere, estimated):
    calibration = checks(*((*level, *pair) for level, pair in points.items()))
    for level, (bare, measured) in points.items():
        assert calibration.corrected(bare, *level) == pytest.approx(measured, abs=1e-9)
    assert calibration.corrected(estimated, 0, 0) == pytest.approx(estimated, abs=1e-9)  # exact at the full model
    assert 0 <= calibration.corrected(estimated, *anywhere) <= 1
    error = calibration.expected_error(*anywhere)
    assert error is None or 0 <= error <= 1
    assert calibration.trusted(*anywhere) == (error is not None and error <= 0.05)


@settings(deadline=None)
@given(measured_points, st.lists(st.tuples(levels, accuracies), min_size=1, max_size=5))
def test_a_calibration_applied_is_its_parts(points, asked_for):
    calibration = checks(*((*level, *pair) for level, pair in points.items()))
    at, bare = [level for level, _ in asked_for], np.array([value for _, value in asked_for])
    unknown = np.full(bare.shape, np.nan)
    heads, ffns = np.array(at).T
    result = calibration.applied(Estimate("acc", bare, 200, unknown, unknown > 0), heads, ffns)
    assert result.is_calibrated and result.n_questions == 200
    for index, (h, f) in enumerate(at):
        error = calibration.expected_error(h, f)
        assert result.estimated[index] == pytest.approx(calibration.corrected(bare[index], h, f))
        assert result.expected_error[index] == pytest.approx(np.nan if error is None else error, nan_ok=True)
        assert result.is_trusted[index] == calibration.trusted(h, f)


def test_two_axes_add_up_where_nothing_is_measured():
    calibration = checks((200, 0, 0.9, 0.8), (0, 500, 0.9, 0.7))
    assert calibration.corrected(0.9, 200, 500) == pytest.approx(0.6)
    assert calibration.corrected(0.9, 100, 250) == pytest.approx(0.75)
    more = checks((200, 0, 0.9, 0.8), (0, 500, 0.9, 0.7), (200, 500, 0.8, 0.7))  # .2 better than the sum
    assert more.corrected(0.9, 100, 500) == pytest.approx(0.9 - 0.05 - 0.2 + 0.1)
    assert more.corrected(0.9, 200, 250) == pytest.approx(0.9 - 0.1 - 0.1 + 0.1)
    assert more.corrected(0.9, 200, 0) == pytest.approx(0.8)


def test_corrections_are_clipped():
    calibration = checks((100, 0, 0.5, 0.1), (200, 0, 0.5, 0.9))
    assert calibration.corrected(0.2, 100, 0) == 0.0
    assert calibration.corrected(0.8, 200, 0) == 1.0
    np.testing.assert_array_equal(calibration.corrected(np.array([0.2, 0.8]), [100, 200], 0), [0.0, 1.0])


def test_checks_of_one_level_count_by_their_questions():
    calibration = Calibration((Check(100, 0, 0.9, 0.8, 150), Check(100, 0, 0.5, 0.8, 50)))
    assert calibration.levels == (Check(100, 0, pytest.approx(0.8), pytest.approx(0.8), 200),)


def test_a_calibration_is_made_of_what_is_stored(tiny_opt, tmp_path, lab):
    about = asked(lab, tiny_opt, tmp_path, 40)
    found, shape = final(gradients(*about)), about[1].shape
    masks = {(level, 0): mask_at(shape, np.arange(8), np.arange(2), level, 0) for level in (0, 250, 500, 750)}
    assert recall_calibration(*about, found, masks, "acc").levels == ()  # only the full model is stored
    whole = final(evaluate(*about, masks[250, 0]))
    part = next(step.value for step in evaluate(*about, masks[500, 0]) if step.value is not None)
    for metric in ("acc", "acc_norm"):
        levels = recall_calibration(*about, found, masks, metric).levels
        assert [(c.heads_permille, c.n) for c in levels] == [(250, 40), (500, 16)]
        for check, answers in zip(levels, (whole, part), strict=True):
            assert check.measured == (answers.correct if metric == "acc" else answers.correct_norm).mean()
            mask = masks[check.heads_permille, 0]
            assert check.estimated == estimated_correct(found, predicted(found, mask), metric)[: check.n].mean()
