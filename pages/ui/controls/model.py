"""The model of the study: its choice, what it takes on this computer, and the model itself once its files are read."""

from contextlib import suppress
from functools import partial

import streamlit as st

from engine.architecture.families import FAMILIES
from engine.architecture.family import supported_families
from engine.architecture.model_config import ModelConfig
from engine.checkpoints.config_lookup import read_model_config
from engine.checkpoints.conversion import unconverted
from engine.checkpoints.hub import is_away
from engine.checkpoints.identity import Identity
from engine.checkpoints.names import model_name, shipped_runs
from engine.errors import HeadroomError
from engine.kernels.cpu_kernels import Kernels
from engine.models.loading import PRECISIONS, LoadSpec, identify, known_ways, stamp, ways_of
from engine.models.masks import describe_fault
from engine.models.self_check import known_fault
from engine.models.session import Target, target_of
from engine.placement.placement import offered_config
from engine.training.folders import Run, opened
from engine.views.words import capitalized
from pages.ui.controls.controls import with_own
from pages.ui.controls.offers import is_here, offered
from pages.ui.controls.study import STUDY, Study, restore
from pages.ui.page.runtime import end_run, session, show_error, store
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import plain
from pages.ui.page.work import Action, Work

MODELS = ["demo", *(f"facebook/opt-{size}" for size in ("125m", "350m", "1.3b", "2.7b", "6.7b", "13b", "30b", "66b"))]
TO_TRY = {family.to_try.model: family.to_try.gigabytes for family in FAMILIES.values() if family.to_try}
MODELS += [name for name in TO_TRY if name not in MODELS]
MODEL_HELP = (
    f"`demo` is included. Or type the Hugging Face id of an {supported_families()} model, optionally with a revision "
    "(`org/model@revision`): nothing is downloaded until you agree. Or type the path of a folder with config.json, "
    "tokenizer and weights, of a GGUF file, or of a snapshot of a training run (`RUN@step512`; `RUN` alone is the last "
    f"one). A small model of each family: {', '.join(f'`{name}` ({size:g} GB)' for name, size in TO_TRY.items())}."
)
COMPARE = "Compare with"
COMPARE_HELP = (
    "A second model next to this one on Prune and Text, on the same questions: another "
    "precision (`fp32`), revision or snapshot (`@step512`), or another model (a Hub id or a folder, optionally with "
    "its precision: `demo in fp32`). × removes it."
)
PLACES_HELP = (
    "The model is larger than one device, or HEADROOM_PLACE is set. All layers run on the same device, so results are "
    "the same; layers held elsewhere are copied there in every pass."
)
TUNING_S = 4.0  # about, to find the fastest kernels
IDENTIFY_WAIT_S = 1.0  # the demo takes a few milliseconds; a big folder is hashed once, in the measuring thread


def choose_models(where: DeltaGenerator, second_at: DeltaGenerator, precision: str) -> tuple[LoadSpec, LoadSpec | None]:
    """Draws the choice of the model and of one that it is compared with; returns the first in this precision, and the
    second, or None if there is none or it cannot be meant."""
    listed = here_first(MODELS)
    names = with_own(listed, "model")
    name = where.selectbox(
        "Model",
        names,
        index=names.index("demo"),  # whatever tabs opened
        key="model",
        help=MODEL_HELP,
        on_change=_restore_if_other_kind,
        accept_new_options=True,
        bind="query-params",
    )
    spec = LoadSpec((name or "demo").strip(), precision)
    others = [*(each for each in PRECISIONS if each != precision), *(each for each in listed if each != spec.model)]
    typed = second_at.selectbox(
        COMPARE,
        with_own(others, "against"),
        index=None,
        key="against",
        help=COMPARE_HELP,
        placeholder="none",
        accept_new_options=True,
        bind="query-params",
    )
    try:
        return spec, spec.compared_with(typed) if typed and typed.strip() else None
    except HeadroomError as error:
        show_error(f"{COMPARE}: {error}")
        return spec, None


def _restore_if_other_kind() -> None:
    """Prunes nothing once the user leaves the demo model for another, or returns to it: the first figure is that of
    the full model."""
    before = st.session_state.get(STUDY)  # none after a folder of tasks that cannot be read
    if before is not None and before.spec.is_demo != (st.session_state.get("model") == "demo"):
        restore()


@st.cache_resource(show_spinner=False)
def opened_here() -> dict[str, None]:
    """Returns the models that any tab has opened since the start, in order."""
    return {}


def here_first(names: list[str]) -> list[str]:
    """Returns the models that were opened, those of the names on this computer, the training runs, and other names."""
    known = dict.fromkeys([*opened_here(), *names, *shipped_runs()])
    return sorted(known, key=is_away)


def identity_of(spec: LoadSpec) -> Work[Identity]:
    """Returns the work that identifies a model from its files, in a slot per model, as tabs may differ."""
    action = Action.of(f"identity {stamp(spec)}", partial(identify, spec, store()), reads=True)
    return Work(f"identity of {spec.model}", "Reading the model's files", action)


def wait_for_model(of: Study, spec: LoadSpec | None = None, prunes: bool = False) -> Target:
    """Returns the study's model, or another one, ready to be measured; until its files are here and read, the page
    reports that and ends. With `prunes`, also if the model failed its self-check."""
    target = look_for_model(of, spec or of.spec) or end_run()
    if prunes and (fault := fault_here(target)):
        show_error(describe_fault(target.spec.model, fault))
        end_run()
    return target


def fault_here(target: Target) -> str:
    """Returns the self-check that a model failed here; "" if it passed, or has not been loaded yet."""
    return "" if target.spec.is_demo else known_fault(target.spec, target.identity, store())


def look_for_model(of: Study, spec: LoadSpec) -> Target | None:
    """Returns a model ready to be measured; None until its files are here and read, which is reported in its place."""
    if not is_here(spec):
        return None
    identity = identity_of(spec).awaited(IDENTIFY_WAIT_S)
    if identity is None:
        return None
    opened_here()[spec.model] = None
    ways = ways_here(spec, identity)
    return None if ways is None else target_of(spec, identity, of.bos, ways)


def ways_here(spec: LoadSpec, identity: Identity) -> Kernels | None:
    """Returns the kernels of this model's matrix products on this computer. They are measured once on
    a computer, which needs torch; until then that is reported and None is returned."""
    title, message = "Finding the fastest kernels", "finding the fastest kernels for this processor, once"
    action = Action.of("ways", partial(ways_of, spec, identity, store()), message)
    found = known_ways(spec, identity, store())
    return found or Work(f"ways of {spec.precision}", title, action, takes=lambda: TUNING_S).awaited(IDENTIFY_WAIT_S)


def known_config(spec: LoadSpec) -> ModelConfig | None:
    """Returns the config of a model, also of one that is not on this computer; None if it is not known yet."""
    if is_away(spec.model):
        with suppress(HeadroomError):
            offer = offered(spec.model)
            return read_model_config(spec.model) if offer is None else offered_config(offer)
        return None
    found = None if unconverted(spec.model, store()) is not None else identity_of(spec).now()
    return None if found is None or found.value is None else found.value.model_config


def config_soon(spec: LoadSpec) -> ModelConfig | None:
    """Returns what `known_config` does, and waits a moment for a model on this computer."""
    if not is_away(spec.model) and unconverted(spec.model, store()) is None:
        identity_of(spec).value()
    return known_config(spec)


def draw_facts(where: DeltaGenerator, spec: LoadSpec, config: ModelConfig) -> None:
    """Draws what a model takes here: its size, and on hover memory; where its layers lie if that is several places;
    and which snapshot of a training run it is."""
    found = session().summary(spec, config)
    first, *others = found.lines
    state = "" if is_away(spec.model) else "In memory" if session().models.holds(spec) else "Loads when needed"
    where.caption(plain(first), help="\n\n".join(plain(line) for line in [*others, state]))
    if found.placement is not None and not found.placement.is_whole:
        placed = found.placement.in_words()
        where.caption(capitalized(placed), help=PLACES_HELP)
    if snapshot := snapshot_in_words(spec):
        which, _, made = snapshot.partition("; ")
        where.caption(plain(which), help=plain(f"{capitalized(made)}."))


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
