"""Copy suppression equals a plain loop over pairs of tokens, and finds the head that was built to suppress copies."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.architecture.family import family_of
from engine.heads import copy_suppression as module
from engine.heads.copy_suppression import copy_suppression
from engine.progress import final
from tests.conftest import TEXT
from tests.engine.fixtures import caught, family_folder, target_in
from tests.engine.test_circuits_of_hand_built_models import D_HEAD, D_MODEL, built

VALUES = {  # what a family's projections give (T, ...), as values of its four heads (4, T, 8)
    "opt": ("v_proj", lambda given: given.view(-1, 4, 8).transpose(0, 1)),
    "llama": ("v_proj", lambda given: given.view(-1, 2, 8).transpose(0, 1).repeat_interleave(2, 0)),
    "gpt2": ("c_attn", lambda given: given[:, 64:].view(-1, 4, 8).transpose(0, 1)),
    "gpt_neox": ("query_key_value", lambda given: given.view(-1, 4, 3, 8)[:, :, 2].transpose(0, 1)),
}


@pytest.mark.parametrize("family", VALUES)
def test_scores_equal_a_loop_over_pairs(family, tiny_opt, tmp_path, session, monkeypatch):
    monkeypatch.setattr(module, "story", lambda: TEXT)
    monkeypatch.setattr(module, "WINDOW", n := 40)
    target = target_in(session, family_folder(family, tiny_opt, tmp_path / "model"), "fp32")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", attn_implementation="eager").eval()
    ids = AutoTokenizer.from_pretrained(tiny_opt)(TEXT, add_special_tokens=False).input_ids
    of, (name, as_heads) = family_of(target.identity.config), VALUES[family]
    projections = [getattr(each, name) for each in of.attention_modules(model)]
    norm, sums, pairs = of.final_norm(model), np.zeros((3, 4)), np.zeros((3, 1))

    def centered(rows):
        return rows if family == "llama" else rows - rows.mean(-1, keepdim=True)

    for window in ([2, *ids[: n - 1]], [2, *ids[n - 1 : 2 * n - 2]]):
        with caught(*projections, outputs=True) as projected, caught(norm) as last, torch.no_grad():
            ran = model(torch.tensor([window]), output_attentions=True, output_hidden_states=True)
        values = [as_heads(projected[each][0]) for each in projections]
        with torch.no_grad():
            scale = (centered(last[norm][0]).square().mean(-1) + 1e-5).sqrt()
            for layer, (out, _) in enumerate(of.layer_modules(model)):
                weight = (out.weight if family == "gpt2" else out.weight.T).view(4, 8, 32)
                likeliest = model.lm_head(norm(ran.hidden_states[layer][0])).argsort(-1, descending=True)[:, :10]
                for q, k in np.ndindex(n, n):
                    if k < q and window[k] in likeliest[q]:
                        written = torch.stack([values[layer][head, k] @ weight[head] for head in range(4)])
                        logits = model.lm_head(centered(written) * norm.weight / scale[q])
                        added = (logits[:, window[k]] - logits.mean(-1)) * ran.attentions[layer][0, :, q, k]
                        sums[layer], pairs[layer] = sums[layer] - added.numpy(), pairs[layer] + 1
    found = final(copy_suppression(target).run(session))
    assert pairs.min() > 1 and np.abs(sums).max() > 0.1
    np.testing.assert_allclose(found, sums / pairs, atol=1e-5)


def test_a_head_that_takes_away_what_it_attends_to_suppresses_copies(tiny_opt, tmp_path, session):
    """Every head looks at all tokens alike; head 1 writes minus the embeddings that it reads, head 0 adds them."""

    def change(decoder):
        attention, basis = decoder.layers[0].self_attn, torch.linalg.qr(torch.randn(D_MODEL, D_HEAD))[0]
        attention.q_proj.weight.zero_()
        for head, sign in enumerate((1, -1)):
            rows = slice(head * D_HEAD, (head + 1) * D_HEAD)
            attention.v_proj.weight[rows] = basis.T
            attention.out_proj.weight[:, rows] = sign * basis

    built(tiny_opt, tmp_path / "model", change)
    [found] = final(copy_suppression(target_in(session, tmp_path / "model", "fp32")).run(session))
    assert found[1] > 0 and found[0] == pytest.approx(-found[1]) and not found[2:].any()
