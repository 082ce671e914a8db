"""The In context screen's controls, all in the address, its large figures, and the heads as maps and a table."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from engine.heads.ablation import FILLS, KINDS
from engine.questions.requests import TaskSpec
from engine.texts.incontext import EARLY, LATE, MAX_TEXTS, MIN_TOKENS, N_TEXTS, Source, icl_change, icl_score
from pages.ui.in_context import charts as incontext_charts
from pages.ui.in_context import tables as incontext_frames
from pages.ui.in_context.setting import SHOTS, Losses, Measured
from pages.ui.shared.controls import choose_level, choose_ranking, type_mask, with_own
from pages.ui.shared.many_tasks import local_tasks
from pages.ui.shared.texts import choose_text

SOURCES = {"task": "Solved questions", "text": "A long text"}
AXES = {"heads": "Attention heads pruned", "ffns": "FFNs pruned"}
AXIS_HELP = {"heads": "A pruned head gives 0 to its layer's output projection.", "ffns": "A pruned FFN adds nothing."}
AROUND = (0, 5, 10)
NOISY_NATS = 2.0  # an interval so wide leaves open what pruning does
SCORE_HELP = (
    f"Olsson et al.'s in-context-learning score: loss at the {LATE}th token minus loss at the {EARLY}th (from 1, the "
    "beginning token not counted), averaged over the texts. Below 0 = later tokens are predicted better. The interval "
    "is Student's over texts, 95 %; the change is paired, on the same texts."
)
KIND_HELP = (
    "`full`: the head gives nothing (z = 0) and all that follows is computed anew, as when it is pruned. "
    "`pattern-preserving`: the same, but every attention pattern stays as it was, so later heads look where they "
    "looked and only find something else there. For the table and the two charts beside it."
)
MAPS = {
    "full": "Orange: the score rises without the head, so the model learns less in context. Blue: it learns more.",
    "pattern-preserving": "The same colours; what later heads look at is held still.",
    "before_and_after": "Orange: leaving out the head alone changes losses as this pruning does. Blue: the opposite.",
}


@dataclass(frozen=True)
class Controls:
    """What the controls above the figures are set to; `source` is None while there is no text."""

    source: Source | None
    around: int
    task: TaskSpec
    ranking: str
    heads_permille: int
    ffns_permille: int
    typed: str


def choose(data_dir: str | None) -> Controls:
    """Draws where texts come from, how the score is read, and the Prune screen's sliders."""
    kind_at, task_at, n_at, around_at = st.columns([7, 7, 3, 6], gap="medium")
    kind = kind_at.segmented_control(
        "Texts", list(SOURCES), default="task", format_func=SOURCES.get, key="incontext_from", bind="query-params",
        required=True, width="stretch",
        help=f"Solved questions: those of a task (train split), one after the other until there are {MIN_TOKENS} "
        f"tokens, in a new order for each text. A long text: cut into pieces of {MIN_TOKENS} tokens.",
    )  # fmt: skip
    name = task_at.selectbox(
        "Task", with_own(local_tasks(data_dir), "incontext_task"), key="incontext_task", bind="query-params",
        accept_new_options=True,
        help="Whose solved questions are read, and what rankings by importance are measured on (its train questions, "
        f"{SHOTS} solved examples in front).",
    )  # fmt: skip
    n_texts = n_at.number_input(
        "Most texts", 1, MAX_TEXTS, N_TEXTS, 12, key="incontext_texts", bind="query-params",
        help="More texts, narrower intervals. A long text may have fewer pieces.",
    )  # fmt: skip
    around = around_at.segmented_control(
        "Score from", AROUND, default=0, key="incontext_around", bind="query-params", required=True, width="stretch",
        format_func=lambda each: f"± {each}" if each else "exact",
        help=f"`exact`: loss at the {LATE}th and the {EARLY}th token alone, as defined. That is noisy: with ± 10 the "
        "ten tokens before and behind each are averaged in, and the interval is much narrower.",
    )  # fmt: skip
    source = Source("task", str(name).strip(), n_texts=int(n_texts))
    if kind == "text":
        text = choose_text("incontext", st.container(), default="The ferry")
        of = "passage" if text is not None and text.passage else "text"
        source = Source(of, text.name, "" if text.passage else text.text, int(n_texts)) if text is not None else None
    *level_at, mask_at, ranking_at = st.columns([4, 4, 3, 3], gap="medium")
    heads, ffns = (choose_level("incontext", at, axis, AXES[axis], AXIS_HELP[axis])
                   for axis, at in zip(AXES, level_at, strict=True))  # fmt: skip
    typed, ranking = type_mask("incontext", mask_at), choose_ranking("incontext", ranking_at)
    return Controls(source, int(around or 0), TaskSpec(str(name).strip(), SHOTS), ranking, heads, ffns, typed)


def figures(found: Measured, around: int, pruned_in_words: str) -> None:
    """Draws the score of both models and its change as large figures, each with what it says."""
    st.subheader("In-context-learning score", help=SCORE_HELP)
    full_at, pruned_at, change_at = st.columns(3, gap="medium")
    nothing = found.mask is not None and found.mask.is_full
    _score_figure(full_at, "full model", found.full, around)
    if nothing:
        pruned_at.metric("Pruned model, nats", "–")
        pruned_at.markdown("Nothing is pruned: move a slider, or name heads in the field.")
        return
    _score_figure(pruned_at, "pruned model", found.pruned, around)
    before, after = found.in_both
    if not before:
        change_at.metric("Change, nats", "…")
        change_at.markdown(pruned_in_words)
        return
    change = icl_change(before, after, around)
    change_at.metric("Change, nats", incontext_frames.number(change.value, sign=True))
    lines = [incontext_frames.interval_in_words(change), verdict(change.low, change.high), pruned_in_words]
    change_at.markdown("  \n".join(lines))


def _score_figure(where: DeltaGenerator, who: str, losses: Losses, around: int) -> None:
    if not losses:
        where.metric(f"{who.capitalize()}, nats", "…")
        where.markdown("Not measured yet.")
        return
    score = icl_score(losses, around)
    where.metric(f"{who.capitalize()}, nats", incontext_frames.number(score.value))
    lines = [incontext_frames.interval_in_words(score), incontext_frames.score_in_words(score, around)]
    if not around and score.high - score.low > NOISY_NATS:
        lines.append(":small[Single tokens are noisy: choose ± 10 tokens, or more texts.]")
    where.markdown("  \n".join(lines))


def verdict(low: float, high: float) -> str:
    """What the interval of a change allows to say."""
    if low > 0:
        return "**It learns less in context.**"
    if high < 0:
        return "**It learns more in context.**"
    return "That may be chance."


def curves(found: Measured) -> tuple[dict[str, alt.LayerChart], dict[str, pd.DataFrame]]:
    """Draws loss by index and its slope; gives the charts and the tables by name."""
    losses: dict[str, Losses] = {incontext_frames.FULL: found.full}
    if found.mask is not None and not found.mask.is_full:
        losses[incontext_frames.PRUNED] = found.pruned
    curve, slope = incontext_frames.curves(losses), incontext_frames.slopes(losses)
    charts = {"Loss by index": incontext_charts.loss_curve(curve), "Slope": incontext_charts.slope_chart(slope)}
    curve_at, slope_at = st.columns([7, 5], gap="large")
    with curve_at:
        st.subheader("Loss by token index", help="Mean over texts, in bins that are even in ln(index), with its 95 % "
                     "interval. The score is the difference of the curve at the two dotted lines.")  # fmt: skip
        st.altair_chart(charts["Loss by index"], key="incontext_curve", alt=incontext_frames.curve_in_words(curve))
    with slope_at:
        st.subheader("How fast it falls", help="d loss / d ln(index): differences between neighbouring bins that are "
                     "even in ln(index), with 95 % intervals over texts. 0 = later tokens are no easier.")  # fmt: skip
        st.altair_chart(charts["Slope"], key="incontext_slope", alt=incontext_frames.slope_in_words(slope))
    every = incontext_frames.curves(losses, None).drop(columns=["first", "last"])
    return charts, {"Loss by index": every, "Slope": slope}


def choose_ablation() -> tuple[str, str]:
    """Draws the choice of (kind of ablation, what an ablated head gives)."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        fill = st.segmented_control(
            "An ablated head gives", FILLS, default="zero", key="incontext_fill", bind="query-params", required=True,
            help="`zero`: nothing, as a pruned one. `mean`: its mean over a story, an output that later layers know.",
        )  # fmt: skip
        kind = st.segmented_control(
            "One kind, closely", KINDS, default="full", key="incontext_kind", bind="query-params", required=True,
            help=KIND_HELP,
        )  # fmt: skip
    return str(kind), str(fill)


def head_section(frame: pd.DataFrame, kind: str, n_texts: int) -> dict[str, alt.LayerChart]:
    """Draws the maps, the table of the ten heads that matter most and the scatter; gives the charts by name."""
    st.caption(f"Over {frame['n'].iloc[0]} of {n_texts} texts. A cross marks a head that is pruned now.")
    reach = float(np.nanmax(np.abs(frame[list(KINDS)].to_numpy()))) or 1.0
    shown = [column for column in MAPS if column in frame]
    charts: dict[str, alt.LayerChart] = {}
    for column, at in zip(shown, st.columns(3, gap="medium"), strict=False):
        own = reach if column in KINDS else float(frame[column].abs().max()) or 1.0
        title = incontext_charts.TITLES[column]
        charts[title] = incontext_charts.attribution_map(frame, column, own)
        with at:
            st.markdown(f"**{title}**")
            words = incontext_frames.map_in_words(frame, column)
            st.altair_chart(charts[title], key=f"incontext_map {column}", alt=f"{title}. {words} {MAPS[column]}")
            st.caption(f"{words} {MAPS[column]}")
    table_at, scatter_at = st.columns(2, gap="large")
    with table_at:
        st.markdown(f"**The ten that matter most, {kind} ablation**")
        _top_table(frame, kind)
    if "prefix_matching" in frame:
        charts["Attribution and prefix matching"] = incontext_charts.attribution_scatter(frame, kind)
        with scatter_at:
            st.markdown(f"**Are they induction heads? {kind.capitalize()} ablation**")
            st.altair_chart(charts["Attribution and prefix matching"], key="incontext_scatter",
                            alt=incontext_frames.scatter_in_words(frame, kind))  # fmt: skip
            st.caption(incontext_frames.scatter_in_words(frame, kind))
    else:
        scatter_at.caption("Open the Induction screen once, and each head's prefix matching is shown here beside it.")
    return charts


def _top_table(frame: pd.DataFrame, kind: str) -> None:
    other = next(each for each in KINDS if each != kind)
    order = frame[kind].abs().sort_values(ascending=False).index[:10]
    nats = partial(st.column_config.NumberColumn, format="%+.2f", width=64)
    columns: dict[str, Any] = {
        "name": st.column_config.TextColumn("Head", width=56),
        kind: nats("Nats", help=f"Score without the head minus score with it, {kind} ablation."),
        f"{kind} low": nats("from", help="95 % interval over texts."),
        f"{kind} high": nats("to", help="95 % interval over texts."),
        other: nats("Full" if other == "full" else "Pattern", help=f"The same by {other} ablation."),
        "before_and_after": nats("Bef.-after", help="Before-and-after vector, nats."),
        "prefix_matching": st.column_config.NumberColumn(
            "Prefix", format="%.2f", width=60, help="Prefix matching, 0 to 1."
        ),
    }
    known = [column for column in columns if column in frame and frame[column].notna().any()]
    st.dataframe(frame.loc[order, known], column_config=columns, hide_index=True, height="content",
                 alt=f"The ten heads of largest {kind} attribution to the in-context-learning score")  # fmt: skip
