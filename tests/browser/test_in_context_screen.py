"""The In context screen in a real Chromium: a slider moves the score, its address keeps it, heads are ablated."""

import re
import shutil
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import WAIT_MS, at_rest, await_command, await_mark, keyed, marked
from tests.embedded import HEADS
from tests.engine.fixtures import write_questions

SIGNED = re.compile(r"[+−]?\d+\.\d\d")


def open_screen(page, address, texts):
    page.goto(f"{address}/in_context?precision=fp32")
    await_mark(page, "scores", heads=0, ffns=0)
    field = page.get_by_label("Most texts", exact=True)
    field.fill(str(texts))
    field.press("Enter")
    await_mark(page, "scores", "measured", texts=texts)
    at_rest(page)


def scores(page):
    return page.get_by_test_id("stMetricValue").all_inner_texts()


def test_a_slider_moves_the_score_and_the_address_keeps_it(page, address):
    open_screen(page, address, 4)
    full = scores(page)
    assert SIGNED.fullmatch(full[0]) and full[1] == "–"
    page.get_by_role("combobox", name="Pruning order").click()
    page.get_by_role("option", name="random").click()
    slider = page.get_by_role("slider", name="Attention heads pruned")
    slider.focus()
    slider.press("End")
    await_mark(page, "scores", "measured", texts=4, heads=HEADS, ffns=0)
    at_rest(page)
    pruned = scores(page)
    assert pruned[0] == full[0] and len(pruned) == 3 and all(SIGNED.fullmatch(value) for value in pruned)
    assert pruned[2][0] in "+−" and pruned[1] != full[0]
    lines = page.locator('[aria-label^="Loss by token index"]').first
    expect(lines).to_have_attribute("aria-label", re.compile("pruned model: "))
    assert "incontext_heads=100" in page.url and "incontext_texts=4" in page.url
    await_command(page, "--texts 4 ", "--mask")

    context = page.context.browser.new_context()  # apart: Streamlit looks for its own files beside the page and fails
    tab = context.new_page()
    tab.goto(page.url, timeout=WAIT_MS)
    tab.set_default_timeout(WAIT_MS)
    await_mark(tab, "scores", "measured", heads=HEADS, ffns=0)
    expect(tab.get_by_test_id("stMetricValue")).to_have_text(pruned, timeout=WAIT_MS)
    assert tab.get_by_role("slider", name="Attention heads pruned").input_value() == "100"
    context.close()


@pytest.fixture
def wide_opt(tiny_opt, tmp_path):
    """A random OPT with 4 layers x 4 heads and a window of 512 tokens: ablating its heads takes seconds a text."""
    from transformers import OPTConfig, OPTForCausalLM

    folder = shutil.copytree(tiny_opt, tmp_path / "opt")
    sizes = {"hidden_size": 256, "word_embed_proj_dim": 256, "ffn_dim": 1024, "num_hidden_layers": 4}
    config = OPTConfig.from_pretrained(tiny_opt, max_position_embeddings=512, **sizes)
    OPTForCausalLM(config).eval().save_pretrained(folder)
    return folder


@pytest.mark.slow("ablates every head on two texts")
def test_heads_are_ablated_on_demand_and_can_be_cancelled(page, address, wide_opt, tmp_path):
    task = write_questions(tmp_path / "rivers.jsonl", 60)
    asked = {"model": wide_opt, "incontext_task": task, "incontext_texts": 2, "incontext_ranking": "random"}
    page.goto(f"{address}/in_context?{urlencode(asked)}")
    await_mark(page, "scores", "measured", texts=2)
    at_rest(page)
    keyed(page, "offer incontext heads").get_by_role("button", name="Ablate 16 heads").click()
    await_mark(page, "ablations", "missing", texts=1)
    page.get_by_role("button", name="Cancel").click()
    await_mark(page, "job", "cancelled", slot="incontext heads")
    for title in ("Full ablation.", "Pattern-preserving ablation."):
        page.locator(f'[aria-label^="{title}"] [aria-label^="Head: 0; Layer: 1;"]').first.wait_for()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Cancel").wait_for()
    page.get_by_role("radio", name="pattern-preserving").click()
    await_mark(page, "ablations", "measured", texts=2)
    page.get_by_role("button", name="Cancel").wait_for(state="detached")
    # while Streamlit redraws, an element may stand twice for a moment
    expect(marked(page, "ablations", kind="pattern-preserving")).to_have_count(1, timeout=WAIT_MS)
    assert keyed(page, "offer incontext heads").count() == 0
    assert "incontext_kind=pattern-preserving" in page.url


def test_a_text_that_is_too_short_is_refused_in_one_line(page, address):
    open_screen(page, address, 2)
    page.get_by_role("radio", name="A long text").click()
    page.get_by_role("combobox", name="Text", exact=True).click()
    page.get_by_role("option", name="Privet Drive, twice").click()
    words = r"needs a text of at least 512 tokens, and the longest here has \d+; choose a longer one"
    await_mark(page, "job", "failed", slot="incontext texts")
    at_rest(page)
    assert re.search(words, page.get_by_test_id("stAlert").inner_text())
    assert page.get_by_test_id("stMetricValue").count() == 0
    assert "incontext_text=Privet" in page.url
