"""Under the attention view: the chosen heads' whole pattern as a picture, a table and files, and the command."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import streamlit as st

from engine.heads.attention import HeadView, Overview, head_views, overview
from engine.models.masks import Mask, parse_heads
from engine.models.session import Target
from engine.requests import MeasureAttention, MeasureLens, Request
from pages.ui.attention.charts import pattern_map, raised_text
from pages.ui.attention.lens import draw_lens
from pages.ui.attention.tables import in_words, map_cells, pattern_rows
from pages.ui.controls.texts import Chosen
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin, about, of_model
from pages.ui.figures.drawing import draw_chart, draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.page.tables import to_csv

N_LISTED = 200


def draw_details(
    target: Target, text: Chosen, mask: Mask, seen: Overview, view: HeadView, names: Sequence[str]
) -> None:
    """Draws all of that; picture and table are made when opened."""
    whole = st.expander("The whole pattern, as a picture and a table", key="attention_whole", on_change="rerun")
    if whole.open:
        map_at, table_at = whole.columns(2, gap="large")
        words = in_words(seen, view, names)
        draw_chart(pattern_map(map_cells(seen, view)), "attention_map", words, map_at)
        map_at.caption(words)
        largest = pattern_rows(seen, view).nlargest(N_LISTED, "attention")
        number = partial(st.column_config.NumberColumn, format="%d")
        help = "Added to the logit of the token after the one it looks from."
        columns = {
            "destination": number("From"),
            "destination_token": st.column_config.TextColumn("token"),
            "source": number("Looks at"),
            "source_token": st.column_config.TextColumn("token "),
            "attention": number("Attention"),
            "raised_nats": number("Nats", help=help),
        }
        draw_table(largest, columns, f"The {N_LISTED} largest weights", table_at, height=430)
    sheet = Sheet(says=[in_words(seen, view, names)])
    lens = draw_lens(target, text, mask, sheet)
    asked = {**of_model(target), **text.named}
    request = MeasureAttention(**asked, mask=mask.text(), heads=",".join(names), out="attention.csv")
    what, heads = (target, text.text, mask), parse_heads(",".join(names), target.shape)
    measurements: dict[str, Any] = {"Text": overview(*what), "Heads": head_views(*what, heads)}
    requests: list[Request] = [request]
    if lens:
        measurements |= lens
        requests.append(MeasureLens(**asked, mask=mask.text(), out="lens.csv"))
    lacks = "nothing pruned" if mask.is_full else f"pruned: {mask.text()}"
    of = about(target, f"{text.name}, {len(seen.pieces):,} tokens", ", ".join(names), lacks)
    sheet.pictures["Attention pattern"] = lambda: pattern_map(map_cells(seen, view))
    sheet.pictures["Text"] = partial(raised_text, seen, view)
    sheet.tables["Attention"] = lambda: to_csv(pattern_rows(seen, view))
    closing(Origin("Attention", requests, measurements, of, f"{text.name}, {', '.join(names)}"), sheet)
