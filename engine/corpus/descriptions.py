"""A line about a head, from its numbers over a corpus by stated rules. No language model is asked.

A rule that holds gives one clause:
attention: of the kind with the largest mean attention, if that is at least ATTENDS
fires: of the kind of most of the largest activations, if they are at least FIRES of the windows, with the deciles of
windows in which they are
reach: "local" if the mean distance is at most LOCAL tokens, "far" if it is at least FAR of a window
spread: if the attention is as even as over at least SPREAD tokens
writes: if the head writes strongly at at least WRITES of all positions
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from engine.corpus.heads import KINDS, OTHER, Head, HeadsInCorpus, deciles

ATTENDS, FIRES, LOCAL, FAR, SPREAD, WRITES = 0.3, 0.5, 4.0, 0.33, 20.0, 0.5
NAMES = {
    "induction": "what followed earlier copies of the token",
    "same_token": "earlier copies of the token",
    "previous_token": "the previous token",
    "first_token": "the first token of the window",
    "current_token": "the token itself",
}


@dataclass(frozen=True)
class Clause:
    """One clause of a description: the `rule`, its `text`, and the number `value` behind it, in its own unit."""

    rule: str
    text: str
    value: float


def describe(found: HeadsInCorpus, head: Head) -> list[Clause]:
    """Returns the clauses that hold for a head; none if no rule holds."""
    scores = {name: float(score[head]) for name, score in found.scores.items()}
    clauses = list[Clause]()
    kind = max(KINDS, key=scores.__getitem__)
    if (share := scores[kind]) >= ATTENDS:
        where = " where there are any" if kind in ("induction", "same_token") else ""
        clauses.append(Clause("attention", f"{100 * share:.0f}% of its attention on {NAMES[kind]}{where}", share))
    clauses += _fires(found, head)
    n_tokens = found.windows.token_ids.shape[1]
    if (distance := scores["distance"]) <= LOCAL:
        clauses.append(Clause("reach", f"local: {distance:.1f} tokens back on average", distance))
    elif distance >= FAR * n_tokens:
        clauses.append(Clause("reach", f"far: {distance:.0f} tokens back on average", distance))
    if (spread := math.exp(scores["entropy"])) >= SPREAD:
        clauses.append(Clause("spread", f"attention as even as over {spread:.0f} tokens", spread))
    if (share := scores["strong"]) >= WRITES:
        clauses.append(Clause("writes", f"writes strongly at {100 * share:.0f}% of positions", share))
    return clauses


def _fires(found: HeadsInCorpus, head: Head) -> list[Clause]:
    fired = found.fired(head)
    kind, n = Counter(each.kind for each in fired).most_common(1)[0]
    if kind == OTHER or n < FIRES * len(fired):
        return []
    groups = [group for group in deciles(fired) if group]
    most = [sum(each.kind == kind for each in group) >= FIRES * len(group) for group in groups]
    which = "all deciles" if all(most) else f"{sum(most)} of {len(groups)} deciles"
    share = n / len(fired)
    return [Clause("fires", f"fires most at {NAMES[kind]} in {100 * share:.0f}% of windows, in {which}", share)]
