"""axe-core finds no serious or critical violation on any screen, in either theme. No rule or element is excluded."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from pages.ui.page.screens import STORY
from tests.browser.conftest import at_rest, await_command
from tests.conftest import IS_THOROUGH

FIRST, *OTHERS = [screen.file for screens in STORY.values() for screen in screens]
ALL = [(screen, theme) for screen in ("", *OTHERS) for theme in ("light", "dark")]  # the first has no path
CASES = ALL if IS_THOROUGH else [("text", "light"), ("bench", "dark")]
SEVERE = ("serious", "critical")
# Charts are drawn after a run has ended: whether nothing has changed for so many milliseconds.
QUIET = """ms => new Promise(resolve => {
  const done = () => { changes.disconnect(); resolve() }
  let timer = setTimeout(done, ms)
  const changes = new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(done, ms) })
  changes.observe(document.body, { childList: true, subtree: true, attributes: true })
})"""


@pytest.mark.slow("opens screens as they are for a newcomer, and measures what they show first")
@pytest.mark.thorough
@pytest.mark.parametrize(("screen", "page"), CASES, indirect=["page"], ids=lambda each: each or FIRST)
def test_a_screen_has_no_serious_violation(page, address, screen):
    page.goto(f"{address}/{screen}")
    await_command(page)
    at_rest(page)
    page.evaluate(QUIET, 1500)  # longer than a page that polls waits to draw again
    found = [each for each in Axe().run(page).response["violations"] if each["impact"] in SEVERE]
    assert not found, "\n\n".join(line for each in found for line in told(each))


def told(violation):
    """Of each element the rule, its code, and what is wrong with it."""
    return [f"{violation['id']}: {node['html'][:200]}\n{node['failureSummary']}" for node in violation["nodes"]]
