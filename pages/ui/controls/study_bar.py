"""The bar of the study, the same on all screens that measure: what is asked of which model, and what is pruned."""

import os
from contextlib import suppress
from typing import Any

import streamlit as st

from engine.errors import HeadroomError
from engine.importance.criteria import CRITERIA
from engine.importance.layers import LAYERS_BY
from engine.importance.orders import OF_ONE_TASK, Axis, n_components
from engine.importance.rankings import n_pruned
from engine.importance.rules import RULES
from engine.models.loading import PRECISIONS
from engine.models.masks import KEEP, Mask, parse_edits
from engine.questions.rendering import TaskSpec
from engine.questions.tasks import list_tasks
from engine.shapes import ModelShape
from pages.ui.controls.controls import one_listed, one_of
from pages.ui.controls.drag_slider import Field, draw_slider, level_field
from pages.ui.controls.first_views import suited
from pages.ui.controls.model import choose_models, config_soon, draw_facts, known_config
from pages.ui.controls.study import BOS, STUDY, Study, apply_settings, drawn_axis, restore
from pages.ui.controls.task import MENU, choose_task, draw_own_questions, take_fewer_examples
from pages.ui.page.address import MOST, current_value, flag, number_field, put_right
from pages.ui.page.defaults import LABELS, LABELS_HELP, LEVEL_HELP, LEVEL_NOUNS, LEVELS, ORDER, SHOT_COUNTS, SHOTS
from pages.ui.page.runtime import errors_shown, show_models
from pages.ui.page.screens import Bar
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import mask_counts, plain, pruned_counts
from pages.ui.page.widget_writes import hold
from pages.ui.page.work import FETCH_TASKS

ROW: dict[str, Any] = {"horizontal": True, "vertical_alignment": "bottom"}
SIDE = 360  # pixels: the width of each side of the menu
AXIS_NAMES: dict[Axis, str] = {"heads": "Heads", "ffns": "FFNs", "layers": "Layers"}
PRECISION_HELP = (
    "`int8` needs half the memory of bf16 (bitsandbytes, outlier threshold 6.0). On a CPU with 8-bit instructions "
    "(VNNI) it is also the fastest. `fp32` is the reference."
)
BOS_HELP = "Put before every question? By default as the tokenizer does. OPT was trained with it."
FOLDER_HELP = "A folder with `<task>/validation.jsonl` and `<task>/train.jsonl`. The included tasks need none."
FETCH_HELP = (
    "Lets this tab download the rows of a task from the Hugging Face Hub if they are neither on this computer nor in "
    "the folder above. After you switch it on, press “Retry” where rows were missing."
)
SAME_HELP = (
    "The same examples for all questions. The harness draws others for each: the same ones are several times as "
    "fast to score, but give other numbers than the harness."
)
LIMIT_HELP = (
    "Of the validation split, a stratified sample: right answers in the proportions of the whole, so that the first "
    "few are a fair preview. More questions, narrower interval."
)
MASK_HELP = (
    "`L3H5` is head 5 of layer 3, `L4H*` all heads of layer 4, `F7` the FFN of layer 7, `F2-5` those of four layers, "
    "`B5` all of layer 5. "
    "They are pruned on top of the levels. Components named after the word `keep` are never pruned: "
    "`keep L1H0`."
)
CHAT_HELP = (
    "As a chat: with the chat template of this model, as a message of the user that the assistant answers. For a task, "
    "its examples are earlier messages and answers."
)
LAYERS_HELP = (
    "Which layers go first, on this task's train questions. `influence`: those that turn the residual stream least, 1 "
    "- cosine of what enters and leaves (one pass). `oracle`: without which least accuracy is lost (a pass a layer). "
    "`greedy`: the same measured again on the remaining layers each time (a pass for each of them). "
    "`last-first`: the deepest. `random`: seeded, the baseline of every other."
)
BOXES = "bar boxes"  # in the session: where the bar's boxes are drawn
MOST_IN_SHORT = 16  # characters of a mask next to a level, and in the badge
MANY = "others"
PRUNED_HELP = "On all screens: {}"
RESTORE_HELP = "Prunes nothing any more: levels at 0, nothing named."


def draw_bar(seen: Bar) -> None:
    """Draws the row of controls, of which `study` returns the values; what is not `seen` is hidden, so that each screen
    keeps the study in its address. A screen draws the slider below it, by `draw_level` or, as Prune, in a part that
    follows it while it moves."""
    apply_settings()
    hidden = st.container(key="hidden study")
    row = st.container(key="study_bar", **ROW) if seen else hidden
    boxes, menu = row.container(**ROW), _menu(row).container(horizontal=True)
    model_at = menu.container(width=SIDE)
    mask_at = model_at if seen in ("study", "pruning") else hidden
    task_at, menu_at = (boxes, menu.container(width=SIDE)) if seen == "study" else (hidden, hidden)
    axis_at, more_at = (model_at.container(), hidden) if seen == "pruning" else (task_at, model_at)
    layers_at = mask_at if drawn_axis() == "layers" else hidden
    named: dict[str, str] = {each: each for each in PRECISIONS}
    precision = one_of(model_at, "Precision", named, "precision", PRECISION_HELP, default="int8", width="stretch")
    facts_at = model_at.container()
    spec, second = choose_models(boxes, mask_at, precision)
    if (config := known_config(spec)) is not None:
        draw_facts(facts_at, spec, config)
    show_models(*filter(None, [spec, second]))
    hold("mask")
    typed = mask_at.text_input(
        "Prune these as well",
        key="mask",
        bind="query-params",
        placeholder=config and f"such as {example_mask(config.shape)}",
        help=MASK_HELP,
    )
    layers_by = one_listed(layers_at, "Layers by", LAYERS_BY, "layers_by", help=LAYERS_HELP)
    bos = BOS[one_listed(model_at, "Beginning-of-sequence token", list(BOS), "bos", help=BOS_HELP)]
    data_dir = _choose_folder(more_at)
    task = _choose_task(task_at, menu_at, spec.is_demo, data_dir)
    axis = one_of(axis_at, "What to prune", AXIS_NAMES, "axis", None, width="content")
    first = OF_ONE_TASK.index(ORDER) if spec.is_demo else None
    help = f"{describe_order(current_value('order') or ORDER)} Choose another one for its description."
    ranking = one_listed(axis_at, "Pruning order", OF_ONE_TASK, "order", index=first, placeholder="…", help=help)
    limit = number_field(menu_at, "Questions", (1, MOST), "limit", value=100, step=50, help=LIMIT_HELP)
    is_chat = not spec.is_demo and _switch(mask_at, "Prompts as chats", "chat", CHAT_HELP)
    levels = {each: level_field(hidden, each, label) for each, label in LEVELS.items()}
    of = {"ranking": ranking or "", "layers_by": layers_by, "typed": typed, "is_chat": is_chat}
    st.session_state[BOXES] = boxes
    st.session_state[STUDY] = Study(spec, second, bos, data_dir, task, int(limit), axis, **levels, **of)


def _menu(where: DeltaGenerator) -> DeltaGenerator:
    """Draws the menu of the controls that are seldom changed; returns its inside. Unlike a popover, it keeps a value
    that the app writes into one of them while it is closed."""
    place = where.container(width=110, key="settings_menu study")
    return place.expander("Settings", icon=":material/tune:", key=MENU, on_change="rerun")


def _choose_folder(where: DeltaGenerator) -> str | None:
    """Draws the choice of the folder of task data, and of fetching tasks; returns the folder."""
    folder = where.text_input(
        "Task data folder",
        os.environ.get("HEADROOM_TASK_DATA", ""),
        key="data_dir",
        placeholder="the Hugging Face Hub",
        help=FOLDER_HELP,
        bind="query-params",
    )
    where.toggle("Fetch tasks", key=FETCH_TASKS, help=FETCH_HELP)  # not in the address: a link must not download
    return folder.strip() or None


def _choose_task(boxes: DeltaGenerator, menu: DeltaGenerator, is_demo: bool, data_dir: str | None) -> TaskSpec:
    """Draws the choice of the task, and of the examples in its prompts."""
    draw_own_questions(menu)  # first, as the list of tasks leads to them
    with errors_shown():
        available = [status.info.name for status in list_tasks(data_dir) if status.available]
    name = choose_task(boxes, suited(available, is_demo))
    take_fewer_examples()
    counts = {count: str(count) for count in SHOT_COUNTS}
    shots = one_of(boxes, "Examples (shots)", counts, "shots", None, default=SHOTS, width="content")
    same = _switch(menu, "Same examples for every question", "same", SAME_HELP)
    labels = one_of(menu, "Labels of the examples", LABELS, "labels", LABELS_HELP)
    return TaskSpec(name, int(shots), same_examples=bool(same and shots), labels=labels)


def bar_boxes() -> DeltaGenerator:
    """Returns where the bar's boxes are drawn, for those of a screen behind them."""
    return st.session_state[BOXES]


def draw_level(of: Study, where: DeltaGenerator) -> None:
    """Draws the slider."""
    config, named, texts = config_soon(of.spec), "", dict[int, str]()
    if config is not None:
        with suppress(HeadroomError):  # which is shown where the mask is used
            named = pruned_counts(parse_edits(of.typed, config.shape).alone)
        texts = _level_texts(of, config.shape)
    level = Field(of.axis, LEVELS[of.axis], of.percent(of.axis), where)
    order = "" if of.axis == "layers" else describe_order(of.ranking or ORDER).replace("`", "")
    help = f"{LEVEL_HELP[of.axis]} {order}".strip()
    draw_slider(level, help, texts, beside_level(of.typed, named))


def _level_texts(of: Study, shape: ModelShape) -> dict[int, str]:
    """Returns {percent: by what order a level prunes how much}, such as "by gradient: 4 of 48 heads"."""
    n = n_components(shape, of.axis)
    by = f"by {of.layers_by if of.axis == 'layers' else of.ranking or ORDER}"
    return {each: f"{by}: {n_pruned(10 * each, n)} of {n:,} {LEVEL_NOUNS[of.axis]}" for each in range(1, 101)}


def draw_pruned(where: DeltaGenerator, shape: ModelShape, mask: Mask | None) -> None:
    """Draws what is pruned, as a badge, and the button that restores it; nothing if the mask is not known yet."""
    if mask is None or mask.is_full:
        return
    named = f" ({plain(mask.text())})" if len(mask.text()) <= MOST_IN_SHORT else ""
    row = where.container(horizontal=True, vertical_alignment="center", gap="xxsmall")
    row.badge(
        f"Pruned: {mask_counts(shape, mask)}{named}",
        help=PRUNED_HELP.format(mask.text()),
        icon=":material/content_cut:",
        color="orange",
    )
    draw_restore(row)


def draw_restore(where: DeltaGenerator, **kwargs: Any) -> None:
    """Draws the button that restores what is pruned."""
    kwargs = {"type": "tertiary", "help": RESTORE_HELP, **kwargs}
    where.button("Restore", key="restore", on_click=restore, icon=":material/undo:", **kwargs)


def beside_level(typed: str, named: str) -> str:
    """Returns what a mask in text form changes, for next to a slider's label: "4 heads by name, L0H0 kept". `named`
    counts what it prunes, "" if that is not known."""
    pruned, _, kept = " ".join(typed.replace(",", " ").split()).partition(KEEP)
    pruned, kept = (MANY if len(names) > MOST_IN_SHORT else names.strip() for names in (pruned, kept))
    return ", ".join([f"{named or pruned} by name"] * bool(pruned) + [f"{kept} kept"] * bool(kept))


def describe_order(name: str) -> str:
    """Returns what a pruning order prunes first or, of a criterion, last."""
    first = "what matters least on the task's train questions. What matters" if name in CRITERIA else "these"
    return f"The order `{name}` prunes first {first}: {RULES.get(name, RULES[ORDER]).help}."


def example_mask(shape: ModelShape) -> str:
    """Returns the text of a mask that fits this model, such as "L1H3 L3H* F3"."""
    last = shape.n_layers - 1
    return f"L{last // 2}H{min(3, shape.n_heads - 1)} L{last}H* F{last}"


def _switch(where: DeltaGenerator, label: str, key: str, help: str) -> bool:
    put_right(key, label, flag)
    return where.checkbox(label, key=key, bind="query-params", help=help)
