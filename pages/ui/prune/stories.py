"""One-click stories of the Prune screen: each sets the user's controls, and measures its claim."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import streamlit as st

from engine.composed import ComposedRun, composed
from engine.importance.rankings_of import Pruning, Ranking
from engine.importance.rules import Evidence
from engine.measurement import Measurement
from engine.models.masks import parse_edits
from engine.models.session import Target
from engine.progress import Progress
from engine.questions.requests import TaskSpec
from engine.questions.tasks import OWN, task_info
from engine.studies.removal import N_DRAWS, AccuracyWithout, Removal, draw, found_heads, line_of, removal, without
from engine.studies.statements import BreakPoint, break_point
from pages.ui.controls.many_tasks import local_tasks
from pages.ui.controls.sidebar import wait_for_model
from pages.ui.controls.study import Setup, restore, set_study
from pages.ui.page.address import one_among, put_right
from pages.ui.page.defaults import LEVELS, ORDER, RANKING_QUESTIONS, SHOTS
from pages.ui.page.presentation import presenting
from pages.ui.page.runtime import session, store
from pages.ui.page.widget_writes import hold, write
from pages.ui.page.work import Work
from pages.ui.prune.experiment import LEVELS_PERMILLE, Experiment, curve
from pages.ui.prune.orders import order_seconds

STORIES = {
    "heads": "Remove induction heads",
    "others": "Remove random heads",
    "control": "No examples",
    "far": "How far?",
}
KEY, TO_SET, MAIN = "prune_story", "prune story to set", "prune story task"
OPENED = "prune story opened"  # what the open story is about
SET_BY_STORIES = ("task", "shots", *LEVELS, "mask", "order", "labels")
FAR = "prune story far"  # its level is set once it is known
SLOTS = ("story", "story heads")
N_ASKED = 100  # questions, at most
WITHOUT_EXAMPLES = (
    "demo_question",
    "piqa",
    "arc_easy",
    "boolq",
    "hellaswag",
)  # examples do not help with their questions
TEXT = "Privet Drive, twice"
HELP = "Each sets the controls, says what to expect and what came out. One more click closes it."


@dataclass(frozen=True)
class Cast:
    """The tasks of a story: one with examples in the prompt, and one that needs none, if there is one."""

    main: TaskSpec
    control: TaskSpec | None


@dataclass(frozen=True)
class Far:
    """How far heads can go by importance: `lines`, full and pruned by level (permille), and the break point `read` from
    them."""

    lines: dict[int, AccuracyWithout]
    read: BreakPoint

    @property
    def level(self) -> int:
        """Returns the level before the first detectable loss, in permille; 0 if no break point is read."""
        return 0 if self.read.reading else round(1000 * self.read.no_loss_up_to)


def choose_story() -> str | None:
    """Draws the row of stories; returns the open one."""
    hold(KEY)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if not presenting():  # a slide has no buttons
            st.caption("Try", help=HELP, width="content")
        look: dict[str, Any] = {"format_func": STORIES.__getitem__, "label_visibility": "collapsed", "width": "content"}
        put_right(KEY, "Story", one_among(STORIES.values()))
        return st.pills("Stories", list(STORIES), key=KEY, on_change=_clicked, bind="query-params", **look)


def set_controls(setup: Setup) -> None:
    """Sets the controls, before they are drawn, to those of the clicked story once its heads are known, or of a story
    named by a link that sets no other controls."""
    state, story = st.session_state, st.session_state.get(KEY) or _in_link()
    state.setdefault(TO_SET, story is not None and not any(name in st.query_params for name in SET_BY_STORIES))
    if not state.get(TO_SET) or story is None:
        return
    target, cast, heads = wait_for_model(setup), cast_of(setup), ()
    if story != "far":
        found = found_heads(target).stored(session()) or heads_work(target).value()
        if found is None:
            return  # they are being measured; the page runs again afterwards
        heads = found.heads
    state[TO_SET] = False
    state.pop(OPENED, None)
    if cast is not None:
        task = cast.control if story == "control" and cast.control is not None else cast.main
        state[MAIN] = cast.main.name
        set_study(task=task.name, shots=task.shots, labels=task.labels)
    if story == "far":
        set_study(order=ORDER)
        state[FAR] = True
    mask = draw(target.shape, heads, 0) if story == "others" else without(target.shape, heads)
    restore(mask.text())


def close_when_left(setup: Setup) -> None:
    """Closes the story once the model, the task or the named heads are not those it was opened with: what it says would
    stand next to the results of something else."""
    state, named = st.session_state, ("task", "mask")
    if state.get(KEY) is None or state.get(TO_SET) or any(name not in state for name in named):
        return
    now = setup.spec, *(state[name] for name in named)
    if state.setdefault(OPENED, now) != now:
        del state[OPENED]
        write(KEY, None)


def cast_of(setup: Setup) -> Cast | None:
    """Returns the tasks that this model can be asked, the present one first, one's own questions too; None if there
    are none: the demo's are only for the model that comes with the app."""
    names = [name for name in local_tasks(setup.data_dir) if name.startswith("demo_") == setup.spec.is_demo]
    state = st.session_state
    first, shots = [state.get("task"), state.get(MAIN)], int(state.get("shots") or 0)
    own = [name for name in first if name and name.endswith(OWN)]
    found = cast_from({name: task_info(name).needs for name in names} | dict.fromkeys(own, "examples"), *first)
    if found is None:
        return None
    main, control = found
    of_control = None if control is None else TaskSpec(control, 0)
    return Cast(TaskSpec(main, shots if main in own else shots or SHOTS), of_control)


def cast_from(needs: Mapping[str, str], *preferred: str | None) -> tuple[str, str | None] | None:
    """Returns (the task of a story, the one that needs no examples) of the tasks in `needs` (name: TaskInfo.needs): the
    first of `preferred` that needs its context, else one that needs examples. If all need their context, only a task
    that needs examples has a story, without the other. None without such a task."""
    control = next((name for name in (*WITHOUT_EXAMPLES, *needs) if needs.get(name) == "nothing"), None)
    control = control or next((name for name in WITHOUT_EXAMPLES if not needs.get(name, "said")), None)
    usable = {name: need for name, need in needs.items() if need not in ("nothing", "reading") and name != control}
    if control is None:
        usable = {name: need for name, need in usable.items() if need == "examples"}
    if not usable:
        return None
    by_need = sorted(usable, key=lambda name: usable[name] != "examples")
    main = next(name for name in (*preferred, *by_need) if name in usable)
    return main, control


def heads_work(target: Target) -> Work[Removal]:
    """Returns the work that finds the induction heads."""
    return Work("story heads", "Induction scores", found_heads(target), while_seen=True)


def removed(x: Experiment, cast: Cast) -> Measurement[Removal]:
    """Returns the accuracies without the induction heads, and without the same number of others."""
    return removal(x.target, cast.main, cast.control, min(x.limit, N_ASKED), x.data_dir)


def removal_work(x: Experiment, cast: Cast) -> Work[Removal]:
    """Returns the work that removes them, and the same number of others."""
    n_runs = 4 + N_DRAWS  # of both tasks the full and the pruned model, and the draws
    return Work("story", "Story", removed(x, cast), 1, True, partial(_story_seconds, x, n_runs))


def far_work(x: Experiment) -> Work[Far]:
    """Returns the work that measures how far heads can be pruned."""
    nothing = parse_edits("", x.shape)
    ranking = Ranking(ORDER, n_questions=RANKING_QUESTIONS)
    of = replace(x, pruning=Pruning(x.task, ranking, 0, 0, nothing), limit=min(x.limit, N_ASKED))
    return Work(
        "story", "How far", how_far(of), 1, True, partial(_story_seconds, of.at("heads", 1000), len(LEVELS_PERMILLE))
    )


def _story_seconds(x: Experiment, n_runs: int) -> float | None:
    """Returns the forecast seconds of a story: of so many runs over its questions, and of the order that it needs; None
    for the embedded model, whose stories are short. What a story asks is not rendered for that."""
    if x.target.spec.is_demo:
        return None
    each_s = x.workload(None).seconds_by_size(store(), x.target) * min(1.0, N_ASKED / x.questions.n)
    return n_runs * each_s + (order_seconds(x) if x.pruning.by_level and x.train is not None else 0.0)


def how_far(x: Experiment) -> Measurement[Far]:
    """Returns the measurement of the accuracy at every tenth of the heads, the least important first."""

    def body(run: ComposedRun) -> Generator[Progress[Any], None, Far | None]:
        levels = yield from run.part(curve(x, "heads", Evidence()), counts=False)
        if levels is None:
            return None
        full = levels[0][1]
        lines = {level: line_of(full, answers) for level, (_, answers) in levels.items()}
        changes, n_full = {level: line.change for level, line in lines.items()}, int(full.correct.sum())
        return Far(lines, break_point(x.task, changes, n_full, x.judged.chance))

    return composed(x.target, ("far", x.key), body)


def _in_link() -> str | None:
    """Returns the story that the address names by its button's label."""
    named = st.query_params.get(KEY)
    return next((story for story, label in STORIES.items() if label == named), None)


def _clicked() -> None:
    st.session_state[TO_SET] = st.session_state.get(KEY) is not None
