"""A section is drawn in one way, from "not measured" to its finding, whatever it measures."""

import io
import zipfile

import pytest

from engine.requests import MeasurePerplexity
from engine.requests.running import Result
from engine.views.view import Part, View
from pages.ui.downloads import actions
from pages.ui.downloads.exports import to_html, to_notebook, to_zip
from pages.ui.page import runtime
from tests.pages.conftest import WAIT_S, Gate, labels, press, said, settled

SAYS, ROWS = "**It is 2 nats** here.", [{"head": "L0H1", "nats": 2.0}]


def draw():
    import streamlit as st

    from engine.models.loading import LoadSpec
    from engine.requests import MeasurePerplexity
    from pages.ui.page.runtime import session
    from pages.ui.sections.section import Section, show

    st.session_state["actions"] = st.container()  # which app.py draws
    asked, model = st.query_params, st.query_params["model"]
    request = MeasurePerplexity(model=model, precision="fp32", passage="The ferry", mask=asked.get("mask", ""))
    target = session().target(LoadSpec(model, "fp32"))
    section = Section("Made up", request, target, "You will see it.", asked.get("starts"), "folded" in asked)
    show("bench", [section], "a model")


@pytest.fixture
def files(monkeypatch):
    """What the screen hands to its downloads."""
    found = []
    monkeypatch.setattr(actions, "_draw", lambda files, link: found.append(files))
    return found


@pytest.fixture
def opened(open_part, tiny_opt, monkeypatch):
    """Draws a section with a view of two parts."""
    measure = MeasurePerplexity.measure

    def seen(self, run):
        view = View(SAYS, [Part("First", ROWS), Part("Second", ROWS)], ["A note * here."])
        return Result(measure(self, run).value, {}, view)

    monkeypatch.setattr(MeasurePerplexity, "measure", seen)
    return lambda **asked: settled(open_part(draw, model=str(tiny_opt), **({"starts": "on request"} | asked)))


def test_it_waits_for_a_click_and_shows_its_view(opened, files):
    at = opened()
    assert "You will see it." in said(at) and not at.dataframe
    at = press(at, "Measure")
    assert SAYS in said(at) and len(at.dataframe) == 2 and [each.value for each in at.text] == ["A note * here."]
    made = files[-1]
    assert made.sheet.says == [SAYS, r"A note \* here."] and list(made.sheet.tables) == ["First", "Second"]
    assert made.sheet.table("First") == b"head,nats\nL0H1,2.0\n"
    assert made.receipts()[0].n >= 1
    assert b"It is 2 nats" in to_html(made) and b"MeasurePerplexity" in to_notebook(made)
    names = zipfile.ZipFile(io.BytesIO(to_zip(made))).namelist()
    assert {"first.csv", "second.csv", "command.txt", "program.py", "receipt.json"} <= {*names}


def test_a_slide_has_its_finding_and_its_first_part(opened, files):
    press(opened(), "Measure")
    made = files[-1]
    [(title, names)] = made.sheet.findings("Bench").items()
    assert title == "It is 2 nats here." and names == []
    slide = actions.make_slide(made, title, names, "/bench")
    assert slide.table == (("head", "nats"), ("L0H1", "2.0")) and slide.about.startswith("a model · saved 20")


@pytest.mark.parametrize("starts", ["at once", "if short"])
def test_it_is_measured_by_itself(measures_ahead, starts, opened):
    assert SAYS in said(opened(starts=starts))


def test_it_is_folded_until_it_is_opened(opened):
    at = opened(folded="1")
    assert [each.label for each in at.expander] == ["Made up"] and not any("Measure" in each for each in labels(at))
    assert any("Measure" in each for each in labels(opened(folded="1", section_made_up="true")))


def test_what_cannot_be_meant_is_said_before_a_click(opened):
    at = opened(mask="L99H0")
    assert "L99H0" in at.error[0].value and not any("Measure" in each for each in labels(at))


def test_it_is_canceled_and_resumed(opened):
    at, gate = opened(), Gate()
    gate.occupy()
    next(each for each in at.button if each.label.startswith("Measure")).click().run()
    assert "Cancel" in labels(at)
    next(each for each in at.button if each.label == "Cancel").click().run()
    gate.go_on.set()
    runtime.jobs().join("gate", WAIT_S)
    assert "Resume" in labels(settled(at)) and SAYS in said(press(at, "Resume"))
