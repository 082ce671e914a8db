"""The sliders for pruning levels under a real hand: mouse, keyboard, number field, address, other code."""

import os
import re

import pytest
from playwright.sync_api import expect

from pages.ui.shared.pruning import HEADS as OPENS_AT
from tests.browser.conftest import settled_figure
from tests.embedded import heads_at

HEADS = "Attention heads pruned"
ALONE = "?precision=fp32&prune_limit=32&prune_ranking=random&prune_idle=false"

WATCH = """input => {
  const output = input.parentElement.querySelector("output")
  window.seen = []
  new MutationObserver(() => {
    if (output.textContent !== window.seen.at(-1)) window.seen.push(output.textContent)
  }).observe(output, { childList: true, characterData: true, subtree: true })
}"""


def slider(page, name=HEADS):
    return page.get_by_role("slider", name=name)


def readout(page, name=HEADS):
    """The value over the thumb."""
    return slider(page, name).evaluate("input => input.parentElement.querySelector('output').textContent")


def grab(page, name=HEADS):
    """The mouse on the thumb, pressed; gives what x a level is at, and the y."""
    box = None
    while box != (box := slider(page, name).bounding_box()):  # whatever stands above it has its final height
        page.wait_for_timeout(200)
    thumb = 11.25  # 0.75 rem

    def x(percent):
        return box["x"] + thumb / 2 + (box["width"] - thumb) * percent / 100

    y = box["y"] + box["height"] / 2
    page.mouse.move(x(int(slider(page, name).input_value())), y)
    page.mouse.down()
    expect(slider(page, name)).to_be_focused()
    return x, y


# Of every movement: when the hand made it, and when the readout under the slider had been painted anew; each text of
# the large figure with its time; when the hand let go last, and each figure since, with what is said of it.
TIMES = """input => {
  const note = input.getRootNode().querySelector(".note")
  window.delays = []; window.figures = []; window.said = []
  let moved = 0
  input.addEventListener("input", event => { moved = event.timeStamp })
  new MutationObserver(() => {
    const from = moved
    window.said.push(note.textContent)
    requestAnimationFrame(() => setTimeout(() => window.delays.push([performance.now(), performance.now() - from])))
  }).observe(note, { childList: true, characterData: true, subtree: true })
  setInterval(() => {
    const text = document.querySelector("[data-testid=stMetricValue]")?.innerText
    if (text && text !== window.figures.at(-1)?.[1]) window.figures.push([performance.now(), text])
  }, 5)
  document.addEventListener("pointerup", event => { window.released = event.timeStamp; window.since = [] }, true)
  new MutationObserver(() => {
    const delta = document.querySelector("[data-testid=stMetricDelta]")?.innerText
    const lines = [...document.querySelectorAll("[data-testid=stMarkdownContainer] p")].map(each => each.innerText)
    const about = lines.find(text => /\\d of \\d+ heads, \\d+ of \\d+ FFNs/.test(text))
    window.since?.push([performance.now() - window.released, delta, about])
  }).observe(document.body, { childList: true, characterData: true, subtree: true })
}"""


def quantiles(values):
    values = sorted(values)
    return values[len(values) // 2], values[min(len(values) - 1, int(0.95 * len(values)))]


def let_go_at(page, percent):
    """Drags to a level and lets go; ms until its first measured figure, and until it is over all 200."""
    x, y = grab(page)
    page.mouse.move(x(percent), y, steps=12)
    page.mouse.up()
    heads = f"{heads_at(percent)}, 0"
    settled_figure(page, heads, "200 of 200 questions")
    page.get_by_test_id("stMetricDelta").get_by_text("points against the full model").wait_for()
    since = [(at, delta or "", about or "") for at, delta, about in page.evaluate("window.since")]
    measured = [(at, about) for at, delta, about in since if "points against" in delta and heads in about]
    return measured[0][0], next(at for at, about in measured if "200 of 200 questions" in about)


def test_what_follows_the_hand_and_how_fast(page, address):
    page.goto(f"{address}/?precision=fp32&prune_limit=200&prune_ranking=random&prune_idle=false")
    settled_figure(page, "200 of 200 questions", heads_at(0))
    page.get_by_text("Dashed: estimate without a forward pass").wait_for()
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    x, y = grab(page)
    page.evaluate(TIMES, slider(page).element_handle())
    began = page.evaluate("performance.now()")
    for percent in (100, 0, 100, 0, 65):
        page.mouse.move(x(percent), y, steps=20)
    ended = page.evaluate("performance.now()")
    page.get_by_test_id("stMetricDelta").get_by_text("estimate, not measured").wait_for()
    page.mouse.up()
    released = page.evaluate("performance.now()")
    settled_figure(page, heads_at(65), "200 of 200 questions")
    delays, figures = page.evaluate("[window.delays, window.figures]")
    p50, p95 = quantiles([delay for _, delay in delays])
    rate = 1000 * len(delays) / (ended - began)
    passed = [text for at, text in figures if at < released]
    print(f"\nreadout: {rate:.0f}/s, delay p50 {p50:.0f} ms, p95 {p95:.0f} ms; large figure: "
          f"{1000 * len(passed) / (ended - began):.1f}/s")  # fmt: skip
    assert any(f"{heads_at(65)} · estimate" in text for text in page.evaluate("window.said"))
    assert len(delays) > 20, "the readout follows all along the way"
    assert any(text.startswith("≈") for text in passed), "the figure follows, and says that it is an estimate"
    curve = page.locator('[aria-label^="Attention heads pruned: at 0%"]').first.get_attribute("aria-label")
    assert set(re.findall(r"at (\d+)%", curve)) <= {"0"}, "nothing on the way was measured"
    levels = (55, 15, 75, 35, 85, 45, 25)[: None if "DRAG_LEVELS" in os.environ else 2]  # for p95: DRAG_LEVELS=all
    for what in ("measured anew", "measured before"):
        first, last = zip(*(let_go_at(page, percent) for percent in levels), strict=True)
        print(f"{what}, ms after release, p50 and p95 of {len(levels)}: first figure "
              f"{' and '.join(f'{ms:.0f}' for ms in quantiles(first))}, all 200 questions "
              f"{' and '.join(f'{ms:.0f}' for ms in quantiles(last))}; load {os.getloadavg()[0]:.1f}")  # fmt: skip


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_the_readout_moves_before_the_hand_lets_go_and_one_level_is_measured(page, address):
    page.goto(f"{address}/{ALONE}")
    settled_figure(page, "32 of 32 questions", heads_at(0))
    x, y = grab(page)
    page.evaluate(WATCH, slider(page).element_handle())
    for percent in range(0, 61):
        page.mouse.move(x(percent), y)
    assert page.evaluate("window.seen") == [f"{percent} %" for percent in range(5, 61, 5)], "in steps of 5, at once"
    page.mouse.up()
    settled_figure(page, heads_at(60), "32 of 32 questions")
    expect(page).to_have_url(re.compile("prune_heads=60"))
    curve = page.locator('[aria-label^="Attention heads pruned: at 0%"]').first
    levels = re.findall(r"at (\d+)%", curve.get_attribute("aria-label"))
    assert set(levels) <= {"0", "60"}, "no level on the way was measured"
    page.reload()
    settled_figure(page, heads_at(60), "32 of 32 questions")
    expect(slider(page)).to_have_value("60")


def test_keys_and_the_number_field(page, address):
    page.goto(f"{address}/{ALONE}&prune_heads=50")
    settled_figure(page, heads_at(50), "32 of 32 questions")
    slider(page).focus()
    for key, value in {"ArrowRight": 55, "ArrowLeft": 50, "PageUp": 60, "PageDown": 50, "Home": 0, "End": 100}.items():
        page.keyboard.press(key)
        expect(slider(page)).to_have_value(str(value))
        assert readout(page) == f"{value} %"
    expect(slider(page)).to_have_attribute("aria-valuetext", re.compile("^100 %"))
    settled_figure(page, heads_at(100), "32 of 32 questions")
    assert slider(page).evaluate("input => input.getRootNode().activeElement === input"), "the focus stays"
    field = page.get_by_role("spinbutton", name=HEADS)
    expect(field).to_have_value("100")
    field.fill("43")
    field.press("Enter")
    settled_figure(page, heads_at(43), "32 of 32 questions")
    expect(slider(page)).to_have_value("43")
    expect(page).to_have_url(re.compile("prune_heads=43"))


def test_a_rest_measures_though_the_button_is_held(page, address):
    page.goto(f"{address}/{ALONE}")
    settled_figure(page, "32 of 32 questions", heads_at(0))
    x, y = grab(page)
    page.mouse.move(x(75), y, steps=5)
    settled_figure(page, heads_at(75), "32 of 32 questions")
    page.mouse.move(x(25), y, steps=5)
    settled_figure(page, heads_at(25), "32 of 32 questions")
    page.mouse.up()
    expect(slider(page)).to_have_value("25")
    page.go_back()
    settled_figure(page, heads_at(75), "32 of 32 questions")
    expect(slider(page)).to_have_value("75")


def test_what_other_code_sets_reaches_the_slider(page, address):
    page.goto(f"{address}/{ALONE}")
    settled_figure(page, "32 of 32 questions")
    page.get_by_role("link", name="Passage").click()
    heads = slider(page, "heads pruned")
    heads.focus()
    heads.press("End")
    page.get_by_text(f"B lacks {heads_at(100)}").wait_for()
    page.get_by_role("button", name="Prune the induction heads").click()
    page.get_by_text(f"B lacks {heads_at(OPENS_AT)}").wait_for()
    expect(heads).to_have_value(str(OPENS_AT))
    expect(page).not_to_have_url(re.compile("passage_heads"))  # as it opens


def test_the_help_can_be_read(page, address):
    page.goto(f"{address}/{ALONE}")
    slider(page).wait_for()
    help = page.get_by_role("tooltip").first
    expect(help).not_to_be_visible()
    page.get_by_role("button", name=f"About: {HEADS}").hover()
    expect(help).to_have_text(re.compile("^A pruned head gives 0"))
    expect(help).to_be_visible()
