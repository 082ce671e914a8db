"""The Induction screen: which heads match prefixes and copy, and how much of that remains after pruning."""

import time
from typing import Any

import numpy as np
import streamlit as st

from engine.heads.induction import SCORES, VARIANTS, induction
from engine.importance.rankings_of import INDUCTION_FROM
from engine.measurement import Measurement
from engine.models.masks import parse_mask
from engine.requests import ScoreInduction
from pages.ui.comparison.second import second_model, with_second
from pages.ui.controls import carried
from pages.ui.controls.controls import one_of, settings_popover, type_mask
from pages.ui.controls.sidebar import chosen, wait_for_model
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin, about, of_model
from pages.ui.figures import induction_scores
from pages.ui.figures.drawing import draw_chart
from pages.ui.figures.sheet import Sheet
from pages.ui.induction import charts, overlap
from pages.ui.induction.closely import draw_closely
from pages.ui.induction.second_model import FirstInduction
from pages.ui.induction.second_model import draw as draw_second
from pages.ui.induction.selection import chart_with_heads, head_table, selected_heads, send_to_prune
from pages.ui.induction.tables import corner, corner_in_words, finding, head_scores, in_words
from pages.ui.page.address import number_field
from pages.ui.page.marks import mark
from pages.ui.page.presentation import presenting
from pages.ui.page.runtime import errors_shown, require_frame, session
from pages.ui.page.work import Work

require_frame("pages/induction.py")
ABOUT = """
An **induction head** completes patterns. When a token comes up again, it looks at what followed it the last time
(*prefix matching*) and raises the probability of just that (*copying*):

`the` `red` `fox` `ran` … `the` `red` → looks at **`fox`**, and says **fox**

It needs a partner in an earlier layer, a *previous-token head*, which writes into each position what stood before it.
Each score here is measured on random tokens, where nothing but the repetition can help (Olsson: 10 examples of 25
tokens, 4 times over; Bansal: lengths 25 to 223). The weights' own scores, OV eigenvalues and QK trace, need no input.

[Olsson et al. 2022](https://transformer-circuits.pub/2022/in-context-learning-and-induction-heads/index.html)
found such heads; [Bansal et al. 2022](https://arxiv.org/abs/2212.09095) asked how many of them importance keeps.
Where our numbers differ from the latter's code: the position after the beginning token does not count as a repeat, and
(Olsson's variant) copying is measured on the real residual stream, not on embeddings fed to every layer.
"""

setup = chosen()
finding_at, row = st.container(), st.container(horizontal=True, vertical_alignment="center")
settings_at = settings_popover(row)
help = "Olsson: 10 examples. Bansal: llm-interpret's, 100 lengths and much slower."
named = {each: each.capitalize() for each in VARIANTS}
variant = one_of(settings_at, "Variant", named, "induction_variant", help, default="olsson")
seed = number_field(settings_at, "Seed", (0, 9999), "induction_seed", value=0, help="Of the random tokens.")
typed = type_mask("induction", settings_at)
if not presenting():
    with row.popover("About induction heads", icon=":material/help:"):
        st.markdown(ABOUT)
        words = "From each second copy of four tokens, an ideal induction head looks at what followed the first copy"
        draw_chart(charts.example_pattern(), "induction_example", words)

target = wait_for_model(setup)
with errors_shown():
    mask = parse_mask(typed, target.shape)
with row:
    carried.hand_on("induction", target.shape, mask, st.container(width="content"))
    if not mask.is_full:
        st.caption("All scores are the full model's; a cross marks a head that is pruned.")
since_s = time.monotonic()
scores = induction(target, variant, seed)
found = scores.stored(session())
if found is None:
    found = Work("induction", "Induction scores", scores, while_seen=True).required()
if found.note:
    st.info(found.note[0].upper() + found.note[1:] + ".", icon=":material/info:")
names = selected_heads(target.shape)
frame = head_scores(target.shape, found, names).assign(pruned=~np.array(mask.heads).ravel())

sheet = Sheet(tables={"Induction scores": frame})
finding_at.markdown(finding(frame))
scatter_at, table_at = st.columns([5, 6], gap="large")
with scatter_at:
    help = (
        "One dot per head, colored by layer. Top right: heads that match prefixes and copy. The induction corner "
        "begins where the heads of this model separate into two groups (Otsu 1979), at a prefix matching of "
        f"{INDUCTION_FROM} or more."
    )
    st.subheader("Induction heads: matching × copying", help=help)
    drawn = charts.induction_scatter(frame, corner(frame))
    chart_with_heads("scatter", "Prefix matching and copying", drawn, corner_in_words(frame), sheet)
    st.caption(corner_in_words(frame))
    mark("corner", "drawn" if frame["in_corner"].any() else "none", heads=int(frame["in_corner"].sum()))
with table_at:
    st.subheader("Heads", help="A head selected in a row, dot or cell is selected everywhere on this screen.")
    head_table(frame)
    send_to_prune(target.shape, names)
for scores_in_row in (SCORES[:3], SCORES[3:]):
    for score, at in zip(scores_in_row, st.columns(3, gap="medium"), strict=True):
        with at:
            title = charts.TITLES[score]
            st.subheader(title, help=charts.HELP[score])
            chart_with_heads(f"map {score}", title, charts.score_map(frame, score), in_words(frame, score), sheet)
            st.caption(induction_scores.ABOUT[score])

sheet.says = [finding(frame), *(in_words(frame, each) for each in SCORES), corner_in_words(frame)]
compared, second = dict[str, Measurement[Any]](), second_model(setup)
if second is not None:
    compared = draw_second(FirstInduction(target, variant, seed, found, frame), second, sheet)
if not presenting():  # a slide is one screen, and these are below it
    draw_closely(frame, sheet)
    overlap.draw(setup, target, found, frame, since_s, sheet)
request = ScoreInduction(**of_model(target.as_usual), variant=variant, seed=int(seed), out="induction.csv")
measurements = {"Scores": scores, "Importance": overlap.importance_of(setup, target)}
n = f"{found.n['prefix_matching']} examples"
of = about(target, f"random tokens, {variant.capitalize()}, seed {seed}", n, "nothing pruned")
origin = Origin("Induction", [request], measurements, of)
closing(with_second(origin, None if second is None else second.as_usual, compared), sheet)
