"""The sliders for pruning levels under a real hand: mouse, keyboard, number field, address, other code."""

import os
import random
import re
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import THEMES, await_mark, keyed, marked, settled_figure
from tests.conftest import IS_THOROUGH
from tests.embedded import heads_at, n_at

HEADS = "Attention heads pruned"
LIMIT = 200 if IS_THOROUGH else 40  # questions: of no other test
ALONE = "?precision=fp32&limit=32&order=random"

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
    thumb = 17.25  # 1.15 rem

    def x(percent):
        return box["x"] + thumb / 2 + (box["width"] - thumb) * percent / 100

    y = box["y"] + box["height"] / 2
    page.mouse.move(x(int(slider(page, name).input_value())), y)
    page.mouse.down()
    expect(slider(page, name)).to_be_focused()
    return x, y


# Of every movement: when the hand made it, and when the readout under the slider had been painted anew; each text of
# the large figure with its time; when the hand let go last, and each mark of the figure since.
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
  const look = () => {
    const text = document.querySelector("[data-testid=stMetricValue]")?.innerText
    if (text && text !== window.figures.at(-1)?.[1]) window.figures.push([performance.now(), text])
    requestAnimationFrame(look)
  }
  look()
  document.addEventListener("pointerup", event => { window.released = event.timeStamp; window.since = [] }, true)
  new MutationObserver(() => {
    const told = document.querySelector("[data-mark=figure]")?.dataset
    window.since?.push([performance.now() - window.released, { ...told }])
  }).observe(document.body, { childList: true, characterData: true, subtree: true })
}"""


def quantiles(values):
    values = sorted(values)
    return values[len(values) // 2], values[min(len(values) - 1, int(0.95 * len(values)))]


def let_go_at(page, percent):
    """Drags to a level and lets go; ms until its first measured figure, and until it is over all questions."""
    x, y = grab(page)
    page.mouse.move(x(percent), y, steps=12)
    page.mouse.up()
    settled_figure(page, heads=n_at(percent), ffns=0, questions=LIMIT)
    assert "points" in page.get_by_test_id("stMetricDelta").inner_text()
    told = {"heads": str(n_at(percent)), "ffns": "0"}.items()
    since = [(at, mark["questions"]) for at, mark in page.evaluate("window.since")
             if told <= mark.items() and mark["state"] in ("measuring", "measured")]  # fmt: skip
    measured = [(at, int(questions)) for at, questions in since if questions != "0"]
    return measured[0][0], next(at for at, questions in measured if questions == LIMIT)


# Where the curve begins, each time it is somewhere else; and the levels where the hand stood for so long (REST_MS of
# drag_slider.js) that it rested: on a busy machine it does so on the way.
WAY = """input => {
  window.places = []; window.rested = []
  const look = () => {
    const at = document.querySelector(".st-key-follows_hand_curve")?.getBoundingClientRect().left
    if (at !== undefined && at !== window.places.at(-1)) window.places.push(at)
    requestAnimationFrame(look)
  }
  look()
  let moved = Infinity
  input.addEventListener("pointermove", () => {
    if (performance.now() > moved + 150) window.rested.push(input.value)
    moved = performance.now()
  })
}"""


@pytest.mark.thorough
@pytest.mark.parametrize("page", THEMES, indirect=True)
@pytest.mark.slow("measures a curve and levels on many questions")
def test_what_follows_the_hand_and_how_fast(page, address):
    page.goto(f"{address}/?precision=fp32&limit={LIMIT}&order=random")
    settled_figure(page, questions=LIMIT, heads=0)
    marked(page, "curve", "estimated").and_(page.locator(':not([data-dashed="0"])')).wait_for(state="attached")
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    page.evaluate(WAY, slider(page).element_handle())
    x, y = grab(page)
    page.evaluate(WATCH, slider(page).element_handle())
    for percent in range(0, 61):
        page.mouse.move(x(percent), y)
    assert page.evaluate("window.seen") == [f"{percent}%" for percent in range(5, 61, 5)], "in steps of 5, at once"
    page.evaluate(TIMES, slider(page).element_handle())
    began = page.evaluate("performance.now()")
    for percent in (100, 0, 100, 0, 65):
        page.mouse.move(x(percent), y, steps=20)
    ended = page.evaluate("performance.now()")
    await_mark(page, "figure", heads=n_at(65))  # an estimate, or measured already if the page is slow
    page.mouse.up()
    released = page.evaluate("performance.now()")
    settled_figure(page, heads=n_at(65), questions=LIMIT)
    delays, figures, places, rested = page.evaluate("[window.delays, window.figures, window.places, window.rested]")
    p50, p95 = quantiles([delay for _, delay in delays])
    rate = 1000 * len(delays) / (ended - began)
    passed = [text for at, text in figures if at < released]
    print(f"\nreadout: {rate:.0f}/s, delay p50 {p50:.0f} ms, p95 {p95:.0f} ms; large figure: "
          f"{1000 * len(passed) / (ended - began):.1f}/s")  # fmt: skip
    assert any(f"{heads_at(65)} · estimate" in text for text in page.evaluate("window.said"))
    assert len(delays) > 20, "the readout follows all along the way"
    assert any(text.startswith("≈") for text in passed), "the figure follows, and says that it is an estimate"
    assert len(places) == 1 and places[0] > keyed(page, "follows_hand_figure").bounding_box()["x"] + 200, places
    curve = page.locator('[aria-label^="Attention heads pruned: at 0%"]').first.get_attribute("aria-label")
    assert set(re.findall(r"at (\d+)%", curve)) <= {"0", "65", *rested}, "nothing on the way was measured"
    levels = (55, 15, 75, 35, 85, 45, 25)[: None if IS_THOROUGH else 2]
    for what in ("measured anew", "measured before"):
        first, last = zip(*(let_go_at(page, percent) for percent in levels), strict=True)
        print(f"{what}, ms after release, p50 and p95 of {len(levels)}: first figure "
              f"{' and '.join(f'{ms:.0f}' for ms in quantiles(first))}, all {LIMIT} questions "
              f"{' and '.join(f'{ms:.0f}' for ms in quantiles(last))}; load {os.getloadavg()[0]:.1f}")  # fmt: skip
    expect(page).to_have_url(re.compile(f"heads={levels[-1]}"))
    page.reload()
    settled_figure(page, heads=n_at(levels[-1]), questions=LIMIT)
    expect(slider(page)).to_have_value(str(levels[-1]))


# Moves the slider without a hand; whether what follows it is said to be behind, the level over it, the large number
# that stands in for the figure, and the text of the level.
MOVED = """(input, percent) => {
  input.value = percent
  input.dispatchEvent(new Event("input"))
  const part = name => input.getRootNode().querySelector(name)
  const figure = document.querySelector(".st-key-follows_hand_figure [data-testid=stMetricValue]")
  const number = getComputedStyle(figure, "::after").content.slice(1, -1)
  const isBehind = document.documentElement.matches(".headroom-stale")
  return [isBehind, part("output").textContent, number, part(".note").textContent]
}"""


def test_all_parts_show_one_level_and_a_rest_measures_though_the_button_is_held(page, address):
    def shows(percent):
        settled_figure(page, heads=n_at(percent), questions=32)
        expect(keyed(page, "prune_map").locator("button[aria-pressed=true]")).to_have_count(n_at(percent))
        expect(page.locator("html")).not_to_have_class(re.compile("headroom-stale"))
        assert (slider(page).input_value(), readout(page)) == (str(percent), f"{percent}%")

    page.goto(f"{address}/{ALONE}&heads=50")
    settled_figure(page, heads=n_at(50), questions=32)
    x, y = grab(page)
    for percent in (60, 75):
        page.mouse.move(x(percent), y, steps=3)
        assert (slider(page).input_value(), readout(page)) == (str(percent), f"{percent}%"), "at once"
    assert page.locator(".st-key-heads input").is_hidden(), "the field that the address holds"
    shows(75)
    page.mouse.move(x(25), y, steps=5)
    shows(25)
    page.mouse.up()
    page.go_back()
    shows(75)
    is_behind, level, number, text = slider(page).evaluate(MOVED, 40)
    assert is_behind and level == "40%", "until Python has drawn it"
    known = re.search(r"(measured|estimate) (\S+%)", text)
    assert number.removeprefix("≈ ") == (known[2] if known else "…"), "of this level, not of the one before"
    shows(40)


def test_keys_move_the_slider_by_steps_and_with_shift_by_one_percent(page, address):
    page.goto(f"{address}/{ALONE}&heads=50")
    settled_figure(page, heads=n_at(50), questions=32)
    slider(page).focus()
    for key, value in {"ArrowRight": 55, "ArrowLeft": 50, "PageUp": 60, "PageDown": 50, "Home": 0, "End": 100}.items():
        page.keyboard.press(key)
        expect(slider(page)).to_have_value(str(value))
        assert readout(page) == f"{value}%"
    expect(slider(page)).to_have_attribute("aria-valuetext", re.compile("^100%"))
    settled_figure(page, heads=n_at(100), questions=32)
    assert slider(page).evaluate("input => input.getRootNode().activeElement === input"), "the focus stays"
    for value in (99, 98, 97):
        page.keyboard.press("Shift+ArrowLeft")
        expect(slider(page)).to_have_value(str(value))
    expect(page).to_have_url(re.compile("heads=97"))
    settled_figure(page, heads=n_at(97), questions=32)
    expect(slider(page)).to_have_value("97")


@contextmanager
def burners():
    """Processes that only count, one a core, while this one lives."""
    count = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    counting = [subprocess.Popen([sys.executable, "-c", count]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in counting:
            process.kill()
            process.wait()


@pytest.mark.alone
@pytest.mark.thorough
@pytest.mark.slow("moves a slider for 6 s (60 s in its full form) on a busy machine")
def test_keys_and_drags_on_a_busy_machine(page, address):
    page.goto(f"{address}/{ALONE}&heads=50")
    settled_figure(page, heads=n_at(50), questions=32)
    hand, end = random.Random(0), time.monotonic() + (60 if IS_THOROUGH else 6)
    with burners():
        while time.monotonic() < end:
            slider(page).focus()
            for _ in range(4):
                page.keyboard.press(hand.choice(["ArrowRight", "ArrowLeft", "PageUp", "PageDown", "Home", "End"]))
                page.wait_for_timeout(hand.choice([5, 80, 300, 600]))
            x, y = grab(page)
            for _ in range(6):
                page.mouse.move(x(hand.randrange(101)), y, steps=3)
                page.wait_for_timeout(hand.choice([30, 80, 120]))
            page.mouse.up()
        slider(page).focus()
        page.keyboard.press("Home")
        settled_figure(page, heads=0, questions=32)


# Drops the timer that reports a rest, and for a release the events of the mouse button, too.
DEAF = """isHeld => {
  for (const name of isHeld ? [] : ["pointerdown", "pointerup", "pointercancel"])
    document.addEventListener(name, event => event.stopImmediatePropagation(), true)
  const real = window.setTimeout
  window.setTimeout = (what, ...rest) => /letGo\\(view\\)/.test(what) ? 0 : real(what, ...rest)
}"""


def test_a_release_or_rest_that_was_lost_is_reported_again(page, address):
    page.goto(f"{address}/{ALONE}&mask=F1")
    settled_figure(page, questions=32, heads=0)
    for is_held, percent in ((True, 60), (False, 30)):
        page.evaluate(DEAF, is_held)
        x, y = grab(page)
        page.mouse.move(x(percent), y, steps=5)
        if not is_held:
            page.mouse.up()
        settled_figure(page, heads=n_at(percent), questions=32)
        expect(page).to_have_url(re.compile(f"heads={percent}"))
        page.mouse.up()


SLOW = """ms => {
  const real = WebSocket.prototype.send
  WebSocket.prototype.send = function (data) { setTimeout(() => real.call(this, data), ms) }
}"""


@pytest.mark.slow("waits for messages that are kept back for 3 s")
def test_a_release_is_kept_while_the_server_is_busy(page, address):
    page.goto(f"{address}/{ALONE}&mask=F3")
    settled_figure(page, questions=32, heads=0)
    x, y = grab(page)
    page.mouse.move(x(60), y, steps=5)
    for at in range(60):  # never at rest, until the page has drawn this level
        page.mouse.move(x(60), y + at % 2)
        page.wait_for_timeout(50)
        if not page.evaluate("document.documentElement.classList.contains('headroom-stale')"):
            break
    page.evaluate(SLOW, 3000)
    page.mouse.move(x(75), y, steps=5)
    page.mouse.up()
    page.wait_for_timeout(2500)
    expect(slider(page)).to_have_value("75")
    assert readout(page) == "75% more"
    settled_figure(page, heads=n_at(75), questions=32)
    expect(page).to_have_url(re.compile("heads=75"))
