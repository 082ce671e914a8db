"""Two models side by side in a real Chromium: the choice goes with the user from screen to screen, and one click lets
go of it."""

import re

from tests.browser.conftest import await_mark, marked


def test_what_is_compared_goes_along_and_is_let_go_of_by_one_click(page, address):
    page.goto(f"{address}/?against=fp32&prune_task=demo_copy&prune_shots=0&prune_limit=32&prune_ranking=random")
    await_mark(page, "second figure", model="demo in fp32", questions=32)
    page.get_by_role("link", name="Induction").click()
    heading = page.get_by_role("heading", name="demo in int8 and demo in fp32")
    await_mark(page, "comparison", first="demo in int8", second="demo in fp32")
    assert heading.is_visible() and "against=fp32" in page.url
    await_mark(page, "chart", key="induction second scatter")
    page.get_by_test_id("stSidebar").get_by_role("button", name=re.compile("clear", re.I)).click()
    marked(page, "comparison").wait_for(state="detached")
    assert heading.count() == 0
    assert "against" not in page.url
