"""A result as it is presented: a finding, and parts with their rows, columns, and chart."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.views.pictures import Picture

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]
BREAKS = str.maketrans({"\n": "↵", "\r": "↵", "\t": "⇥"})
MOST_ROWS, MOST_RANKED = 24, 12  # of a table in a terminal; of one by rank
MAGNITUDE = ".3g"  # the format of numbers of any size, such as scores


@dataclass(frozen=True)
class Column:
    """How a column is shown: on screen, in HTML, in a terminal, and on an axis.

    `title`: what it is, with its unit
    `format`: how its numbers are written, as Python and d3 name it, such as ".1%" or "+.2f"
    `help`: what it means
    """

    title: str
    format: str = ""
    help: str = ""

    def text(self, value: Any) -> str:
        """A value of the column as text in one line: a dash for a number that is undefined, or for None."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return "–"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, str):
            return value.translate(BREAKS)
        return format(value, self.format) if self.format else str(value)


def interval(form: str, prefix: str = "") -> dict[str, Column]:
    """The columns of the ends of a 95% interval, the fields `low` and `high` behind a prefix."""
    return {f"{prefix}low": Column("95% from", form), f"{prefix}high": Column("to", form)}


@dataclass(frozen=True)
class Part:
    """One figure or table of a view.

    `title`: what it shows
    `rows`: its data: what the chart draws, and what a file holds
    `columns`: the columns of its table, in order; a field without one is in the file alone (none: all fields)
    `draw`: makes its chart
    `caption`: one sentence, also for screen readers
    `ranked_by`: the column by which a table that is cut is sorted, highest first
    `width`: its share of a line that it stands in with the parts next to it; 1: the whole line
    """

    title: str
    rows: Sequence[Row] = ()
    columns: Mapping[str, Column] = field(default_factory=dict)
    draw: Callable[[Part], Picture] | None = None
    caption: str = ""
    ranked_by: str = ""
    width: float = 1.0

    @property
    def shown(self) -> Mapping[str, Column]:
        """The columns of its table."""
        if self.columns or not self.rows:
            return self.columns
        return {name: self.column(name) for name in self.rows[0]}

    def column(self, name: str) -> Column:
        """How a field is shown; one without a column has its own name as the title."""
        return self.columns.get(name) or Column(name.replace("_", " "))

    def first(self, n: int) -> Sequence[Row]:
        """Its first `n` rows, or the highest ones of a ranked part."""
        if not self.ranked_by:
            return self.rows[:n]

        def rank(row: Row) -> float:
            value = row[self.ranked_by]
            return math.inf if value is None or math.isnan(value) else -value

        return sorted(self.rows, key=rank)[:n]

    def frame(self) -> pd.DataFrame:
        """Its rows as a table, with all fields."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    def picture(self) -> Picture | None:
        """Its chart; None without one."""
        return self.draw(self) if self.draw is not None and self.rows else None


@dataclass(frozen=True)
class View:
    """A result as it is presented.

    `finding`: what it says, one sentence of Markdown ("": only the notes say something)
    `parts`: its figures and tables, the most telling one first
    `notes`: what could not be measured, and what limits the numbers, a sentence each, as plain text
    `on_slide`: how many of the parts a slide shows
    """

    finding: str
    parts: Sequence[Part] = ()
    notes: Sequence[str] = ()
    on_slide: int = 1


def text_view(lines: str) -> View:
    """A view of lines that are shown as they are, of a result without a finding in Markdown."""
    return View("", notes=(lines,))


def as_text(view: View) -> str:
    """The view as the lines of a terminal: the finding, the notes, and between them a table for the first part and for
    each without a chart; further charts have no table there."""
    with_rows = [part for part in view.parts if part.rows]
    shown = [part for part in with_rows if part is with_rows[0] or part.draw is None]
    tables = [each for part in shown for each in ("", f"{part.title}:", *_table(part))]
    finding = [plain_text(view.finding)] if view.finding else []
    return "\n".join([*finding, *tables, *([""] if tables and view.notes else []), *view.notes])


def plain_text(markdown: str) -> str:
    """Markdown without its marks."""
    return re.sub(r"\\([\\`*{}\[\]()#!|<>$~&^:_+.=-])", r"\1", markdown.replace("**", "").replace("  \n", "\n"))


def _table(part: Part) -> list[str]:
    """The rows as lines: numbers to the right, words to the left, with the titles above."""
    columns, rows = part.shown, part.first(MOST_RANKED if part.ranked_by else MOST_ROWS)
    cells = [[each.text(row.get(name)) for name, each in columns.items()] for row in rows]
    widths = [max(map(len, column)) for column in zip([each.title for each in columns.values()], *cells, strict=True)]
    are_words = [any(isinstance(row.get(name), str) for row in rows) for name in columns]
    lines = [
        "  ".join(
            cell.ljust(width) if is_words else cell.rjust(width)
            for cell, width, is_words in zip(line, widths, are_words, strict=True)
        ).rstrip()
        for line in ([each.title for each in columns.values()], *cells)
    ]
    n_more = len(part.rows) - len(rows)
    return [*lines, f"and {n_more:,} more rows; --json or --out has all of them"] if n_more else lines
