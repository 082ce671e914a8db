"""Full, pruned, random, chance and estimate have one color each, on every screen that draws them."""

import pandas as pd
import pytest

from pages.ui.comparison import criteria_charts
from pages.ui.continuation import charts as continuation
from pages.ui.figures import head_sets
from pages.ui.figures.colours import CONFIG, PLACES, palette, theme_of
from pages.ui.in_context import charts as in_context
from pages.ui.induction import charts as induction
from pages.ui.prune import charts as prune
from pages.ui.sweeps import charts as sweeps

NONE = pd.DataFrame(columns=["level", "acc", "low", "high", "n", "pruned"])
LINES = pd.DataFrame({"kind": ["mean", "random", "chance", "task", "front"], "line": "a"})
CURVES = pd.DataFrame({"line": ["Importance", "random", "chance"], "kind": "criterion"})
BARS = pd.DataFrame({"token": ["a"], "place": [0], "model": [continuation.FULL]})
INDEXED = pd.DataFrame({"series": [in_context.FULL], "mean": 3.0, "first": 1, "last": 9})
RETAINED = pd.DataFrame({"kind": ["chosen", "random"], "line": "a"})
SETS = pd.DataFrame({"size": [0, 1], "kind": [head_sets.RANDOM, head_sets.STRONGEST]})
RANKINGS = pd.DataFrame({"ranking": ["own ranking", "random rankings (mean)"]})
DRAWN = {
    "Prune": (prune.accuracy_curve(NONE, NONE, 0.9, 0.25, "Heads"), {
        "measured": "pruned", "full model": "full", "chance": "chance", "estimate": "estimate", "now": "now"}),
    "Continue": (continuation.next_bars(BARS, continuation.FULL), {"full model": "full", "pruned model": "pruned"}),
    "In context": (in_context.loss_curve(INDEXED), {in_context.FULL: "full", in_context.PRUNED: "pruned"}),
    "Sweeps": (sweeps.curves(LINES, "heads"), {"mean": "pruned", "random": "random", "chance": "chance"}),
    "Sweeps, lines": (sweeps.lines(RANKINGS), {"own ranking": "pruned", "random rankings (mean)": "random"}),
    "Criteria": (criteria_charts.curves(CURVES, "heads"), {"random": "random", "chance": "chance"}),
    "Induction": (induction.retained_chart(RETAINED, "copying"), {"chosen": "pruned", "random": "random"}),
    "Sets": (head_sets.chart(SETS, "Right", "%"), {head_sets.STRONGEST: "pruned", head_sets.RANDOM: "random"}),
}  # fmt: skip


def domains(part):
    """The domain of each color scale of names in a picture."""
    if isinstance(part, dict):
        found = part.get("color") if isinstance(part.get("color"), dict) else {}
        if found.get("type") == "nominal":
            yield found["scale"]["domain"]
        part = list(part.values())
    for each in part if isinstance(part, list) else []:
        yield from domains(each)


@pytest.mark.parametrize("screen", DRAWN)
def test_each_screen_has_the_colors_of_the_one_palette(screen):
    picture, shows = DRAWN[screen]
    found = [*domains(dict(picture.template))]
    assert found
    for domain in found:
        assert {name: PLACES[domain.index(name) % len(PLACES)] for name in shows} == shows
        own = {PLACES.index(place) for place in shows.values()}
        others = {at for at, name in enumerate(domain) if name.strip() and name not in shows}
        assert not {at % len(PLACES) for at in others} & own, "nothing else has these colors"


def test_the_palette_has_a_place_for_each_color_and_what_is_left_is_shared():
    assert all(len(theme_of(kind)["chartCategoricalColors"]) == len(PLACES) for kind in ("light", "dark")), CONFIG
    assert palette(full="a", chance="b") == [" ", "  ", "a", "    ", "     ", "      ", "       ", "b"]
    many = palette([f"line {at}" for at in range(9)], random="r", chance="c")
    assert many[6:9] == ["r", "c", "line 6"] and len(set(many)) == len(many) == 11
