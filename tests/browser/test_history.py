"""The browser's back and forward: one entry for each action, and each view returns as it was, its locked token too."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import at_rest, await_mark, keyed, settled_figure
from tests.conftest import IS_THOROUGH

LEVEL = "Attention heads pruned"


def view_of(page):
    """The address without the server, and what the screen shows of its state."""
    where = urlsplit(page.url)
    return page.title(), where.path, where.query


def opened(page, title):
    page.get_by_test_id("stSidebarNavLink").get_by_text(title, exact=True).click()
    page.get_by_role("heading", name=title, exact=True, level=1).wait_for()
    at_rest(page)


def follow(page, expected):
    """Waits until the address and the title are the ones of this view, and nothing is under way."""
    title, path, query = expected
    page.wait_for_url(lambda url: (urlsplit(url).path, urlsplit(url).query) == (path, query))
    page.wait_for_function("title => document.title === title", arg=title)
    at_rest(page)
    page.wait_for_timeout(300)  # a late address would come now
    assert view_of(page) == expected


@pytest.mark.thorough
@pytest.mark.slow("seven views, there and back")
def test_as_many_presses_of_back_return_through_the_views(page, address):
    page.goto(f"{address}/?precision=fp32&limit=16&order=random")
    settled_figure(page)
    views = [view_of(page)]

    def done():
        at_rest(page)
        page.wait_for_timeout(300)
        assert view_of(page) != views[-1]
        views.append(view_of(page))

    slider = page.get_by_role("slider", name=LEVEL)
    slider.focus()
    page.keyboard.press("ArrowRight")
    await_mark(page, "figure", "measured", heads=2)
    done()
    keyed(page, "axis").get_by_role("radio").nth(1).click()
    done()
    if IS_THOROUGH:
        keyed(page, "prune_speed").locator("summary").click()
        done()
    opened(page, "Text")
    done()
    page.locator(".text span").nth(40).click()
    page.wait_for_url(re.compile("text_token=41"))
    done()
    keyed(page, "text_shade").get_by_role("radio").nth(1).click()
    page.wait_for_url(re.compile("text_shade=Attention"))
    done()
    if IS_THOROUGH:
        opened(page, "Heads")
        done()
        keyed(page, "colors").get_by_role("radio").nth(2).click()
        page.wait_for_url(re.compile("colors="))
        done()
        page.get_by_role("button", name="Prune it").click()
        page.wait_for_url(re.compile("mask="))
        done()
    for expected in reversed(views[:-1]):
        page.go_back()
        follow(page, expected)
    expect(page.get_by_role("slider", name=LEVEL)).to_have_value("0")
    _, path, query = next(each for each in reversed(views) if "text_token" in each[2])
    page.goto(f"{address}{path}?{query}")
    page.locator(".text span.locked").wait_for()
    assert "oken 41 of" in page.locator(".readout").inner_text()
