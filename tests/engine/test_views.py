"""Views are pure functions of results: their words, their tables as text, and their charts."""

import json
import math
from dataclasses import replace
from functools import partial

import altair as alt
import numpy as np
import pytest
import vl_convert

from engine.heads.patching import PatchMap
from engine.importance.scores import Scores
from engine.models.loading import LoadSpec
from engine.models.session import Session
from engine.requests import ScoreImportance
from engine.requests.patches import patch_rows
from engine.statistics import Paired
from engine.views.forms import kit, maps
from engine.views.importance import component_rows, importance_view
from engine.views.patches import patch_view
from engine.views.pictures import file_spec
from engine.views.view import Column, Part, View, as_text, plain_text, text_view
from engine.views.words import Effect, counted, listed, number, percent, plain, visible, with_interval

HEADS = [
    {"layer": layer, "head": head, "name": f"L{layer}H{head}", "lost": lost, "is_pruned": head == 1}
    for (layer, head), lost in {(0, 0): 0.12, (0, 1): -0.05, (1, 0): math.nan, (1, 1): 0.3}.items()
]
OF_HEADS = {"name": Column("Head"), "lost": Column("Accuracy lost", "+.1%")}
SETS = [
    {"set": "induction", "lost": 0.4, "low": 0.3, "high": 0.5, "is_clear": True},
    {"set": "random", "lost": 0.01, "low": -0.02, "high": 0.03, "is_clear": False},
]
OF_SETS = {"set": Column("Heads"), "lost": Column("Accuracy lost", "+.1%")}
LEVELS = [
    {"level": level / 10, "acc": acc, "low": acc - 0.1, "high": acc + 0.1, "order": order}
    for order, accs in {"full model": (0.9, 0.8, 0.3), "random": (0.9, math.nan, 0.2)}.items()
    for level, acc in zip((0, 5, 10), accs, strict=True)
]
OF_LEVELS = {"level": Column("Heads pruned", ".0%"), "acc": Column("Questions right", ".1%"), "order": Column("Order")}
PAIRS = [{"a": a, "b": b, "rho": rho} for a, b, rho in (("x", "x", 1.0), ("x", "y", -0.4), ("y", "x", -0.4))]
OF_PAIRS = {"a": Column("Task"), "b": Column("Other task"), "rho": Column("Rank correlation", "+.2f")}
MAP = partial(maps.head_map, value="lost", signed=True, crosses="is_pruned", outlined="is_pruned")
CURVES = partial(
    kit.curves, x="level", y="acc", by="order", low="low", high="high", rules={"chance": 0.25}, share=True,
    roles={"full": "full model"},
)  # fmt: skip
# of a form: its rows, its columns, the chart, and how many marks of a kind it draws
FORMS = {
    "map": (HEADS, OF_HEADS, MAP, {"point": 4}),  # each cross has an edge
    "intervals": (
        SETS,
        OF_SETS,
        partial(kit.intervals, y="set", x="lost", low="low", high="high", clear="is_clear"),
        {"point": 2},
    ),
    "bars": (SETS, OF_SETS, partial(kit.bars, y="set", x="lost", low="low", high="high", clear="is_clear"), {"bar": 2}),
    "curves": (LEVELS, OF_LEVELS, CURVES, {}),
    "lines": (
        LEVELS,
        OF_LEVELS,
        partial(kit.lines, x="level", fields={"low": "low", "acc": "right"}, y="Right", ends=(0, 1), last=1.0),
        {},
    ),
    "matrix": (PAIRS, OF_PAIRS, partial(maps.matrix, x="a", y="b", value="rho", signed=True), {}),
    "scatter": (HEADS, OF_HEADS, partial(kit.scatter, x="head", y="lost"), {"point": 3}),  # one is undefined
}  # fmt: skip


def part(name):
    rows, columns, draw, _ = FORMS[name]
    return Part(name, rows, columns, draw)


@pytest.mark.parametrize("name", FORMS)
def test_each_form_draws_its_rows_and_titles_its_axes(name):
    drawn = part(name).picture()
    json.dumps(drawn.spec, allow_nan=False)  # a browser cannot read NaN
    svg = vl_convert.vegalite_to_svg(alt.Chart.from_dict(file_spec(drawn, "A title")).to_dict())  # as a notebook does
    for kind, n in FORMS[name][-1].items():
        assert svg.count(f'aria-roledescription="{kind}"') == n
    said = [column.title for column in FORMS[name][1].values() if column.title != "Head"]
    assert "A title" in svg and any(title in svg for title in said)


def test_lines_have_a_band_and_the_colors_of_their_layers():
    draw = partial(kit.lines, x="level", fields={"L0H0": "L0H0", "L1H0": "L1H0"}, y="Share", ends=(0, 1), last=1.0)
    heads = Part("Heads", [{"level": 0.5, "L0H0": 0.1, "L1H0": 0.9}], {"level": OF_LEVELS["level"]}, draw)
    drawn = draw(heads, layers={"L0H0": 0, "L1H0": 1}, band=(0.2, 0.4))
    assert drawn.datasets["band"] == [{"level": 0.2, "end": 0.4}] and not draw(heads).datasets["band"]
    assert [each["layer"] for each in drawn.datasets["lines"]] == [0, 1]
    svg = vl_convert.vegalite_to_svg(alt.Chart.from_dict(file_spec(drawn, "A title")).to_dict())
    assert "Layer" in svg and svg.count('aria-roledescription="line mark"') == 2


def test_a_missing_number_interrupts_a_line_and_is_none_in_a_file():
    assert [row["acc"] for row in part("curves").picture().datasets["rows"]][4] is None
    assert np.isnan(part("curves").frame()["acc"][4])


def test_a_view_as_text_has_its_finding_its_tables_and_its_notes():
    view = View("**It** costs \\_5% here", [Part("Sets", SETS, OF_SETS)], ["x was not measured"])
    assert as_text(view).splitlines() == [
        "It costs _5% here",
        "",
        "Sets:",
        "Heads      Accuracy lost",
        "induction         +40.0%",
        "random             +1.0%",
        "",
        "x was not measured",
    ]
    assert as_text(View("alone")) == "alone"
    further = [Part("Sets", SETS, OF_SETS), Part("Drawn", SETS, OF_SETS, MAP), Part("Not drawn", SETS, OF_SETS)]
    assert [line for line in as_text(View("", further)).splitlines() if line.endswith(":")] == ["Sets:", "Not drawn:"]


def test_lines_that_are_not_markdown_stay_as_they_are():
    assert as_text(text_view("said: 'a**b\\_c **d**'")) == "said: 'a**b\\_c **d**'"


def test_a_ranked_table_is_cut_to_its_highest_rows():
    rows = [{"name": f"L0H{at}", "score": float(at % 20)} for at in range(30)] + [{"name": "L1H0", "score": math.nan}]
    lines = as_text(View("Highest first", [Part("Scores", rows, ranked_by="score")])).splitlines()
    assert [line.split()[0] for line in lines[4:6]] == ["L0H19", "L0H18"]
    assert lines[-1] == "and 19 more rows; --json or --out has all of them"


@pytest.mark.parametrize(
    "value, form, text",
    [(0.125, ".1%", "12.5%"), (math.nan, ".1%", "–"), (None, ".1%", "–"), ("a\n\tb", ".1%", "a↵⇥b"), (True, "", "yes")],
)
def test_values_of_a_column(value, form, text):
    assert Column("", form).text(value) == text


@pytest.mark.parametrize(
    "effect, words",
    [
        (Effect(12, 8, 17, n=100), "lost 12 points (95% 8 to 17)"),
        (Effect(-0.3, -0.5, -0.1, unit="nats", digits=1), "gained 0.3 nats (95% 0.1 to 0.5)"),
        (Effect(1, -2, 4, n=100), "within noise: lost 1 point (95% −2 to 4)"),
        (Effect(9, 2, 16, n=100, p=0.2), "within noise: lost 9 points (95% 2 to 16)"),
        (Effect(50, 20, 80, n=4), "too few questions: lost 50 points (95% 20 to 80)"),
        (Effect(math.nan, math.nan, math.nan), "undefined"),
        (Effect.of_paired(Paired(100, 2, 14, 0.004)), "lost 12.0 points (95% 3.9 to 19.6)"),
    ],
)
def test_an_effect_in_words(effect, words):
    assert effect.in_words() == words


def test_words_of_numbers():
    assert (number(-1234.56), number(-0.004), number(2, 0, sign=True)) == ("−1234.56", "0.00", "+2")
    assert (percent(0.954), percent(math.nan), counted(1, "head"), counted(1204, "head")) == (
        "95.4%", "–", "1 head", "1,204 heads",
    )  # fmt: skip
    assert listed(["a"]) == "a" and listed(["a", "b", "c"]) == "a, b and c"
    assert listed(list("abcdef"), 4) == "a, b, c and 3 more"
    assert plain_text("**L1H0** \\_a\\_") == "L1H0 _a_"
    assert with_interval(0.4, -0.1, 0.9, "nats", 1) == "+0.4 nats (95% −0.1 to +0.9)"
    assert with_interval(0.4, math.nan, math.nan) == "+0.40"
    typed = "-a **b**_c_ [d](e) $x$ :f: a_b `g` <h>"
    assert plain_text(plain(typed)) == typed and visible(" a\n") == "␣a↵"


def test_scores_are_presented_with_the_highest_first():
    found = Scores("heads-oracle", 8, np.array([[0.0, 0.25], [0.5, -0.1]]), np.zeros((2, 2)))
    view = importance_view(found, "demo_copy")
    assert plain_text(view.finding) == "L1H0 matters most alone: 50.0 points lost without it on demo_copy, 8 questions."
    none = importance_view(Scores("heads-oracle", 8, -np.ones((2, 2))), "demo_copy")
    assert "No component matters alone" in none.finding
    assert [row["name"] for row in component_rows({"score": np.zeros(2)})] == ["F0", "F1"]


def test_a_request_is_one_measurement_whose_value_is_its_result(tmp_path):
    request = ScoreImportance(task="demo_copy", limit=4)
    with headroom_session(tmp_path) as session:
        whole = request.whole(session.target(LoadSpec("demo")))
        assert whole.stored_part(session).missing and request.stored(session) is None
        *_, last = whole.run(session)
        assert last.value.fields["shape"] == [8, 6]
        assert whole.stored_part(session).is_complete
        assert request.stored(session).view.finding == last.value.view.finding


class headroom_session:
    """A session with an empty store."""

    def __init__(self, folder):
        from cache import open_store

        self.store = open_store(str(folder))

    def __enter__(self):
        return Session(self.store)

    def __exit__(self, *error):
        self.store.close()


def test_the_difference_of_the_two_answers_is_said_and_each_place_has_a_row():
    effects = {0: np.array([0.1, 0.9, 0.0]), 1: np.array([0.0, 0.4, 0.2]), 2: np.array([0.0, 0.1, 0.8])}
    tokens = ["A", " red", " is"], ["A", " blue", " is"]
    found = PatchMap("stream", effects, tokens, (" hot", " cold"), (-2.0, 3.0), 0.01)
    said = "The logit of “␣cold” minus that of “␣hot” is −2.00 after the prompt, +3.00 after the other."
    view = patch_view(found, patch_rows(found))
    where = "residual stream before layer 0, at token 1 ␣red / ␣blue"
    assert plain_text(view.finding) == f"90% of the difference comes back by the {where}, the most of all. {said}"
    rows = view.parts[0].rows
    assert [row["place"] for row in rows[:3]] == ["0 A", "1 ␣red / ␣blue", "2 ␣is"] and len(rows) == 9
    effects = {0: np.array([0.1, -0.7]), 1: np.array([0.2, 0.0])}
    of_heads = PatchMap("heads", effects, tokens, (" hot", " cold"), (-2.0, 3.0), 0.01)
    assert (
        "−70% of the difference comes back by the output of L0H1" in patch_view(of_heads, patch_rows(of_heads)).finding
    )
    unclear = replace(found, differences=(2.0, 2.015))
    view = patch_view(unclear, patch_rows(unclear))
    assert view.notes == [unclear.unclear] and unclear.unclear and not view.parts
