"""The Text screen in a real Chromium: hover, keyboard, a slider that moves the tint, attention, how both models write
on, the address, hostile text."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import THEMES, WAIT_MS, at_rest, await_mark, keyed, open_settings
from tests.conftest import some_of
from tests.embedded import n_at

TEXT = ".st-key-tokens .text"
OPENS_AT = 10  # percent of the heads: the induction heads
TITLE = "Privet Drive, twice"
HARM = "document.title='broken'"
HOSTILE = {
    "markup": f'<script>{HARM}</script><img src=x onerror="{HARM}"> <b>bold</b> &amp;',
    "right to left": "\u202eright to left\u202c مرحبا بالعالم and שלום, then English \u200b\u2066again\u2069.",
    "markdown": "**bold** $x^2$ :red[red] [link](javascript:alert(1)) # heading `code` | a | b |",
    "emoji": "A family 👩‍👩‍👧‍👦, a flag 🏴‍☠️, and e\u0301 with an accent.",
}


def open_text(page, address, parameters="&heads=10&order=induction-first"):
    """The screen, without the induction heads."""
    page.goto(f"{address}/text?precision=fp32{parameters}")
    return ready(page)


def choose(page, name, option):
    page.get_by_role("combobox", name=name, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()


def fill(page, name, value):
    page.get_by_role("textbox", name=name, exact=True).fill(value)
    page.get_by_role("textbox", name=name, exact=True).press("Enter")


def ready(page):
    """The text, once nothing is under way."""
    page.locator(f"{TEXT} span").first.wait_for()
    at_rest(page)
    return page.locator(TEXT)


def token(page, text, nth=0):
    return page.locator(f"{TEXT} span").filter(has_text=re.compile(f"^{re.escape(text)}$")).nth(nth)


def paste(page, text):
    page.get_by_role("button", name="Your own text").click()
    page.get_by_role("textbox", name="Paste a text").fill(text)
    page.get_by_role("button", name="Use the pasted text").click()
    keyed(page, "text_text_pasted").wait_for(state="detached")  # it closes once a text is used


def tints(page):
    """The strength of each token's color, in one text."""
    return page.locator(TEXT).evaluate(
        "text => [...text.querySelectorAll('span')].map(span => span.style.getPropertyValue('--tint')).join()"
    )


def plain(page):
    """The text as it was before signs took the place of what shows nothing."""
    shown = page.locator(TEXT).first.evaluate("text => text.textContent")
    return re.sub("⟨([0-9A-F]{4})⟩", lambda code: chr(int(code[1], 16)), shown)


def awaited(page, read, is_right):
    """What is read of the page, once it is right."""
    for _ in range(WAIT_MS // 50):
        if is_right(now := read(page)):
            return now
        page.wait_for_timeout(50)
    raise AssertionError(f"it is still {now!r}")


@pytest.mark.thorough
@pytest.mark.parametrize("page", THEMES, indirect=True)
def test_attention_is_shaded_and_tokens_answer_to_mouse_and_keys(page, address):
    open_text(page, address, "&text_head=L1H2")
    choose(page, "Text", TITLE)
    page.locator(TEXT, has_text="Dursley").wait_for()  # for a moment the one before may stand there too
    attention_shades_what_the_heads_look_at_and_keys_turn_to_the_next(page)
    page.keyboard.press("Escape")
    keyed(page, "text_shade").get_by_role("radio").nth(0).click()
    page.get_by_role("button", name="Prune the induction heads").click()
    await_mark(page, "losses", "measured", heads=n_at(OPENS_AT))
    expect(page.locator(".level output")).to_have_text("")
    ready(page)
    hover_click_and_keys(page)


def attention_shades_what_the_heads_look_at_and_keys_turn_to_the_next(page):
    keyed(page, "text_shade").get_by_role("radio").nth(1).click()
    page.locator(".legend", has_text="L1H2").wait_for()
    at_rest(page)
    second = token(page, "ley", 1)
    second.click()
    page.locator(".readout .looks").wait_for()
    best = page.locator(".readout .looks .row").nth(1)
    assert best.locator(".piece").inner_text() == "ley", "at the token that followed the same before"
    assert float(re.search(r"([\d.]+)%", best.inner_text())[1]) > 50
    first = token(page, "ley")
    assert float(first.evaluate("span => span.style.getPropertyValue('--tint')").rstrip("%")) > 30
    expect(page).to_have_url(re.compile("text_token="))
    second.press("]")
    page.locator(".legend", has_text="L1H3").wait_for()
    expect(page).to_have_url(re.compile("text_head=L1H3"))


def hover_click_and_keys(page):
    readout = page.locator(".readout")
    page.mouse.move(0, 0)  # away from the text, over which the list was
    expect(readout.get_by_role("heading")).to_be_visible()
    token(page, " strange", 1).hover()
    expect(readout.get_by_role("heading")).to_have_text("␣strange")
    loss = readout.get_by_role("row").filter(has_text="Loss, nats").inner_text().split()
    a, b, change = (float(cell.replace("−", "-")) for cell in loss[-3:])
    assert b - a == pytest.approx(change, abs=0.011) and b > a, "it copies worse"
    assert readout.locator(".two .row").count() == 10 and "%" in readout.inner_text()
    assert "worse" in token(page, " strange", 1).get_attribute("class")
    expect(page.locator(".said").first).to_contain_text("␣strange, full ")

    token(page, " strange", 1).click()
    page.mouse.move(0, 0)
    expect(page.locator(f"{TEXT} .locked")).to_have_text(" strange")
    page.keyboard.press("ArrowRight")
    expect(readout.get_by_role("heading")).not_to_have_text("␣strange")
    page.keyboard.press("Escape")
    expect(page.locator(f"{TEXT} .locked")).to_have_count(0)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.locator(f"{TEXT} .locked")).to_have_text(" strange")
    page.keyboard.press("Home")
    expect(readout).to_contain_text("oken 1 of ")
    page.keyboard.press("ArrowDown")
    expect(readout).not_to_contain_text("oken 1 of ")
    page.keyboard.press("ArrowUp")
    expect(readout).to_contain_text("oken 1 of ")


def test_both_models_write_on_a_slider_moves_the_tint_and_the_address_brings_it_back(page, address):
    open_text(page, address)
    both_models_write_on_from_the_clicked_token(page)
    a_slider_moves_the_tint_of_the_text_that_is_there(page)
    the_address_brings_everything_back(page)


FOLLOW_TOP = """span => {
  window.tops = []
  const follow = () => {
    const top = Math.round(span.getBoundingClientRect().top)
    if (top !== window.tops.at(-1)) window.tops.push(top)
    requestAnimationFrame(follow)
  }
  follow()
}"""


def both_models_write_on_from_the_clicked_token(page):
    written = page.locator(".written p")
    written.nth(1).wait_for()
    assert page.locator(".written .differs").count() == 2
    assert "and Mrs. Pettig”" in page.locator(".written h4").inner_text()
    page.get_by_test_id("stMain").evaluate("main => { main.scrollTop = main.scrollHeight }")
    token(page, "ill", -1).evaluate(FOLLOW_TOP)
    token(page, "ill", -1).click()
    page.wait_for_url(re.compile("text_token="))
    expect(written.first).to_have_text(re.compile("illfeather"))
    assert len(page.evaluate("window.tops")) == 1, "the page does not jump where it is scrolled to its end"
    page.locator(TEXT).press("Escape")
    expect(page.locator(f"{TEXT} .locked")).to_have_count(0)


def a_slider_moves_the_tint_of_the_text_that_is_there(page):
    await_mark(page, "losses", heads=n_at(OPENS_AT))
    expect(page.locator(".level output")).to_have_text(re.compile(f": {n_at(OPENS_AT)} of 48 "))
    slider = page.get_by_role("slider", name="Attention heads pruned")
    slider.focus()
    slider.press("Home")
    await_mark(page, "losses", "measured", heads=0)
    open_settings(page)
    choose(page, "Pruning order", "random")
    page.keyboard.press("Escape")
    page.wait_for_url(re.compile("order=random"))
    page.locator(f"{TEXT} span").first.evaluate("span => { span.mark = 'the same element' }")
    seen = [tints(page)]
    slider.focus()
    for key in ("ArrowRight", "End"):
        slider.press(key)
        seen.append(awaited(page, tints, lambda now: now != seen[-1]))
        ready(page)
    assert page.locator(f"{TEXT} span").first.evaluate("span => span.mark") == "the same element"
    assert page.locator(f"{TEXT} .better").count() and page.locator(f"{TEXT} .worse").count()
    await_mark(page, "losses", "measured", heads=n_at(100))
    expect(keyed(page, "tokens").locator(".legend")).to_have_text(re.compile("better .*−4.*\\+4 nats.*worse"))


def the_address_brings_everything_back(page):
    choose(page, "Text", TITLE)
    open_settings(page)
    fill(page, "Prune these as well", "F1")
    await_mark(page, "losses", "measured", heads=n_at(100), ffns=1)
    ready(page)
    before, text = tints(page), page.locator(TEXT).inner_text()
    for part in ("text_text=Privet", "heads=100", "mask=F1", "order=random"):
        assert part in page.url
    tab = page.context.new_page()
    tab.goto(page.url)
    await_mark(tab, "losses", "measured", heads=n_at(100), ffns=1)
    ready(tab)
    assert tab.locator(TEXT).inner_text() == text and "Dursley" in text
    expect(tab.get_by_role("slider")).to_have_value("100")
    assert tints(tab) == before


@pytest.mark.thorough
def test_any_text_is_only_text_and_one_that_is_remembered_is_in_the_address(page, address, tmp_path):
    open_text(page, address)
    for name in some_of(HOSTILE, 2):
        hostile_text_is_only_text(page, name)
    a_text_of_200_kb_without_a_space_is_shown_in_parts_and_can_be_left(page)
    a_text_loaded_and_remembered_is_in_the_address(page, tmp_path / "harbour.txt")


def hostile_text_is_only_text(page, name):
    title = page.title()
    paste(page, HOSTILE[name])
    page.locator(f"{TEXT}[aria-label^='Pasted text']").wait_for()
    awaited(page, plain, lambda now: now == HOSTILE[name])
    ready(page)
    inside = page.locator(TEXT)
    tags = inside.evaluate("text => [...new Set([...text.querySelectorAll('*')].map(e => e.tagName))].sort()")
    assert set(tags) <= {"SPAN", "B", "I"}
    assert page.title() == title
    for nth in range(0, page.locator(f"{TEXT} span").count(), 7):
        page.locator(f"{TEXT} span").nth(nth).dispatch_event("mouseover")
    if (closed := keyed(page, "text_tokens").locator("details:not([open]) summary")).count():
        closed.click()
    page.get_by_test_id("stDataFrame").first.wait_for()
    assert page.title() == title


def a_text_of_200_kb_without_a_space_is_shown_in_parts_and_can_be_left(page):
    paste(page, "abcdefghij" * 20_000)
    await_mark(page, "part", "shown", part=1, first=1, last=1500)
    page.locator(f"{TEXT} span").first.wait_for()
    assert page.locator(f"{TEXT} span").count() <= 1500
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth <= innerWidth"), "it wraps"
    choose(page, "Text", TITLE)
    page.locator(TEXT, has_text="Dursley").wait_for()  # for a moment the one before may stand there too
    ready(page)
    left = page.locator("[data-testid=stExpander] > details, [data-testid=stElementToolbar]")
    moves = left.evaluate_all("all => all.map(each => getComputedStyle(each).transitionProperty)")
    assert set(moves) == {"none"}, "one that is taken away meanwhile stays in memory with all that is in it"


def a_text_loaded_and_remembered_is_in_the_address(page, file):
    file.write_text(words := "The harbour was full. The harbour was <i>full</i> again.")
    page.get_by_role("button", name="Your own text").click()
    keyed(page, "text_text_loaded").locator("input[type=file]").set_input_files(file)
    page.locator(TEXT).get_by_text("harbour").first.wait_for()
    keyed(page, "text_text_pasted").wait_for(state="detached")
    page.get_by_role("button", name="Your own text").click()
    fill(page, "Name of this text", "My harbour")
    page.get_by_role("button", name="Remember", exact=True).click()
    page.wait_for_url(re.compile("text_text=My"))
    tab = page.context.new_page()
    tab.goto(page.url)
    expect(tab.locator(TEXT)).to_have_attribute("aria-label", re.compile("^My harbour"), timeout=WAIT_MS)
    expect(tab.locator(TEXT)).to_have_text(words)
