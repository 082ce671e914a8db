"""In a corpus: how far back the head looks, the windows at which it fires most, and the losses there without it."""

import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from engine.composed import deferred
from engine.corpus.heads import Fired, Head, HeadsInCorpus, deciles, heads_in_corpus
from engine.corpus.loss_without import LossWithout, loss_without
from engine.corpus.windows import BUILT_IN, MAX_WINDOWS, N_WINDOWS, corpus_of
from engine.measurement import Measurement
from engine.models.session import Session, Target
from engine.requests import ReadCorpus
from engine.requests.corpus import example_row, rows_of
from engine.views.corpus import windows_in_words
from pages.ui.controls.controls import one_listed
from pages.ui.controls.texts import open_attention, open_passage
from pages.ui.downloads.origin import of_model
from pages.ui.figures.drawing import draw_table
from pages.ui.figures.empty import empty_state
from pages.ui.figures.sheet import Sheet
from pages.ui.head import charts
from pages.ui.head import corpus_tables as rows
from pages.ui.head.measuring import Known
from pages.ui.page.address import current_value, nearest, number_field
from pages.ui.page.runtime import errors_shown
from pages.ui.page.tables import percents, plain, to_csv, whole_percent
from pages.ui.page.widget_writes import hold
from pages.ui.page.work import Work, live

TITLE = "In a corpus"
SOURCE, WINDOWS, DECILE, SEARCH = "head_corpus", "head_windows", "head_decile", "head_search"
DISTANCES, TOKENS, WINDOWS_TITLE = "Distances", "Tokens of its largest activations", "Windows"
DECILES = ["Top 10%", *(percents(at / 10, (at + 1) / 10, digits=0) for at in range(1, 10))]
N_SHOWN = 5
SOURCE_HELP = (
    "`built-in`: the included passages and questions. Or a text file or a folder of .txt and .md files on the computer "
    "that runs Headroom. Texts are cut into windows of 256 tokens."
)
WINDOWS_HELP = "Windows to read at most, evenly spaced over the texts."
SEARCH_HELP = "Lists only windows that contain this, in upper and lower case as typed."
SHOWS = "You will see how far back the head looks in many texts, and the windows in which it fires most."
READ_HELP = "One pass over the windows measures all heads of the model. Finished windows are kept."
WHAT_HELP = (
    "By stated rules: at least 30% of the attention on one kind of token, at least half of the largest activations of "
    "one kind, a mean distance of at most 4 tokens or at least a third of a window, attention as even as over 20 "
    "tokens, strong writes (a tenth of the residual stream) at half of the positions. The numbers are in the download."
)
DISTANCE_HELP = "Share of the head's attention by how many tokens back it goes: the mean over all tokens."
TOKENS_HELP = "The most frequent tokens that the head looks from and at, at the largest activation of each window."
FIRES = "**Where it fires**: from the :violet-background[violet] token, it looks at the :orange-background[orange] one"
FIRES_HELP = (
    "The largest activation of each window, in front: attention times what the head would write from there alone, "
    "A[q, k] · ‖W_O v_k‖."
)
DECILE_HELP = "Tenths of the windows by their largest activation, the largest first."
PASSAGE_HELP, ATTENTION_HELP = "Opens the window on Passage.", "Opens the window on Attention, at this head and token."
WITHOUT_HELP = "The mean loss without the head less that with it, on the same tokens; 95% interval over windows."
LOSS_HELP = "Passes over 48 windows with and without the head. In the background."


@dataclass(frozen=True)
class Reading:
    """What the section reads: the model, the corpus, by its source, and the head."""

    target: Target
    source: str
    n_windows: int
    head: Head

    @property
    def name(self) -> str:
        """Returns the head's name."""
        return self.target.shape.head_names[self.head[0] * self.target.shape.n_heads + self.head[1]]

    @property
    def request(self) -> ReadCorpus:
        """Returns the request of the same."""
        more: dict[str, Any] = {"text": self.source, "windows": self.n_windows, "head": self.name, "out": "heads.csv"}
        return ReadCorpus(**of_model(self.target), **more)

    @property
    def measurement(self) -> Measurement[HeadsInCorpus]:
        """Returns the measurement of all heads."""

        def build(session: Session) -> Measurement[HeadsInCorpus]:
            return heads_in_corpus(self.target, corpus_of(self.source, session.store, self.n_windows))

        return deferred(self.target, ("corpus", self.source, self.n_windows), build)


def chosen(target: Target, head: Head) -> Reading:
    """Returns what the controls say, whether they are drawn or not."""
    n_windows = nearest(current_value(WINDOWS), (1, MAX_WINDOWS))
    return Reading(target, current_value(SOURCE).strip() or BUILT_IN, int(n_windows or N_WINDOWS), head)


def opened(target: Target, head: Head) -> Reading | None:
    """Returns what the section reads if its tab is open."""
    return chosen(target, head) if current_value("head_part") == TITLE else None


def stored(known: Known) -> HeadsInCorpus | None:
    """Returns all heads over the corpus, as far as that is stored."""
    return max(_work(chosen(known.target, known.asked.head)).stored(), key=len, default=None)


def _work(reading: Reading) -> Work[HeadsInCorpus]:
    return Work("head corpus", "Heads in a corpus", reading.measurement, priority=2)


def section(known: Known, sheet: Sheet) -> None:
    """Draws the section."""
    source_at, windows_at, search_at = st.container(key="wraps corpus").columns([3, 2, 6], vertical_alignment="bottom")
    for key in (SOURCE, SEARCH):
        hold(key)
    source_at.text_input("Texts", key=SOURCE, bind="query-params", placeholder=BUILT_IN, help=SOURCE_HELP)
    number_field(windows_at, "Windows", (1, MAX_WINDOWS), WINDOWS, value=N_WINDOWS, help=WINDOWS_HELP)
    reading = opened(known.target, known.asked.head)
    if reading is None:
        return
    search = search_at.text_input("Find in windows", key=SEARCH, bind="query-params", help=SEARCH_HELP) or ""
    with errors_shown():
        work, since_s = _work(reading), time.monotonic()
        found = max(work.stored(), key=len, default=None)
        live(work.watched(), partial(_draw_progress, work, found is not None and found.is_complete), since_s)
        if found is not None:
            _draw_found(reading, found, search, sheet)


def _draw_progress(work: Work[HeadsInCorpus], is_complete: bool) -> None:
    if work.is_first_read:
        work.reading_line()
    elif not work.line() and not is_complete:
        with empty_state("", SHOWS, work.is_read, key="empty corpus") if work.found is None else nullcontext():
            work.offer("Read the corpus", "library_books", READ_HELP, by_size=True, least_s=0.0)
    if work.found is not None and not is_complete and work.found.is_complete:
        st.rerun()  # all is known now


def _draw_found(reading: Reading, found: HeadsInCorpus, search: str, sheet: Sheet) -> None:
    head = reading.head
    words = rows.in_words(found, head)
    st.markdown(f"**{windows_in_words(found, reading.n_windows)}:** {words}.", help=WHAT_HELP)
    sheet.says.append(f"In a corpus: {words}.")
    sheet.tables["All heads in the corpus"] = partial(_table_of_all, found)
    distance_at, tokens_at = st.container(key="wraps distances").columns(2, gap="large")
    with distance_at:
        st.markdown("**How far back it looks**", help=DISTANCE_HELP)
        distances = rows.distance_rows(found, head)
        sheet.tables[DISTANCES] = distances
        sheet.draw(DISTANCES, charts.distances(distances), "head distances", rows.distances_in_words(distances))
    with tokens_at:
        st.markdown("**Tokens of its largest activations**", help=TOKENS_HELP)
        tokens = rows.token_rows(found, head)
        sheet.tables[TOKENS] = tokens
        titles = {"query": "Looks from", "query_share": "Windows", "key": "Looks at", "key_share": "Windows "}
        look = {"query_share": whole_percent, "key_share": whole_percent}
        draw_table(tokens, titles, TOKENS, formats=look, height="content")
    _draw_windows(reading, found, search, sheet)
    if found.is_complete:
        _draw_without(reading, found)


def _draw_windows(reading: Reading, found: HeadsInCorpus, search: str, sheet: Sheet) -> None:
    """Draws the windows of a decile, or those with a text, the head's largest activation in each marked."""
    fired = found.fired(reading.head)
    sheet.tables[WINDOWS_TITLE] = partial(_table_of_windows, found, fired)
    title_at, decile_at = st.columns([5, 2], vertical_alignment="bottom")
    title_at.markdown(FIRES, help=FIRES_HELP)
    if search:
        listed = [each for each in fired if search in found.windows.texts[each.window]]
        title_at.caption(f"{len(listed):,} of {len(fired):,} windows have “{plain(search)}”.")
    else:
        decile = one_listed(decile_at, "Windows by activation", DECILES, DECILE, help=DECILE_HELP)
        listed = deciles(fired)[DECILES.index(decile)]
    list_at = st.container(gap="xxsmall")
    for place, each in enumerate(listed[:N_SHOWN]):
        row = example_row(found, each)
        text_at, passage_at, attention_at = list_at.columns([12, 2, 2], vertical_alignment="center")
        text_at.markdown(rows.example_in_words(row))
        named = f"Corpus window {each.window + 1}", found.windows.texts[each.window]
        look: dict[str, Any] = {"type": "tertiary", "icon": ":material/open_in_new:"}
        if passage_at.button("Passage", key=f"corpus passage {place}", help=PASSAGE_HELP, **look):
            open_passage(*named)
        if attention_at.button("Attention", key=f"corpus attention {place}", help=ATTENTION_HELP, **look):
            open_attention(*named, reading.name, each.query + 1 - found.windows.has_bos)


def _draw_without(reading: Reading, found: HeadsInCorpus) -> None:
    """Draws what removing the head costs on its top windows, or the button that measures it."""
    wanted = loss_without(reading.target, found, reading.head)
    work: Work[LossWithout] = Work("head corpus loss", "Loss without the head", wanted, priority=2)
    st.markdown("**Without it**: the loss on the windows at which it fires most, and on others", help=WITHOUT_HELP)
    since_s, stored = time.monotonic(), work.stored()
    live(work.watched(), partial(work.ask, bool(stored), "Measure the loss without it", "science", LOSS_HELP), since_s)
    if stored:
        st.markdown(rows.loss_in_words(stored[-1], reading.name))


def _table_of_all(found: HeadsInCorpus) -> bytes:
    return to_csv(pd.DataFrame(rows_of(found)))


def _table_of_windows(found: HeadsInCorpus, fired: list[Fired]) -> bytes:
    return to_csv(pd.DataFrame([example_row(found, each) for each in fired]))
