"""Screens of many tasks in a real Chromium: tasks are chosen, measured on demand and drawn; a clicked cell of
Correlations shows its two rankings, and a sweep goes on while another screen is open."""

import re
from urllib.parse import quote

from engine.requests import Sweep
from pages.ui.sections.form import label_of
from tests.browser.conftest import at_rest, await_mark, click_in_chart, keyed, open_study, settled_figure
from tests.embedded import LAST_HEAD


def test_measure_then_choose_by_name_then_click_a_cell(page, address):
    open_study(page, address, "correlations", "demo_pet", "demo_label")
    await_mark(page, "importance", "missing", known=0, of=2)
    keyed(page, "measure correlations heads-one-divisor").get_by_role("button").click()
    await_mark(page, "importance", "measured", known=2, of=2)
    keyed(page, "correlations tasks 0").wait_for()
    ranked = page.locator(f'[aria-label*="Head: {LAST_HEAD}"]')

    def in_words():  # under the choice of two rankings
        beside = page.get_by_test_id("stColumn").filter(has=keyed(page, "correlations_b")).first
        words = beside.get_by_test_id("stMarkdown").last.inner_text()
        assert re.search("95% interval .* They share", words, re.DOTALL)
        return words

    shown = page.locator('[aria-label*="Rankings: "]').last.get_attribute("aria-label")
    later, earlier = re.search(r"Rankings: (.+?) and (.+?);", shown).groups()  # the screen opens with the earlier first
    page.get_by_role("combobox", name="Ranking", exact=True).click()
    page.keyboard.type(later)
    page.get_by_role("option", name=later).wait_for()
    page.keyboard.press("Enter")
    ranked.and_(page.locator(f'[aria-label*="Rank (1 = most important), {later}"]')).wait_for()
    said = in_words()
    address = page.evaluate("location.search")  # the first ranking is the default, which no address names
    assert f"correlations_a={later.split(',')[0]}" in address and "correlations_shots=0" in address

    # the first is of the chosen score; its whole row can be clicked
    click_in_chart(page, page.locator(f'[aria-label*="Rankings: {later} and {earlier};"]').first)
    for name, side in (("Ranking", earlier), ("and ranking", later)):
        box = page.get_by_role("combobox", name=name, exact=True)
        box.and_(page.locator(f'[value="{side}"]')).wait_for()
    ranked.and_(page.locator(f'[aria-label*="Rank (1 = most important), {earlier}"]')).wait_for()
    assert in_words() == said


def test_what_is_clicked_before_the_tasks_are_drawn_loses_none_and_the_address_keeps_the_rest(page, address):
    held = []
    page.route("**/static/js/Multiselect*.js", lambda route: held.append(route))  # fetched where it is first drawn
    page.goto(f"{address}/?precision=fp32&limit=16&order=random")
    settled_figure(page, questions=16)
    page.get_by_role("link", name="Correlations").click()
    keyed(page, "settings_menu correlations").get_by_text("Settings").click()
    for count, is_on in (("0", "true"), ("5", "false")):
        page.get_by_role("button", name=count, exact=True).click()
        page.get_by_role("button", name=count, exact=True).and_(page.locator(f'[aria-pressed="{is_on}"]')).wait_for()
    await_mark(page, "importance", of=6)
    assert len(held) == 1 and not page.get_by_test_id("stMultiSelect").count()
    held[0].continue_()
    page.get_by_test_id("stMultiSelect").get_by_text("demo_cloze", exact=True).wait_for()
    page.wait_for_function("location.search.includes('correlations_shots=0')")
    await_mark(page, "importance", of=6)
    assert "precision=fp32" in page.url and "correlations_tasks" not in page.url


def test_a_sweep_goes_on_behind_another_screen(page, address):
    asked = "bench_sweep_tasks=demo_copy&bench_sweep_tasks=demo_lookup&bench_sweep_shots=0&bench_sweep_limit=16"
    page.goto(f"{address}/bench?bench_measurement={quote(label_of(Sweep))}&{asked}")
    keyed(page, "offer Sweep").get_by_role("button").click()
    page.get_by_role("button", name="Cancel").wait_for()
    page.get_by_role("link", name="Prune").click()
    page.get_by_test_id("stMetricValue").wait_for()
    page.get_by_role("link", name="Bench", exact=True).click()
    page.locator("h1", has_text="Bench").wait_for()
    at_rest(page)
    keyed(page, "empty section_sweep").wait_for(state="detached")
    assert not keyed(page, "offer Sweep").count() and not page.get_by_role("button", name="Cancel").count()
    assert "bench_sweep_limit=16" in page.url
