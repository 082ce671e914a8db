"""The opening story in a browser: it plays over the page, any input stops it, and it leaves three entrances."""

import pytest
from playwright.sync_api import expect

from scripts.make_demo.shipped import KERNELS
from tests.browser.conftest import WAIT_MS, await_mark, keyed, marked


@pytest.fixture
def first_visit(app_server):
    """The address of an app that nobody has visited."""
    return app_server(warm=True, HEADROOM_SHIPPED="1", HEADROOM_PRODUCTS=KERNELS[0])[0]


def story(page, state):
    return page.locator(f".opening[data-state={state}]")


@pytest.mark.slow("waits for two steps of the story, and starts a server")
def test_it_plays_once_and_a_key_stops_it(page, first_visit):
    page.goto(first_visit)
    story(page, "playing").wait_for(state="attached")
    page.locator(".opening[data-step='1']").wait_for(state="attached")
    crosses = page.locator(".opening .grid .pruned")
    expect(crosses).to_have_count(4)
    page.locator(".opening[data-step='2']").wait_for(state="attached")
    expect(page.locator(".opening .value")).to_have_text("34%")
    said = page.locator(".opening .said").text_content()
    assert said == "Without these induction heads, 34 of 100 answers are right, not 95."
    await_mark(page, "figure", "measured")  # the page is drawn below
    height = page.locator('[data-mark="figure"]').evaluate("mark => document.body.scrollHeight")
    page.keyboard.press("Escape")
    story(page, "stopped").wait_for(state="attached")
    expect(page.locator(".opening .stage")).to_be_hidden()
    assert page.locator('[data-mark="figure"]').evaluate("mark => document.body.scrollHeight") == height
    page.get_by_role("button", name="Open my model").click()
    expect(keyed(page, "model").locator("input")).to_be_focused()
    page.get_by_role("button", name="Play again").click()
    story(page, "playing").wait_for(state="attached")
    page.mouse.wheel(0, 10)
    story(page, "stopped").wait_for(state="attached")
    page.get_by_role("button", name="Play again").click()
    page.get_by_role("button", name="Skip (Esc)").click()
    story(page, "stopped").wait_for(state="attached")
    page.keyboard.press("Escape")
    story(page, "closed").wait_for(state="attached")
    expect(page.locator(".opening .entrances")).to_be_hidden()
    page.goto(f"{first_visit}/?prune_limit=100")
    page.get_by_role("button", name="Play the story").click()
    story(page, "playing").wait_for(state="attached")
    page.keyboard.press("Escape")
    story(page, "stopped").wait_for(state="attached")
    page.get_by_role("button", name="Prune it yourself").click()
    expect(page.get_by_role("slider").first).to_be_focused()
    expect(page.locator(".opening .entrances")).to_be_hidden()
    page.goto(first_visit)
    await_mark(page, "figure", "measured")
    await_mark(page, "sidebar", "drawn")
    expect(marked(page, "opening")).to_have_count(0)


@pytest.mark.slow("starts a server and a browser context")
def test_it_does_not_play_for_those_who_want_no_motion(chromium, first_visit):
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.goto(first_visit)
    story(page, "still").wait_for(state="attached")
    expect(page.locator(".opening .stage")).to_be_hidden()
    expect(page.locator(".opening .entrances button").first).to_be_visible()
    context.close()
