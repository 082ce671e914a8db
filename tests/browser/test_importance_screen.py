"""The Importance screen in a real Chromium: choose tasks, measure, and see the maps grow complete."""


def test_two_tasks_are_chosen_measured_and_seen(page, address):
    page.goto(f"{address}/?precision=fp32&prune_limit=16&prune_ranking=random")
    page.get_by_role("link", name="Importance").click()
    page.get_by_text("Heads: importance is there for 0 of 54.").wait_for()
    for count in ("5", "1"):
        page.get_by_role("button", name=count, exact=True).click()
    page.get_by_text("Heads: importance is there for 0 of 18.").wait_for()
    tasks = page.get_by_test_id("stMultiSelect")
    tasks.get_by_role("combobox").press("Escape")
    tasks.get_by_label("Clear all").click()
    page.get_by_text("Choose at least one task").wait_for()
    for count, name in enumerate(("demo_copy", "demo_lookup"), start=1):
        tasks.get_by_role("combobox").fill(name)
        page.get_by_role("option", name=name, exact=True).click()
        page.get_by_text(f"Heads: importance is there for 0 of {count}.").wait_for()
    page.keyboard.press("Escape")
    for noun in ("Heads", "FFNs"):
        page.get_by_role("button", name="Measure the 2 that are missing").first.click()
        page.get_by_text(f"{noun}: importance is there for 2 of 2.").wait_for()
    page.get_by_text("matters most").first.wait_for()
    cell = page.locator('[aria-label*="Head: L3H7"]')
    cell.first.wait_for()
    assert cell.count() >= 2, "in each task's map"
    page.locator('[aria-label*="FFN: F0"]').first.wait_for()
    page.get_by_text("FFNs by task").wait_for()
    assert "importance_shots=0" in page.url and "importance_tasks=" in page.url
