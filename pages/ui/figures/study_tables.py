"""Accuracies of a study as rows for charts and as sentences: curves with their mean, the grid with its border."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from engine.statistics import detectable
from engine.studies.statements import SMALL_LOSS, BreakPoint
from engine.studies.surveys import shots_in_words
from engine.studies.sweeps import SweepRow
from pages.ui.page.tables import whole_percent

CURVE_COLUMNS = ["line", "place", "shots", "level", "acc", "low", "high", "n", "n_levels"]
BREAK_COLUMNS = ["task", "shots", "full_acc", "chance", "no_loss_up_to", "first_detectable_loss", "cliff_from",
                 "cliff_to", "cliff_points", "n", "looks", "reading"]  # fmt: skip
TASKS = ("task 1", "task 2", "task 3", "task 4")  # places in the palette
POINTS = ("mean", *TASKS)  # places of lines that are points until they have LEAST_LEVELS
LEAST_LEVELS = 4  # of a line that is drawn: through fewer points it would look like a result
MOST_NAMED = 8  # tasks whose lines are named in a chart
TOP = 1.08  # of the axis: room for the name of a line at 100%
NAME_SHARE, FAR_SHARE = 0.045, 0.12  # from a line to the middle of its name; from which another is far enough
BESIDE_LETTERS = 3  # between a name and a steep line beside it
STEEP = 0.3  # of a name's distance from its line, which is large at a steep one
NAMED_LEVELS = (0.0, 0.5, 0.7, 1.0)
NAMES = {
    "own": "own ranking",
    "aggregate": "ranking of other tasks",
    "rescored": "rescored at each step",
    "random": "random rankings (mean)",
}


def by_shots(frame: pd.DataFrame) -> list[tuple[int, pd.DataFrame]]:
    """Returns the rows of each shot count, the lowest first."""
    return [(int(shots), frame[frame["shots"] == shots]) for shots in sorted(frame["shots"].unique())]


def table(rows: Sequence[SweepRow]) -> pd.DataFrame:
    """Returns one row per accuracy."""
    return pd.DataFrame([row.cells() for row in rows])


def curves(own: Sequence[SweepRow], random: Sequence[SweepRow], axis: str) -> pd.DataFrame:
    """Returns rows for `study_charts.curves`: each task's line, their mean, and the mean of random rankings with the
    range of their seeds' means. A mean is given if every task of a shot count is measured. `place`: that of a line
    in the palette."""
    frame, parts = table(own), []
    if frame.empty:
        return pd.DataFrame(columns=CURVE_COLUMNS)
    frame = frame.rename(columns={axis: "level"})
    parts.append(frame.assign(line=frame["task"], place=frame["task"].map(_places(frame["task"].unique()))))
    n_tasks = frame.groupby("shots")["task"].nunique()
    means = frame.groupby(["shots", "level"]).agg(acc=("acc", "mean"), n=("task", "size"))
    means = means.reset_index()
    means = means[means["n"] == means["shots"].map(n_tasks)]
    parts.append(means.assign(line="mean of tasks", place="mean"))
    if random:
        drawn = table(random).rename(columns={axis: "level"}).groupby(["shots", "level", "seed"])["acc"]
        by_seed = drawn.agg(["mean", "size"]).reset_index()
        by_seed = by_seed[by_seed["size"] == by_seed["shots"].map(n_tasks)]
        ends = [means[means["level"] == end].assign(mean=lambda part: part["acc"]) for end in (0.0, 1.0)]
        ends = [end[end["shots"].isin(by_seed["shots"])] for end in ends]  # alone they would be a straight line
        band = pd.concat([by_seed, *ends]).groupby(["shots", "level"])["mean"].agg(["mean", "min", "max"]).reset_index()
        band = band.rename(columns={"mean": "acc", "min": "low", "max": "high"})
        parts.append(band.assign(line="random rankings", place="random"))
    found = pd.concat(parts, ignore_index=True)
    found["n_levels"] = found.groupby(["line", "shots"])["level"].transform("nunique")
    return found.reindex(columns=CURVE_COLUMNS)


def _places(names: Sequence[str]) -> dict[str, str]:
    """Returns the place of each task in the palette: one of TASKS, in turn if lines are named."""
    n_places = len(TASKS) if len(names) <= MOST_NAMED + 1 else 1
    return {name: TASKS[at % n_places] for at, name in enumerate(names)}


def has_mean(frame: pd.DataFrame) -> bool:
    """Returns whether `curves` of one shot count have a mean to draw: not that of a single task, nor one known at the
    two ends only, which would be a straight line."""
    is_inner = frame["place"].eq("mean") & frame["level"].gt(0) & frame["level"].lt(1)
    return bool(is_inner.any()) and frame.loc[frame["place"].isin(TASKS), "line"].nunique() > 1


def line_names(frame: pd.DataFrame, letter: float) -> pd.DataFrame:
    """Returns the middle of each name, `level` and `at`, next to its line of `curves`, of one shot count, where it is
    furthest from other lines and names; `letter`: the width of one, in levels. Of many tasks none is named."""
    levels = np.linspace(0, 1, 101)
    points = frame[frame["n_levels"].lt(LEAST_LEVELS) & frame["place"].isin(POINTS)].groupby("line")["level"]
    alone = {line: each.to_numpy() for line, each in points}  # of lines that are not drawn yet
    lines, places_of = dict[str, np.ndarray](), dict[str, str]()
    for line, place in frame[["line", "place"]].drop_duplicates().itertuples(index=False):
        rows = frame[frame["line"] == line].sort_values("level")
        columns = ("acc", "low", "high") if place == "random" else ("acc",)  # a band is drawn
        lines[line] = np.array([np.interp(levels, rows["level"], rows[of], np.nan, np.nan) for of in columns])
        places_of[line] = place
    others = [line for line, place in places_of.items() if place in TASKS]
    found, taken = [], list[tuple[float, float, float]]()  # of words: level, height, half their width
    for name in lines:
        if name in others and len(others) > MOST_NAMED:
            continue
        half, places = letter * len(name) / 2, list[tuple[float, float, float]]()
        if name in alone:
            lines[name][:, abs(levels[:, None] - alone[name]).min(axis=1) > half + 0.01] = np.nan
        for middle, level in enumerate(levels):
            near, own = abs(levels - level) <= half, lines[name][: 1 if places_of[name] == "random" else None]
            around = abs(levels - level) <= half + BESIDE_LETTERS * letter
            if not half <= level <= 1 - half or np.isnan(own[0, middle]):
                continue
            beside = [abs(level - x) < half + reach for x, _, reach in taken]
            for at in (np.nanmax(own[:, near]) + NAME_SHARE, np.nanmin(own[:, near]) - NAME_SHARE):
                if not NAME_SHARE <= at <= TOP:
                    continue
                near_it = [each for line, other in lines.items() if line != name for each in other[:, around]]
                is_between = any(((each - at) * (each - own[0, around]) < 0).any() for each in near_it)
                apart = [abs(each - at) for each in near_it]
                apart += [
                    np.array([abs(y - at) / 2]) for (_, y, _), is_near in zip(taken, beside, strict=True) if is_near
                ]
                room = np.nanmin(np.concatenate([[FAR_SHARE], *apart])) - FAR_SHARE * is_between
                places.append((room - STEEP * abs(at - own[0, middle]), -level, at))
        if places:
            _, level, at = max(places)
            taken.append((-level, at, half))
            found.append((name, places_of[name], -level, at))
    return pd.DataFrame(found, columns=["line", "place", "level", "at"])


def lines(rows: Sequence[SweepRow]) -> pd.DataFrame:
    """Returns rows for `study_charts.lines`: one line per task and kind of order, by heads; the mean of random ones."""
    frame = table(rows)
    frame = frame.assign(ranking=frame["by"].map(NAMES), level=frame["heads"])
    by = ["task", "shots", "level", "ranking"]
    return frame.groupby(by, sort=False)[["acc", "low", "high"]].mean().reset_index()


def grid(rows: Sequence[SweepRow]) -> pd.DataFrame:
    """Returns the mean over tasks at every pair of levels measured for all: shots, heads, ffns, acc, lost (points
    against nothing pruned), n (tasks)."""
    frame = table(rows)
    if frame.empty:
        return pd.DataFrame(columns=["shots", "heads", "ffns", "acc", "n", "lost"])
    found = frame.groupby(["shots", "heads", "ffns"]).agg(acc=("acc", "mean"), n=("task", "size")).reset_index()
    found = found[found["n"] == found["shots"].map(frame.groupby("shots")["task"].nunique())]
    full = found[(found["heads"] == 0) & (found["ffns"] == 0)].set_index("shots")["acc"]
    return found.assign(lost=100 * (found["shots"].map(full) - found["acc"]))


def border(cells: pd.DataFrame) -> pd.DataFrame:
    """Returns the edges (x, y to x2, y2, in levels) between cells with a small loss and the others."""
    found = []
    for shots, frame in cells.groupby("shots"):
        lost = frame.set_index(["heads", "ffns"])["lost"]
        xs, ys = sorted(frame["heads"].unique()), sorted(frame["ffns"].unique())
        dx, dy = _step(xs), _step(ys)
        for i, x in enumerate(xs):
            for j, y in enumerate(ys):
                here = lost.get((x, y), math.nan) < SMALL_LOSS
                if i + 1 < len(xs) and here != (lost.get((xs[i + 1], y), math.nan) < SMALL_LOSS):
                    found.append((shots, x + dx / 2, y - dy / 2, x + dx / 2, y + dy / 2))
                if j + 1 < len(ys) and here != (lost.get((x, ys[j + 1]), math.nan) < SMALL_LOSS):
                    found.append((shots, x - dx / 2, y + dy / 2, x + dx / 2, y + dy / 2))
    return pd.DataFrame(found, columns=["shots", "x", "y", "x2", "y2"])


def spread(cells: pd.DataFrame) -> pd.DataFrame:
    """Returns the cells with the edges of their rectangles."""
    x, y = cells["heads"], cells["ffns"]
    dx, dy = _step(sorted(x.unique())), _step(sorted(y.unique()))
    return cells.assign(x=x - dx / 2, x2=x + dx / 2, y=y - dy / 2, y2=y + dy / 2)


def break_table(found: Sequence[BreakPoint]) -> pd.DataFrame:
    """Returns one row per task and shot count; `detects_points` is the smallest loss at one level that its n questions
    detect in 80% of cases, `reading` is the reason if nothing is read from a curve."""
    frame = pd.DataFrame([each.cells() for each in found], columns=BREAK_COLUMNS)
    detects = [100 * detectable(each.n, max(1, each.looks)) for each in found]
    frame.insert(len(BREAK_COLUMNS) - 1, "detects_points", detects)
    return frame


def curves_in_words(frame: pd.DataFrame, what: str) -> str:
    """Returns the means of a curve as a sentence, for screen readers."""
    means = frame[(frame["place"] == "mean") & frame["level"].isin(NAMED_LEVELS)]
    parts = [
        f"{shots_in_words(int(str(shots)))} "
        + " → ".join(whole_percent(acc) for acc in line.sort_values("level")["acc"])
        for shots, line in means.groupby("shots")
        if len(line) == len(NAMED_LEVELS)
    ]
    levels = ", ".join(map(whole_percent, NAMED_LEVELS))
    said = f"Mean of tasks at {levels} of {what} pruned: {'; '.join(parts)}."
    return said if parts else "Not every task is measured yet."


def grid_in_words(cells: pd.DataFrame) -> str:
    """Describes the furthest corners with a small loss."""
    parts = []
    for shots, frame in cells.groupby("shots"):
        kept = frame[(frame["lost"] < SMALL_LOSS)]
        if len(kept):
            best = kept.assign(sum=kept["heads"] + kept["ffns"]).sort_values(["sum", "heads"]).iloc[-1]
            heads, ffns = (whole_percent(best[axis]) for axis in ("heads", "ffns"))
            parts.append(f"{shots_in_words(int(str(shots)))}: {heads} of heads with {ffns} of FFNs")
    return f"Furthest that loses less than {SMALL_LOSS} points, {'; '.join(parts)}." if parts else "Not measured yet."


def lines_in_words(frame: pd.DataFrame) -> str:
    """Describes the mean accuracy over levels by kind of ranking."""
    means = frame.groupby("ranking", sort=False)["acc"].mean()
    return "Mean over levels: " + ", ".join(f"{name} {whole_percent(acc)}" for name, acc in means.items()) + "."


def _step(levels: Sequence[float]) -> float:
    return min((b - a for a, b in zip(levels, levels[1:], strict=False)), default=0.1)
