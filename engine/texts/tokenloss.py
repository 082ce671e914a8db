"""Per-token losses of any text under any mask, with what the model expected instead, through the store.

A text longer than the model's window is read in overlapping windows. Each token is scored in the first window that it
lies in, so every token behind the first window has at least window - stride tokens in front of it.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from engine.accuracy.evaluation import loaded_model, numbers_key, with_bos
from engine.accuracy.scoring import READ_POSITIONS
from engine.errors import HeadroomError, UsageError
from engine.jobs import Progress
from engine.models.checkpoints import Identity
from engine.models.loading import Loaded, LoadSpec, Models, identify
from engine.models.masks import Mask, pruned
from engine.questions.encoding import BATCH_TOKENS
from engine.records import Record, canonical_key, decode, encode
from engine.texts.passages import checked, text_digest

N_LIKELIEST = 5


@dataclass(frozen=True)
class Cutting:
    """How a long text is cut: `length` tokens a window, one every `stride`; 0 = the model's window, half of it."""

    length: int = 0
    stride: int = 0

    def of(self, n_ctx: int) -> "Cutting":
        """The same in numbers for a window of `n_ctx` tokens; UsageError where they make no sense."""
        length = self.length or n_ctx
        stride = self.stride or max(1, length // 2)
        if not 2 <= length <= n_ctx or not 1 <= stride <= length:
            raise UsageError(f"window {length} and stride {stride} do not fit; the window is 2 to {n_ctx} tokens for "
                             f"this model, the stride 1 to the window")  # fmt: skip
        return Cutting(length, stride)


@dataclass(frozen=True)
class TokenLosses:
    """Of one text under one mask, over the n tokens measured so far of `n_total`.

    `ends` (n,): where each token ends in the text, in characters. `loss_nats` (n,): -log p(token | tokens before it),
    nan for a first token that has nothing in front, not even BOS. `rank` (n,): 1 where the token was the likeliest, 0
    where there is no loss. `top_ids` and `top_log_p` (n, 5): the likeliest tokens, and their log-probabilities in nats;
    `strings` says what they look like.
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
    def complete(self) -> bool:
        return len(self) == self.n_total

    @property
    def pieces(self) -> list[str]:
        """The text of each token; "" for the later bytes of a character that takes several tokens."""
        return pieces_at(self.text, self.ends)


def tokenized(text: str, tokenizer: Any) -> tuple[np.ndarray, np.ndarray]:
    """(token ids, where each ends in characters), without BOS. What looks like a special token is plain text."""
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=True,
                      verbose=False)  # fmt: skip
    if not found.input_ids:
        raise HeadroomError(f"the tokenizer finds no token in {text[:40]!r}; take another text")
    ends = np.maximum.accumulate([end for _, end in found.offset_mapping]).astype(np.int32)
    ends[-1] = len(text)
    return np.array(found.input_ids, np.int32), ends


def pieces_at(text: str, ends: np.ndarray) -> list[str]:
    """The text between one end and the next; together they are the text up to the last one."""
    return [text[start:stop] for start, stop in pairwise([0, *ends.tolist()])]


def beginning_id(tokenizer: Any, bos: bool) -> int | None:
    """The token in front of each window; None without BOS."""
    if not bos:
        return None
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if start is None:
        raise HeadroomError("the tokenizer has neither a beginning nor an end token; choose BOS off in the sidebar")
    return start


def windows(n: int, cutting: Cutting) -> list[tuple[int, int, int]]:
    """(start, stop, first) of each window of n tokens: it reads [start, stop) and scores [first, stop)."""
    found, stop = [], 0
    for start in range(0, n, cutting.stride):
        first, stop = stop, min(n, start + cutting.length)
        found.append((start, stop, first))
        if stop == n:
            break
    return found


def token_losses(
    models: Models, spec: LoadSpec, text: str, mask: Mask, bos: bool | None, store: Any, cutting: Cutting = Cutting()
) -> Iterator[Progress]:
    """Yields Progress in tokens, its value the TokenLosses so far; what is stored is not computed again.

    HeadroomError: a text with nothing to measure. UsageError: a cutting that does not fit the model's window.
    """
    text = checked(text)
    identity = identify(spec, store)
    cutting = cutting.of(identity.shape.n_ctx)
    parts: list[Record] = []
    ids = ends = None
    all_cached = True
    while not parts or _next(parts) < _total(parts):
        key = _key(identity, spec, text, mask, bos, cutting, len(parts))
        record = decode(store.get(key))
        if record is None:
            all_cached = False
            done, total = (_next(parts), _total(parts)) if parts else (0, 0)
            loaded = yield from loaded_model(models, spec, done, total)
            if ids is None:
                ids, ends = tokenized(text, loaded.tokenizer)
            assert ends is not None
            groups = _groups(windows(len(ids), cutting), cutting)
            arrays, seconds = _measured(loaded, ids, mask, with_bos(identity, bos), groups[len(parts)])
            first, stop = groups[len(parts)][0][2], groups[len(parts)][-1][1]
            receipt = numbers_key(identity, spec, bos) | {
                "kind": "tokenloss", "name": identity.name, "mask": mask.text(), "n_tokens": len(ids), "stop": stop,
                "window": cutting.length, "stride": cutting.stride, "seconds": seconds,
            }  # fmt: skip
            record = Record({"token_ids": ids[first:stop], "ends": ends[first:stop], **arrays}, receipt)
            store.put(key, encode(record))
        parts.append(record)
        value = _joined(text, parts, with_bos(identity, bos), cutting)
        yield Progress(_next(parts), _total(parts), value, cached=all_cached)


def recall_token_losses(
    identity: Identity, spec: LoadSpec, text: str, mask: Mask, bos: bool | None, store: Any,
    cutting: Cutting = Cutting(),
) -> TokenLosses | None:  # fmt: skip
    """The losses where all of them are stored, else None; loads and computes nothing."""
    cutting = cutting.of(identity.shape.n_ctx)
    parts: list[Record] = []
    while not parts or _next(parts) < _total(parts):
        record = decode(store.get(_key(identity, spec, text, mask, bos, cutting, len(parts))))
        if record is None:
            return None
        parts.append(record)
    return _joined(text, parts, with_bos(identity, bos), cutting)


def same_tokens(a: TokenLosses, b: TokenLosses) -> None:
    """HeadroomError where two models cut the text into other tokens, so that no token has two losses."""
    n = min(len(a), len(b))
    if a.n_total != b.n_total or not np.array_equal(a.token_ids[:n], b.token_ids[:n]):
        raise HeadroomError(f"the two models cut this text into different tokens ({a.n_total:,} and {b.n_total:,}); "
                            f"compare models that share a tokenizer")  # fmt: skip


def log_probabilities(loaded: Loaded, hidden: Any, targets: Any) -> Iterator[tuple[slice, Any, Any]]:
    """For a few positions at a time: (which, logits (n, V) in fp32, log p of the targets (n,)), so that never all
    logits of a text are held. `hidden` (n, d_model) is what the unembedding reads.
    """
    import torch

    for start in range(0, len(hidden), READ_POSITIONS):
        which = slice(start, start + READ_POSITIONS)
        logits = loaded.model.get_output_embeddings()(hidden[which]).float()
        chosen = logits.gather(1, targets[which, None])[:, 0]
        yield which, logits, chosen - torch.logsumexp(logits, -1)


def _measured(
    loaded: Loaded, ids: np.ndarray, mask: Mask, bos: bool, group: Sequence[tuple[int, int, int]]
) -> tuple[dict[str, np.ndarray], float]:
    """Arrays for the tokens that these windows score, from one forward pass."""
    import torch

    started = time.perf_counter()
    begin = beginning_id(loaded.tokenizer, bos)
    front = [] if begin is None else [begin]
    lead = 1 - len(front)  # without BOS the first token of a window is only read
    length = max(stop - start for start, stop, _ in group) - lead
    tokens = torch.zeros(len(group), max(1, length), dtype=torch.long)
    for row, (start, stop, _) in enumerate(group):
        read = front + ids[start : stop - 1].tolist()
        tokens[row, : len(read)] = torch.tensor(read)
    device = loaded.model.get_input_embeddings().weight.device
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
            where = torch.arange(tokens.shape[1]).expand_as(tokens)
            hidden = loaded.model.base_model(input_ids=tokens.to(device), position_ids=where.to(device),
                                             use_cache=False).last_hidden_state  # fmt: skip
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
    shown = np.unique(top_ids).tolist()
    strings = dict(zip(shown, loaded.tokenizer.batch_decode([[each] for each in shown]), strict=True))
    arrays = {"loss_nats": loss, "rank": rank, "top_ids": top_ids, "top_log_p": top_log_p,
              "strings": np.frombuffer(json.dumps(strings).encode(), np.uint8)}  # fmt: skip
    return arrays, round(time.perf_counter() - started, 4)


def _groups(all_windows: list[tuple[int, int, int]], cutting: Cutting) -> list[list[tuple[int, int, int]]]:
    """Windows that share a forward pass: a fixed number of them, so that int8 and bf16 give the same each time."""
    many = max(1, BATCH_TOKENS // cutting.length)
    return [all_windows[start : start + many] for start in range(0, len(all_windows), many)]


def _joined(text: str, parts: Sequence[Record], bos: bool, cutting: Cutting) -> TokenLosses:
    names = ("token_ids", "ends", "loss_nats", "rank", "top_ids", "top_log_p")
    arrays = {name: np.concatenate([part.arrays[name] for part in parts]) for name in names}
    strings: dict[int, str] = {}
    for part in parts:
        strings |= {int(token): string for token, string in json.loads(part.arrays["strings"].tobytes()).items()}
    return TokenLosses(text, _total(parts), **arrays, strings=strings, window=cutting.length, stride=cutting.stride,
                       bos=bos)  # fmt: skip


def _next(parts: Sequence[Record]) -> int:
    """Tokens that are done."""
    return int(parts[-1].receipt["stop"])


def _total(parts: Sequence[Record]) -> int:
    return int(parts[0].receipt["n_tokens"])


def _key(
    identity: Identity, spec: LoadSpec, text: str, mask: Mask, bos: bool | None, cutting: Cutting, part: int
) -> str:
    fields = numbers_key(identity, spec, bos) | {
        "text": text_digest(text), "mask": mask.key(), "ablation": "zero",
        "window": cutting.length, "stride": cutting.stride, "part": part,
    }  # fmt: skip
    return canonical_key("tokenloss", fields)
