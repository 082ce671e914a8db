"""Heads and two models side by side in a real Chromium: links, where a head looks in a text, and one click that lets
go."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import await_mark, keyed, open_settings


def shows(page, name):
    expect(keyed(page, "head").get_by_role("textbox")).to_have_value(name)
    expect(page).to_have_url(re.compile(f"/heads\\?.*head={name}(&|$)"))
    assert "precision=fp32" in page.url


def test_a_link_opens_that_head_and_its_address_holds(page, address):
    page.goto(f"{address}/?precision=fp32&limit=16&shots=0&order=random&mask=L2H3")
    page.get_by_role("link", name="Open L2H3 on Heads").click()  # at once, while Prune still measures
    shows(page, "L2H3")
    field = keyed(page, "head").get_by_role("textbox")
    field.fill("L2H4")
    field.press("Enter")
    shows(page, "L2H4")
    tab = page.context.new_page()
    tab.goto(page.url)
    shows(tab, "L2H4")
    page.go_back()
    shows(page, "L2H3")
    page.get_by_role("button", name="Show in Text").click()
    page.wait_for_url(re.compile("/text.*text_head=L2H3"))
    page.locator(".legend", has_text="L2H3").wait_for()


def test_what_is_compared_goes_along_and_is_let_go_of_by_one_click(page, address):
    page.goto(f"{address}/?against=fp32&task=demo_copy&shots=0&limit=32&order=random")
    await_mark(page, "second figure", model="demo in fp32", questions=32)
    page.get_by_role("link", name="Text").click()
    await_mark(page, "losses", "measured")
    assert "against=fp32" in page.url
    open_settings(page)
    keyed(page, "against").get_by_role("button", name=re.compile("clear", re.I)).click()
    expect(page).not_to_have_url(re.compile("against"))
