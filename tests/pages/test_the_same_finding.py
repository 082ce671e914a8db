"""A result says the same finding in the terminal, on a screen, in a notebook, and in the report of a paper study."""

import shlex
from dataclasses import replace

import pytest

from engine.__main__ import main
from engine.requests import CompareCriteria, Correlate, Evaluate, ScoreImportance, Sweep, argv
from engine.studies.paper_study import PaperStudy
from engine.views.view import plain_text
from pages.ui.paper_report import figures
from tests.pages.conftest import said, settled

TASK = {"task": "demo_copy", "limit": 4}
MANY = {"tasks": "demo_copy,demo_outfit", "shots": "0", "order_questions": 4}
ASKED = {
    "evaluate": Evaluate(**TASK, mask="L0H1"),
    "importance": ScoreImportance(**TASK, out="out.csv"),
    "compare": CompareCriteria(
        **TASK, criteria="weight", levels="0,50", random_orders=1, order_questions=4, out="out.csv"
    ),
    "correlate": Correlate(**MANY, out="out.csv"),
    "sweep": Sweep(**MANY, limit=4, head_levels="0,50,100", out="out.csv"),
}
IN_A_STUDY = {"correlate": lambda value: {"heads": value}, "sweep": lambda value: {"curves": {"heads": value}}}


def draw():
    import shlex

    import streamlit as st

    from engine.cli import parser
    from engine.cli.options import request_of
    from pages.ui.page.runtime import session
    from pages.ui.sections.section import Section, show

    st.session_state["heading"] = st.empty()  # which app.py draws, and the place next to it
    st.session_state["actions"] = st.container()
    request = request_of(parser().parse_args(shlex.split(st.query_params["command"])))
    show("bench", [Section("It", request, request.target(session()), "", "at once")], "a model")


@pytest.mark.slow("measures a small study")
@pytest.mark.parametrize("name", ASKED)
def test_the_finding_is_the_same_everywhere(name, open_part, tiny_opt, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    request = replace(ASKED[name], model=str(tiny_opt), precision="fp32")
    result = request.run()
    finding = plain_text(result.view.finding)
    assert finding and finding in result._repr_html_() and str(result).startswith(finding)
    capsys.readouterr()
    assert main(argv(request)) == 0 and capsys.readouterr().out.startswith(finding)
    at = settled(open_part(draw, command=shlex.join(argv(request))))
    assert result.view.finding in said(at)
    if name in IN_A_STUDY:
        study = PaperStudy(tuple(request.grid()), request.settings(4), **IN_A_STUDY[name](result.value))
        assert finding in [caption for _, caption, _ in figures(study)]
