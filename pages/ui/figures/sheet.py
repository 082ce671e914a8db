"""What a screen shows and hands to its downloads: pictures and tables, added as they are drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from engine.views.pictures import Picture
from engine.views.view import Part, View, plain_text
from pages.ui.figures.drawing import draw_chart
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import to_csv

Table = pd.DataFrame | Callable[[], bytes]  # or what makes the bytes of a CSV file
Drawn = Picture | Callable[[], Picture]  # or what makes it
N_ON_SLIDE = 2  # pictures on the slide of a whole screen


@dataclass
class Sheet:
    """A screen's pictures and tables by name, in the order in which they are drawn, and what it says, in Markdown.

    `parts`: the parts of views among them
    `views`: the pictures that the slide of each section shows, by its finding
    """

    pictures: dict[str, Drawn] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    says: list[str] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    views: dict[str, Sequence[str]] = field(default_factory=dict)

    def draw(
        self, name: str, picture: Picture, key: str, words: str, at: DeltaGenerator | None = None, **selection: Any
    ) -> None:
        """Draws a picture as `draw_chart` does, and adds it."""
        self.pictures[name] = picture
        draw_chart(picture, key, words, at, **selection)

    def picture(self, name: str) -> Picture:
        """Returns one of the pictures."""
        drawn = self.pictures[name]
        return drawn if isinstance(drawn, Picture) else drawn()

    def table(self, name: str) -> bytes:
        """Returns one of the tables as a CSV file."""
        found = self.tables[name]
        return to_csv(found) if isinstance(found, pd.DataFrame) else found()

    def rows(self, n_rows: int, n_columns: int) -> tuple[tuple[str, ...], ...]:
        """Returns the titles and first rows of the table of the first part; nothing without any."""
        part = next(iter(self.parts.values()), Part(""))
        columns = dict(list(part.shown.items())[:n_columns])
        rows = [tuple(each.text(row.get(name)) for name, each in columns.items()) for row in part.first(n_rows)]
        return (tuple(each.title for each in columns.values()), *rows) if rows else ()

    def add_part(self, part: Part, name: str = "") -> Picture | None:
        """Returns the picture of a part, if it has one, and adds it under the part's title, or another `name`, with its
        table, which is made when it is asked for."""
        picture, self.parts[name or part.title] = part.picture(), part
        if picture is not None:
            self.pictures[name or part.title] = picture
        self.tables[name or part.title] = lambda: to_csv(part.frame())
        return picture

    def add_unseen(self, name: str, make: Callable[[], Part]) -> None:
        """Adds a part that the screen draws in another way: its picture and its table are made when they are asked
        for."""

        def picture() -> Picture:
            found = make().picture()
            assert found is not None
            return found

        self.pictures[name] = picture
        self.tables[name] = lambda: to_csv(make().frame())

    def add_view(self, view: View) -> None:
        """Adds the finding of a view, whose first parts are a slide."""
        self.says.append(view.finding)
        self.views[view.finding] = [part.title for part in view.parts[: view.on_slide]]

    def findings(self, otherwise: str) -> dict[str, list[str]]:
        """Returns by its title what can be a slide, with the pictures on it: the screen, whose title is its first
        finding, or `otherwise` if it says nothing, and each of its sections."""
        first, *_ = self.says or [otherwise]
        found = {first: [*self.pictures][:N_ON_SLIDE], **self.views}
        return {plain_text(each): [name for name in names if name in self.pictures] for each, names in found.items()}
