"""Token and concept induction equal a plain loop of full passes with hooks, and tell an induction circuit that was
built by hand from concept induction."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.architecture.family import family_of
from engine.errors import HeadroomError
from engine.heads import entity_induction as module
from engine.heads.entity_induction import KINDS, entity_induction, included_words
from engine.progress import final
from tests.engine.fixtures import family_folder, refused_by, target_in
from tests.engine.test_circuits_of_hand_built_models import built

ENTITIES = ("zebra", "quartz", "xylem", "jumbo", "vex", "kiwi")  # of several tokens


@pytest.fixture
def few(monkeypatch):
    """Fewer prompts: a plain loop takes a full pass per head and prompt."""
    monkeypatch.setattr(module, "PART", 2)


@pytest.mark.parametrize("family", "opt llama gpt2 gpt_neox".split())
def test_scores_equal_a_full_pass_per_head(family, tiny_opt, tmp_path, session, few):
    folder = family_folder(family, tiny_opt, tmp_path / "model")
    target = target_in(session, folder, "fp32")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    outs, loaded = family_of(target.identity.config).layer_modules(model), session.models.get(target.spec)
    entities = module._entities(AutoTokenizer.from_pretrained(folder), ENTITIES)
    rise, shares, values = {kind: [] for kind in KINDS}, {kind: [] for kind in KINDS}, {}

    def after(ids, change=lambda at, z: None, **asked):
        hooks = [outs[at][0].register_forward_pre_hook(lambda _, args, at=at: change(at, args[0][0]))
                 for at in range(3)]  # fmt: skip
        with torch.no_grad():
            found = model(torch.tensor([ids]), **asked)
        for hook in hooks:
            hook.remove()
        return found

    for kind, number in ((kind, number) for kind in KINDS for number in range(2)):
        clean, corrupt, back, wanted, source = module._prompt(loaded, kind, number, entities)
        kept = {}
        found = after(clean, lambda at, z, kept=kept, back=back: kept.update({at: z[-back].clone()}),
                      output_attentions=True)  # fmt: skip
        with module.visited(loaded, lambda layer, pattern, z, held: values.update({layer: held[0].norm(dim=-1)})):
            loaded.model(torch.tensor([clean]))
        before = after(corrupt).logits[0, -1].softmax(-1)[wanted]
        for layer, head in np.ndindex(3, 4):

            def put(at, z, layer=layer, mine=slice(8 * head, 8 * head + 8), kept=kept, back=back):
                if at == layer:
                    z[-back, mine] = kept[at][mine]

            rise[kind].append(float(after(corrupt, put).logits[0, -1].softmax(-1)[wanted] - before))
            weighted = found.attentions[layer][0, head, -back] * values[layer][head]
            shares[kind].append(float(weighted[source] / weighted.sum()))
    measured = final(entity_induction(target, ENTITIES, 2).run(session))
    for kind in KINDS:
        np.testing.assert_allclose(measured.rise[kind].ravel(), rise[kind], atol=5e-8, rtol=1e-3)
        np.testing.assert_allclose(measured.attention[kind].ravel(), shares[kind], atol=1e-5)
        assert np.abs(rise[kind]).max() > 2e-7


def test_prompts_differ_in_their_first_half_and_want_what_followed(tiny_opt, session):
    loaded = session.models.get(target_in(session, tiny_opt, "fp32").spec)
    entities = module._entities(loaded.tokenizer, ENTITIES)
    for kind in KINDS:
        clean, corrupt, back, wanted, source = module._prompt(loaded, kind, 3, entities)
        n_again = 30 + back - 1
        assert clean[-n_again:] == corrupt[-n_again:] and len(clean) == len(corrupt)
        assert clean[1 : 1 + 30] == clean[-n_again:][:30] and not set(clean[1:31]) & set(clean[31:-n_again])
        assert wanted == clean[30 + back] and source == (31 if kind == "token" else len(clean) - n_again - 2)
        assert corrupt[31:33] != clean[31:33]


def induction_circuit(tiny_opt, folder):
    """Builds a model: layer 0, head 3 copies the token before to another place; layer 1, head 5 looks for its own token
    there, and copies what it finds."""
    n, place, position = 128, 128, 256  # of the residual stream: tokens, then copies of the ones before, positions
    head, other = slice(3 * 64, 4 * 64), slice(5 * 64, 6 * 64)

    def change(decoder):
        basis = torch.linalg.qr(torch.randn(n, 64))[0]
        decoder.embed_tokens.weight.zero_()
        decoder.embed_tokens.weight[:, :n] = torch.randn(512, n) / n**0.5
        decoder.embed_positions.weight[2:66, position : position + 64] = torch.eye(64)
        first, second = (layer.self_attn for layer in decoder.layers)
        for matrix in ("q_proj", "k_proj", "v_proj"):
            getattr(first, matrix).weight.zero_()
            getattr(second, matrix).weight.zero_()
        first.q_proj.weight[head, position : position + 64] = 2 * torch.eye(64).roll(-1, 0)
        first.k_proj.weight[head, position : position + 64] = torch.eye(64)
        first.v_proj.weight[head, :n] = basis.T
        first.out_proj.weight[place : place + 64, head] = torch.eye(64) / 16
        second.q_proj.weight[other, :n] = 2 * basis.T
        second.k_proj.weight[other, place : place + 64] = torch.eye(64)
        second.v_proj.weight[other, :n] = basis.T
        second.out_proj.weight[:n, other] = basis

    built(tiny_opt, folder, change, n_layers=2, n_ctx=64)
    return folder


def test_an_induction_circuit_does_token_induction_and_no_concept_induction(tiny_opt, tmp_path, session):
    folder = induction_circuit(tiny_opt, tmp_path / "model")
    target = target_in(session, folder, "fp32")
    found = final(entity_induction(target, ENTITIES).run(session))
    token, concept = (found.rise[kind].mean(0) for kind in KINDS)
    assert token[1, 5] > 0.9 and np.abs(np.delete(token.ravel(), 8 + 5)).max() < 0.01
    assert np.abs(concept).max() < 0.01
    assert found.attention["token"].mean(0)[1, 5] > 0.9 and found.attention["concept"].mean(0)[1, 5] < 0.1
    fewer = entity_induction(target, ENTITIES, 12).stored(session)
    assert fewer is not None, "prompts are those of any other number"
    for kind in KINDS:
        np.testing.assert_array_equal(fewer.rise[kind], found.rise[kind][:12])
    [alone] = entity_induction(target, ENTITIES, kinds=("concept",)).stored(session).rise.values()
    np.testing.assert_array_equal(alone, found.rise["concept"])
    left = entity_induction(target, ENTITIES, 48).left(session), entity_induction(target, ENTITIES, 32).left(session)
    assert left[0].characters and not left[1].characters


def test_a_short_window_and_words_of_one_token_are_refused(tiny_opt, tmp_path, session):
    target = target_in(session, tiny_opt, "fp32")
    refused_by(HeadroomError, "splits too few words", lambda: final(entity_induction(target, ["the"]).run(session)))
    folder = family_folder("opt", tiny_opt, tmp_path / "short", max_position_embeddings=16)
    short = target_in(session, folder, "fp32")
    refused_by(HeadroomError, "window of 16 tokens", lambda: entity_induction(short))


def test_included_words_are_those_of_pairs_and_of_the_story(tiny_opt):
    words = included_words(tiny_opt)
    assert {"Kazakhstan", "opposite"} & {*words} and len(words) > 1000 and list(words) == sorted({*words})
