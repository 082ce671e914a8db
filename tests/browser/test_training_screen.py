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
from tests.browser.conftest import await_mark

RUNS = "training_run=2-layers&training_control=1-layer-smeared"
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
    page.goto(f"{address}/training?{RUNS}&training_passage=true")
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


# points of the line of the second copy, as they are drawn
POINTS = """() => {
  const line = document.querySelector('[data-testid="stVegaLiteChart"] svg .mark-line path')
  return line ? (line.getAttribute("d").match(/[ML]/g) || []).length : 0
}"""


def test_charts_grow_and_cancel_works(page, address, tmp_path):
    words = " ".join(f"word{number * number % 9973}" for number in range(60_000))
    (tmp_path / "words.txt").write_text(words, encoding="utf-8")
    run = tmp_path / "runs" / "own"
    begin(run, Recipe(1, 2, 16, 16, batch=1, tokens=100_000), tmp_path / "words.txt")
    page.goto(f"{address}/training?training_folder={run.parent}")
    page.get_by_role("button", name="Resume own").click()
    page.get_by_role("button", name="Cancel").wait_for()
    page.wait_for_function(f"({POINTS})() >= 2")
    before = page.evaluate(POINTS)
    page.wait_for_function(f"({POINTS})() > {before}")
    assert "No induction head forms" in page.get_by_test_id("stMain").inner_text()
    page.get_by_role("button", name="Cancel").dispatch_event("click")  # what is unfolded may lie over it
    await_mark(page, "job", "canceled")
    page.get_by_role("button", name="Resume", exact=True).wait_for()
    assert (run / "state.pt").is_file() and not (run / "step6250").exists()
