"""Estimates are what the gate gradients say, to first order, and calibrations say no more than what was measured."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.accuracy.evaluation import Answers, evaluation
from engine.errors import UsageError
from engine.importance.estimates import (
    STEEP,
    TRUSTED_ERROR,
    Calibration,
    Check,
    Gradients,
    check,
    estimate,
    estimated_correct,
    gradients,
    predicted,
    pruned_by,
)
from engine.importance.orders import Orders
from engine.importance.scores import importance
from engine.models.masks import Mask, parse_mask
from engine.progress import final
from engine.questions.encoding import encode_questions
from engine.questions.rendering import Question
from engine.shapes import ModelShape
from tests.conftest import IS_THOROUGH
from tests.engine.fixtures import (
    family_folder,
    finished,
    masks_of,
    questions_in,
    refused_by,
    target_in,
    write_questions,
)


def asked(session, folder, tmp_path, n=6):
    """(session, target, questions)."""
    return (
        session,
        target_in(session, folder, bos=True),
        questions_in(write_questions(tmp_path / "own.jsonl", n), session),
    )


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
def test_gradients_are_finite_differences_of_the_gates(family, tiny_opt, tmp_path, session, monkeypatch):
    """Gates of 1 +- step on a head's z and an FFN's output, one at a time, in a float64 copy of the model."""
    import torch

    _, target, questions = about = asked(session, family_folder(family, tiny_opt, tmp_path / "model"), tmp_path, 2)
    found = final(gradients(*about[1:]).run(about[0]))
    model = finished(session.loaded(target))
    model.model.double()
    monkeypatch.setattr(  # its own casts to float32 even here
        "transformers.models.llama.modeling_llama.LlamaRMSNorm.forward",
        lambda norm, x: norm.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon),
    )
    shape, step = model.identity.shape, 1e-6  # a ReLU that flips within the step would spoil the slope
    encoded = encode_questions(questions.rendered.questions, model.tokenizer, True, shape.n_ctx)
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


def test_where_pruning_changes_little_the_estimate_is_what_is_measured(tiny_opt, tmp_path, session):
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
    about = asked(session, folder, tmp_path)
    found = final(gradients(*about[1:]).run(about[0]))
    for mask in masks_of(about[1].shape):
        measured = final(evaluation(*about[1:], mask).run(about[0])).log_likelihood_nats
        effect = measured - found.log_likelihood_nats
        off = predicted(found, mask) - measured
        assert np.nanmax(np.abs(off)) < 0.02 * np.nanmax(np.abs(effect))
        assert np.nanmax(np.abs(effect)) > 0.001


def test_without_a_mask_the_estimate_is_the_measurement(tiny_opt, tmp_path, session):
    about = asked(session, tiny_opt, tmp_path, 20)
    found, full = final(gradients(*about[1:]).run(about[0])), Mask.full(about[1].shape)
    answers = final(evaluation(*about[1:], full).run(about[0]))
    np.testing.assert_array_equal(predicted(found, full), answers.log_likelihood_nats)
    assert estimate(found, full).estimated == answers.correct.mean()
    assert estimate(found, full, "acc_norm").estimated == answers.correct_norm.mean()


def test_they_are_the_gradients_of_importance(tiny_opt, tmp_path, session):
    """The mean of |g| over gold choices, in the gradient of a mean loss, is Michel et al.'s score."""
    _, target, questions = about = asked(session, tiny_opt, tmp_path, 20)
    found = final(gradients(*about[1:]).run(about[0]))
    scores, by_heads = (
        importance(*about[1:], "gate").stored(about[0]),
        final(importance(*about[1:], "heads").run(about[0])),
    )
    all_questions, tokenizer = questions.rendered.questions, finished(session.loaded(target)).tokenizer
    encoded = encode_questions(all_questions, tokenizer, True, target.shape.n_ctx)
    golds = [question.golds[0] for question in all_questions]
    tokens = np.array([len(choices[gold].targets) for choices, gold in zip(encoded, golds, strict=True)])
    rows = np.arange(len(golds))
    mine = found.heads[rows, golds].astype(float) / tokens[:, None, None]
    np.testing.assert_allclose(np.abs(mine).mean(0), scores.scores, rtol=2e-3)
    of_ffns = found.ffns[rows, golds].astype(float) / tokens[:, None]
    np.testing.assert_allclose(-of_ffns, scores.gate_ffns[rows, golds], rtol=4e-3, atol=1e-5)
    # those of the gold choice alone in a row: the choices that share a packed row do not touch each other
    np.testing.assert_allclose(-mine, by_heads.gate_heads[:, 0], rtol=4e-3, atol=1e-5)


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


def test_many_masks_at_once(monkeypatch):
    found, shape = made_up(), ModelShape(12, 12, 12, 768, 64, 3072, 50272, 2048)
    rng = np.random.default_rng(1)
    heads, ffns = rng.permutation(144), rng.permutation(12)
    masks = [Orders(shape, heads, ffns).mask(h, f) for h in range(0, 1001, 10) for f in (0, 83, 84, 500, 1000)]
    result = estimate(found, masks)
    assert result.estimated.shape == (505,) and len(np.unique(result.estimated)) > 10
    np.testing.assert_array_equal(estimate(found, pruned_by(masks).reshape(101, 5, 156)).estimated.ravel(),
                                  result.estimated)  # fmt: skip
    monkeypatch.setattr("engine.importance.estimates.BLOCK", 1)
    for at in (0, 7, 288, 504):
        alone = estimate(found, masks[at])
        assert result.estimated[at] == pytest.approx(float(alone.estimated), abs=0.006)  # one near-tie of 200
    np.testing.assert_allclose(estimate(found, masks[:15]).estimated, result.estimated[:15], atol=0.006)


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
    refused_by(UsageError, "over 9 heads and FFNs, the gradients over 6", lambda: predicted(found, Mask.full(other)))
    refused_by(UsageError, "'f1'", lambda: estimate(found, np.zeros(6, bool), "f1"))


def test_a_greedy_task_is_refused_in_one_line(tiny_opt, tmp_path, session):
    _, target, questions = asked(session, tiny_opt, tmp_path)
    greedy = replace(questions, rendered=replace(questions.rendered, greedy=True))
    with pytest.raises(UsageError, match="greedy decoding.*measure it") as refused:
        next(gradients(target, greedy).run(session))
    assert "\n" not in str(refused.value) and session.models.loaded is None


def test_chunks_of_a_time_when_lengths_were_not_kept_are_made_again(tiny_opt, tmp_path, session):
    from engine.records import Record, decode, encode

    about = asked(session, tiny_opt, tmp_path)
    found = final(gradients(*about[1:]).run(about[0]))
    (key,) = [key for key in session.store.keys() if "/importance/" in key]
    record = decode(session.store.get(key))
    arrays = {name: array for name, array in record.arrays.items() if name != "n_targets"}
    session.store.put(key, encode(Record(arrays, record.receipt)))
    assert gradients(*about[1:]).stored(about[0]) is None
    again = final(gradients(*about[1:]).run(about[0]))
    np.testing.assert_array_equal(again.heads, found.heads)


def calibration_of(checks, n_pruned=range(0, 11), estimated=0.9):
    """`checks` as (n_pruned, estimated, measured)."""
    places = np.array(n_pruned)
    bare = np.broadcast_to(np.asarray(estimated, float), places.shape)
    return Calibration(places, bare, tuple(Check(*check, 200) for check in checks))


def test_leave_one_out_by_hand():
    # shifts (measured - estimated): 0 at the full model, -.10 at 1, -.20 at 2, -.24 at 4
    estimated = [0.9, 0.9, 0.9, 0.85, 0.8, 0.8]
    rows = [(0, 0.9, 0.9), (1, 0.9, 0.8), (2, 0.9, 0.7), (4, 0.8, 0.56)]
    calibration = calibration_of(rows, range(6), estimated)
    # 3: halfway between the shifts of 2 and 4. 5: the shift of 4.
    assert calibration.corrected == pytest.approx([0.9, 0.8, 0.7, 0.85 - 0.22, 0.56, 0.8 - 0.24])
    # 1: halfway between 0 at the full model and -.20, so right. 2: a third of the way from -.10 to -.24.
    # 4: beyond what is left, the shift of 2.
    errors = (0.0, 0.9 - 0.1 - 0.14 / 3 - 0.7, 0.8 - 0.2 - 0.56)
    assert calibration.errors_left_out == pytest.approx(errors)
    assert calibration.expected_error[:5] == pytest.approx(max(errors)) and np.isnan(calibration.expected_error[5])


def test_the_estimate_says_where_between_two_measured_places_it_falls():
    estimated = [0.9, 0.88, 0.7, 0.75, 0.2, 0.3]
    rows = [(0, 0.9, 0.9), (5, 0.3, 0.3)]
    # halfway between the nearest falling lines above (.9 .88 .75 .75 .3) and below (.9 .88 .7 .7 .3)
    expected = [0.9, 0.88, 0.725, 0.725, 0.3, 0.3]
    assert calibration_of(rows, range(6), estimated).corrected == pytest.approx(expected)
    upwards = calibration_of([(n, 1 - e, 1 - m) for n, e, m in rows], range(6), 1 - np.array(estimated))
    assert upwards.corrected == pytest.approx(1 - np.array(expected))


def test_what_a_measurement_contradicts_is_not_shown_unchecked():
    """The typed mask of the report: 89% estimated and 32% measured."""
    one = calibration_of([(4, 0.89, 0.32)], range(4, 10), 0.89)
    assert one.contradiction == one.checks[0] and not one.is_shown.any()
    assert one.corrected == pytest.approx(0.32)
    assert calibration_of([(4, 0.89, 0.85)], range(4, 10), 0.89).contradiction is None


accuracies = st.integers(0, 200).map(lambda right: right / 200)
lines = st.lists(st.tuples(accuracies, st.none() | st.tuples(accuracies, accuracies)), min_size=1, max_size=22)
starts = st.integers(0, 3)


def calibrated(line, start):
    """A Calibration of places three parts apart from `start` on."""
    places = [start + 3 * at for at in range(len(line))]
    checks = [(at, *pair) for at, (_, pair) in zip(places, line, strict=True) if pair is not None]
    return calibration_of(checks, places, [bare for bare, _ in line])


def turns(values):
    """How often a line turns back."""
    steps = np.sign(np.diff(values))
    steps = steps[steps != 0]
    return int((steps[1:] != steps[:-1]).sum())


@pytest.mark.thorough
@settings(max_examples=2000 if IS_THOROUGH else 100)
@given(lines, starts)
def test_between_measured_places_a_line_stays_between_them_and_turns_only_there(line, start):
    """Exactly, not up to some margin."""
    calibration = calibrated(line, start)
    corrected, at = calibration.corrected, [at for at, (_, pair) in enumerate(line) if pair is not None]
    measured = [line[each][1][1] for each in at]
    assert ((corrected >= 0) & (corrected <= 1)).all() and corrected[at].tolist() == measured
    for (left, start_acc), (right, end_acc) in zip(zip(at, measured, strict=True),
                                                   list(zip(at, measured, strict=True))[1:], strict=False):  # fmt: skip
        inside = corrected[left : right + 1]
        assert inside.min() == min(start_acc, end_acc) and inside.max() == max(start_acc, end_acc)
    if at:
        assert turns(corrected[at[0] : at[-1] + 1]) == turns(measured)
    else:
        assert corrected.tolist() == [bare for bare, _ in line]


@pytest.mark.thorough
@settings(max_examples=2000 if IS_THOROUGH else 100)
@given(lines, starts)
def test_nothing_untrusted_is_shown(line, start):
    calibration = calibrated(line, start)
    off = [abs(pair[0] - pair[1]) for _, pair in line if pair is not None]
    counted = [at for at, (_, pair) in enumerate(line) if pair is not None and (at or start)]
    measured = [at for at, (_, pair) in enumerate(line) if pair is not None]
    for at in range(len(line)):
        error = calibration.expected_error[at]
        known = len(counted) >= 3 and measured[0] <= at <= measured[-1]
        assert np.isnan(error) != known and not error < 0
        if known:
            nearest = sorted(counted, key=lambda other: (abs(other - at), other))[:3]
            assert error == pytest.approx(max(left_out(line, start, other) for other in nearest))
        sides = [[line[other][1][1] for other in measured if other < at][-1:],
                 [line[other][1][1] for other in measured if other > at][:1]]  # fmt: skip
        is_steep = at not in measured and all(sides) and abs(sides[0][0] - sides[1][0]) > STEEP
        assert calibration.is_trusted[at] == (error <= TRUSTED_ERROR and not is_steep)
        is_shown = error <= TRUSTED_ERROR if known else max(off, default=0) <= TRUSTED_ERROR
        assert calibration.is_shown[at] == (is_shown and not is_steep)


def left_out(line, start, at):
    """How far the line without its check at one place is off there."""
    others = [(bare, None if other == at else pair) for other, (bare, pair) in enumerate(line)]
    return abs(calibrated(others, start).corrected[at] - line[at][1][1])


def check_of(about, found, mask, metric="acc"):
    """The Check of a mask by what is stored of its answers."""
    session, *asked = about
    return check(evaluation(*asked, mask).so_far(session), found, mask, metric)


def test_checks_are_made_of_what_is_stored(tiny_opt, tmp_path, session):
    about = asked(session, tiny_opt, tmp_path, 40)
    found, shape = final(gradients(*about[1:]).run(about[0])), about[1].shape
    masks = {level: Orders(shape, np.arange(8), np.arange(2)).mask(level, 0) for level in (0, 250, 500, 750)}
    full = check_of(about, found, masks[0])
    assert full.estimated == full.measured and (full.n_pruned, full.n) == (0, 40)
    assert [check_of(about, found, masks[level]) for level in (250, 500, 750)] == [None] * 3
    whole = final(evaluation(*about[1:], masks[250]).run(about[0]))
    part = next(step.value for step in evaluation(*about[1:], masks[500]).run(about[0]) if step.value is not None)
    for metric in ("acc", "acc_norm"):
        checks = [check_of(about, found, masks[level], metric) for level in (250, 500)]
        assert [(each.n_pruned, each.n) for each in checks] == [(2, 40), (4, 16)]
        for each, answers, mask in zip(checks, (whole, part), (masks[250], masks[500]), strict=True):
            assert each.measured == (answers.correct if metric == "acc" else answers.correct_norm).mean()
            assert each.estimated == estimated_correct(found, predicted(found, mask), metric)[: each.n].mean()
