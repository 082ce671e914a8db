"""The Sweeps screen: accuracy over many tasks, shot counts, levels and rankings, measured in the background."""

import time
from functools import partial

import streamlit as st

from engine.studies.sweeps import Swept, sweep
from pages.ui.prune.figure import downloads
from pages.ui.prune.tables import to_csv
from pages.ui.shared.closing import command_line
from pages.ui.shared.controls import choose_level
from pages.ui.shared.many_tasks import JUDGES, choose_tasks, setting_of, show_failed
from pages.ui.shared.runtime import jobs, models, require_frame, store
from pages.ui.shared.sidebar import chosen, identity, identity_slot
from pages.ui.shared.work import known_or_measured, live, unfinished_line, wait_for, watched
from pages.ui.sweeps.plans import SECTIONS, arguments, plan_of
from pages.ui.sweeps.sections import draw_section

require_frame("pages/sweeps.py")
HELP = (
    "Heads, FFNs: each task pruned by its own importance. Heads and FFNs: every pair of levels. Transfer: each task "
    "pruned by each other's ranking. Unseen tasks: pruned by a ranking they are no part of. Scored anew: importance is "
    "measured again before each step."
)

setup = chosen()
tasks = choose_tasks("sweeps", st.container(), setup.data_dir)
section_at, front_at, judges_at = st.columns([7, 3, 2], vertical_alignment="bottom")
section = section_at.segmented_control("What", list(SECTIONS), format_func=SECTIONS.get, default="heads", required=True,
                                       key="sweeps_what", bind="query-params", help=HELP)  # fmt: skip
names = list(dict.fromkeys(task.name for task in tasks))
front_name = front_at.selectbox("Task in front", names, key="sweeps_front", bind="query-params",
                                help="Drawn darker among the curves; the one that is scored anew.")  # fmt: skip
judges = judges_at.number_input("Questions", 1, value=JUDGES, step=16, key="sweeps_limit", bind="query-params",
                                help="Of each task's validation split. More of them, narrower intervals.")  # fmt: skip
permille = 500
if section == "transfer":
    level_at, _ = st.columns([1, 1])
    permille = choose_level(
        "sweeps", level_at, "level", "Attention heads pruned", "By each task's ranking in turn.", 50
    )
front = max((task for task in tasks if task.name == front_name), key=lambda task: task.shots)

identity(setup.spec)
model = wait_for(identity_slot(setup.spec), "Reading the model's files", partial(identity, setup.spec, again=True))
setting, plan = setting_of(setup, int(judges)), plan_of(section, tasks, front, permille)
since_s, slot = time.monotonic(), f"sweep {section}"
key = f"{setting} {model.digest} {hash(plan)}"
run = partial(sweep, models(), setting, plan.points, plan.pool, store())
stored, start = known_or_measured(slot, key, run)


def swept() -> Swept:
    """The rows there are now: of the running job, or of what is stored."""
    job = jobs().snapshot(slot)
    now = [job.value] if job is not None and job.key == key and job.value is not None else []
    return max([Swept(), *stored, *now], key=lambda each: (len(each.rows), len(each.failed)))


def draw() -> None:
    """What is measured so far, and how the measuring stands."""
    found = swept()
    missing = len(
        {point for point in plan.points if point.task not in found.failed} - {row.point for row in found.rows}
    )
    if not unfinished_line(slot, key, SECTIONS[section], start) and missing and st.button(
        f"Measure {missing:,} accuracies", icon=":material/timeline:", type="primary",
        help="In the background; what is finished is stored, whatever becomes of this page.",
    ):  # fmt: skip
        start(again=True)
        st.rerun()  # the whole page: only then is this part drawn again and again
    if found.rows and missing:
        st.caption(f"{len(found.rows):,} of {len(plan.points):,} accuracies are there.")
    show_failed(found.failed)
    charts, frames = draw_section(section, found.rows, front, permille)
    pictures.update(charts)
    tables.update({name: partial(to_csv, frame) for name, frame in frames.items()})


pictures, tables = {}, {}
live(watched(slot), draw, since_s)
words = ["--tasks", ",".join(names), "--shots", ",".join(str(count) for count in sorted({t.shots for t in tasks}))]
words += ["--limit", int(judges), *arguments(section, front.name, permille)]
line = command_line("sweep", setup.spec, setup.bos, setup.data_dir, words)
st.code(line, language="shell", wrap_lines=True)
downloads(tables, pictures)
