"""The Sweeps screen in a real Chromium: a sweep goes on while another screen is open, and is there afterwards."""

from tests.browser.conftest import await_mark, keyed, open_study


def test_a_sweep_goes_on_behind_another_screen(page, address):
    open_study(page, address, "sweeps", "demo_copy", "demo_lookup")
    questions = page.get_by_label("Questions", exact=True)
    questions.fill("16")
    questions.press("Enter")
    keyed(page, "offer sweep heads").get_by_role("button").click()
    page.get_by_role("button", name="Cancel").wait_for()
    page.get_by_role("link", name="Prune").click()
    page.get_by_test_id("stMetricValue").wait_for()
    page.get_by_role("link", name="Sweeps").click()
    await_mark(page, "sweep", "measured", section="heads")
    page.get_by_role("button", name="Cancel").wait_for(state="detached")
    for tenth in range(11):
        point = page.locator(f'[aria-label*="Line: mean of tasks"][aria-label*="Pruned: {10 * tenth} %;"]')
        point.first.wait_for()
    said = page.get_by_test_id("stMain").inner_text()
    assert "Mean of tasks at 0 %, 50 %, 70 %, 100 % of heads pruned" in said
    page.get_by_role("radio", name="Transfer").click()
    keyed(page, "sweeps_level drag").wait_for()  # the page is the new one
    keyed(page, "offer sweep transfer").get_by_role("button").click()
    await_mark(page, "chart", key="sweep transfer")
    cell = page.locator('path[aria-roledescription="rect mark"][aria-label*="Judged on: demo_"]')
    assert cell.first.bounding_box()["height"] >= 28
    assert "sweeps_what=Transfer" in page.url and "sweeps_limit=16" in page.url
