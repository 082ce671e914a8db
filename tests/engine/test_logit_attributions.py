"""Logit attributions add up to the true logits, and patterns are the model's own."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from cache import Store
from engine.errors import HeadroomError, UsageError
from engine.heads import attention as attributions
from engine.heads.attention import head_views, overview
from engine.heads.direct_paths import decomposed, run
from engine.measurement import Workload
from engine.models.masks import Mask, parse_mask, pruned
from engine.models.session import Session
from engine.progress import final
from engine.records import Record, decode, encode
from tests.conftest import TEXT
from tests.engine.fixtures import EXAMINED, FAMILIES, STOCK, caught, in_turns, refused_by, target_in

IDS = np.array([2, *range(40, 90), *range(40, 90)])


def head_alone(model, ids, head: tuple[int, int]):
    """(T, vocabulary) by hand: the head's z through W_O, divided by the final norm's scale, through its weights and the
    unembedding, less the mean. For OPT with its norms in front, and Llama."""
    norm, out = model.family.final_norm(model.model), model.family.layer_modules(model.model)[head[0]][0]
    with torch.inference_mode():
        with caught(norm, out) as seen:
            model.model(input_ids=torch.tensor([list(map(int, ids))]))
        x, d_head = seen[norm][0], model.identity.shape.d_head
        where = slice(head[1] * d_head, (head[1] + 1) * d_head)
        written = seen[out][0][:, where] @ out.weight[:, where].T
        if isinstance(norm, torch.nn.LayerNorm):
            written, x = written - written.mean(-1, keepdim=True), x - x.mean(-1, keepdim=True)
        eps = norm.eps if hasattr(norm, "eps") else norm.variance_epsilon
        logits = written / (x.square().mean(-1, keepdim=True) + eps).sqrt() * norm.weight
        logits = logits @ model.model.get_output_embeddings().weight.T
    return logits - logits.mean(-1, keepdim=True)


@contextmanager
def uncapped(model):
    """Context in which a model's logits have no cap."""
    config = model.model.config
    before = getattr(config, "final_logit_softcapping", None)
    try:
        config.final_logit_softcapping = None
        yield
    finally:
        config.final_logit_softcapping = before


def decomposition(model, mask):
    with torch.inference_mode():
        return decomposed(model, run(model, IDS, mask))


@pytest.mark.parametrize("text", ["", "L0H1 L2H* F1"])
@pytest.mark.parametrize("family", FAMILIES)
def test_parts_add_up_to_the_true_logit(family, text, model_of):
    model = model_of(family)
    mask = parse_mask(text, model.identity.shape)
    found = decomposition(model, mask)
    with torch.inference_mode(), pruned(model, mask), uncapped(model):
        logits = model.model(input_ids=torch.tensor(IDS)[None]).logits[0, :-1].double()
    true = (logits - logits.mean(-1, keepdim=True))[torch.arange(len(IDS) - 1), torch.tensor(IDS[1:])].numpy()
    total = found["heads"].sum((0, 1)) + found["ffns"].sum(0) + found["direct"] + found["rest"]
    np.testing.assert_allclose(total, true, atol=1e-3)
    np.testing.assert_allclose(found["logit"], true, atol=1e-4)
    assert np.abs(found["heads"]).max() > 0.1
    pruned_ffns = [layer for layer, kept in enumerate(mask.ffns) if not kept]
    assert not found["heads"][~np.array(mask.heads)].any() and not found["ffns"][pruned_ffns].any()


@pytest.mark.parametrize("family", ["opt", "llama"])
def test_a_heads_part_is_what_its_output_alone_adds(family, model_of):
    model = model_of(family)
    found = decomposition(model, Mask.full(model.identity.shape))
    expected = head_alone(model, IDS, (1, 2))[torch.arange(len(IDS) - 1), torch.tensor(IDS[1:])]
    np.testing.assert_allclose(found["heads"][1, 2], expected, atol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("family, bos", in_turns([name for name in EXAMINED if name in STOCK], [True, False]))
def test_views_are_the_models_own_patterns(family, bos, folder_of, model_of, session):
    model, target = model_of(family), target_in(session, folder_of(family), bos=bos)
    mask = parse_mask("L0H3", model.identity.shape)
    seen = final(overview(target, TEXT[:200], mask).run(session))
    views = final(head_views(target, TEXT[:200], mask, [(1, 2), (2, 0), (0, 3)]).run(session))
    assert seen.first_text == bos and "".join(seen.pieces[seen.first_text :]) == TEXT[:200]
    model.model.set_attn_implementation("eager")
    with torch.no_grad(), pruned(model, mask):
        ids = torch.from_numpy(seen.token_ids.astype(np.int64))[None]
        attentions = model.model(input_ids=ids, output_attentions=True).attentions
    model.model.set_attn_implementation(model.family.attends_by)
    for (layer, head), view in views.items():
        np.testing.assert_allclose(view.pattern, attentions[layer][0, head], atol=1e-3)  # kept in half precision
        # what its sources add is, source by source, what the head adds to the next token
        np.testing.assert_allclose(view.raised_nats.sum(1)[:-1], seen.raised_nats[layer, head][1:], atol=2e-2)
        assert not view.raised_nats[-1].any() and not np.triu(view.raised_nats, 1).any()
    assert not views[0, 3].raised_nats.any() and views[1, 2].raised_nats.any()
    total = seen.raised_nats.astype(float).sum((0, 1)) + seen.ffns.sum(0) + seen.direct + seen.rest
    np.testing.assert_allclose(total, seen.logit, atol=2e-2)
    assert seen.logit[0] == 0


def test_a_long_text_keeps_the_largest_of_each_row(folder_of, session, monkeypatch):
    target = target_in(session, folder_of("opt"))
    full = Mask.full(target.shape)
    dense = final(head_views(target, TEXT, full, [(1, 1)]).run(session))[1, 1]
    monkeypatch.setattr(attributions, "WHOLE_ROWS", 64)
    monkeypatch.setattr(attributions, "N_LARGEST", 16)
    other = Session(Store(session.store.directory / "other"), session.models)
    sparse = final(head_views(target, TEXT, full, [(1, 1)]).run(other))[1, 1]
    for whole, kept in ((dense.pattern, sparse.pattern), (dense.raised_nats, sparse.raised_nats)):
        assert len(whole) > 64
        for row_whole, row_kept in zip(whole, kept, strict=True):
            largest = np.sort(np.abs(row_whole))[-16:]
            np.testing.assert_allclose(np.sort(np.abs(row_kept))[-16:], largest, atol=1e-6)
            assert np.count_nonzero(row_kept) <= 16


def test_text_beyond_the_window_is_left_out_and_counted(folder_of, model_of, session):
    target, text = target_in(session, folder_of("opt"), bos=True), " ".join([TEXT, TEXT.upper()])
    seen = final(overview(target, text, Mask.full(target.shape)).run(session))
    n = len(model_of("opt").tokenizer(text, add_special_tokens=False).input_ids)
    assert len(seen.token_ids) == 256 and seen.n_left_out == n - 255 > 0
    assert text.startswith("".join(seen.pieces[1:]))
    assert seen.thumbnails.shape == (3, 4, 32, 32) and seen.thumbnails.max() == 255


def test_the_pass_for_one_head_gives_all_of_its_layer(folder_of, session):
    target = target_in(session, folder_of("opt"))
    full = Mask.full(target.shape)
    final(head_views(target, TEXT, full, [(1, 0)]).run(session))
    assert set(head_views(target, TEXT, full, [(1, 0), (1, 3)]).stored(session)) == {(1, 0), (1, 3)}
    some = head_views(target, TEXT, full, [(1, 0), (0, 0)])
    assert some.stored(session) is None and set(some.so_far(session)) == {(1, 0)}
    assert some.left(session) == Workload({"patterns": len(TEXT)}), "a pass over the text"


def test_what_cannot_be_shown_says_so(folder_of, session):
    target = target_in(session, folder_of("opt"), bos=False)
    full = Mask.full(target.shape)
    refused_by(UsageError, "L9H0", lambda: final(head_views(target, TEXT, full, [(9, 0)]).run(session)))
    refused_by(HeadroomError, "single token", lambda: final(overview(target, "a", full).run(session)))


def test_a_stored_view_with_positions_outside_the_text_is_computed_again(session, folder_of):
    target = target_in(session, folder_of("opt"))
    full = Mask.full(target.shape)
    expected = final(head_views(target, TEXT[:200], full, [(1, 0)]).run(session))[1, 0]
    for key in [key for key in session.store.keys() if "/attention/" in key]:
        record = decode(session.store.get(key))
        session.store.put(key, encode(Record({**record.arrays, "pattern_at": record.arrays["pattern_at"] + 9999}, {})))
    assert head_views(target, TEXT[:200], full, [(1, 0)]).stored(session) is None
    assert (final(head_views(target, TEXT[:200], full, [(1, 0)]).run(session))[1, 0].pattern == expected.pattern).all()
