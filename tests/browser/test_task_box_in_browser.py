"""The Task box in a real Chromium: what is typed filters, and Enter takes what is found."""

from tests.browser.conftest import settled_figure


def test_typing_part_of_a_name_finds_the_task(page, address):
    page.goto(f"{address}/?precision=fp32&prune_limit=32&prune_ranking=random&prune_idle=false")
    settled_figure(page, questions=32)
    task = page.get_by_role("combobox", name="Task", exact=True)
    task.click()
    task.fill("transl")
    page.get_by_role("option").nth(1).wait_for(state="detached")
    assert page.get_by_role("option").all_inner_texts() == ["demo_translation"]
    task.press("Enter")
    page.wait_for_url("**prune_task=demo_translation**")
