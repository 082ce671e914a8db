"""The Induction screen in a real Chromium: clicks on a chart, what they select, and the way to the Prune screen."""

import re

from tests.browser.conftest import settled_figure
from tests.embedded import heads


def test_heads_clicked_on_a_map_are_in_the_table_and_can_be_pruned(page, address):
    page.goto(f"{address}/?precision=fp32&prune_limit=32&prune_ranking=random")
    settled_figure(page, "32 of 32 questions", heads(0))
    page.get_by_role("link", name="Induction").click()
    page.get_by_text("Importance is there for").wait_for()
    page.get_by_test_id("stProgress").first.wait_for(state="detached")

    def cell(head):  # of the first map, prefix matching
        return page.locator(f'[aria-label^="Head: {head}; Layer: 1;"]').first

    cell(0).click()
    page.get_by_text("Selected: L1H0").wait_for()
    for head in range(1, 5):
        cell(head).click(modifiers=["Shift"])
        page.get_by_text(re.compile(f"Selected: .*L1H{head}")).wait_for()
    page.get_by_role("button", name="Prune these").click()
    settled_figure(page, heads(5), "32 of 32 questions")
    assert "prune_mask=L1H0" in page.url
