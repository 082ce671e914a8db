"""In a browser the slider of training moves the marker of the charts and the tint of the passage by itself; a tiny run
is trained live: its charts grow while it runs, and a click stops it."""

import json

import pytest
from playwright.sync_api import expect

from engine.checkpoints.names import RECIPE
from engine.training.recipe import Recipe
from engine.training.running import begin
from engine.training.trajectory import encode
from pages.ui.training.runs import RECORD
from tests import synthetic_runs
from tests.benchmarks.browser import served
from tests.browser.conftest import await_mark
from tests.conftest import REPOSITORY

NAMES = "2-layers,1-layer-smeared"
# where the line at the moment stands in the first chart, in pixels
MARKER = """() => [...document.querySelectorAll("[data-testid=stVegaLiteChart] .mark-rule.role-mark line")]
    .map(line => line.getAttribute("transform")).filter(Boolean)[0] ?? null"""


@pytest.fixture(scope="module")
def own_runs(store_folder):
    """Runs of one's own where the app looks for them, measured already."""
    for each in synthetic_runs.runs():
        folder = store_folder / "runs" / each.name
        folder.mkdir(parents=True)
        (folder / RECIPE).write_text(json.dumps({"recipe": each.recipe}))
        (folder / RECORD).write_bytes(encode(each))


def test_marker_and_tint_follow_the_slider_and_the_field_once_it_rests(own_runs, page, address):
    page.goto(f"{address}/training?training_runs={NAMES}&training_tint=loss at the moment")
    slider, text = page.get_by_role("slider", name="Training, tokens"), page.locator(".text[data-snapshot]")
    expect(slider).to_be_visible()
    expect(text).to_be_visible()
    page.wait_for_function(f"({MARKER})() !== null")
    before = page.evaluate(MARKER), text.get_attribute("data-snapshot")
    slider.press("Home")
    page.wait_for_function(f"({MARKER})() !== {json.dumps(before[0])}")
    assert text.get_attribute("data-snapshot") == "0" != before[1] == "19"
    page.wait_for_url("**training_tokens=0*")
    slider.press("End")
    expect(text).to_have_attribute("data-snapshot", "19")
    page.wait_for_url("**training_tokens=4000000*")
    at_rest = page.evaluate(MARKER)
    page.get_by_role("button", name="Play training").click()
    page.wait_for_function(f"({MARKER})() !== {json.dumps(at_rest)}")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Play training")).to_be_visible()


PAGE = """
import sys
sys.path.insert(0, {code!r})
import streamlit as st
from pathlib import Path
st.set_page_config(layout="wide")
from pages.ui.training.live import draw_live
draw_live(Path({folder!r}), *st.columns(2))
"""
# points of the line of the first head, as they are drawn
POINTS = """() => {
  const line = document.querySelector('[data-testid="stVegaLiteChart"] svg .mark-line path')
  return line ? (line.getAttribute("d").match(/[ML]/g) || []).length : 0
}"""


def test_charts_grow_and_cancel_works(page, tmp_path):
    words = " ".join(f"word{number * number % 9973}" for number in range(60_000))
    (tmp_path / "words.txt").write_text(words, encoding="utf-8")
    script, run = tmp_path / "page.py", tmp_path / "runs" / "own"
    script.write_text(PAGE.format(code=str(REPOSITORY), folder=str(run.parent)), encoding="utf-8")
    begin(run, Recipe(1, 2, 16, 16, batch=1, tokens=100_000), tmp_path / "words.txt")
    with served(script, REPOSITORY) as address:
        page.goto(address)
        page.get_by_role("button", name="Recipes").click()
        page.get_by_role("button", name="Resume own").click()
        page.get_by_role("button", name="Cancel").wait_for()
        page.wait_for_function(f"({POINTS})() >= 2")
        before = page.evaluate(POINTS)
        page.wait_for_function(f"({POINTS})() > {before}")
        await_mark(page, "training run", "measured")
        assert "best prefix match" in page.get_by_test_id("stMain").inner_text()
        page.get_by_role("button", name="Cancel").dispatch_event("click")  # what is unfolded may lie over it
        await_mark(page, "job", "cancelled")
        page.get_by_role("button", name="Resume", exact=True).wait_for()
    assert (run / "state.pt").is_file() and not (run / "step6250").exists()
