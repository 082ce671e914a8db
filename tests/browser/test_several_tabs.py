"""Several tabs that nobody touches after opening: all of them get their figures, whatever models they show."""

import pytest

from tests.browser.conftest import await_mark, marked
from tests.conftest import IS_THOROUGH

LIMIT = 18  # questions: of no other test


@pytest.fixture
def views(tiny_opt):
    """Addresses of the same screen with three models: the embedded one, a smeared run, a folder of a tiny OPT."""
    models = ("", "&model=runs/smeared", f"&model={tiny_opt}")
    return [f"?precision=fp32&limit={LIMIT}&order=random&heads=50{model}" for model in models]


def heads_of(page):
    """How many heads its figure is about, which differs from model to model."""
    return marked(page, "figure", "measured", questions=LIMIT).first.get_attribute("data-heads")


@pytest.mark.thorough
@pytest.mark.slow("draws three pages at once and measures three models")
def test_tabs_with_three_models_all_end_untouched(page, address, views):
    counts = (0, 5) if IS_THOROUGH else (5,)
    addresses = [f"{address}/{view}&shots={shots}" for shots in counts for view in views]
    tabs = [page, *(page.context.new_page() for _ in addresses[1:])]
    for tab, url in zip(tabs, addresses, strict=True):
        tab.goto(url, wait_until="commit")
    for tab in tabs:
        await_mark(tab, "figure", "measured", questions=LIMIT)
    assert [heads_of(tab) for tab in tabs] == ["24", "4", "4"] * len(counts), "each has its own figure"
