"""What the model card says of training: its losses, from the log that `engine.demo.making.train` leaves."""

from collections.abc import Mapping, Sequence
from typing import Any

MOST = 16  # rows
ROWS = ("text", "repeats", "episodes")  # kinds of rows; what else the log has is a family's


def losses_table(log: Sequence[Mapping[str, Any]], most: int = MOST) -> str:
    """A Markdown table, a row a snapshot: tokens trained on and the step, nats a token of held-out prose, of the rows
    trained on since the snapshot before (text, repeats, episodes; "–" where there were none) and, where the log has
    them, on the first and second copy of random tokens, and the best head's prefix matching.

    `log`: the lines of log.jsonl (`engine.training.folders`). Of more snapshots than `most` the first, the last, and
    between them those at about even shares of what the log has: early ones lie closer. ValueError: an empty log.
    """
    if not log:
        raise ValueError("the log has no line yet; train first")
    n = len(log)
    most = min(most, n)
    shown = [log[round(part * (n - 1) / max(1, most - 1))] for part in range(most)]
    heads = ["Tokens, M", "Step", "Held-out prose", *(f"Rows: {kind}" for kind in ROWS), "Random tokens",
             "The same again", "Best prefix matching"]  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|" + "|".join(["--:"] * len(heads)) + "|"]
    for line in shown:
        rows = line.get("loss") or {}
        cells = [f"{line['tokens'] / 1e6:.2f}", f"{line['step']:,}", _nats(line.get("text"))]
        cells += [_nats(rows.get(kind)) for kind in ROWS]
        cells += [_nats(line.get("first_copy")), _nats(line.get("second_copy")), _nats(_best(line))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _best(line: Mapping[str, Any]) -> float | None:
    """The highest prefix matching of a line: its heads are [name, score] each."""
    return max((float(score) for _, score in line.get("prefix_matching") or ()), default=None)


def _nats(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
