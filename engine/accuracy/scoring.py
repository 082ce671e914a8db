"""Log-likelihoods of all choices of questions, by packed forward passes (see `engine.questions.encoding`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.accuracy.passes import compute_prefix, hidden_states, passes, read_places, token_numbers
from engine.architecture.family import smears_keys
from engine.models.added_vector import adding
from engine.models.loading import Loaded
from engine.placement.needs import CACHED_POSITIONS, READ_POSITIONS
from engine.progress import may_stop
from engine.questions.encoding import Encoded, Row, pack

if TYPE_CHECKING:
    from torch import Tensor

# tokens, and share of all rows' tokens, from which a prefix is computed separately
MIN_PREFIX, MIN_PREFIX_SHARE = 32, 0.25
Scored = tuple[np.ndarray, np.ndarray]
Added = tuple[int, "Tensor"]  # a layer, and what is added to its input (d_model,)


def score(
    loaded: Loaded, questions: Sequence[Sequence[Encoded]], added: Added | None = None
) -> Generator[None, None, Scored]:
    """Yields after each forward pass; returns (log_likelihood_nats, greedy), both (question, choice): the summed
    log-probability of each continuation, and whether greedy decoding gives it; nan and False for missing choices.

    The generator can be closed early. Logits are computed only where a continuation token is predicted. Unlike lm-eval,
    log-softmax is always computed in fp32. `added`: a vector for the last token of each context.
    """
    rows = [row for choices in questions for each in _packable(choices, added) for row in pack(each)]
    n_prefix, prefix, results = 0 if smears_keys(loaded.identity.config) else shared_prefix(rows), None, []
    if n_prefix:
        prefix = compute_prefix(loaded, rows[0].tokens[:n_prefix])
        yield
    scored = []
    for groups in passes(loaded, [_behind(row, n_prefix) for row in rows]):
        scored += (together := [row for group in groups for row in group])
        with _added_at_ends(loaded, together, added):
            hidden = hidden_states(loaded, groups, prefix)
        results += read_rows(loaded, together, hidden)
        yield
    return gathered(questions, scored, results)


def score_under(
    loaded: Loaded,
    questions: Sequence[Sequence[Encoded]],
    change: Callable[[], AbstractContextManager[None]],
    added: Added | None = None,
) -> Generator[None, None, Scored]:
    """Scores like `score`, but with a changed model, such as one that a mask prunes.

    The change is made only during a forward pass, so other users of the model between two steps see the full model.
    """
    steps = score(loaded, questions, added)
    while True:
        try:
            with change():
                next(steps)
        except StopIteration as finished:
            return finished.value
        yield


def _added_at_ends(loaded: Loaded, rows: Sequence[Row], added: Added | None) -> AbstractContextManager[None]:
    """Context in which a pass over these rows has the vector, if there is one, at the last token of each context."""
    if added is None:
        return nullcontext()
    return adding(loaded, *added, token_numbers(loaded, rows, context_ends(rows)))


def context_ends(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Returns the (row, position) of the last token of each context in these rows."""
    ends: dict[tuple[int, int], int] = {}
    for index, row in enumerate(rows):
        for number, position, _ in row.read:
            ends.setdefault((index, number), position)
    return sorted({(index, position) for (index, _), position in ends.items()})


def _packable(choices: Sequence[Encoded], added: Added | None) -> list[Sequence[Encoded]]:
    """Returns the choices that may share rows: with a vector for the last token of each context, contexts of different
    lengths do not, as one could hold the last token of another."""
    n_context = {len(choice.inputs) - len(choice.targets) for choice in choices}
    return [choices] if added is None or len(n_context) == 1 else [[choice] for choice in choices]


def shared_prefix(rows: Sequence[Row]) -> int:
    """Returns the number of tokens at the start of all rows (few-shot examples shared by all questions) to compute
    once; 0 if too few. Depends only on the rows."""
    shared = len(commonprefix([row.tokens for row in rows]))
    shared = min([shared, *(position for row in rows for _, position, _ in row.read)])
    shared = min([shared, *(row.branch.index(1) for row in rows if 1 in row.branch)])
    enough = len(rows) > 1 and shared >= MIN_PREFIX
    return shared if enough and shared * len(rows) >= MIN_PREFIX_SHARE * sum(len(row.tokens) for row in rows) else 0


def gathered(questions: Sequence[Sequence[Encoded]], rows: Sequence[Row], results: Sequence[Scored]) -> Scored:
    """Returns the result of `score` from the results of each row."""
    n_choices = max((len(choices) for choices in questions), default=0)
    log_likelihood_nats = np.full((len(questions), n_choices), np.nan)
    greedy = np.zeros((len(questions), n_choices), bool)
    row_of = {choice[0].question: index for index, choice in enumerate(questions)}
    for row, (sums, exact) in zip(rows, results, strict=True):
        for number, choice in enumerate(row.choices):
            log_likelihood_nats[row_of[choice.question], choice.choice] = sums[number]
            greedy[row_of[choice.question], choice.choice] = exact[number]
    return log_likelihood_nats, greedy


def _behind(row: Row, n_prefix: int) -> Row:
    """Returns the row without its first `n_prefix` tokens."""
    if not n_prefix:
        return row
    read = tuple((number, position - n_prefix, target) for number, position, target in row.read)
    return Row(row.choices, row.tokens[n_prefix:], row.positions[n_prefix:], row.branch[n_prefix:], read)


def logits_of(loaded: Loaded, hidden: Tensor, is_capped: bool = True, weights: Tensor | None = None) -> Tensor:
    """Returns (n, V) in the model's type: the logits of `hidden` (n, d_model), capped if the model does that (Gemma 2),
    unless `is_capped` is False. With `weights` (V, d_model), those of the unembedding in fp32, they are in fp32."""
    import torch

    head, cap = loaded.model.get_output_embeddings(), None
    if weights is None:
        logits = head(hidden)
    else:
        bias = getattr(head, "bias", None)
        logits = torch.nn.functional.linear(hidden.float(), weights, None if bias is None else bias.float())
    if (divisor := loaded.scales.logits_divisor) != 1:
        logits = logits / divisor
    if is_capped:
        cap = getattr(loaded.model.config, "final_logit_softcapping", None)
    return logits if cap is None else torch.tanh(logits / cap) * cap


def some_logits(loaded: Loaded, hidden: Tensor, is_capped: bool = True) -> Iterator[tuple[slice, Tensor]]:
    """Yields (which, logits (n, V) in fp32) for a few positions at a time, so that the logits of a whole text are never
    in memory. `hidden` (n, d_model): the unembedding's input; `is_capped` as in `logits_of`."""
    for start in range(0, len(hidden), READ_POSITIONS):
        which = slice(start, start + READ_POSITIONS)
        yield which, logits_of(loaded, hidden[which], is_capped).float()


def log_probabilities(loaded: Loaded, hidden: Tensor, targets: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yields what `some_logits` does, each with log p of the targets (n,)."""
    import torch

    for which, logits in some_logits(loaded, hidden):
        chosen = logits.gather(1, targets[which, None])[:, 0]
        yield which, logits, chosen - torch.logsumexp(logits, -1)


def nats_of(loaded: Loaded, hidden: Tensor, targets: np.ndarray) -> np.ndarray:
    """Returns (n,): -log p in nats of the token ids `targets` (n,); `hidden` (n, d_model): the unembedding's input."""
    import torch

    wanted, found = torch.as_tensor(targets, dtype=torch.long).to(hidden.device), np.empty(len(targets), np.float32)
    for which, _, log_p in log_probabilities(loaded, hidden, wanted):
        found[which] = -log_p.cpu().numpy()
        may_stop()  # the unembedding of a window takes a second in a larger model
    return found


def hidden_of(loaded: Loaded, ids: Any, positions: bool = False) -> Tensor:
    """Returns (row, T, d_model): the unembedding's input at all positions, from one forward pass over rows of token ids
    (row, T), with their `positions` given or left to the model. Call inside torch.inference_mode."""
    import torch

    ids = torch.as_tensor(ids, dtype=torch.long, device=loaded.model.get_input_embeddings().weight.device)
    kwargs = {"position_ids": torch.arange(ids.shape[1], device=ids.device).expand_as(ids)} if positions else {}
    return loaded.model.base_model(input_ids=ids, use_cache=False, **kwargs).last_hidden_state


def next_logits(loaded: Loaded, ids: Sequence[int], kept: Any = None, first: int = 0) -> Tensor:
    """Returns (V,) logits in fp32 of the token after `ids`; `first`: position of the first of them, after the tokens in
    the cache `kept`. Call inside torch.inference_mode."""
    import torch

    device = loaded.model.get_input_embeddings().weight.device
    where = torch.arange(first, first + len(ids), device=device)[None]
    kwargs = {"use_cache": False} if kept is None else {"use_cache": True, "past_key_values": kept}
    read = loaded.model.base_model(input_ids=torch.tensor([list(ids)], device=device), position_ids=where, **kwargs)
    return logits_of(loaded, read.last_hidden_state[0, -1:]).float()[0]


def read_rows(loaded: Loaded, rows: Sequence[Row], hidden: Tensor) -> list[Scored]:
    """Returns per row (sum of log-probabilities, greedy match) of each of its choices; `hidden` (place, d_model): the
    unembedding's input at each of `read_places`."""
    import torch

    places = read_places(rows)
    slot = {place: index for index, place in enumerate(places)}
    targets: list[set[int]] = [set() for _ in places]
    for index, row in enumerate(rows):
        for _, position, target in row.read:
            targets[slot[index, position]].add(target)
    found: dict[tuple[int, int], tuple[float, bool]] = {}  # of (place, target)
    with torch.inference_mode():
        for start in range(0, len(places), READ_POSITIONS):
            logits = logits_of(loaded, hidden[start : start + READ_POSITIONS])
            for first in range(0, len(logits), CACHED_POSITIONS):
                some = logits[first : first + CACHED_POSITIONS].float()
                which = [(at, token) for at in range(len(some)) for token in targets[start + first + at]]
                values = zip(*_read(some, which), strict=True)
                found |= {(start + first + at, token): value for (at, token), value in zip(which, values, strict=True)}
    results = []
    for index, row in enumerate(rows):
        sums, exact = np.zeros(len(row.choices)), np.ones(len(row.choices), bool)
        for number, position, target in row.read:
            log_probability, is_best = found[slot[index, position], target]
            sums[number] += log_probability
            exact[number] &= is_best
        results.append((sums, exact))
    return results


def _read(logits: Tensor, which: Sequence[tuple[int, int]]) -> tuple[list[float], list[bool]]:
    """Returns (log-probability, whether it is the arg-max) of each (position, token); overwrites the logits (n, V) in
    fp32."""
    import torch

    at, token = torch.tensor(which, device=logits.device).unbind(1)
    chosen, largest = logits[at, token], logits.amax(-1, keepdim=True)
    is_best = (chosen == largest[at, 0]).tolist()
    if any(is_best):  # of equal logits, only one is the arg-max
        best = dict.fromkeys(place for (place, _), tied in zip(which, is_best, strict=True) if tied)
        best |= zip(best, logits[list(best)].argmax(-1).tolist(), strict=True)
        is_best = [tied and best[place] == target for (place, target), tied in zip(which, is_best, strict=True)]
    sums = logits.sub_(largest).exp_().sum(-1).log_().add_(largest[:, 0])
    return (chosen - sums[at]).tolist(), is_best
