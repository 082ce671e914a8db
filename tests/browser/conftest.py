"""A real Chromium, tabs that note every fault, and a server of their own: for all browser tests."""

import contextlib
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import HANG_S

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HERE = Path(__file__).parent
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
WAIT_MS = 1000 * HANG_S


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this computer"))


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


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=WAIT_MS)  # instead of 5 s
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def store_folder(tmp_path_factory):
    """One store for all tests here, so that only the first waits for measurements."""
    return tmp_path_factory.mktemp("browser") / "results"


@pytest.fixture(scope="module")
def address(app_server, store_folder):
    return app_server(store_folder)[0]


@pytest.fixture
def page(chromium, request):
    """A tab that notes everything it should not do, and is asked about it at the end."""
    theme = getattr(request, "param", "light")
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, color_scheme=theme)
    context.set_default_timeout(WAIT_MS)
    page, faults = context.new_page(), []
    page.on("console", lambda message: faults.append(message.text) if is_fault(message) else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda sent: faults.append(f"left this computer: {sent.url}") if foreign(sent.url) else None)
    yield page
    context.close()
    assert faults == []


def is_fault(message):
    """An error; but not what Streamlit asks of a screen's own address before it asks the root."""
    return message.type == "error" and "/_stcore/" not in str(message.location.get("url"))


def foreign(url):
    return urlsplit(url).scheme not in ("data", "blob") and urlsplit(url).hostname != "127.0.0.1"


def settled_figure(page, *words):
    """The large figure, once the lines under it say these words and nothing is under way."""
    for word in words:
        page.get_by_text(word).first.wait_for()
    page.get_by_test_id("stProgress").first.wait_for(state="detached")
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    return page.get_by_test_id("stMetricValue").inner_text()


def click_in_chart(page, mark):
    """Clicks a mark that another may lie on, where it is once nothing is under way and nothing moves it any more."""
    page.get_by_test_id("stProgress").first.wait_for(state="detached")
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    before = None
    while (at := mark.bounding_box()) != before:  # found anew each time: charts are drawn after the run has ended
        before = at
        page.wait_for_timeout(250)
    mark.click(force=True)  # which by itself waits for none of this


def open_study(page, address, screen, *names):
    """Opens a screen about many tasks by its link and chooses these tasks alone, at 0 solved examples."""
    page.goto(f"{address}/?precision=fp32&prune_limit=16&prune_ranking=random")
    settled_figure(page, "16 of 16 questions")
    page.get_by_role("link", name=screen).click()
    for count in ("5", "1"):
        page.get_by_role("button", name=count, exact=True).click()
        page.get_by_role("button", name=count, exact=True).and_(page.locator('[aria-pressed="false"]')).wait_for()
    tasks = page.get_by_test_id("stMultiSelect")
    tasks.get_by_label("Clear all").click()
    page.get_by_text("Choose at least one task").wait_for()
    for name in names:
        tasks.get_by_role("combobox").fill(name)
        page.get_by_role("option", name=name, exact=True).click()
        tasks.get_by_text(name, exact=True).wait_for()
    page.keyboard.press("Escape")
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
