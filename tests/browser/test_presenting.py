"""Presentation mode in a browser: a clicker and arrow keys step through saved views, light or dark without a reload."""

from playwright.sync_api import expect

from tests.browser.conftest import await_mark, settled_figure
from tests.embedded import n_at

FEW = "precision=fp32&limit=16&order=random"
MAIN = "document.querySelector('[data-testid=stMain]')"
MAP = "document.querySelector('.st-key-prune_map').getBoundingClientRect().bottom"
FITS = f"{MAIN}.scrollHeight <= {MAIN}.clientHeight + 1 && {MAP} > 0.7 * innerHeight"  # and uses the height
VIEWS = {"Whole": f"/?{FEW}", "Half": f"/?{FEW}&heads=50", "Text": "/text?text_text=The+ferry"}


def test_a_presenter_steps_through_saved_views(page, address):
    page.set_viewport_size({"width": 1920, "height": 1080})
    for number, (view, link) in enumerate(VIEWS.items(), start=1):
        page.goto(f"{address}{link}")
        if view == "Half":
            half = settled_figure(page, questions=16)
        page.get_by_role("button", name="Views").click()
        name = page.get_by_label("Name of this view")
        name.fill(view)
        name.press("Enter")
        page.get_by_text(f"{number}\u2002{view}").wait_for()
    assert page.evaluate("getComputedStyle(document.querySelector('.heading h1')).display") == "inline", "styles stay"
    page.get_by_role("link", name="Half").click()
    settled_figure(page, questions=16, heads=n_at(50))
    page.keyboard.press("Escape")
    expect(name).not_to_be_visible()  # a click while it closes would be for that alone

    icon = page.get_by_test_id("stSidebar").locator("[data-testid=stTooltipIcon] svg").first
    size = icon.bounding_box()["width"]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
    page.get_by_role("button", name="Copy link").click()
    page.get_by_text("Copied").wait_for()
    bubble, sidebar = (at.bounding_box() for at in (page.get_by_text("Copied"), page.get_by_test_id("stSidebar")))
    assert 0 <= bubble["x"] and bubble["x"] + bubble["width"] <= sidebar["width"], "whole, within the sidebar"
    assert "heads=50" in page.evaluate("navigator.clipboard.readText()")
    page.get_by_role("button", name="Present", exact=True).click()
    bar = page.locator(".stage.bar")
    bar.get_by_text("1 / 3").wait_for()
    expect(page.get_by_test_id("stSidebar")).not_to_be_visible()
    expect(page.locator(".st-key-closing")).not_to_be_visible()
    page.evaluate("window.unloaded = false; window.addEventListener('beforeunload', () => { window.unloaded = true })")
    settled_figure(page, questions=16, heads=0, ffns=0)
    page.keyboard.press("ArrowRight")
    assert bar.locator(".place").inner_text() == "2 / 3", "the new number, at the key"
    assert settled_figure(page, questions=16, heads=n_at(50), ffns=0) == half
    for width, height in ((1366, 768), (1280, 900), (1920, 1080)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(FITS)

    background = "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
    light = page.evaluate(background)
    bar.get_by_role("button", name="Light or dark").click()
    page.wait_for_function(f"light => {background} !== light", arg=light)
    assert settled_figure(page, heads=n_at(50)) == half, "nothing is lost"
    page.keyboard.press("PageDown")
    bar.get_by_text("3 / 3").wait_for()
    await_mark(page, "losses")
    assert page.evaluate(background) != light
    page.keyboard.press("2")
    bar.get_by_text("2 / 3").wait_for()
    assert settled_figure(page, heads=n_at(50)) == half
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("stSidebar")).to_be_visible()
    assert "present" not in page.url and "heads=50" in page.url and not page.evaluate("window.unloaded")
    icon.evaluate("icon => icon.setAttribute('width', 21)")  # as if drawn in the type of the slide
    assert icon.bounding_box()["width"] == size
