"""A study as a folder that stands alone: every figure as SVG and PNG, and one HTML report that needs no network."""

import base64
import html
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from engine.errors import HeadroomError
from engine.statistics import Statement
from engine.studies.statements import break_points, statements
from engine.studies.study import PaperStudy
from engine.studies.surveys import in_words, shots_in_words, together
from engine.studies.sweeps import SweepRow, Swept
from engine.views.colors import NO, QUIET, YES, light_theme
from engine.views.pictures import Picture, rasterised, to_svg
from pages.ui.correlations.charts import MEASURES, matrix
from pages.ui.correlations.tables import between_tasks, cells, labelled, names_in_order, takeaway
from pages.ui.figures import study_charts, study_tables
from pages.ui.figures.transfer import transfer_in_words, transfer_map, transfer_rows
from pages.ui.importance.charts import aggregate_map, ffn_map
from pages.ui.importance.tables import aggregate_rows, ffn_mean, ffn_rows, ffns_in_words, heads_in_words
from pages.ui.page.defaults import NOUNS
from pages.ui.page.tables import number, typeset

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
            (Path(folder) / "figures" / f"{name}.png").write_bytes(rasterised(drawing))
            # an image, not inline: drawings on one page would share the names of their clip paths
            source = f"data:image/svg+xml;base64,{base64.b64encode(drawing).decode()}"
            words = html.escape(caption.replace("**", ""))
            parts.append(f'<figure><img src="{source}" alt="{words}"><figcaption>{words}</figcaption></figure>')
        (Path(folder) / "report.html").write_bytes(page(study, parts).encode())
    except OSError as error:
        line = f"cannot write the report into {folder} ({error.strerror}); choose another --out"
        raise HeadroomError(line) from error


def figures(study: PaperStudy) -> Iterator[tuple[str, str, Picture]]:
    """Yields (title, caption, picture) of every figure that has something to show."""
    yield from _importance(study)
    yield from _correlations(study)
    yield from _sweeps({name: swept.rows for name, swept in study.curves.items()})


def _importance(study: PaperStudy) -> Iterator[tuple[str, str, Picture]]:
    if scores := study.heads.scores:
        rows = aggregate_rows(scores, together(study.setting, scores))
        words = heads_in_words(rows, len(scores))
        yield "Head importance", words, aggregate_map(rows, "Importance", len(scores))
    if study.ffns.scores:
        rows, mean = ffn_rows(study.ffns.scores), ffn_mean(study.setting, study.ffns.scores)
        yield "FFN importance", ffns_in_words(rows), ffn_map(rows, mean)


def _correlations(study: PaperStudy) -> Iterator[tuple[str, str, Picture]]:
    pairs = labelled(study.correlations)
    pairs = between_tasks(pairs) if len(pairs) else pairs
    for shots in study.shots if len(pairs) else ():
        of_tasks = pairs[pairs["kind"].eq("tasks") & pairs["shots_a"].eq(shots)]
        if of_tasks.empty:
            continue
        n_heads, names = next(iter(study.heads.scores.values())).scores.size, names_in_order(of_tasks, "similarity")
        drawn = matrix(cells(of_tasks, "srcc", names), names, (), MEASURES["srcc"])
        words = takeaway(of_tasks, "srcc", n_heads)
        yield f"Correlations of head importance, {shots_in_words(shots)}", words, drawn


def _sweeps(rows: Mapping[str, Sequence[SweepRow]]) -> Iterator[tuple[str, str, Picture]]:
    own = rows.get("heads", ())
    for axis, noun in NOUNS.items():
        frame = study_tables.curves(rows.get(axis, ()), rows.get("random", ()) if axis == "heads" else (), axis)
        for shots, mine in study_tables.by_shots(frame):
            words = study_tables.curves_in_words(mine, noun)
            yield f"Pruned {noun}, {shots_in_words(shots)}", words, study_charts.curves(mine, axis)
    for shots, mine in study_tables.by_shots(study_tables.grid(rows.get("combined", ()))):
        drawn = study_charts.grid_map(study_tables.spread(mine), study_tables.border(mine))
        yield f"Heads and FFNs, {shots_in_words(shots)}", study_tables.grid_in_words(mine), drawn
    frame = transfer_rows(rows.get("transfer", ()), own)
    if len(frame):
        level = rows["transfer"][0].point.heads_permille / 1000
        yield "Transfer", transfer_in_words(frame, level), transfer_map(frame)
    for title, name in (("Unseen tasks", "others"), ("Rescored after each step", "rescored")):
        if measured := rows.get(name, ()):
            judged = {row.point.task for row in measured}
            frame = study_tables.lines([*(row for row in own if row.point.task in judged), *measured])
            for shots, mine in study_tables.by_shots(frame):
                yield f"{title}, {shots_in_words(shots)}", study_tables.lines_in_words(mine), study_charts.lines(mine)


def page(study: PaperStudy, drawn: list[str]) -> str:
    """Returns the report as HTML."""
    receipt, setting, theme = study.receipt, study.setting, light_theme()
    colours = {"text": theme["textColor"], "line": theme["borderColor"], "box": theme["secondaryBackgroundColor"]}
    colours |= {"quiet": QUIET, "yes": YES, "no": NO}
    root = " ".join(f"--{name}: {colour};" for name, colour in colours.items())
    found = "".join(map(_statement, statements(study)))
    tasks = ", ".join(dict.fromkeys(task.name for task in study.tasks))
    breaks = [_break_points(study, axis, noun) for axis, noun in (("heads", "Heads"), ("ffns", "FFNs"))]
    within = f"{Path(setting.data_dir).expanduser()}{os.sep}" if setting.data_dir else ""
    reasons = [f"{in_words(task)}: {reason.replace(within, '')}" for task, reason in study.failed.items()]
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
<p>Bansal et al. 2022 (arXiv 2212.09095), on OPT-66B. Points are those of the mean over tasks.</p>
<table><tr><th>Statement</th><th>Here</th><th></th></tr>{found}</table>
{f"<h2>Not measured</h2><ul>{failed}</ul>" if failed else ""}
<h2>Figures</h2>
{"".join(drawn)}
<h2>Break points</h2>
<p>first_detectable_loss: the smallest level that is significantly below the full model (exact McNemar on the same
questions, 5% for all levels together by Holm); no_loss_up_to: the measured level before it; cliff_from, cliff_to and
cliff_points: the neighboring levels between which accuracy falls most, and by how much; detects_points: the loss at one
level that these questions detect 80% of the time. At chance: the full model's 95% interval contains the accuracy of
guessing.</p>
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


def _break_points(study: PaperStudy, axis: str, noun: str) -> str:
    frame = study_tables.break_table(break_points(study.curves.get(axis, Swept()).rows, axis))
    drawn = frame.to_html(index=False, float_format=partial(number, digits=3), na_rep="–", border=0)
    return f"<h3>{noun}</h3>{drawn}"
