"""What stands below the first charts of the Training screen. Each part draws itself and gives pictures and tables for the
files; what is folded away is neither computed nor drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from engine.training.phase_change import joint_components
from pages.ui.shared.charts import Picture
from pages.ui.shared.colours import theme_of
from pages.ui.shared.drawing import draw_chart
from pages.ui.shared.exports import Drawn, Table
from pages.ui.training import charts, paths, tables
from pages.ui.training.charts import Look, joined
from pages.ui.training.runs import Shown

IN_A_ROW, FILE_PX = 4, 380
Found = tuple[dict[str, Drawn], dict[str, Table]]
HEADS_HELP = {
    "prefix_matching": "Attention to what followed an earlier copy of the token, on repeated random tokens. Induction "
    "heads have most of it. A line a head.",
    "previous_token": "Attention to the token just before, in a story. Heads that have most of it, in an earlier layer, "
    "are what induction heads read from. A line a head.",
}


@dataclass(frozen=True)
class View:
    """What all parts draw: the runs with a colour each, in frames over training, and how: on screen, and in a file."""

    runs: tuple[Shown, ...]
    every: pd.DataFrame
    windows: pd.DataFrame
    look: Look
    still: Look

    @classmethod
    def of(cls, runs: Sequence[Shown], log: bool, moment: float) -> "View":
        """The view of these runs at a moment."""
        looks = charts.look_of(runs, log), charts.look_of(runs, log, moment)
        return cls(tuple(runs), tables.over_training(runs), tables.windows(runs), *looks)


Panel = Callable[[Shown, Look], Picture]


def row(view: View, key: str, words: str, panel: Panel, named: bool = True) -> dict[str, Drawn]:
    """Draws a panel a run, side by side, and gives them as one picture for a file."""
    for first in range(0, len(view.runs), IN_A_ROW):
        part = view.runs[first : first + IN_A_ROW]
        for run, at in zip(part, st.columns(min(len(view.runs), IN_A_ROW), gap="small"), strict=False):
            with at:
                if named:
                    name_run(view, run)
                draw_chart(panel(run, view.look), f"training {key} {run.name}", f"{words} of {run.label}.")
    return {words: partial(_in_file, view, panel)}


def name_run(view: View, run: Shown) -> None:
    """Draws the name of a run with its colour in the charts."""
    theme = theme_of(st.context.theme.type or "light")["chartCategoricalColors"]
    colour = theme[view.runs.index(run) % len(theme)]
    st.html(f'<p class="run" style="border-left: 0.3rem solid {colour}">{escape(run.label)}</p>')


def _in_file(view: View, panel: Panel) -> Picture:
    panels = [panel(run, view.still) for run in view.runs]
    return joined(panels, min(len(panels), 3), FILE_PX, [run.label for run in view.runs])


def score_panel(view: View, run: Shown, look: Look) -> Picture:
    """The in-context score of one run."""
    return charts.run_panel(view.every, view.windows, run.label, look)


def heads_panel(view: View, score: str, run: Shown, look: Look) -> Picture:
    """One score of all heads of one run."""
    scores = tables.head_scores(run, score)
    return charts.heads_panel(scores, view.windows, run.label, look, score, run.shape[0])


def first_charts(view: View) -> Found:
    """In-context score and prefix matching, a column a run: that they come together is what the screen is about."""
    pictures = row(view, "score", "In-context score", partial(score_panel, view))
    words, panel = "Prefix matching of every head", partial(heads_panel, view, "prefix_matching")
    pictures |= row(view, "prefix", words, panel, named=False)
    return pictures, {"Over training": view.every}


def more_heads(view: View) -> Found:
    """Previous-token heads."""
    st.subheader("Previous-token heads", help=HEADS_HELP["previous_token"])
    words = "Previous-token score of every head"
    return row(view, "previous", words, partial(heads_panel, view, "previous_token")), {}


def losses(view: View) -> Found:
    """Loss, and what each doubling of the tokens gains, of all runs together."""
    pictures: dict[str, Drawn] = {}
    titles = (("loss", "Loss", "Loss, nats a token", "Of held-out text. In the window the curve is not convex."),
              ("gain_rate", "What more training gains", "d loss / d ln(tokens), nats",
               "The slope of the loss by the logarithm of the tokens: the lower, the faster a run learns then. Which run "
               "learns fastest changes at the phase change."))  # fmt: skip
    for (column, title, axis, help), at in zip(titles, st.columns(2, gap="medium"), strict=True):
        with at:
            st.subheader(title, help=help)
            draw_chart(charts.curves(view.every, view.windows, view.look, column, axis), f"training {column}", f"{title} of each run.")
        pictures[title] = partial(charts.curves, view.every, view.windows, view.still, column, axis)
    return pictures, {}


def index_maps(view: View) -> Found:
    """Where in the text the loss falls, over training."""
    help = (
        "d loss / d ln(index): how much the loss falls from token to token along a text. Blue: it falls, later tokens are "
        "predicted better. Before the phase change only early tokens have any of it. Colours stop at ±0.3 nats."
    )
    st.subheader("Where along a text the loss falls", help=help)
    frames = {run.name: tables.slopes(run) for run in view.runs}

    def panel(run: Shown, look: Look) -> Picture:
        return charts.heat_panel(frames[run.name], view.windows, run.label, look)

    pictures = row(view, "slopes", "d loss by d ln(index) over training", panel)
    return pictures, {"Slopes by index": pd.concat(frames.values(), ignore_index=True)}


def found_paths(runs: Sequence[Shown]) -> list[np.ndarray]:
    """The runs' paths on their two joint components."""
    return joint_components([run.trajectory for run in runs])


def draw_paths(view: View, frame: pd.DataFrame) -> Found:
    """The path of each run on the same two axes."""

    def panel(run: Shown, look: Look) -> Picture:
        return paths.path_panel(frame, run.label, look)

    return row(view, "path", "Paths on two components", panel), {"Paths": frame}


def carriers(view: View) -> Found:
    """Which heads carry the change: ablations along the before-and-after vector, and of the in-context score."""
    help = (
        "Each head is ablated, its attention pattern and those of the heads behind it kept, at some snapshots. Left: the "
        "change in the losses along the before-and-after vector, the losses at the window's end minus those at its start, "
        "made unit length: below 0, the ablation undoes what the window brought. Right: above 0, the in-context score is "
        "lost without the head. Named by the end of the run: previous token or induction, where that score is over "
        f"{tables.IS_ONE}. The bars are at the measured snapshot nearest to the marker."
    )
    st.subheader("Which heads carry the change", help=help)
    frames = {run.name: tables.ablations(run) for run in view.runs}
    ablated = tuple(run for run in view.runs if len(frames[run.name]))
    if not ablated:
        st.caption("In none of these runs were heads ablated.")
        return {}, {}
    pictures: dict[str, Drawn] = {}
    for what, title in (("along", "Ablations along before-and-after"), ("score", "Ablations and the in-context score")):
        of = tuple(run for run in ablated if frames[run.name][what].notna().any())
        if not of:
            continue

        def panel(run: Shown, look: Look, what: str = what) -> Picture:
            return paths.bars(frames[run.name], look, what)

        def over(run: Shown, look: Look, what: str = what) -> Picture:
            return charts.ablation_panel(frames[run.name], view.windows, run.label, look, what)

        here = View(of, view.every, view.windows, view.look, view.still)
        pictures |= row(here, f"bars {what}", title, panel)
        pictures |= row(here, f"over {what}", f"{title}, over training", over, named=False)
    return pictures, {"Ablations": pd.concat(frames.values(), ignore_index=True)}


def unfolded(label: str, key: str, icon: str) -> Any:
    """A part that is folded away at first."""
    return st.expander(label, key=f"training_{key}", on_change="rerun", icon=f":material/{icon}:")
