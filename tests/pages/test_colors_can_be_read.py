"""What is drawn in the palette's colors can be told from what it stands on, in the light theme and in the dark (WCAG 2
AA): text has a contrast of 4.5, marks of 3. Full, pruned, random, chance and estimate have one color each, on every
screen that draws them."""

import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from engine.heads.induction import InductionScores
from engine.views import colors
from engine.views.colors import PLACES, palette
from engine.views.forms import kit
from engine.views.induction import RANDOM, capacity_view
from engine.views.texts import SERIES, by_index_part
from engine.views.view import Part
from pages.ui.figures import charts
from pages.ui.prune import charts as prune

ROOT = Path(__file__).resolve().parents[2]
TEXT, MARKS = 4.5, 3.0
QUIET = 0.6  # of the text's ink is in Streamlit's captions
CONFIG = tomllib.loads(colors.CONFIG.read_text(encoding="utf-8"))["theme"]
THEMES = {name: CONFIG[name] for name in ("light", "dark")}


def rgb(color: str) -> tuple[float, ...]:
    return tuple(int(color.lstrip("#")[at : at + 2], 16) / 255 for at in (0, 2, 4))


def mixed(share: float, above: str, below: str) -> str:
    pairs = zip(rgb(above), rgb(below), strict=True)
    return "#" + "".join(f"{round(255 * (share * a + (1 - share) * b)):02x}" for a, b in pairs)


def luminance(color: str) -> float:
    """Relative luminance as WCAG 2 has it."""
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in rgb(color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_the_measure_is_that_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21) and contrast("#123456", "#123456") == 1
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005), "the well-known gray that just fails"


@pytest.mark.parametrize("name", THEMES)
def test_text_and_what_is_said_quietly_can_be_read(name):
    theme = THEMES[name]
    for ground in (theme["backgroundColor"], theme["secondaryBackgroundColor"], theme["sidebar"]["backgroundColor"]):
        assert contrast(theme["textColor"], ground) >= 7
        assert contrast(mixed(QUIET, theme["textColor"], ground), ground) >= TEXT
        chosen = mixed(0.1, theme["primaryColor"], ground)  # an option that is chosen: the color on a tint of itself
        assert contrast(theme["primaryColor"], chosen) >= TEXT


@pytest.mark.parametrize("name", THEMES)
def test_marks_and_lines_can_be_seen(name):
    theme = THEMES[name]
    alike = (colors.GREY, colors.MARK, *colors.LAYERS)
    between = [mixed(0.5, a, b) for a, b in zip(colors.LAYERS, colors.LAYERS[1:], strict=False)]
    for color in (*theme["chartCategoricalColors"], *alike, *between):
        assert contrast(color, theme["backgroundColor"]) >= MARKS, color


@pytest.mark.parametrize("name", THEMES)
def test_scales_begin_at_the_ground_and_end_far_from_it(name):
    theme, ground = THEMES[name], THEMES[name]["backgroundColor"]
    diverging = theme["chartDivergingColors"]
    for ramp in (theme["chartSequentialColors"], diverging[4::-1], diverging[5:]):
        steps = [contrast(color, ground) for color in ramp]
        assert steps == sorted(steps), "more is farther from the ground, in either theme"
        assert steps[0] < 1.6 and steps[-1] >= 6


@pytest.mark.parametrize("name", THEMES)
def test_numbers_on_cells_can_be_read(name):
    assert charts.INK.to_dict()["scale"]["domain"][-1] == "ink" and len(THEMES[name]["chartCategoricalColors"]) == 8
    for ramp in (THEMES[name]["chartDivergingColors"], THEMES[name]["chartSequentialColors"]):
        for a, b in zip(ramp, ramp[1:], strict=False):
            for share in (0.0, 0.25, 0.5, 0.75, 1.0):
                cell = mixed(share, a, b)
                assert max(contrast(cell, "#000000"), contrast(cell, "#ffffff")) >= TEXT, cell


def test_a_cross_has_an_edge_and_the_report_its_words():
    assert contrast(colors.DARK, colors.LIGHT) >= 7
    for color in (colors.QUIET, colors.YES, colors.NO):
        assert contrast(color, THEMES["light"]["backgroundColor"]) >= TEXT


NONE = pd.DataFrame(columns=["level", "acc", "low", "high", "n", "pruned"])
CURVES = Part("Curves", [{"curve": name, "level": 0.5, "acc": 0.5} for name in ("piqa", "mean", "random")])
INDEXED = by_index_part({name: [np.ones(600)] * 3 for name in SERIES.values()}, True)
MATCHING = {"prefix_matching": np.eye(2), "copying": np.eye(2)}
RETAINED = capacity_view(InductionScores(MATCHING, {}, {}), {"piqa": np.eye(2)}, "piqa").parts[0]
DRAWN = {
    "Prune": (prune.accuracy_curve(NONE, NONE, 0.9, 0.25, "Heads"), {
        "measured": "pruned", "full model": "full", "chance": "chance", "estimate": "estimate", "now": "now"}),
    "Text": (INDEXED.picture(), {"full model": "full", "pruned model": "now"}),
    "Study": (kit.curves(CURVES, "level", "acc", "curve", roles={"pruned": "mean", "random": "random"}), {
        "mean": "pruned", "random": "random"}),
    "Heads": (RETAINED.picture(), {RANDOM: "random"}),
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
    assert all(len(colors.theme_of(kind)["chartCategoricalColors"]) == len(PLACES) for kind in THEMES)
    assert palette(full="a", chance="b") == [" ", "  ", "a", "    ", "     ", "      ", "       ", "b"]
    many = palette([f"line {at}" for at in range(9)], random="r", chance="c")
    assert many[6:9] == ["r", "c", "line 6"] and len(set(many)) == len(many) == 11
