"""Patched prompts equal full passes with hooks, and say where two prompts differ in a model that is built for it."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.architecture.family import family_of
from engine.demo import model_folder
from engine.errors import HeadroomError, UsageError
from engine.heads.patching import HEADS, KINDS, Patching, patch_map
from engine.models.loading import PRECISIONS
from engine.progress import final
from engine.requests import PatchPrompts
from tests.conftest import TEXT
from tests.engine.fixtures import caught, family_folder, in_turns, refused_by, target_in
from tests.engine.test_circuits_of_hand_built_models import built

N = 12


def prompts(tokenizer):
    """Two prompts of N tokens that differ in the middle."""
    ids = tokenizer(TEXT, add_special_tokens=False).input_ids
    return tokenizer.decode(ids[:N]), tokenizer.decode([*ids[:5], ids[20], ids[21], *ids[7:N]])


def words_of_one_token(tokenizer):
    """Those of the text."""
    return [word for word in dict.fromkeys(TEXT.split()) if len(tokenizer.tokenize(f" {word}")) == 1]


def two_answers(tokenizer):
    """Words of one token."""
    first, second, *_ = words_of_one_token(tokenizer)
    return first, second


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != HEADS])
@pytest.mark.parametrize("family", "opt llama gpt2 gpt_neox".split())
def test_every_place_equals_a_full_pass_with_a_hook(family, kind, tiny_opt, tmp_path, session):
    target = target_in(session, family_folder(family, tiny_opt, tmp_path / "model"), "fp32", bos=False)
    tokenizer = AutoTokenizer.from_pretrained(tiny_opt)
    texts, answers = prompts(tokenizer), two_answers(tokenizer)
    found = final(patch_map(target, Patching(*texts, kind, answers)).run(session))
    assert found is not None and [*found.effects] == [0, 1, 2]
    differences, effect = by_hooks(target, tmp_path / "model", texts, kind, answers)
    assert found.differences == pytest.approx(differences, abs=1e-4)
    for layer, at in np.ndindex(3, N):
        assert found.effects[layer][at] == pytest.approx(effect(layer, at, at), abs=1e-4), (layer, at)
    assert np.abs(np.stack([*found.effects.values()])).max() > 0.1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != HEADS])
@pytest.mark.parametrize("family", ["embedded", "llama"])
def test_a_pair_of_positions_equals_full_passes_with_a_hook(family, kind, tiny_opt, tmp_path, session):
    folder = model_folder() if family == "embedded" else family_folder(family, tiny_opt, tmp_path / "model")
    target, tokenizer = target_in(session, folder, "fp32", bos=False), AutoTokenizer.from_pretrained(folder)
    answers, words = two_answers(tokenizer), words_of_one_token(tokenizer)[2:]
    a, b = (f" {' '.join([*words[: N - 2], *two])}" for two in (words[N - 2 : N], words[N : N + 2]))
    every = final(patch_map(target, Patching(a, b, kind, answers)).run(session))
    _, effect = by_hooks(target, folder, (a, b), kind, answers)
    largest = 0.0
    for source, at in ((5, 5), (N - 2, N - 2), (-1, -1), (5, N - 1), (N - 1, 5), (-2, -1)):
        pair = final(patch_map(target, Patching(a, b, kind, answers, (source, at))).run(session))
        assert pair is not None and every is not None and [*pair.effects] == [*every.effects]
        assert pair.pair == (source % N, at % N)
        for layer, [share] in pair.effects.items():
            assert share == pytest.approx(effect(layer, source, at), abs=1e-5), (layer, source, at)
            if source == at:
                assert share == pytest.approx(every.effects[layer][at], abs=1e-5), "the column of the map"
            else:
                largest = max(largest, abs(share))
    assert largest > 0.1


def by_hooks(target, folder, texts, kind, answers):
    """(the difference of the answers' logits after each text, the effect of an activation of the second put into the
    first, by layer, position in the second, and position in the first), by full passes with hooks."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    a, b = (torch.tensor([tokenizer(text, add_special_tokens=False).input_ids]) for text in texts)
    model, of = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(),
        family_of(target.identity.config),
    )
    layers, modules = of.layer_list(model), [each[kind == "ffn"] for each in of.layer_modules(model)]
    first, second = (tokenizer(f" {answer}", add_special_tokens=False).input_ids[0] for answer in answers)
    with torch.no_grad(), caught(*modules, outputs=True) as outputs:
        after = model(b, output_hidden_states=True)

    def difference(logits):
        return float(logits[0, -1, second] - logits[0, -1, first])

    def read_a():
        with torch.no_grad():
            return difference(model(a).logits)

    def put(held, value, at):
        held = held.clone()
        held.view(-1, held.shape[-1])[at] = value
        return held

    of_a, of_b = read_a(), difference(after.logits)

    def effect(layer, source, at):
        values = after.hidden_states[layer][0] if kind == "stream" else outputs[modules[layer]]
        value = values.reshape(-1, values.shape[-1])[source]

        def before_layer(module, args, kwargs):
            if args:
                return (put(args[0], value, at), *args[1:]), kwargs
            return args, kwargs | {"hidden_states": put(kwargs["hidden_states"], value, at)}

        if kind == "stream":
            hook = layers[layer].register_forward_pre_hook(before_layer, with_kwargs=True)
        else:
            hook = modules[layer].register_forward_hook(lambda m, x, y: put(y, value, at))
        patched = read_a()
        hook.remove()
        return (patched - of_a) / (of_b - of_a)

    return (of_a, of_b), effect


@pytest.mark.parametrize("family", "opt llama gpt2 gpt_neox".split())
def test_every_head_at_the_last_token_equals_a_full_pass_with_a_hook(family, tiny_opt, tmp_path, session):
    target = target_in(session, family_folder(family, tiny_opt, tmp_path / "model"), "fp32", bos=False)
    tokenizer = AutoTokenizer.from_pretrained(tiny_opt)
    texts, answers = prompts(tokenizer), two_answers(tokenizer)
    found = final(patch_map(target, Patching(*texts, HEADS, answers)).run(session))
    a, b = (torch.tensor([tokenizer(text, add_special_tokens=False).input_ids]) for text in texts)
    model, of = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval(), family_of(target.identity.config)
    outs = [out for out, _ in of.layer_modules(model)]
    with torch.no_grad(), caught(*outs) as inputs:
        after = model(b).logits[0, -1]
    first, second = (tokenizer(f" {answer}", add_special_tokens=False).input_ids[0] for answer in answers)
    with torch.no_grad():
        of_a, of_b = (float(logits[second] - logits[first]) for logits in (model(a).logits[0, -1], after))
    for layer, head in np.ndindex(3, 4):
        mine, z = slice(8 * head, 8 * head + 8), inputs[outs[layer]][0, -1].clone()

        def put(module, args, mine=mine, z=z):
            held = args[0].clone()
            held[0, -1, mine] = z[mine]
            return (held, *args[1:])

        hook = outs[layer].register_forward_pre_hook(put)
        with torch.no_grad():
            logits = model(a).logits[0, -1]
        hook.remove()
        effect = (float(logits[second] - logits[first]) - of_a) / (of_b - of_a)
        assert found.effects[layer][head] == pytest.approx(effect, abs=1e-4), (layer, head)
    assert np.abs(np.stack([*found.effects.values()])).max() > 0.01


def test_the_difference_comes_from_the_one_token_that_differs_and_moves_with_the_head(tiny_opt, tmp_path, session):
    """Layer 0 averages over the prompt, so each token's embedding is at the last position from layer 1 on."""

    def change(decoder):
        attention = decoder.layers[0].self_attn
        attention.q_proj.weight.zero_()
        basis = torch.linalg.qr(torch.randn(attention.v_proj.weight.shape[1], 64))[0]
        attention.v_proj.weight[:64], attention.out_proj.weight[:, :64] = basis.T, 200 * basis

    built(tiny_opt, tmp_path / "model", change, n_layers=2)
    target = target_in(session, tmp_path / "model", "fp32", bos=False)
    tokenizer = AutoTokenizer.from_pretrained(tiny_opt)
    ids = tokenizer(TEXT, add_special_tokens=False).input_ids[:8]
    words = two_answers(tokenizer)
    other = next(each for each in range(300, 512) if tokenizer(tokenizer.decode([*ids[:3], each, *ids[4:]]),
                 add_special_tokens=False).input_ids == [*ids[:3], each, *ids[4:]])  # fmt: skip
    a, b = tokenizer.decode(ids), tokenizer.decode([*ids[:3], other, *ids[4:]])
    found = final(patch_map(target, Patching(a, b, "stream", words)).run(session))
    assert found is not None
    assert found.effects[0] == pytest.approx(np.eye(8)[3], abs=1e-3), "before the head: at the token"
    assert found.effects[1] == pytest.approx(np.eye(8)[7], abs=1e-3), "after it: at the last token"
    heads = final(patch_map(target, Patching(a, b, HEADS, words)).run(session))
    assert heads is not None
    first, *others = np.concatenate([*heads.effects.values()])
    assert first == pytest.approx(1, abs=1e-3), "all of it comes with the head that was built"
    assert others == pytest.approx(np.zeros(len(others)), abs=1e-3)


def deaf(decoder):
    """Lets no token hear of another: prompts that end alike have the same logits, up to rounding."""
    for layer in decoder.layers:
        for module in (layer.fc1, layer.fc2):
            module.weight.normal_(std=0.3)
        layer.self_attn.v_proj.weight.zero_()
        layer.self_attn.v_proj.bias.zero_()


@pytest.mark.parametrize("kind, precision", in_turns(KINDS, PRECISIONS))
def test_a_difference_within_rounding_has_no_shares(precision, kind, tiny_opt, tmp_path, session):
    built(tiny_opt, tmp_path / "model", deaf)
    tokenizer = AutoTokenizer.from_pretrained(tiny_opt)
    (a, b), words = prompts(tokenizer), two_answers(tokenizer)
    for pair in (None, "2,-1") if kind != HEADS else (None,):
        out = tmp_path / f"{pair}.csv"
        asked = PatchPrompts(model=str(tmp_path / "model"), precision=precision, bos=False, prompt=a, other_prompt=b,
                             patched=kind, answers=",".join(words), pair=pair, out=str(out))  # fmt: skip
        result = asked.run(session)
        found = result.value
        before, after = found.differences
        assert 0 < found.rounding < 1 and abs(after - before) <= 2 * found.rounding and not found.is_clear
        assert all(np.isnan(effects).all() for effects in found.effects.values())
        assert result.frame()["effect"].isna().all() and pd.read_csv(out)["effect"].isna().all()
        assert result.fields["largest"] == [] and "%" not in result.text
        assert "no shares: the prompts differ by" in result.text.splitlines()[-1]
        refused_by(UsageError, "no chart", result.chart)


def test_prompts_that_cannot_be_compared_are_refused(tiny_opt, session):
    target = target_in(session, tiny_opt, "fp32")
    refused_by(
        HeadroomError,
        "write them equally long",
        lambda: final(patch_map(target, Patching("a", "the river")).run(session)),
    )
    same = Patching(TEXT[:30], TEXT[:30], answers=("a", "b"))
    refused_by(HeadroomError, "have the same tokens", lambda: final(patch_map(target, same).run(session)))
    alike = Patching("the river", "the house", answers=("a", "a"))
    refused_by(HeadroomError, "both answers begin with", lambda: final(patch_map(target, alike).run(session)))
    beyond = Patching("the river", "the house", answers=("a", "river"), pair=(0, 99))
    refused_by(HeadroomError, "choose positions from 0 to", lambda: final(patch_map(target, beyond).run(session)))
    refused_by(UsageError, "'half' is unknown", lambda: Patching("a", "b", "half"))
    refused_by(UsageError, "at the last token alone", lambda: Patching("a", "b", HEADS, pair=(0, 0)))


def test_a_pair_is_one_position_or_two():
    asked = PatchPrompts(prompt="a", other_prompt="b")
    pairs = [replace(asked, pair=text).wanted().pair for text in ("3,5", "-1", "4,4")]
    assert pairs == [(3, 5), (-1, -1), (4, 4)] and asked.wanted().pair is None
    for text in ("", "1,2,3", "one"):
        refused_by(UsageError, "--pair", replace(asked, pair=text).wanted)
