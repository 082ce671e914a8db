"""Per-token losses are a plain log-softmax of the same model, across windows, under masks, with and without BOS."""

import json
from functools import partial

import numpy as np
import pytest
import torch

from cache import Store
from engine.errors import HeadroomError, UsageError
from engine.measurement import Workload
from engine.models.masks import Mask, parse_mask, pruned
from engine.models.session import Session
from engine.progress import final
from engine.texts import tokenloss
from engine.texts.tokenloss import Cutting, losses_of_texts, same_tokens, token_losses, windows
from tests.conftest import TEXT
from tests.engine.fixtures import FAMILIES, family_folder, in_turns, left_when, loaded, refused_by, target_in

WHOLE = Cutting()
LONG = " ".join([TEXT, TEXT.upper(), TEXT])


def measured(folder, text, session, mask="", bos=None, cutting=WHOLE, precision="fp32"):
    target = target_in(session, folder, precision, bos)
    return final(token_losses(target, text, parse_mask(mask, target.shape), cutting).run(session))


def plain(model, ids, begin, start):
    """(n,) log-probabilities of ids[start:] with everything of `ids` in front, in one go."""
    with torch.no_grad():
        logits = model.model(input_ids=torch.tensor([[*begin, *ids][:-1]])).logits[0].double()
    log_p = logits.log_softmax(-1)
    lead = len(begin)
    return np.array([-log_p[at + lead - 1, ids[at]].item() if at + lead else np.nan for at in range(start, len(ids))])


@pytest.mark.thorough
@pytest.mark.parametrize("family, bos", in_turns(FAMILIES, [True, False]))
def test_losses_are_a_plain_log_softmax(family, bos, folder_of, session):
    found, model = measured(folder_of(family), TEXT[:300], session, "L0H1 F1", bos), loaded(folder_of(family))
    begin = [model.tokenizer.bos_token_id] if bos else []
    ids = model.tokenizer(TEXT[:300], add_special_tokens=False).input_ids
    with pruned(model, parse_mask("L0H1 F1", model.identity.shape)):
        np.testing.assert_allclose(found.loss_nats, plain(model, ids, begin, 0), atol=1e-4)
    assert found.token_ids.tolist() == ids and np.isnan(found.loss_nats[0]) == (not bos)


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize(("length", "stride"), [(0, 0), (64, 48), (50, 1), (33, 33)])
def test_losses_across_window_edges(length, stride, bos, folder_of, session, monkeypatch):
    monkeypatch.setattr(tokenloss, "BATCH_TOKENS", 256)  # so that one text takes several passes
    text = LONG if stride != 1 else TEXT[:400]
    found = measured(folder_of("opt"), text, session, bos=bos, cutting=Cutting(length, stride))
    model = loaded(folder_of("opt"))
    ids = model.tokenizer(text, add_special_tokens=False).input_ids
    length, stride = length or 256, stride or 128
    assert len(ids) > length and (found.window, found.stride, len(found)) == (length, stride, len(ids))
    begin, expected = [2] if bos else [], []
    for start in range(0, len(ids), stride):
        inside = ids[start : start + length]
        expected += plain(model, inside, begin, len(expected) - start).tolist()
        if start + length >= len(ids):
            break
    np.testing.assert_allclose(found.loss_nats, expected, atol=1e-4)


@pytest.mark.parametrize(("n", "length", "stride"), [(1, 8, 4), (8, 8, 4), (9, 8, 4), (100, 8, 3), (100, 8, 8)])
def test_every_token_is_scored_once_with_enough_in_front(n, length, stride):
    found = windows(n, Cutting(length, stride))
    scored = [token for _, stop, first in found for token in range(first, stop)]
    assert scored == list(range(n))
    assert all(stop - start <= length for start, stop, _ in found)
    assert all(first - start >= length - stride for start, _, first in found[1:])


def test_ranks_and_likeliest_tokens(folder_of, session):
    found, model = measured(folder_of("llama"), TEXT[:200], session, bos=True), loaded(folder_of("llama"))
    ids = model.tokenizer(TEXT[:200], add_special_tokens=False).input_ids
    with torch.no_grad():
        log_p = model.model(input_ids=torch.tensor([[2, *ids]])).logits[0, :-1].log_softmax(-1)
    for at, token in enumerate(ids):
        order = log_p[at].argsort(descending=True)
        assert order[found.rank[at] - 1] == token
        assert found.top_ids[at].tolist() == order[:5].tolist()
        np.testing.assert_allclose(found.top_log_p[at], log_p[at, order[:5]], atol=1e-4)
    assert all(found.strings[token] == model.tokenizer.decode([token]) for token in found.top_ids.ravel())


def test_pieces_are_the_text(folder_of, session):
    text = "Stones </s> and <s>, 😀 and ñandú;\n\n  שלום\tend  "
    found = measured(folder_of("opt"), text, session)
    assert "".join(found.pieces) == text
    assert 2 not in found.token_ids  # what looks like a special token is text


def test_the_rest_of_a_text_is_its_share_and_other_texts_and_windows_are_others(folder_of, session, monkeypatch):
    monkeypatch.setattr(tokenloss, "BATCH_TOKENS", 256)
    target = target_in(session, folder_of("opt"))
    mask = parse_mask("L1H*", target.shape)
    wanted = token_losses(target, LONG, mask)
    assert wanted.left(session) == Workload({"forward": len(LONG)}) and wanted.so_far(session) is None
    step = left_when(wanted.run(session))
    assert 0 < len(step.value) == step.done < step.total == step.value.n_total
    share = 1 - len(step.value) / step.value.n_total
    assert wanted.left(session) == Workload({"forward": share * len(LONG)})
    final(wanted.run(session))
    assert token_losses(target, LONG, parse_mask("L1H0-3", target.shape)).stored(session) is not None
    for other in ((LONG + ".", mask), (LONG, mask, Cutting(64))):
        assert token_losses(target, *other).stored(session) is None


def test_losses_of_several_texts_are_those_of_each(folder_of, session):
    target, texts = target_in(session, folder_of("opt")), [TEXT[:200], TEXT[200:500], TEXT[:200]]
    mask = parse_mask("L0H1", target.shape)
    wanted = losses_of_texts(target, texts, mask)
    first = final(token_losses(target, texts[0], mask).run(session)).loss_nats
    assert wanted.stored(session) is None and wanted.left(session) == Workload({"forward": len(texts[1])})
    found = final(wanted.run(session))
    assert len(found) == 3 and found[0].tolist() == found[2].tolist() == first.tolist()
    assert found[1].tolist() == token_losses(target, texts[1], mask).stored(session).loss_nats.tolist()
    assert [each.tolist() for each in wanted.stored(session)] == [each.tolist() for each in found]


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_low_precision_repeats_exactly(precision, folder_of, session, tmp_path):
    first = measured(folder_of("opt"), LONG, session, precision=precision)
    again = measured(folder_of("opt"), LONG, Session(Store(tmp_path / "other")), precision=precision)
    np.testing.assert_array_equal(first.loss_nats, again.loss_nats)


def test_what_cannot_be_measured_says_so(folder_of, session):
    for text in ("", "  \n\t "):
        refused_by(HeadroomError, "empty or only whitespace", partial(measured, folder_of("opt"), text, session))
    for cutting in (Cutting(1000), Cutting(64, 65), Cutting(1), Cutting(64, -1)):
        refused_by(UsageError, "do not fit", partial(measured, folder_of("opt"), TEXT, session, cutting=cutting))


def test_one_token(folder_of, session):
    found = measured(folder_of("opt"), "a", session, bos=True)
    assert len(found) == 1 and np.isfinite(found.loss_nats[0])
    assert np.isnan(measured(folder_of("opt"), "a", session, bos=False).loss_nats).all()


def test_models_that_cut_a_text_otherwise_are_not_compared(folder_of, tiny_opt, session, tmp_path):
    other = family_folder("opt", tiny_opt, tmp_path / "other")
    file = other / "tokenizer.json"
    settings = json.loads(file.read_text())
    settings["model"]["merges"] = settings["model"]["merges"][:20]
    file.write_text(json.dumps(settings))
    a, b = measured(folder_of("opt"), TEXT, session), measured(other, TEXT, session)
    refused_by(HeadroomError, "different tokens", lambda: same_tokens(a, b))
    same_tokens(a, measured(folder_of("opt"), TEXT, session, "L0H*"))


@pytest.mark.parametrize(
    "before, after", [(b'": "', b'": \\"'), (b'{"', b"{7"), (b"stop", b"stap"), (b"token_ids", b"token_idz")]
)
def test_a_stored_piece_that_cannot_be_decoded_is_measured_again(before, after, folder_of, session):
    target, store = target_in(session, folder_of("opt"), "fp32"), session.store
    mask = Mask.full(target.shape)
    expected = final(token_losses(target, TEXT[:300], mask).run(session)).loss_nats
    [key] = [key for key in store.keys() if "/tokenloss/" in key]
    sound = store.get(key)
    store.put(key, sound.replace(before, after[: len(before)], 1))
    assert store.get(key) != sound and token_losses(target, TEXT[:300], mask).stored(session) is None
    np.testing.assert_array_equal(final(token_losses(target, TEXT[:300], mask).run(session)).loss_nats, expected)
    assert token_losses(target, TEXT[:300], mask).stored(session) is not None
