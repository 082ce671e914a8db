"""The parts of the Training screen. Each draws itself; what is folded away is neither computed nor drawn."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from engine.training.phase_change import joint_components
from engine.views.colors import theme_of
from engine.views.pictures import Picture
from pages.ui.figures.drawing import draw_chart
from pages.ui.figures.sheet import Sheet
from pages.ui.page.presentation import presenting
from pages.ui.page.tables import plain
from pages.ui.page.work import Action, Work
from pages.ui.training import charts, loss_charts, paths, tables
from pages.ui.training.charts import BARE_PX, NARROW_PLOT_PX, PLOT_PX, SHARED_AXIS_PX, TokenAxis, joined
from pages.ui.training.runs import DrawnRun
from pages.ui.training.slider import IN_A_ROW

FILE_PX = 380
SLOPES = "d loss by d ln(index) over training"
SLIDE_PX = 100  # of a bare chart on a slide, where type is larger
NAME = ("margin: 0; padding-left: 0.5rem; border-left: 0.3rem solid; font-size: 0.82rem; white-space: nowrap; "
        "overflow: hidden; text-overflow: ellipsis;")  # fmt: skip
GAIN_HELP = (
    "The loss of an early token of a text minus that of a late one, on held-out text: minus the in-context score of "
    "Olsson et al. The thick line is the run, the thin ones are the others in their colors. The shaded window is the "
    "phase change: the steepest lasting rise of this gain. Dashed: where rows of repeated random tokens end, or the "
    "run."
)
SLOPES_HELP = (
    "d loss / d ln(index): how much the loss falls from token to token along a text. Blue: it falls, later tokens "
    "are predicted better. Before the phase change only early tokens have any of it. Colors stop at ±0.3 nats."
)
HEADS_HELP = {
    "prefix_matching": "Attention to what followed an earlier copy of the token, on repeated random tokens. Induction "
    "heads have most of it. A line a head.",
    "previous_token": "Attention to the token just before, in a story. Heads that have most of it, in an earlier "
    "layer, are what induction heads read from. A line a head.",
}
PATHS_HELP = (
    "Each snapshot is a vector: the loss of one fixed random token of each held-out text. Principal components of all "
    "snapshots of all these runs together, columns centred, not scaled; each run drawn on the same axes. The thick "
    "stretch from A to B is the window: there the path turns."
)


@dataclass(frozen=True)
class TrainingFrames:
    """The data of all sections: the runs with their colors, as frames over training, and the axes."""

    runs: tuple[DrawnRun, ...]
    every: pd.DataFrame
    windows: pd.DataFrame
    look: TokenAxis
    still: TokenAxis

    @property
    def names(self) -> list[str]:
        """Returns the runs that have a color, in order: a section may draw fewer."""
        return list(dict.fromkeys(self.every["run"]))

    @classmethod
    def of(cls, runs: Sequence[DrawnRun], log: bool, moment: float) -> "TrainingFrames":
        """Returns the frames of these runs at a moment."""
        looks = charts.look_of(runs, log), charts.look_of(runs, log, moment)
        return cls(tuple(runs), tables.over_training(runs), tables.windows(runs), *looks)


Panel = Callable[[DrawnRun, TokenAxis], Picture]


def row(view: TrainingFrames, key: str, words: str, panel: Panel, sheet: Sheet, named: bool = True) -> None:
    """Draws a panel a run, side by side; in a file they are one picture."""
    for first in range(0, len(view.runs), IN_A_ROW):
        part = view.runs[first : first + IN_A_ROW]
        for run, at in zip(part, st.columns(min(len(view.runs), IN_A_ROW), gap="small"), strict=False):
            with at:
                if named:
                    name_run(view, run)
                draw_chart(panel(run, view.look), f"training {key} {run.name}", f"{words} of {run.label}.")
    sheet.pictures[words] = partial(_in_file, view, panel)


def name_run(view: TrainingFrames, run: DrawnRun) -> None:
    """Draws the name of a run with its colour in the charts."""
    theme = theme_of(st.context.theme.type or "light")["chartCategoricalColors"]
    colour = theme[view.names.index(run.label) % len(theme)]
    st.html(f'<p style="{NAME} border-left-color: {colour}" title="{escape(run.about)}">{escape(run.label)}</p>')


def _in_file(view: TrainingFrames, panel: Panel) -> Picture:
    panels = [panel(run, view.still) for run in view.runs]
    return joined(panels, min(len(panels), 3), FILE_PX, [run.label for run in view.runs])


def gain_panel(view: TrainingFrames, run: DrawnRun, look: TokenAxis, **form: Any) -> Picture:
    """Returns the in-context gain of one run; `form` as for `charts.run_panel`."""
    return charts.run_panel(view.every, view.windows, run.label, look, **form)


def heads_panel(view: TrainingFrames, score: str, run: DrawnRun, look: TokenAxis, **form: Any) -> Picture:
    """Returns one score of all heads of one run; `form` as for `charts.heads_panel`."""
    scores = tables.head_scores(run, score)
    return charts.heads_panel(scores, view.windows, run.label, look, score, run.shape[0], **form)


def slopes_panel(view: TrainingFrames, run: DrawnRun, look: TokenAxis) -> Picture:
    """Returns the slope of the loss along a text of one run."""
    return loss_charts.heat_panel(tables.slopes(run), view.windows, run.label, look)


def first_charts(view: TrainingFrames, sheet: Sheet) -> None:
    """Draws in-context gain and prefix matching, a column per run on one axis of tokens: the screen's point is that
    they change together."""
    is_named = len(view.runs) > IN_A_ROW  # else the slider has the names, in the same columns
    form = {"bare_px": SLIDE_PX if presenting() else BARE_PX}
    rows = (
        ("gain", "**In-context gain**, nats: above 0, late tokens are predicted better (thin: the other runs)",
         "In-context gain", GAIN_HELP,
         partial(gain_panel, view, **form, plot_px=PLOT_PX if len(view.runs) <= 3 else NARROW_PLOT_PX)),
        ("prefix", "**Prefix matching**, a line per head: attention to what followed an earlier copy",
         "Prefix matching of every head", HEADS_HELP["prefix_matching"],
         partial(heads_panel, view, "prefix_matching", **form | {"axis_px": SHARED_AXIS_PX})),
    )  # fmt: skip
    for key, title, words, help, panel in rows:
        with st.container(gap="xxsmall"):
            st.markdown(title, help=help)
            row(view, key, words, panel, sheet, named=is_named)
    sheet.pictures |= {
        "In-context gain": partial(_in_file, view, partial(gain_panel, view, plot_px=FILE_PX)),
        "Prefix matching of every head": partial(_in_file, view, partial(heads_panel, view, "prefix_matching")),
        SLOPES: partial(_in_file, view, partial(slopes_panel, view)),
    }
    sheet.tables["Slopes by index"] = pd.concat([tables.slopes(run) for run in view.runs], ignore_index=True)


def slopes(view: TrainingFrames, sheet: Sheet) -> None:
    """Draws the slope of the loss along a text."""
    st.caption("Blue: the loss falls along the text there. Orange: it rises.", help=SLOPES_HELP)
    row(view, "slopes", SLOPES, partial(slopes_panel, view), sheet)


def more_heads(view: TrainingFrames, sheet: Sheet) -> None:
    """Draws previous-token heads."""
    st.caption("Attention of each head to the token just before.", help=HEADS_HELP["previous_token"])
    words = "Previous-token score of every head"
    row(view, "previous", words, partial(heads_panel, view, "previous_token"), sheet)


def losses(view: TrainingFrames, sheet: Sheet) -> None:
    """Draws the loss, and the gain of each doubling of the tokens, of all runs together."""
    titles = (("loss", "Loss", "Loss, nats a token", "Of held-out text. In the window the curve is not convex."),
              ("gain_rate", "What more training gains", "d loss / d ln(tokens), nats",
               "The slope of the loss by the logarithm of the tokens: the lower, the faster a run learns then. Which "
               "run learns fastest changes at the phase change."))  # fmt: skip
    for (column, title, axis, help), at in zip(titles, st.columns(2, gap="medium"), strict=True):
        with at:
            st.markdown(f"**{title}**", help=help)
            draw_chart(
                loss_charts.curves(view.every, view.windows, view.look, column, axis),
                f"training {column}",
                f"{title} of each run.",
            )
        sheet.pictures[title] = partial(loss_charts.curves, view.every, view.windows, view.still, column, axis)


def path_work(runs: Sequence[DrawnRun]) -> Work[list[np.ndarray]]:
    """Returns the work that finds the runs' paths on two joint components; scikit-learn imports in a second."""
    of = hashlib.sha256(b"".join(run.trajectory.token_losses.tobytes() for run in runs)).hexdigest()
    action = Action.of(of, partial(joint_components, [run.trajectory for run in runs]))
    return Work("training paths", "Principal components", action, 2)


def alike(runs: Sequence[DrawnRun]) -> tuple[DrawnRun, ...]:
    """Returns the runs whose losses are of the same tokens as the first's: only those have joint components."""

    def of(run: DrawnRun) -> Any:
        return run.trajectory.about.get("text_digest"), run.trajectory.token_losses.shape[1]

    measured = [run for run in runs if run.trajectory.token_losses.size]
    return tuple(run for run in measured if of(run) == of(measured[0]))


def draw_paths(view: TrainingFrames, sheet: Sheet) -> None:
    """Draws the path of each run on the same two axes."""
    of = alike(view.runs)
    found = path_work(of).awaited() if of else None
    if found is None:
        return
    st.caption("Where the losses of each run go, on two axes. From A to B: the phase change.", help=PATHS_HELP)
    frame = tables.paths(of, found)

    def panel(run: DrawnRun, look: TokenAxis) -> Picture:
        return paths.path_panel(frame, run.label, look)

    if left_out := [run.label for run in view.runs if run not in of]:
        st.caption(plain(f"Not drawn, as other tokens were measured: {'; '.join(left_out)}."))
    here = replace(view, runs=tuple(of), every=view.every)
    row(here, "path", "Paths on two components", panel, sheet)
    sheet.tables["Paths"] = frame


def carriers(view: TrainingFrames, sheet: Sheet) -> None:
    """Draws which heads carry the change: ablations along the before-and-after vector, and on the in-context gain."""
    help = (
        "Each head is ablated, its attention pattern and those of the heads after it kept, at some snapshots. First: "
        "the change in the losses along the before-and-after vector, the losses at the window's end minus those at its "
        "start, made unit length: below 0, the ablation undoes what the window brought. Then: below 0, in-context gain "
        "is lost without the head. Named by the end of the run: previous token or induction, where that score is "
        f"over {tables.IS_ONE}. The bars are at the measured snapshot nearest to the marker."
    )
    st.caption("The effect of ablating each head: on the change in the window, and on the gain.", help=help)
    frames = {run.name: tables.ablations(run) for run in view.runs}
    ablated = tuple(run for run in view.runs if len(frames[run.name]))
    if not ablated:
        st.caption("In none of these runs were heads ablated.")
        return
    for what, title in (("along", "Ablations along before-and-after"), ("gain", "Ablations and the in-context gain")):
        of = tuple(run for run in ablated if frames[run.name][what].notna().any())
        if not of:
            continue

        def panel(run: DrawnRun, look: TokenAxis, what: str = what) -> Picture:
            return paths.bars(frames[run.name], look, what)

        def over(run: DrawnRun, look: TokenAxis, what: str = what) -> Picture:
            return charts.ablation_panel(frames[run.name], view.windows, run.label, look, what)

        here = TrainingFrames(of, view.every, view.windows, view.look, view.still)
        row(here, f"bars {what}", title, panel, sheet)
        row(here, f"over {what}", f"{title}, over training", over, sheet, named=False)
    sheet.tables["Ablations"] = pd.concat(frames.values(), ignore_index=True).drop(columns="gain")
