"""In a browser the slider of training moves the marker of the charts and the tint of the passage by itself."""

import json

import pytest
from playwright.sync_api import expect

from engine.checkpoints.names import RECIPE
from engine.training.trajectory import encode
from pages.ui.training.runs import RECORD
from tests import synthetic_runs

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
    slider.press("End")
    page.wait_for_function(f"({MARKER})() !== {json.dumps(before[0])}")
    assert text.get_attribute("data-snapshot") == "19" != before[1]
    tokens = page.get_by_role("spinbutton", name="At tokens")
    expect(tokens).to_have_value("4000000")
    slider.press("Home")
    expect(text).to_have_attribute("data-snapshot", "0")
    expect(tokens).to_have_value("0")
    at_rest = page.evaluate(MARKER)
    page.get_by_role("button", name="Play training").click()
    page.wait_for_function(f"({MARKER})() !== {json.dumps(at_rest)}")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Play training")).to_be_visible()
