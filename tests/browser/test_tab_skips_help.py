"""Question marks are not Tab stops; their help still shows under the mouse, and on F1 in the control."""

from playwright.sync_api import expect

from tests.browser.conftest import at_rest, await_mark, keyed, open_settings

FOCUSED = """() => {
  let at = document.activeElement
  while (at.shadowRoot?.activeElement) at = at.shadowRoot.activeElement
  return [at.type ?? at.tagName, at.ariaLabel || at.innerText || ""]
}"""
MOST = 60  # Tab stops; there are about 30 before the first slider


def open_prune(page, address):
    page.goto(f"{address}/?precision=fp32&limit=32&order=random")
    await_mark(page, "figure", "measured", questions=32)
    at_rest(page)
    keyed(page, "heads drag").get_by_role("slider").wait_for()
    page.get_by_role("combobox", name="Pruning order").wait_for()


def tabbed(page):
    """Names of what Tab focuses from the top of the page to the first slider."""
    names = []
    for _ in range(MOST):
        page.keyboard.press("Tab")
        kind, name = page.evaluate(FOCUSED)
        names.append(name)
        if kind == "range":
            return names
    raise AssertionError(f"no slider after {MOST} Tab stops: {names}")


def test_tab_reaches_the_first_slider_and_no_question_mark(page, address):
    open_prune(page, address)
    names = tabbed(page)
    assert [name for name in names if name.startswith(("Help", "About", "?"))] == []
    assert {"Model", "Task", "Pruning order"} <= {*names}, "the controls themselves are Tab stops"


def test_help_shows_under_the_mouse_and_on_f1(page, address):
    open_prune(page, address)
    tip = page.get_by_test_id("stTooltipContent")
    page.get_by_role("button", name="Help for Task", exact=True).hover()
    tip.wait_for()
    page.mouse.move(0, 0)
    tip.wait_for(state="detached")

    open_settings(page)
    page.get_by_label("Questions", exact=True).focus()
    page.keyboard.press("F1")
    expect(keyed(page, "limit").get_by_test_id("stTooltipIcon").get_by_role("button")).to_be_focused()
    tip.wait_for()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Questions", exact=True)).to_be_focused()

    keyed(page, "heads drag").get_by_role("slider").focus()
    page.keyboard.press("F1")
    keyed(page, "heads drag").get_by_role("tooltip").wait_for()
