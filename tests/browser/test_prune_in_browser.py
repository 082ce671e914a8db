"""The Prune screen in a real Chromium: what only a browser shows."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import THEMES, await_command, await_mark, keyed, marked, settled_figure
from tests.embedded import n_at


@pytest.mark.thorough
@pytest.mark.parametrize("page", THEMES, indirect=True)
def test_open_move_reload_export(page, address):
    loaded = []
    page.on("request", lambda sent: loaded.append(sent.url) if "SyntaxHighlighter" in sent.url else None)
    page.goto(f"{address}/?precision=fp32&limit=32&order=random")
    full = settled_figure(page, questions=32, heads=0)
    assert re.fullmatch(r"\d+\.\d%", full)

    slider = page.get_by_role("slider", name="Attention heads pruned")
    slider.focus()
    slider.press("End")
    pruned = settled_figure(page, heads=n_at(100), questions=32)
    assert "points" in page.get_by_test_id("stMetricDelta").inner_text()
    assert "heads=100" in page.url
    await_command(page, " evaluate ", "--prune-heads 100")

    page.reload()
    await_mark(page, "curve", "estimated")  # last, and the page is drawn once more
    assert settled_figure(page, heads=n_at(100), questions=32) == pruned
    assert slider.input_value() == "100"

    command = marked(page, "command").first.get_attribute("data-text")
    assert not loaded, "1.5 MB of script for each page load"
    wanted = {"heads-and-ffns.png": b"\x89PNG", "curve.svg": b"<svg", "questions-and-choices.csv": b"ques"}
    for name, start in wanted.items():
        file = keyed(page, f"download {name}").get_by_role("button")
        if not file.is_visible():
            page.get_by_role("button", name=re.compile("Export$")).click()
            expect(page.get_by_test_id("stCode").first).to_have_text(command)
        with page.expect_download() as saved:
            file.click()
        with open(saved.value.path(), "rb") as file:
            assert file.read(4) == start
    assert loaded, "where the command is shown"
