"""The Importance screen in a real Chromium: choose tasks, measure, and see the maps grow complete."""

from tests.browser.conftest import await_mark, keyed, open_study
from tests.embedded import LAST_HEAD


def test_two_tasks_are_chosen_measured_and_seen(page, address):
    open_study(page, address, "importance", "demo_walk", "demo_price")
    await_mark(page, "importance", "missing", slot="importance heads", known=0, of=2)
    for slot in ("importance heads", "importance ffns"):
        keyed(page, f"measure {slot}").get_by_role("button").click()
        await_mark(page, "importance", "measured", slot=slot, known=2, of=2)
    await_mark(page, "chart", key="importance_maps")
    cell = page.locator(f'[aria-label*="Head: {LAST_HEAD}"]')
    cell.first.wait_for()
    assert cell.count() >= 2, "in each task's map"
    page.locator('[aria-label*="FFN: F0"]').first.wait_for()
    await_mark(page, "chart", key="importance_ffns")
    assert "importance_shots=0" in page.url and "importance_tasks=" in page.url
