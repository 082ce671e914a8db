"""Slides in a browser: screens become a talk, which is presented over the app, and as one file elsewhere."""

from playwright.sync_api import expect

from tests.browser.conftest import at_rest, await_mark, follow, keyed, new_context, settled_figure
from tests.embedded import n_at

FEW = "precision=fp32&limit=16&order=random"
SCREENS = {
    f"/?{FEW}": "Prune",
    f"/?{FEW}&heads=50": "Prune",
    "/text?text_text=The+ferry": "Text",
    "/training": "Training",
}
SHOWN = ".slide.shown .chart svg.marks"
WHOLE = "nav, .slide.shown :is(h1, p, .chart:not(.tall) svg.marks)"  # a text scrolls
WITHIN = f"""() => [...document.querySelectorAll("{WHOLE}")].every(each => {{
  const {{ left, right, top, bottom }} = each.getBoundingClientRect()
  return left >= 0 && right <= innerWidth + 1 && top >= 0 && bottom <= innerHeight + 1
}})"""


def test_a_talk_is_made_presented_and_taken_along(page, address, chromium, tmp_path):
    for number, (link, title) in enumerate(SCREENS.items(), 1):
        follow(page, f"{address}{link}")
        page.get_by_role("heading", name=title, exact=True, level=1).wait_for()
        if title == "Prune":
            settled_figure(page, questions=16, heads=n_at(50) if "heads" in link else 0)
        elif title == "Text":
            await_mark(page, "losses")
        at_rest(page)
        keyed(page, "add_slide").get_by_role("button").first.click()
        await_mark(page, "slide", "added", number=number)

    keyed(page, "present").get_by_role("button").first.click()
    talk = page.frame_locator("iframe[title=Slides]")
    frame = page.locator("iframe[title=Slides]").element_handle().content_frame()
    titles = []
    for number in range(1, 5):
        talk.locator(SHOWN).first.wait_for()
        expect(talk.locator("#place")).to_have_text(f"{number} / 4")
        titles.append(talk.locator(".slide.shown h1").inner_text())
        for width, height in ((1280, 720), (1920, 1080), (1366, 900)):
            page.set_viewport_size({"width": width, "height": height})
            frame.wait_for_function(WITHIN)
        page.keyboard.press("ArrowRight")
    assert len({*titles}) == 4 and all(titles)
    page.keyboard.press("2")
    expect(talk.locator("#place")).to_have_text("2 / 4")
    page.keyboard.press("PageUp")
    talk.get_by_role("button", name="Remove slide").click()
    expect(talk.locator("#place")).to_have_text("1 / 3")
    talk.get_by_role("button", name="Open screen").click()
    page.wait_for_url("**heads=50*")
    settled_figure(page, questions=16, heads=n_at(50))
    keyed(page, "present").get_by_role("button").first.click()
    talk.locator(SHOWN).first.wait_for()
    expect(talk.locator("#place")).to_have_text("1 / 3")
    page.keyboard.press("Escape")
    expect(page.locator("iframe[title=Slides]")).to_have_count(0)

    keyed(page, "export").get_by_role("button").first.click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Slides, 3 (HTML)").click()
    saved.value.save_as(tmp_path / "talk.html")
    context, faults = new_context(chromium, offline=True), []
    context.on("request", lambda sent: faults.append(sent.url) if not sent.url.startswith(("file:", "data:")) else None)
    context.on("weberror", lambda error: faults.append(str(error.error)))
    context.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    there = context.new_page()
    there.goto((tmp_path / "talk.html").as_uri())
    for title in titles[1:]:
        there.locator(SHOWN).first.wait_for()
        assert there.locator(".slide.shown h1").inner_text() == title
        there.keyboard.press("ArrowRight")
    expect(there.get_by_role("button", name="End")).to_be_hidden()
    there.keyboard.press("Escape")
    assert there.locator(".slide.shown").count() == 1
    context.close()
    assert faults == []
