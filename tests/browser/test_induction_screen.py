"""The Induction screen in a real Chromium: clicks on a chart, what they select, and the way to the Prune screen."""

from tests.browser.conftest import await_mark, marked, settled_figure


def test_heads_clicked_on_a_map_are_in_the_table_and_can_be_pruned(page, address):
    page.goto(f"{address}/?precision=fp32&prune_limit=32&prune_ranking=random")
    settled_figure(page, questions=32, heads=0)
    page.get_by_role("link", name="Induction").click()
    await_mark(page, "importance", slot="importance of all")
    page.get_by_test_id("stProgress").first.wait_for(state="detached")

    def cell(head):  # of the first map, prefix matching
        return page.locator(f'[aria-label^="Head: {head}; Layer: 1;"]').first

    heads = [f"L1H{head}" for head in range(5)]
    before = []
    for first in (3, 0):  # twice, because the table reports late on a busy machine
        for head in range(first, 5):
            cell(head).click(modifiers=["Shift"] if head > first else [])
            page.locator(f'[data-mark="selection"]:not([data-heads="{" ".join(before)}"])').wait_for(state="attached")
            before = heads[first : head + 1]
            assert marked(page, "selection").get_attribute("data-heads") == " ".join(before)
    page.get_by_role("button", name="Prune these").click()
    settled_figure(page, heads=5, questions=32)
    assert "prune_mask=L1H0" in page.url
