"""The Prune screen in a real Chromium: what only a browser shows."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import (
    THEMES,
    at_rest,
    await_command,
    await_mark,
    keyed,
    marked,
    open_settings,
    settled_figure,
)
from tests.embedded import n_at


@pytest.mark.thorough
@pytest.mark.parametrize("page", THEMES, indirect=True)
def test_open_move_reload(page, address):
    page.goto(f"{address}/?precision=fp32&limit=32&order=random")
    full = settled_figure(page, questions=32, heads=0)
    assert re.fullmatch(r"\d+\.\d%", full)

    slider = page.get_by_role("slider", name="Attention heads pruned")
    slider.focus()
    slider.press("End")
    pruned = settled_figure(page, heads=n_at(100), questions=32)
    assert "points" in page.get_by_test_id("stMetricDelta").inner_text()
    assert "heads=100" in page.url
    await_command(page, "--prune-heads 100")

    page.reload()
    assert settled_figure(page, heads=n_at(100), questions=32) == pruned
    assert slider.input_value() == "100"


def test_every_control_is_reached_by_the_keyboard(page, address):
    asked = "precision=fp32&limit=32&order=random"
    page.goto(f"{address}/?{asked}&mask=F1")  # no other test measures this curve
    settled_figure(page, questions=32)
    open_settings(page)
    page.get_by_label("Questions", exact=True).wait_for()  # controls whose code the browser fetches late
    names = (("combobox", "Pruning order"), ("slider", "Attention heads"), ("textbox", "Prune these as well"))
    for role, name in names:
        page.get_by_role(role, name=name).first.wait_for()
    page.get_by_role("combobox", name="Task").focus()
    focused = """() => {
      let at = document.activeElement
      while (at.shadowRoot?.activeElement) at = at.shadowRoot.activeElement
      return (at.getAttribute('aria-label') || (at.type === 'range' && at.labels[0].textContent) || at.innerText).trim()
    }"""
    missing = {"Questions", "Pruning order", "Attention heads", "Prune these as well", "Remove induction heads"}
    missing |= {"Same examples for every question", "What pruning saves"}
    seen = []
    for _ in range(150):  # twice around: a redraw just then may send the focus back to the top
        page.keyboard.press("Tab")
        text = page.evaluate(focused)
        seen.append(text if len(text) < 100 else "")  # not a scrolling part with all that is in it
        missing = {name for name in missing if name not in seen[-1]}
        if not missing:
            return
    raise AssertionError(f"not reached by Tab: {missing}; reached: {seen}")


def test_a_cold_permalink(page, app_server, store_folder):
    cold_address, _ = app_server(store_folder)
    page.goto(f"{cold_address}/?precision=fp32&limit=32&order=random&heads=50&mask=F0")
    settled_figure(page, heads=n_at(50), ffns=1, questions=32)
    page.get_by_role("combobox", name="Model").wait_for()
    assert page.get_by_label("Prune these as well", exact=True).input_value() == "F0"
    assert "heads=50" in page.url and "mask=F0" in page.url


def test_a_picture_and_a_table_are_saved(page, address):
    page.goto(f"{address}/?precision=fp32&limit=32&order=random&heads=50")
    await_mark(page, "curve", "estimated")  # last, and the page is drawn once more
    settled_figure(page, heads=n_at(50), questions=32)
    wanted = {"heads-and-ffns.png": b"\x89PNG", "curve.svg": b"<svg", "questions-and-choices.csv": b"ques"}
    for name, start in wanted.items():
        file = keyed(page, f"download {name}").get_by_role("button")
        if not file.is_visible():
            page.get_by_role("button", name=re.compile("Export$")).click()
        with page.expect_download() as saved:
            file.click()
        with open(saved.value.path(), "rb") as file:
            assert file.read(4) == start


def test_the_command_is_in_the_panel_and_the_highlighter_loads_with_it(page, address):
    loaded = []
    page.on("request", lambda sent: loaded.append(sent.url) if "SyntaxHighlighter" in sent.url else None)
    page.goto(f"{address}/?precision=fp32&limit=16&order=random")
    settled_figure(page, questions=16)
    command = marked(page, "command").first.get_attribute("data-text")
    assert " evaluate " in command and not loaded, "1.5 MB of script for each page load"
    page.get_by_role("button", name=re.compile("Export$")).click()
    expect(page.get_by_test_id("stCode").first).to_have_text(command)
    assert loaded


CONTROLS = """() => {
  const seen = new Set(), main = document.querySelector("[data-testid=stMain]")
  const groups = "[role=radiogroup], [role=group], [role=listbox], [data-testid=stButtonGroup]"
  const inside = root => [...root.querySelectorAll("*")]
    .flatMap(each => [each, ...(each.shadowRoot ? inside(each.shadowRoot) : [])])
  const helps = new Set()
  for (const each of inside(main)) {
    if (!each.matches("button, input, summary, [role=combobox], [role=radio]") || each.closest("[inert]")) continue
    const box = each.getBoundingClientRect()
    const isShown = each.checkVisibility() && !each.closest("[data-testid=stElementToolbar]") // a chart's, on hover
    if (!box.width || box.top >= innerHeight || !isShown) continue
    if (/^(Help|About|\\?)/.test(each.ariaLabel ?? "")) helps.add(each)
    else seen.add(each.closest(groups) ?? each.closest("[data-testid=stSelectbox]") ?? each)
  }
  return [seen.size, helps.size]
}"""


def test_few_controls_and_question_marks_are_in_sight(page, address):
    page.goto(f"{address}/?precision=fp32&limit=32")
    settled_figure(page, questions=32)
    await_mark(page, "curve", "estimated")
    at_rest(page)
    controls, helps = page.evaluate(CONTROLS)
    assert 8 <= controls <= 12 and helps <= 8
