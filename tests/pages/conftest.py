"""What the tests of the screens share: the app in one process with real threads, and its sliders as a browser would
move them.
"""

import contextlib
import html
import io
import json
import re
import shlex
import sys
import threading
from functools import cache
from itertools import count

import pandas as pd
import pytest
import streamlit as st
from streamlit.components.v2 import manifest_scanner
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from streamlit.runtime.pages_manager import PagesManager
from streamlit.testing.v1 import AppTest, local_script_runner
from streamlit.util import calc_hash

from engine.progress import Progress
from engine.slots import Job
from pages.ui.controls import many_tasks, offers
from pages.ui.downloads import actions
from pages.ui.downloads.origin import executable
from pages.ui.figures import charts
from pages.ui.page import runtime
from pages.ui.page.screens import STORY
from pages.ui.page.streamlit_internals import is_connected, session_id
from pages.ui.prune.figure import HELP
from scripts.make_demo.shipped import KERNELS
from tests.conftest import HANG_S, REPOSITORY
from tests.engine.fixtures import while_measured

WAIT_S = HANG_S
# the screens that measure the model of the bar, by file; Training has models of its own
MEASURING = sorted(file.stem for file in (REPOSITORY / "pages").glob("*.py") if file.stem != "training")
SCREENS = {calc_hash(each.file) for screens in STORY.values() for each in screens}
N = 20
NUMBERS = count(1)
TAB = "test session id"  # what every AppTest is called
DROP_MESSAGES = ForwardMsgQueue.clear  # before any test of this process has run


@pytest.fixture(autouse=True, scope="session")
def packages_are_scanned_once():
    """Each AppTest reads the metadata of all installed packages for components; they do not change while tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", cache(manifest_scanner.scan_component_manifests))
        yield


@pytest.fixture(autouse=True, scope="session")
def charts_are_valid():
    """The app leaves out Altair's check of a chart, so it is made here: of the first chart that a function makes."""
    to_dict, checked = charts._without_config, set()

    def checked_once(chart):
        made_by = sys._getframe(2).f_code
        if made_by not in checked:
            checked.add(made_by)
            chart.to_dict()
        return to_dict(chart)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "_without_config", checked_once)
        yield


@pytest.fixture(autouse=True, scope="session")
def runs_are_waited_for_without_looking():
    """AppTest looks through all messages of a run every millisecond, which slows the thread that draws the page."""
    require_deltas = local_script_runner.require_widgets_deltas

    def wait(runner, timeout):
        runner._script_thread.join(timeout)
        require_deltas(runner, 1)  # which stops a run that has not ended

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_script_runner, "require_widgets_deltas", wait)
        yield


def tab_of_tests():
    """What takes the place of `runtime.tab`: outside of a page, the tab of every AppTest."""
    return session_id() or TAB


@pytest.fixture(autouse=True)
def tests_are_in_the_tab(monkeypatch):
    """A test looks at the slots of the tab that its AppTest has open."""
    monkeypatch.setattr(runtime, "tab", tab_of_tests)
    monkeypatch.setattr(runtime, "is_here", lambda session: session in (None, TAB) or is_connected(session))


@pytest.fixture
def questions(tmp_path):
    """A user's own task file."""
    return boats(tmp_path / "boats.jsonl", N)


def boats(file, n):
    """A file of n questions, and the same for training."""
    rows = [
        {"context": f"He counted {i} boats. How many?", "choices": [f" {i + k} boats" for k in range(3)], "gold": i % 3}
        for i in range(n)
    ]  # fmt: skip
    for each in (file, file.with_suffix(".train.jsonl")):
        each.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def open_app(tmp_path, monkeypatch, tiny_opt, questions):
    """Opens the app in a new session, on a screen at given query parameters; the store lives as long as the test."""
    monkeypatch.setenv("HEADROOM_CACHE", str(tmp_path / "results"))
    monkeypatch.delenv("HEADROOM_TASK_DATA", raising=False)
    real_run, real_init, is_framed = AppTest._run, PagesManager.__init__, {"now": False}

    def run_from_the_start(at, *rest, **more):
        # AppTest forgets between runs that app.py calls st.navigation, and would run the page without app.py
        at._finished_page_script_hash = ""
        at._page_hash = vars(at).get("wanted_page_hash", "")
        is_framed["now"] = "framed" in at.session_state and at._page_hash in SCREENS
        try:
            return real_run(at, *rest, **more)
        finally:
            at._page_hash = ""
            is_framed["now"] = False

    def as_navigated(manager, *rest, **more):
        if is_framed["now"]:  # app.py draws the heading and the bar of the study, in each run
            PagesManager.uses_pages_directory = False
        real_init(manager, *rest, **more)

    def raised(error):
        raise error  # a test has to fail of it, whatever a user would see

    monkeypatch.setattr(runtime, "unforeseen", raised)
    # AppTest takes all messages that wait for those of one run, so that those of a replaced run have to be dropped,
    # even if an earlier test kept them
    monkeypatch.setattr(runtime, "keep_unsent_messages", lambda: None)
    monkeypatch.setattr(ForwardMsgQueue, "clear", DROP_MESSAGES)
    monkeypatch.setattr(AppTest, "_run", run_from_the_start)
    monkeypatch.setattr(PagesManager, "__init__", as_navigated)
    st.cache_resource.clear()

    def open_app(screen="", run=True, **parameters):
        at = AppTest.from_file(str(REPOSITORY / "app.py"), default_timeout=HANG_S)
        defaults = {"model": str(tiny_opt), "precision": "fp32", "task": str(questions), "shots": "0"}
        for name, value in (defaults | parameters).items():
            at.query_params[name] = value
        at.wanted_page_hash = page_hash(screen)
        return settled(at) if run else at

    yield open_app
    for each in (runtime.jobs(), offers.lookups(), offers.downloads()):
        each.close(WAIT_S)
    runtime.store().close()
    st.cache_resource.clear()


@pytest.fixture
def open_part(tmp_path, monkeypatch):
    """Draws a part of the page by a function of a test, in a new session, at given query parameters."""
    monkeypatch.setenv("HEADROOM_CACHE", str(tmp_path / "results"))
    monkeypatch.delenv("HEADROOM_TASK_DATA", raising=False)
    st.cache_resource.clear()

    def open_part(draw, **parameters):
        at = AppTest.from_function(draw, default_timeout=HANG_S)
        for name, value in parameters.items():
            at.query_params[name] = value
        at.run()
        assert not at.exception, at.exception
        return at

    yield open_part
    runtime.jobs().close(HANG_S)
    runtime.store().close()
    st.cache_resource.clear()


@pytest.fixture
def with_shipped(monkeypatch):
    """Has the records that come with the package read: of the embedded model the rest alone is measured."""
    monkeypatch.setenv("HEADROOM_SHIPPED", "1")
    monkeypatch.setenv("HEADROOM_PRODUCTS", KERNELS[-1])


@pytest.fixture(autouse=True)
def nothing_ahead(monkeypatch):
    """Has screens measure what they show first, and the rest at a click."""
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")


@pytest.fixture
def measures_ahead(nothing_ahead, monkeypatch):
    """Has screens measure all that they show: for tests that look at what is measured without a click."""
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "1000000")


@pytest.fixture
def only_tasks(monkeypatch):
    """Has screens offer these tasks alone."""

    def only_tasks(*names):
        real = many_tasks.list_tasks
        monkeypatch.setattr(many_tasks, "list_tasks", lambda folder: [s for s in real(folder) if s.info.name in names])

    return only_tasks


@pytest.fixture
def shown_on(open_app, monkeypatch):
    """Opens a screen and clicks the button that begins with `measure`, if there is one: (its large figures, its tables
    by name, as they are downloaded)."""

    def shown_on(screen, measure="", **parameters):
        handed = []
        monkeypatch.setattr(actions, "_draw", lambda files, link: handed.append(files))
        at = open_app(screen, **parameters)
        if measure:
            at = press(at, measure)
        sheet = handed[-1].sheet
        tables = {name: pd.read_csv(io.BytesIO(sheet.table(name))) for name in sheet.tables}
        return [metric.value for metric in at.metric], tables

    return shown_on


class Gate:
    """What holds the measuring thread until it is let through: in a job of its own, or in a measurement."""

    def __init__(self):
        self.reached, self.go_on = threading.Event(), threading.Event()

    def wait(self):
        self.reached.set()
        assert self.go_on.wait(WAIT_S)

    def job(self):
        self.wait()
        yield Progress(1, 1)

    def occupy(self, slot="gate", priority=0):
        """Keeps the measuring thread busy from now on."""
        runtime.jobs().put(slot, Job("gate", self.job, priority))
        assert self.reached.wait(WAIT_S)

    def held(self, wanted, first=None):
        """The measurement, held at its beginning, or after a step: `first`, or what it gives of its own ones."""

        def steps(own):
            if first is not None:
                yield first(own) if callable(first) else first
            self.wait()
            return (yield from own)

        return while_measured(wanted, steps)


@pytest.fixture
def gate(open_app):
    gate = Gate()
    yield gate
    gate.go_on.set()


def page_hash(screen):
    """How Streamlit names a screen; the first has no name."""
    return calc_hash(screen) if screen not in ("", "prune") else ""


def go_to(at, screen):
    """Opens a screen in the same session."""
    at.wanted_page_hash = page_hash(screen)
    return settled(at)


def ran(at):
    """Runs the page once, without an exception."""
    at.run()
    assert not at.exception, at.exception
    return at


def settled(at):
    """Runs the page until nothing happens any more in the measuring thread, as the polling of a browser would."""
    for _ in range(20):
        before = job_states()
        ran(at)
        if before == job_states() and all(finished_s for _, _, finished_s in before):
            return at
        for slot, _, _ in job_states():
            runtime.jobs().join(slot, WAIT_S)
    raise AssertionError("the page does not settle")


def job_states():
    slots = list(runtime.jobs()._slots.held.items())
    return {(slot, job.status.key, job.status.finished_s) for (_, slot), job in slots}


TRY = "  \n**Try:** "  # in the heading
SECOND = re.compile(r"(?P<model>.+ in (fp32|bf16|int8)): questions right")  # the label of the second model's figure


def figure(at):
    found = [each for each in at.metric if not SECOND.fullmatch(each.label)]
    assert len(found) == 1, [error.value for error in at.error]
    return found[0].value, found[0].delta


def second_figure(at):
    """The second model's name and accuracy; None without one."""
    found = [(match["model"], each.value) for each in at.metric if (match := SECOND.fullmatch(each.label))]
    assert len(found) < 2
    return found[0] if found else None


def heading_of(at):
    """The words next to the title."""
    return next(each.value for each in at.main.markdown if TRY in each.value)


def under_figure(at):
    """What stands under the large figure, after the badge of the pruned parts, and in its help, without what is always
    in that."""
    below = next(each for each in at.main.markdown if "badge[" not in each.value and TRY not in each.value)
    return f"{below.value}  \n{below.help.removesuffix(HELP)}"


def same_on_the_command_line(at, capsys, number=0, out=None, more=()):
    """What the command of that number prints as JSON; its file, if it writes one, is `out`. `more`: options to add."""
    from engine.__main__ import main

    words = shlex.split(command_of(at).splitlines()[number])
    if out is not None:
        words[words.index("--out") + 1] = str(out)
    # a path is from where the app was started; the test may have gone elsewhere since, and is told a whole one
    assert executable() in (words[0], str(REPOSITORY / words[0])) and main([*words[1:], *more, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def opened(at, popover):
    """The page with a popover open for one run: AppTest, which knows none, forgets that one is open."""
    at.session_state[popover] = True
    return at.run()


def command_of(at):
    """The shell command that Export gives."""
    [mark] = [each.proto.body for each in at.get("html") if 'data-mark="command"' in each.proto.body]
    return html.unescape(re.search('data-text="(.*?)"', mark, re.S)[1])


def program_of(at):
    """The Python program that Export gives."""
    [code] = [each.value for each in opened(at, actions.EXPORT).code if each.language == "python"]
    return code


def printed_by_the_program(at):
    """What it prints; it opens the store again."""
    code, printed = program_of(at), io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "program", "exec"), {})
    assert not re.search(r"^from \S+ import .*\b(\w+)\b(?![\s\S]*\b\1\b)", code, re.M), "imports what it does not use"
    return printed.getvalue()


def number_after(words, text):
    return float(re.search(rf"{words}(-?[\d.]+)", text)[1])


def said(at):
    """All that the screen says in words."""
    kinds = (at.main.markdown, at.main.caption, at.main.warning, at.main.error)
    return " ".join(each.value for kind in kinds for each in kind)


def charts_of(at):
    return [json.loads(chart.proto.spec) for chart in at.get("vega_lite_chart")]


def labels(at):
    return [button.label for button in at.button]


def button(at, label):
    [found] = [button for button in at.button if button.label == label]
    return found


def press(at, label):
    """Clicks the first button whose label begins so."""
    next(button for button in at.button if button.label.startswith(label)).click()
    return settled(at)


def choose_story(at, key):
    """Clicks the chip of a story of Prune, by its key."""
    at.session_state["prune_story"], at.session_state["prune story to set"] = key, True
    return settled(at)


def frames_of(at):
    """The named tables of each chart, in order, as they go to the browser."""
    from streamlit.dataframe_util import convert_arrow_bytes_to_pandas_df as to_frame

    return [{table.name: to_frame(table.data.data) for table in chart.proto.datasets}
            for chart in at.get("vega_lite_chart")]  # fmt: skip


def slide(at, key, percent, moving=False):
    """What the browser reports when the hand is at `percent`: still moving, or letting go. Run the page afterwards."""
    at.session_state[f"{key} drag"] = {"hand": {"percent": percent, "moving": moving, "number": next(NUMBERS)}}
    return at


def level(at, key):
    """The level that is set, in percent."""
    return at.number_input(key=key).value


def sent(at, key):
    """What the slider was sent."""
    label = at.number_input(key=key).label
    [data] = [data for data in components(at) if data.get("label") == label]
    return data


def components(at):
    """What each component on the page was sent."""
    return [json.loads(each.proto.json) for each in at.get("bidi_component") if each.proto.json]


def experiment_of(at):
    """What the page shows, under a random ranking."""
    from engine.importance.orders import Pruning, Ranking
    from engine.models.loading import LoadSpec
    from engine.models.masks import parse_edits
    from engine.questions.rendering import TaskSpec, render_questions
    from pages.ui.page.defaults import RANKING_QUESTIONS
    from pages.ui.prune.experiment import Experiment

    target = runtime.session().target(LoadSpec(at.selectbox(key="model").value, "fp32"))
    task = TaskSpec(at.selectbox(key="task").value)
    ranking, typed = Ranking("random", n_questions=RANKING_QUESTIONS), at.text_input(key="mask").value or ""
    pruning = Pruning(task, ranking, level(at, "heads") * 10, 0, parse_edits(typed, target.shape))
    rendered = render_questions(task, None, runtime.store())
    return Experiment(target, None, rendered, None, 100, pruning)
