"""The In context screen's controls, all in the address, its large figures, and the heads as maps and a table."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from engine.heads.ablation import FILLS, KINDS
from engine.heads.induction import InductionScores
from engine.importance.rules import Evidence
from engine.questions.requests import TaskSpec
from engine.texts.incontext import EARLY, LATE, MIN_TOKENS, MeanOverTexts, icl_change, icl_score
from engine.texts.passages import MAX_TEXTS, N_TEXTS, Source
from pages.ui.controls.carried import count_named
from pages.ui.controls.controls import Levels, beside_level, choose_ranking, one_of, settings_menu, type_mask, with_own
from pages.ui.controls.drag_slider import draw_field, draw_slider
from pages.ui.controls.heads import open_heads
from pages.ui.controls.many_tasks import local_tasks
from pages.ui.controls.task_box import task_box
from pages.ui.controls.texts import choose_text
from pages.ui.figures.drawing import change_look, draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.in_context import charts, tables
from pages.ui.in_context.first_view import AROUND, HEADS, ORDER, SEEN, first_choices
from pages.ui.in_context.setting import Losses, LossesSoFar
from pages.ui.page.address import number_field, one_among, unseen_field
from pages.ui.page.defaults import AXES, AXIS_HELP, SHOTS, Axis
from pages.ui.page.marks import mark
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import number
from pages.ui.page.widget_writes import write

SOURCES = {"text": "A long text", "task": "Solved questions"}
TEXT = "A letter without a name"  # of addresses that name no text; the first view has another
SCORED_FROM = {0: "exact", 5: "± 5", 10: "± 10"}
FROM, SOLVED, RANKED = "incontext_from", "incontext_task", "incontext_ranked_on"  # query parameters
SHORT_WINDOW = (
    "This model reads {} tokens at once, so late tokens are predicted from the last of these alone, in windows that "
    "overlap by half. It is not the score as it is defined, and a model with a longer window would have another."
)
GAIN_HELP = (
    f"Loss at the {EARLY}th token minus loss at the {LATE}th (from 1, the beginning token not counted), averaged over "
    "the texts. Above 0: later tokens are predicted better. The in-context score of Olsson et al., of commands and of "
    "files is the same with its sign reversed. The interval is Student's over texts, 95%; that of the change is "
    "paired, on the same texts."
)
CURVE_HELP = (
    f"Mean over texts, in bins that are even in ln(index); from {charts.BAND_TEXTS} texts on the band is its 95% "
    "interval. The gain is the drop between the two large points, which average the tokens that it counts."
)
SLOPE_HELP = (
    "d loss / d ln(index): differences between neighboring bins that are even in ln(index), with 95% intervals over "
    f"texts, from {charts.BAND_TEXTS} texts on. 0 = later tokens are no easier."
)
FILL_HELP = "`zero`: nothing, like a pruned head. `mean`: its mean over these texts, an output that later layers know."
SOURCE_HELP = (
    f"A long text: cut into windows of {MIN_TOKENS} tokens. Solved questions: those of a task (train split), one after "
    f"the other until there are {MIN_TOKENS} tokens, in a new order for each text. The embedded model learned only "
    "their answers, so its loss rises along them."
)
SOLVED_HELP = (
    "The task of the solved questions and of orders by importance (measured on its train questions, with "
    f"{SHOTS} shots)."
)
RANKED_HELP = f"The pruning order is measured on this task's train questions, with {SHOTS} shots."
AROUND_HELP = (
    f"`exact`: loss at the {LATE}th and the {EARLY}th token alone, as defined. That is noisy: with ± 10 the ten tokens "
    "before and after each are averaged in, and the interval is much narrower."
)
KIND_HELP = (
    "`full`: the head gives nothing (z = 0) and everything after it is computed again, as in pruning. "
    "`pattern-preserving`: the same, but every attention pattern stays as it was, so later heads look where they "
    "looked and only find something else there. For the sentence, the map, the chart, and the table."
)
AWAITED = "Measured now: how much better late tokens are predicted than early ones."
HEADS_SHOW = "You will see the gain lost without each head alone, as a map, and whether these are induction heads."
ABLATE_FIRST = "Needs the ablated heads: measure them above."
N_TOP = 8  # heads in the table
MAPS = (*KINDS, "before_and_after")
COLORS = "Orange: gain is lost without the head. Blue: more is gained. Gray: not clear. "
OTHERS = "Other measures of these heads"
WHICH_HELP = (
    "Each head of the full model is ablated alone, and the gain measured again on the same texts: gain with the head "
    "minus gain without it, in nats. Clearly: the 95% interval is above 0, and the loss at least a tenth of the "
    "largest. Full: all that follows is computed again. Pattern-preserving: later heads look where they looked; a head "
    "*steers* them if without it nothing is then clearly lost. Before-and-after vector: how much leaving out the head "
    "alone changes losses as this pruning does (orange), or the opposite (blue)."
)


@dataclass(frozen=True)
class Controls:
    """The settings of the controls above the figures; `source` is None without a text."""

    source: Source | None
    around: int
    levels: Levels
    kind: str  # of ablation that is shown in detail
    fill: str  # output of an ablated head
    badge_at: DeltaGenerator  # container of the badge with the pruned heads

    @property
    def is_first(self) -> bool:
        """Whether the pruning is that of the first view, which other screens do not share."""
        levels = self.levels
        is_bare = not levels.typed and not levels.ffns_permille
        return is_bare and (levels.ranking, levels.heads_permille) == (ORDER, 10 * HEADS)


def choose(data_dir: str | None, is_demo: bool) -> Controls:
    """Draws the source of texts, the settings of the score, and sliders of what is pruned."""
    at, text_at, more_at = st.container(key="wraps source").columns([5, 8, 3], vertical_alignment="bottom")
    pruning_at = st.container(key="wraps pruning")
    for key, value in first_choices({*st.query_params}, {str(key) for key in st.session_state}, is_demo).items():
        write(key, value)
        st.query_params[key] = str(value)  # an address with some of them alone would mean the defaults of the others
    unseen_field("First view", SEEN, one_among(["seen"]))
    kind = one_of(at, "Texts", SOURCES, FROM, SOURCE_HELP)
    heads_at, order_at = pruning_at.columns([8, 3], gap="medium")
    task_at, more_at = text_at.container(), settings_menu(more_at, "incontext")
    places: dict[Axis, DeltaGenerator] = {"heads": heads_at, "ffns": more_at}
    fields = {axis: draw_field(at, f"incontext_{axis}", AXES[axis]) for axis, at in places.items()}
    typed, (heads, ffns) = type_mask("incontext_mask", more_at), (10 * each.percent for each in fields.values())
    for axis, field in fields.items():
        draw_slider(field, AXIS_HELP[axis], more=beside_level(typed, count_named("incontext", typed)))
    ranking = choose_ranking("incontext_order", order_at)
    name = _choose_task(task_at, kind, data_dir, {*Evidence().missing(ranking, heads > 0, ffns > 0)})
    more = {"help": "More texts, narrower intervals. A long text may have fewer pieces."}
    n_texts = number_field(more_at, "Most texts", (1, MAX_TEXTS), "incontext_texts", value=N_TEXTS, step=12, **more)
    around = one_of(more_at, "Gain from", SCORED_FROM, "incontext_around", AROUND_HELP, default=AROUND)
    fills, kinds = ({each: each for each in names} for names in (FILLS, KINDS))
    fill = one_of(more_at, "An ablated head gives", fills, "incontext_fill", FILL_HELP, default="zero")
    detail = one_of(more_at, "Ablation in detail", kinds, "incontext_kind", KIND_HELP, default="full")
    source = Source("task", name, n_texts=int(n_texts))
    if kind == "text":
        text = choose_text("incontext", text_at, default=TEXT, long=True)
        of = "passage" if text is not None and text.passage else "text"
        source = Source(of, text.name, "" if text.passage else text.text, int(n_texts)) if text is not None else None
    levels = Levels(TaskSpec(name, SHOTS), ranking, heads, ffns, typed)
    return Controls(source, around, levels, detail, fill, st.container(key="incontext_badge"))


def _choose_task(where: DeltaGenerator, kind: str, data_dir: str | None, missing: set[str]) -> str:
    """Draws the choice of a task if it has an effect: the texts are its questions, or its importance is `missing` for
    the order. Each has its own query parameter, so that a task in an address shows which of them is meant."""
    key, help = (SOLVED, SOLVED_HELP) if kind == "task" else (RANKED, RANKED_HELP)
    names = local_tasks(data_dir)
    if kind != "task" and not missing & {"heads", "ffns"}:
        return with_own(names, key)[0]
    return task_box(where, "Task", names, key, help=help, width=220)


def figures(found: LossesSoFar, around: int, n_texts: int) -> None:
    """Draws the gain with what is pruned as a large figure, that of the full model on the same texts, and what it
    means; that of the full model alone if nothing is pruned. One that means little is gray."""
    full, pruned = (tables.gain(icl_score(each, around)) if each else None for each in (found.full, found.pruned))
    is_full = found.mask is not None and found.mask.is_full
    title, shown = ("In-context gain", full) if is_full else ("Gain with pruning", pruned)
    st.markdown(f"**{title}**, nats", help=GAIN_HELP)
    is_sure = shown is not None and shown.n == n_texts and tables.is_clear(shown)
    with st.container(key="incontext_gain" if is_sure else "unsure_gain"):
        look = {}
        if shown and full and not is_full:
            change = _change(found, around)
            look = change_look(change.value, tables.is_clear(change))
            look["delta"] = f"from {number(full.value, sign=True)} (full model)"
        st.metric(title, number(shown.value, sign=True) if shown else "–", label_visibility="collapsed", **look)
    st.markdown(tables.interval_in_words(shown) if shown else "Not measured yet.")
    if shown and not is_full:
        st.markdown(tables.mean_losses_in_words(*found.in_both))


def _change(found: LossesSoFar, around: int) -> MeanOverTexts:
    """Returns the change of the gain by pruning, paired, of the texts that both have read."""
    return tables.gain(icl_change(*found.in_both, around))


def finding(found: LossesSoFar, around: int, n_texts: int, known: InductionScores | None) -> str:
    """Returns the finding once both models have read all `n_texts` (the full one alone if nothing is pruned), else "".
    `known`: the induction scores, if they are measured."""
    if found.mask is None or len(found.full) < n_texts:
        return ""
    full = tables.gain(icl_score(found.full, around))
    if found.mask.is_full:
        return tables.finding(full, None, None, "")
    if not found.pruned:
        return ""
    pruned, what = tables.gain(icl_score(found.pruned, around)), tables.pruned_in_words(found.mask, known)
    return tables.finding(full, pruned, _change(found, around), what)


def draw_finding(where: DeltaGenerator, words: str) -> None:
    """Draws the finding, or until it is measured what it will be."""
    if words:
        where.markdown(words)
    else:
        where.caption(AWAITED)
        mark("finding", "reserved", where)


def loss_curve(found: LossesSoFar, around: int, sheet: Sheet) -> None:
    """Draws loss by index."""
    curve = tables.curves(_by_series(found))
    ends = f"{EARLY} to {LATE}" + (f" (± {around})" if around else "")
    st.markdown(f"**Loss by token index**: the gain is its drop from token {ends}", help=CURVE_HELP)
    drawn = charts.loss_curve(tables.with_ends(curve, _by_series(found), around))
    sheet.draw("Loss by index", drawn, "incontext_curve", tables.curve_in_words(curve))
    sheet.tables["Loss by index"] = tables.curves(_by_series(found), None).drop(columns=["first", "last"])


def loss_slope(found: LossesSoFar, sheet: Sheet) -> None:
    """Draws the slope of the loss."""
    sheet.tables["Slope"] = slope = tables.slopes(_by_series(found))
    st.markdown("**Below 0, the loss still falls**: later tokens are easier.", help=SLOPE_HELP)
    sheet.draw("Slope", charts.slope_chart(slope), "incontext_slope", tables.slope_in_words(slope))


def _by_series(found: LossesSoFar) -> dict[str, Losses]:
    is_pruned = found.mask is not None and not found.mask.is_full
    return {tables.FULL: found.full} | ({tables.PRUNED: found.pruned} if is_pruned else {})


def draw_heads(frame: pd.DataFrame, kind: str, n_texts: int, sheet: Sheet) -> None:
    """Draws which heads cause the gain: in a sentence and as a map."""
    sheet.tables["Heads"] = frame
    n = frame["n"].iloc[0]
    so_far = "" if n == n_texts else f" So far {n} of {n_texts} texts."
    st.markdown(tables.heads_in_words(frame) + so_far, help=WHICH_HELP)
    _draw_map(frame, kind, sheet, "Gain lost without each head")


def draw_scatter(frame: pd.DataFrame, kind: str, sheet: Sheet) -> None:
    """Draws the effect of each head by its prefix matching; folded, the heads that matter most and the other maps."""
    if "prefix_matching" in frame:
        title, words = "Attribution and prefix matching", tables.scatter_in_words(frame, kind)
        st.markdown("Induction heads are on the right.", help=words)
        sheet.draw(title, charts.attribution_scatter(frame, kind), "incontext_scatter", words)
    else:
        st.caption("Open the Induction screen once to add each head's prefix matching here.")
    with st.expander(OTHERS):
        _top_table(frame, kind)
        others = [column for column in MAPS if column in frame and column != kind]
        for column, at in zip(others, st.columns(2, gap="large"), strict=False):
            with at:
                _draw_map(frame, column, sheet)


def _draw_map(frame: pd.DataFrame, column: str, sheet: Sheet, of_full: str = "") -> None:
    """Draws one measure of all heads; both ablations have one scale. `of_full`: the title of full ablation."""
    reach = float(np.nanmax(np.abs(frame[[*KINDS] if column in KINDS else [column]].to_numpy()))) or 1.0
    title, words = charts.TITLES[column], tables.map_in_words(frame, column)
    st.markdown(f"**{of_full if of_full and column == 'full' else title}**", help=COLORS + words)
    drawn = charts.attribution_map(frame, column, reach)
    sheet.draw(title, drawn, f"incontext_map {column}", f"{title}. {words}")


def _top_table(frame: pd.DataFrame, kind: str) -> None:
    shown = frame.loc[frame[kind].abs().sort_values(ascending=False).index[:N_TOP]]
    signed = partial(number, sign=True)
    ends = zip(shown[f"{kind} low"], shown[f"{kind} high"], strict=True)
    shown = shown.assign(interval=[f"{signed(low)} to {signed(high)}" for low, high in ends])
    right = partial(st.column_config.TextColumn, alignment="right")
    titles: dict[str, Any] = {
        "name": "Head",
        kind: right("Gain lost, nats", help=f"Gain with the head minus gain without it, {kind} ablation."),
        "interval": right("95% interval", help="Student's, over texts."),
        "prefix_matching": right("Prefix matching", help="0 to 1."),
    }
    titles = {name: title for name, title in titles.items() if name in shown and shown[name].notna().any()}
    words = f"The heads without which most gain is lost, {kind} ablation"
    draw_table(shown, titles, words, formats={kind: signed, "prefix_matching": number}, height="content")
    open_heads(shown["name"].tolist())
