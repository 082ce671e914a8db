"""Everything this app uses of Streamlit that is private or may change: read it again when Streamlit is upgraded.

All of it was read in the release `READ_IN`; `tests/pages/test_streamlit_internals.py` has a test for each name. Other
modules import only `streamlit` and `streamlit.components.v2`, which are public. The stylesheet and the script next to
this module are the same for the page in the browser: no others select elements by test id.
"""

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator as DeltaGenerator  # for type hints: what elements are drawn into
from streamlit.errors import StreamlitAPIException as StreamlitAPIException  # a setting that does not exist
from streamlit.file_util import get_static_dir
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.runtime import Runtime
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from streamlit.runtime.scriptrunner import RerunData, StopException, get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequests, ScriptRequestType
from streamlit.runtime.state import SafeSessionState
from streamlit.runtime.state.query_params import QueryParams

READ_IN = "1.67.0"
PAGE_STYLE = f"<style>{Path(__file__).with_suffix('.css').read_text(encoding='utf-8')}</style>"
# The files of pages/, which Streamlit lists until the app has drawn its own navigation, which has sections.
HIDE_FILES = '[data-testid="stSidebarNav"]:not(:has([data-testid="stNavSectionHeader"])) { visibility: hidden; }'
OF_SLIDERS = ("BidiComponent", "serialization", "recordbatch", "_arrayReduce")  # scripts, which are modules
PAGE_SCRIPT = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
RESTORING = "restoring an address"  # in the session: page and parameters, until all its widgets have been drawn
SENT_S = "sent_s"  # of a tab's requests, and of a run: when the browser sent the last values, and those that it has
DOWNLOADS_KEPT = 8  # files in memory
_downloads = count()
Values = str | list[str]
Call = Callable[..., Any]


class RunEnded(StopException):
    """Ends the run of a page when it is raised. Streamlit catches StopException around every script and shows nothing;
    as a BaseException it passes `except Exception`."""


def keep_unsent_messages() -> None:
    """Makes the start of a run keep every message that waits to be sent. Idempotent.

    Streamlit removes those of elements, as the run draws them again. But of nested fragments, and of a run's end, it
    keeps some: on a busy machine they then reach a container that is gone, and the page goes blank ("Bad delta path
    index"). And a value that the browser's Back sets in a control is sent once: without it, the control kept the value
    of the view before, and reported that. With all of them sent in order, the browser only gets states that were drawn.
    """
    ForwardMsgQueue.clear = _clear  # pyright: ignore[reportAttributeAccessIssue]


def _clear(
    queue: ForwardMsgQueue, retain_lifecycle_msgs: bool = False, clear: Call = ForwardMsgQueue.clear, **_: Any
) -> None:
    if retain_lifecycle_msgs:  # a run begins
        queue._delta_index_map = {}  # a later message must not take the place of an earlier one
    else:
        clear(queue)


def put_the_browser_first() -> None:
    """Keeps timers, `st.rerun` and later requests from undoing what the browser asks. Idempotent.

    After a click on a link the browser names the page before until it gets the first message of the new one, and
    messages that were on their way set timers. Streamlit takes such a timer for a return to that page: it forgets the
    controls of the new page, and the browser clears it, so that its next messages fit nowhere ("Bad delta path index").
    `st.rerun` returned there too if the link still waited. And a request that ended a run while it called the functions
    of used controls lost a click.
    """
    AppSession.request_rerun = _request_rerun  # pyright: ignore[reportAttributeAccessIssue]
    ScriptRequests.request_rerun = _rerun  # pyright: ignore[reportAttributeAccessIssue]
    SafeSessionState.on_script_will_rerun = _call  # pyright: ignore[reportAttributeAccessIssue]


def _request_rerun(session: AppSession, client_state: ClientState | None, request: Call = AppSession.request_rerun):
    if client_state is not None and client_state.page_script_hash:
        if not client_state.is_auto_rerun:
            session._client_state.page_script_hash = client_state.page_script_hash
        elif client_state.page_script_hash != session.page_script_hash:
            return
    request(session, client_state)


def _rerun(requests: ScriptRequests, data: RerunData, request: Call = ScriptRequests.request_rerun) -> bool:
    waits = requests._state is ScriptRequestType.RERUN and requests._rerun_data.page_script_hash
    if data.widget_states is not None:
        vars(requests)[SENT_S] = time.monotonic()
    return bool(waits and waits != data.page_script_hash == page_hash()) or request(requests, data)


def _call(state: SafeSessionState, *states: Any, call: Call = SafeSessionState.on_script_will_rerun, **of: Any):
    if (run := get_script_run_ctx(suppress_warning=True)) is not None:
        vars(run)[SENT_S] = vars(run.script_requests).get(SENT_S)
    end_if_requested = state._yield_callback
    object.__setattr__(state, "_yield_callback", lambda: None)
    try:
        call(state, *states, **of)
    finally:
        object.__setattr__(state, "_yield_callback", end_if_requested)


def forget_previous_fragments() -> None:
    """Removes the fragments that this run has not drawn from the session, as Streamlit does after a run that ends by
    itself (`ScriptRunner._run_script`); after a StopException it keeps them, and their timers continue."""
    if (run := get_script_run_ctx()) is not None:
        run.fragment_storage.clear(new_fragment_ids=run.shared.new_fragment_ids.snapshot())


def keep_download(data: bytes, mime: str, file: str) -> bytes:
    """Returns `data` in the function of a download button, and keeps it until `DOWNLOADS_KEPT` others were made.

    Streamlit keeps what such a function returns for two runs of any session: next to a timer, less than a second. A
    browser that asked later got "Download Button source error - 404". A file is kept by its content, type, and name.
    """
    if Runtime.exists():
        place = f"download {next(_downloads) % DOWNLOADS_KEPT}"
        Runtime.instance().media_file_mgr.add(data, mime, place, file_name=file, is_for_static_download=True)
    return data


def session_id() -> str | None:
    """Returns the session of the running script; None in a thread that runs no script."""
    run = get_script_run_ctx(suppress_warning=True)
    return None if run is None else run.session_id


def is_connected(session: str) -> bool:
    """Returns whether a browser shows this session; after a disconnect Streamlit keeps it for a while, inactive."""
    return Runtime.exists() and Runtime.instance().is_active_session(session)


def is_back_or_forward() -> bool:
    """Returns whether the running script follows the browser's back or forward button."""
    run = get_script_run_ctx(suppress_warning=True)
    return run is not None and run.is_history_navigation


def resume_back_or_forward() -> None:
    """Makes this run restore the address's values if the run that followed the browser's back or forward button ended
    before it had, at the same address; to be called before any widget is drawn.

    Streamlit keeps that flag for the run alone: one that starts another, or is replaced by a timer's, left the address
    with the values of the view before.
    """
    run = get_script_run_ctx(suppress_warning=True)
    if run is None:
        return
    address = (run.page_script_hash, run.query_string)
    if run.is_history_navigation or st.session_state.pop(RESTORING, None) == address:
        run.is_history_navigation = True
        st.session_state[RESTORING] = address


def end_back_or_forward() -> None:
    """Notes that every widget of the page has been drawn with the address's value."""
    st.session_state.pop(RESTORING, None)


def is_reported(key: str) -> bool:
    """Returns whether the browser has told this run the value of the widget `key`, which is not drawn in it yet."""
    run = get_script_run_ctx(suppress_warning=True)
    if run is None:
        return False
    state = run.session_state._state
    return state._key_id_mapper.get_id_from_key(key, "") in state._new_widget_state.states


def reported_s() -> float:
    """Returns when the browser sent the values that this run has of it: they may have waited for a long run."""
    return getattr(get_script_run_ctx(suppress_warning=True), SENT_S, None) or time.monotonic()


def page_with_script(script: str) -> str:
    """Returns the page that Streamlit serves at every address, with a script that runs before its own. It fetches the
    scripts of our sliders at once: Streamlit asks for them last."""
    static = Path(get_static_dir())
    page = (static / "index.html").read_text(encoding="utf-8")
    paths = [path.relative_to(static) for name in OF_SLIDERS for path in static.glob(f"static/js/{name}.*.js")]
    links = "".join(f'<link rel="modulepreload" crossorigin href="./{path.as_posix()}">' for path in paths)
    before_theirs = f"<style>{HIDE_FILES}</style><script>{script}</script><script>"
    return page.replace("<script>", before_theirs, 1).replace("</head>", f"{links}</head>")


def page_hash() -> str | None:
    """Returns Streamlit's hash of the page being drawn; None in a thread that runs no script."""
    run = get_script_run_ctx(suppress_warning=True)
    return None if run is None else run.page_script_hash


def rewrite_param(key: str, rewrite: Callable[[list[str]], Values | None]) -> list[str]:
    """Returns the address's values of `key`, [] if none, and replaces them with `rewrite` of them (None: removes them).

    Called before the widget bound to `key` is drawn. Streamlit gives a new widget the value that the address had when
    the run began, `get_initial_value`: so both are replaced. The lock of the session state is held meanwhile.
    """
    run = get_script_run_ctx()
    if run is None:
        return []
    with run.session_state.query_params() as params:
        initial = params.get_initial_value(key)
        if initial is None:
            return []
        values = [initial] if isinstance(initial, str) else [*initial]
        wanted = rewrite(values)
        if wanted in (initial, values):
            return values
        _set_param(params, key, wanted)
    return values


def write_param(key: str, value: str) -> None:
    """Writes a value of `key` into the address: Streamlit does not for a widget that is set before the browser has
    drawn it once."""
    run = get_script_run_ctx()
    if run is not None:
        with run.session_state.query_params() as params:
            _set_param(params, key, value)


def _set_param(params: QueryParams, key: str, values: Values | None) -> None:
    if values is None:
        params.remove_param(key)
    else:
        params.set_corrected_value(key, values, "string_value" if isinstance(values, str) else "string_array_value")
    params.set_initial_query_params_from_current()
