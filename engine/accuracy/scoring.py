"""Log-likelihood of every choice of a run of questions, by packed forward passes (see `engine.questions.encoding`)."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.models.last_layer import last_layer_at
from engine.models.loading import Loaded
from engine.models.slicing import Sliced, applied
from engine.questions.encoding import Encoded, Row, batches, pack

if TYPE_CHECKING:
    from torch import Tensor

READ_POSITIONS = 128  # logits computed at once: 128 x 50,272 x 4 bytes = 26 MB
MIN_PREFIX, MIN_PREFIX_SHARE = 32, 0.25  # tokens, and share of all rows' tokens, from which a prefix is computed apart


Scored = tuple[np.ndarray, np.ndarray]


def score(loaded: Loaded, questions: Sequence[Sequence[Encoded]]) -> Generator[None, None, Scored]:
    """Generator that pauses after each forward pass and returns (log_likelihood_nats, greedy), both (question, choice):
    summed log-probability of each continuation and whether greedy decoding gives it; nan and False where a question has
    fewer choices.

    Closing the generator early leaves nothing behind. Logits are computed only where a continuation token is predicted.
    Departs from lm-eval in one thing: log-softmax is always taken in fp32.
    """
    rows = [row for choices in questions for row in pack(choices)]
    n_prefix, prefix, results = shared_prefix(rows), None, []
    if n_prefix:
        prefix = _prefix(loaded, rows[0], n_prefix)
        yield
    groups = batches([_behind(row, n_prefix) for row in rows])
    for group in groups:
        results.append(read_rows(loaded, group, hidden_states(loaded, group, prefix)))
        yield
    return gathered(questions, groups, results)


def score_under(loaded: Loaded, questions: Sequence[Sequence[Encoded]], parts: Sliced) -> Generator[None, None, Scored]:
    """As `score`, of what a mask leaves of the model (`engine.models.slicing.sliced`).

    The mask is on only while a forward pass runs: whoever is served between two steps sees the plain model.
    """
    steps = score(loaded, questions)
    while True:
        try:
            with applied(loaded, parts):
                next(steps)
        except StopIteration as finished:
            return finished.value
        yield


def shared_prefix(rows: Sequence[Row]) -> int:
    """How many tokens all rows begin with that are worth computing once for all: few-shot examples that are the same
    for every question. Depends on nothing but the rows; 0 where there are too few."""
    shared = len(commonprefix([row.tokens for row in rows]))
    shared = min([shared, *(position for row in rows for _, position, _ in row.read)])
    shared = min([shared, *(row.branch.index(1) for row in rows if 1 in row.branch)])
    enough = len(rows) > 1 and shared >= MIN_PREFIX
    return shared if enough and shared * len(rows) >= MIN_PREFIX_SHARE * sum(len(row.tokens) for row in rows) else 0


def gathered(
    questions: Sequence[Sequence[Encoded]], groups: Sequence[Sequence[Row]], results: Sequence[Sequence[Scored]]
) -> Scored:
    """What `score` returns, from the results of each group's rows."""
    n_choices = max((len(choices) for choices in questions), default=0)
    log_likelihood_nats = np.full((len(questions), n_choices), np.nan)
    greedy = np.zeros((len(questions), n_choices), bool)
    row_of = {choice[0].question: index for index, choice in enumerate(questions)}
    for group, found in zip(groups, results, strict=True):
        for row, (sums, exact) in zip(group, found, strict=True):
            for number, choice in enumerate(row.choices):
                log_likelihood_nats[row_of[choice.question], choice.choice] = sums[number]
                greedy[row_of[choice.question], choice.choice] = exact[number]
    return log_likelihood_nats, greedy


def batch_inputs(rows: Sequence[Row], dtype: Any, device: Any, n_prefix: int = 0) -> dict[str, Any]:
    """`input_ids`, `position_ids` (B, T), `attention_mask` (B, 1, T, n_prefix + T) or None for one pass, padded right;
    the prefix in front of all rows is seen by everything.
    """
    import torch

    length = max(len(row.tokens) for row in rows)
    tokens = torch.zeros(len(rows), length, dtype=torch.long)
    positions = torch.zeros(len(rows), length, dtype=torch.long)
    branch = torch.full((len(rows), length), -1)  # -1 = padding
    for index, row in enumerate(rows):
        n = len(row.tokens)
        tokens[index, :n], positions[index, :n] = torch.tensor(row.tokens), torch.tensor(row.positions)
        branch[index, :n] = torch.tensor(row.branch)
    inputs = {"input_ids": tokens.to(device), "position_ids": positions.to(device), "attention_mask": None}
    if n_prefix or bool((branch > 0).any()):
        # padding lies behind everything, so the causal mask alone hides it where there are no branches
        earlier = torch.ones(length, length, dtype=torch.bool).tril()
        visible = (branch[:, None, :] == 0) | (branch[:, None, :] == branch[:, :, None])  # (B, T destination, T source)
        hidden = ~(earlier & visible)[:, None]
        hidden = torch.cat([torch.zeros(*hidden.shape[:3], n_prefix, dtype=torch.bool), hidden], dim=-1)
        # finfo.min and not -inf: a row that sees nothing would be nan
        mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, torch.finfo(dtype).min)
        inputs["attention_mask"] = mask.to(device)
    return inputs


@dataclass(frozen=True)
class Prefix:
    """The first `n` tokens of all rows: keys and values (1, H, n, d_head) of each layer that has heads."""

    n: int
    layers: dict[int, tuple[Tensor, Tensor]]


def hidden_states(loaded: Loaded, rows: Sequence[Row], prefix: Prefix | None = None) -> Tensor:
    """(B, T, d_model): what the unembedding reads, from one forward pass over what lies behind the `prefix`; true only
    where a choice is read."""
    import torch
    from transformers import DynamicCache

    model, before = loaded.model, None
    device = model.get_input_embeddings().weight.device
    inputs = batch_inputs(rows, model.dtype, device, 0 if prefix is None else prefix.n)
    with torch.inference_mode():
        if prefix is not None:
            before = DynamicCache()
            for layer, (keys, values) in prefix.layers.items():
                keys, values = (each.expand(len(rows), -1, -1, -1) for each in (keys, values))
                before.update(keys, values, layer)
        with last_layer_at(loaded, read_places(rows), inputs["input_ids"].shape[1]):
            return model.base_model(**inputs, past_key_values=before, use_cache=before is not None).last_hidden_state


def read_places(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """(row, position) of all that is read."""
    return sorted({(index, position) for index, row in enumerate(rows) for _, position, _ in row.read})


def _prefix(loaded: Loaded, row: Row, n: int) -> Prefix:
    import torch

    tokens = torch.tensor([row.tokens[:n]], device=loaded.model.get_input_embeddings().weight.device)
    with torch.inference_mode():
        cache = loaded.model.base_model(input_ids=tokens, use_cache=True).past_key_values
    # a layer without heads has none
    return Prefix(n, {at: (each.keys, each.values) for at, each in enumerate(cache.layers) if each.is_initialized})


def _behind(row: Row, n_prefix: int) -> Row:
    """The row without its first tokens."""
    if not n_prefix:
        return row
    read = tuple((number, position - n_prefix, target) for number, position, target in row.read)
    return Row(row.choices, row.tokens[n_prefix:], row.positions[n_prefix:], row.branch[n_prefix:], read)


def log_probabilities(loaded: Loaded, hidden: Tensor, targets: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """For a few positions at a time: (which, logits (n, V) in fp32, log p of the targets (n,)), so that never all
    logits of a text are held. `hidden` (n, d_model) is what the unembedding reads.
    """
    import torch

    for start in range(0, len(hidden), READ_POSITIONS):
        which = slice(start, start + READ_POSITIONS)
        logits = loaded.model.get_output_embeddings()(hidden[which]).float()
        chosen = logits.gather(1, targets[which, None])[:, 0]
        yield which, logits, chosen - torch.logsumexp(logits, -1)


def read_rows(loaded: Loaded, rows: Sequence[Row], hidden: Tensor) -> list[Scored]:
    """Per row: (sum of log-probabilities, greedy match) for each of its choices."""
    import torch

    model = loaded.model
    with torch.inference_mode():
        places = read_places(rows)
        slot = {place: index for index, place in enumerate(places)}
        picked = hidden[[b for b, _ in places], [t for _, t in places]]  # (places, d_model)
        targets: list[list[int]] = [[] for _ in places]
        for index, row in enumerate(rows):
            for _, position, target in row.read:
                targets[slot[index, position]].append(target)
        log_probability: dict[tuple[int, int], float] = {}
        best: list[int] = []
        for start in range(0, len(places), READ_POSITIONS):
            logits = model.get_output_embeddings()(picked[start : start + READ_POSITIONS]).float()
            best += logits.argmax(-1).tolist()
            which = [(at, token) for at in range(len(logits)) for token in targets[start + at]]
            at, token = torch.tensor(which, device=logits.device).unbind(1)
            values = logits[at, token] - torch.logsumexp(logits, -1)[at]
            log_probability |= {(start + a, t): v for (a, t), v in zip(which, values.tolist(), strict=True)}
    results = []
    for index, row in enumerate(rows):
        sums, exact = np.zeros(len(row.choices)), np.ones(len(row.choices), bool)
        for number, position, target in row.read:
            place = slot[index, position]
            sums[number] += log_probability[place, target]
            exact[number] &= best[place] == target
        results.append((sums, exact))
    return results
