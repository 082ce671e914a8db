"""Each measurement runs on the bench by keyboard alone, with what its form begins with."""

import pytest

from engine.requests import REQUESTS
from tests.browser.conftest import WAIT_MS, at_rest
from tests.conftest import some_of

MEASURED = [each.command for each in REQUESTS if each.group]
MOST_TABS = 80
IN_FOCUS = "found => document.activeElement?.closest(found) !== null"


def tab_to(page, found):
    """Presses Tab until an element of this selector has the focus."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if page.evaluate(IN_FOCUS, found):
            return
    raise AssertionError(f"Tab does not reach {found}")


@pytest.mark.slow("measures on the bench")
@pytest.mark.thorough
def test_measurements_are_chosen_and_run_by_keyboard(page, address):
    page.goto(f"{address}/bench")
    for command in some_of(MEASURED, 2):
        page.locator("[data-testid=stMain] [data-testid=stCode]").wait_for()
        at_rest(page)
        choose_and_run(page, command)


def choose_and_run(page, command):
    tab_to(page, ".st-key-bench_measurement input")  # its help may have the focus before
    page.keyboard.type(f"{command}:")
    page.keyboard.press("Enter")
    page.locator(f"text=/headroom {command}\\b/").first.wait_for()
    if command == "check":  # of published models alone
        page.locator("[data-testid=stAlert]").wait_for()
        return
    offer = f".st-key-offer-{command.capitalize()}"
    result = page.locator(f".st-key-result_section_{command}")  # neither of the measurement before
    page.locator(offer).or_(result).first.wait_for()
    at_rest(page)
    if not result.is_visible():
        tab_to(page, f"{offer} button")
        page.keyboard.press("Enter")
        result.wait_for(timeout=4 * WAIT_MS)  # the longest measure for minutes
    assert page.locator("[data-testid=stAlert]").count() == 0
