"""The sidebar, on every page: model, precision, task data folder, state of the result store, and memory of the
process."""

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from engine.architecture.families import FAMILIES
from engine.architecture.family import supported_families
from engine.architecture.model_config import ModelConfig
from engine.checkpoints.config_lookup import read_model_config
from engine.checkpoints.conversion import unconverted
from engine.checkpoints.hub import is_away
from engine.checkpoints.identity import Identity
from engine.checkpoints.names import model_name, shipped_runs, short_name
from engine.errors import HeadroomError
from engine.kernels.cpu_kernels import Kernels
from engine.memory import resident_bytes
from engine.models.loading import PRECISIONS, LoadSpec, identify, known_ways, stamp, ways_of
from engine.models.masks import describe_fault
from engine.models.self_check import known_fault
from engine.models.session import Target, target_of
from engine.placement.placement import offered_config
from engine.progress import in_time
from engine.training.folders import Run, opened
from pages.ui.controls.controls import EXAMPLE, example_mask, one_listed, one_of, with_own
from pages.ui.controls.selection import compared, draw_against
from pages.ui.controls.study import BOS, Setup, chosen, restore
from pages.ui.page.address import current_value
from pages.ui.page.job_words import share_done
from pages.ui.page.marks import mark
from pages.ui.page.offers import is_here, offered, under_way
from pages.ui.page.runtime import end_run, in_memory, session, show_error, show_models, store, trainings
from pages.ui.page.tables import plain, whole_percent
from pages.ui.page.work import FETCH_TASKS, Action, Work

MODELS = ["demo", *(f"facebook/opt-{size}" for size in ("125m", "350m", "1.3b", "2.7b", "6.7b", "13b", "30b", "66b"))]
TO_TRY = {family.to_try: family.gigabytes for family in FAMILIES.values() if family.is_stock}
MODELS += [name for name in TO_TRY if name not in MODELS]
MODEL_HELP = (
    f"`demo` is included. Or type the Hugging Face id of an {supported_families()} model, optionally with a revision "
    "(`org/model@revision`): nothing is downloaded until you agree. Or type the path of a folder with config.json, "
    "tokenizer and weights, of a GGUF file, or of a snapshot of a training run (`RUN@step512`; `RUN` alone is the last "
    f"one). A small model of each family: {', '.join(f'`{name}` ({size:g} GB)' for name, size in TO_TRY.items())}."
)
PRECISION_HELP = (
    "`int8` needs half the memory of bf16 (bitsandbytes, outlier threshold 6.0). On a CPU with 8-bit instructions "
    "(VNNI) it is also the fastest. `fp32` is the reference."
)
MEMORY_HELP = (
    "Main memory when this page was drawn. The rest is libraries (about half a gigabyte once a model is loaded), "
    "running jobs and caches. Memory that a long job frees is returned to the system."
)
PLACES_HELP = (
    "The model is larger than one device, or HEADROOM_PLACE is set. All layers run on the same device, so results are "
    "the same; layers held elsewhere are copied there in every pass."
)
FETCH_HELP = (
    "Lets this tab download the rows of a task from the Hugging Face Hub if they are neither on this computer nor in "
    "the folder above. After you switch it on, press “Retry” where rows were missing."
)
BOS_HELP = "Put before every question? By default as the tokenizer does. OPT was trained with it."
FOLDER_HELP = "A folder with `<task>/validation.jsonl` and `<task>/train.jsonl`. The included tasks need none."
WAS_DEMO = "model was the demo"  # in the session
TRAINING_S = 2.0  # between redraws of the progress of a run
LONG_PATH = 28  # characters that fit into the sidebar next to the size
TUNING_S = 4.0  # about, to find the fastest kernels
IDENTIFY_WAIT_S = 1.0  # the demo takes a few milliseconds; a big folder is hashed once, in the worker


def identity_of(spec: LoadSpec) -> Work[Identity]:
    """Returns the work that identifies a model from its files, in a slot per model, as tabs may differ."""
    action = Action.of(f"identity {stamp(spec)}", partial(identify, spec, store()), reads=True)
    return Work(f"identity of {spec.model}", "Reading the model's files", action)


def wait_for_model(setup: Setup, spec: LoadSpec | None = None, prunes: bool = False) -> Target:
    """Returns the sidebar's model, or another one, ready to be measured; until its files are here and read, the page
    reports that and ends. With `prunes`, also if the model failed its self-check."""
    target = look_for_model(setup, spec or setup.spec) or end_run()
    if prunes and (fault := fault_here(target.spec, target.identity)):
        show_error(describe_fault(target.spec.model, fault))
        end_run()
    return target


def fault_here(spec: LoadSpec, identity: Identity) -> str:
    """Returns the self-check that a model failed here; "" if it passed, or has not been loaded yet."""
    return "" if spec.is_demo else known_fault(spec, identity, store())


def look_for_model(setup: Setup, spec: LoadSpec) -> Target | None:
    """Returns a model ready to be measured; None until its files are here and read, which is reported in its place."""
    if not is_here(spec):
        return None
    identity = identity_of(spec).awaited(0 if spec == setup.spec else IDENTIFY_WAIT_S)  # the sidebar has waited
    ways = None if identity is None else ways_here(spec, identity)
    return None if identity is None or ways is None else target_of(spec, identity, setup.bos, ways)


def ways_here(spec: LoadSpec, identity: Identity) -> Kernels | None:
    """Returns the kernels of this model's matrix products on this computer. The first time on a computer the worker
    measures them, which needs torch; until then that is reported and None is returned."""
    title, message = "Finding the fastest kernels", "finding the fastest kernels for this processor, once"
    action = Action.of("ways", partial(ways_of, spec, identity, store()), message)
    found = known_ways(spec, identity, store())
    return found or Work(f"ways of {spec.precision}", title, action, takes=lambda: TUNING_S).awaited(IDENTIFY_WAIT_S)


def draw_sidebar(compares: bool, is_training: bool = False) -> None:
    """Draws the sidebar; `chosen` and `wait_for_model` return its settings. `compares`: whether the open screen
    compares two models; `is_training`: whether it shows the training runs itself."""
    with st.sidebar:
        with st.container():
            if not is_training and trainings().running is not None:
                _draw_training()
        bound: dict[str, Any] = {"bind": "query-params"}
        names = with_own(here_first(MODELS), "model")
        bound["index"] = names.index("demo")  # whatever other tabs have opened
        bound["on_change"] = _restore_if_other_kind
        st.selectbox("Model", names, key="model", accept_new_options=True, help=MODEL_HELP, **bound)
        st.session_state[WAS_DEMO] = chosen().spec.is_demo
        named, where = {each: each for each in PRECISIONS}, st.container()
        one_of(where, "Precision", named, "precision", PRECISION_HELP, default="int8", width="stretch")
        _about(chosen().spec)
        show_models(chosen().spec, *filter(None, [compared(chosen().spec)]))
        draw_against(chosen().spec, here_first(MODELS), compares)
        if store().notice:
            st.warning(plain(store().notice), icon=":material/save:")
        _draw_more()
        mark("sidebar", "drawn")


@st.fragment(run_every=TRAINING_S)
def _draw_training() -> None:
    """Draws the progress of the run that is being trained, and a link to its charts."""
    job = trainings().running
    if job is not None:
        left = f", about {in_time(job.left_s)} left" if job.done and job.left_s is not None else ""
        st.progress(share_done(job), plain(f"{job.title}: {whole_percent(share_done(job))}{left}"))
        st.page_link("pages/training.py", label="Watch it learn", icon=":material/school:")


def _restore_if_other_kind() -> None:
    """Prunes nothing once the user leaves the demo model for another, or returns to it: the first figure is that of
    the full model."""
    if chosen().spec.is_demo != st.session_state.get(WAS_DEMO):
        restore()


@st.cache_resource(show_spinner=False)
def opened_here() -> dict[str, None]:
    """Returns the models that any tab has opened since the start, in order."""
    return {}


def here_first(names: list[str]) -> list[str]:
    """Returns the models that were opened, those of the names on this computer, the training runs, and other names."""
    known = dict.fromkeys([*opened_here(), *names, *shipped_runs()])
    return sorted(known, key=is_away)


def _draw_more() -> None:
    """Draws the folded settings that are rarely changed; those that differ from the default are named in the label."""
    folder = os.environ.get("HEADROOM_TASK_DATA", "")
    with st.expander(more_label(folder), key="sidebar_more"):
        one_listed(st.container(), "Beginning-of-sequence token", list(BOS), "bos", help=BOS_HELP)
        look: dict[str, Any] = {"placeholder": "the Hugging Face Hub", "help": FOLDER_HELP, "bind": "query-params"}
        st.text_input("Task data folder", folder, key="data_dir", **look)
        st.toggle("Fetch tasks", key=FETCH_TASKS, help=FETCH_HELP)  # not in the address: a link must not download
        draw_store()
        st.caption(memory_in_words(), help=MEMORY_HELP)


def more_label(folder: str) -> str:
    """Returns the label of the folded settings, such as "More: BOS off, data folder set"; `folder`: the default data
    folder."""
    bos, data_dir = (current_value(key).strip() for key in ("bos", "data_dir"))
    named = [f"BOS {bos}"] if BOS.get(bos) is not None else []
    named += ["data folder set"] if data_dir not in ("", folder) else []
    named += ["fetching tasks"] if st.session_state.get(FETCH_TASKS) else []
    return f"More: {', '.join(named)}" if named else "More"


def draw_store() -> None:
    """Draws the folder and the size of the store."""
    results = store()
    folder = str(results.directory)
    line = f"Results kept in {plain(short_path(folder))}: {results.counted_bytes() / 1e6:,.1f} MB"
    st.caption(line, help=f"{plain(folder)}. HEADROOM\\_CACHE sets another folder.")


def short_path(path: str) -> str:
    """Returns the path relative to the working directory or the home folder; its last two parts if that is long."""
    for top, short in ((os.getcwd(), ""), (os.path.expanduser("~"), f"~{os.sep}")):
        if path.startswith(f"{top}{os.sep}"):
            path = short + path.removeprefix(f"{top}{os.sep}")
    return path if len(path) <= LONG_PATH else os.path.join("…", *Path(path).parts[-2:])


def memory_in_words() -> str:
    """Returns the memory this process holds, such as "This app holds 0.8 GB: model 0.2, the rest 0.6"; of several
    models also which they are."""
    held, here = resident_bytes(), session().models.held
    if not here or here[0].device != "cpu":
        return f"This app holds {held / 1e9:.1f} GB"
    weights = sum(each.identity.weight_bytes(each.spec.precision) - each.placing.disk_bytes for each in here)
    model = f"{weights / 1e9:.1f}" if weights >= 0.05e9 else "under 0.1"
    models, names = ("model", "") if len(here) == 1 else ("models", ", ".join(each.spec.in_words for each in here))
    names = f" ({plain(names)})" if names else ""
    return f"This app holds {held / 1e9:.1f} GB: {models} {model}{names}, the rest {(held - weights) / 1e9:.1f}"


def _about(spec: LoadSpec) -> None:
    """Draws size, shape and load state of the model, or why it cannot be loaded."""
    if (coming := under_way()) not in ("", spec.model):
        st.caption(f"{coming} is being downloaded")
    if is_away(spec.model):
        st.caption(f"{spec.model} is not on this computer")
        with suppress(HeadroomError):  # its config is not known
            offer = offered(spec.model)
            _draw_summary(spec, read_model_config(spec.model) if offer is None else offered_config(offer))
        return
    if unconverted(spec.model, store()) is not None:
        st.caption(f"{plain(short_name(spec.model))} has to be converted first")
        return
    work = identity_of(spec)
    work.value(IDENTIFY_WAIT_S)
    found = work.now()
    if found is not None and found.error:
        show_error(found.error)
        if st.button("Retry", icon=":material/refresh:", help="After the folder or the network is fixed."):
            work.restart()
            st.rerun()
    elif found is None or found.value is None:
        st.caption(f"Reading the files of {plain(spec.model)} …")
    else:
        about = found.value
        opened_here()[spec.model] = None
        st.session_state[EXAMPLE] = f"such as {example_mask(about.shape)}"
        _draw_summary(spec, about.model_config, "In memory" if in_memory(spec) else "Loads when needed")
        if fault := fault_here(spec, about):
            st.warning(f"Can be read but not pruned: {plain(fault)}", icon=":material/lock:")
        if snapshot := snapshot_in_words(spec):
            which, _, made = snapshot.partition("; ")
            st.caption(plain(which), help=plain(f"{made[:1].upper()}{made[1:]}."))


def _draw_summary(spec: LoadSpec, model: ModelConfig, state: str = "") -> None:
    """Draws what a model takes here: its size, and on hover memory; where its layers lie if that is several places."""
    found = session().summary(spec, model)
    first, *others = found.lines
    st.caption(plain(first), help="\n\n".join(plain(line) for line in [*others, state]))
    if found.placement is not None and not found.placement.is_whole:
        placed = found.placement.in_words()
        st.caption(f"{placed[0].upper()}{placed[1:]}", help=PLACES_HELP)


def snapshot_in_words(spec: LoadSpec) -> str:
    """Describes which snapshot of a run this is, and how the run was made; "" for any other model, or if unknown."""
    try:
        name = model_name(spec.model)
        if not name.run or name.folder is None:
            return ""
        run = opened(name.folder.parent)
        step, last = int(name.revision.removeprefix("step")), run.steps()[-1]
        read = f"{run.tokens(step) / 1e6:.2f} M tokens read"
    except HeadroomError:
        return ""
    which = f"Snapshot {name.revision}, the run's last" + ("" if step == last else f" is step{last}")
    empty = " (its FFNs are zeros)" if isinstance(run, Run) and not run.recipe.mlp else ""
    return f"{which}; {read}. {run.label}{empty}"
