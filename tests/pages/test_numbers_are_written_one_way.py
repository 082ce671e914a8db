"""Percentages, signs and magnitudes are written by `pages.ui.page.tables`, or by a chart's format without SI
prefixes."""

import ast
import math
import re
from pathlib import Path

import pytest

from pages.ui.page import tables
from pages.ui.paper_report import typeset

ROOT = Path(__file__).resolve().parents[2]
FORMATTER = ROOT / "pages/ui/page/tables.py"
MODULES = [ROOT / "app.py", *sorted((ROOT / "pages").rglob("*.py"))]
ONE = "use number, percent, level_percent or magnitude of pages/ui/page/tables.py"
SI = re.compile(r"(?:^|[|'])[+,]?(?:\.\d+)?(?:~[sg]|(?<=\d)[sg])(?:$|[;'])")  # in a chart: "500m", and "3.9e+3"
PRINTF = re.compile(r"^%[-+.\d]*[fg]$")  # of a column: it has no true minus
PYTHON = re.compile(r"^\{[^{}]*:[^{}]*[+%][^{}]*\}$")


def faults(source: str) -> list[tuple[int, str]]:
    """(line, what is wrong) of each number that a module writes by hand."""
    tree, found = ast.parse(source), []
    forms = {id(part) for node in ast.walk(tree) if isinstance(node, ast.FormattedValue) and node.format_spec
             for part in ast.walk(node.format_spec)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and id(node) not in forms:
            found += [(node.lineno, f"{what}: {ONE}") for what in _by_hand(node)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "replace":
            into = [each.value for each in node.args if isinstance(each, ast.Constant)]
            found += [(node.lineno, f"replaces {each!r}: {ONE}") for each in into if each in ("−", "%")]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in forms:
            if SI.search(node.value):
                found.append((node.lineno, f"{node.value!r} writes 0.5 as 500m or 3880 as 3.9e+3"))
            if PRINTF.search(node.value) or PYTHON.search(node.value):
                found.append((node.lineno, f"{node.value!r}: {ONE}"))
    return found


def _by_hand(text: ast.JoinedStr) -> list[str]:
    said = []
    for part, after in zip(text.values, [*text.values[1:], None], strict=True):
        if isinstance(part, ast.FormattedValue):
            form = ast.unparse(part.format_spec) if part.format_spec else ""
            behind = str(after.value) if isinstance(after, ast.Constant) else ""
            if "%" in form or "+" in form:
                said.append(f"the format {form}")
            if re.match(r"(\*\*)? ?%", behind):
                said.append(f"{ast.unparse(part)} and a percent sign")
    return said


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_screen_writes_a_percentage_or_a_sign_by_hand(path):
    if path != FORMATTER:
        assert faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    ['f"{share:.0%} of it"', 'f"{100 * share:.1f} %"', 'f"**{level / 10:g}%** of"', 'f"{change:+.2f} nats"',
     '"{:.1%}".format', 'text.replace("-", "−")', 'text.replace("%", " %")', 'column("Nats", format="%+.2f")',
     'alt.Axis(format="~s")', 'tips("part:Q|Part|.3~s")', "axis(\"format(x, '~s')\")", 'tips("a:Q|A|.3~g; b")'],
)  # fmt: skip
def test_each_way_of_doing_so_is_found(line):
    assert faults(line)


@pytest.mark.parametrize(
    "line",
    ['f"{percent(share)} of it"', '"top 30%"', 'f"{n:,} of 30%"', 'alt.Axis(format=".2~%")', '["cells", "s"]',
     'tips("low:Q|from|+.1f")', '"    print(f\\"{change:+.2f}\\")"'],
)  # fmt: skip
def test_nothing_else_is(line):
    assert not faults(line)


@pytest.mark.parametrize(
    "said, expected",
    [
        (tables.number(-2.449), "−2.45"), (tables.number(-0.001), "0.00"), (tables.number(0.5, 1, sign=True), "+0.5"),
        (tables.percent(-0.0156), "−1.6%"), (tables.whole_percent(0.75), "75%"), (tables.percent(math.nan), "–"),
        (tables.percents(0.361, 0.465), "36.1 to 46.5%"), (tables.percents(0.9, 0.5, 0, "→"), "90 → 50%"),
        (tables.level_percent(125), "12.5%"), (tables.level_percent(600), "60%"),
        (tables.magnitude(3880.4), "3,880"), (tables.magnitude(99.7), "100"), (tables.magnitude(-0.0123), "−0.012"),
        (tables.magnitude(12345.6, 6), "12345.6"), (tables.magnitude(math.nan), "–"), (tables.magnitude(0), "0"),
        (typeset("50% repeats, -0.4 nats, L2-L3, 3-5, 10^-3"), "50% repeats, −0.4 nats, L2-L3, 3-5, 10^−3"),
    ],
)  # fmt: skip
def test_the_one_formatter(said, expected):
    assert said == expected
