"""A story on the Prune screen: the expectation, a small table of results, and whether it holds."""

import math
from functools import partial

import streamlit as st

from engine.models.masks import Mask
from engine.questions.tasks import task_info
from engine.shapes import ModelShape
from engine.studies.removal import N_DRAWS, Removal, without
from engine.studies.surveys import in_words as task_in_words
from engine.views.sweep import describe_cliff, describe_power
from pages.ui.controls.study import Setup, set_study
from pages.ui.figures.induction_scores import RULE
from pages.ui.page.marks import mark
from pages.ui.page.reads import stored_once
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import level_percent, number, percents, whole_percent
from pages.ui.page.work import live
from pages.ui.prune.jobs import is_short
from pages.ui.prune.screen import PruneResult
from pages.ui.prune.stories import FAR, SLOTS, TEXT, Cast, Far, cast_of, far_work, removal_work, removed

EXPECT = {
    "heads": "answers that depend on the examples are lost.",
    "others": "little is lost. The figure shows the first of the draws.",
    "control": "nothing is lost, as no answer depends on the examples.",
    "far": "many heads can go, the least important first, before a loss is detectable.",
}
# for the task that the figure shows, by its use of the context, if known (TaskInfo.needs)
WITHOUT_THE_HEADS = {
    "examples": EXPECT["heads"],
    "copying": "answers copied from the question itself are lost, with or without examples.",
    "reading": "some is lost: where heads that match prefixes also carry the passage's content.",
    "nothing": "nothing is lost, as this task takes nothing from its context.",
}
NONE = "This model has no induction heads by the rule used here, so the story does not apply: no head looks at what "
NONE += "followed a token's earlier copy with 0.3 of its attention."
UNASKED = "No task that suits this model is on this computer: give a task data folder, or see it on a text."
TEXT_HELP = "Opens the Passage screen with these heads pruned: a text that is said twice, token by token."


def draw_story(shown: PruneResult, setup: Setup, story: str | None, since_s: float) -> None:
    """Draws the open story, and starts its measurement."""
    if story is not None:
        live(SLOTS, partial(_draw, shown, cast_of(setup), story), since_s)


def finding(shown: PruneResult, setup: Setup) -> str:
    """Returns what the model loses without its induction heads, as it stands in the heading; "" if that is not stored,
    or if anything is pruned."""
    cast = cast_of(setup)
    if cast is None or shown.mask is None or not shown.mask.is_full:
        return ""
    found = stored_once(removed(shown.x, cast))
    if found is None or not found.heads or found.removed is None or len(found.draws) < N_DRAWS:
        return ""
    n, of, line = len(found.heads), shown.x.shape.n_heads_total, found.removed
    others = [each.pruned for each in found.draws]
    return (
        f"Without {n} of {of} heads, its induction heads, the model gets {whole_percent(line.pruned)} of "
        f"{cast.main.name} right instead of {whole_percent(line.full)}; without {n} random heads, "
        f"{percents(min(others), max(others), 0)}."
    )


def cells(found: Removal, cast: Cast) -> list[str]:
    """Returns one cell each for the results: without the heads, without equally many others, and without examples on a
    task that needs none, if there is one."""
    n, (mean, low, high) = len(found.heads), found.at_random
    others = _cell(None, f"{n} others, at random")
    if found.draws:
        full, n_draws = found.draws[0].full, len(found.draws)
        spread = f"{_points(low)} to {_points(high)} over {n_draws} draw{'s' * (n_draws > 1)}"
        others = _cell((full, full + mean / 100), f"{n} others, at random", spread)
    removed, control = (None if line is None else (line.full, line.pruned)
                        for line in (found.removed, found.control))  # fmt: skip
    cells = [_cell(removed, f"the {n} induction heads", task_in_words(cast.main)), others]
    if cast.control is not None:
        cells.append(_cell(control, f"the {n} induction heads", f"{cast.control.name}, no examples"))
    return cells


def expected(story: str, task: str) -> str:
    """Returns the story's expectation for the task in the figure: a user may have chosen another than the story did."""
    needs = task_info(task).needs
    return WITHOUT_THE_HEADS[needs] if needs and story in ("heads", "control") else EXPECT[story]


def in_words(found: Removal, shape: ModelShape) -> str:
    """Describes the heads, and whether the story holds."""
    if not found.heads:
        return NONE
    said = [f"Induction heads: {without(shape, found.heads).text()} ({RULE})."]
    if found.removed is not None:
        said.append(f"On the first {found.removed.change.n:,} questions.")
    if found.removed is not None and len(found.draws) == N_DRAWS:
        said.append("**The story holds here.**" if found.holds else "**The story does not hold here.**")
    return " ".join(said)


def far_cells(found: Far) -> list[str]:
    """Returns the level before the first detectable loss, that loss, and the cliff, a cell each."""
    read = found.read
    if read.reading:
        return []
    found_levels = [(found.level, "no detectable loss up to here")]
    if not math.isnan(read.first_detectable_loss):
        found_levels.append((round(1000 * read.first_detectable_loss), "the first detectable loss"))
    lines = [(found.lines[level], f"{level_percent(level)} of the heads", words) for level, words in found_levels]
    said = [_cell((each.full, each.pruned), share, words) for each, share, words in lines]
    if not math.isnan(read.cliff_points):
        before, after = (found.lines[round(1000 * end)].pruned for end in (read.cliff_from, read.cliff_to))
        span = f"from {percents(read.cliff_from, read.cliff_to, 0)} of the heads"
        right = f"{percents(before, after, 0, '→')} right"
        said.append(f"**{_points(read.cliff_points)} points** {span}  \n:small[{right}; the cliff, the largest drop]")
    return said


def far_in_words(found: Far) -> str:
    """Describes how far pruning can go, and the loss that these questions can detect."""
    read = found.read
    if read.reading:
        return f"The full model is {read.reading}, {whole_percent(read.full_acc)} right: there is nothing to lose."
    cliff = describe_cliff(read.cliff_from, read.cliff_to, read.cliff_points)
    words = f"Of the levels measured (every 10%): **{level_percent(found.level)}** of the heads can go before a loss "
    return f"{words}is detectable; the cliff: **{cliff}**. {describe_power(read.n, read.looks)}"


def _draw(shown: PruneResult, cast: Cast | None, story: str) -> None:
    with st.container(gap="xxsmall"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.markdown(f":small[**Expect:** {expected(story, shown.x.task.name)}]", width="content")
            link_at = st.container(width="content")
        if cast is None or cast.control is None and story == "control":
            st.markdown(f":small[{UNASKED}]")
            _draw_link(link_at, shown.mask)
            return
        work = far_work(shown.x) if story == "far" else removal_work(shown.x, cast)
        if work.now() is None and is_short(shown.x.target, work.takes_s()):
            work.start()
        found = work.found
        if isinstance(found, Far):
            _draw_cells(far_cells(found), far_in_words(found))
            mark("far", found.read.reading or "read", **found.read.cells())
            if st.session_state.pop(FAR, False):
                set_study(heads=found.level // 10)
                st.rerun()
        elif isinstance(found, Removal) and found.heads:
            _draw_cells(cells(found, cast), in_words(found, shown.x.shape))
            _draw_link(link_at, without(shown.x.shape, found.heads))
        elif isinstance(found, Removal):
            st.markdown(f":small[{NONE}]")
        if not work.line() and work.now() is None:
            work.offer("Measure this", "science", "In the background. Finished work is stored.")


def _draw_cells(each: list[str], words: str) -> None:
    for at, cell in zip(st.columns(3, gap="small"), each, strict=False):
        at.markdown(cell)
    st.markdown(f":small[{words}]")


def _draw_link(where: DeltaGenerator, mask: Mask | None) -> None:
    if where.button("See it on a text", icon=":material/format_ink_highlighter:", type="tertiary", help=TEXT_HELP):
        address = {"passage_text": TEXT, "passage_mask": "" if mask is None else mask.text()}
        st.session_state.update(address)
        st.switch_page("pages/passage.py", query_params={name: value for name, value in address.items() if value})


def _cell(right: tuple[float, float] | None, without: str, more: str = "") -> str:
    """Returns a cell on the accuracy of the full and of the pruned model, such as "**−52 points** without ..."."""
    change = "…" if right is None else f"{_points(100 * (right[1] - right[0]))} points"
    words = [] if right is None else [f"{percents(*right, 0, '→')} right"]
    return f"**{change}** without {without}  \n:small[{'; '.join([*words, *([more] if more else [])])}]"


def _points(points: float) -> str:
    return number(points, 0, sign=True)
