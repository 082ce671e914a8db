"""Whatever stands in an address: at most one plain line says what was put right, never a traceback."""

import re
from pathlib import Path

import pytest

from pages.ui.controls.first_views import FIRST_OF_DEMO, OTHERS_OF_DEMO
from pages.ui.page.address import MOST, NOTES, flag, nearest, one_among
from tests.conftest import REPOSITORY
from tests.pages.conftest import MEASURING, settled

IMAGE = "![x](http://192.0.2.1/a.png)"
GARBAGE = [
    "inf",
    "-inf",
    "1e400",
    "",
    "9" * 5000,
    "~nosuchuser",
    "n" * 300,
    "a\0b",
    "nan",
    "-1",
    "1e3",
    "\u2028",
    IMAGE,
]
BOS = {"bos": "n" * 300}  # in the bar, for screens that are not in ONE_EACH
ONE_EACH = {
    "prune": {"limit": "1e400", "shots": "", "axis": "", **BOS},
    "heads": {"colors": IMAGE, "heads_tab": "nan"},
    "text": {"heads": "9" * 5000, "text_shade": IMAGE, "text_token": "inf", "text_tokens": "nan"},
    "bench": {"bench_evaluate_shots": "inf", "bench_evaluate_limit": IMAGE, "bench_evaluate_labels": "nan"},
}


ACROSS = {"heads_tab": "Across tasks", "heads_score": IMAGE, "heads_measure": "", "heads_shots": "x", "heads_a": "inf"}


@pytest.mark.parametrize("text", GARBAGE)
@pytest.mark.parametrize("ends", [(0, 9999), (1, MOST), (1, 256)])
def test_a_number_becomes_the_nearest_that_is_allowed(text, ends):
    found = nearest(text, ends)
    assert found is None or ends[0] <= int(found) <= ends[1]
    expected = {"inf": ends[1], "1e400": ends[1], "9" * 5000: ends[1], "-inf": ends[0], "-1": ends[0]}
    assert text not in expected or found == str(expected[text])
    assert nearest("7", ends) == "7" and nearest(text if text == "nan" else "seven", ends) is None


@pytest.mark.parametrize("text", GARBAGE)
def test_what_is_no_option_is_left_out(text):
    assert one_among(["heads", "ffns"])(text) is None and flag(text) is None
    assert one_among(["heads", "ffns"])("ffns") == "ffns" and flag("TRUE") == "TRUE"


@pytest.mark.parametrize(
    ("page", "said"),
    [
        *((screen, ONE_EACH.get(screen, BOS)) for screen in MEASURING),
        ("text", {"text_head": "L" + "9" * 5000}),
        ("heads", ACROSS),
        ("heads", {"head": "n" * 300}),
    ],
)
def test_a_page_with_garbage_says_so_in_one_line_and_works(page, said, open_app):
    at = open_app(page, run=False, model="demo", order="random", **said)
    at.query_params.pop("task", None)
    at.run()
    if not [*at.error, *at.warning]:  # what is wrong is known once the model has read the text
        settled(at)
    assert not at.exception
    lines = [each.value for each in [*at.error, *at.warning]]
    if not lines and NOTES in at.session_state:
        # AppTest draws a page that is run again from within a fragment without app.py, and so without this line
        lines = ["; ".join(line for line, _ in at.session_state[NOTES][1].values()).replace(IMAGE, "")]
    assert len(lines) == 1 and lines[0] and "unexpected" not in lines[0] and len(lines[0]) < 900, lines
    assert IMAGE not in lines[0]


def test_what_was_put_right_is_said_until_somebody_changes_it(open_app):
    at = open_app(limit="-5", order="random")
    assert at.number_input(key="limit").value == 1 and at.query_params["limit"] == "1"
    assert [each.value for each in at.warning] == ["In the address: Questions “-5” is out of range, 1 is taken."]
    at.number_input(key="limit").set_value(2).run()
    assert not at.warning and at.number_input(key="limit").value == 2


def test_every_choice_and_number_is_put_right_before_it_is_drawn():
    """A new control goes through the same few places: `one_of`, `one_listed`, `number_field`, or `put_right` itself."""
    drawn = re.compile(r"\.(number_input|segmented_control|pills|checkbox|toggle|expander|selectbox)\((.*)")
    seen = 0
    for file in [*REPOSITORY.glob("pages/*.py"), *REPOSITORY.glob("pages/ui/**/*.py")]:
        before: list[str] = []
        for line in file.read_text(encoding="utf-8").splitlines():
            found = drawn.search(line)
            if found and "bind=" in line and file.name != "texts.py":  # which says itself what is not there
                seen += 1
                assert any("put_right(" in each for each in before[-9:]), f"{file.name}: {line}"
            before.append(line)
    assert seen >= 4


def test_what_nobody_foresaw_is_one_line_and_a_log_file(open_app, monkeypatch):
    from engine.errors import unforeseen
    from pages.ui.controls import sidebar
    from pages.ui.page import runtime

    def broken():
        raise ZeroDivisionError(f"by {IMAGE}")

    monkeypatch.setattr(runtime, "unforeseen", unforeseen)
    monkeypatch.setattr(sidebar, "under_way", broken)
    at = open_app(run=False).run()
    assert not at.exception and len(at.error) == 1
    line = at.error[0].value
    assert "ZeroDivisionError" in line and IMAGE not in line and "please report it" in line
    log = re.search(r"; (\S+\.log) says", line.replace("\\", ""))
    assert log and "broken" in Path(log[1]).read_text()


SAID = {
    "one": ("demo_copy", ["demo_copy"]),
    "each by itself": (["demo_lookup", "demo_copy", "nobody"], ["demo_lookup", "demo_copy"]),
    "in an order of their own": (["demo_copy", "demo_lookup"], ["demo_copy", "demo_lookup"]),
    "with commas, as one types it": ("demo_copy,demo_lookup", ["demo_lookup", "demo_copy"]),
    "none": ("", []),
    "none that there is": (["nobody", IMAGE], None),
}


@pytest.mark.parametrize("said", SAID)
def test_an_address_says_several_tasks(said, open_app):
    written, chosen = SAID[said]
    at = open_app("heads", run=False, model="demo", order="random", heads_tab="Across tasks", heads_tasks=written)
    at.query_params.pop("task", None)
    at.run()
    box = at.multiselect(key="heads_tasks")
    assert (
        not at.exception
        and not at.warning
        and (set(box.value) == {*FIRST_OF_DEMO, *OTHERS_OF_DEMO} if chosen is None else box.value == chosen)
    )
    kept = at.query_params.get("heads_tasks")  # AppTest gives a single value as a text
    assert kept == (None if chosen is None else chosen if len(chosen) > 1 else "".join(chosen))
