"""The Head screen in a real Chromium: a link from another screen, a step, the address, and Back."""

import re

from playwright.sync_api import expect

HEADLINE = '[data-testid="stMain"] h2'


def shows(page, name):
    expect(page.locator(HEADLINE).first).to_have_text(re.compile(f"^{name} · "))
    expect(page.get_by_label("Head", exact=True)).to_have_value(name)
    expect(page).to_have_url(re.compile(f"/head\\?.*head={name}(&|$)"))
    assert "precision=fp32" in page.url


def test_a_link_opens_that_head_and_its_address_holds(page, address):
    page.goto(f"{address}/?precision=fp32&prune_limit=16&prune_ranking=random&prune_mask=L2H3")
    page.get_by_role("link", name="Open L2H3").click()  # at once, while Prune still measures
    shows(page, "L2H3")
    page.get_by_role("button", name="›").click()
    shows(page, "L2H4")
    context = page.context.browser.new_context()  # apart: Streamlit looks for its own files beside the page and fails
    tab = context.new_page()
    tab.goto(page.url)
    shows(tab, "L2H4")
    context.close()
    page.go_back()
    shows(page, "L2H3")
