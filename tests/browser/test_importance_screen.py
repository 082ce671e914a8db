"""The Importance screen in a real Chromium: choose tasks, measure, and see the maps grow complete."""

from tests.browser.conftest import open_study
from tests.embedded import LAST_HEAD


def test_two_tasks_are_chosen_measured_and_seen(page, address):
    open_study(page, address, "Importance", "demo_copy", "demo_lookup")
    page.get_by_text("Heads: importance is there for 0 of 2.").wait_for()
    for noun in ("Heads", "FFNs"):
        page.get_by_role("button", name="Measure the 2 that are missing").first.click()
        page.get_by_text(f"{noun}: importance is there for 2 of 2.").wait_for()
    page.get_by_text("matters most").first.wait_for()
    cell = page.locator(f'[aria-label*="Head: {LAST_HEAD}"]')
    cell.first.wait_for()
    assert cell.count() >= 2, "in each task's map"
    page.locator('[aria-label*="FFN: F0"]').first.wait_for()
    page.get_by_text("FFNs by task").wait_for()
    assert "importance_shots=0" in page.url and "importance_tasks=" in page.url
