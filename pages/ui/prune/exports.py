"""Export this model: the pruned model as a folder that others load. Shows sizes first, then progress."""

import re
from functools import partial
from itertools import chain, count
from pathlib import Path

import streamlit as st

from engine.errors import HeadroomError
from engine.export.card import Exported
from engine.export.exporting import sizes
from engine.export.folders import named_folder, refuse_taken
from engine.models.masks import Mask
from engine.requests import ExportModel
from engine.views.pruned import exported_view
from pages.ui.controls.controls import one_of
from pages.ui.downloads.actions import draw_command
from pages.ui.downloads.origin import command_line, of_model, of_task
from pages.ui.page.defaults import SAMPLE
from pages.ui.page.runtime import session
from pages.ui.page.tables import mask_in_words, plain, whole_percent
from pages.ui.page.work import Action, Work
from pages.ui.prune.experiment import Experiment
from pages.ui.prune.state import PruneState
from pages.ui.prune.tables import UNRANKED

SLOT = "export"
PROPOSED = "prune export proposed"  # in the session: the usual folder of the model, and one that is free
NAMES = {"masked": "Masked", "small": "Small", "even": "Even"}
FORM_HELP = (
    "Masked: the stock architecture, in which pruned components write nothing; as large as before, loads everywhere. "
    "Small: pruned components are neither stored nor computed; comes with a modeling file, loaded with "
    "trust_remote_code. Even: smaller and stock, where whole layers go, or every layer of a model of Llama's shape "
    "keeps equally many heads."
)
FOLDER_HELP = "A new folder on the computer that runs this app. One that is there is never written to."


def draw_export(state: PruneState) -> None:
    """Draws the panel: form, folder, their sizes, the job, and how its result is loaded."""
    x, mask = state.x, state.mask
    if mask is None:
        st.caption(UNRANKED)
        return
    form_at, folder_at = st.columns(2, gap="medium", vertical_alignment="bottom")
    form = one_of(form_at, "Form", NAMES, "prune_export_form", FORM_HELP)
    usual = f"~/pruned-{re.sub(r'[^A-Za-z0-9.]+', '-', Path(x.target.spec.model).name).strip('-') or 'model'}"
    if st.session_state.get(PROPOSED, ("",))[0] != usual:  # once a model, which is then exported there
        st.session_state[PROPOSED] = usual, free_name(usual)
    default = str(st.session_state[PROPOSED][1])
    folder = folder_at.text_input("New folder", default, key="prune_export_folder", help=FOLDER_HELP)
    st.markdown(f"{mask_in_words(x.shape, mask)}.")
    request = ExportModel(
        **of_model(x.target), **of_task(x.task), task_data=x.data_dir, mask=mask.text(), form=form,
        out=folder, limit=x.limit, sample=SAMPLE,
    )  # fmt: skip
    steps = Action(f"{x.base_key} {request}", partial(request.steps, session(), mask))
    work, command = Work(SLOT, "Export", steps, 1), command_line(request)
    job = work.now()
    if work.line():
        return
    if job is not None and work.job_value is not None:
        _draw_exported(work.job_value, mask, command)
        return
    try:
        st.markdown(_describe_sizes(x, mask, form))
        refuse_taken(named_folder(folder))
    except HeadroomError as error:
        st.caption(plain(error))
        return
    work.offer("Export this model", "ios_share", "Writes the folder, loads it back and compares, in the background.")
    draw_command(command)


def free_name(folder: str) -> str:
    """Returns the folder, or with a number behind it if it exists already."""
    numbered = chain([folder], (f"{folder}-{number}" for number in count(2)))
    return next(each for each in numbered if not Path(each).expanduser().exists())


def _describe_sizes(x: Experiment, mask: Mask, form: str) -> str:
    """Returns the sizes before and after, as a sentence."""
    identity = x.target.identity
    before, after = sizes(identity, Mask.full(x.shape), "masked"), sizes(identity, mask, form)
    if before is None or after is None:
        return f"{identity.n_params:,} parameters with embeddings now; how many are left is known when it is written."
    (params_before, bytes_before), (params, n_bytes) = before, after
    if (params, n_bytes) == (params_before, bytes_before):
        return f"{params:,} parameters with embeddings, {n_bytes / 1e6:,.1f} MB on disk: as large as before."
    return (f"{params:,} of {params_before:,} parameters with embeddings, {n_bytes / 1e6:,.1f} of "
            f"{bytes_before / 1e6:,.1f} MB on disk (**{whole_percent(n_bytes / bytes_before)}**).")  # fmt: skip


def _draw_exported(made: Exported, mask: Mask, command: str) -> None:
    view = exported_view(made, mask)
    *notes, to_load = view.notes
    st.markdown(view.finding)
    st.text("\n".join(notes))
    st.code(to_load, language="python")
    draw_command(command)
