"""The Importance screen: which heads and FFNs a model needs, for every task and shot count."""

import time
from dataclasses import replace
from functools import partial

import streamlit as st

from engine.importance.rankings import AGGREGATES, agreement
from engine.studies.surveys import Survey, in_words, together
from pages.ui.importance import charts
from pages.ui.prune.experiment import RANKING_QUESTIONS as N
from pages.ui.prune.figure import downloads
from pages.ui.prune.tables import to_csv
from pages.ui.shared.closing import command_line
from pages.ui.shared.many_tasks import choose_tasks, importance_so_far, setting_of, show_failed, survey_line
from pages.ui.shared.runtime import require_frame
from pages.ui.shared.sidebar import chosen, identity, identity_slot
from pages.ui.shared.work import live, unfinished_line, wait_for, watched

require_frame("pages/importance.py")
ORACLE, ORACLE_HEADS = "heads-oracle", 200  # up to so many: it takes one evaluation of all questions a head
SHORT = {"heads": "Gradient", "gate": "Gate", ORACLE: "Oracle"}
SCALES = {"own": "each its own", "common": "one for all"}
MEANS = {"scores": "of scores", "ranks": "of ranks"}
KINDS = {"heads": "Heads", "ffns": "FFNs"}


def agreement_lines(three, missing):
    """Progress of the comparison with the oracle, or the button that starts it."""
    busy = [unfinished_line(f"agreement {by}", three[by][1], charts.TITLES[by], three[by][2]) for by in missing]
    if missing and not any(busy) and st.button("Compare with the oracle", icon=":material/balance:", help=(
        f"Measures what is missing: at most {n_heads + 1} evaluations of {N} train questions, and two gradients."
    )):  # fmt: skip
        for by in missing:
            three[by][2](again=True)
        st.rerun()


setup = chosen()
tasks = choose_tasks("importance", st.container(), setup.data_dir)
what_at, scale_at, mean_at, front_at = st.columns([23, 21, 17, 22])
choose = partial(st.segmented_control, required=True, bind="query-params")
with what_at:
    what = choose("Head score", list(SHORT), default="heads", key="importance_what", format_func=SHORT.get, help=(
        "Gradient: Bansal et al.'s, |z · dLoss/dz| summed over positions. Gate: mean |dLoss/dgate|, Michel et al. "
        "Oracle: accuracy lost when just that head is pruned."
    ))  # fmt: skip
with scale_at:
    scale = choose("Colours", list(SCALES), default="own", key="importance_scale", format_func=SCALES.get,
                   help="Up to each map's own highest score, or to the highest of all maps.")  # fmt: skip
with mean_at:
    how = choose("Mean", AGGREGATES, default="scores", key="importance_mean", format_func=MEANS.get,
                 help="Of scores, a task with large gradients decides; of ranks, all count alike.")  # fmt: skip
labels = {in_words(task): task for task in tasks}
front = labels[front_at.selectbox("In front", list(labels), key="importance_front", bind="query-params",
                                  help="Its gradients are compared with the oracle below.")]  # fmt: skip

identity(setup.spec)
model = wait_for(identity_slot(setup.spec), "Reading the model's files", partial(identity, setup.spec, again=True))
since_s, setting, n_heads = time.monotonic(), setting_of(setup), model.shape.n_heads_total
too_many = f"{n_heads:,} heads: the oracle takes {N} questions for each, and is offered up to {ORACLE_HEADS} heads."
found, pictures, tables = {}, {}, {}
for kind, at in zip(KINDS, st.columns(2, gap="large"), strict=True):
    with at:
        if kind == "heads" and what == ORACLE and n_heads > ORACLE_HEADS:
            found[kind] = Survey()
            st.info(too_many, icon=":material/info:")
            continue
        by = what if kind == "heads" else kind
        slot = f"importance {kind}"
        found[kind], key, start = importance_so_far(setting, model.digest, tasks, by, slot)
        line = partial(survey_line, slot, KINDS[kind], tasks, found[kind], key, start, since_s)
        live(watched(slot), line, since_s)
show_failed({**found["heads"].failed, **found["ffns"].failed})
if scores := found["heads"].scores:
    rows = charts.head_rows(scores)
    mean = charts.aggregate_rows(scores, together(replace(setting, aggregate=how), scores))
    tables |= {"Head importance": partial(to_csv, rows), "Mean head importance": partial(to_csv, mean)}
    st.markdown(words := charts.heads_in_words(mean, len(scores), how))
    st.subheader("Heads by task", help="Layer 0, next to the tokens, is the top row of each map.")
    shown = charts.shown_maps(list(scores), front, n_heads)
    if len(shown) < len(scores):
        st.caption(f"Of {len(scores)} maps with {n_heads:,} heads each, too many to draw at once, these are the "
                   f"{len(shown)} from the task in front on. The mean and the downloads hold all.")  # fmt: skip
        rows = charts.head_rows({task: scores[task] for task in shown})
    pictures["Heads by task"] = charts.score_maps(rows, charts.TITLES[what], scale == "common")
    st.altair_chart(pictures["Heads by task"], key="importance_maps", alt=words)
    map_at, top_at = st.columns([7, 5], gap="large")
    map_at.subheader(f"Mean {MEANS[how]}", help=f"Over all {len(scores)} maps, as one ranking for all tasks.")
    pictures["Mean of heads"] = charts.aggregate_map(mean, f"Mean {MEANS[how]}", len(scores))
    map_at.altair_chart(pictures["Mean of heads"], key="importance_mean_map", alt=words)
    top_at.subheader("Most important", help="Rank 1 is the first to go.")
    top_at.dataframe(charts.best_first(mean, len(scores)), hide_index=True, height=330, alt=words)
if scores := found["ffns"].scores:
    rows = charts.ffn_rows(scores)
    tables["FFN importance"], pictures["FFNs by task"] = partial(to_csv, rows), charts.ffn_map(rows)
    st.subheader("FFNs by task", help=f"Accuracy lost without each; one of {N} questions is {100 / N:.1f} points.")
    st.markdown(words := charts.ffns_in_words(rows))
    st.altair_chart(pictures["FFNs by task"], key="importance_ffns", alt=words)

st.subheader(f"Gradient against oracle: {in_words(front)}", help="SRCC: Spearman's rank correlation over the heads.")
if n_heads > ORACLE_HEADS:
    st.caption(too_many)
else:
    three = {by: importance_so_far(setting, model.digest, [front], by, f"agreement {by}") for by in SHORT}
    missing = [by for by, (known, _, _) in three.items() if front not in known.scores]
    live(watched(*(f"agreement {by}" for by in SHORT)), partial(agreement_lines, three, missing), since_s)
    if not missing:
        both = {by: known.scores[front].scores for by, (known, _, _) in three.items()}
        rows, agreed = charts.agreement_rows(both), agreement(both)
        tables["Gradient and oracle"] = partial(to_csv, rows)
        for by, at in zip(("heads", "gate"), st.columns(2, gap="large"), strict=True):
            name = f"{charts.TITLES[by]} and oracle"
            at.markdown(words := charts.agreement_in_words(agreed, by, ORACLE))
            pictures[name] = charts.agreement_scatter(rows, by)
            at.altair_chart(pictures[name], key=f"importance agreement {by}", alt=f"{name}: {words}")
words = ["--task", front.name, "--shots", front.shots, "--what", what, "--limit", N, "--sample", "stratified"]
line = command_line("importance", setup.spec, setup.bos, setup.data_dir, [*words, "--out", "heads.csv"])
st.code(line, language="shell", wrap_lines=True)
downloads(tables, pictures)
