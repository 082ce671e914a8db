"""The maps on Prune and Heads as controls, and the study on all screens: what only a browser shows."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import click_in_chart, keyed, settled_figure
from tests.embedded import SHAPE, ffns, heads, n_at

START = "precision=fp32&limit=16&shots=1&order=random"


def field(page):
    return page.get_by_label("Prune these as well", exact=True)  # on Prune within Settings, which are closed


def badge(page):
    return page.locator(".stMarkdownBadge", has_text="Pruned").first


def head(page, name):
    return page.get_by_role("button", name=re.compile(f"^{name}: "))


def click_while_the_map_moves(page, name):
    """Clicks a head that something drawn above it moves down before the button is released."""
    head(page, name).hover()
    page.mouse.down()
    keyed(page, "prune_map").evaluate("map => { map.style.marginTop = '5rem' }")
    page.mouse.up()
    expect(head(page, name)).to_have_attribute("aria-pressed", "false")


def test_clicks_and_keys_prune_and_restore_and_none_is_lost(page, address):
    page.goto(f"{address}/?{START}&heads=25")
    settled_figure(page, questions=16, heads=n_at(25))
    by_level, of_level = page.locator(".grid button.pruned"), n_at(25)
    expect(by_level).to_have_count(of_level)
    name = by_level.first.get_attribute("aria-label").split(":")[0]
    others = [each for each in ("L1H0", "L1H1", "L2H0", "L2H1", "L3H0", "L3H1")
              if "kept" in head(page, each).get_attribute("aria-label")]  # fmt: skip
    for each in others:  # as fast as it goes: the page is still measuring the first
        head(page, each).click()
        expect(head(page, each)).to_have_attribute("aria-pressed", "true")
    settled_figure(page, heads=of_level + len(others))
    click_while_the_map_moves(page, others.pop())
    for each in others:
        head(page, each).click()
    head(page, name).click()
    expect(field(page)).to_have_value(f"keep {name}")
    settled_figure(page, heads=of_level - 1)
    head(page, "F2").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(field(page)).to_have_value(f"F3 keep {name}")
    head(page, "L2H0").click(modifiers=["Shift"])
    expect(field(page)).to_have_value(re.compile(r"L2H"))
    expect(page.locator(".grid button.pruned").filter(has=page.locator("xpath=self::*[starts-with(@title, 'L2')]"))
           ).to_have_count(SHAPE.n_heads)  # fmt: skip
    settled_figure(page, ffns=1)


def test_a_head_clicked_on_heads_is_on_the_card_and_pruned_on_all_screens(page, address):
    few = START.replace("shots=1", "shots=0")  # what the head costs is measured by itself
    page.goto(f"{address}/heads?{few}&colors=Induction&mask=L1H3+F0")
    expect(badge(page)).to_contain_text(f"{heads(1)}, {ffns(1)}")
    card = keyed(page, "head").get_by_role("textbox")
    click_in_chart(page, page.locator('[aria-label*="Name: L2H4;"]').first)
    expect(page).to_have_url(re.compile("head=L2H4(&|$)"))
    expect(card).to_have_value("L2H4")
    expect(page.get_by_test_id("stMarkdown").filter(has_text=re.compile("^L2H4 "))).to_have_count(1)
    page.get_by_role("button", name="Prune it").click()
    expect(badge(page)).to_contain_text(f"{heads(2)}, {ffns(1)}")
    expect(page.get_by_role("button", name="Restore it")).to_be_visible()
    page.get_by_role("link", name="Text", exact=True).click()
    page.wait_for_url("**/text?*mask=L1H3+L2H4+F0*")
    expect(field(page)).to_have_value("L1H3 L2H4 F0")
    page.get_by_role("link", name="Prune", exact=True).click()
    settled_figure(page, questions=16, heads=2, ffns=1)
    expect(badge(page)).to_contain_text(f"{heads(2)}, {ffns(1)}")
    page.get_by_role("link", name="Heads", exact=True).click()
    page.wait_for_url("**/heads?*mask=L1H3+L2H4+F0*")
    page.get_by_role("button", name="Restore", exact=True).click()
    expect(badge(page)).not_to_be_visible()
    page.get_by_role("link", name="Prune", exact=True).click()
    settled_figure(page, heads=0, ffns=0)
    assert "mask" not in page.url and "heads=" not in page.url
