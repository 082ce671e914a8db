"""The logit lens reads each layer's stream as the model's norm and unembedding do, and shows when a guess comes."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.accuracy.scoring import hidden_of
from engine.architecture.family import family_of
from engine.errors import HeadroomError
from engine.heads.logit_lens import N_GUESSES, logit_lens
from engine.models.masks import Mask, parse_mask
from engine.progress import final
from tests.conftest import TEXT
from tests.engine.fixtures import family_folder, loaded, target_in
from tests.engine.test_circuits_of_hand_built_models import built


@pytest.mark.parametrize("family", "opt llama gpt2 gpt_neox".split())
def test_every_layer_equals_the_models_own_norm_and_unembedding(family, tiny_opt, tmp_path, session):
    target = target_in(session, family_folder(family, tiny_opt, tmp_path / "model"), "fp32")
    found = final(logit_lens(target, TEXT[:200], Mask.full(target.shape)).run(session))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    norm, ids = family_of(target.identity.config).final_norm(model), torch.from_numpy(found.token_ids.astype(np.int64))
    with torch.no_grad():
        ran = model(ids[None], output_hidden_states=True)
        every = [model.lm_head(norm(stream[0])) for stream in ran.hidden_states[:-1]] + [ran.logits[0]]
    for layer, logits in enumerate(every):
        p = logits.softmax(-1)
        own = p[:-1].gather(1, ids[1:, None])
        np.testing.assert_allclose(found.next_p[layer, :-1], own[:, 0], atol=1e-5)
        np.testing.assert_array_equal(found.next_rank[layer, :-1], 1 + (p[:-1] > own).sum(-1))
        np.testing.assert_allclose(found.guess_p[layer], p.topk(N_GUESSES).values, atol=1e-5)
        np.testing.assert_array_equal(found.guess_ids[layer, :, 0], p.argmax(-1))
    assert np.isnan(found.next_p[:, -1]).all() and not found.next_rank[:, -1].any()
    assert found.names == ["start", "0", "1", "2"] and {*found.guess_ids.ravel().tolist()} == {*found.guesses}


def test_in_bf16_the_unembedding_is_read_in_fp32(folder_of, session):
    """Turned into fp32 once, and logits are not rounded to bf16."""
    target, model = target_in(session, folder_of("llama"), "bf16"), loaded(folder_of("llama"), "bf16")
    found = final(logit_lens(target, TEXT[:200], Mask.full(target.shape)).run(session))
    with torch.inference_mode():
        hidden = hidden_of(model, found.token_ids[None].astype(np.int64))[0].float()
        p = (hidden @ model.model.lm_head.weight.float().T).softmax(-1)
    np.testing.assert_allclose(found.guess_p[-1], p.topk(N_GUESSES).values, rtol=1e-5)


def test_a_guess_comes_with_the_layer_that_writes_it_and_goes_with_it(tiny_opt, tmp_path, session):
    """The first layer's FFN writes the embedding of one token, whatever it reads."""
    token = 300

    def change(decoder):
        decoder.layers[0].fc2.bias.copy_(100 * decoder.embed_tokens.weight[token])

    built(tiny_opt, tmp_path / "model", change)
    target = target_in(session, tmp_path / "model", "fp32")
    found = final(logit_lens(target, TEXT[:100], Mask.full(target.shape)).run(session))
    guesses = found.guess_ids[..., 0]
    assert (guesses[1:] == token).all() and (guesses[0] != token).any()
    without = final(logit_lens(target, TEXT[:100], parse_mask("F0", target.shape)).run(session))
    np.testing.assert_array_equal(without.guess_ids[1, :, 0], without.guess_ids[0, :, 0])


def test_a_long_text_is_cut_and_a_single_token_refused(tiny_opt, session):
    target = target_in(session, tiny_opt, "fp32")
    found = final(logit_lens(target, TEXT * 9, Mask.full(target.shape)).run(session))
    assert found.n_left_out > 0 and len(found.token_ids) == min(256, target.shape.n_ctx)
    bare = target_in(session, tiny_opt, "fp32", bos=False)
    with pytest.raises(HeadroomError, match="single token"):
        final(logit_lens(bare, "a", Mask.full(target.shape)).run(session))
