"""Several contexts that nobody touches after opening: all of them get their figures, whatever models they show."""

import pytest

from tests.browser.conftest import await_mark, marked, new_context
from tests.conftest import IS_THOROUGH

LIMIT = 16  # questions


@pytest.fixture
def contexts(chromium):
    """Opens an address in a context of its own."""
    opened = []

    def open_address(url):
        opened.append(new_context(chromium))
        page = opened[-1].new_page()
        page.goto(url, wait_until="commit")
        return page

    yield open_address
    for context in opened:
        context.close()


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
def test_tabs_with_three_models_all_end_untouched(app_server, tmp_path, contexts, views):
    address, _ = app_server(tmp_path / "results", warm=True)
    counts = (0, 5) if IS_THOROUGH else (5,)
    pages = [contexts(f"{address}/{view}&shots={shots}") for shots in counts for view in views]
    for page in pages:
        await_mark(page, "figure", "measured", questions=LIMIT)
    assert [heads_of(page) for page in pages] == ["24", "4", "4"] * len(counts), "each has its own figure"
