"""The bench: every measurement of the command line, as a form and its result."""

import streamlit as st

from engine.requests import REQUESTS, argv
from engine.requests.base import OfModel
from pages.ui.controls.controls import one_listed
from pages.ui.controls.model import wait_for_model
from pages.ui.controls.study import study
from pages.ui.downloads.actions import draw_command
from pages.ui.downloads.origin import about, command_line
from pages.ui.page.runtime import end_run, errors_shown, require_frame, session
from pages.ui.sections.form import MEASUREMENT, draw_form, label_of
from pages.ui.sections.section import Section, show

require_frame("pages/bench.py")
GROUPS = ("Pruning", "Scores", "Text", "Kinds of heads", "Training", "Checks")
SHOWS = "You will see what it finds in one sentence, with its charts and tables."
HELP = "Type a few letters to find one: its name, or a word of what it measures."

by_label = {label_of(each): each for group in GROUPS for each in REQUESTS if each.group == group}
measured = by_label[one_listed(st.container(), "Measurement", [*by_label], MEASUREMENT, help=HELP)]
target = wait_for_model(study(), prunes=True) if issubclass(measured, OfModel) else None
request = draw_form(measured, study(), target)
if request is None:
    end_run()
draw_command(command_line(request))
with errors_shown():
    of = target or request.target(session())
    section = Section(measured.command.capitalize(), request, of, SHOWS, "on request")
    show("bench", [section], about(of, " ".join(argv(request))))
