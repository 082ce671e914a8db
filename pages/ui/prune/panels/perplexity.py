"""The Prune screen's second figure: perplexity of a text under the same mask, measured after the accuracy."""

import pandas as pd
import streamlit as st

from engine.measurement import Measurement
from engine.requests import MeasurePerplexity
from engine.texts.perplexity import BLOCK, Both, Change, both
from pages.ui.controls.texts import Chosen, find_text, take_linked
from pages.ui.downloads.origin import command_line, of_model, of_pruning, of_task
from pages.ui.page.address import current_value
from pages.ui.page.marks import mark
from pages.ui.page.runtime import budget_s, in_memory, jobs, session
from pages.ui.page.tables import number, plain
from pages.ui.page.work import Work, under_way
from pages.ui.prune import dragging
from pages.ui.prune.jobs import MEASURING
from pages.ui.prune.screen import PruneResult

SLOT = "perplexity"
PRIORITY = 4  # after the estimates' work
SOON_S = 2.0  # what takes no longer shows no progress: a bar that comes and goes would move what stands below
TEXT = "The ferry"  # the text at first: written for this app, so that older models were not trained on it
HELP = (
    "exp of the mean loss of a token: the whole text, in windows of the model's length without overlap, each without "
    f"its first token. The change is of the same tokens; its interval is a t interval over blocks of {BLOCK}. "
    "Choose the text below, under “Perplexity of a text”."
)


def chosen_text() -> Chosen:
    """Returns the chosen text before its choice is drawn; `TEXT` if there is no such text."""
    take_linked("prune")
    found = find_text(current_value("prune_text") or TEXT) or find_text(TEXT)
    assert found is not None
    return found


def perplexities(shown: PruneResult, text: Chosen) -> Measurement[Both]:
    """Returns the measurement of the perplexity of the text with nothing pruned and under the current mask."""
    return both(shown.x.target, text.text, shown.mask)


def perplexity_work(shown: PruneResult, text: Chosen) -> Work[Both]:
    """Returns the work that measures both."""
    return Work(SLOT, "Perplexity", perplexities(shown, text), PRIORITY, while_seen=True)


def look_ahead(shown: PruneResult, text: Chosen) -> Both:
    """Returns the results so far; the rest is measured once nothing else is and the accuracy is measured, if its
    forecast fits the budget of background work."""
    x, found = shown.x, perplexities(shown, text).so_far(session()) or Both()
    is_idle = not dragging.moving() and not under_way([*MEASURING, "estimates"])
    is_due = not found.complete and shown.mask is not None and x.is_complete(shown.stored)
    if is_due and is_idle and in_memory(x.target.spec):
        perplexity_work(shown, text).start_ahead()
    return found


def let_go_of(shown: PruneResult, text: Chosen) -> None:
    """Abandons the measurement: the slider has moved on."""
    if perplexity_work(shown, text).under_way:
        jobs().drop(SLOT)


def draw_line(shown: PruneResult, text: Chosen) -> None:
    """Draws the figure in a line, or its progress; the change is in its help."""
    name, found = f"Perplexity of {plain(text.name)}", shown.second
    if found.complete and not dragging.moving():
        line, *change = in_words(found, name)
        st.markdown(f":small[{line}]", help="  \n".join([*change, HELP]))
        mark("perplexity", "measured")
        return
    work = perplexity_work(shown, text)
    is_early = dragging.moving() or shown.mask is None or not shown.x.is_complete(shown.stored)
    if is_early or _is_soon_measured(shown, work):
        st.markdown(f":small[{name}: …]", help=HELP)
    elif not work.line():
        work.offer("Measure perplexity", "text_fields", "Of the full and of the pruned model, in the background.")


def _is_soon_measured(shown: PruneResult, work: Work[Both]) -> bool:
    """Returns whether it is measured soon, without a progress bar."""
    takes_s, job = work.takes_s(), work.now()
    if job is None:
        return takes_s is not None and takes_s <= budget_s() and in_memory(shown.x.target.spec)
    return job.under_way and takes_s is not None and job.seconds + takes_s <= SOON_S


def in_words(found: Both, name: str) -> list[str]:
    """Returns lines such as "Perplexity of The ferry: 232.0, the full model's 115.4" and the change, in lines."""
    assert found.full is not None and found.pruned is not None
    if found.change is None:
        return [f"{name}: **{_four_digits(found.full.a_token)}**"]
    lines = [f"{name}: **{_four_digits(found.pruned.a_token)}**, full {_four_digits(found.full.a_token)}"]
    return [*lines, change_in_words(found.change)]


def change_in_words(found: Change) -> str:
    """Returns text such as "+0.698 nats a token (95%: +0.463 to +0.934)"."""
    nats, low, high = (number(each, 3, sign=True) for each in (found.nats, found.low, found.high))
    if found.low != found.low:
        return f"{nats} nats a token; too few tokens for an interval"
    return f"{nats} nats a token (95%: {low} to {high})"


def table(found: Both) -> pd.DataFrame:
    """Returns one row per model: perplexity per token, word and byte, nats per token, and the tokens scored."""
    sides = {"full": found.full} if found.full is found.pruned else {"full": found.full, "pruned": found.pruned}
    rows = [
        (name, side.a_token, side.a_word, side.a_byte, side.nats, len(side), side.n_tokens, side.window)
        for name, side in sides.items()
        if side is not None
    ]
    columns = ["model", "a_token", "a_word", "a_byte", "nats_a_token", "tokens_scored", "tokens", "window"]
    return pd.DataFrame(rows, columns=columns)


def draw_details(shown: PruneResult, text: Chosen) -> None:
    """Draws the panel: both models per token, word and byte, and the command."""
    frame = table(shown.second)
    if len(frame):
        lines = ["| | a token | a word | a byte | nats a token |", "|:--|--:|--:|--:|--:|"]
        lines += [
            f"| {row['model'].capitalize()} model | {_four_digits(row['a_token'])} | {_four_digits(row['a_word'])} "
            f"| {number(row['a_byte'], 3)} | {number(row['nats_a_token'], 4)} |"
            for row in frame.to_dict("records")
        ]
        st.markdown("\n".join(lines), help=HELP)
        first = frame.iloc[0]
        scored = f"{first['tokens_scored']:,} of {first['tokens']:,} tokens are scored"
        st.caption(f"{scored}, in windows of {first['window']:,}.")
    st.code(command_line(request(shown, text)), language="shell", wrap_lines=True)


def request(shown: PruneResult, text: Chosen) -> MeasurePerplexity:
    """Returns the equivalent request, which finds the same stored results."""
    x = shown.x
    task = of_task(x.task) if x.pruning.by_level else {}
    of = {**of_model(x.target), **of_pruning(x.pruning), **text.named, **task}
    return MeasurePerplexity(**of, task_data=x.data_dir)


def _four_digits(perplexity: float) -> str:
    """Returns about four digits, such as "27.66", "231.9" or "12,345"."""
    if perplexity < 100:
        return number(perplexity, 2)
    digits = ",.1f" if perplexity < 10_000 else ",.0f" if perplexity < 1e9 else ".1e"
    return f"{perplexity:{digits}}"
