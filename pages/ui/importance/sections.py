"""The sections of the Importance screen: heads by task, the most important, FFNs by task, gradients against
measured losses."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from engine.heads.induction import induction
from engine.importance.importance import Scores
from engine.importance.rankings import agreement
from engine.measurement import Measurement
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.studies.removal import Removal, without_heads
from engine.studies.surveys import StudySettings, Survey, in_words, survey, together
from engine.timing.observed_timings import together_s
from engine.views.accuracy import without_part
from engine.views.colors import GREY, MARK
from engine.views.pictures import Picture
from pages.ui.controls.controls import one_listed
from pages.ui.controls.first_views import first_task
from pages.ui.controls.heads import open_heads, open_prune
from pages.ui.controls.many_tasks import importance_work, reserve_finding, setting_of, so_far
from pages.ui.controls.study import Setup
from pages.ui.figures.drawing import draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.importance import charts, tables
from pages.ui.importance.tables import EVEN, NAMES, ORACLE, ORACLE_HEADS, PAPERS
from pages.ui.page.defaults import IN_SHORT
from pages.ui.page.defaults import RANKING_QUESTIONS as N
from pages.ui.page.job_words import cost_in_words
from pages.ui.page.presentation import presenting
from pages.ui.page.reads import stored_once
from pages.ui.page.runtime import session
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import for_file, share
from pages.ui.page.work import Work, live

TOO_MANY = (
    f"{{:,}} heads are too many to remove one by one ({ORACLE_HEADS} at most). Choose a gradient: the {tables.SHOWN} "
    "heads with its highest scores can be removed."
)
MAPS_HELP = (
    "A head's score as a share of the sum over all heads. Layer 0, next to the tokens, is the top row. Click a head. "
    "Heads that can replace one another score low, as each is scored alone. Colors follow the square root."
)
TESTED = f"exact McNemar test on {N} questions a task, 5% for all cells together by Holm's correction"
BY_ROOT = "Colors follow the square root."
ORACLE_MAPS_HELP = (
    f"Accuracy lost when just that head is removed. Gray: no clear change ({TESTED}). {BY_ROOT} Click a head. One head "
    "alone misses heads that replace one another, and most tie; so Prune ranks by gradients, an estimate that orders "
    "the ties."
)
FFNS_HELP = (
    f"Feed-forward networks, one a layer. Accuracy lost without each. Gray: no clear change ({TESTED}). {BY_ROOT}"
)
BOTH_HELP = (
    "Alone: each head removed by itself, as in the maps. Together: these heads removed at once, and as many "
    "random ones (mean and range of the draws), on the same train questions. Lines: 95% intervals. Orange: a clear "
    "loss, by the exact McNemar test."
)
OUTLINED = "Outlined: induction heads."
REMOVED = "Heads removed one by one"
REMOVED_HELP = (
    f"The {tables.SHOWN} heads with the highest scores in the mean over tasks: each alone, all at once, and as many "
    "random ones (mean and range of the draws), on train questions. Lines: 95% intervals. Orange: a clear loss, "
    f"{TESTED.replace('cells', 'heads')}."
)
MAPS, BY_ORACLE = "importance_maps", "importance opens by oracle"
MAP_OF = "importance_map"
MAP_OF_HELP = "Of one task, as in *Alone and together*, or of the mean over all that are chosen above."
TOGETHER = "Remove heads together"
ORACLE_HELP = (
    "Of the mean over tasks; the ranks are in the downloads. Measured: accuracy lost when just that head is pruned, "
    "which gradients estimate. Rank correlation: Spearman's, over the heads; those that cost the same share a rank."
)
BEST_HELP = (
    "Rank 1 is the most important, by the mean, in which all tasks count alike. A task's column has the rank in it."
)
SELECTED_PX = 200  # of the selected head, up to MOST_RANKS tasks
RANK_COLUMN = st.column_config.Column("Rank", width=60)


@dataclass(frozen=True)
class HeadMaps:
    """The head scores of a screen, and how they are drawn."""

    target: Target  # the model
    setting: StudySettings  # of the survey, with the mean over tasks
    scores: Mapping[TaskSpec, Scores]  # measured so far
    what: str  # the head score

    @cached_property
    def mean(self) -> pd.DataFrame:
        """One row per head, by the mean over tasks."""
        return tables.aggregate_rows(self.scores, together(self.setting, self.scores))

    @cached_property
    def best(self) -> pd.DataFrame:
        """The most important heads by `mean`, with their rank on each task."""
        return tables.best_rows(self.scores, self.mean)

    @cached_property
    def selected(self) -> pd.Series:
        """The row of `mean` of the head that is clicked in the maps, else of the most important."""
        points = st.session_state.get(MAPS, {}).get("selection", {}).get("head")
        found = self.mean[self.mean["name"].eq("L{layer}H{head}".format(**points[0]) if points else "")]
        return (self.mean.nsmallest(1, "rank") if found.empty else found).iloc[0]

    @cached_property
    def has_one_map(self) -> bool:
        """Whether one map of an oracle is drawn: of one task, or of the mean over tasks."""
        return self.what == ORACLE and len({task.shots for task in self.scores}) == 1

    @cached_property
    def induction_heads(self) -> tuple[int, ...]:
        """The model's induction heads by flat index, for an oracle, if they are stored; else ()."""
        found = induction(self.target).stored(session()) if self.what == ORACLE else None
        return () if found is None else tuple(np.flatnonzero(found.is_induction_head).tolist())


@dataclass(frozen=True)
class JointLoss:
    """What induction heads cost together, where none of them clearly costs accuracy alone."""

    task: TaskSpec  # on which all were removed
    found: Removal  # the result
    measured: Measurement[Removal]  # which gives it


def first_score(setup: Setup, tasks: Sequence[TaskSpec], key: str) -> str:
    """Returns the head score that the screen opens with: the oracle where it is measured, on the demo model alone, as
    its results come with the app; another model that is opened then has the gradient."""
    if not setup.spec.is_demo:
        if st.session_state.pop(BY_ORACLE, False) and st.session_state.get(key) == ORACLE:
            del st.session_state[key]
        return EVEN
    if BY_ORACLE not in st.session_state:
        target = session().target(setup.spec, setup.bos)
        found = stored_once(survey(target, setting_of(setup), tuple(tasks), ORACLE))
        st.session_state[BY_ORACLE] = found is not None and not found.failed
    return ORACLE if st.session_state[BY_ORACLE] else EVEN


def draw_heads(
    of: HeadMaps, sheet: Sheet, joint: JointLoss | None, width: float
) -> tuple[str, DeltaGenerator | None, TaskSpec | None]:
    """Draws a map of each task, of measured losses at one shot count that of one task, by default of `joint`, or their
    mean, in a share of the page's `width`; returns the finding, by gradients the place for how far these agree with
    measured losses, and the one task."""
    n_maps, n_heads = len(of.scores), of.target.shape.n_heads_total
    rows, mean = tables.head_rows(of.scores), of.mean
    sheet.tables |= {"Head importance": for_file(rows), "Mean head importance": for_file(mean)}
    words = tables.heads_in_words(mean, n_maps)
    help = ORACLE_MAPS_HELP if of.what == ORACLE else MAPS_HELP
    title = "Each head alone" if of.what == ORACLE else "Heads by task"
    st.subheader(f"{title} :small[heads {IN_SHORT['heads']}]", help=help)
    trust_at = None if of.what == ORACLE else reserve_finding("finding-line")
    shown, on = tables.shown_maps(list(of.scores), n_heads), None
    if of.has_one_map and n_maps > 1:
        on = _choose_map(list(of.scores), joint)
        rows = tables.mean_rows(of.scores, mean) if on is None else rows[rows["task"].eq(on.name)]
        words = words if on is None else tables.heads_in_words(rows, 1, on.name)
    elif len(shown) < n_maps:
        help = f"Of {n_heads:,} heads each. The downloads hold all."
        st.caption(f"{len(shown)} of {n_maps} maps are drawn.", help=help)
        rows = tables.head_rows({task: of.scores[task] for task in shown})
    if trust_at is None:
        cells = "heads" if len(rows) == n_heads else "cells"
        unclear = f"Gray: no clear loss ({int((~rows['is_clear']).sum())} of {len(rows)} {cells})."
        st.caption(f"{unclear} {OUTLINED}" if of.induction_heads else unclear)
    colour = GREY if joint is None else MARK  # they cost accuracy together
    selected = "" if presenting() else of.selected["name"]
    picture = charts.score_maps(rows, charts.TITLES[of.what], of.induction_heads, presenting(), width, colour, selected)
    sheet.draw("Heads by task", picture, MAPS, words, _reserved(picture), on_select="rerun", selection_mode="head")
    return words if of.what == ORACLE else f"Estimated by gradients: {words}", trust_at, on


def _choose_map(tasks: Sequence[TaskSpec], joint: JointLoss | None) -> TaskSpec | None:
    """Draws the choice of one map; returns its task, None for the mean over tasks."""
    named: dict[str, TaskSpec | None] = {task.name: task for task in tasks} | {f"Mean of {len(tasks)} tasks": None}
    if st.session_state.get(MAP_OF) not in named:
        st.session_state.pop(MAP_OF, None)  # of tasks that were chosen before
    first = len(tasks) if joint is None else tasks.index(joint.task)
    look: dict[str, Any] = {"index": first, "help": MAP_OF_HELP, "label_visibility": "collapsed", "width": 220}
    return named[one_listed(st.container(), "Map of", list(named), MAP_OF, **look)]


def _reserved(picture: Picture) -> DeltaGenerator:
    """Draws the place of a picture, as high before the charts' code is there; on a slide, as high as it becomes."""
    height: Any = "content" if presenting() else round(picture.template["height"])
    return st.container(height=height, border=False)


def draw_best(of: HeadMaps) -> None:
    """Draws the head that is clicked in the maps, and by gradients the heads that are most important in the mean, with
    their rank on each task."""
    if of.what == ORACLE:
        _draw_selected(of, st.container())
        return
    best_at, side_at = st.columns([8, 4], gap="large")
    best = of.best
    _draw_selected(of, side_at.container(height=SELECTED_PX, border=False), set(best["name"]))
    best_at.subheader("Heads with the highest scores", help=BEST_HELP)
    tasks = [name for name in best.columns if name in map(in_words, of.scores)]
    short = (lambda name: name.split(",")[0]) if len({task.shots for task in of.scores}) == 1 else str
    titles: dict[str, Any] = {"rank": RANK_COLUMN, "name": "Head", "score": "Mean share"}
    titles |= {name: short(name) for name in tasks}
    words = tables.heads_in_words(of.mean, len(of.scores))
    draw_table(best, titles, words, best_at, {"score": share}, height="content")


def _draw_selected(of: HeadMaps, at: DeltaGenerator, listed: Collection[str] = ()) -> None:
    """Draws the head that is clicked in the maps, else the most important, with its values unless it is `listed` with
    them, and what to do with it."""
    if presenting():
        return
    row = of.selected
    values = "" if row["name"] in listed else tables.values_in_words(of.scores, row, of.what == ORACLE)
    at.markdown(f"**{row['name']}** {values}")
    with at.container(horizontal=True, vertical_alignment="center"):
        open_heads([row["name"]], st.container(width="content"))
        if st.button("Prune it", icon=":material/content_cut:", help="Opens the Prune screen without this head."):
            open_prune(row["name"])
        st.page_link("pages/induction.py", label=TOGETHER, icon=":material/link:", width="content")


def joint_loss(of: HeadMaps, setup: Setup) -> JointLoss | None:
    """Returns what the induction heads cost all together, if none of them clearly costs accuracy alone, by stored
    results of a task whose oracle is shown; else None."""
    task = next((task for task in of.scores if task.name == first_task([each.name for each in of.scores], True)), None)
    if task is None or len(of.induction_heads) < 2:
        return None
    asked = replace(task, split="train")  # the questions of the scores
    measured = without_heads(of.target, asked, of.induction_heads, N, setup.data_dir)
    found, rows = stored_once(measured), tables.head_rows(of.scores)
    if found is None or "is_clear" not in rows or not tables.costs_only_together(of.mean, rows, found):
        return None
    return JointLoss(task, found, measured)


def draw_joint(of: HeadMaps, joint: JointLoss, sheet: Sheet, map_of: TaskSpec | None) -> str:
    """Draws what heads cost alone and together; returns that in words, after those of the map of one task."""
    task, every = joint.task, tables.head_rows(of.scores)  # what is clear: of all cells together, as in the maps
    scores, rows = of.scores[task], every[every["task"].eq(task.name) & every["shots"].eq(task.shots)]
    sets = tables.joint_rows(scores, rows, joint.found)
    words = tables.joint_in_words(joint.found, "" if map_of == task else task.name)
    sheet.tables["Alone and together"] = sets
    picture = _drawn("Alone and together", sets)
    st.subheader(f"Alone and together :small[{in_words(task)}]", help=BOTH_HELP)
    sheet.draw("Alone and together", picture, "importance_together", words, _reserved(picture))
    return words


def draw_removed(of: HeadMaps, setup: Setup, sheet: Sheet, since_s: float) -> tuple[str, dict[str, Measurement[Any]]]:
    """Draws what the heads with the highest scores cost on the first task, each alone and all together, or the button
    that measures it; returns that in words, "" until all is measured, and what it is measured by."""
    task, names = next(iter(of.scores)), of.target.shape.head_names
    heads = tuple(names.index(name) for name in of.best["name"])
    measured = without_heads(of.target, replace(task, split="train"), heads, N, setup.data_dir, each_alone=True)
    work = Work("importance removed", REMOVED, measured, 2)
    found = max((Removal(heads), *work.stored()), key=_n_removed)
    is_known = len(found.alone) == len(heads)

    def draw() -> None:
        if (now := work.found) is not None and _n_removed(now) > _n_removed(found):
            st.rerun()
        if work.is_first_read:
            work.reading_line()
        elif not is_known and not work.line():
            work.offer(f"Remove the top {len(heads)} heads", "content_cut", REMOVED_HELP, 0.0, by_size=True)

    st.subheader(f"{REMOVED} :small[{in_words(task)}]", help=REMOVED_HELP)
    with st.container(width="stretch" if work.under_way else "content"):
        live(work.watched(), draw, since_s)
    if found.removed is None:
        return "", {}
    rows = tables.removed_rows(found, names)
    words = tables.removed_in_words(rows, len(heads), task.name) if is_known else ""
    sheet.tables[REMOVED] = rows
    picture = _drawn(REMOVED, rows)
    sheet.draw(REMOVED, picture, "importance_removed", words or REMOVED, _reserved(picture))
    return words, {REMOVED: measured}


def _drawn(title: str, sets: pd.DataFrame) -> Picture:
    rows: Any = sets.to_dict("records")
    picture = without_part(title, rows).picture()
    assert picture is not None, "there are rows"
    return picture


def _n_removed(found: Removal) -> int:
    """Returns how many sets of heads are measured."""
    return (found.removed is not None) + len(found.draws) + len(found.alone)


def draw_ffns(
    setting: StudySettings,
    scores: Mapping[TaskSpec, Scores],
    sheet: Sheet,
    draw_work: Callable[[], None],
    on: TaskSpec | None,
    width: float,
) -> None:
    """Draws the accuracy lost without each FFN, by task, in a share of the page's `width`, and by `draw_work` what
    measures the missing; the finding is `on` the task of the heads' map or in the mean."""
    rows = tables.ffn_rows(scores)
    st.subheader(f"FFNs by task :small[{IN_SHORT['ffns']}]", help=FFNS_HELP)
    if not scores:
        draw_work()
        return
    mean = tables.ffn_mean(setting, scores)
    if on is None or on not in scores:
        over = f"in the mean over {len(scores)} tasks" if len(scores) > 1 else f"on {next(iter(scores)).name}"
        words = tables.top_ffn_in_words(mean, over)
    else:
        words = tables.top_ffn_in_words(rows[rows["task"].eq(on.name)], f"on {on.name}")
    words = f"{words} {tables.ffns_in_words(rows)}"
    st.caption(words)
    sheet.tables["FFN importance"] = for_file(rows)
    sheet.says.append(words)
    picture = charts.ffn_map(rows, mean, width)
    sheet.draw("FFNs by task", picture, "importance_ffns", words, _reserved(picture))
    draw_work()


def draw_oracle(of: HeadMaps, tasks: list[TaskSpec], sheet: Sheet, since_s: float) -> str:
    """Draws how far the gradient scores agree with the oracle, in the mean over tasks, or the button that measures what
    is missing; returns whether they agree, "" if unknown. Nothing for a model with too many heads."""
    if (n_heads := of.target.shape.n_heads_total) > ORACLE_HEADS:
        return ""
    works = [
        importance_work(of.setting, of.target, tasks, by, f"agreement {by}", charts.TITLES[by]) for by in (EVEN, ORACLE)
    ]
    known = [so_far(work) for work in works]
    missing = [work for work, found in zip(works, known, strict=True) if found.n_known < len(tasks)]
    if not any(work.is_first_read for work in missing):  # no heading without its content
        st.subheader("Gradients against measurement", help=ORACLE_HELP)
    live([slot for work in works for slot in work.watched()], partial(_oracle_line, missing, n_heads), since_s)
    gradients, oracle = ({task: found.scores[task] for task in tasks if task in found.scores} for found in known)
    if missing or not gradients.keys() == oracle.keys() != set():
        return ""
    published = {task: found.with_other_divisor() for task, found in gradients.items()}
    means = {EVEN: gradients, PAPERS: published, ORACLE: oracle}
    joined = {by: together(setting_by(of.setting, by), found) for by, found in means.items()}
    both = {by: found.scores for by, found in joined.items()}
    agreed, shown = agreement(both), EVEN if of.what == ORACLE else of.what
    sheet.tables["Gradient and measured"] = tables.agreement_rows(both, shown)
    words = [f"{NAMES[by]} and measured: {tables.agreement_in_words(agreed, by, ORACLE)}" for by in NAMES]
    st.markdown("  \n".join(words))
    sheet.says += words
    return tables.trust_in_words(agreed, shown, tables.n_unclear(joined[ORACLE]), n_heads)


def setting_by(setting: StudySettings, what: str) -> StudySettings:
    """Returns the settings with the mean over tasks that fits a score: of accuracies as they are, else of shares."""
    return replace(setting, aggregate="scores" if what == ORACLE else "shares")


def _oracle_line(missing: list[Work[Survey]], n_heads: int) -> None:
    """Draws the progress of the comparison with the oracle, or the button that starts it."""
    help = f"Measures the missing scores: at most {n_heads + 1} evaluations of {N} train questions a task."
    if any([work.line() for work in missing]) or not missing or any(work.is_first_read for work in missing):
        return
    label = f"Compare with measured losses{cost_in_words(together_s([work.takes_s() for work in missing]), 0.0)}"

    def start() -> None:
        for work in missing:
            work.restart()

    if st.button(label, icon=":material/balance:", help=help, key="compare", on_click=start):
        st.rerun()
