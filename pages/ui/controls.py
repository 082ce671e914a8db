"""Controls that several screens share, bound to the address; `prefix` keeps the screens' parameters apart."""

from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from engine.pruning import NEEDS
from engine.requests import TaskSpec
from engine.tasks import list_tasks
from pages.ui.drag_slider import Hand, drag_slider, hand


def with_own(options: Sequence[str], key: str) -> list[str]:
    """The options and, last, what the user typed or the address says instead of them."""
    own = st.session_state.get(key) or st.query_params.get(key)
    return [*options, own] if own and own not in options else list(options)


def choose_task(prefix: str, where: DeltaGenerator, data_dir: str | None) -> tuple[TaskSpec, int]:
    """Task and number of questions, from three controls; HeadroomError when there is no such data folder."""
    names = [status.info.name for status in list_tasks(data_dir) if status.available]
    task_at, shots_at, limit_at = where.columns([5, 3, 3])
    name = task_at.selectbox(
        "Task",
        with_own(names, f"{prefix}_task"),
        key=f"{prefix}_task",
        bind="query-params",
        accept_new_options=True,
        help="A task of EleutherAI's lm-evaluation-harness, or the path of your own `.jsonl` file with `context`, "
        "`choices` and `gold` in each row.",
    )
    shots = shots_at.segmented_control(
        "Solved examples",
        [0, 1, 5],
        default=5,
        key=f"{prefix}_shots",
        bind="query-params",
        required=True,
        width="stretch",
        help="How many solved questions stand in front of each question: 0-shot, 1-shot, 5-shot.",
    )
    same = shots_at.checkbox(
        "Same for all",
        key=f"{prefix}_same",
        bind="query-params",
        help="The same solved examples for all questions. The harness draws others for each: the same ones are several "
        "times as fast to score, but give other numbers than the harness.",
    )
    limit = limit_at.number_input(
        "Questions",
        min_value=1,
        value=100,
        step=50,
        key=f"{prefix}_limit",
        bind="query-params",
        help="The first so many of the validation split. More questions, narrower interval.",
    )
    return TaskSpec(name, int(shots), same_examples=bool(same and shots)), int(limit)


def choose_ranking(prefix: str, where: DeltaGenerator) -> str:
    """Draws the choice of an order in which components are pruned."""
    return where.selectbox(
        "Who goes first",
        list(NEEDS),
        key=f"{prefix}_ranking",
        bind="query-params",
        help="`importance`: the least important, as measured on this task's train split. `reversed`: the most "
        "important. `random`: a seeded random order, which every other order has to beat. `induction-first`: the heads "
        "that match prefixes best. `induction-protected`: by importance, but heads that match prefixes go last.",
    )


def choose_level(prefix: str, where: DeltaGenerator, axis: str, label: str, help: str) -> int:
    """Draws a slider for a pruning level; the permille that are set."""
    return 10 * drag_slider(where, f"{prefix}_{axis}", label, help)


def hand_level(prefix: str, axis: str) -> Hand:
    """Where the hand has the slider of a level now: a page that shows this shows a preview while it moves."""
    return hand(f"{prefix}_{axis}")


def type_mask(prefix: str, where: DeltaGenerator) -> str:
    """Draws the field for a mask in text form."""
    return where.text_input(
        "Prune also",
        key=f"{prefix}_mask",
        bind="query-params",
        placeholder="L3H5 L4H* F7 F2-5",
        help="`L3H5` is head 5 of layer 3, `L4H*` all heads of layer 4, `F7` the FFN of layer 7, `F2-5` those of four "
        "layers. They are pruned on top of the two levels.",
    )
