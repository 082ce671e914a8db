"""Per-token losses of any text under any mask, with the likeliest tokens, through the store.

A text longer than the model's window is read in overlapping windows. Each token is scored in the first window that
contains it, so every token after the first window has at least window - stride tokens before it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from engine.accuracy.scoring import hidden_of, log_probabilities
from engine.composed import all_of
from engine.errors import HeadroomError, UsageError
from engine.measurement import Measurement, Workload, of_records
from engine.models.loading import Loaded
from engine.models.masks import Mask, pruned
from engine.models.session import Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import BATCH_TOKENS, front, pack_strings, pieces_at, tokenized, unpack_strings
from engine.records import Record, canonical_key
from engine.texts.passages import chat_field, checked, text_digest

N_LIKELIEST = 5
Tokenize = Callable[[Any], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Cutting:
    """How a long text is cut: windows of `length` tokens, one every `stride`; 0 = the model's window, half of it."""

    length: int = 0
    stride: int = 0

    def of(self, n_ctx: int) -> "Cutting":
        """Returns a copy without zeros, for a model window of `n_ctx` tokens. UsageError: window or stride is out of
        range."""
        length = self.length or n_ctx
        stride = self.stride or max(1, length // 2)
        if not 2 <= length <= n_ctx or not 1 <= stride <= length:
            raise UsageError(f"window {length} and stride {stride} do not fit; the window is 2 to {n_ctx} tokens for "
                             f"this model, the stride 1 to the window")  # fmt: skip
        return Cutting(length, stride)


@dataclass(frozen=True)
class TokenLosses:
    """Losses of the n tokens measured so far of one text under one mask.

    text: the text
    n_total: tokens of the whole text
    token_ids: (n,)
    ends: (n,) character offsets at which the tokens end
    loss_nats: (n,) -log p(token | tokens before it); nan for the first token without BOS
    rank: (n,) 1 if the token was the likeliest; 0 if it has no loss
    top_ids: (n, 5) the likeliest tokens
    top_log_p: (n, 5) their log-probabilities in nats
    strings: the text of each token id in `top_ids`
    window, stride: in tokens
    bos: whether BOS comes first
    """

    text: str
    n_total: int
    token_ids: np.ndarray
    ends: np.ndarray
    loss_nats: np.ndarray
    rank: np.ndarray
    top_ids: np.ndarray
    top_log_p: np.ndarray
    strings: Mapping[int, str]
    window: int
    stride: int
    bos: bool

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def pieces(self) -> list[str]:
        """The text of each token; "" for the later bytes of a character that takes several tokens."""
        return pieces_at(self.text, self.ends)


def windows(n: int, cutting: Cutting) -> list[tuple[int, int, int]]:
    """Returns (start, stop, first) of each window over n tokens: it reads [start, stop) and scores [first, stop)."""
    found, stop = [], 0
    for start in range(0, n, cutting.stride):
        first, stop = stop, min(n, start + cutting.length)
        found.append((start, stop, first))
        if stop == n:
            break
    return found


def token_losses(
    target: Target, text: str, mask: Mask, cutting: Cutting = Cutting(), is_chat: bool = False
) -> Measurement[TokenLosses]:
    """Returns the TokenLosses of a text under a mask; progress counts tokens. `is_chat`: a chat template rendered the
    text (`engine.texts.passages.as_chat`), so special tokens in it are special.

    HeadroomError: an empty or invalid text. UsageError: a cutting that does not fit the model's window.
    """
    text, cutting = checked(text), cutting.of(target.shape.n_ctx)
    return of_records(
        target,
        ("token losses", text_digest(text), mask.key(), cutting, is_chat),
        lambda session, records: _parts(target, text, mask, cutting, records, is_chat),
        lambda records: _joined(text, target.bos, cutting, records) if records else None,
        expected=partial(Workload, {"forward": float(len(text))}),
        counted=lambda records: (_next(records), _total(records)),
    )


def losses_of_texts(
    target: Target, texts: Sequence[str], mask: Mask, label: str = ""
) -> Measurement[tuple[np.ndarray, ...]]:
    """Returns the losses (n,) in nats of each text measured so far, in order. HeadroomError: as for `token_losses`."""
    each = [token_losses(target, text, mask).map(lambda losses: losses.loss_nats) for text in texts]
    return all_of(each, label).map(lambda found: tuple(losses for losses in found if losses is not None))


def have_same_tokens(a: TokenLosses, b: TokenLosses) -> bool:
    """Returns whether two models cut the text into the same tokens, as far as both have read it."""
    n = min(len(a), len(b))
    return a.n_total == b.n_total and np.array_equal(a.token_ids[:n], b.token_ids[:n])


def same_tokens(a: TokenLosses, b: TokenLosses) -> None:
    """Raises HeadroomError if two models cut the text into different tokens, so that their losses do not match."""
    if not have_same_tokens(a, b):
        raise HeadroomError(f"the two models cut this text into different tokens ({a.n_total:,} and {b.n_total:,}); "
                            f"compare models that share a tokenizer")  # fmt: skip


def _parts(
    target: Target, text: str, mask: Mask, cutting: Cutting, records: Sequence[Record], is_chat: bool
) -> Iterator[Piece]:
    """Yields one piece per forward pass over several windows; the first of `records` gives their number."""
    shapes: dict[str, tuple[int | str, ...]] = {name: ("n",) for name in ("token_ids", "ends", "loss_nats", "rank")}
    shapes |= {"top_ids": ("n", "k"), "top_log_p": ("n", "k"), "strings": ("bytes",)}
    fields = {"text": text_digest(text), "mask": mask.key(), "ablation": "zero"}
    fields |= {"window": cutting.length, "stride": cutting.stride} | chat_field(is_chat)
    tokenize = lru_cache(maxsize=1)(partial(tokenized, text, is_chat=is_chat))  # a long text takes a second

    def reads(record: Record) -> tuple[TokenLosses, int]:
        return _joined(text, target.bos, cutting, [record]), _next([record])

    while not records or _next(records) < _total(records):
        key = canonical_key("tokenloss", target.key() | fields | {"part": len(records)})
        measure = partial(_measured, tokenize=tokenize, mask=mask, bos=target.bos, cutting=cutting, part=len(records))
        yield Piece(key, 0, shapes, measure, reads=reads)


def _measured(loaded: Loaded, tokenize: Tokenize, mask: Mask, bos: bool, cutting: Cutting, part: int) -> Measuring:
    """Measures the tokens that a few windows score, in one forward pass."""
    yield Progress(0, 0)
    ids, ends = tokenize(loaded.tokenizer)
    group = _groups(windows(len(ids), cutting), cutting)[part]
    first, stop = group[0][2], group[-1][1]
    arrays = {"token_ids": ids[first:stop], "ends": ends[first:stop]}
    about = {"kind": "tokenloss", "mask": mask.text(), "n_tokens": len(ids), "stop": stop}
    about |= {"window": cutting.length, "stride": cutting.stride}
    return arrays | _scored(loaded, ids, mask, bos, group), about


def _scored(
    loaded: Loaded, ids: np.ndarray, mask: Mask, bos: bool, group: Sequence[tuple[int, int, int]]
) -> dict[str, np.ndarray]:
    import torch

    before = front(loaded.tokenizer, bos)
    lead = 1 - len(before)  # without BOS the first token of a window is not scored
    length = max(stop - start for start, stop, _ in group) - lead
    tokens = torch.zeros(len(group), max(1, length), dtype=torch.long)
    for row, (start, stop, _) in enumerate(group):
        read = before + ids[start : stop - 1].tolist()
        tokens[row, : len(read)] = torch.tensor(read)
    n = group[-1][1] - group[0][2]
    loss, rank = np.full(n, np.nan, np.float32), np.zeros(n, np.int32)
    top = min(N_LIKELIEST, loaded.identity.shape.n_vocab)
    top_ids, top_log_p = np.zeros((n, top), np.int32), np.full((n, top), np.nan, np.float32)
    # (row, position, token): the position whose output predicts the token
    places = [(row, token - start - lead, token) for row, (start, stop, first) in enumerate(group)
              for token in range(max(first, start + lead), stop)]  # fmt: skip
    if places:
        rows, positions, scored = (torch.tensor(column) for column in zip(*places, strict=True))
        with torch.inference_mode(), pruned(loaded, mask):
            hidden = hidden_of(loaded, tokens, positions=True)
            hidden = hidden[rows.to(hidden.device), positions.to(hidden.device)]
            targets = torch.from_numpy(ids.astype(np.int64))[scored].to(hidden.device)
            at = scored.numpy() - group[0][2]
            for which, logits, log_p in log_probabilities(loaded, hidden, targets):
                likeliest = logits.topk(top, dim=-1)
                normal = torch.logsumexp(logits, -1, keepdim=True)
                right = logits.gather(1, targets[which, None])
                loss[at[which]] = -log_p.cpu().numpy()
                rank[at[which]] = 1 + (logits > right).sum(-1).cpu().numpy()
                top_ids[at[which]] = likeliest.indices.cpu().numpy()
                top_log_p[at[which]] = (likeliest.values - normal).cpu().numpy()
    arrays = {"loss_nats": loss, "rank": rank, "top_ids": top_ids, "top_log_p": top_log_p}
    return arrays | {"strings": pack_strings(top_ids, loaded.tokenizer)}


def _groups(all_windows: list[tuple[int, int, int]], cutting: Cutting) -> list[list[tuple[int, int, int]]]:
    """Returns windows grouped by forward pass: a fixed number each, so that int8 and bf16 results are reproducible."""
    many = max(1, BATCH_TOKENS // cutting.length)
    return [all_windows[start : start + many] for start in range(0, len(all_windows), many)]


def _joined(text: str, bos: bool, cutting: Cutting, parts: Sequence[Record]) -> TokenLosses:
    names = ("token_ids", "ends", "loss_nats", "rank", "top_ids", "top_log_p")
    arrays = {name: np.concatenate([part.arrays[name] for part in parts]) for name in names}
    strings: dict[int, str] = {}
    for part in parts:
        strings |= unpack_strings(part.arrays["strings"])
    return TokenLosses(text, _total(parts), **arrays, strings=strings, window=cutting.length, stride=cutting.stride,
                       bos=bos)  # fmt: skip


def _next(parts: Sequence[Record]) -> int:
    """Returns the number of tokens done."""
    return int(parts[-1].receipt["stop"])


def _total(parts: Sequence[Record]) -> int:
    return int(parts[0].receipt["n_tokens"])


def repeated_tokens(token_ids: np.ndarray) -> np.ndarray:
    """Returns (T,) bool: whether the token and the one before it stand side by side earlier in the text."""
    found, before = [False], set[tuple[int, int]]()
    for pair in zip(token_ids[:-1].tolist(), token_ids[1:].tolist(), strict=True):
        found.append(pair in before)
        before.add(pair)
    return np.array(found)
