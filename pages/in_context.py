"""The In context screen: how much better later tokens of a text are predicted, what pruning leaves of that, and which
heads make it."""

import time
from dataclasses import replace
from functools import partial

import streamlit as st

from engine.heads.ablation import KINDS
from engine.heads.induction import recall_induction
from engine.models.masks import parse_mask
from engine.texts.incontext import MIN_TOKENS, texts_of
from engine.texts.passages import text_digest
from pages.ui.in_context import sections as incontext_sections
from pages.ui.in_context import setting as incontext
from pages.ui.in_context import tables as incontext_frames
from pages.ui.prune.figure import downloads
from pages.ui.prune.tables import to_csv
from pages.ui.shared.runtime import errors_shown, jobs, models, require_frame, store
from pages.ui.shared.sidebar import chosen, identity, identity_slot
from pages.ui.shared.work import AT_ONCE_S, known_or_measured, live, progress_line, unfinished_line, wait_for, watched

require_frame("pages/in_context.py")
setup = chosen()
with errors_shown():
    controls = incontext_sections.choose(setup.data_dir)
source = controls.source
if source is None:
    st.stop()

identity(setup.spec)
model = wait_for(identity_slot(setup.spec), "Reading the model's files", partial(identity, setup.spec, again=True))
with errors_shown():
    typed = parse_mask(controls.typed, model.shape)
digest = text_digest(source.text)
texts_key = f"{setup.spec} {model.digest} {setup.data_dir} {replace(source, text='')} {digest}"
making = partial(texts_of, models(), setup.spec, source, setup.data_dir, store())
make_texts = partial(jobs().submit, "incontext texts", texts_key, making)
make_texts()
jobs().join("incontext texts", AT_ONCE_S)
texts = wait_for("incontext texts", "Texts", partial(make_texts, again=True))
x = incontext.Setting(
    setup.spec, setup.bos, setup.data_dir, model, source, texts, controls.task, controls.ranking,
    controls.heads_permille, controls.ffns_permille, typed,
)  # fmt: skip
since_s = time.monotonic()
measure = partial(jobs().submit, "incontext", x.key, partial(incontext.measure, x, models(), store()))
measure()
jobs().join("incontext", AT_ONCE_S)


def measured() -> incontext.Measured:
    """What there is so far of this setting."""
    job = jobs().snapshot("incontext")
    return job.value if job is not None and job.key == x.key and job.value is not None else incontext.Measured()


def draw_scores() -> None:
    """The figures and the curves, redrawn while texts are measured."""
    found, job = measured(), jobs().snapshot("incontext")
    incontext_sections.figures(found, controls.around, incontext_frames.mask_in_words(model.shape, found.mask))
    if job is not None and job.key == x.key:
        progress_line("incontext", job, "Losses", partial(measure, again=True))
    else:
        st.caption("Another tab has taken over the measuring. Change any control to go on here.")
    if found.full:
        charts, frames = incontext_sections.curves(found)
        pictures.update(charts)
        tables.update({name: partial(to_csv, frame) for name, frame in frames.items()})


def attributions() -> dict:
    """{kind: Attribution} of most texts there is: of the running job, or of what is stored."""
    job = jobs().snapshot("incontext heads")
    now = [job.value] if job is not None and job.key == heads_key and job.value is not None else []
    return max([{}, *stored, *now], key=lambda each: len(each[KINDS[0]].base) if each else 0)


def draw_heads() -> None:
    """Which heads make the score, redrawn while they are ablated."""
    found, n_passes = attributions(), 2 * len(texts) * (model.shape.n_heads_total + 1)
    n_done = len(found[KINDS[0]].base) if found else 0
    unfinished = unfinished_line("incontext heads", heads_key, "Ablations", start)
    if not unfinished and n_done < len(texts) and st.button(
        f"Ablate {model.shape.n_heads_total:,} heads, one at a time", icon=":material/science:",
        help=f"{n_passes:,} passes over texts of {MIN_TOKENS} tokens, in the background, text by text. "
        "What is finished is shown and stored.",
    ):  # fmt: skip
        start(again=True)
        st.rerun()  # the whole page: only then is this part drawn again and again
    if n_done:
        now = measured()
        difference = [after - before for before, after in zip(*now.in_both, strict=True)]
        known = recall_induction(model, setup.spec, "olsson", 0, store())
        frame = incontext_frames.heads(model.shape, found, difference, kind, controls.around, now.mask, known)
        pictures.update(incontext_sections.head_section(frame, kind, len(texts)))
        tables["Heads"] = partial(to_csv, frame)


pictures, tables = {}, {}
live(["incontext"], draw_scores, since_s)
st.subheader("Which heads make it", help="Each head of the full model is ablated alone, and the score measured anew on "
             "the same texts: score without the head minus score with it, in nats.")  # fmt: skip
kind, fill = incontext_sections.choose_ablation()
heads_key = f"{x.base_key} {fill}"
run = partial(incontext.attributions, x, fill, models=models(), store=store())
if model.shape.n_ctx < MIN_TOKENS:
    st.info(f"This model reads {model.shape.n_ctx} tokens at once, and heads are ablated over {MIN_TOKENS}: choose a "
            "model with a longer window.", icon=":material/info:")  # fmt: skip
else:
    stored, start = known_or_measured("incontext heads", heads_key, run)
    live(watched("incontext heads"), draw_heads, since_s)
st.code(incontext.commands(x, measured().mask, kind, fill), language="shell", wrap_lines=True)
if x.source.kind == "text":
    st.caption("`text.txt` stands for your own text, saved as a file.")
tables["Scores by text"] = partial(incontext_frames.scores_csv, measured(), texts, controls.around)
downloads(tables, pictures)
