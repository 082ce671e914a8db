"""Importance is what a plain loop over single examples computes, gates and all, and what its first order promises."""

import numpy as np
import pytest
import torch

from engine.accuracy.evaluation import accuracy, evaluation
from engine.errors import UsageError
from engine.importance.importance import importance
from engine.models.masks import Mask, single_ablations
from engine.progress import final
from engine.questions.encoding import encode_questions
from tests.engine.fixtures import STOCK, family_folder, finished, questions_in, target_in, write_questions


def asked(session, folder, tmp_path, n, precision="fp32"):
    """(session, target, questions of the train split)."""
    questions = questions_in(write_questions(tmp_path / "own.jsonl", n), session, split="train")
    return session, target_in(session, folder, precision, bos=True), questions


def plain_loops(model, questions):
    """(I_h of Bansal et al. by autograd on z itself, one example at a time; the same with the last layer divided by all
    positions, (L, H) each; gate gradients of each question)."""
    shape = model.identity.shape
    sums, positions, labels = np.zeros((shape.n_layers, shape.n_heads)), 0, 0
    gates = []
    for question, choices in zip(
        questions, encode_questions(questions, model.tokenizer, True, shape.n_ctx), strict=True
    ):
        choice, kept, hooks = choices[question.golds[0]], [], []

        def keep(module, args, kept=kept):
            z = args[0].detach().requires_grad_() if not kept else args[0]
            if kept:
                z.retain_grad()
            kept.append(z)
            return (z, *args[1:])

        for attention_out, _ in model.family.layer_modules(model.model):
            hooks.append(attention_out.register_forward_pre_hook(keep))
        tokens = torch.tensor([choice.inputs])
        logits = model.model(tokens).logits[0]
        n = len(choice.targets)
        loss = torch.nn.functional.cross_entropy(logits[-n:], torch.tensor(choice.targets))
        loss.backward()
        for hook in hooks:
            hook.remove()
        product = torch.stack(
            [(z.detach() * z.grad)[0].view(len(tokens[0]), shape.n_heads, shape.d_head).sum(-1) for z in kept]
        )
        sums += product.abs().sum(1).numpy()
        gates.append(product.sum(1).numpy())
        positions, labels = positions + len(choice.inputs), labels + n
    by_positions, gates = sums / positions, np.array(gates)
    return np.concatenate([by_positions[:-1], sums[-1:] / labels]), by_positions, gates


def plain_loop(model, questions):
    """(I_h, gate gradients)."""
    scores, _, gates = plain_loops(model, questions)
    return scores, gates


@pytest.mark.parametrize("family", STOCK)
def test_heads_by_gradient(family, tiny_opt, tmp_path, session):
    folder = family_folder(family, tiny_opt, tmp_path / "model")
    _, target, questions = about = asked(session, folder, tmp_path, 20)
    scores = final(importance(*about[1:], "heads").run(about[0]))
    model = finished(session.loaded(target))
    expected, by_positions, gates = plain_loops(model, questions.requests.questions)
    np.testing.assert_allclose(scores.scores, expected, rtol=1e-4)
    n_stored = len([*session.store.keys()])
    again = final(importance(*about[1:], "heads-one-divisor").run(about[0]))
    np.testing.assert_allclose(again.scores, by_positions, rtol=1e-4)
    np.testing.assert_allclose(scores.with_other_divisor().scores, again.scores)
    np.testing.assert_allclose(again.with_other_divisor().scores, scores.scores)
    assert len([*session.store.keys()]) == n_stored, "both are of the same passes"
    np.testing.assert_allclose(scores.gate_heads[:, 0], gates, rtol=2e-3, atol=1e-6)  # kept in fp16


def test_int8_ranks_like_fp32(tiny_opt, tmp_path, session):
    precisions = ("fp32", "int8")
    each = (asked(session, tiny_opt, tmp_path, 20, precision) for precision in precisions)
    found = [final(importance(target, questions, "heads").run(session)) for session, target, questions in each]
    assert np.corrcoef(found[0].scores.ravel(), found[1].scores.ravel())[0, 1] > 0.98
    assert found[1].n_zero < 0.05 * found[1].gate_heads.size


@pytest.mark.parametrize("what", ["ffns", "heads-oracle"])
def test_oracle_is_the_accuracy_lost(what, tiny_opt, tmp_path, session):
    about = asked(session, tiny_opt, tmp_path, 30)
    scores, shape = final(importance(*about[1:], what).run(about[0])), about[1].shape
    full = final(evaluation(*about[1:], Mask.full(shape)).run(about[0]))
    for mask, score in zip(single_ablations(shape, what), scores.scores.ravel(), strict=True):
        without = final(evaluation(*about[1:], mask).run(about[0]))
        assert score == pytest.approx(accuracy(full).acc - accuracy(without).acc)
    again = importance(*about[1:], what).stored(about[0])
    np.testing.assert_array_equal(again.scores, scores.scores)
    assert len(set(scores.tie_break.ravel())) == scores.scores.size


def test_an_unknown_score_is_named(tiny_opt, tmp_path, session):
    with pytest.raises(UsageError, match="magic"):
        list(
            importance(*asked(session, tiny_opt, tmp_path, 4)[1:], "magic").run(
                asked(session, tiny_opt, tmp_path, 4)[0]
            )
        )
