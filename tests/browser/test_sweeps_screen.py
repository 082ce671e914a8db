"""The Sweeps screen in a real Chromium: a sweep goes on while another screen is open, and is there afterwards."""

import re

from tests.browser.conftest import open_study


def test_a_sweep_goes_on_behind_another_screen(page, address):
    open_study(page, address, "Sweeps", "demo_copy", "demo_lookup")
    questions = page.get_by_label("Questions", exact=True)
    questions.fill("16")
    questions.press("Enter")
    page.get_by_role("button", name=re.compile(r"Measure \d+ accuracies")).click()
    page.get_by_role("button", name="Cancel").wait_for()
    page.get_by_role("link", name="Prune").click()
    page.get_by_test_id("stMetricValue").wait_for()
    page.get_by_role("link", name="Sweeps").click()
    page.get_by_text("How much can go").wait_for()
    page.get_by_role("button", name="Cancel").wait_for(state="detached")
    for tenth in range(11):
        point = page.locator(f'[aria-label*="Line: mean of tasks"][aria-label*="Pruned: {10 * tenth} %;"]')
        point.first.wait_for()
    page.get_by_text("Mean of tasks at 0 %, 50 %, 70 %, 100 % of heads pruned").wait_for()
    page.get_by_role("radio", name="Transfer").click()
    page.get_by_role("slider", name="Attention heads pruned").wait_for()  # the page is the new one
    page.get_by_role("button", name=re.compile("Measure \\d+ acc")).click()
    page.get_by_text("another task's ranking costs").wait_for()
    assert "sweeps_what=Transfer" in page.url and "sweeps_limit=16" in page.url
