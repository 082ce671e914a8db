"""The sidebar, on every page: which model in which precision, where task data lie, and how the result store does."""

import os
from dataclasses import dataclass

import streamlit as st

from engine.jobs import Progress, Snapshot
from engine.models.checkpoints import Identity
from engine.models.loading import PRECISIONS, LoadSpec, identify
from pages.ui.shared.controls import with_own
from pages.ui.shared.runtime import jobs, models, show_error, store

MODELS = ["demo", *(f"facebook/opt-{size}" for size in ("125m", "350m", "1.3b", "2.7b", "6.7b", "13b", "30b", "66b"))]
BOS = {"model's own": None, "on": True, "off": False}
IDENTIFY_WAIT_S = 1.0  # the demo takes a few milliseconds; a big folder is hashed once, in the worker


@dataclass(frozen=True)
class Setup:
    """What the sidebar is set to. `bos` None = as the model's own tokenizer does."""

    spec: LoadSpec
    bos: bool | None
    data_dir: str | None


def chosen() -> Setup:
    """The sidebar's present settings."""
    state = st.session_state
    spec = LoadSpec(model=(state.get("model") or "demo").strip(), precision=state.get("precision") or "int8")
    return Setup(spec, BOS.get(state.get("bos")), (state.get("data_dir") or "").strip() or None)


def identity_slot(spec: LoadSpec) -> str:
    """The job slot in which `identity` works; one for each model, as tabs may differ."""
    return f"identity of {spec.model}"


def identity(spec: LoadSpec, again: bool = False) -> Snapshot:
    """The job that finds out what a model is from its files; its value is an `Identity`."""

    def find():
        yield Progress(1, 1, identify(spec, store()))

    submitted = jobs().submit(identity_slot(spec), "identity", find, again=again)
    return jobs().join(identity_slot(spec), IDENTIFY_WAIT_S) or submitted


def draw_sidebar() -> None:
    """Draws the sidebar; `chosen` and `identity` give what it says."""
    with st.sidebar:
        st.title("Headroom")
        st.selectbox(
            "Model",
            with_own(MODELS, "model"),
            key="model",
            bind="query-params",
            accept_new_options=True,
            help="`demo` comes with the app. Or type the Hugging Face id of an OPT, Llama, GPT-2 or GPT-NeoX "
            "model, or the path of a folder with config.json, tokenizer and weights.",
        )
        st.segmented_control(
            "Precision",
            PRECISIONS,
            default="int8",
            key="precision",
            bind="query-params",
            required=True,
            width="stretch",
            help="`int8` halves the memory of bf16 (bitsandbytes, outlier threshold 6.0). Without a GPU "
            "it saves memory, not time. `fp32` is the reference.",
        )
        _about(chosen().spec)
        st.selectbox(
            "Beginning-of-sequence token",
            list(BOS),
            key="bos",
            bind="query-params",
            help="Put in front of every question? OPT was trained with it; Bansal et al. left it off.",
        )
        st.text_input(
            "Task data folder",
            value=os.environ.get("HEADROOM_TASK_DATA", ""),
            key="data_dir",
            bind="query-params",
            placeholder="from the Hugging Face hub",
            help="A folder with `<task>/validation.jsonl` and `<task>/train.jsonl`. The embedded tasks need none.",
        )
        _about_store()


def _about(spec: LoadSpec) -> None:
    """Size, shape and load state of the model, or why it cannot be had."""
    found = identity(spec)
    if found.error:
        show_error(found.error)
        if st.button("Look again", icon=":material/refresh:", help="After the folder or the network was put right."):
            identity(spec, again=True)
            st.rerun()
    elif not isinstance(found.value, Identity):
        st.caption(f"Reading the files of {spec.model} …")
    else:
        about = found.value
        loaded = models().loaded
        state = ":green-badge[in memory]" if loaded and loaded.spec == spec else ":gray-badge[loads when needed]"
        st.caption(
            f"{about.family}, {about.n_params / 1e6:,.1f} M parameters, "
            f"{about.shape.n_layers} layers × {about.shape.n_heads} heads, "
            f"{about.weight_bytes(spec.precision) / 1e6:,.1f} MB  \n{state}"
        )


def _about_store() -> None:
    results = store()
    if results.notice:
        st.warning(results.notice, icon=":material/save:")
    st.caption(f"Results kept in cache/: {results.size_bytes() / 1e6:,.1f} MB")
