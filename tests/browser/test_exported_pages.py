"""A screen as a page: it opens from disk, asks nothing of anyone, and shows the numbers of the screen."""

import pytest

from pages.ui.downloads import exports
from tests.conftest import IS_THOROUGH
from tests.pages.conftest import open_app, questions, tests_are_in_the_tab  # noqa: F401
from tests.pages.test_exports import SCREENS, sheet_of  # noqa: F401


@pytest.mark.slow("measures, exports and opens three screens, all of them in its full form")
@pytest.mark.thorough
def test_a_page_of_each_screen_opens_from_disk_with_the_same_numbers(sheet_of, chromium, tmp_path):  # noqa: F811
    context, faults = chromium.new_context(), []
    context.on("request", lambda sent: faults.append(sent.url) if not sent.url.startswith(("file:", "data:")) else None)
    context.on("weberror", lambda error: faults.append(str(error.error)))
    context.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    for name in SCREENS if IS_THOROUGH else ("", "heads", "text"):
        screen, figures = sheet_of(name)
        file = tmp_path / exports.file_name(screen.origin.screen, "html")
        file.write_bytes(exports.to_html(screen))
        page = context.new_page()
        page.goto(file.as_uri())
        drawn = page.evaluate(
            """async names => (await window.views).map((view, i) =>
                 Object.fromEntries(names[i].map(name => [name, view.data(name)])))""",
            [list(screen.sheet.picture(each).datasets) for each in screen.sheet.pictures],
        )
        for each, shown in zip(screen.sheet.pictures, drawn, strict=True):
            for data, rows in screen.sheet.picture(each).datasets.items():
                columns = [*rows[0]] if rows else []
                assert [{column: row.get(column) for column in columns} for row in shown[data]] == rows, (
                    f"{name} {each}"
                )
        assert drawn and page.locator("figure svg").count() == len(drawn)
        words = page.locator("body").inner_text()
        for value in figures:
            assert value.replace("\\", "") in words, f"{name}: {value} is on the screen"  # Markdown's escapes
        assert screen.origin.about in words and screen.origin.command in words
        for part in screen.receipts():
            assert not part.n or part.name in words
        page.close()
    context.close()
    assert faults == []
