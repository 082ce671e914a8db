"""The Correlations screen in a real Chromium: measured on demand; a clicked cell shows its two rankings."""

import re

from tests.browser.conftest import click_in_chart, open_study, settled_figure
from tests.embedded import LAST_HEAD


def test_measure_then_click_a_cell_then_choose_by_name(page, address):
    open_study(page, address, "Correlations", "demo_copy", "demo_lookup")
    page.get_by_text("importance is there for 0 of 2.").wait_for()
    page.get_by_role("button", name="Measure the 2 that are missing").click()
    page.get_by_text("importance is there for 2 of 2.").wait_for()
    page.get_by_text("The two tasks have SRCC").wait_for()
    ranked = page.locator(f'[aria-label*="Head: {LAST_HEAD}"]')

    def choose(first, second):  # the first matrix is of SRCC; its numbers lie on top of the cells
        click_in_chart(page, page.locator(f'[aria-label*="Rankings: {first} and {second};"]').last)

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


def test_what_is_clicked_before_the_tasks_are_drawn_loses_none_and_the_address_keeps_the_rest(page, address):
    held = []
    page.route("**/static/js/Multiselect*.js", lambda route: held.append(route))  # fetched where it is first drawn
    page.goto(f"{address}/?precision=fp32&prune_limit=16&prune_ranking=random")
    settled_figure(page, "16 of 16 questions")
    page.get_by_role("link", name="Correlations").click()
    for count in ("5", "1"):
        page.get_by_role("button", name=count, exact=True).click()
        page.get_by_role("button", name=count, exact=True).and_(page.locator('[aria-pressed="false"]')).wait_for()
    page.get_by_text(re.compile(r"importance is there for \d+ of 18\.")).wait_for()
    assert len(held) == 1 and not page.get_by_test_id("stMultiSelect").count()
    held[0].continue_()
    page.get_by_test_id("stMultiSelect").get_by_text("demo_walk", exact=True).wait_for()
    page.wait_for_function("location.search.includes('correlations_shots=0')")
    page.get_by_text(re.compile(r"importance is there for \d+ of 18\.")).wait_for()
    assert "precision=fp32" in page.url and "correlations_tasks" not in page.url
