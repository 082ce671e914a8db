"""Accuracy with means in place of pruned components equals plain loops with hooks; without them nothing changes."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.accuracy.evaluation import evaluation
from engine.architecture.family import family_of
from engine.errors import UsageError
from engine.heads import fills
from engine.heads.fills import filled_evaluation
from engine.models.masks import Mask, parse_mask
from engine.models.patterns import visited
from engine.progress import final
from engine.questions.encoding import encode_questions
from tests.engine.fixtures import family_folder, questions_in, refused_by, target_in, write_questions

HEADS, FFN = ((0, 1), (2, 3)), 1


@pytest.mark.parametrize("family", "opt llama gpt2 gpt_neox".split())
def test_log_likelihoods_equal_a_loop_that_puts_means_in(family, tiny_opt, tmp_path, session, monkeypatch):
    monkeypatch.setattr(fills, "N_QUESTIONS", 5)
    folder = family_folder(family, tiny_opt, tmp_path / "model")
    file = write_questions(tmp_path / "own.jsonl", 8)
    asked, train = (questions_in(file, session, split=split) for split in ("validation", "train"))
    target = target_in(session, folder, "fp32")
    mask = parse_mask("L0H1 L2H3 F1", target.shape)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    modules, width = family_of(target.identity.config).layer_modules(model), target.shape.d_head
    tokenizer = session.models.get(target.spec).tokenizer

    def texts(questions, rows, only_gold):
        for question, choices in zip(rows, encode_questions(rows, tokenizer, target.bos, 256), strict=True):
            for choice in [choices[question.golds[0]]] if only_gold else choices:
                yield choice, [*choice.inputs, int(choice.targets[-1])]

    z, ffn, n, seen = {place: 0.0 for place in HEADS}, 0.0, 0, {}
    hooks = [modules[at][0].register_forward_pre_hook(lambda _, args, at=at: seen.update({at: args[0][0]}))
             for at in (0, 2)]  # fmt: skip
    hooks.append(modules[FFN][1].register_forward_hook(lambda _, args, out: seen.update(ffn=out)))
    for _, ids in texts(train, train.at(train.order[:5]), True):
        with torch.no_grad():
            model(torch.tensor([ids]))
        for layer, head in HEADS:
            z[layer, head] = z[layer, head] + seen[layer][:, head * width : (head + 1) * width].sum(0)
        ffn, n = ffn + seen["ffn"].reshape(len(ids), -1).sum(0), n + len(ids)

    for hook in hooks:
        hook.remove()

    def put(layer, head):
        def hook(module, args):
            changed = args[0].clone()
            changed[..., head * width : (head + 1) * width] = z[layer, head] / n
            return (changed, *args[1:])

        return hook

    for layer, head in HEADS:
        modules[layer][0].register_forward_pre_hook(put(layer, head))
    modules[FFN][1].register_forward_hook(lambda _, args, out: (ffn / n).expand_as(out))
    expected = []
    for choice, ids in texts(asked, asked.at(asked.order[:8]), False):
        with torch.no_grad():
            nats = model(torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
        targets = torch.tensor(list(choice.targets))
        expected.append(float(nats[-len(targets) :].gather(1, targets[:, None]).sum()))
    found = final(filled_evaluation(target, asked, lambda: train, mask, "mean").run(session)).log_likelihood_nats
    np.testing.assert_allclose(found[np.isfinite(found)], expected, atol=1e-5, rtol=1e-6)
    zero = final(evaluation(target, asked, mask).run(session)).log_likelihood_nats
    assert np.nanmax(np.abs(found - zero)) > 1e-3


def test_nothing_pruned_needs_no_means(tiny_opt, tmp_path, session):
    file = write_questions(tmp_path / "own.jsonl", 4)
    asked, target = questions_in(file, session), target_in(session, tiny_opt)
    full = Mask.full(target.shape)
    final(evaluation(target, asked, full).run(session))
    train = questions_in(file, session, split="train")
    assert filled_evaluation(target, asked, lambda: train, full, "mean").stored_part(session).is_complete
    pruned = filled_evaluation(target, asked, lambda: train, parse_mask("L0H0", target.shape), "mean")
    left = pruned.left(session)
    final(pruned.run(session))
    assert left.characters["forward"] > 0 and pruned.stored_part(session).is_complete


@pytest.mark.parametrize("family", "opt llama gpt2 gpt_neox".split())
def test_knockout_equals_a_loop_that_takes_out_what_heads_read_there(family, tiny_opt, tmp_path, session):
    folder, at = family_folder(family, tiny_opt, tmp_path / "model"), (1, 2)
    asked = questions_in(write_questions(tmp_path / "own.jsonl", 6), session)
    target = target_in(session, folder, "fp32")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    out = family_of(target.identity.config).layer_modules(model)[at[0]][0]
    loaded, shape, values = session.models.get(target.spec), target.shape, {}
    mine, expected = slice(at[1] * shape.d_head, (at[1] + 1) * shape.d_head), []
    rows = asked.at(asked.order[:6])
    for question in encode_questions(rows, loaded.tokenizer, target.bos, 256):
        for choice in question:
            ids = [*choice.inputs]
            with visited(loaded, lambda layer, pattern, z, held: values.update({layer: held[0]})), torch.no_grad():
                loaded.model(torch.tensor([ids]))  # the values are those of the full model: layers below are unchanged
                pattern = model(torch.tensor([ids]), output_attentions=True).attentions[at[0]][0, at[1]]
            taken = torch.zeros(len(ids), shape.d_head)
            for q in range(len(ids)):
                for k in range(1, q + 1):
                    if ids[k - 1] == ids[q]:
                        taken[q] += pattern[q, k] * values[at[0]][at[1], k]

            def hook(module, args, taken=taken):
                changed = args[0].clone()
                changed[..., mine] -= taken
                return (changed, *args[1:])

            handle = out.register_forward_pre_hook(hook)
            with torch.no_grad():
                nats = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            handle.remove()
            targets = torch.tensor(list(choice.targets))
            expected.append(float(nats[-len(targets) :].gather(1, targets[:, None]).sum()))
    mask = parse_mask("L1H2", shape)
    found = final(filled_evaluation(target, asked, lambda: asked, mask, "knockout").run(session)).log_likelihood_nats
    np.testing.assert_allclose(found[np.isfinite(found)], expected, atol=1e-5, rtol=1e-6)
    full = final(evaluation(target, asked, Mask.full(shape)).run(session)).log_likelihood_nats
    assert np.nanmax(np.abs(found - full)) > 1e-4


def test_an_ffn_has_no_attention_to_cut(tiny_opt, tmp_path, session):
    asked, target = questions_in(write_questions(tmp_path / "own.jsonl", 4), session), target_in(session, tiny_opt)
    mask = parse_mask("L0H0 F1", target.shape)
    refused_by(UsageError, "no attention", lambda: filled_evaluation(target, asked, lambda: asked, mask, "knockout"))
