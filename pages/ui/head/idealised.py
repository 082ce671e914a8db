"""The head with an ideal pattern instead of its real one: how much of its effect remains."""

import altair as alt
import pandas as pd
import streamlit as st

from engine.accuracy.evaluation import accuracy
from engine.heads.idealised import SIDES
from engine.studies.portrait import Portrait
from engine.studies.surveys import in_words
from engine.views.colors import GREY
from pages.ui.figures import charts
from pages.ui.figures.sheet import Sheet
from pages.ui.head.measuring import Known, draw_missing
from pages.ui.page.tables import better_or_worse, whole_percent

NAME = "With an ideal pattern"
HELP = (
    "Queries and keys are ignored, and the head looks exactly where its name says; its values and its "
    "output are unchanged (Scherlis in Olsson et al.). *Brought back*: of what ablating the head adds to the loss, the "
    "share that the pattern keeps away; 0% = no better than without the head, over 100% = better than its own pattern. "
    "*After copies*: what followed earlier copies of the token. "
    "95% bootstrap intervals over stretches of 32 tokens, or over questions. *Nats*: what ablating it "
    "adds, a token in the built-in texts, of the right answer in tasks. "
    "*Right*: accuracy of the full model, with the head ablated, and with the ideal pattern."
)
TITLES = {"previous": "Token before", "prefix": "After copies", "uniform": "All alike"}
LOOKS = {"Token before": "only at the token before", "After copies": "only at what followed earlier copies",
         "All alike": "at all tokens alike"}  # fmt: skip
TEXTS = "Built-in texts"
ENDS = -0.5, 1.25  # of the chart; points beyond are drawn at its edge


def section(known: Known, sheet: Sheet) -> None:
    """Draws the section."""
    st.markdown("**Could a simple pattern replace its own?**", help=HELP)
    frame = rows(known.found)
    sheet.add(NAME, frame)
    draw_missing(known, "ideal-texts", *(["ideal-tasks"] if known.asked.tasks else []))
    if not len(frame):
        return
    st.markdown(in_short(frame))
    clear = frame[frame["share"].notna()]
    if len(clear):
        sheet.draw(NAME, recovered(clear), "head idealised", in_short(frame))


def rows(found: Portrait) -> pd.DataFrame:
    """Returns one row for the texts and each task, and each pattern: effect in nats with its interval, share recovered
    with its interval (nan without a clear effect), and in tasks the accuracies, all from 0 to 1."""
    listed = []
    for task, kinds in found.recovered.items():
        answers = None if task is None else found.ideal_answers[task]
        right = {side: float("nan") if answers is None else accuracy(answers[side]).acc for side in SIDES}
        for kind, each in kinds.items():
            listed.append({
                "where": TEXTS if task is None else in_words(task), "pattern": TITLES[kind],
                "effect_nats": each.effect_nats, "effect_low": each.effect_low, "effect_high": each.effect_high,
                "share": each.share, "low": each.low, "high": each.high, "n": each.n, "n_scored": each.n_scored,
                "acc_full": right["full"], "acc_ablated": right["ablated"], "acc_ideal": right[kind],
            })  # fmt: skip
    return pd.DataFrame(listed)


def in_short(frame: pd.DataFrame) -> str:
    """Describes what the patterns recover, place by place, the best one first."""
    said = []
    for where, group in frame.groupby("where", sort=False):
        if where == TEXTS:
            where = f"{TEXTS} ({group['n_scored'].iloc[0]:,} tokens)"
        effect = f"{better_or_worse(float(group['effect_nats'].iloc[0]), 'nats')} without it"
        known = group[group["share"].notna()].sort_values("share", ascending=False)
        if known.empty:
            said.append(f"{where}: {effect}, so there is nothing to recover.")
            continue
        best = known.iloc[0]
        ends = f"95% interval {whole_percent(best['low'])} to {whole_percent(best['high'])}"
        back = f"looking {LOOKS[best['pattern']]} brings **{whole_percent(best['share'])}** of that back"
        said.append(f"{where}: {effect}; {back} ({ends}).")
    return " ".join(said)


def recovered(frame: pd.DataFrame) -> charts.Picture:
    """Returns `rows` with a share: one line per place and pattern, from no better than ablated to all of the effect."""
    low, high = ENDS
    shown = frame.assign(
        **{name: frame[name].clip(low, high) for name in ("low", "high")}, at=frame["share"].clip(*ENDS),
        words=[whole_percent(share) if low < share < high else "" for share in frame["share"]],
    )  # fmt: skip
    ends = pd.DataFrame({"at": [0, 1], "words": ["nothing", "all"]})
    return charts.picture(_recovered(tuple(frame["where"].unique())), rows=shown, ends=ends)


@charts.kept
def _recovered(places: tuple[str, ...]) -> charts.Template:
    axis = alt.Axis(title=None, labelLimit=220, ticks=False, domain=False, grid=False)
    y = alt.Y("pattern:N", sort=list(TITLES.values()), axis=axis)
    offset = alt.YOffset("where:N", sort=list(places))
    x = alt.X("at:Q", title="Of its effect brought back (95%)", scale=alt.Scale(domain=list(ENDS), nice=False),
              axis=alt.Axis(format="%", values=[-0.5, 0, 0.5, 1]))  # fmt: skip
    legend = alt.Legend(title=None, orient="top") if len(places) > 1 else None
    colour = alt.Color("where:N", sort=list(places), legend=legend)
    tooltip = charts.tips(
        "where:N|Where; pattern:N|Pattern; share:Q|Brought back|.1%; effect_nats:Q|Effect, nats|+.3f",
        "acc_full:Q|Right|.1%; acc_ablated:Q|without it|.1%; acc_ideal:Q|with the pattern|.1%",
    )
    base = charts.named_chart("rows").encode(y=y, yOffset=offset, tooltip=tooltip)
    edges = charts.named_chart("ends")
    lines = edges.mark_rule(color=GREY, strokeDash=[4, 3]).encode(x="at:Q")
    named = charts.written(edges, 11, baseline="bottom", dy=-2).encode(x="at:Q", y=alt.value(0), text="words:N")
    bar = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", color=colour)
    point = base.mark_point(filled=True, size=100, opacity=1).encode(x=x, color=colour)
    shares = charts.written(base, 12, baseline="bottom", dy=-7).encode(x=x, text="words:N")
    return charts.template(3 * (26 + 20 * len(places)) + charts.AXIS_PX + 30, lines, named, bar, point, shares)
