"""Perplexity is what a plain loop over transformers gives, by the recipe of the published tables."""

import math
import re

import numpy as np
import pytest
import torch
from scipy import stats

from engine.errors import HeadroomError, UsageError
from engine.models.masks import Mask, parse_mask, pruned
from engine.progress import final
from engine.texts.perplexity import BLOCK, Perplexity, change, perplexity, windows
from engine.timing.workload import kept_share
from tests.conftest import TEXT
from tests.engine.fixtures import EXAMINED, in_turns, refused_by, target_in

LONG = "\n\n".join([TEXT, TEXT.upper(), TEXT, TEXT.title()])


def measured(folder, session, mask="", bos=None, window=0, text=LONG):
    target = target_in(session, folder, "fp32", bos)
    return final(perplexity(target, text, parse_mask(mask, target.shape), window).run(session))


def gptq(model, ids, length):
    """The loop of the published tables: mean loss of each full window, weighed by its length."""
    n, nlls = ids.shape[1] // length, []
    for i in range(n):
        batch = ids[:, i * length : (i + 1) * length]
        with torch.no_grad():
            logits = model(batch).logits
        loss = torch.nn.CrossEntropyLoss()(logits[0, :-1].float(), batch[0, 1:])
        nlls.append(loss.float() * length)
    return math.exp(torch.stack(nlls).sum().item() / (n * length))


@pytest.mark.thorough
@pytest.mark.parametrize("family, bos, mask", in_turns(EXAMINED, [True, False], ["", "L0H1 L2H* F1"]))
def test_it_is_that_of_a_plain_loop(family, bos, mask, folder_of, model_of, session):
    found, model = measured(folder_of(family), session, mask, bos), model_of(family)
    ids = model.tokenizer(LONG, add_special_tokens=False, return_tensors="pt").input_ids
    front = torch.tensor([[2] * bos], dtype=ids.dtype)
    whole = torch.cat([front, ids], dim=1)
    window = model.identity.shape.n_ctx
    with pruned(model, parse_mask(mask, model.identity.shape)):
        expected = gptq(model.model, whole, window)
    assert found.a_token == pytest.approx(expected, rel=1e-4)
    n_scored = whole.shape[1] // window * (window - 1)
    assert whole.shape[1] > window and len(found) == found.n_total == n_scored, "the rest is dropped"
    n = ids.shape[1]
    assert (found.n_tokens, found.n_words, found.n_bytes) == (n, len(LONG.split()), len(LONG.encode()))
    nats = math.log(expected)
    assert math.log(found.a_word) == pytest.approx(nats * n / len(LONG.split()), rel=1e-4)
    assert math.log(found.a_byte) == pytest.approx(nats * n / len(LONG.encode()), rel=1e-4)


@pytest.mark.parametrize("family, text, window", [
    ("llama", LONG, 16), ("llama", LONG, 100), ("llama", LONG, 200), ("opt", TEXT[:200], 0)
])  # fmt: skip
def test_shorter_windows_and_a_text_shorter_than_one(family, text, window, folder_of, model_of, session):
    found, model = measured(folder_of(family), session, bos=True, window=window, text=text), model_of(family)
    ids = torch.tensor([[2, *model.tokenizer(text, add_special_tokens=False).input_ids]])
    length = window or ids.shape[1]
    assert found.a_token == pytest.approx(gptq(model.model, ids, length), rel=1e-4)
    assert len(found) == ids.shape[1] // length * (length - 1) and (found.window == window or not window)
    assert windows(np.arange(7), 3).tolist() == [[0, 1, 2], [3, 4, 5]] and windows(np.arange(2), 3).tolist() == [[0, 1]]


def test_a_perplexity_is_of_its_mask_and_windows(folder_of, session):
    target = target_in(session, folder_of("opt"))
    mask = parse_mask("L0H0 F1", target.shape)
    pruned = perplexity(target, TEXT, mask)
    assert pruned.so_far(session) is None and kept_share(mask) < 1
    assert pruned.left(session).characters["forward"] == pytest.approx(len(TEXT) * kept_share(mask))
    found = final(pruned.run(session))
    assert pruned.stored(session).a_token == found.a_token
    assert perplexity(target, TEXT, mask, 100).so_far(session) is None, "of other windows"
    assert perplexity(target, TEXT, Mask.full(target.shape)).so_far(session) is None, "of another mask"


def of_losses(nats):
    return Perplexity(np.array(nats, np.float32), len(nats), len(nats), 1, 1, 1, True)


def test_the_change_is_paired_and_its_interval_goes_by_blocks():
    rng = np.random.default_rng(0)
    shared = rng.gamma(2, 1.5, 10 * BLOCK)
    differences = rng.normal(0.1, 0.2, 10 * BLOCK)
    found = change(of_losses(shared), of_losses(shared + differences))
    blocks = differences.reshape(10, BLOCK).mean(1)
    assert found.nats == pytest.approx(differences.mean(), abs=1e-6)
    half = stats.t.ppf(0.975, 9) * stats.sem(blocks)
    assert (found.low, found.high) == pytest.approx((found.nats - half, found.nats + half), abs=1e-6)
    assert half < 0.05 < found.nats, "what both texts share does not widen it"
    same = change(of_losses(shared), of_losses(shared))
    assert (same.nats, same.low, same.high) == (0, 0, 0)
    short = change(of_losses([1, 2]), of_losses([2, 2]))
    assert short.nats == 0.5 and math.isnan(short.low) and math.isnan(short.high)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    rng, hits = np.random.default_rng(1), 0
    for _ in range(400):  # neighboring differences are alike: a moving average of four
        noise = np.convolve(rng.normal(0, 1, 643), np.ones(4) / 4, mode="valid")
        found = change(of_losses(np.zeros(640)), of_losses(0.3 + noise))
        hits += found.low <= 0.3 <= found.high
    assert 0.90 < hits / 400 < 0.99


def test_what_cannot_be_measured(folder_of, session):
    target = target_in(session, folder_of("opt"))
    for window in (1, 257, -3):
        with pytest.raises(UsageError, match=re.escape("choose 2 to 256")):
            perplexity(target, TEXT, Mask.full(target.shape), window)
    refused_by(HeadroomError, "empty", lambda: perplexity(target, " \n", Mask.full(target.shape)))
    refused_by(HeadroomError, "one token", lambda: measured(folder_of("opt"), session, text="a", bos=False))
