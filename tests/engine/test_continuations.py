"""What a model says next is transformers' own greedy loop and softmax, under masks too; draws are seeded."""

import numpy as np
import pytest
import torch

from engine.errors import HeadroomError, UsageError
from engine.models.masks import Mask, parse_mask, pruned
from engine.progress import final
from engine.texts.continuation import How, chosen, continuation, next_tokens
from tests.conftest import TEXT
from tests.engine.fixtures import EXAMINED, in_turns, loaded, refused_by, target_in

PROMPT, MASK = TEXT[:120], "L0H1 L1H2 F1"


def prompt_ids(model, prompt, bos):
    front = [model.tokenizer.bos_token_id] if bos else []
    return [*front, *model.tokenizer(prompt, add_special_tokens=False).input_ids]


@pytest.mark.thorough
@pytest.mark.parametrize("family, bos", in_turns(EXAMINED, [True, False]))
def test_greedy_is_generates_own(family, bos, folder_of, session):
    target, model = target_in(session, folder_of(family), "fp32", bos), loaded(folder_of(family))
    ids = torch.tensor([prompt_ids(model, PROMPT, bos)])
    for text in ("", MASK):
        mask = parse_mask(text, target.shape)
        found = final(continuation(target, PROMPT, mask, How(12)).run(session))
        with pruned(model, mask), torch.no_grad():
            expected = model.model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False
            )
            logits = model.model(input_ids=expected).logits[0].double().log_softmax(-1)
        said = expected[0, ids.shape[1] :].tolist()
        assert found.token_ids.tolist() == said and len(found.pieces) == len(said)
        whole, front = model.tokenizer.decode(expected[0]), model.tokenizer.decode(ids[0])
        assert front + found.text == whole
        log_p = [logits[ids.shape[1] - 1 + at, token].item() for at, token in enumerate(said)]
        np.testing.assert_allclose(found.log_p, log_p, atol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("family", EXAMINED)
def test_next_tokens_are_a_plain_softmax_of_both(family, folder_of, session):
    target, model = target_in(session, folder_of(family), "fp32", True), loaded(folder_of(family))
    masks = [Mask.full(target.shape), parse_mask(MASK, target.shape)]
    found = final(next_tokens(target, PROMPT, masks).run(session))
    expected = []
    for mask in masks:
        with pruned(model, mask), torch.no_grad():
            expected.append(
                model.model(torch.tensor([prompt_ids(model, PROMPT, True)])).logits[0, -1].double().softmax(-1)
            )
    likeliest = {token for p in expected for token in p.topk(10).indices.tolist()}
    assert set(found.token_ids.tolist()) == likeliest
    for row, p in zip(found.log_p, expected, strict=True):
        np.testing.assert_allclose(np.exp(row), p[found.token_ids].numpy(), atol=1e-5)
    assert (np.diff(found.log_p[0]) <= 0).all(), "the full model's order"
    assert [model.tokenizer.decode([token]) for token in found.token_ids] == list(found.strings)


def test_draws_are_seeded_and_follow_the_softmax():
    log_p = np.log([0.6, 0.3, 0.1])
    drawn = [chosen(log_p, How(1, 1000, seed), 0) for seed in range(4000)]
    np.testing.assert_allclose(np.bincount(drawn) / 4000, [0.6, 0.3, 0.1], atol=0.03)
    colder = [chosen(log_p, How(1, 500, seed), 0) for seed in range(4000)]
    np.testing.assert_allclose(np.bincount(colder) / 4000, np.array([36, 9, 1]) / 46, atol=0.03)
    assert drawn == [chosen(log_p, How(1, 1000, seed), 0) for seed in range(4000)]
    assert len({chosen(np.zeros(1000), How(1, 1000, 0), step) for step in range(20)}) > 10, "each step draws anew"


def test_a_sampled_continuation_repeats_and_streams(folder_of, session):
    target = target_in(session, folder_of("opt"), "fp32")
    full, how = Mask.full(target.shape), How(10, 1000, 3)
    values = [step.value for step in continuation(target, PROMPT, full, how).run(session) if step.value is not None]
    lengths = [len(value.token_ids) for value in values]
    assert lengths == sorted(lengths) and {*range(1, 11)} <= {*lengths}, "token by token"
    assert all(values[-1].text.startswith(value.text) for value in values)
    session.store.clear()
    again = final(continuation(target, PROMPT, full, how).run(session))
    assert again.token_ids.tolist() == values[-1].token_ids.tolist() and again.pieces == values[-1].pieces
    other = final(continuation(target, PROMPT, full, How(10, 1000, 4)).run(session))
    assert other.token_ids.tolist() != again.token_ids.tolist()


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_every_precision_continues(precision, folder_of, session):
    target = target_in(session, folder_of("opt"), precision)
    found = final(continuation(target, PROMPT, Mask.full(target.shape), How(6)).run(session))
    assert len(found.token_ids) == 6 and np.isfinite(found.log_p).all()
    first = final(next_tokens(target, PROMPT, [Mask.full(target.shape)]).run(session))
    assert first.token_ids[0] == found.token_ids[0]


def test_the_window_ends_a_continuation_and_a_long_prompt_is_refused(folder_of, session):
    target, model = target_in(session, folder_of("opt"), "fp32"), loaded(folder_of("opt"))
    full, n_ctx = Mask.full(target.shape), target.shape.n_ctx
    ids = model.tokenizer(TEXT * 9, add_special_tokens=False).input_ids[: n_ctx - 5]
    prompt = model.tokenizer.decode(ids)
    room = n_ctx - len(prompt_ids(model, prompt, target.bos))
    found = final(continuation(target, prompt, full, How(32)).run(session))
    assert len(found.token_ids) == room < 32 and found.ended == "its window"
    refused_by(HeadroomError, "shorten it", lambda: final(continuation(target, TEXT * 9, full, How(1)).run(session)))
    refused_by(HeadroomError, "empty", lambda: final(next_tokens(target, " ", [full]).run(session)))


@pytest.mark.parametrize("wrong", [(0, 0), (257, 0), (1, -1), (1, 2001)])
def test_what_cannot_be_is_said(wrong):
    refused_by(UsageError, "; choose ", lambda: How(*wrong))
