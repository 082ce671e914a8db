"""The archive of a screen, and its pictures, hold all that it shows and say what it is of."""

import io
import json
import math
import zipfile
from pathlib import Path

import pytest

from engine.views.pictures import to_svg
from engine.views.text_picture import COLUMNS, FULL_OPACITY, text_picture
from engine.views.view import Column, Part
from pages.ui.downloads import actions, exports
from pages.ui.prune.exports import free_name
from tests.pages.conftest import settled

SCREENS = {
    "": ({"heads": "40", "order": "random"}, ""),
    "heads": ({"colors": "Induction"}, "Measure induction"),
    "text": (
        {"text_text": "Privet Drive, twice", "mask": "L0H1", "text_head": "L0H1", "text_shade": "Attention"},
        "Measure",
    ),
    "bench": ({"bench_evaluate_mask": "L0H1", "bench_evaluate_limit": "16"}, "Measure"),
}


@pytest.fixture
def sheet_of(open_app, monkeypatch):
    """What a screen hands to its downloads, and the page's own words."""
    handed = []
    monkeypatch.setattr(actions, "_draw", lambda files, link: handed.append(files))

    def sheet_of(name):
        parameters, measure = SCREENS[name]
        at = open_app(name, **parameters)
        if measure:
            buttons = [button for button in at.button if button.label.startswith(measure)]
            if buttons:  # what is short begins by itself
                buttons[0].click()
            at = settled(at)
        assert not at.exception
        return handed[-1], [metric.value for metric in at.metric]

    return sheet_of


def test_the_archive_of_a_screen_holds_all_of_it(sheet_of):
    screen, _ = sheet_of("")
    with zipfile.ZipFile(io.BytesIO(exports.to_zip(screen))) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert {name for name in files if not all(letter.isalnum() or letter in "-." for letter in name)} == set()
    for each in screen.sheet.pictures:
        svg = files[exports.file_name(each, "svg")].decode()
        assert files[exports.file_name(each, "png")].startswith(b"\x89PNG")
        for words in ("fp32", "boats", "20 questions", "3 of 8 heads", "saved 20"):
            assert words in svg, f"{each} says {words}"
    for each in screen.sheet.tables:
        assert files[exports.file_name(each, "csv")].count(b"\n") > 2
    assert files["command.txt"].decode().strip() == screen.origin.command
    told = json.loads(files["receipt.json"])
    assert {part["name"] for part in told["parts"]} >= {"Full model", "Pruned model"}
    assert all(part["receipts"] for part in told["parts"] if part["name"].endswith("model"))
    assert files["prune.html"].startswith(b"<!doctype html>") and files["program.py"]


def test_the_page_of_a_text_says_how_both_models_write_on(sheet_of):
    screen, _ = sheet_of("text")
    page = exports.to_html(screen).decode()
    assert "Full model: “" in page and "Pruned model: “" in page and "1 of 8 heads" in page
    assert set(screen.sheet.pictures) == {"Text"}
    said = screen.sheet.table("Continuation").decode()
    assert said.count("full,") == said.count("masked,") == 20
    assert set(screen.sheet.tables) == {"Losses by token", "Attention", "Continuation"}


def test_a_text_is_set_with_every_letter_once_and_no_line_too_long():
    pieces = ["A", " first", "\n\n", " line", " ", "of" * 70, "\n", "山川", " e\u0301", " end."]
    values = [0.0, 1, -2, 3, math.nan, 9, 0, 1, 1, 1]
    rows = [{"piece": piece, "token": piece, "value": value} for piece, value in zip(pieces, values, strict=True)]
    drawn = text_picture(Part("Text", rows, {"token": Column("Token")}), "value", 4.0, ("less", "more"))
    spans = drawn.datasets["spans"]
    said = "".join(span["letters"] for span in spans)
    assert said.replace(" ", "") == "".join(pieces).replace("\n", "").replace(" ", "")
    assert all(span["x"] < span["x2"] <= COLUMNS for span in spans)
    strength = {span["token"]: span["strength"] for span in spans}
    assert strength["of" * 70] == FULL_OPACITY and strength[" first"] == FULL_OPACITY / 4 and not strength[" "]
    assert to_svg(drawn, "t").startswith(b"<svg")


def test_the_folder_offered_for_an_export_is_a_free_one(tmp_path):
    names = [str(tmp_path / name) for name in ("pruned", "pruned-2", "pruned-3")]
    for expected in names:
        assert free_name(names[0]) == expected
        Path(expected).mkdir()


def test_file_names_are_letters_digits_and_hyphens():
    assert exports.file_name("heads, 5 examples", "svg") == "heads-5-examples.svg"
    assert exports.file_name("…", "png") == "file.png"
