"""A tiny run is trained live: its charts grow while it runs, and a click stops it."""

from tests.benchmarks.browser import served
from tests.browser.conftest import await_mark, keyed
from tests.conftest import REPOSITORY

PAGE = """
import sys
sys.path.insert(0, {code!r})
import streamlit as st
from pathlib import Path
st.set_page_config(layout="wide")
from pages.ui.training.live import draw_live
draw_live(Path({folder!r}))
"""
# points of the line of the first head, as they are drawn
POINTS = """() => {
  const line = document.querySelector('[data-testid="stVegaLiteChart"] svg .mark-line path')
  return line ? (line.getAttribute("d").match(/[ML]/g) || []).length : 0
}"""


def test_charts_grow_and_cancel_works(page, tmp_path):
    words = " ".join(f"word{number * number % 9973}" for number in range(60_000))
    (tmp_path / "words.txt").write_text(words, encoding="utf-8")
    script = tmp_path / "page.py"
    script.write_text(PAGE.format(code=str(REPOSITORY), folder=str(tmp_path / "runs")), encoding="utf-8")
    own = "live_layers=1&live_heads=2&live_width=16&live_context=16&live_batch=1&live_thousand_tokens=100"
    with served(script, REPOSITORY) as address:
        page.goto(f"{address}/?{own}&live_text={tmp_path / 'words.txt'}")
        page.get_by_role("button", name="Own recipe").click()
        keyed(page, "train own").get_by_role("button").click()
        page.get_by_role("button", name="Cancel").wait_for()
        page.wait_for_function(f"({POINTS})() >= 2")
        before = page.evaluate(POINTS)
        page.wait_for_function(f"({POINTS})() > {before}")
        await_mark(page, "training run", "measured")
        assert "best prefix matching" in page.get_by_test_id("stMain").inner_text()
        page.get_by_role("button", name="Cancel").dispatch_event("click")  # what is unfolded may lie over it
        await_mark(page, "job", "cancelled")
        page.get_by_role("button", name="Resume", exact=True).wait_for()
    run = tmp_path / "runs" / "own"
    assert (run / "state.pt").is_file() and not (run / "step6250").exists()
