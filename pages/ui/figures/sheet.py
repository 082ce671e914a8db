"""What a screen shows and hands to its downloads: pictures and tables, added as they are drawn."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from engine.views.pictures import Picture
from engine.views.view import Part
from pages.ui.figures.drawing import draw_chart
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import to_csv

Table = pd.DataFrame | Callable[[], bytes]  # or what makes the bytes of a CSV file
Drawn = Picture | Callable[[], Picture]  # or what makes it


@dataclass
class Sheet:
    """A screen's pictures and tables by name, in the order in which they are drawn, and what it says, in Markdown."""

    pictures: dict[str, Drawn] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    says: list[str] = field(default_factory=list)

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

    def add_part(self, part: Part, name: str = "") -> Picture | None:
        """Returns the picture of a part, if it has one, and adds it under the part's title, or another `name`, with its
        table, which is made when it is asked for."""
        picture = part.picture()
        if picture is not None:
            self.pictures[name or part.title] = picture
        self.tables[name or part.title] = lambda: to_csv(part.frame())
        return picture
