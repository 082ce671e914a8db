"""The first screen waits for no library of the measuring thread's: not to be drawn, and not to show what is stored."""

import json
import os

import pytest

from tests.test_imports_go_one_way import HEAVY
from tests.warm import WarmInterpreter

OPEN = """
import json, os, sys, threading, time
from engine.lanes import Lanes
from engine.slots import FINISHED
let_work, work = threading.Event(), Lanes._work
Lanes._work = lambda self, lane: let_work.wait() and work(self, lane)
heads, free = sys.argv[1:]
if free == "free":
    let_work.set()
from streamlit.testing.v1 import AppTest
from pages.ui.page.runtime import jobs, store

def told():
    words = [each.label for kind in (at.selectbox, at.number_input, at.text_input) for each in kind]
    parts = [each.proto.component_name for each in at.get("bidi_component")]
    sliders = sum("drag_slider" in name for name in parts)
    print(json.dumps({"controls": words, "sliders": sliders, "imported": sorted(sys.modules),
                      "figures": [each.value for each in at.metric], "errors": [each.value for each in at.error]}))

at = AppTest.from_file("app.py", default_timeout=500)
at.query_params.update({"precision": "fp32", "limit": "4", "order": "random", "heads": heads})
real_run = AppTest._run

def run_from_the_start(at, *rest, **kwargs):  # else it runs the page without app.py from its second run on
    at._finished_page_script_hash = at._page_hash = ""
    return real_run(at, *rest, **kwargs)

AppTest._run = run_from_the_start
at.run()
assert not at.exception, at.exception
time.sleep(1)
told()
if free == "free":
    sys.stdout.flush()
    os._exit(0)  # what it measures then, it measures in the held case too
let_work.set()
ends, rest = time.monotonic() + 500, 0
while rest < 3 and time.monotonic() < ends:  # a browser comes back while anything is under way
    time.sleep(0.2)
    at.run()
    assert not at.exception, at.exception
    under_way = [slot for (_, slot), job in jobs()._slots.held.items() if job.status.state not in FINISHED]
    rest = 0 if under_way else rest + 1
told()
at.text_input(key="mask").set_value("nonsense").run()
told()
jobs().close()
store().close()
"""


@pytest.fixture(scope="module")
def store_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("first") / "results"


@pytest.fixture(scope="module")
def with_streamlit():
    """Starts processes that have in memory what the first screen is allowed to import, and nothing
    that is for the measuring thread."""
    interpreter = WarmInterpreter(("streamlit.testing.v1", "altair", "pandas"))
    yield interpreter
    interpreter.close()


@pytest.fixture(scope="module")
def open_app(store_folder, with_streamlit):
    """What the app says in a process of its own: after its first run, with the measuring thread free;
    or with it held until then, and at rest, and to a mask that is none."""

    def run(heads=50, thread="held"):
        env = {**os.environ, "HEADROOM_CACHE": str(store_folder), "HEADROOM_IDLE_SECONDS": "0"}
        done = with_streamlit.run(["-c", OPEN, heads, thread], env=env)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) | {"said": done.stderr} for line in done.stdout.splitlines()]

    return run


@pytest.fixture(scope="module")
def first_and_second(open_app):
    """The app opened on an empty store, and once more on what that has left."""
    return open_app(), open_app()


def heavy(said):
    return {name.split(".")[0] for name in said["imported"]} & (HEAVY - {"streamlit"})


def test_the_controls_are_drawn_before_the_worker_has_done_anything(first_and_second):
    at_once = first_and_second[0][0]
    assert {"Model", "Task", "Questions", "Pruning order", "Prune these as well"} <= set(at_once["controls"])
    assert at_once["sliders"] == 1, "it is there while the rest is waited for"
    assert heavy(at_once) == set() and at_once["errors"] == []


def test_what_is_stored_is_shown_without_any_of_them(first_and_second):
    (_, measured, _), (_, stored, _) = first_and_second
    assert heavy(measured) >= {"torch", "transformers"} and "%" in measured["figures"][0], (
        "the store makes the difference"
    )
    assert stored["figures"] == measured["figures"] and "%" in stored["figures"][0]
    assert heavy(stored) == set()


def test_nothing_is_imported_for_what_is_missing_before_the_page_is_drawn(first_and_second, open_app):
    [first] = open_app(heads=60, thread="free")
    assert first["sliders"] == 1 and first["errors"] == [] and heavy(first) == set()


def test_the_slider_stays_beside_a_line_that_says_what_is_wrong(first_and_second):
    refused = first_and_second[1][2]
    assert len(refused["errors"]) == 1 and "nonsense" in refused["errors"][0]
    assert refused["sliders"] == 1
