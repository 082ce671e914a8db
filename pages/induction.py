"""The Induction screen: which heads match prefixes and copy, and how much of that pruning leaves."""

import time
from functools import partial

import streamlit as st

from engine.heads.induction import SCORES, VARIANTS, induction, recall_induction
from pages.ui.induction import charts as head_charts
from pages.ui.induction import overlap
from pages.ui.induction import tables as head_frames
from pages.ui.induction.selection import chart_with_heads, head_table, selected_heads, send_to_prune
from pages.ui.prune.figure import downloads
from pages.ui.prune.tables import to_csv
from pages.ui.shared.closing import command_line
from pages.ui.shared.runtime import jobs, models, require_frame, store
from pages.ui.shared.sidebar import chosen, identity, identity_slot
from pages.ui.shared.work import AT_ONCE_S, wait_for

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
variant_at, seed_at, about_at = st.columns([4, 2, 5], vertical_alignment="bottom")
variant = variant_at.segmented_control(
    "Variant", VARIANTS, default="olsson", key="induction_variant", bind="query-params", required=True,
    format_func=str.capitalize, help="Olsson: 10 examples. Bansal: llm-interpret's, 100 lengths and much slower.",
)  # fmt: skip
seed = seed_at.number_input("Seed", 0, 9999, 0, key="induction_seed", bind="query-params", help="Of the random tokens.")
with about_at.popover("What am I looking at?", icon=":material/help:", help="What the scores mean."):
    st.markdown(ABOUT)
    words = "From each second copy of four tokens, an ideal induction head looks at what followed the first copy"
    st.altair_chart(head_charts.example_pattern(), key="induction_example", alt=words)

identity(setup.spec)
model = wait_for(identity_slot(setup.spec), "Reading the model's files", partial(identity, setup.spec, again=True))
since_s = time.monotonic()
key = f"{setup.spec} {model.digest} {variant} {seed}"
found = recall_induction(model, setup.spec, variant, seed, store())
if found is None:
    measure = partial(jobs().submit, "induction", key, partial(induction, models(), setup.spec, variant, seed, store()))
    measure()
    jobs().join("induction", AT_ONCE_S)
    found = wait_for("induction", "Induction scores", partial(measure, again=True))
if found.note:
    st.info(found.note[0].upper() + found.note[1:] + ".", icon=":material/info:")
names = selected_heads(model.shape)
frame = head_frames.head_scores(model.shape, found, names)

pictures = {}
for row in (SCORES[:3], SCORES[3:]):
    for score, at in zip(row, st.columns(3, gap="medium"), strict=True):
        with at:
            title = head_charts.TITLES[score]
            st.subheader(title, help=head_charts.HELP[score])
            pictures[title] = head_charts.score_map(frame, score)
            chart_with_heads(f"map {score}", pictures[title], head_frames.in_words(frame, score))

scatter_at, table_at = st.columns([5, 6], gap="large")
with scatter_at:
    st.subheader(
        "Who does both", help="One point a head, coloured by layer. Up and right: matches prefixes and copies."
    )
    pictures["Prefix matching and copying"] = head_charts.induction_scatter(frame)
    chart_with_heads("scatter", pictures["Prefix matching and copying"], head_frames.corner_in_words(frame))
with table_at:
    st.subheader("Heads", help="Select rows, points or cells: they are the same heads everywhere on this screen.")
    head_table(frame)
    send_to_prune(model.shape, names)

score = st.segmented_control(
    "One score, closely", SCORES, format_func=head_charts.TITLES.get, default="prefix_matching", key="induction_score",
    required=True, help="For the two charts below and for what is left after pruning.",
)  # fmt: skip
depth_at, many_at = st.columns(2, gap="large")
pictures["By depth"] = head_charts.depth_strip(frame, score)
pictures["Distribution"] = head_charts.distribution(frame, score)
with depth_at:
    st.subheader("Where they are", help="The line is the mean of each layer.")
    chart_with_heads("depth", pictures["By depth"], head_frames.in_words(frame, score))
with many_at:
    st.subheader("How many there are", help="Heads by score.")
    st.altair_chart(pictures["Distribution"], key="induction_distribution", alt=head_frames.in_words(frame, score))
overlap_pictures, overlap_tables = overlap.draw(setup, model, found, frame, since_s)
words = ["--variant", variant, "--seed", seed, "--out", "induction.csv"]
st.code(command_line("induction", setup.spec, None, None, words), language="shell", wrap_lines=True)
downloads({"Induction scores": partial(to_csv, frame)} | overlap_tables, pictures | overlap_pictures)
