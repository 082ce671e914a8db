"""The Attention screen in a real Chromium: pointing, keys, what stays after a reload, texts that want to do harm."""

import re

import pytest

from tests.browser.conftest import at_rest

HARM = "document.title='harmed'"
HOSTILE = f'<img src=x onerror="{HARM}"> <script>{HARM}</script> \u202eback\u202c 🦉 a\u200bb '


def settled(page):
    """Waits until the view shows a pattern and nothing is under way."""
    page.locator(".readout h4").first.wait_for()
    at_rest(page)
    page.locator(".screen:not(.waiting)").wait_for()


@pytest.fixture
def screen(page, address):
    """A function that opens the screen, with further parameters in its address."""

    def open_screen(parameters=""):
        page.goto(f"{address}/attention?precision=fp32{parameters}")
        settled(page)
        return page

    return open_screen


def tokens(page):
    return page.locator(".text span[role=option]")


def top(page):
    """Word, number and heads in the readout."""
    return page.locator(".readout .top").inner_text().replace("\n", " ")


def test_pointing_shows_values_and_a_lock_holds_them(screen):
    page = screen()
    tokens(page).nth(90).hover()
    at = top(page)
    assert re.search(r"\b90\b", at) and "click or Enter holds it" in at
    shares = [float(text) for text in page.locator(".readout .looks .row b").all_inner_texts()]
    assert shares == sorted(shares, reverse=True) and 0 < shares[0] <= 1
    assert page.locator(".readout .parts .row").count() == 4 + 5
    tokens(page).nth(90).click()
    tokens(page).nth(20).hover()
    assert "held" in top(page) and re.search(r"\b90\b", top(page))
    page.keyboard.press("Escape")
    assert re.search(r"\b20\b", top(page)) and "held" not in top(page)


def test_where_it_looks_and_who_looks_at_it_are_the_same_number(screen):
    page = screen()
    tokens(page).nth(100).hover()
    source = int(page.locator(".readout .looks .row .quiet").first.inner_text())
    share = page.locator(".readout .looks .row b").first.inner_text()
    page.locator("label:has(input[value=source])").click()
    tokens(page).nth(source).hover()
    read = "rows => rows.map(row => ['.quiet', 'b'].map(part => row.querySelector(part).textContent))"
    rows = page.locator(".readout .looks .row").evaluate_all(read)  # innerText has no spaces before a layout
    assert ["100", share] in rows


def test_keys_move_the_token_and_the_head(screen):
    page = screen()
    layer, first = map(int, page.locator(".map button[aria-pressed=true]").get_attribute("data-head")[1:].split("H"))
    tokens(page).nth(30).focus()
    for key, place in (("ArrowRight", 31), ("ArrowLeft", 30), ("Home", 0), ("End", tokens(page).count() - 1)):
        page.keyboard.press(key)
        assert tokens(page).nth(place).evaluate("token => token.matches('.at:focus')")
    page.keyboard.press("ArrowUp")
    above = page.locator(".text .at").bounding_box()
    assert above["y"] < tokens(page).last.bounding_box()["y"]
    page.keyboard.press("Enter")
    assert page.locator(".text .locked[aria-selected=true]").count() == 1
    page.keyboard.press("Escape")
    assert page.locator(".text .locked").count() == 0
    for key, number in (("]", first + 1), ("]", first + 2), ("[", first + 1)):
        head = f"L{layer}H{number}"
        page.keyboard.press(key)
        page.locator(f'.map button[data-head={head}][aria-pressed="true"]').wait_for()
        settled(page)
        assert head in top(page)
    page.wait_for_url(re.compile(f"attention_heads=L{layer}H{first + 1}"))
    page.locator(".map button[aria-pressed=true]").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"attention_heads=L{layer + 1}H{first + 1}"))


def test_several_heads_and_the_text_stay_after_a_reload(page, screen, another_tab):
    screen()
    page.get_by_role("button", name="Pattern labels").click()
    page.locator(".text.some").wait_for()
    settled(page)
    assert page.locator("input[value=next]").is_checked()
    tokens(page).nth(3).hover()  # no colon: it cannot be pointed at
    assert top(page).startswith("“:”")
    page.locator(".map button[data-head=L1H0]").click()
    page.locator(".map button[data-head=L1H3]").click(modifiers=["Shift"])
    page.wait_for_url(re.compile("attention_heads=L1H0(%2C|,)L1H3"))
    settled(page)
    assert "L1H0, L1H3: mean attention, sum of nats" in top(page)
    query = page.url.partition("?")[2]
    assert "attention_text=Pattern+labels" in query or "attention_text=Pattern%20labels" in query
    again = another_tab(page.url)
    settled(again)
    chosen = again.locator(".map button[aria-pressed=true]").evaluate_all("all => all.map(one => one.dataset.head)")
    words = again.locator(".text").inner_text()
    assert chosen == ["L1H0", "L1H3"] and words.startswith("⟨bos⟩July dog")


def test_the_map_can_show_what_each_head_raised(screen):
    page = screen()
    before = page.locator(".map button").first.get_attribute("title")
    assert "induction score" in before
    page.locator("label:has(input[value=raised])").click()
    tokens(page).nth(100).click()
    listed = page.locator(".readout .parts .two div:last-child .row").first.inner_text().split()
    cell = page.locator(f".map button[data-head={listed[0]}]")
    assert cell.get_attribute("title") == f"{listed[0]}: {listed[1]} nats"


def test_harmful_text_is_shown_as_text(page, screen):
    screen()
    page.get_by_role("button", name="Your own text").click()
    page.get_by_role("textbox", name="Paste a text").fill(HOSTILE * 3)
    page.keyboard.press("Control+Enter")
    page.get_by_label("Pasted text, ").wait_for()
    page.keyboard.press("Escape")
    settled(page)
    assert "<script>" in page.locator(".text").inner_text() and "⟨202E⟩" in page.locator(".text").inner_text()
    assert page.locator(".screen img, .screen script").count() == 0
    for place in range(0, 30, 3):
        tokens(page).nth(place).hover()
    assert page.title() != "harmed" and page.locator(".readout h4").count() == 3
