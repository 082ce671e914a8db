"""One-click stories: each sets what is pruned, measures its claim on the task of the screen, and says what came out."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from engine.models.masks import Mask
from engine.models.session import Target
from engine.questions.tasks import task_info
from engine.shapes import ModelShape
from engine.statistics import paired
from engine.studies.removal import N_DRAWS, Removal, found_heads, random_heads_mask, removal, without
from engine.studies.statements import BreakPoint, break_point
from engine.studies.surveys import describe_task
from engine.views.accuracy import removal_headline, removal_view
from engine.views.sweep import break_view
from engine.views.view import View
from pages.ui.controls.model import wait_for_model
from pages.ui.controls.study import Study, is_to_set, restore
from pages.ui.page.address import one_among, put_right
from pages.ui.page.defaults import LEVEL_NOUNS, LEVELS
from pages.ui.page.marks import mark
from pages.ui.page.reads import stored_cached
from pages.ui.page.runtime import session, store
from pages.ui.page.tables import plain
from pages.ui.page.widget_writes import hold, write
from pages.ui.page.work import Action, Work
from pages.ui.prune.experiment import CURVE, SECOND_CURVE, Curve, Experiment, curve_work
from pages.ui.prune.orders import is_short
from pages.ui.prune.state import PruneState

KEY, TO_SET = "prune_story", "prune story to set"
FAR = "far"
SET_BY_STORIES = ("task", "shots", "mask", *LEVELS)
STORY = "story"  # a slot
SLOTS = (STORY, "story heads", CURVE, SECOND_CURVE)
N_ASKED = 100  # questions, at most
HELP = "Each sets what is pruned, says what to expect and what came out. One more click closes it."
LOST = {  # without the induction heads, by a task's use of its context (TaskInfo.needs)
    "examples": "answers that depend on the examples are lost.",
    "copying": "answers copied from the question itself are lost, with or without examples.",
    "reading": "some is lost: where heads that match prefixes also carry the passage's content.",
    "nothing": "nothing is lost, as this task takes nothing from its context.",
}


@dataclass(frozen=True)
class Story:
    """A story as the row of a table.

    `label`: its chip
    `sets`: the mask that it sets, given the induction heads
    `expects`: what should come out, given the task's use of its context
    `measures`: the work that tells what does, and more to show with it
    `view`: what the first says
    """

    label: str
    sets: Callable[[ModelShape, tuple[int, ...]], Mask]
    expects: Callable[[str], str]
    measures: Callable[[PruneState], Sequence[Work[Any]]]
    view: Callable[[PruneState, Any], View]


def choose_story() -> str | None:
    """Draws the row of stories; returns the open one."""
    hold(KEY)
    labels = {key: story.label for key, story in STORIES.items()}
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption("Try", help=HELP, width="content")
        kwargs: dict[str, Any] = {"on_change": _clicked, "label_visibility": "collapsed", "width": "content"}
        put_right(KEY, "Story", one_among(labels.values()))
        return st.pills("Stories", list(labels), format_func=labels.__getitem__, key=KEY, bind="query-params", **kwargs)


def apply_story(of: Study) -> None:
    """Sets what the clicked story prunes, once the induction heads are known; or that of a link that names a story and
    sets no other control. Closes a story once something else is named."""
    state, key = st.session_state, st.session_state.get(KEY) or _in_link()
    is_set = any(name in st.query_params for name in SET_BY_STORIES)
    state.setdefault(TO_SET, key is not None and not is_set)
    if key is None:
        return
    target, found = wait_for_model(of), Removal(())
    if key != FAR:
        found = found_heads(target).stored(session()) or _heads_work(target).value()
    if found is None:
        return  # they are being measured; the page runs again afterwards
    text = STORIES[key].sets(target.shape, found.heads).text()
    if state[TO_SET]:
        state[TO_SET] = False
        restore(text)
    elif not is_to_set() and of.typed != text:
        write(KEY, None)


def draw_story(state: PruneState) -> None:
    """Draws the open story, and starts its measurement."""
    story = STORIES.get(st.session_state.get(KEY) or "")
    if story is None:
        return
    with st.container(gap="xxsmall"):
        st.markdown(f":small[**Expect:** {story.expects(task_info(state.x.task.name).needs)}]")
        works = story.measures(state)
        of = works[0].of
        found = works[0].job_value if works[0].now() or isinstance(of, Action) else stored_cached(of)
        view = View("") if found is None else story.view(state, found)
        if view.finding:
            st.markdown(f":small[{view.finding}]")
        for part in view.parts:
            if (picture := part.picture()) is not None:
                state.sheet.draw(part.title, picture, f"chart of story {part.title}", f"{part.title}. {view.finding}")
        for work in works:
            _draw_work(work, state.x.target)


def _draw_work(work: Work[Any], target: Target) -> None:
    """Starts the work if it is short; else draws the button for that."""
    if work.now() is None and (target.spec.is_demo or is_short(target, work.takes_s())):
        work.start()
    elif work.now() is None:
        title = work.title[:1].lower() + work.title[1:]
        work.offer(f"Measure the {plain(title)}", "science", "In the background. Finished work is stored.")
    elif work.slot == STORY:  # the curve draws its own line
        work.line()


def marked_level(x: Experiment, found: Curve) -> list[float]:
    """Returns the first detectable loss of a curve if "How far?" is asked, or none."""
    read = break_of(x, found) if st.session_state.get(KEY) == FAR else None
    return [] if read is None or math.isnan(read.first_detectable_loss) else [read.first_detectable_loss]


def headline(x: Experiment, mask: Mask | None) -> str:
    """Returns what the model loses without its induction heads, as it stands in the heading; "" if that is not stored,
    or if anything is pruned."""
    found = stored_cached(_removed(x)) if mask is not None and mask.is_full else None
    return "" if found is None else removal_headline(found, x.shape.n_heads_total, plain(x.task.name))


def break_of(x: Experiment, found: Curve) -> BreakPoint | None:
    """Returns how far a curve goes before accuracy is lost; None before the full model is measured."""
    if 0 not in found:
        return None
    full = found[0][1]
    changes = {level: paired(full.correct, answers.correct) for level, (_, answers) in found.items()}
    return break_point(x.task, changes, int(full.correct.sum()), x.validation.chance)


def _heads_work(target: Target) -> Work[Removal]:
    return Work("story heads", "Induction scores", found_heads(target), while_seen=True)


def _removed(x: Experiment) -> Any:
    return removal(x.target, x.task, min(x.limit, N_ASKED), x.data_dir)


def _removal_work(state: PruneState) -> Sequence[Work[Removal]]:
    return [Work(STORY, "Ablation", _removed(state.x), 1, True, partial(_seconds, state.x))]


def curve_works(state: PruneState) -> Sequence[Work[Curve]]:
    """Returns the work that measures the curve, and that of the second model's."""
    return [curve_work(of.x, of.axis, of.known, of.second) for of in (state, state.second_model) if of is not None]


def _seconds(x: Experiment) -> float | None:
    """Returns the forecast seconds of a removal: of the full and the pruned model, and of the draws; None for the
    embedded model, whose stories are short."""
    if x.target.spec.is_demo:
        return None
    each_s = x.workload(None).seconds_by_size(store(), x.target) * min(1.0, N_ASKED / x.questions.n)
    return (2 + N_DRAWS) * each_s


def _removal_view(state: PruneState, found: Removal) -> View:
    return removal_view(found, state.x.shape, describe_task(state.x.task))


def _far_view(state: PruneState, found: Curve) -> View:
    read = break_of(state.x, found)
    if read is None:
        return View("")
    mark("far", read.reading or "read", **read.cells())
    return break_view(read, LEVEL_NOUNS[state.axis])


def _in_link() -> str | None:
    """Returns the story that the address names by its chip's label."""
    named = st.query_params.get(KEY)
    return next((key for key, story in STORIES.items() if story.label == named), None)


def _clicked() -> None:
    st.session_state[TO_SET] = st.session_state.get(KEY) is not None


STORIES = {
    "heads": Story(
        "Remove induction heads", without, lambda needs: LOST.get(needs, LOST["examples"]), _removal_work, _removal_view
    ),
    "others": Story(
        "Remove random heads",
        partial(random_heads_mask, seed=0),
        lambda needs: "little is lost. The figure shows the first of the draws.",
        _removal_work,
        _removal_view,
    ),
    FAR: Story(
        "How far?",
        lambda shape, heads: Mask.full(shape),
        lambda needs: "much can go, the least important first, before a loss is detectable.",
        curve_works,
        _far_view,
    ),
}
