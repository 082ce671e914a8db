"""Charts: frames in, specs out; scales never move with the data; a pruned component is marked by more than color."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import altair as alt
import numpy as np
import pandas as pd
import pytest

from engine.importance.scores import Scores
from engine.models.masks import Mask
from engine.shapes import ModelShape
from engine.views import colors, pictures
from engine.views.forms.maps import CROSS
from pages.ui.controls.coloring import LOST, Coloring
from pages.ui.figures import charts
from pages.ui.figures.empty import SKETCHES, SVG
from pages.ui.prune.charts import accuracy_curve
from pages.ui.prune.tables import component_frame, map_part


def points(*accuracies):
    return pd.DataFrame(
        [
            {"level": i / 10, "acc": acc, "low": acc - 0.05, "high": acc + 0.05, "n": 100, "pruned": f"{i} of 10"}
            for i, acc in enumerate(accuracies)
        ],
        columns=["level", "acc", "low", "high", "n", "pruned"],
    )


def components(scores, pruned=()):
    """The picture of the map of a score for each head of each layer, and of one for each FFN: of the first head."""
    by_head, kept = np.array(scores, float), np.ones(np.shape(scores), bool)
    for place in pruned:
        kept[place] = False
    (n_layers, n_heads), sizes = by_head.shape, (8, 2, 16, 64, 32)
    shape = ModelShape(n_layers, n_heads, n_heads, *sizes)
    found = [None if np.isnan(each).all() else Scores("heads", 4, each) for each in (by_head, by_head[:, 0])]
    coloring = Coloring(("Gradient", LOST), *found, measures=None)  # pyright: ignore[reportArgumentType]
    frame = component_frame(shape, coloring, Mask.from_arrays(kept, kept[:, 0]), {0})
    picture = map_part(frame, coloring.titles).picture()
    assert picture is not None
    return picture


AROUND = (
    pd.DataFrame([{"task": "piqa", "level": level / 10, "acc": 0.7} for level in range(3)]),
    pd.DataFrame([{"level": level / 10, "low": 0.3, "high": 0.5} for level in range(3)]),
)
CHARTS = {
    "curve": accuracy_curve(points(0.6, 0.5), points(0.5)[:1], 0.6, 0.25, "Heads pruned"),
    "curve without a point": accuracy_curve(points(), points(), None, 0.25, "Heads pruned"),
    "curve among others": accuracy_curve(points(0.6, 0.5), points(), 0.6, 0.25, "Heads pruned", around=AROUND),
    "map": components(np.eye(2, 3), {(0, 0)}),
    "map before any score": components(np.full((2, 3), np.nan), {(1, 2)}),
    "map of nothing but zeros": components(np.zeros((2, 3))),
    "map of 4,608 heads": components(np.ones((64, 72))),
}


def test_rows_in_the_chart_itself_are_refused():
    own = alt.Chart(alt.InlineData([{"zero": 0}])).mark_rule().encode(x="zero:Q")
    with pytest.raises(ValueError, match="name them"):
        charts.template(100, charts.named_chart("tasks").mark_point().encode(x="x:Q"), own)


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_can_be_saved_offline(name):
    drawing = pictures.to_svg(CHARTS[name], "A title")
    assert b"A title" in drawing and pictures.rasterized(drawing)[:8] == b"\x89PNG\r\n\x1a\n"


def channels(spec, name):
    """All encodings of one channel, in all layers."""
    if name in spec.get("encoding", {}):
        yield spec["encoding"][name]
    for layer in spec.get("layer", []):
        yield from channels(layer, name)


def test_the_axes_of_the_curve_do_not_move():
    low, high = (accuracy_curve(points(*acc), points(), acc[0], 0.5, "x").spec for acc in ([0.1], [0.9]))
    for name, domain in (("x", [0, 1]), ("y", [0, 1])):
        scales = [c["scale"] for spec in (low, high) for c in channels(spec, name) if "scale" in c]
        assert scales and all(scale == {"domain": domain} for scale in scales)


def test_what_stands_around_the_curve_is_named():
    drawn = pictures.to_svg(CHARTS["curve among others"], "t")
    assert b">piqa<" in drawn and b">random orders<" in drawn
    assert b">piqa<" not in pictures.to_svg(CHARTS["curve"], "t"), "a legend of nothing"
    many = AROUND[0].assign(task=["piqa", "copa", "wic"]), AROUND[1][:0]
    drawn = pictures.to_svg(accuracy_curve(points(0.6), points(), 0.6, 0.25, "x", around=many), "t")
    assert b">3 other tasks<" in drawn and b">random orders<" not in drawn


def test_the_line_goes_through_a_current_position_that_is_measured_in_full():
    known, now = points(0.9, 0.7), points(0.2).assign(level=0.05)
    for n, expected in ((known["n"].max(), [0.9, 0.2, 0.7]), (known["n"].max() - 1, [0.9, 0.7])):
        drawn = accuracy_curve(known, now.assign(n=n), 0.9, 0.25, "x").datasets
        assert [row["acc"] for row in drawn["through"]] == expected
        assert [row["acc"] for row in drawn["points"]] == [0.9, 0.7]


def guesses(*estimated):
    return pd.DataFrame([{"level": i / 10, "estimated": each, "low": each - 0.1, "high": each + 0.1, "trusted": "no"}
                         for i, each in enumerate(estimated)])  # fmt: skip


def layers_of(spec, **encoding):
    """The layers that encode these channels so."""
    return [layer for layer in spec["layer"]
            if all(layer["encoding"].get(name, {}).get("field") == of for name, of in encoding.items())]  # fmt: skip


def test_an_estimate_is_never_drawn_as_measured():
    dashed = guesses(0.6, 0.4, 0.3), guesses(0.4)
    spec = accuracy_curve(points(0.6, 0.5), points(0.5)[:1], 0.6, 0.25, "x", dashed).spec
    assert len(spec["datasets"]["points"]) == 2
    for name, rows in spec["datasets"].items():
        a_guess = name in ("estimates", "hand")
        assert all(
            (row["series"] == "estimate") == a_guess == ("estimated" in row) == ("acc" not in row) for row in rows
        )
    drawn = {layer["data"]["name"] for layer in layers_of(spec, y="acc")}
    assert drawn == {"points", "through", "now", "lines", "others"}, "what is called accuracy was measured"
    drawn = {layer["data"]["name"] for layer in layers_of(spec, y="estimated")}
    assert drawn == {"estimates", "hand"}
    [line] = [layer for layer in layers_of(spec, y="estimated") if layer["mark"]["type"] == "line"]
    dashes = line["encoding"]["strokeDash"]["scale"]
    assert dict(zip(dashes["domain"], dashes["range"], strict=True))["estimate"] != [1, 0]
    [hollow] = [layer for layer in layers_of(spec, y="estimated") if layer["mark"]["type"] == "point"]
    assert hollow["mark"]["filled"] is False


def test_a_chart_from_a_template_has_its_own_data():
    one, other = (accuracy_curve(points(acc), points(), acc, 0.25, "x") for acc in (0.6, 0.3))
    assert one.template is other.template
    assert one.spec["datasets"]["points"][0]["acc"] == 0.6
    assert other.spec["datasets"]["points"][0]["acc"] == 0.3


def test_a_moved_slider_leaves_the_colors_of_the_map_alone():
    specs = [components([[1.0, 4.0]], pruned).spec for pruned in (set(), {(0, 0), (0, 1)})]
    assert specs[0]["layer"][0]["encoding"]["color"] == specs[1]["layer"][0]["encoding"]["color"]


@pytest.mark.parametrize("name, pruned", [("map", 2), ("map before any score", 1)])
def test_pruned_is_a_cross_and_not_a_color(name, pruned):
    assert pictures.to_svg(CHARTS[name], "t").count(b'aria-roledescription="point"') in (0, 2 * pruned)
    crosses = [layer for layer in CHARTS[name].spec["layer"] if layer["mark"].get("shape") == CROSS]
    assert len(crosses) == 2
    assert all({"filter": "datum['pruned']"} in layer["transform"] for layer in crosses)


def test_colors_come_from_the_one_place():
    import tomllib

    theme = tomllib.loads(colors.CONFIG.read_text(encoding="utf-8"))["theme"]["light"]
    svg = pictures.to_svg(CHARTS["curve"], "t").decode().lower()
    assert theme["chartCategoricalColors"][0].lower() in svg


def test_no_color_is_set_anywhere_else():
    home = Path(colors.__file__)
    folders = home.parent, home.parents[2] / "pages"
    drawing = (path for folder in folders for path in folder.rglob("*.py") if path != home)
    assert not [path for path in drawing if re.search(r"#[0-9a-fA-F]{6}", path.read_text(encoding="utf-8"))]


def test_no_streamlit():
    code = "import pages.ui.figures.charts, sys; print('streamlit' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=colors.CONFIG.parents[1])
    assert done.stdout.strip() == "False", done.stderr


def test_a_line_breaks_off_where_no_estimate_is_shown():
    """A path of its own on each side, in a saved picture too."""
    dashed = guesses(0.6, 0.5, np.nan, 0.3, 0.2)
    whole, broken = (
        pictures.to_svg(accuracy_curve(points(), points(), 0.6, 0.25, "x", (frame, guesses())), "t").decode()
        for frame in (guesses(0.6, 0.5, 0.4, 0.3, 0.2), dashed)
    )
    (one,), (two,) = ([path for path in re.findall(r'd="(M[^"]*)"', svg) if svg_is_dashed(svg, path)]
                      for svg in (whole, broken))  # fmt: skip
    assert (one.count("M"), one.count("L")) == (1, 4) and (two.count("M"), two.count("L")) == (2, 2)


def svg_is_dashed(svg, path):
    """Whether this path is drawn in the dashes of estimates."""
    return re.search(rf'd="{re.escape(path)}"[^>]*stroke-dasharray="5,4"', svg) is not None


@pytest.mark.parametrize("name", SKETCHES)
def test_a_sketch_is_a_picture(name):
    assert ElementTree.fromstring(SVG.format(SKETCHES[name])).tag.endswith("svg")
