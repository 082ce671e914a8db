"""A study as a folder that stands alone: every figure as SVG and PNG, and one HTML report that needs no network."""

import base64
import html
import json
from collections.abc import Iterator
from pathlib import Path

import altair as alt
import pandas as pd

from engine.errors import HeadroomError
from engine.studies.break_points import break_points
from engine.studies.study import SMALL_LOSS, Study
from engine.studies.surveys import shots_in_words, together
from engine.studies.sweeps import Swept
from pages.ui.correlations import charts as agreement_charts
from pages.ui.correlations import tables as agreement_frames
from pages.ui.importance import charts as importance_charts
from pages.ui.shared import charts
from pages.ui.sweeps import charts as sweep_charts
from pages.ui.sweeps import tables as sweep_frames

STYLE = """
body { font: 16px/1.5 sans-serif; color: #1b2733; max-width: 1000px; margin: 2rem auto; padding: 0 1rem; }
figure { margin: 2rem 0; } img { width: 100%; } figcaption { color: #52606d; }
table { border-collapse: collapse; font-size: 14px; } th, td { text-align: left; padding: .3rem .8rem .3rem 0;
border-bottom: 1px solid #d9e0e6; vertical-align: top; } td.number { text-align: right; }
.holds { color: #00704f; font-weight: bold; } .does-not-hold { color: #b34700; font-weight: bold; }
pre { background: #f4f6f8; padding: 1rem; overflow-x: auto; font-size: 13px; }
"""
MARKS = {"holds": "✓ holds", "does not hold": "✗ does not hold", "not measured": "– not measured"}


def write_report(study: Study, folder: str | Path) -> None:
    """Writes `figures/*.svg`, `figures/*.png` and `report.html` into the folder; HeadroomError where that fails."""
    parts = []
    try:
        (Path(folder) / "figures").mkdir(parents=True, exist_ok=True)
        for title, caption, chart in figures(study):
            name = title.lower().replace(",", "").replace(" ", "-")
            drawing = charts.to_svg(chart, title)
            (Path(folder) / "figures" / f"{name}.svg").write_bytes(drawing)
            (Path(folder) / "figures" / f"{name}.png").write_bytes(charts.rasterised(drawing))
            # an image, not inline: drawings on one page would share the names of their clip paths
            source = f"data:image/svg+xml;base64,{base64.b64encode(drawing).decode()}"
            words = html.escape(caption.replace("**", ""))
            parts.append(f'<figure><img src="{source}" alt="{words}"><figcaption>{words}</figcaption></figure>')
        (Path(folder) / "report.html").write_text(page(study, parts), encoding="utf-8")
    except OSError as error:
        raise HeadroomError(
            f"cannot write the report into {folder} ({error.strerror}); choose another --out"
        ) from error


def figures(study: Study) -> Iterator[tuple[str, str, alt.LayerChart]]:
    """(title, caption, chart) of every figure that has something to show."""
    curves = {name: swept.rows for name, swept in study.curves.items()}
    scores = study.heads.scores
    if scores:
        rows = importance_charts.aggregate_rows(scores, together(study.setting, scores))
        words = importance_charts.heads_in_words(rows, len(scores), study.setting.aggregate)
        yield "Head importance", words, importance_charts.aggregate_map(rows, "Importance", len(scores))
    if study.ffns.scores:
        rows = importance_charts.ffn_rows(study.ffns.scores)
        yield "FFN importance", importance_charts.ffns_in_words(rows), importance_charts.ffn_map(rows)
    pairs = agreement_frames.labelled(study.correlations)
    for shots in study.shots if len(pairs) else ():
        of_tasks = pairs[(pairs["kind"] == "tasks") & (pairs["at"] == str(shots))]
        names = agreement_frames.names_in_order(of_tasks, "similarity")
        n_heads = next(iter(scores.values())).scores.size
        words = agreement_frames.takeaway(of_tasks, "srcc", n_heads)
        cells = agreement_frames.cells(of_tasks, "srcc")
        chart = agreement_charts.matrix(cells, names, (), agreement_charts.MEASURES["srcc"])
        yield f"Correlations of head importance, {shots_in_words(shots)}", words, chart
    for axis, noun in (("heads", "heads"), ("ffns", "FFNs")):
        frame = sweep_frames.curves(curves.get(axis, ()), curves.get("random", ()) if axis == "heads" else (), axis)
        for shots in sorted(frame["shots"].unique()):
            mine = frame[frame["shots"] == shots]
            words = sweep_frames.curves_in_words(mine, noun)
            yield f"Pruned {noun}, {shots_in_words(shots)}", words, sweep_charts.curves(mine, axis)
    cells = sweep_frames.grid(curves.get("combined", ()))
    for shots in sorted(cells["shots"].unique()):
        mine = cells[cells["shots"] == shots]
        edges = sweep_frames.border(mine, SMALL_LOSS)
        chart = sweep_charts.grid_map(sweep_frames.spread(mine), edges, SMALL_LOSS)
        yield f"Heads and FFNs, {shots_in_words(shots)}", sweep_frames.grid_in_words(mine, SMALL_LOSS), chart
    frame = sweep_frames.transfer(curves.get("transfer", ()), curves.get("heads", ()))
    if len(frame):
        level = curves["transfer"][0].point.heads_permille / 1000
        yield "Transfer", sweep_frames.transfer_in_words(frame, level), sweep_charts.transfer_map(frame)
    for title, name in (("Unseen tasks", "others"), ("Scored anew", "rescored")):
        if rows := curves.get(name, ()):
            judged = {row.point.task for row in rows}
            own = [row for row in curves.get("heads", ()) if row.point.task in judged]
            frame = sweep_frames.lines([*own, *rows])
            for shots in sorted(frame["shots"].unique()):
                mine = frame[frame["shots"] == shots]
                yield f"{title}, {shots_in_words(shots)}", sweep_frames.lines_in_words(mine), sweep_charts.lines(mine)


def page(study: Study, drawn: list[str]) -> str:
    """The report as HTML."""
    receipt, setting = study.receipt, study.setting
    found = "".join(
        f'<tr><td>{html.escape(each.text)}</td><td>{html.escape(each.ours)}</td>'
        f'<td class="{each.verdict.replace(" ", "-")}">{MARKS[each.verdict]}</td></tr>' for each in study.statements
    )  # fmt: skip
    tasks = ", ".join(dict.fromkeys(task.name for task in study.tasks))
    curves = {
        noun: (study.curves.get(axis, Swept()).rows, axis) for axis, noun in (("heads", "Heads"), ("ffns", "FFNs"))
    }
    breaks = [f"<h3>{noun}</h3>{_table(sweep_frames.break_table(break_points(*of)))}" for noun, of in curves.items()]
    failed = "".join(f"<li>{html.escape(f'{task.name}, {task.shots} shots: {reason}')}</li>"
                     for task, reason in study.failed.items())  # fmt: skip
    judged = f"the first {setting.n_questions}" if setting.n_questions else "all"
    ranked = setting.n_ranking or "all"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{html.escape(receipt["name"])}: how much can go</title><style>{STYLE}</style></head><body>
<h1>How much of {html.escape(receipt["name"])} can go</h1>
<p>Precision {receipt["precision"]}, made {receipt["made_at"]}. Accuracy on {judged} validation questions of each task
in a stratified order; rankings from {ranked} training questions. Tasks: {html.escape(tasks)}.</p>
<h2>The paper's statements, and this model</h2>
<p>Bansal et al. 2022 (arXiv 2212.09095), on OPT-66B. Points are those of the mean over tasks.</p>
<table><tr><th>Statement</th><th>Here</th><th></th></tr>{found}</table>
{f"<h2>Not measured</h2><ul>{failed}</ul>" if failed else ""}
<h2>Figures</h2>
{"".join(drawn)}
<h2>Break points</h2>
<p>level: the largest that is not significantly below the full model (exact McNemar, 5 %, the same questions);
first_loss: the smallest that is; inflection: where the curve bends down most.</p>
{"".join(breaks)}
<h2>Receipt</h2>
<pre>{html.escape(json.dumps(receipt, indent=2, default=str))}</pre>
</body></html>
"""


def _table(frame: pd.DataFrame) -> str:
    return frame.to_html(index=False, float_format="{:.3f}".format, na_rep="–", border=0)
