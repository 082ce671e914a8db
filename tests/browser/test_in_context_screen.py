"""The In context screen in a real Chromium: a slider moves the score, its address keeps it, heads are ablated."""

import re
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import WAIT_MS, at_rest, await_command, await_mark, keyed, marked
from tests.conftest import make_tiny_opt
from tests.embedded import HEADS
from tests.engine.fixtures import write_questions

SIGNED = re.compile(r"[+−]?\d+\.\d\d")


def open_screen(page, address, texts):
    page.goto(f"{address}/in_context?precision=fp32&incontext_texts=24")  # not the first view, which prunes
    await_mark(page, "scores", heads=0, ffns=0)
    open_settings(page)
    field = page.get_by_label("Most texts", exact=True)
    field.fill(str(texts))
    field.press("Enter")
    open_settings(page)  # closes them
    await_mark(page, "scores", "measured", texts=texts)
    at_rest(page)


def open_settings(page):
    page.get_by_text("Settings", exact=True).first.click()


def scores(page):
    return page.get_by_test_id("stMetricValue").all_inner_texts()


def test_a_slider_moves_the_score_and_the_address_keeps_it(page, address, another_tab):
    open_screen(page, address, 4)
    [full] = scores(page)
    assert SIGNED.fullmatch(full)
    page.get_by_role("combobox", name="Pruning order").click()
    page.get_by_role("option", name="random").click()
    slider = page.get_by_role("slider", name="Attention heads pruned")
    slider.focus()
    slider.press("End")
    await_mark(page, "scores", "measured", texts=4, heads=HEADS, ffns=0)
    at_rest(page)
    pruned = scores(page)
    said = page.get_by_test_id("stMain").inner_text()
    [of_pruned] = pruned
    assert re.search(r"from (\S+) \(full model\)", said)[1] == full != of_pruned and SIGNED.fullmatch(of_pruned)
    lines = page.locator('[aria-label^="Loss by token index"]').first
    expect(lines).to_have_attribute("aria-label", re.compile("pruned model: "))
    assert "incontext_heads=100" in page.url and "incontext_texts=4" in page.url
    await_command(page, "--texts 4 ", "--mask")
    tab = another_tab(page.url)
    await_mark(tab, "scores", "measured", heads=HEADS, ffns=0)
    expect(tab.get_by_test_id("stMetricValue")).to_have_text(pruned, timeout=WAIT_MS)
    assert tab.get_by_role("slider", name="Attention heads pruned").input_value() == "100"


@pytest.mark.slow("ablates every head on two texts")
def test_heads_are_ablated_on_demand_and_can_be_cancelled(page, address, tmp_path):
    task = write_questions(tmp_path / "rivers.jsonl", 60)
    (tmp_path / "opt").mkdir()
    model = make_tiny_opt(tmp_path / "opt", 4, 4, 384, n_ctx=512)  # ablating its heads takes seconds a text
    asked = {
        "model": model,
        "incontext_from": "Solved questions",
        "incontext_task": task,
        "incontext_texts": 2,
        "incontext_order": "random",
    }
    page.goto(f"{address}/in_context?{urlencode(asked)}")
    await_mark(page, "scores", "measured", texts=2)
    page.get_by_role("tab", name="Are they induction heads?").click()
    at_rest(page)
    keyed(page, "offer incontext heads").get_by_role("button", name="Ablate 16 heads").click()
    await_mark(page, "ablations", "missing", texts=1)
    page.get_by_role("button", name="Cancel").click()
    await_mark(page, "job", "cancelled", slot="incontext heads")
    page.get_by_text("Other measures").click()
    for title in ("Full ablation.", "Pattern-preserving ablation."):
        page.locator(f'[aria-label^="{title}"] [aria-label^="Head: 0; Layer: 1;"]').first.wait_for()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Cancel").wait_for()
    open_settings(page)
    page.get_by_role("radio", name="pattern-preserving").click()
    open_settings(page)  # closes them
    await_mark(page, "ablations", "measured", texts=2)
    page.get_by_role("button", name="Cancel").wait_for(state="detached")
    # while Streamlit redraws, an element may stand twice for a moment
    expect(marked(page, "ablations", kind="pattern-preserving")).to_have_count(1, timeout=WAIT_MS)
    assert keyed(page, "offer incontext heads").count() == 0
    assert "incontext_kind=pattern-preserving" in page.url
