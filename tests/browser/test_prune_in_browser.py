"""The Prune screen in a real Chromium: what only a browser shows."""

import re
import shutil
from urllib.parse import urlsplit

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
WAIT_MS = 180_000
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this computer")]


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

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
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda sent: faults.append(f"left this computer: {sent.url}") if foreign(sent.url) else None)
    yield page
    context.close()
    assert faults == []


def foreign(url):
    return urlsplit(url).scheme not in ("data", "blob") and urlsplit(url).hostname != "127.0.0.1"


def settled_figure(page, *words):
    """The large figure, once the lines under it say these words and nothing is under way."""
    for word in words:
        page.get_by_text(word).first.wait_for()
    page.get_by_test_id("stProgress").first.wait_for(state="detached")
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    return page.get_by_test_id("stMetricValue").inner_text()


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_open_move_reload(page, address):
    page.goto(f"{address}/?precision=fp32&prune_limit=32&prune_ranking=random")
    full = settled_figure(page, "32 of 32 questions", "0 of 32 heads")
    assert re.fullmatch(r"\d+\.\d %", full)

    slider = page.get_by_role("slider", name="Attention heads pruned")
    slider.focus()
    slider.press("End")
    pruned = settled_figure(page, "32 of 32 heads", "points against the full model", "32 of 32 questions")
    assert "prune_heads=100" in page.url
    page.get_by_text("--prune-heads 100").wait_for()

    page.reload()
    assert settled_figure(page, "32 of 32 heads", "32 of 32 questions") == pruned
    assert slider.input_value() == "100"


def test_every_control_is_reached_by_the_keyboard(page, address):
    page.goto(f"{address}/?precision=fp32&prune_limit=32&prune_ranking=random")
    settled_figure(page, "32 of 32 questions")
    page.get_by_role("combobox", name="Task").focus()
    focused = "(document.activeElement.getAttribute('aria-label') || document.activeElement.innerText).trim()"
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(page.evaluate(focused))
    text = " ".join(filter(None, seen))
    for name in ("Questions", "Who goes first", "Attention heads", "FFNs pruned", "Prune also", "Measure the curve"):
        assert name in text, f"{name} is not reached by Tab; reached: {sorted(seen)}"


def test_a_cold_permalink(page, app_server, store_folder):
    cold_address, _ = app_server(store_folder)
    page.goto(f"{cold_address}/?precision=fp32&prune_limit=32&prune_ranking=random&prune_heads=50&prune_mask=F0")
    settled_figure(page, "16 of 32 heads, 1 of 4 FFNs pruned", "32 of 32 questions")
    page.get_by_role("combobox", name="Model").wait_for()
    assert page.get_by_role("textbox", name="Prune also").input_value() == "F0"
    assert "prune_heads=50" in page.url and "prune_mask=F0" in page.url


def test_a_picture_and_a_table_are_saved(page, address):
    page.goto(f"{address}/?precision=fp32&prune_limit=32&prune_ranking=random&prune_heads=50")
    settled_figure(page, "16 of 32 heads", "32 of 32 questions")
    wanted = {"Heads (PNG)": b"\x89PNG", "Curve (SVG)": b"<svg", "Questions and choices (CSV)": b"ques"}
    for name, start in wanted.items():
        if not page.get_by_role("button", name=name).is_visible():
            page.get_by_test_id("stPopover").get_by_role("button").click()
        with page.expect_download() as saved:
            page.get_by_role("button", name=name).click()
        with open(saved.value.path(), "rb") as file:
            assert file.read(4) == start
