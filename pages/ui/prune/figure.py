"""An accuracy as one large figure with everything needed to judge it, and components as tables.

The number is grey while it is an estimate, or from fewer than MIN_QUESTIONS answers.
"""

import math
from functools import partial
from typing import Any

import streamlit as st

from engine.accuracy.evaluation import Accuracy, Answers, accuracy
from engine.statistics import MIN_QUESTIONS, Paired, paired
from pages.ui.figures.drawing import change_look, draw_table
from pages.ui.page.tables import RANK_TITLE, magnitude, number, p_in_words, percent, percents, plain, whole_percent
from pages.ui.prune.estimates import EstimateLine, trust
from pages.ui.prune.experiment import AnswersSoFar
from pages.ui.prune.found import Found
from pages.ui.prune.tables import ffn_frame, head_frame

HELP = (
    "The interval is Wilson's. The length-normalized score divides each choice's log-likelihood by its characters. "
    "Gained and lost count the same questions before and after; p is McNemar's exact test at 5%, the interval of the "
    "change is Bonett and Price's. Neither knows how many levels you look at: one in twenty differs by chance. "
    "A published value is lm-evaluation-harness 0.3's, of all questions of the task."
)
ESTIMATE_HELP = (
    "To first order: log-likelihoods of the full model less the gradients of the pruned components, corrected by "
    "levels that were measured. No forward pass."
)


def accuracy_figure(
    title: str, measured: AnswersSoFar, total: int, pruned_in_words: str, is_full: bool, published: str = ""
) -> None:
    """Draws the accuracy so far, its change against the full model, how certain both are (`is_full`: no pruning), and
    what was `published` of the full model, as text."""
    full, pruned = measured.full, measured.pruned
    shown = full if is_full else pruned
    value, delta, share, clear, few = "…", "not measured yet", 0.0, False, True
    lines, details = [pruned_in_words], [published] if published else []
    if shown is not None and len(shown):
        result, few = accuracy(shown), len(shown) < MIN_QUESTIONS
        value, delta = percent(result.acc), "the full model"
        if few and result.n < total:  # a share of the first few would come and go
            value = f"{round(result.acc * result.n)} of {result.n}"
        counted, interval, norm = in_words(result, total)
        details = [norm, *cut_in_words(shown), *details]
        lines.insert(0, counted if few else f"{counted}, {interval}")
        if not is_full and full is not None and len(full):
            change = paired(full.correct, shown.correct)
            share, clear = (change.gained - change.lost) / change.n, change.is_clear
            before = percent(result.acc - share)
            before += f" on these {change.n}" if change.n < max(len(full), total) else ""
            delta = f"{number(100 * share, 1, sign=True)} points against the full model's {before}"
            pairs, verdict = change_in_words(change).split("  \n")
            lines.insert(1, f"{verdict}  \nThe full model: {before}" if few else verdict)
            details.append(pairs)
        if few:
            delta = interval
    elif full is not None and len(full):
        some = f" of the first {len(full):,}, {total:,} in all" if len(full) < total else ""
        lines.append(f"The full model: {percent(accuracy(full).acc)}{some}")
    _draw_number(title, value, delta, few, **change_look(share, clear))
    help = "  \n".join([*details, "", HELP] if details else [HELP])
    st.markdown("  \n".join(line if few else f":small[{line}]" for line in lines), help=help)  # the first is long


def estimate_figure(title: str, line: EstimateLine, permille: int, pruned_in_words: str, total: int) -> str:
    """Draws the accuracy of a level while the slider moves, of `total` questions if it was measured before; returns its
    source: "stored", "estimate", or "unknown"."""
    state = "unknown"
    if permille in line.measured:
        value, what, about = percent(line.measured[permille]), "measured before", "Release to see it in full."
        state = "stored"
    elif permille in line.estimated and line.estimated[permille].shown:
        estimated = line.estimated[permille].estimated
        value, what, about = f"≈ {whole_percent(estimated)}", "estimate, not measured", trust(line, permille)
        state = "estimate"
    elif permille in line.estimated:
        value, what, about = "…", "not measured yet", f"{trust(line, permille)} Release to measure it."
    else:
        value, what, about = "…", "not measured yet", "Release to measure it."
    grey = state != "stored" or total < MIN_QUESTIONS
    _draw_number(title, value, what, grey, delta_color="off", delta_arrow="off")
    st.markdown(f"{pruned_in_words}  \n{about}", help=ESTIMATE_HELP)
    return state


def _draw_number(title: str, value: str, delta: str, grey: bool, **look: Any) -> None:
    with st.container(key=f"prune_number_{'grey' if grey else 'sure'}"):
        st.metric(f"{plain(title)}: questions right", value, delta, **look)


def in_words(result: Accuracy, total: int) -> list[str]:
    """Returns lines such as "212 of the first 300 right, 500 in all", "95% interval 36.1 to 46.5%", "40.1% by
    length-normalized score"."""
    right = round(result.acc * result.n)
    counted = f"**{right:,} of {total:,}** right"
    if result.n < total:
        counted = f"**{right:,} of the first {result.n:,}** right, {total:,} in all"
    interval = f"95% interval **{percents(result.ci_low, result.ci_high)}**"
    norm = f"{percent(result.acc_norm)} by length-normalized score"
    if not math.isnan(result.perplexity):
        norm = f"Perplexity of the last word {number(result.perplexity, 2)}"
    return [counted, interval, norm]


def cut_in_words(answers: Answers) -> list[str]:
    """Returns one line on questions that did not fit the model's window; [] if all do."""
    n = answers.n_contexts_cut
    if not n:
        return []
    return [f"**{n:,}** of them do not fit the model's window: their first tokens, of the examples, are left out"]


def change_in_words(change: Paired) -> str:
    """Returns lines such as "Lost 12.5 points, 95% interval 8.1 to 16.8", with the gained and lost questions."""
    counted = f"Gained **{change.gained:,}**, lost **{change.lost:,}** ({p_in_words(change.p_mcnemar)})"
    low, high = (100 * end for end in change.interval)
    signed = f"{number(low, 1, sign=True)} to {number(high, 1, sign=True)}"
    if change.n < MIN_QUESTIONS:
        return f"{counted}  \nToo few questions for a verdict (at least {MIN_QUESTIONS})"
    if not change.is_clear:
        return f"{counted}  \n**Within noise** of {change.n:,} questions: anything from {signed} points fits"
    share = 100 * (change.gained - change.lost) / change.n
    ends = " to ".join(number(end, 1) for end in ((low, high) if share > 0 else (-high, -low)))
    return f"{counted}  \n**{'Gained' if share > 0 else 'Lost'} {abs(share):.1f} points**, 95% interval {ends}"


def in_a_sentence(task: str, measured: AnswersSoFar, pruned_in_words: str) -> str:
    """Returns what pruning does to a task, for a slide; "" before both models have answered enough questions."""
    full, pruned = measured.full, measured.pruned
    if full is None or pruned is None or len(pruned) < MIN_QUESTIONS or len(full) < len(pruned):
        return ""
    change, after = paired(full.correct, pruned.correct), accuracy(pruned).acc
    share = (change.gained - change.lost) / change.n
    what = f"With {pruned_in_words}, {plain(task)}"
    if not change.is_clear:
        return f"{what} does not clearly change: **{percent(after - share)}** right before, **{percent(after)}** now."
    verb, points = "falls" if share < 0 else "rises", number(100 * abs(share), 1)
    return f"{what} {verb} by **{points} points**, from {percent(after - share)} to **{percent(after)}** right."


def full_in_a_sentence(task: str, full: Answers | None) -> str:
    """Returns the accuracy of the full model, for a slide; "" before it has answered enough questions."""
    if full is None or len(full) < MIN_QUESTIONS:
        return ""
    return f"The full model answers **{percent(accuracy(full).acc)}** of {plain(task)} right."


def component_tables(shown: Found) -> None:
    """Draws the data of the map and the bars as two tables, the most important first."""
    of = shown.x, shown.known, shown.mask
    columns = {
        "name": "Name",
        "score": "Importance",
        "rank": st.column_config.NumberColumn(RANK_TITLE, help="By the importance shown, whatever order prunes."),
        "state": "State",
    }
    for at, frame, noun in zip(st.columns(2), (head_frame(*of), ffn_frame(*of)), ("heads", "FFNs"), strict=True):
        ordered = frame.sort_values(["score", "rank"], ascending=[False, True])
        formats = {"score": partial(magnitude, digits=4)}
        draw_table(ordered, columns, f"All {noun} with their importance", at, formats, height=300)
