"""The parts of the Prune screen that follow its sliders: figure, curve, map and bars, and the measurements still
missing."""

from functools import partial

import pandas as pd
import streamlit as st

from engine.importance.criteria import CRITERIA
from engine.importance.rankings_of import Axis
from engine.models.session import Target
from engine.questions.tasks import OWN_SUFFIXES
from engine.studies.removal import found_heads
from pages.ui.controls import carried
from pages.ui.controls.controls import beside_level
from pages.ui.controls.drag_slider import Field, draw_slider
from pages.ui.controls.heads import open_heads
from pages.ui.controls.own_questions import draw_fault, draw_remarks
from pages.ui.figures import published
from pages.ui.figures.empty import draw_sketch
from pages.ui.figures.sheet import Sheet
from pages.ui.page.defaults import AXES, LEVEL_HELP, LEVELS, NOUNS, ORDER
from pages.ui.page.marks import counts, mark
from pages.ui.page.presentation import presenting
from pages.ui.page.reads import stored_once
from pages.ui.page.streamlit_internals import RunEnded
from pages.ui.page.tables import for_file, whole_percent
from pages.ui.page.work import live, under_way
from pages.ui.prune import charts, dragging, estimates, example, head_map, second_model, tables
from pages.ui.prune.example import draw_example, look_ahead
from pages.ui.prune.figure import accuracy_figure, estimate_figure, full_in_a_sentence, in_a_sentence
from pages.ui.prune.jobs import (
    ORDERS,
    SLOW_ORDER,
    accuracy_work,
    curve_work,
    gradients_work,
    importance_work,
    ranking_work,
)
from pages.ui.prune.orders import draw_long_order
from pages.ui.prune.panels import perplexity
from pages.ui.prune.screen import PruneResult, PruneScreen, waits_for
from pages.ui.prune.second_figure import draw_curve_of_second, draw_second_model
from pages.ui.prune.stories import choose_story
from pages.ui.prune.story import draw_story

LEFT_RIGHT = 4, 7  # widths of figure and curve
CLICK = "Click one to prune or restore it."
RANKED = "prune ranked"  # in the session: the last experiment that was drawn again as its job had ranked
NONE_RIGHT = "None is right: does `gold` count from 0, and does each choice continue its context?"
NONE_WRITTEN = "None is right: is each answer just what follows the question, in the same case?"
UNSCORED = "not scored yet"
OUTLINES, OUTLINED = "prune induction heads", "Outlined: induction heads. "
UNRANKED = "Which ones are pruned is known once they are ranked."
MAP_HELP = (
    "{heads}. Layer 0 is next to the tokens, a cross marks a pruned head. A click prunes or restores, with Shift the "
    "whole layer; so do arrow keys and Enter. It is written into “Prune these as well” under Settings: `L1H0` prunes, "
    "`keep L1H0` restores. The bars: {ffns} of each FFN, from the train questions."
)


@st.fragment
def draw_levels(screen: PruneScreen) -> None:
    """Draws the slider and the parts that follow it. Only this runs in a drag; nothing is read or measured then."""
    study, axis = screen.study, screen.study.axis
    slider_at = st.container(key="study_level")
    if not screen.whole and (screen.shown is None or not dragging.moving()):
        head_map.apply_edits()
        st.rerun()  # a control is set: the whole page needs it
    with st.container(key="prune_stories", horizontal=True, vertical_alignment="center"):
        story, badge_at = choose_story(), st.container(key="follows_hand_badge", width="content")
    with st.container():  # also in a drag, which would move all that follows
        if screen.whole:
            mark("setting", "same" if dragging.keeps_curve(study) else "other")
    story_at = st.container(key="prune_told")
    figure_at, curve_at = st.columns(LEFT_RIGHT, gap="large")
    map_at = st.container(key="follows_hand_map")
    example_at = st.container(key="prune_example")  # hidden on a slide; above the map, its length would move that
    shown = screen.shown
    try:
        if shown is None or screen.whole:
            shown = screen.shown = screen.look()
        if dragging.moving():
            dragging.let_go_of(shown.x)
        with figure_at:  # before all else: otherwise the figure would be queued after other drawings
            slots = ["accuracy", "train questions", SLOW_ORDER]
            every_s = dragging.FIGURE_S if shown.postponed else dragging.redrawn_every_s(shown.x, shown.mask)
            with st.container(key="follows_hand_figure"):
                live(slots, partial(draw_result, shown, axis), screen.since_s, every_s, always=shown.postponed)
            second_at, compared_at = st.container(key="prune_perplexity_line"), st.container()
        if screen.whole and not shown.postponed:
            shown.estimates, shown.waits = dragging.look_ahead(shown.x, shown.known)
    except RunEnded:  # an error, or model or questions are waited for
        if under_way(waits_for(study.setup)):
            with st.columns(LEFT_RIGHT, gap="large")[1]:  # under the progress
                draw_sketch("plot", "curve")
        raise
    finally:  # the slider is drawn meanwhile
        texts = {} if shown is None else shown.texts(axis)
        named = "" if shown is None else tables.named_in_words(shown.x)
        field = Field(axis, LEVELS[axis], study.percent(axis), slider_at)
        draw_slider(field, LEVEL_HELP[axis], True, texts, beside_level(study.typed, named))
    assert shown is not None
    now = shown.at_hand().mask(shown.known) if dragging.moving() else shown.mask
    carried.hand_on("prune", shown.x.shape, now, badge_at)
    with second_at:  # the second figure never comes before the first
        draw_second(screen, shown)
    with compared_at:
        draw_second_model(screen, shown)
    with example_at:
        draw_example_question(screen, shown)
    with story_at:
        draw_story(shown, study.setup, story, screen.since_s)
        if presenting() and story is None:
            live(["accuracy"], partial(draw_sentence, shown), screen.since_s)
    with curve_at:  # apart from the figure: a chart takes long to build, and the worker would wait for it
        slots = ["curve", second_model.CURVE, "gradients", *ORDERS.values(), *shown.waits]
        with st.container(key="follows_hand_curve"):
            draw = partial(draw_curve, shown, axis, screen.sheet)
            live(slots, draw, screen.since_s)
    with map_at:
        draw_components(shown, screen.sheet)


def draw_second(screen: PruneScreen, shown: PruneResult) -> None:
    """Draws the perplexity of a text, or its progress; nothing is read while a slider moves."""
    text = perplexity.chosen_text()
    if dragging.moving():
        perplexity.let_go_of(shown, text)
    elif screen.whole and not shown.postponed:
        shown.second = perplexity.look_ahead(shown, text)
    live([perplexity.SLOT], partial(perplexity.draw_line, shown, text), screen.since_s)


def draw_example_question(screen: PruneScreen, shown: PruneResult) -> None:
    """Draws one of the questions; nothing is read while a slider moves."""
    if screen.whole and not shown.postponed:
        shown.look = look_ahead(shown.x, shown.measured)

    def draw() -> None:
        with st.container(key="outdated_example" if dragging.moving() else None):
            draw_example(shown.x, shown.measured, shown.look)

    live([example.SLOT], draw, screen.since_s)


def draw_result(shown: PruneResult, axis: Axis) -> None:
    """Draws the figure, again while it is measured, or the preview at the position of the `axis`'s slider."""
    if axes := dragging.moving():
        x = shown.at_hand()
        line = shown.estimates.line(x, axes[0])
        now = x.mask(shown.known)
        pruned = estimates.pruned_in_words(x, shown.known, now)
        state = estimate_figure(shown.title, line, x.pruning.level(axes[0]), pruned, x.questions.n)
        mark("figure", state, **counts(now))
        return
    if shown.postponed and shown.drawn:  # a timer's run: the browser has drawn the page
        st.rerun()
    dragging.await_last_answers(shown.x)
    measured, x = shown.measured, shown.x
    has_full = tables.full_accuracy(x, measured) is not None
    if shown.drawn and has_full > shown.has_full:
        st.rerun()  # the curve has the full model's line, and is not drawn here
    shown.drawn, shown.has_full = True, has_full
    if shown.mask is None and measured.mask is not None and is_first_draw_since_ranked(x.key):
        st.rerun()  # map and badge are of this mask too, and are not drawn here
    mask = shown.mask or measured.mask  # the job may know it before the page does
    is_full = mask is not None and mask.is_full
    pruned, known = estimates.pruned_in_words(x, shown.known, mask), published.in_words(x.target, x.task)
    accuracy_figure(shown.title, measured, x.questions.n, pruned, is_full, known)
    answers = measured.full if is_full else measured.pruned
    mark(
        "figure",
        "measured" if x.is_complete(measured) else "measuring",
        questions=len(answers or ()),
        of=x.questions.n,
        **counts(mask),
    )
    if x.task.name.endswith(OWN_SUFFIXES) and x.train is not None:
        n_rows = len(x.train.questions)
        st.caption(
            f"{len(x.judged.questions):,} of your rows are asked, {n_rows:,} others are for examples and the order."
        )
        if x.is_complete(measured) and measured.full and not measured.full.correct.any():
            st.markdown(NONE_WRITTEN if x.judged.greedy else NONE_RIGHT)
    draw_remarks(x.judged)
    if x.judged.kept:
        st.caption(f"{whole_percent(x.judged.kept)} of the examples keep their true answer: too few answers differ.")
    if (job := (work := accuracy_work(x, shown.mask)).now()) is not None:
        work.line()
        draw_fault(job.details)
    elif shown.awaits_rows:
        st.caption("Preparing the train questions …")
    draw_long_order(x, shown.known, axis)


def is_first_draw_since_ranked(key: str) -> bool:
    """Returns whether an experiment, by its key, is drawn for the first time since its job has ranked."""
    last, st.session_state[RANKED] = st.session_state.get(RANKED), key
    return last != key


def draw_sentence(shown: PruneResult) -> None:
    """Draws the finding of a slide that tells no story."""
    if shown.mask is None:
        return
    if shown.mask.is_full:
        st.markdown(full_in_a_sentence(shown.x.task.title, shown.measured.full))
    else:
        pruned = estimates.pruned_in_words(shown.x, shown.known, shown.mask)
        st.markdown(in_a_sentence(shown.x.task.title, shown.measured, pruned))


def draw_curve(shown: PruneResult, axis: Axis, sheet: Sheet) -> None:
    """Draws accuracy over the levels of one axis, measured and estimated, and the job that measures them all."""
    measured, x, moving = shown.measured, shown.at_hand(), dragging.moving()
    points, line, hand = shown.curve(axis), shown.estimates.line(x, axis), charts.NONE
    now = tables.now_point(x, axis, measured, shown.mask)
    if moving:
        points = points if x.curve_key(axis) == shown.x.curve_key(axis) else points[:0]
        now = points[points["level"] == x.pruning.level(axis) / 1000]
        if now.empty:
            along = shown.estimates.line(x, moving[0])
            hand = estimates.hand_frame(along, x.pruning.level(moving[0]), x.pruning.level(axis))
    starting_from = tables.starting_from(x, axis)
    words = tables.points_in_words(points, LEVELS[axis])
    words += f" The curve is{starting_from}." if starting_from else ""
    guessed = tables.guesses_in_words(shown.x, axis, points)
    if shown.compared is not None:
        points, now = second_model.with_points_of_second(points, now, shown.compared, axis)
        words += f" {shown.compared.names[1]}: {tables.points_in_words(shown.compared.curve(axis), LEVELS[axis])}"
    full, dashed = tables.full_accuracy(x, measured), (estimates.line_frame(line), hand)
    title = LEVELS[axis] + starting_from
    drawn = charts.accuracy_curve(points, now, full, x.judged.chance, title, dashed)
    sheet.draw("Curve", drawn, "prune_curve", words)
    if guessed:
        st.caption(guessed)
    if preview := estimates.describe_preview(line, x.pruning.level(axis)):
        st.caption(preview[0], help=preview[1])
    dashed = sum(each.shown for each in line.estimated.values())
    mark("curve", "estimated" if line.estimated else "measured", levels=len(points), dashed=dashed)
    estimating = gradients_work(shown.x)
    if any(ranking_work(shown.x, each).line() for each in AXES) or estimating.line():
        return
    if shown.can_estimate and estimating.now() is None and not moving:
        about = "A backward pass for each choice: then the figure follows while a slider moves, as an estimate."
        estimating.offer("Measure estimates", "show_chart", about)
    work = curve_work(shown.x, axis, shown.known)
    if not work.line() and tables.lacks_levels(shown.curve(axis)):
        work.offer("Measure the curve", "timeline", "Every tenth of this level, in the background.")
    draw_curve_of_second(shown, axis)


def _induction_heads(target: Target) -> tuple[int, ...]:
    """Returns the model's induction heads, if they are stored; in a drag, as they were before it."""
    notes, of = st.session_state.setdefault(OUTLINES, {}), (target.spec, target.bos)
    if of not in notes or not dragging.moving():
        found = stored_once(found_heads(target))
        notes[of] = () if found is None else found.heads
    return notes[of]


def draw_components(shown: PruneResult, sheet: Sheet) -> None:
    """Draws the map of heads and the bars of FFNs, pruned at the slider's position."""
    x = shown.at_hand()
    mask = x.mask(shown.known) if dragging.moving() else shown.mask
    heads, ffns = tables.head_frame(x, shown.known, mask), tables.ffn_frame(x, shown.known, mask)
    of_heads, of_ffns = tables.score_titles(x)
    sheet.pictures |= {"Heads": charts.head_map(heads, of_heads), "FFNs": charts.ffn_bars(ffns, of_ffns)}
    sheet.tables |= {"Heads": for_file(heads), "FFNs": for_file(ffns)}
    about: dict[Axis, str | None] = {"heads": MAP_HELP.format(heads=of_heads, ffns=of_ffns.lower()), "ffns": None}
    named: dict[Axis, str] = {"heads": of_heads, "ffns": of_ffns}
    titles: dict[Axis, str] = {"heads": "Attention heads", "ffns": "FFNs"}
    ffns_in_short = of_ffns.lower() + " score" * (of_ffns != charts.ACCURACY_LOST)
    shaded = f"shaded by {of_heads.lower()}" + ", an estimate of importance" * (x.criterion == ORDER)
    in_short: dict[Axis, str] = {"heads": shaded, "ffns": ffns_in_short}
    head_map.click_on(x.shape, x.by_levels(shown.known))
    frames: dict[Axis, pd.DataFrame] = {"heads": heads, "ffns": ffns}
    for (of, frame), at in zip(frames.items(), st.columns([7, 4], gap="large"), strict=True):
        with at:
            is_scored = bool(frame["score"].notna().any())
            st.subheader(f"{titles[of]} :small[{in_short[of] if is_scored else UNSCORED}]", help=about[of])
            by = named[of].lower()
            words = tables.components_in_words(frame, NOUNS[of], by) if mask is not None else UNRANKED
            if of == "heads":
                ringed = _induction_heads(x.target)
                outlined = OUTLINED if ringed else ""
                head_map.draw_heads(frame, f"{words} {outlined}".strip(), named[of], ringed)
                st.caption(f"{outlined}{CLICK}")
            else:
                head_map.draw_ffns(frame, words, named[of])
            if of == "heads" and x.pruning.typed.text():  # those that were clicked or typed
                kept = [kept for row in x.pruning.typed.alone.heads for kept in row]
                open_heads([name for name, stays in zip(frame["name"], kept, strict=True) if not stays])


def draw_importance(shown: PruneResult) -> None:
    """Draws the job that scores unscored components."""
    work, known = importance_work(shown.x), shown.known
    if not work.line() and (known.heads is None or known.ffns is None):
        criterion = CRITERIA[shown.x.criterion]
        work.offer("Measure head and FFN scores", "insights", f"{criterion.label}: {criterion.cost}.")
