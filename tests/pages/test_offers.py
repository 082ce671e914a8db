"""A hub model that is not on this computer: a visit asks nobody, one click asks its size, a second one downloads it."""

import os
import time

import pytest

from engine.checkpoints import hub
from engine.errors import HeadroomError
from pages.ui.controls import offers
from tests import hub_stand_in as stand_in
from tests.pages.conftest import MEASURING, WAIT_S, button, command_of, figure, level, said, settled, slide

TINY = "someone/tiny"


@pytest.fixture
def served(tiny_opt, tmp_path, monkeypatch):
    repository = stand_in.Hub(stand_in.files_of(tiny_opt))
    with stand_in.served(repository) as address:
        stand_in.use(monkeypatch, address, tmp_path / "hub")
        yield repository


def click(at, label):
    next(each for each in at.button if each.label.startswith(label)).click()
    return at.run()


@pytest.mark.parametrize("screen", MEASURING)
def test_a_visit_asks_nobody(measures_ahead, screen, open_app, served):
    at = open_app(screen, model=TINY)
    assert "someone/tiny is not on this computer" in said(at)
    assert "bench_evaluate_task" not in [each.key for each in at.main.selectbox]
    assert [each.label for each in at.main.button].count("Look it up") == 1
    assert served.requests == []


def test_the_other_model_of_a_passage_is_offered_too(measures_ahead, open_app, served):
    at = open_app("text", against=f"{TINY}@step1000")
    assert "someone/tiny@step1000 is not on this computer" in said(at) and served.requests == []


@pytest.fixture
def rendered(monkeypatch):
    """Names of the tasks whose rows were downloaded, each of which fails."""
    from engine.questions import rendering

    asked = []

    def refuse(task, info, files):
        asked.append(task.name)
        raise HeadroomError("the stand-in has no rows")

    monkeypatch.setattr(rendering, "_render", refuse)
    return asked


def test_rows_are_fetched_once_somebody_agrees_in_that_tab(measures_ahead, open_app, served, rendered):
    there, here = open_app(task="boolq"), open_app(task="piqa")
    assert "the rows of task piqa are not on this computer" in said(here) and rendered == []
    here.toggle(key="fetch_tasks").set_value(True)
    click(settled(here), "Retry")
    assert "the stand-in has no rows" in said(settled(here)) and set(rendered) == {"piqa"}
    assert not settled(there).toggle(key="fetch_tasks").value
    click(there, "Retry")
    assert "the rows of task boolq are not on this computer" in said(settled(there)) and set(rendered) == {"piqa"}
    assert here.run().toggle(key="fetch_tasks").value, "the other tab keeps its own"


def test_two_clicks_bring_the_model(open_app, served):
    at = click(open_app(model=f"{TINY}@step1000"), "Look it up")
    offers.lookups().join(f"{TINY}@step1000", WAIT_S)
    n_asked = len(served.requests)
    assert "free on the disk" in said(at.run()) and f"To download from {hub.host()}" in said(at)
    at.run()
    assert len(served.requests) == n_asked  # told once, and not asked again
    click(at, "Download")
    offers.downloads().join(f"{TINY}@step1000", WAIT_S)
    settled(at)
    assert figure(at)[0].endswith("%") and not hub.is_away(f"{TINY}@step1000") and hub.is_away(TINY)
    assert f"--model {TINY}@step1000" in command_of(at)


def test_what_went_wrong_is_said_and_can_be_tried_again(open_app, served):
    at = click(open_app(model="someone/none"), "Look it up")
    offers.lookups().join("someone/none", WAIT_S)
    assert "'someone/none' does not exist on the Hub" in said(at.run())
    asked = len(served.requests)
    click(at, "Look it up")
    offers.lookups().join("someone/none", WAIT_S)
    assert len(served.requests) == asked + 1


def test_the_embedded_model_is_used_during_a_download(open_app, served):
    """And Cancel stops the bytes, and the next try fetches only the rest."""
    served.files["model.safetensors"] += os.urandom(1_000_000) * 50
    served.bytes_per_s = 5e5
    at = click(open_app(model=TINY), "Look it up")
    offers.lookups().join(TINY, WAIT_S)
    click(at.run(), "Download")
    while served.sent_bytes < 5e5:
        time.sleep(0.05)
    assert f"{TINY}: " in at.run().get("progress")[0].proto.text
    at.selectbox(key="model").set_value("demo")
    at.selectbox(key="task").set_value("demo_copy")
    before = figure(settled(at))
    slide(at, "heads", 60)
    assert level(settled(at), "heads") == 60 and figure(at) != before
    assert offers.downloads().running.key == TINY and hub.is_away(TINY)
    assert f"{TINY} is being downloaded" in [each.value for each in at.sidebar.caption]
    models = at.selectbox(key="model")
    models.options.append(TINY)  # as typed
    models.set_value(TINY)
    button(at.run(), "Cancel").click()
    at.run()
    offers.downloads().join(TINY, WAIT_S)
    time.sleep(0.5)  # what is on its way
    sent = served.sent_bytes
    time.sleep(0.5)
    assert served.sent_bytes == sent < 50e6
    offer = offers.offered(TINY)
    rest = offer.missing_bytes
    assert 0 < rest < offer.total_bytes and "are here already" in said(at.run())
    served.bytes_per_s = None
    click(at, "Download")
    offers.downloads().join(TINY, WAIT_S)
    assert served.sent_bytes - sent <= rest + stand_in.PIECE and not hub.is_away(TINY)
