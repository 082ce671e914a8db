"""The app below a path, as behind a proxy: screens, history, files, links, and slides stay below it. Its server has
drawn nothing when the first link is opened."""

import re
from urllib.parse import urlsplit

import pytest

from tests.browser.conftest import at_rest, await_mark, settled_figure
from tests.embedded import n_at

PATH, FEW = "/tools/headroom", "precision=fp32&limit=16&order=random&heads=50&mask=F0"


@pytest.mark.slow("starts a server of its own, as a user does")
def test_a_cold_permalink_and_every_request_and_address_below_the_path(page, app_server, tmp_path):
    address = app_server(tmp_path, path=PATH[1:])[0]  # its view is not that of other tests
    root = address.removesuffix(PATH)
    asked = []
    page.on("request", lambda sent: asked.append(urlsplit(sent.url)))
    page.on("websocket", lambda socket: asked.append(urlsplit(socket.url)))

    def is_at(screen, *parts):
        page.wait_for_url(lambda url: urlsplit(url).path == f"{PATH}/{screen}" and all(part in url for part in parts))
        at_rest(page)

    page.goto(f"{root}/?{FEW}")
    is_at("", "heads=50")
    half = settled_figure(page, questions=16, heads=n_at(50), ffns=1)
    assert page.get_by_label("Prune these as well", exact=True).input_value() == "F0" and "mask=F0" in page.url
    await_mark(page, "curve", "estimated")  # after which the page is drawn once more
    at_rest(page)
    page.get_by_role("button", name=re.compile("Export$")).click()
    file = page.get_by_role("button", name="Page (HTML)")
    file.wait_for()
    at_rest(page)
    with page.expect_download(timeout=120_000) as saved:  # a click that is lost would wait for ten minutes
        file.click()
    assert f"{address}/?" in saved.value.path().read_text(), "its link"
    page.keyboard.press("Escape")

    page.get_by_test_id("stSidebarNavLink").get_by_text("Text", exact=True).click()
    is_at("text")
    await_mark(page, "losses")
    page.go_back()
    is_at("", "heads=50")
    assert settled_figure(page, questions=16) == half
    page.go_forward()
    is_at("text")
    page.reload()
    is_at("text")
    await_mark(page, "losses")

    at_rest(page)
    page.get_by_role("button", name="Add slide").click()
    await_mark(page, "slide", "added", number=1)
    page.get_by_test_id("stSidebarNavLink").get_by_text("Prune", exact=True).click()
    is_at("")
    page.get_by_role("button", name="Present", exact=True).click()
    page.frame_locator("iframe[title=Slides]").get_by_role("button", name="Open screen").click()
    is_at("text")
    outside = [each.path for each in asked if each.scheme not in ("data", "blob") and not each.path.startswith(PATH)]
    assert outside == ["/"], "the first address, which led here"
