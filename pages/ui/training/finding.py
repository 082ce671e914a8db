"""The finding of the Training screen: which runs have a phase change, and when their induction heads form."""

from collections.abc import Sequence

import numpy as np

from engine.heads.induction import INDUCTION_FROM
from pages.ui.page.tables import number
from pages.ui.training.runs import DrawnRun
from pages.ui.training.tables import in_tokens


def finding(runs: Sequence[DrawnRun]) -> list[str]:
    """Describes the phase change of the first run that has one, then by contrast the first run without: in Markdown,
    one line each."""
    changed = [run for run in runs if run.window is not None]
    without = [run for run in runs if run.window is None]
    lines = [_describe_change(changed[0])] if changed else ["**None of these runs has a phase change.**"]
    return lines + [_contrast(run) for run in without[:1]]


def formed_at(run: DrawnRun) -> float | None:
    """Returns the tokens at which the best head first has half of the run's highest prefix matching; None if no head
    ever counts as an induction head."""
    return half_strength(run.trajectory.tokens, run.trajectory.best("prefix_matching"))


def half_strength(tokens: np.ndarray, best: np.ndarray) -> float | None:
    """Returns the tokens at which the `best` prefix matching of all heads first has half of its highest value; None if
    that is too low for an induction head."""
    best = np.nan_to_num(best)
    return float(tokens[np.argmax(best >= best.max() / 2)]) if best.max() >= INDUCTION_FROM else None


def _describe_change(run: DrawnRun) -> str:
    x, where = run.trajectory, run.window
    assert where is not None
    rise = number(abs(float(x.icl[where.last] - x.icl[where.first])))
    formed = formed_at(run)
    heads = "" if formed is None else f"induction heads form at {in_tokens(formed)}, and "
    change = f"in the phase change ({_window(run)}) the in-context gain rises by {rise} nats"
    return f"**{_name(run)}: {heads}{change}.**"


def _contrast(run: DrawnRun) -> str:
    """Describes a run without a phase change: its induction heads, and its gain."""
    formed = formed_at(run)
    heads = "induction heads never form, and there is no phase change"
    if formed is not None:
        heads = f"induction heads form at {in_tokens(formed)}, without a phase change"
    return f"{_name(run)}: {heads}; its gain ends at {number(_gain_at_end(run), sign=True)}."


def _gain_at_end(run: DrawnRun) -> float:
    return -float(run.trajectory.icl[-1])


def _name(run: DrawnRun) -> str:
    return run.label[:1].upper() + run.label[1:]


def _window(run: DrawnRun) -> str:
    assert run.window is not None
    start, end = in_tokens(run.window.start), in_tokens(run.window.end)
    unit = start.partition(" ")[2]
    return f"{start.removesuffix(f' {unit}') if end.endswith(unit) else start} to {end}"
