"""The finding of the Training screen: which runs have a phase change, and when their induction heads form."""

from collections.abc import Sequence

import numpy as np

from engine.heads.induction import INDUCTION_FROM
from engine.training.phase_change import LEAST_FALL
from pages.ui.page.tables import number, whole_percent
from pages.ui.training.runs import SMEARED_HELP, DrawnRun
from pages.ui.training.tables import in_tokens, repeats_until


def finding(runs: Sequence[DrawnRun]) -> list[str]:
    """Describes the phase change of the first run that has one, then by contrast the first run without, then the
    figures of both and the other runs: in Markdown, one line each."""
    changed = [run for run in runs if run.window is not None]
    without = [run for run in runs if run.window is None]
    lines = [_describe_change(changed[0])] if changed else ["**None of these runs has a phase change.**"]
    if without:
        lines += [_contrast(without[0]), _figures(without[0], changed[:1])]
    lines += [f"{_name(run)}: no phase change." for run in without[1:]]
    lines += [f"{_name(run)}: phase change at {_window(run)}." for run in changed[1:]]
    if any(run.is_smeared for run in runs):
        lines.append(f"Smeared keys: {SMEARED_HELP}")
    return lines


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
    """Describes a run without a phase change: its induction heads, and whether its gain outlasts repeated rows."""
    formed, peak, end = formed_at(run), _peak_on_repeats(run), number(_gain_at_end(run), sign=True)
    heads = "induction heads never form, and there is no phase change"
    if formed is not None:
        heads = f"induction heads form at {in_tokens(formed)}, without a phase change"
    is_lost = peak is not None and _gain_at_end(run) <= 0
    gain = f"its gain is lost once rows stop repeating, and ends at {end}" if is_lost else f"its gain ends at {end}"
    return f"{_name(run)}: {heads}; {gain}."


def _figures(run: DrawnRun, others: Sequence[DrawnRun]) -> str:
    """Describes the figures of a run without a phase change, and the gain of `others` at their ends."""
    best, peak, rises = run.trajectory.best("prefix_matching"), _peak_on_repeats(run), ""
    match = "" if np.isnan(best).all() else f"prefix match at most {number(float(np.nanmax(best)))}; "
    if peak is not None:
        share = whole_percent((run.trajectory.recipe or {})["repeats"])
        rises = f"rises to {number(peak, sign=True)} while {share} of its rows are repeated random tokens, and "
    ends = "".join(f" ({each.label}: {number(_gain_at_end(each), sign=True)})" for each in others)
    return f"{_name(run)}: {match}its gain {rises}ends at {number(_gain_at_end(run), sign=True)}{ends}."


def _peak_on_repeats(run: DrawnRun) -> float | None:
    """Returns the highest gain while rows are repeats, if less than half of it is left at the end; or None."""
    x, repeats_end = run.trajectory, repeats_until(run)
    peak = 0.0 if repeats_end is None else -float(np.nanmin(x.icl[x.tokens <= repeats_end]))
    return peak if peak > LEAST_FALL and _gain_at_end(run) < peak / 2 else None


def _gain_at_end(run: DrawnRun) -> float:
    return -float(run.trajectory.icl[-1])


def _name(run: DrawnRun) -> str:
    return run.label[:1].upper() + run.label[1:]


def _window(run: DrawnRun) -> str:
    assert run.window is not None
    start, end = in_tokens(run.window.start), in_tokens(run.window.end)
    unit = start.partition(" ")[2]
    return f"{start.removesuffix(f' {unit}') if end.endswith(unit) else start} to {end}"
