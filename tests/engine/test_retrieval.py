"""Retrieval scores equal a plain loop of full passes, and find the induction head of a model built to have one."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.errors import HeadroomError
from engine.heads import retrieval as module
from engine.heads.retrieval import retrieval
from engine.progress import final
from tests.conftest import TEXT
from tests.engine.fixtures import family_folder, refused_by, target_in
from tests.engine.test_entity_induction import induction_circuit

NEEDLE = (" the answer", " seven boats, seven boats, seven boats, seven boats.")


@pytest.mark.parametrize("family", "opt llama gpt2 gpt_neox".split())
def test_scores_equal_a_loop_of_full_passes(family, tiny_opt, tmp_path, session, monkeypatch):
    """The model is random, but produces no other tokens than those of the needle."""
    folder = family_folder(family, tiny_opt, tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    story, question, rest = tokenizer([TEXT, *NEEDLE], add_special_tokens=False).input_ids
    with torch.no_grad():
        model.lm_head.weight[[token for token in range(512) if token not in rest]] = 0
    model.save_pretrained(folder)
    for name, value in {"story": lambda: TEXT, "NEEDLE": NEEDLE, "LENGTHS": (40, 64), "DEPTHS": 2}.items():
        monkeypatch.setattr(module, name, value)
    shares = []
    for length, depth in ((40, 0), (40, 1), (64, 0), (64, 1)):
        n = length - 1 - 2 * len(question) - len(rest) - 10
        place = depth * n // 2
        ids = [2, *story[:place], *question, *rest, *story[place:n], *question]
        first, seen = 1 + place + len(question), np.zeros((3, 4, 10), bool)
        for _ in range(10):
            with torch.no_grad():
                ran = model(torch.tensor([ids]), output_attentions=True)
            ids.append(int(ran.logits[0, -1].argmax()))
            for layer, head in np.ndindex(3, 4):
                at = int(ran.attentions[layer][0, head, -1].argmax()) - first
                if 0 <= at < 10 and rest[at] == ids[-1]:
                    seen[layer, head, at] = True
        assert len(ids) == length
        shares.append(seen.mean(-1))
    found = final(retrieval(target_in(session, folder, "fp32")).run(session))
    np.testing.assert_allclose(found, shares, atol=1e-5)
    assert np.count_nonzero(shares) > 3


def test_the_head_of_an_induction_circuit_retrieves(tiny_opt, tmp_path, session, monkeypatch):
    monkeypatch.setattr(module, "NEEDLE", ("QX", "ABCDEFGHIJK"))
    monkeypatch.setattr(module, "story", lambda: "?")
    found = final(retrieval(target_in(session, induction_circuit(tiny_opt, tmp_path / "model"), "fp32")).run(session))
    assert (found[:, 1, 5] == 1).all() and not np.delete(found.reshape(4, 16), 8 + 5, 1).any()


def test_a_short_window_is_refused(tiny_opt, tmp_path, session):
    target = target_in(session, family_folder("opt", tiny_opt, tmp_path / "model", max_position_embeddings=64), "fp32")
    refused_by(HeadroomError, "window of 64 tokens", lambda: final(retrieval(target).run(session)))
