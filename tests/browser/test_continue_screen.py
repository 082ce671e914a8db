"""The Continue screen in a real Chromium: what is said stands whole in its box, and the keyboard reaches it."""

from playwright.sync_api import expect

from tests.browser.conftest import at_rest

WHOLE = "box => box.scrollHeight <= box.clientHeight"


def test_boxes_fit_their_text_and_take_the_focus(page, address):
    page.set_viewport_size({"width": 1000, "height": 900})
    page.goto(f"{address}/continuation?precision=fp32&continue_tokens=40&continue_mask=L1H1&continue_heads=0")
    boxes = page.get_by_role("region", name="says")
    expect(boxes).to_have_count(2)
    at_rest(page)
    expect(boxes.last.locator(".piece")).not_to_have_count(0)
    for box in boxes.all():
        assert box.evaluate(WHOLE)
        box.focus()
        expect(box).to_be_focused()
    bars = [page.locator(f'[aria-label^="Next token, {who} model"]').first for who in ("full", "pruned")]
    assert bars[0].bounding_box()["y"] == bars[1].bounding_box()["y"]
