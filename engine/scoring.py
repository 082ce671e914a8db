"""Log-likelihood of every choice of a run of questions, by packed forward passes (see `engine.encoding`)."""

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from engine.encoding import Encoded, Row, batches, pack
from engine.loading import Loaded

READ_POSITIONS = 128  # logits computed at once: 128 x 50,272 x 4 bytes = 26 MB


def score(
    loaded: Loaded, questions: Sequence[Sequence[Encoded]]
) -> Generator[None, None, tuple[np.ndarray, np.ndarray]]:
    """Generator that pauses after each forward pass and returns (log_likelihood_nats, greedy), both (question, choice):
    summed log-probability of each continuation and whether greedy decoding gives it; nan and False where a question has
    fewer choices.

    Closing the generator early leaves nothing behind. Logits are computed only where a continuation token is predicted.
    Departs from lm-eval in one thing: log-softmax is always taken in fp32.
    """
    n_choices = max((len(choices) for choices in questions), default=0)
    log_likelihood_nats = np.full((len(questions), n_choices), np.nan)
    greedy = np.zeros((len(questions), n_choices), bool)
    row_of = {choice[0].question: index for index, choice in enumerate(questions)}
    for group in batches([row for choices in questions for row in pack(choices)]):
        results = _forward(loaded, group)
        yield
        for row, (sums, exact) in zip(group, results, strict=True):
            for number, choice in enumerate(row.choices):
                log_likelihood_nats[row_of[choice.question], choice.choice] = sums[number]
                greedy[row_of[choice.question], choice.choice] = exact[number]
    return log_likelihood_nats, greedy


def batch_inputs(rows: Sequence[Row], dtype: Any, device: Any) -> dict[str, Any]:
    """`input_ids`, `position_ids` (B, T), `attention_mask` (B, 1, T, T) or None for one pass, padded right."""
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
    if bool((branch > 0).any()):
        # padding lies behind everything, so the causal mask alone hides it where there are no branches
        earlier = torch.ones(length, length, dtype=torch.bool).tril()
        visible = (branch[:, None, :] == 0) | (branch[:, None, :] == branch[:, :, None])  # (B, T destination, T source)
        hidden = ~(earlier & visible)[:, None]
        # finfo.min and not -inf: a row that sees nothing would be nan
        mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, torch.finfo(dtype).min)
        inputs["attention_mask"] = mask.to(device)
    return inputs


def _forward(loaded: Loaded, rows: Sequence[Row]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Per row: (sum of log-probabilities, greedy match) for each of its choices."""
    import torch

    model = loaded.model
    with torch.inference_mode():
        hidden = model.base_model(
            **batch_inputs(rows, model.dtype, model.get_input_embeddings().weight.device), use_cache=False
        ).last_hidden_state  # (B, T, d_model)
        places = sorted({(index, position) for index, row in enumerate(rows) for _, position, _ in row.read})
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
