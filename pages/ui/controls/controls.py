"""Controls that several screens share, bound to the address; `prefix` keeps the screens' parameters apart."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import streamlit as st

from engine.importance.criteria import CRITERIA
from engine.importance.layers import LAYERS_BY
from engine.importance.rankings_of import OF_ONE_TASK, Pruning, Ranking
from engine.models.masks import parse_edits
from engine.progress import in_time
from engine.questions.requests import TaskSpec
from engine.questions.tasks import list_tasks
from engine.shapes import ModelShape
from engine.statistics import MIN_QUESTIONS
from pages.ui.controls.drag_slider import SliderState, drag_slider, hand
from pages.ui.controls.own_questions import draw_own_questions, open_own_questions
from pages.ui.controls.task_box import task_box
from pages.ui.page.address import MOST, flag, number_field, one_among, put_right
from pages.ui.page.defaults import RANKING_QUESTIONS, SHOT_COUNTS, SHOTS
from pages.ui.page.runtime import budget_s
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.widget_writes import hold

T = TypeVar("T")
TASK_HELP = "A task of EleutherAI's lm-evaluation-harness, or your own questions. Type part of a name to filter."
SHOTS_HELP = "Examples in the prompt of each question (shots): 0-shot, 1-shot, 5-shot."
SAME_HELP = (
    "The same examples for all questions. The harness draws others for each: the same ones are several times as "
    "fast to score, but give other numbers than the harness."
)
LIMIT_HELP = (
    "Of the validation split, a stratified sample: right answers in the proportions of the whole, so that the first "
    "few are a fair preview. More questions, narrower interval."
)
EXAMPLE = "example of a mask"  # set by the sidebar, which knows the model
STOP_HELP = (
    "Measuring stops once the accuracy's 95 % interval is within this many points either way, after at least "
    f"{MIN_QUESTIONS} questions; the full model answers the same ones. Where to stop depends on the answers so far, so "
    "the interval is a little too narrow."
)
RANKING_HELP = (
    "Least first, from this task's train split: "
    + " ".join(f"`{name}`: {criterion.help}." for name, criterion in CRITERIA.items())
    + " `reversed`: the most important first. "
    "`random`: a seeded random order, the baseline. `within-layers`: each layer loses the same number of "
    "heads as by importance, at random. `induction-first`: the heads that match prefixes best. `induction-protected`: "
    "by importance, but heads that match prefixes go last."
)
LAYERS_HELP = (
    "Which layers go first, on this task's train questions. `influence`: those that turn the residual stream least, 1 "
    "- cosine of what enters and leaves (one pass). `oracle`: without which least accuracy is lost (a pass a layer). "
    "`greedy`: the same measured again on the remaining layers each time (a pass for each of them). "
    "`last-first`: the deepest. `random`: seeded, the baseline of every other."
)
IDLE_HELP = (
    "Every tenth of the level that was moved last, the nearest first, while this page is open and nothing else is "
    "being measured, up to a forecast of {budget} here. Whatever you start comes first. The same holds "
    "for the estimates; set HEADROOM_IDLE_SECONDS to allow more or less."
)
MASK_HELP = (
    "`L3H5` is head 5 of layer 3, `L4H*` all heads of layer 4, `F7` the FFN of layer 7, `F2-5` those of four layers, "
    "`B5` all of layer 5. "
    "They are pruned on top of the levels. Components named after the word `keep` are never pruned: "
    "`keep L1H0`."
)
STOPS = {"off": 0} | {f"{points} points": points for points in (10, 7, 5, 4, 3)}


@dataclass(frozen=True)
class Levels:
    """The pruning chosen by the controls."""

    task: TaskSpec  # whose importance orders the components
    ranking: str  # the pruning order of heads and FFNs
    heads_permille: int  # pruning level of heads
    ffns_permille: int  # pruning level of FFNs
    typed: str  # the text of a mask
    layers_permille: int = 0  # pruning level of whole layers
    layers_by: str = "influence"  # the pruning order of layers

    def pruning(self, shape: ModelShape) -> Pruning:
        """Returns the pruning of a model of `shape`; UsageError if the mask cannot be read."""
        ranking = Ranking(self.ranking, n_questions=RANKING_QUESTIONS, layers_by=self.layers_by)
        edits = parse_edits(self.typed, shape)
        return Pruning(self.task, ranking, self.heads_permille, self.ffns_permille, edits, self.layers_permille)


def one_of(where: DeltaGenerator, label: str, named: Mapping[T, str], key: str, help: str, **more: Any) -> T:
    """Draws a choice of one of the keys of `named` (value: label), bound to the address; the first is the default."""
    look: dict[str, Any] = {"default": next(iter(named)), "required": True, "bind": "query-params", **more}
    if look["bind"]:
        put_right(key, label, one_among(named.values()))
    return where.segmented_control(label, list(named), format_func=named.__getitem__, key=key, help=help, **look)


def one_listed(where: DeltaGenerator, label: str, options: Collection[str], key: str, **more: Any) -> str:
    """Draws a list to choose one of the options from, bound to the address; the first is the default, or `index`."""
    put_right(key, label, one_among(options))
    return where.selectbox(label, options, key=key, bind="query-params", filter_mode="contains", **more)


def choose_shots(where: DeltaGenerator, key: str, help: str, **more: Any) -> int:
    """Draws the choice of how many examples stand in the prompt."""
    counts = {count: str(count) for count in SHOT_COUNTS}
    return one_of(where, "Examples in the prompt", counts, key, help, default=SHOTS, **more)


def folded(label: str, key: str, draw: Callable[[], T], icon: str | None = None, in_address: bool = False) -> T | None:
    """Draws a folded part of the page; once it is unfolded, `draw` draws its inside. What that gives, None before."""
    if in_address:
        put_right(key, label, flag)
    at = st.expander(label, key=key, on_change="rerun", icon=icon, bind="query-params" if in_address else None)
    if not at.open:
        return None
    with at:
        return draw()


def with_own(options: Sequence[str], key: str) -> list[str]:
    """Returns the options and, last, a value that the user typed or the address holds instead."""
    own = st.session_state.get(key) or st.query_params.get(key)
    return [*options, own] if own and own not in options else list(options)


def choose_task(prefix: str, where: DeltaGenerator, data_dir: str | None) -> tuple[TaskSpec, int, int]:
    """Returns task, number of questions and where to stop (points, 0: never); HeadroomError without the data folder."""
    names = [status.info.name for status in list_tasks(data_dir) if status.available]
    task_at, shots_at, limit_at, stop_at = where.columns([20, 15, 11, 11])
    bound: dict[str, Any] = {"bind": "query-params"}
    task_at = task_at.container(gap="xxsmall")
    key = f"{prefix}_task"
    name = task_box(task_at, "Task", names, key, partial(open_own_questions, prefix), help=TASK_HELP)
    draw_own_questions(prefix, task_at, key)
    shots_at = shots_at.container(gap="xxsmall")
    shots = choose_shots(shots_at, f"{prefix}_shots", SHOTS_HELP, width="stretch")
    put_right(f"{prefix}_same", "Same examples for every question", flag)
    same = shots_at.checkbox("Same examples for every question", key=f"{prefix}_same", help=SAME_HELP, **bound)
    about: dict[str, Any] = {"value": 100, "step": 50, "help": LIMIT_HELP}
    limit = number_field(limit_at, "Questions", (1, MOST), f"{prefix}_limit", **about)
    stop = one_listed(stop_at, "Stop early at ±", STOPS, f"{prefix}_stop", help=STOP_HELP)
    return TaskSpec(name, int(shots), same_examples=bool(same and shots)), int(limit), STOPS[stop]


def choose_ranking(prefix: str, where: DeltaGenerator, first: str = OF_ONE_TASK[0]) -> str:
    """Draws the choice of a pruning order, `first` by default."""
    look: dict[str, Any] = {"index": OF_ONE_TASK.index(first), "help": RANKING_HELP}
    return one_listed(where, "Pruning order", OF_ONE_TASK, f"{prefix}_ranking", **look)


def choose_layers_by(prefix: str, where: DeltaGenerator) -> str:
    """Draws the choice of an order of whole layers."""
    label = "Layers by"
    row = where.container(horizontal=True, vertical_alignment="center", gap="xsmall")
    row.caption(label, width="content", help=LAYERS_HELP)
    look: dict[str, Any] = {"label_visibility": "collapsed", "width": "stretch"}
    return one_listed(row, label, LAYERS_BY, f"{prefix}_layers_by", **look)


def choose_idle(prefix: str) -> bool:
    """Draws the switch for idle work."""
    label, key = "Precompute nearby levels when idle", f"{prefix}_idle"
    help = IDLE_HELP.format(budget=in_time(budget_s()))
    put_right(key, label, flag)
    return st.toggle(label, True, key=key, bind="query-params", help=help)


def choose_level(prefix: str, where: DeltaGenerator, axis: str, label: str, help: str, default: int = 0) -> int:
    """Draws a slider for a pruning level, `default` percent at first; returns the permille set."""
    return 10 * drag_slider(where, f"{prefix}_{axis}", label, help, default)


def hand_level(prefix: str, axis: str) -> SliderState:
    """Returns the present position of a level's slider; pages draw a preview of it while it moves."""
    return hand(f"{prefix}_{axis}")


def type_mask(prefix: str, where: DeltaGenerator) -> str:
    """Draws the field for a mask in text form."""
    key, example = f"{prefix}_mask", st.session_state.get(EXAMPLE)
    hold(key)
    return where.text_input("Prune these as well", key=key, bind="query-params", placeholder=example, help=MASK_HELP)


def example_mask(shape: ModelShape) -> str:
    """Returns the text of a mask that fits this model, such as "L1H3 L3H* F3"."""
    last = shape.n_layers - 1
    return f"L{last // 2}H{min(3, shape.n_heads - 1)} L{last}H* F{last}"
