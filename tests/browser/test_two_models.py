"""Two models side by side in a real Chromium: the choice goes with the user from screen to screen, and one click lets
go of it."""

import re


def test_what_is_compared_goes_along_and_is_let_go_of_by_one_click(page, address):
    page.goto(f"{address}/?against=fp32&prune_task=demo_copy&prune_shots=0&prune_limit=32&prune_ranking=random")
    page.get_by_text("demo in fp32: ").first.wait_for()
    page.get_by_text("Of 32 questions only").wait_for()
    page.get_by_role("link", name="Induction").click()
    page.get_by_role("heading", name="demo in int8 and demo in fp32").wait_for()
    assert "against=fp32" in page.url
    page.get_by_text("Where they differ most").wait_for()
    page.get_by_test_id("stSidebar").get_by_role("button", name=re.compile("clear", re.I)).click()
    page.get_by_role("heading", name="demo in int8 and demo in fp32").wait_for(state="detached")
    assert "against" not in page.url
