"""Each name that the app uses of Streamlit's internals is there, and does what was read. After an upgrade of Streamlit
these tests say what to read again."""

import re
import threading
import time
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import streamlit as st
from streamlit.file_util import get_static_dir
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.runtime import Runtime
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage
from streamlit.runtime.scriptrunner import RerunData, get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequests
from streamlit.runtime.state import SafeSessionState, SessionState
from streamlit.testing.v1 import AppTest

from pages.ui.page import runtime
from pages.ui.page import streamlit_internals as internals
from tests.conftest import HANG_S, REPOSITORY

AGAIN = f"it was read in Streamlit {internals.READ_IN}, and this is {st.__version__}: read streamlit_internals again"
CSS = Path(internals.__file__).with_suffix(".css").read_text(encoding="utf-8")
SELECTORS = CSS + internals.PAGE_SCRIPT + internals.HIDE_FILES
SELECTED = sorted({"data-heading-text", "data-tag", *re.findall(r'data-testid="(\w+)"', SELECTORS),
                   *re.findall(r"\.(st[A-Z]\w+)", CSS)})  # fmt: skip


def run(script, *args, **parameters):
    """The page that a script draws, at an address with these parameters."""
    at = AppTest.from_function(script, default_timeout=HANG_S, args=args)
    for name, value in parameters.items():
        at.query_params[name] = value
    return at.run()


def test_the_release_in_the_requirements_is_the_one_that_was_read():
    pinned = re.findall(r"^streamlit==(.+)$", (REPOSITORY / "requirements.txt").read_text(encoding="utf-8"), re.M)
    assert pinned == [internals.READ_IN], "read streamlit_internals.py and .css again, then set READ_IN"


def test_no_run_is_no_session_no_page_and_an_address_without_values():
    assert get_script_run_ctx() is None
    assert internals.session_id() is None and internals.page_hash() is None
    assert internals.rewrite_param("a", lambda values: "b") == []
    internals.write_param("a", "b")
    internals.forget_previous_fragments()


def test_a_run_has_a_session_and_a_page():
    def script(found):
        from pages.ui.page.streamlit_internals import page_hash, session_id

        found += [session_id(), page_hash()]

    found = []
    run(script, found)
    assert all(found) and {*map(type, found)} == {str}, f"a run names no session or no page; {AGAIN}"


def test_a_script_runs_before_streamlits_own():
    page = internals.page_with_script("mine()")
    assert page.index("<script>mine()</script>") < page.index('<script type="module"')
    mine, links = (
        f"<style>{internals.HIDE_FILES}</style><script>mine()</script>",
        r'(<link rel="modulepreload"[^>]*>)+</head>',
    )
    theirs = (Path(get_static_dir()) / "index.html").read_text("utf-8")
    assert re.sub(links, "</head>", page.replace(mine, "")) == theirs
    for name in internals.OF_SLIDERS:
        assert page.count(f'href="./static/js/{name}.') == 1, f"Streamlit has no script {name} any more; {AGAIN}"


def test_elements_are_drawn_into_a_delta_generator():
    assert isinstance(st.sidebar, internals.DeltaGenerator), f"the sidebar is a {type(st.sidebar)}; {AGAIN}"


def test_a_setting_that_does_not_exist_is_an_exception_of_the_api():
    with pytest.raises(internals.StreamlitAPIException):
        st.set_option("server.no_such_setting", 1)


def test_an_ended_run_keeps_what_was_drawn_and_shows_no_error():
    def script():
        import streamlit as st

        from pages.ui.page.streamlit_internals import RunEnded

        st.text("before")
        try:
            raise RunEnded
        except Exception:
            st.text("caught")
        st.text("after")

    at = run(script)
    assert [each.value for each in at.text] == ["before"] and not at.exception, f"a run does not end silently; {AGAIN}"


def test_previous_fragments_are_forgotten_and_those_of_this_run_stay():
    def script(found):
        import streamlit as st
        from streamlit.runtime.scriptrunner import get_script_run_ctx

        from pages.ui.page.streamlit_internals import forget_previous_fragments

        storage = get_script_run_ctx().fragment_storage
        storage.register("previous", lambda: None)
        st.fragment(lambda: st.text("drawn"))()
        found.append(storage.ids_registered_after(0))
        forget_previous_fragments()
        found.append(storage.ids_registered_after(0))

    found = []
    run(script, found)
    before, after = found
    assert len(before) == 2 and after == before - {"previous"}, f"fragments are not forgotten; {AGAIN}"


def test_a_written_value_is_sent_again_until_the_browser_reports_it(monkeypatch):
    def script():
        import streamlit as st

        from pages.ui.page.widget_writes import hold, write

        if "opened" not in st.session_state:
            st.session_state.opened = True
            write("level", 10, held_s=0)
        hold("level")
        st.number_input("Level", 0, 100, 0, key="level", bind="query-params")

    at = run(script)
    assert at.number_input[0].proto.set_value
    with monkeypatch.context() as unheard:  # the next run begins before the browser has got anything of this one
        unheard.setattr(type(at._tree), "get_widget_states", lambda tree: WidgetStates())
        at.run()
    assert at.number_input[0].proto.set_value and at.number_input[0].value == 10, "it draws the default, and reports it"
    at.run()
    assert not at.number_input[0].proto.set_value, f"a reported value is sent again; {AGAIN}"
    assert at.number_input[0].set_value(20).run().number_input[0].value == 20


def test_a_request_that_waited_for_a_long_run_does_not_undo_what_was_written_meanwhile(monkeypatch):
    def script():
        import streamlit as st

        from pages.ui.page.streamlit_internals import put_the_browser_first
        from pages.ui.page.widget_writes import hold, write

        put_the_browser_first()
        if st.session_state.pop("writes", False):
            write("level", 10)
        hold("level")
        st.number_input("Level", 0, 100, 0, key="level", bind="query-params")

    at, now_s = run(script), time.monotonic
    at.session_state.writes = True
    at.run()

    def late(state, *states, call=SafeSessionState.on_script_will_rerun, **of):
        call(state, *states, **of)
        monkeypatch.setattr(time, "monotonic", lambda: now_s() + 10)  # so long has it run until the control is drawn

    with monkeypatch.context() as waits:
        waits.setattr(SafeSessionState, "on_script_will_rerun", late)
        at.number_input[0].set_value(0)  # the browser had not drawn the written value yet
        at.run()
    assert at.number_input[0].value == 10, f"the value before is back; {AGAIN}"
    assert at.number_input[0].set_value(0).run().number_input[0].value == 0, "the user's own, ten seconds later"


def test_a_run_replaced_after_the_browsers_back_leaves_the_address_in_force():
    def script():
        import streamlit as st
        from streamlit.runtime.scriptrunner import get_script_run_ctx

        from pages.ui.page.streamlit_internals import end_back_or_forward, resume_back_or_forward

        state, run = st.session_state, get_script_run_ctx()
        is_back = state.pop("back", False)
        run.is_history_navigation = is_back
        resume_back_or_forward()
        if is_back:
            st.rerun()
        state.restored = run.is_history_navigation
        st.checkbox("Cost", key="cost", bind="query-params")
        end_back_or_forward()

    at = run(script)
    assert at.checkbox[0].check().run().checkbox[0].value and not at.session_state.restored
    at.query_params.clear()
    at.session_state.back = True
    at.run()
    assert not at.checkbox[0].value and at.session_state.restored, f"the view before is back at this address; {AGAIN}"
    assert at.checkbox[0].check().run().checkbox[0].value and not at.session_state.restored


def unsent(messages):
    """A queue of unsent messages: the end of a run ("end"), or elements as (path, fragment, text)."""
    queue = ForwardMsgQueue()
    for message in messages:
        if message == "end":
            queue.enqueue(ForwardMsg(script_finished=ForwardMsg.FINISHED_SUCCESSFULLY))
            continue
        path, fragment, text = message
        sent = ForwardMsg()
        sent.metadata.delta_path.extend(path)
        sent.delta.fragment_id = fragment
        sent.delta.new_element.text.body = text
        queue.enqueue(sent)
    return queue


OF_A_PAGE = [((0, 0), "", "page"), ((0, 1, 0), "part", "1"), ((0, 1, 1, 0), "nested", "2"), "end"]


@pytest.mark.parametrize("fragments", [None, ["part"]], ids=["page", "part"])
def test_a_run_keeps_all_unsent_messages_in_order(fragments, monkeypatch):
    monkeypatch.setattr(internals.ForwardMsgQueue, "clear", internals.ForwardMsgQueue.clear)  # as before, at the end
    runtime.begin_run()
    queue, same = unsent(OF_A_PAGE), unsent(OF_A_PAGE).flush()
    for again in ("again", "and again"):
        queue.clear(retain_lifecycle_msgs=True, fragment_ids_this_run=fragments)
        [sent] = unsent([((0, 1, 0), "part", again)]).flush()
        queue.enqueue(sent)
        same.append(sent)
    assert queue.flush() == same, f"the start of a run removes or moves unsent messages; {AGAIN}"
    assert queue.is_empty()


class Session(AppSession):
    """A session on a page, which notes what runs, as (page, part)."""

    def __init__(self, page):
        self._state, self._scriptrunner, self.ran = None, None, []
        self._client_state = ClientState(page_script_hash=page)

    def has_fragment(self, fragment_id):
        return True

    def _create_scriptrunner(self, initial_rerun_data):
        self.ran.append((initial_rerun_data.page_script_hash, initial_rerun_data.fragment_id))

    def __del__(self):
        pass


def test_a_timer_of_the_page_that_a_link_has_left_runs_nothing():
    internals.put_the_browser_first()
    session = Session("prune")
    timer = ClientState(page_script_hash="prune", fragment_id="part", is_auto_rerun=True)
    session.request_rerun(timer)
    session.request_rerun(ClientState(page_script_hash="heads"))
    session.request_rerun(timer)  # the browser has no message of the new page yet
    session.request_rerun(ClientState(page_script_hash="heads", fragment_id="other", is_auto_rerun=True))
    session.request_rerun(None)
    assert session.ran == [("prune", "part"), ("heads", None), ("heads", "other"), ("", None)], AGAIN


def test_a_request_waits_for_a_run_instead_of_stopping_it_before_it_has_read_its_click():
    session, asked = Session("prune"), []
    session._scriptrunner = SimpleNamespace(request_rerun=lambda data: asked.append(data.page_script_hash) or True)
    session.request_rerun(ClientState(page_script_hash="prune"))
    assert asked == ["prune"] and session.ran == [], AGAIN


@pytest.mark.parametrize(
    ("waits", "asked", "opens"),
    [("heads", "prune", "heads"), ("prune", "text", "text"), ("prune", "prune", "prune"), (None, "prune", "prune")],
    ids=["a link comes before st.rerun", "st.switch_page before a click", "a click with st.rerun", "st.rerun"],
)
def test_a_page_that_runs_while_another_request_waits(waits, asked, opens, monkeypatch):
    internals.put_the_browser_first()
    monkeypatch.setattr(internals, "page_hash", lambda: "prune")  # it runs
    requests = ScriptRequests()
    if waits:
        requests.request_rerun(RerunData(page_script_hash=waits, widget_states=WidgetStates()))
    assert requests.request_rerun(RerunData(page_script_hash=asked))
    assert requests.on_scriptrunner_yield().rerun_data.page_script_hash == opens, AGAIN


def test_the_functions_of_used_controls_are_called_although_another_request_waits(monkeypatch):
    def end_run():
        raise internals.RunEnded

    internals.put_the_browser_first()
    state, called = SafeSessionState(SessionState(), end_run), []
    monkeypatch.setattr(SessionState, "on_script_will_rerun", lambda *states, **of: called.append("level" in state))
    state.on_script_will_rerun(WidgetStates())
    assert called == [False], AGAIN
    with pytest.raises(internals.RunEnded):
        assert "level" in state


def test_a_run_for_which_another_waits_ends_instead_of_waiting_for_a_job():
    def script(may_end, wait_s):
        import streamlit as st
        from streamlit.runtime.scriptrunner import get_script_run_ctx

        from engine.progress import Progress
        from engine.slots import Job
        from pages.ui.page.runtime import jobs
        from pages.ui.page.streamlit_internals import RunEnded

        def end_run():
            raise RunEnded

        jobs().put("slot", Job("key", lambda: iter([Progress(1, 1, may_end.wait(wait_s))])))
        state = get_script_run_ctx().session_state
        before = state._yield_callback
        object.__setattr__(state, "_yield_callback", end_run)
        try:
            jobs().join("slot", wait_s)
        finally:
            object.__setattr__(state, "_yield_callback", before)
            may_end.set()
        st.text("waited")

    assert not run(script, threading.Event(), HANG_S).text, f"Streamlit does not check for a newer run; {AGAIN}"


def test_a_session_is_connected_while_the_runtime_calls_it_active(monkeypatch):
    monkeypatch.setattr(Runtime, "_instance", None)
    assert not internals.is_connected("open"), "without a server no session is connected"
    monkeypatch.setattr(Runtime, "_instance", SimpleNamespace(is_active_session={"open"}.__contains__))
    assert internals.is_connected("open") and not internals.is_connected("closed"), f"not told apart; {AGAIN}"


@pytest.fixture
def media_files(monkeypatch):
    """The files of a server that runs no script, as the thread that makes a download."""
    files = MediaFileManager(MemoryMediaFileStorage("/media"))
    runtime = SimpleNamespace(exists=lambda: True, instance=lambda: SimpleNamespace(media_file_mgr=files))
    monkeypatch.setattr(internals, "Runtime", runtime)
    return files


def download(files, make, name, runs=3):
    """What the browser gets of a file that `make` returns, if it asks after that many runs of the page; else None."""
    url = files.execute_deferred(files.add_deferred(make, "text/csv", "0.1", file_name=name))
    for _ in range(runs):
        files.add_deferred(make, "text/csv", "0.1", file_name=name)
        files.remove_orphaned_files()
    found = files.read_file(url.rpartition("/")[2])
    return found and found.content


def test_a_download_stays_while_the_page_runs(media_files):
    assert download(media_files, lambda: b"1,2", "a.csv") is None, f"Streamlit keeps it now; {AGAIN}"
    assert download(media_files, lambda: internals.keep_download(b"1,2", "text/csv", "a.csv"), "a.csv") == b"1,2"


def test_the_last_downloads_are_kept_and_no_others(media_files):
    for n in range(internals.DOWNLOADS_KEPT + 3):
        content = str(n).encode()
        download(media_files, lambda content=content: internals.keep_download(content, "text/csv", "a.csv"), "a.csv")
    media_files.remove_orphaned_files()
    kept = [file.content for file in media_files._storage._files_by_id.values()]
    assert kept == [str(n).encode() for n in range(3, internals.DOWNLOADS_KEPT + 3)]


def number(rewrite):
    import streamlit as st

    from pages.ui.page.streamlit_internals import rewrite_param

    st.text(repr(rewrite_param("n", rewrite)))
    st.number_input("Number", 0, 9, 3, key="n", bind="query-params")


@pytest.mark.parametrize(("wanted", "value", "left"), [("7", 7, "7"), (None, 3, None)], ids=["replaced", "removed"])
def test_a_parameter_is_rewritten_before_its_widget_is_drawn(wanted, value, left):
    at = run(number, lambda values: wanted, n="500")
    assert at.text[0].value == "['500']" and not at.exception
    found = at.number_input(key="n").value, at.query_params.get("n")
    assert found == (value, left), f"widget and address have {found}; {AGAIN}"
    assert run(number, lambda values: wanted).text[0].value == "[]", "the address says nothing"


def test_several_values_of_a_parameter_are_rewritten():
    def script(rewrite):
        import streamlit as st

        from pages.ui.page.streamlit_internals import rewrite_param

        rewrite_param("t", rewrite)
        st.multiselect("Tasks", ["A", "B", "C"], key="t", bind="query-params")

    at = run(script, lambda values: [value.upper() for value in values], t=["a", "C"])
    found = at.multiselect(key="t").value, at.query_params["t"]
    assert found == (["A", "C"], ["A", "C"]), f"widget and address have {found}; {AGAIN}"


@lru_cache
def front_end() -> list[bytes]:
    """The scripts that Streamlit sends to a browser."""
    return [file.read_bytes() for file in (Path(st.__file__).parent / "static").rglob("*.js")]


def quoted(name: str) -> list[bytes]:
    return [f"{mark}{name}{mark}".encode() for mark in "`\"'"]


@pytest.mark.parametrize("name", SELECTED)
def test_what_stylesheet_and_script_select_is_in_the_front_end(name):
    assert any(form in script for script in front_end() for form in quoted(name)), f"no element has {name}; {AGAIN}"


def test_question_marks_are_named_as_the_script_finds_them():
    for names in ([b"Help for ${"], quoted("Help")):
        found = any(name in script for script in front_end() for name in names)
        assert found, f"no question mark is named {names}; {AGAIN}"


def test_the_front_end_hears_the_event_that_present_js_sends():
    heard = [b"window.addEventListener(" + form for form in quoted("popstate")]
    assert any(form in script for script in front_end() for form in heard), f"nothing hears popstate; {AGAIN}"


def test_no_rule_is_of_every_element_after_another():
    """Each element that Streamlit adds would make Chromium match all shapes of a large chart again, for seconds."""
    styles = "".join(file.read_text(encoding="utf-8") for file in Path(internals.__file__).parent.glob("*.css"))
    rules = re.sub(r"/\*.*?\*/", "", styles, flags=re.DOTALL)
    assert "st-key-" in rules and not re.findall(r"[^{}]*[~+]\s*\*[^{}]*", rules)
