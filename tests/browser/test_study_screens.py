"""Many tasks on Heads in a real Chromium: tasks are chosen, measured and drawn, and a clicked cell shows its
two rankings; and a sweep goes on while another screen is open."""

import re
from urllib.parse import quote

from playwright.sync_api import expect

from engine.requests import Sweep
from pages.ui.sections.form import label_of
from tests.browser.conftest import at_rest, await_mark, click_in_chart, keyed, settled_figure
from tests.embedded import LAST_HEAD

ACROSS = "heads_tab=Across+tasks"


def choose_counts(page, **wanted):
    """Chooses the shots to compare: on or off."""
    for count, is_on in wanted.items():
        button = keyed(page, "heads_shots").get_by_role("button", name=count[1:], exact=True)
        button.wait_for()
        if button.get_attribute("aria-pressed") != is_on:
            button.click()
        button.and_(page.locator(f'[aria-pressed="{is_on}"]')).wait_for()


def choose_tasks(page, *names):
    """Chooses these tasks alone."""
    tasks = page.get_by_test_id("stMultiSelect")
    tasks.get_by_label("Clear all").click()
    await_mark(page, "tasks", "none")
    for name in names:
        tasks.get_by_role("combobox").fill(name)
        page.get_by_role("option", name=name, exact=True).click()
        tasks.get_by_text(name, exact=True).wait_for()
    page.keyboard.press("Escape")
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()


def test_measure_then_choose_by_name_then_click_a_cell(page, address):
    page.goto(f"{address}/heads?precision=fp32&{ACROSS}")
    choose_counts(page, _0="true", _5="false", _1="false")
    choose_tasks(page, "demo_pet", "demo_label")
    await_mark(page, "importance", "measured", known=2, of=2)  # by itself, as it is short
    ranked = page.locator(f'[aria-label$="Name: {LAST_HEAD}"]')
    ranked.wait_for()
    boxes = [page.get_by_role("combobox", name=name, exact=True) for name in ("Ranking", "and ranking")]
    earlier, later = (box.input_value() for box in boxes)
    words = ranked.get_attribute("aria-label")
    assert f"Rank on {earlier} (1 = most important)" in words and {earlier, later} == {"demo_pet", "demo_label"}
    boxes[0].click()
    page.keyboard.type(later)
    page.get_by_role("option", name=later).wait_for()
    page.keyboard.press("Enter")
    page.get_by_text("two rankings").wait_for()
    search = page.evaluate("location.search")  # the second ranking is the default, which no address names
    assert f"heads_a={later}" in search and "heads_b" not in search and "heads_shots=0" in search

    click_in_chart(page, page.locator(f'[aria-label*="Other ranking: {earlier}; Ranking: {later};"]').first)
    for box, side in zip(boxes, (later, earlier), strict=True):
        expect(box).to_have_value(side)
    ranked.and_(page.locator(f'[aria-label*="Rank on {later} (1 = most important)"]')).wait_for()
    assert "in each top 30% are shared" in page.get_by_test_id("stMain").inner_text()
    a_color_bar_stays_when_a_control_changes_the_address(page)


def a_color_bar_stays_when_a_control_changes_the_address(page):
    bars = page.locator('[data-testid="stVegaLiteChart"] svg.marks [fill^="url("]')
    bars.first.wait_for(state="attached")
    at_rest(page)
    keyed(page, "shots").get_by_role("radio").nth(1).click()  # of the study, which the chart does not depend on
    expect(page).to_have_url(re.compile("[?&]shots="))
    at_rest(page)
    drawn = bars.evaluate_all("""all => all.map(bar => {
      const gradient = document.querySelector(bar.getAttribute("fill").slice(4, -1))
      return gradient?.tagName === "linearGradient" && bar.ownerSVGElement.contains(gradient)
    })""")
    assert drawn and all(drawn), "referred to within the page, whatever its address"


def test_what_is_clicked_before_the_tasks_are_drawn_loses_none_and_the_address_keeps_the_rest(page, address):
    held = []
    page.route("**/static/js/Multiselect*.js", lambda route: held.append(route))  # fetched where it is first drawn
    page.goto(f"{address}/?precision=fp32&limit=16&order=random")
    settled_figure(page, questions=16)
    page.get_by_role("link", name="Heads", exact=True).click()
    page.get_by_role("radio", name="Across tasks").click()
    choose_counts(page, _0="true", _5="false")
    await_mark(page, "importance", of=6)
    assert len(held) == 1 and not page.get_by_test_id("stMultiSelect").count()
    held[0].continue_()
    page.get_by_test_id("stMultiSelect").get_by_text("demo_cloze", exact=True).wait_for()
    page.wait_for_function("location.search.includes('heads_shots=0')")
    await_mark(page, "importance", of=6)
    assert "precision=fp32" in page.url and "heads_tasks" not in page.url


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
