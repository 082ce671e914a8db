"""Head, Induction and two models side by side in a real Chromium: links, steps, clicks on a chart, one click
that lets go, and what stays in the address."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import at_rest, await_mark, keyed, marked, settled_figure

HEADLINE = '[data-testid="stMain"] h2'


def shows(page, name):
    expect(page.locator(HEADLINE).first).to_have_text(re.compile(f"^{name} · "))
    expect(page.get_by_label("Head", exact=True)).to_have_value(name)
    expect(page).to_have_url(re.compile(f"/head\\?.*head={name}(&|$)"))
    assert "precision=fp32" in page.url


def test_a_link_opens_that_head_and_its_address_holds(page, address, another_tab):
    page.goto(f"{address}/?precision=fp32&limit=16&order=random&mask=L2H3")
    page.get_by_role("link", name="Open L2H3").click()  # at once, while Prune still measures
    shows(page, "L2H3")
    page.get_by_role("button", name="›").click()
    shows(page, "L2H4")
    shows(another_tab(page.url), "L2H4")
    page.go_back()
    shows(page, "L2H3")


def test_heads_clicked_on_a_map_are_in_the_table_and_can_be_pruned(page, address):
    page.goto(f"{address}/?precision=fp32&limit=32&order=random")
    settled_figure(page, questions=32, heads=0)
    page.get_by_role("link", name="Induction").click()
    await_mark(page, "corner")
    at_rest(page)

    def cell(head):  # of the first map, prefix matching
        return page.locator(f'[aria-label^="Head: {head}; Layer: 1;"]').first

    heads = [f"L1H{head}" for head in range(5)]
    before = []
    for first in (3, 0):  # twice, because the table reports late on a busy machine
        for head in range(first, 5):
            cell(head).click(modifiers=["Shift"] if head > first else [], force=True)  # a number lies on some cells
            page.locator(f'[data-mark="selection"]:not([data-heads="{" ".join(before)}"])').wait_for(state="attached")
            before = heads[first : head + 1]
            assert marked(page, "selection").get_attribute("data-heads") == " ".join(before)
    page.get_by_role("button", name="Prune these", exact=True).click()
    settled_figure(page, heads=5, questions=32)
    assert "mask=L1H0" in page.url


def test_a_color_bar_stays_when_a_control_changes_the_address(page, address):
    page.goto(f"{address}/induction?precision=fp32")
    bars = page.locator('[data-testid="stVegaLiteChart"] svg.marks [fill^="url("]')
    bars.first.wait_for(state="attached")
    at_rest(page)
    keyed(page, "induction_about").locator("summary").click()
    expect(page).to_have_url(re.compile("induction_about"))
    at_rest(page)
    drawn = bars.evaluate_all("""all => all.map(bar => {
      const gradient = document.querySelector(bar.getAttribute("fill").slice(4, -1))
      return gradient?.tagName === "linearGradient" && bar.ownerSVGElement.contains(gradient)
    })""")
    assert drawn and all(drawn), "referred to within the page, whatever its address"


def test_what_is_compared_goes_along_and_is_let_go_of_by_one_click(page, address):
    page.goto(f"{address}/?against=fp32&task=demo_copy&shots=0&limit=32&order=random")
    await_mark(page, "second figure", model="demo in fp32", questions=32)
    page.get_by_role("link", name="Text").click()
    await_mark(page, "losses", "measured")
    assert "against=fp32" in page.url
    page.get_by_test_id("stSidebar").get_by_role("button", name=re.compile("clear", re.I)).click()
    expect(page).not_to_have_url(re.compile("against"))
