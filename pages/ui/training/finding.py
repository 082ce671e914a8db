"""The finding of the Training screen: which runs have a phase change, and when their induction heads form."""

from collections.abc import Sequence

import numpy as np

from engine.heads.induction import INDUCTION_FROM
from engine.training.phase_change import LEAST_FALL
from pages.ui.page.tables import number, whole_percent
from pages.ui.training.runs import DrawnRun
from pages.ui.training.tables import in_tokens, repeats_until


def finding(runs: Sequence[DrawnRun]) -> str:
    """Describes the phase change of the first run that has one, then by contrast the runs without, then the others: in
    Markdown, a line a run."""
    changed = [run for run in runs if run.window is not None]
    without = [run for run in runs if run.window is None]
    said = [_describe_change(changed[0])] if changed else ["**None of these runs has a phase change.**"]
    said += [_describe_none(run, changed[:1]) for run in without[:1]]
    said += [f"{_name(run)}: no phase change." for run in without[1:]]
    said += [f"{_name(run)}{_smeared(run)}: phase change at {_window(run)}." for run in changed[1:]]
    return "  \n".join(said)


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
    return f"**{_name(run)}{_smeared(run)}: {heads}{change}.**"


def _describe_none(run: DrawnRun, contrast: Sequence[DrawnRun]) -> str:
    """Describes a run without a phase change, and whether its gain is high only while its rows are repeats."""
    x, formed, repeats_end = run.trajectory, formed_at(run), repeats_until(run)
    if formed is None:
        best = x.best("prefix_matching")
        match = "" if np.isnan(best).all() else f" (prefix match at most {number(float(np.nanmax(best)))})"
        heads = f"no induction heads{match}, no phase change."
    else:
        heads = f"induction heads form at {in_tokens(formed)}, without a phase change."
    ends = "".join(f" ({each.label}: {number(-float(each.trajectory.icl[-1]), sign=True)})" for each in contrast)
    end, rises = -float(x.icl[-1]), ""
    highest = 0.0 if repeats_end is None else -float(np.nanmin(x.icl[x.tokens <= repeats_end]))
    if highest > LEAST_FALL and end < highest / 2:
        share = whole_percent((x.recipe or {})["repeats"])
        rises = f"rises to {number(highest, sign=True)} while {share} of its rows are repeated random tokens, and "
    return f"{_name(run)}: {heads} Its gain {rises}ends at {number(end, sign=True)}{ends}."


def _name(run: DrawnRun) -> str:
    return run.label[:1].upper() + run.label[1:]


def _smeared(run: DrawnRun) -> str:
    return " (each key mixes in the key before it)" if (run.trajectory.recipe or {}).get("smeared") else ""


def _window(run: DrawnRun) -> str:
    assert run.window is not None
    start, end = in_tokens(run.window.start), in_tokens(run.window.end)
    unit = start.partition(" ")[2]
    return f"{start.removesuffix(f' {unit}') if end.endswith(unit) else start} to {end}"
