"""The finding of the Training screen: which runs have a phase change, and when their induction heads form."""

from collections.abc import Sequence

import numpy as np

from engine.heads.induction import INDUCTION_FROM
from pages.ui.page.tables import number, whole_percent
from pages.ui.training.runs import DrawnRun
from pages.ui.training.tables import in_tokens


def finding(runs: Sequence[DrawnRun]) -> str:
    """Describes the phase change of the first run that has one, then the other runs, in Markdown."""
    changed = [run for run in runs if run.window is not None]
    others = [run for run in runs if run.window is None]
    said = [_describe_change(changed[0])] if changed else ["**None of these runs has a phase change.**"]
    said += [f"{run.label}: phase change at {_window(run)}." for run in changed[1:]]
    return " ".join([*said, *map(_describe_none, others)])


def formed_at(run: DrawnRun) -> float | None:
    """Returns the tokens at which the best head first has half of the run's highest prefix matching; None if no head
    ever counts as an induction head."""
    x = run.trajectory
    if "prefix_matching" not in x.heads:
        return None
    best = np.nan_to_num(x.heads["prefix_matching"].reshape(len(x.steps), -1)).max(axis=1)
    return float(x.tokens[np.argmax(best >= best.max() / 2)]) if best.max() >= INDUCTION_FROM else None


def _describe_change(run: DrawnRun) -> str:
    x, where = run.trajectory, run.window
    assert where is not None
    fall = number(abs(float(x.icl[where.last] - x.icl[where.first])))
    share = f" ({whole_percent(where.share)} of its change)" if where.share <= 1 else ""
    formed = formed_at(run)
    heads = "" if formed is None else f"Its induction heads reach half strength at {in_tokens(formed)}; then"
    said = f"the in-context score falls by {fall} nats{share}."
    said = f"{heads} {said}" if heads else said[0].upper() + said[1:]
    return f"**{run.label}: phase change (Olsson et al.) at {_window(run)}.** {said}"


def _describe_none(run: DrawnRun) -> str:
    return f"{run.label}: none{', and no induction head' if formed_at(run) is None else ''}."


def _window(run: DrawnRun) -> str:
    assert run.window is not None
    start, end = in_tokens(run.window.start), in_tokens(run.window.end)
    unit = start.partition(" ")[2]
    return f"{start.removesuffix(f' {unit}') if end.endswith(unit) else start} to {end}"
