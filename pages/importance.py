"""The Importance screen: which heads and FFNs a model needs, for every task and shot count."""

import time
from functools import partial
from typing import Any

import streamlit as st

from engine.measurement import Measurement
from engine.requests import Correlate, ScoreImportance
from engine.studies.surveys import Survey, survey
from pages.ui.controls.controls import one_of
from pages.ui.controls.many_tasks import (
    FirstMeasured,
    choose_tasks,
    demo_view,
    importance_work,
    partly,
    reserve_finding,
    setting_of,
    show_failed,
    so_far,
    start_first_view,
    survey_line,
)
from pages.ui.controls.sidebar import wait_for_model
from pages.ui.controls.study import chosen
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin, about, of_grid, of_model, of_task, tasks_in_words
from pages.ui.figures.empty import empty_state, reading_state
from pages.ui.figures.sheet import Sheet
from pages.ui.importance import sections
from pages.ui.importance.tables import EVEN, GRADIENTS_HELP, NAMES, ORACLE, ORACLE_HEADS
from pages.ui.page.defaults import RANKING_QUESTIONS as N
from pages.ui.page.defaults import SAMPLE
from pages.ui.page.runtime import end_run, require_frame
from pages.ui.page.work import live

require_frame("pages/importance.py")
SHORT = {ORACLE: "Measured", **NAMES}
WHAT_HELP = f"{GRADIENTS_HELP} Measured: accuracy lost when just that head is pruned, which gradients estimate."
WHAT = "importance_what"
IS_READ = "importance is read"
KINDS = {"heads": "Heads", "ffns": "FFNs"}
SHOWS = "You will see a map for each task."
FIRST = {"heads": FirstMeasured("Measure importance of heads", "primary"), "ffns": FirstMeasured("Measure FFNs")}

setup, finding_at = chosen(), reserve_finding("finding")
tasks = choose_tasks("importance", st.container(), setup)
if setup.spec.is_demo and not st.session_state.get(IS_READ):  # of another model, more is said below
    finding_at = finding_at.markdown("Reading the stored results.")  # replaced by the finding
first = sections.first_score(setup, tasks, WHAT)
score_at, side_at = st.columns(2, vertical_alignment="bottom")
what = one_of(score_at, "Head score", SHORT, WHAT, WHAT_HELP, default=first)

target = wait_for_model(setup, prunes=True)
since_s, setting, n_heads = time.monotonic(), setting_of(setup), target.shape.n_heads_total
by_kind = {"heads": what, "ffns": "ffns"}
works = {
    kind: importance_work(setting, target, tasks, by, f"importance {kind}", KINDS[kind])
    for kind, by in by_kind.items()
    if by != ORACLE or n_heads <= ORACLE_HEADS
}
found = {kind: so_far(works[kind]) if kind in works else Survey() for kind in KINDS}
missing = [work for kind, work in works.items() if found[kind].n_known < len(tasks)]
if reading := [work for work in missing if work.is_first_read]:
    asked = "heads removed one by one" if what == ORACLE else SHORT[what]
    finding_at.markdown(f"Reading the stored results of {asked} and of FFNs.")
    with reading_state(*(("losses", "heads") if what == ORACLE else ("heads",) * max(2, min(3, len(tasks))))):
        live([slot for work in reading for slot in work.watched()], reading[0].reading_line, since_s)
    end_run()
if what == EVEN:
    start_first_view(setup, tasks, missing)


def draw_work(kind: str) -> None:
    """Draws, for heads or for FFNs, the progress or the button that measures what is missing."""
    if kind not in works:
        st.info(sections.TOO_MANY.format(n_heads), icon=":material/info:")
        return
    work = works[kind]
    line = partial(survey_line, work, len(tasks), found[kind], since_s, FIRST[kind])
    with st.container(width="stretch" if work.under_way else "content"):
        live(work.watched(), line, since_s)


scores = found["heads"].preview(tasks)
is_empty = not scores and not any(each.n_known for each in found.values())
with empty_state("maps", SHOWS, True, demo_view("importance", setup)) if is_empty else side_at:
    draw_work("heads")
    if is_empty and not ("heads" in works and works["heads"].under_way):  # the progress needs the width
        draw_work("ffns")
show_failed({**found["heads"].failed, **found["ffns"].failed})
sheet = Sheet()
means = sections.setting_by(setting, what)
shown = sections.HeadMaps(target, means, scores, what)
joint, of_heads, trust = dict[str, Measurement[Any]](), list[str](), ""
width, map_at, map_of, ffns_at, measured = 1.0, None, None, None, ""
if shown.scores:
    together, loss = list[str](), sections.joint_loss(shown, setup)
    if loss or shown.has_one_map:
        width, (left, right) = 0.5, st.columns(2, gap="medium")
        map_at, ffns_at = (right, left) if loss else (left, right)
    with map_at or st.container():
        words, trust_at, map_of = sections.draw_heads(shown, sheet, loss, width)
        sections.draw_best(shown)
    if what != ORACLE and n_heads > ORACLE_HEADS:
        removed_at, ffns_at = st.columns(2, gap="medium")
        with removed_at:
            measured, joint = sections.draw_removed(shown, setup, sheet, since_s)
    if loss:
        joint = {"Without the induction heads": loss.measured}
        with ffns_at or st.container():
            together = [sections.draw_joint(shown, loss, sheet, map_of)]
    of_heads = [measured or words, *together]
if not is_empty:
    with ffns_at or st.container():
        sections.draw_ffns(setting, found["ffns"].scores, sheet, partial(draw_work, "ffns"), map_of, width)
says = [*partly(found["heads"], tasks), *of_heads]
finding_at.markdown(" ".join(says))
st.session_state[IS_READ] = True
if shown.scores:
    trust = words if measured else sections.draw_oracle(shown, tasks, sheet, since_s)
    if trust and trust_at is not None:
        trust_at.caption(trust)
sheet.says[:0] = [*says, *filter(None, [trust])]
model = dict[str, Any](of_model(target), task_data=setup.data_dir)
requests = [
    ScoreImportance(**model, **of_task(tasks[0]), score=what, limit=N, sample=SAMPLE, out="heads.csv"),
    Correlate(**model, **of_grid(tasks), score=what, aggregate=means.aggregate, out="all-tasks.csv"),
]
measurements = {KINDS[kind]: survey(target, setting, tasks, by_kind[kind]) for kind in KINDS} | joint
of = about(target, tasks_in_words(tasks), f"{N} train questions each", "the full model")
closing(Origin("Importance", requests, measurements, of), sheet)
