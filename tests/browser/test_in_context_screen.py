"""The In context screen in a real Chromium: a slider moves the score, its address keeps it, heads are ablated."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import WAIT_MS, settled_figure
from tests.embedded import HEADS, ffns, heads_at

SIGNED = re.compile(r"[+−]?\d+\.\d\d")


def open_screen(page, address, texts):
    page.goto(f"{address}/?precision=fp32&prune_limit=16&prune_ranking=random")
    settled_figure(page, "16 of 16 questions")
    page.get_by_role("link", name="In context").click()
    page.get_by_text("Nothing is pruned: move a slider").wait_for()
    field = page.get_by_label("Most texts", exact=True)
    field.fill(str(texts))
    field.press("Enter")
    page.get_by_text(f", {texts} texts").first.wait_for()
    idle(page)


def idle(page):
    page.get_by_test_id("stProgress").first.wait_for(state="detached")
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()


def scores(page):
    return page.get_by_test_id("stMetricValue").all_inner_texts()


def test_a_slider_moves_the_score_and_the_address_keeps_it(page, address):
    open_screen(page, address, 4)
    full = scores(page)
    assert SIGNED.fullmatch(full[0]) and full[1] == "–"
    page.get_by_role("combobox", name="Who goes first").click()
    page.get_by_role("option", name="random").click()
    slider = page.get_by_role("slider", name="Attention heads pruned")
    slider.focus()
    slider.press("End")
    page.get_by_text(f"{heads_at(100)}, {ffns(0)} pruned").wait_for()
    page.get_by_text(re.compile("learns less in context|may be chance|learns more")).first.wait_for()
    idle(page)
    pruned = scores(page)
    assert pruned[0] == full[0] and len(pruned) == 3 and all(SIGNED.fullmatch(value) for value in pruned)
    assert pruned[2][0] in "+−" and pruned[1] != full[0]
    lines = page.locator('[aria-label^="Loss by token index"]').first
    expect(lines).to_have_attribute("aria-label", re.compile("pruned model: "))
    assert "incontext_heads=100" in page.url and "incontext_texts=4" in page.url
    page.get_by_text(re.compile("--texts 4 .*--mask")).wait_for()

    context = page.context.browser.new_context()  # apart: Streamlit looks for its own files beside the page and fails
    tab = context.new_page()
    tab.goto(page.url, timeout=WAIT_MS)
    tab.get_by_text(f"{heads_at(100)}, {ffns(0)} pruned").wait_for(timeout=WAIT_MS)
    expect(tab.get_by_test_id("stMetricValue")).to_have_text(pruned, timeout=WAIT_MS)
    assert tab.get_by_role("slider", name="Attention heads pruned").input_value() == "100"
    context.close()


def test_heads_are_ablated_on_demand_and_can_be_cancelled(page, address):
    open_screen(page, address, 2)
    page.get_by_role("button", name=f"Ablate {HEADS} heads").click()
    page.get_by_text("Over 1 of 2 texts.").wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text(re.compile("Ablations: stopped at .* What was finished is kept.")).wait_for()
    for title in ("Full ablation.", "Pattern-preserving ablation."):
        page.locator(f'[aria-label^="{title}"] [aria-label^="Head: 0; Layer: 1;"]').first.wait_for()
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("button", name="Cancel").wait_for()
    page.get_by_role("radio", name="pattern-preserving").click()
    page.get_by_text("Over 2 of 2 texts.").wait_for()
    page.get_by_role("button", name="Cancel").wait_for(state="detached")
    # while Streamlit redraws, an element may stand twice for a moment
    expect(page.get_by_text("The ten that matter most, pattern-preserving ablation")).to_have_count(1, timeout=WAIT_MS)
    assert page.get_by_role("button", name=f"Ablate {HEADS} heads").count() == 0
    assert "incontext_kind=pattern-preserving" in page.url


def test_a_text_that_is_too_short_is_refused_in_one_line(page, address):
    open_screen(page, address, 2)
    page.get_by_role("radio", name="A long text").click()
    page.get_by_role("combobox", name="Text", exact=True).click()
    page.get_by_role("option", name="Privet Drive, twice").click()
    words = r"needs a text of at least 512 tokens, and the longest here has \d+; take a longer one"
    line = page.get_by_text(re.compile(words))
    line.wait_for()
    assert page.get_by_test_id("stMetricValue").count() == 0
    assert "incontext_text=Privet" in page.url
