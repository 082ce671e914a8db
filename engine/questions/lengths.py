"""How long the questions of the known tasks are, in tokens: a table beside this module, so that passes over them can be
forecast where neither rows nor a tokenizer are at hand.

Measured by `.venv/bin/python -m tests.write_lengths` on samples of the tasks' own rows, written out by the harness and
encoded by OPT's tokenizer. Other tokenizers make a tenth more or fewer tokens of them.
"""

import csv
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache as once
from pathlib import Path
from typing import Any

from engine.errors import UsageError
from engine.placement.pass_memory import TokenCounts
from engine.questions.encoding import Encoded, Row, batches, joined, pack
from engine.questions.requests import CHUNK, TaskSpec

TABLE = Path(__file__).with_name("lengths.csv")
SHOTS = (0, 1, 5)  # that were measured


@dataclass(frozen=True)
class Lengths:
    """Of a task at one shot count, means a question. What scoring reads: `characters` (as engine.timing.workload
    counts them), `tokens` without padding, `padded` with it, `pairs` that attention compares, `places` that are read;
    the same of the right answer alone, which gradient passes read; `groups` of rows, each a pass where padding is
    computed, `passes` where groups share them; `longest`, the tokens of the longest row."""

    characters: float
    tokens: float
    padded: float
    pairs: float
    places: float
    gold_tokens: float
    gold_pairs: float
    gold_places: float
    groups: float
    passes: float
    longest: float

    def scored(self, is_padded: bool) -> TokenCounts:
        """What scoring a question reads; `is_padded` where padding is computed too, as in bitsandbytes' int8."""
        return TokenCounts(self.padded if is_padded else self.tokens, self.pairs, self.places)

    @property
    def gold_characters(self) -> float:
        """About how many characters a gradient pass over a question reads."""
        return self.characters * self.gold_tokens / self.tokens

    @property
    def gold(self) -> TokenCounts:
        """What a gradient pass over a question reads."""
        return TokenCounts(self.gold_tokens, self.gold_pairs, self.gold_places)


def lengths_of(task: TaskSpec) -> Lengths:
    """The lengths of a task's questions, between and beyond the measured shot counts along a line. UsageError where the
    task is not in the table."""
    known = _table()
    if task.name not in known:
        raise UsageError(f"how long the questions of {task.name!r} are is not known; choose among {', '.join(known)}")
    measured = known[task.name]
    if task.shots in measured:
        return measured[task.shots]
    low, high = (1, 5) if task.shots > 1 else (0, 1)
    share = (task.shots - low) / (high - low)
    pairs = zip(astuple(measured[low]), astuple(measured[high]), strict=True)
    return Lengths(*(one + share * (other - one) for one, other in pairs))


def known_tasks() -> tuple[str, ...]:
    """The tasks in the table."""
    return tuple(_table())


def measured_lengths(questions: Sequence[Sequence[Encoded]], golds: Sequence[int], characters: float) -> Lengths:
    """The lengths of these questions, in chunks as they are scored; `golds` is the first right choice of each."""
    n, found = len(questions), TokenCounts()
    padded, n_groups, n_passes, longest, gold = 0, 0, 0, 0, TokenCounts()
    for start in range(0, n, CHUNK):
        chunk = slice(start, start + CHUNK)
        rows = [row for choices in questions[chunk] for row in pack(choices)]
        found += reading_of(rows)
        groups = batches(rows)
        padded += sum(len(group) * len(group[0].tokens) for group in groups)
        n_groups, n_passes = n_groups + len(groups), n_passes + len(joined(groups))
        longest = max([longest, *(len(row.tokens) for row in rows)])
        for choices, right in zip(questions[chunk], golds[chunk], strict=True):
            gold += reading_of(pack([choices[right]]))
    return Lengths(characters / n, found.tokens / n, padded / n, found.pairs / n, found.places / n, gold.tokens / n,
                   gold.pairs / n, gold.places / n, n_groups / n, n_passes / n, longest)  # fmt: skip


def reading_of(rows: Sequence[Row]) -> TokenCounts:
    """What passes over these rows compute, if nothing that they begin with is computed apart."""
    tokens = sum(len(row.tokens) for row in rows)
    pairs = sum(len(group) * len(group[0].tokens) ** 2 for group in batches(rows))
    places = sum(len({position for _, position, _ in row.read}) for row in rows)
    return TokenCounts(tokens, pairs, places)


def write_table(found: dict[tuple[str, int], Lengths]) -> None:
    """Writes the table anew, by task and shot count."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["task", "shots", *(field.name for field in fields(Lengths))])
        for (task, shots), lengths in found.items():
            rows.writerow([task, shots, *(f"{value:.4g}" for value in astuple(lengths))])


@once
def _table() -> dict[str, dict[int, Lengths]]:
    known: dict[str, dict[int, Lengths]] = {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            task, shots = row.pop("task"), int(row.pop("shots"))
            values: dict[str, Any] = {name: float(value) for name, value in row.items()}
            known.setdefault(task, {})[shots] = Lengths(**values)
    return known
