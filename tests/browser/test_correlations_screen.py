"""The Correlations screen in a real Chromium: measured on demand; a clicked cell shows its two rankings."""

import re

from tests.browser.conftest import settled_figure


def test_measure_then_click_a_cell_then_choose_by_name(page, address):
    page.goto(f"{address}/?precision=fp32&prune_limit=16&prune_ranking=random")
    settled_figure(page, "16 of 16 questions")
    page.get_by_role("link", name="Correlations").click()
    for count in ("5", "1"):
        page.get_by_role("button", name=count, exact=True).click()
    page.get_by_text("importance is there for 0 of 18.").wait_for()
    page.get_by_test_id("stMultiSelect").get_by_label("Clear all").click()
    page.get_by_text("Choose at least one task").wait_for()
    for count, name in enumerate(("demo_copy", "demo_lookup"), start=1):
        page.get_by_test_id("stMultiSelect").get_by_role("combobox").fill(name)
        page.get_by_role("option", name=name, exact=True).click()
        page.get_by_text(f"importance is there for 0 of {count}.").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Measure the 2 that are missing").click()
    page.get_by_text("importance is there for 2 of 2.").wait_for()
    page.get_by_text("The two tasks have SRCC").wait_for()
    ranked = page.locator('[aria-label*="Head: L3H7"]')

    def choose(first, second):  # the first matrix is of SRCC; its numbers lie on top of the cells
        page.locator(f'[aria-label*="Rankings: {first} and {second};"]').last.click(force=True)

    for first, second in (("demo_copy, 0 shots", "random"), ("aggregate, 0 shots", "demo_lookup, 0 shots")):
        choose(first, second)
        for name, side in (("Ranking", first), ("and ranking", second)):
            box = page.get_by_role("combobox", name=name, exact=True)
            box.and_(page.locator(f'[value="{side}"]')).wait_for()
        said = page.get_by_text(re.compile("95 % interval .* they share")).inner_text()
        ranked.and_(page.locator(f'[aria-label*="Rank in {first}"]')).wait_for()

    page.get_by_role("combobox", name="and ranking", exact=True).click()
    page.keyboard.type("demo_copy")
    page.get_by_role("option", name="demo_copy, 0 shots").wait_for()
    page.keyboard.press("Enter")
    ranked.and_(page.locator('[aria-label*="Rank in demo_copy, 0 shots"]')).wait_for()
    assert page.get_by_text(re.compile("95 % interval .* they share")).inner_text() != said
    address = page.evaluate("location.search")
    assert "correlations_a=aggregate" in address and "correlations_shots=0" in address
