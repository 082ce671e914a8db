"""Few controls are in sight, the keyboard reaches all of them, and question marks are not Tab stops; their help still
shows under the mouse, and on F1 in the control."""

from playwright.sync_api import expect

from tests.browser.conftest import at_rest, await_mark, keyed, open_settings, settled_figure

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

# Kind and name of what has the focus.
FOCUSED = """() => {
  let at = document.activeElement
  while (at.shadowRoot?.activeElement) at = at.shadowRoot.activeElement
  const name = at.ariaLabel || (at.type === "range" && at.labels[0].textContent) || at.innerText || ""
  return [at.type ?? at.tagName, name.trim()]
}"""
BEFORE = {"Model", "Task", "Pruning order"}  # the first slider
REACHED = {"Questions", "Same examples for every question", "Prune these as well", "Attention heads pruned",
           "Remove induction heads", "What pruning saves"}  # fmt: skip
MOST = 150  # Tab stops: twice around, as a redraw may send the focus back to the top


def stops(page):
    """What Tab focuses, one after the other."""
    for _ in range(MOST):
        page.keyboard.press("Tab")
        yield page.evaluate(FOCUSED)


def test_few_controls_are_in_sight_and_the_keyboard_reaches_them_and_no_question_mark(page, address):
    page.goto(f"{address}/?precision=fp32&limit=32")
    settled_figure(page, questions=32)
    await_mark(page, "curve", "estimated")
    at_rest(page)
    controls, helps = page.evaluate(CONTROLS)
    assert 8 <= controls <= 12 and helps <= 8

    above = []
    for kind, name in stops(page):
        above.append(name)
        if kind == "range":
            break
    assert BEFORE <= {*above} and not [name for name in above if name.startswith(("Help", "About", "?"))]

    help_shows_under_the_mouse(page)
    open_settings(page)
    page.get_by_label("Questions", exact=True).wait_for()  # its code is fetched late
    page.get_by_role("combobox", name="Task").focus()
    missing = REACHED
    for _, name in stops(page):
        if len(name) < 100:  # not a scrolling part with all that is in it
            missing = {each for each in missing if each not in name}
        if not missing:
            break
    assert not missing, "not reached by Tab"
    page.keyboard.press("Escape")
    expect(page.get_by_label("Questions", exact=True)).not_to_be_visible()
    open_settings(page)

    help_shows_on_f1(page)


def help_shows_under_the_mouse(page):
    tip = page.get_by_test_id("stTooltipContent")
    page.get_by_role("button", name="Help for Task", exact=True).hover()
    tip.wait_for()
    page.mouse.move(0, 0)
    tip.wait_for(state="detached")


def help_shows_on_f1(page):
    tip = page.get_by_test_id("stTooltipContent")
    page.get_by_label("Questions", exact=True).focus()
    page.keyboard.press("F1")
    expect(keyed(page, "limit").get_by_test_id("stTooltipIcon").get_by_role("button")).to_be_focused()
    tip.wait_for()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Questions", exact=True)).to_be_focused()

    keyed(page, "heads drag").get_by_role("slider").focus()
    page.keyboard.press("F1")
    keyed(page, "heads drag").get_by_role("tooltip").wait_for()
