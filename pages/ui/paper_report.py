"""A paper study as a folder that stands alone: every figure as SVG and PNG, one HTML report that needs no network."""

import base64
import html
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from engine.errors import HeadroomError
from engine.importance.orders import Axis
from engine.statistics import Statement
from engine.studies.paper_study import PaperStudy
from engine.studies.statements import SMALL_LOSS, break_points, statements
from engine.studies.surveys import describe_task, mean_correlation, shots_in_words, together, written_row
from engine.studies.sweeps import SweepRow, Swept
from engine.views.colors import NO, QUIET, YES, light_theme
from engine.views.confidence import mean_confidence_view
from engine.views.correlation import correlation_view
from engine.views.forms import maps
from engine.views.importance import mean_scores_part
from engine.views.pictures import Picture, rasterized, to_svg
from engine.views.sweep import break_part, describe_power, grid_parts, orders_view, statements_view, sweep_view
from engine.views.view import Column, Part, plain_text
from engine.views.words import NOUNS, capitalized
from pages.ui.page.tables import number, whole_percent

TRANSFER = {
    "task": Column("Judged on"),
    "source": Column("Pruned by the order of"),
    "lost": Column("Points lost against its own order", ".0f"),
    "acc": Column("Questions right", ".1%"),
}
Figure = tuple[str, str, Part]  # its title, its finding, and what is drawn
STYLE = """
body { font: 16px/1.5 sans-serif; color: var(--text); max-width: 1000px; margin: 2rem auto; padding: 0 1rem; }
figure { margin: 2rem 0; } img { width: 100%; } figcaption { color: var(--quiet); }
table { border-collapse: collapse; font-size: 14px; } th, td { text-align: left; padding: .3rem .8rem .3rem 0;
border-bottom: 1px solid var(--line); vertical-align: top; } td.number { text-align: right; }
.holds { color: var(--yes); font-weight: bold; } .does-not-hold { color: var(--no); font-weight: bold; }
pre { background: var(--box); padding: 1rem; overflow-x: auto; font-size: 13px; }
"""
TIMES = 'id="times"'  # marks the one line of a report that differs by place and time of writing
MARKS = {"holds": "✓ holds", "does not hold": "✗ does not hold", "not measured": "– not measured"}


def write_report(study: PaperStudy, folder: str | Path) -> None:
    """Writes `figures/*.svg`, `figures/*.png` and `report.html` into the folder; HeadroomError if that fails."""
    parts = []
    try:
        (Path(folder) / "figures").mkdir(parents=True, exist_ok=True)
        for title, caption, picture in figures(study):
            name = title.lower().replace(",", "").replace(" ", "-")
            drawing = to_svg(picture, title)
            (Path(folder) / "figures" / f"{name}.svg").write_bytes(drawing)
            (Path(folder) / "figures" / f"{name}.png").write_bytes(rasterized(drawing))
            # an image, not inline: drawings on one page would share the names of their clip paths
            source = f"data:image/svg+xml;base64,{base64.b64encode(drawing).decode()}"
            words = html.escape(caption)
            parts.append(f'<figure><img src="{source}" alt="{words}"><figcaption>{words}</figcaption></figure>')
        (Path(folder) / "report.html").write_bytes(page(study, parts).encode())
    except OSError as error:
        line = f"cannot write the report into {folder} ({error.strerror}); choose another --out"
        raise HeadroomError(line) from error


def figures(study: PaperStudy) -> Iterator[tuple[str, str, Picture]]:
    """Yields (title, caption, picture) of every figure that has something to show."""
    for title, finding, part in (*_importance(study), *_correlations(study), *_sweeps(study), *_transfer(study)):
        if picture := part.picture():
            yield title, plain_text(finding), picture


def _importance(study: PaperStudy) -> Iterator[Figure]:
    for title, survey in (("Head importance", study.heads), ("FFN importance", study.ffns)):
        if survey.scores:
            part = mean_scores_part(together(study.setting, survey.scores))
            yield title, part.caption, part


def _correlations(study: PaperStudy) -> Iterator[Figure]:
    for shots in study.shots if study.heads.scores else ():
        rows = [row for row in study.correlations if row["kind"] == "tasks" and row["a"].shots == shots]
        mean = mean_scores_part(together(study.setting, study.heads.scores))
        means = {str(shots): mean_correlation(rows, shots)}
        view = correlation_view([written_row(row) for row in rows], means, mean, {})
        for part in view.parts[1:-1]:
            yield f"Correlations of head importance, {shots_in_words(shots)}", view.finding, part


def _sweeps(study: PaperStudy) -> Iterator[Figure]:
    curves = {name: swept.rows for name, swept in study.curves.items()}
    for axis, noun in NOUNS.items():
        random = _by_shots(curves.get("random", ())) if axis == "heads" else {}
        for shots, rows in _by_shots(curves.get(axis, ())).items():
            view = sweep_view(Swept(tuple(rows)), {axis: break_points(rows, axis)}, random.get(shots, ()))
            yield f"Pruned {noun}, {shots_in_words(shots)}", view.finding, view.parts[0]
            of_confidence = mean_confidence_view(rows, axis)
            for part in of_confidence.parts[:1]:
                yield f"Calibration, pruned {noun}, {shots_in_words(shots)}", of_confidence.finding, part
    for part in grid_parts(curves.get("combined", ())):
        yield part.title, part.caption, part
    own = curves.get("heads", ())
    for title, name in (("Unseen tasks", "others"), ("Rescored after each step", "rescored")):
        judged = {row.point.task for row in curves.get(name, ())}
        for shots, rows in _by_shots(
            [*(row for row in own if row.point.task in judged), *curves.get(name, ())]
        ).items():
            view = orders_view(rows)
            yield f"{title}, {shots_in_words(shots)}", view.finding, view.parts[0]


def _transfer(study: PaperStudy) -> Iterator[Figure]:
    own, rows = (study.curves.get(name, Swept()).rows for name in ("heads", "transfer"))
    frame = transfer_rows(rows, own)
    if len(frame):
        draw = partial(maps.matrix, x="source", y="task", value="lost", signed=True)
        records: Any = frame.to_dict("records")
        part = Part("Transfer", records, TRANSFER, draw)
        yield part.title, transfer_in_words(frame, rows[0].point.heads_permille / 1000), part


def _by_shots(rows: Sequence[SweepRow]) -> dict[int, list[SweepRow]]:
    """Returns the rows of each shot count, the lowest first."""
    counts = sorted({row.point.task.shots for row in rows})
    return {shots: [row for row in rows if row.point.task.shots == shots] for shots in counts}


def page(study: PaperStudy, drawn: list[str]) -> str:
    """Returns the report as HTML."""
    receipt, setting, theme = study.receipt, study.setting, light_theme()
    colors = {"text": theme["textColor"], "line": theme["borderColor"], "box": theme["secondaryBackgroundColor"]}
    colors |= {"quiet": QUIET, "yes": YES, "no": NO}
    root = " ".join(f"--{name}: {color};" for name, color in colors.items())
    judged_here = statements(study)
    found, finding = "".join(map(_statement, judged_here)), statements_view(judged_here, {}).finding
    tasks = ", ".join(dict.fromkeys(task.name for task in study.tasks))
    breaks = [_break_points(study, axis) for axis in NOUNS]
    within = f"{Path(setting.data_dir).expanduser()}{os.sep}" if setting.data_dir else ""
    reasons = [f"{describe_task(task)}: {reason.replace(within, '')}" for task, reason in study.failed.items()]
    failed = "".join(f"<li>{html.escape(reason)}</li>" for reason in reasons)
    judged = f"the first {setting.n_questions}" if setting.n_questions else "all"
    ranked = setting.n_ranking or "all"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{html.escape(receipt["name"])}: how much can go</title><style>:root {{ {root} }}{STYLE}</style></head><body>
<h1>How much of {html.escape(receipt["name"])} can go</h1>
<p>Precision {receipt["precision"]}. Accuracy on {judged} validation questions of each task in a stratified order;
rankings from {ranked} training questions. Tasks: {html.escape(tasks)}.</p>
<h2>The paper's statements, and this model</h2>
<p><strong>{html.escape(plain_text(finding))}</strong></p>
<p>Bansal et al. 2022 (arXiv 2212.09095), on OPT-66B. Points are those of the mean over tasks.</p>
<table><tr><th>Statement</th><th>Here</th><th></th></tr>{found}</table>
{f"<h2>Not measured</h2><ul>{failed}</ul>" if failed else ""}
<h2>Figures</h2>
{"".join(drawn)}
<h2>Break points</h2>
<p>At chance: the full model's 95% interval contains the accuracy of guessing. First loss: the smallest level that is
significantly below the full model (exact McNemar on the same questions, 5% for all levels together by Holm). No loss up
to: the measured level before it. Cliff: the neighboring levels between which accuracy falls most.</p>
{"".join(breaks)}
<h2>Receipt</h2>
<pre>{html.escape(json.dumps(receipt, indent=2, default=str))}</pre>
<h2>When and where</h2>
{_times(study)}
</body></html>
"""


def _times(study: PaperStudy) -> str:
    """Returns the one line on when, where and from which folders the report was written. All else follows from the
    measurements: `diff -r -I 'id="times"' ONE OTHER` prints nothing."""
    said = html.escape("; ".join(f"{name}: {value}" for name, value in study.made.items() if value not in ("", None)))
    return f"<p {TIMES}>{' '.join(said.split())}</p>"


def _statement(each: Statement) -> str:
    words = "".join(f"<td>{html.escape(typeset(said))}</td>" for said in (each.text, each.ours))
    return f'<tr>{words}<td class="{each.verdict.replace(" ", "-")}">{MARKS[each.verdict]}</td></tr>'


def _break_points(study: PaperStudy, axis: Axis) -> str:
    points = break_points(study.curves.get(axis, Swept()).rows, axis)
    part = break_part(axis, points)
    powers = dict.fromkeys(describe_power(each.n, each.looks) for each in points if each.looks)
    return f"<h3>{part.title}</h3>{_table(part)}<p>{' '.join(powers)}</p>"


def _table(part: Part) -> str:
    head = "".join(f"<th>{html.escape(column.title)}</th>" for column in part.shown.values())
    rows = [[column.text(row.get(name)) for name, column in part.shown.items()] for row in part.rows]
    cells = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{cells}</table>"


def transfer_rows(rows: Sequence[SweepRow], own: Sequence[SweepRow]) -> pd.DataFrame:
    """Returns one row per judged task and task whose order pruned it: task, source, acc, lost (points against its own
    order's accuracy at the same level), and whether the two 95% intervals are apart: clear."""
    by_own = {(row.point.task, row.point.heads_permille): row for row in own}
    found = []
    for row in rows:
        source = row.point.of or {"aggregate": "all tasks", "others": "all others"}.get(row.point.by, row.point.by)
        task, mine = row.point.task, by_own.get((row.point.task, row.point.heads_permille))
        lost = math.nan if mine is None else 100 * (mine.acc - row.acc)
        is_clear = mine is not None and (row.high < mine.low or mine.high < row.low)
        found.append((task.name, task.shots, source, row.acc, lost, source == task.name, is_clear))
    return pd.DataFrame(found, columns=["task", "shots", "source", "acc", "lost", "own", "clear"])


@dataclass(frozen=True)
class WorstTransfer:
    """The largest loss of a task by the order of another."""

    task: str
    lost: float  # points
    source: str  # the task by whose order it is lost
    is_clear: bool  # the 95% interval of its accuracy is apart from that by its own order


def worst_transfer(frame: pd.DataFrame) -> WorstTransfer | None:
    """Returns the largest loss of these rows; None if none is as large as `SMALL_LOSS`."""
    others = frame[~frame["own"] & (frame["source"] != "all tasks")].dropna(subset=["lost"])
    if others.empty or others["lost"].max() < SMALL_LOSS:
        return None
    worst = others.nlargest(1, "lost").iloc[0]
    return WorstTransfer(worst["task"], worst["lost"], worst["source"], bool(worst["clear"]))


def transfer_in_words(frame: pd.DataFrame, level: float) -> str:
    """Returns whether tasks need the same heads: the largest loss by the order of another task."""
    at, worst = f"at {whole_percent(level)} of heads pruned", worst_transfer(frame)
    if worst is None:
        return f"**These tasks could share one ranking**: {at}, none loses {SMALL_LOSS} points by that of another."
    said = f"{at}, {worst.task} loses **{number(worst.lost, 0)} points** by the ranking of {worst.source}."
    return f"**Not all tasks need the same heads**: {said}" if worst.is_clear else capitalized(said)


def typeset(words: str) -> str:
    """Returns a sentence of the command line with its numbers as on the screens: "-2.4" as "−2.4"."""
    return re.sub(r"(?<![\w.)])-(?=\d)", "−", words)
