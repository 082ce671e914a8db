"""One Chromium and one server for all browser tests, tabs that note every fault, and what tests wait for: marks."""

import contextlib
import re
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Error

from tests.conftest import HANG_S, IS_THOROUGH

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HERE = Path(__file__).parent
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync "
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup"  # two pages of its own behind each tab of a test
).split()
WAIT_MS = 1000 * HANG_S // 4  # two tests that wait in vain still leave time for the others
THEMES = ("light", "dark") if IS_THOROUGH else ("light",)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this computer"))
    # the longest first, so that two workers end at about the same time; last those for which the other workers wait
    items.sort(key=lambda item: (is_alone(item), item.get_closest_marker("slow") is None))


def is_alone(item):
    return item.get_closest_marker("alone") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """With a failure comes what the page said then: a wait that ran out tells no more than what it waited for."""
    report = yield
    page = getattr(item, "funcargs", {}).get("page")
    if report.when == "call" and report.failed and page is not None:
        for number, tab in enumerate(page.context.pages):
            with contextlib.suppress(Exception):  # the browser itself may be what failed
                report.sections.append((f"tab {number}, {tab.url}", tab.locator("body").inner_text(timeout=5000)))
    return report


@pytest.fixture(scope="session")
def chromium():
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=WAIT_MS)  # instead of 5 s
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
        yield browser
        browser.close()


def new_context(chromium, **settings):
    """A browser context whose pages are still: moving pictures (Streamlit's skeletons, mostly) take a quarter of the
    processor time of a page that is opened."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce", **settings)
    context.set_default_timeout(WAIT_MS)
    return context


@pytest.fixture(scope="session")
def store_folder(tmp_path_factory, worker_id):
    """One store for all tests here, whichever pytest worker runs them, so that only the first waits for measurements. A
    test that needs something not to be measured yet asks for what no other test does: a task, a number of examples or
    of questions, a mask."""
    base = tmp_path_factory.getbasetemp()
    return (base if worker_id == "master" else base.parent) / "browser" / "results"


@pytest.fixture(autouse=True)
def processors(request, store_folder):
    """A test that is marked `alone` has them to itself: it waits until no other test runs, and the others for its
    end."""
    import fcntl  # not on every system that collects these tests

    store_folder.parent.mkdir(exist_ok=True)
    with (store_folder.parent / "processors").open("w") as lock:  # which its end releases
        fcntl.flock(lock, fcntl.LOCK_EX if is_alone(request.node) else fcntl.LOCK_SH)
        yield


@pytest.fixture(scope="session")
def app_server(warm_app, app_server):
    """As elsewhere; its servers end before the interpreter that forks them."""
    return app_server


@pytest.fixture(scope="session")
def server(app_server, store_folder):
    """The address and the process of one server for all tests that do not need one of their own."""
    return app_server(store_folder, warm=True)


@pytest.fixture(scope="session")
def address(server):
    return server[0]


@pytest.fixture(scope="session")
def warm(warm_app):
    """The app's libraries are in memory for its servers anyway."""
    return warm_app


@pytest.fixture(scope="session")
def context(chromium):
    """One browser context for all tests, so that the app's code is fetched and compiled once."""
    return new_context(chromium)


@pytest.fixture
def page(context, request):
    """A tab that notes everything it should not do, and is asked about it at the end. Nothing of it stays."""
    page, faults = context.new_page(), []
    page.emulate_media(color_scheme=getattr(request, "param", "light"))
    page.on("console", lambda message: faults.append(message.text) if is_fault(message) else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda sent: faults.append(f"left this computer: {sent.url}") if foreign(sent.url) else None)
    yield page
    for tab in context.pages:
        with contextlib.suppress(Error):  # a page from elsewhere, or one that has crashed
            tab.evaluate("localStorage.clear(); sessionStorage.clear()")
        tab.close()
    context.clear_cookies()
    assert faults == []


# A link within the app, as slides open one (present.js).
FOLLOW = """link => {
  history.pushState({}, "", link)
  window.dispatchEvent(new PopStateEvent("popstate", { state: {} }))
}"""


def follow(page, link):
    """Opens a link to the app: without loading the page again if the app is open."""
    if urlsplit(page.url).netloc == urlsplit(link).netloc:
        page.evaluate(FOLLOW, link)
    else:
        page.goto(link)


def is_fault(message):
    """An error, or what Vega warns of in a chart; but not that a server is gone which a test has stopped, nor that a
    line has no points yet, such as those of a run that has just begun."""
    if message.text.endswith("ERR_CONNECTION_REFUSED") or message.text.startswith("WARN Infinite extent"):
        return False
    return message.type == "error" or message.text.startswith("WARN ")


def foreign(url):
    return urlsplit(url).scheme not in ("data", "blob") and urlsplit(url).hostname != "127.0.0.1"


def marked(page, name, state=None, **facts):
    """The mark (pages/ui/page/marks.py) of this name, in this state and with these facts."""
    wanted = {"mark": name, "state": state, **facts}
    return page.locator("".join(f'[data-{key}="{value}"]' for key, value in wanted.items() if value is not None))


def await_command(page, *parts):
    """Waits until the command at the foot of the page has all these parts."""
    page.locator("[data-mark=command]" + "".join(f'[data-text*="{part}"]' for part in parts)).wait_for(state="attached")


def await_mark(page, name, state=None, **facts):
    """Waits until the page has such a mark."""
    marked(page, name, state, **facts).first.wait_for(state="attached")


def keyed(page, key):
    """The control, chart or container that the app draws under this key."""
    return page.locator(".st-key-" + re.sub("[^a-zA-Z0-9_-]", "-", key))


def open_settings(page):
    """Opens the settings of the study, if they are closed."""
    closed = keyed(page, "settings_menu study").locator("details:not([open]) summary")
    if closed.count():
        closed.click()


def at_rest(page):
    """Waits until no progress is shown and the page is drawn to its end."""
    page.get_by_test_id("stProgress").first.wait_for(state="detached")
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()


def settled_figure(page, **facts):
    """The large figure, once it is measured of so many `questions`, `heads` and `ffns`, and nothing is under way."""
    await_mark(page, "figure", "measured", **facts)
    at_rest(page)
    return page.get_by_test_id("stMetricValue").inner_text()


def click_in_chart(page, mark):
    """Clicks a mark that another may lie on, where it is once nothing is under way and nothing moves it any more."""
    at_rest(page)
    before = None
    while (at := mark.bounding_box()) != before:  # found anew each time: charts are drawn after the run has ended
        before = at
        page.wait_for_timeout(250)
    mark.click(force=True)  # which by itself waits for none of this
