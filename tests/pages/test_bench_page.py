"""The bench has every measurement of the command line, and shows what the command prints."""

import re
import shlex
from dataclasses import dataclass
from typing import ClassVar

import pytest

import engine.requests
from engine.__main__ import main
from engine.requests import REQUESTS, Result
from engine.requests.base import OfModel
from engine.requests.fields import number
from engine.views.view import View, plain_text
from pages.ui.sections import form, section
from tests.pages.conftest import labels, press, ran

MEASURED = [each for each in REQUESTS if each.group]
WRITE_OR_TRAIN = {"export", "train"}


def label_of(command):
    [of] = [each for each in MEASURED if each.command == command]
    return form.label_of(of)


def test_each_request_that_measures_is_on_it():
    is_elsewhere = {each.command for each in REQUESTS if each.is_measured} - {each.command for each in MEASURED}
    assert is_elsewhere == WRITE_OR_TRAIN


@pytest.mark.slow("draws 23 forms")
def test_each_form_makes_a_request(open_app, monkeypatch):
    """What it begins with is enough."""
    shown = []
    monkeypatch.setattr(section, "show", lambda file, sections, about: shown.extend(sections))
    at = open_app("bench", model="demo", precision="int8")
    for of in MEASURED:
        at.selectbox(key="bench_measurement").set_value(label_of(of.command))
        ran(at)
        assert not at.error and type(shown[-1].request) is of and f"headroom {of.command}" in at.code[0].value


def test_it_shows_what_the_command_prints(open_app, capsys):
    at = press(open_app("bench", bench_measurement=label_of("perplexity"), bench_perplexity_mask="L0H1"), "Measure")
    capsys.readouterr()
    assert main(shlex.split(at.code[0].value)[1:]) == 0
    finding, *lines, taken = capsys.readouterr().out.splitlines()
    assert taken == "from the store" and [each.value for each in at.text] == [lines[-1]]
    assert finding in [plain_text(each.value.removeprefix("#### ")) for each in at.markdown]


def test_settings_that_are_folded_count(open_app):
    at = open_app("bench", bench_measurement=label_of("evaluate"), bench_evaluate_seed="3")
    assert "--seed 3" in at.code[0].value


@dataclass(frozen=True, kw_only=True)
class CountHeads(OfModel):
    """Count the heads of a model. The value is their number."""

    command: ClassVar[str] = "count"
    group: ClassVar[str] = "Scores"
    times: int = number(2, (1, 9), "how often they are counted (2)")

    def measure(self, run):
        n = self.times * self.target(run.session).shape.n_heads_total
        return Result(n, {"heads": n}, View(f"**{n} heads.**", []))


def test_a_new_command_is_on_it(open_app, monkeypatch):
    monkeypatch.setattr(engine.requests, "REQUESTS", (*REQUESTS, CountHeads))
    at = open_app("bench", bench_measurement=form.label_of(CountHeads), bench_count_times="3")
    at = press(at, "Measure") if "Measure" in [each.label for each in at.button] else at
    assert "**24 heads.**" in " ".join(each.value for each in at.markdown)
    assert "headroom count" in at.code[0].value and at.code[0].value.endswith("--times 3")


def test_a_number_with_a_fraction_stays_in_the_address(open_app):
    at = open_app("bench", bench_measurement=label_of("continue"), bench_continue_temperature="0.7")
    assert "--temperature 0.7" in at.code[0].value and not at.warning


@pytest.mark.parametrize(("command", "name"), [("evaluate", "mask"), ("attribute", "second_mask")])
def test_a_mask_that_does_not_fit_the_model_says_so_at_its_field(open_app, command, name):
    at = open_app("bench", bench_measurement=label_of(command), **{f"bench_{command}_{name}": "L99H0"})
    [error] = at.main.get("error")
    assert re.search(r"L99H0|layer 99", error.value) and "Measure" not in labels(at)
    [typed] = [each for each in at.text_input if each.key == f"bench_{command}_{name}"]
    is_below_form = block_of(at.main, error) is not block_of(at.main, typed)
    assert is_below_form == (name == "second_mask"), "as that field is folded"


def block_of(block, element):
    """The innermost block that an element is in, of those in a block; None: it is elsewhere."""
    if any(child is element for child in block.children.values()):
        return block
    inner = (block_of(child, element) for child in block.children.values() if hasattr(child, "children"))
    return next((found for found in inner if found), None)
