"""The text of the Text screen, token by token: what is drawn again while it is measured."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import streamlit as st

from engine.measurement import Measurement
from engine.texts.tokenloss import TokenLosses, have_same_tokens
from pages.ui.figures.empty import unread_text
from pages.ui.figures.token_text import (
    ATTENTION,
    CHANGE,
    LOSS,
    WORDS,
    component_data,
    first_shown,
    looks_data,
    token_text,
)
from pages.ui.page.marks import counts, mark
from pages.ui.page.tables import pruned_counts
from pages.ui.text import tables
from pages.ui.text.continued import written
from pages.ui.text.looks import HEADS, Looks, combined, known_looks, looks_of, names_of, turn
from pages.ui.text.reading import PRUNED, Read, ReadSoFar, Side, TextRun, TextState, read_so_far

SHADE = {LOSS: "Loss", ATTENTION: "Attention"}
SHADE_HELP = (
    "By loss: the change of each token's loss, in nats, or the loss if nothing is pruned. By attention: where a head "
    "of the full model looks to predict the token that you point at."
)
INDUCTION = "induction head"
ALSO_COPY = {1: "1 other induction head is left: it can copy too."}
OF_FULL = " (full model)"
TWO_MODELS = {"a": "A", "b": "B", "change": "B − A", "better": "B better", "worse": "B worse"}
TOKEN = "text_token"  # query parameter
ALONE = "text alone"  # in the session: text and models whose tokens were found to differ
DRAWN = "text drawn"  # in the session: the text drawn last
BEFORE = "text pruned"  # in the session: the pruned model drawn last


@dataclass(frozen=True)
class TextView:
    """What the text is drawn with.

    `side`: the pruned model, None until its order is known
    `before`: the one drawn last
    `first`: what both models had read when the page ran
    `wanted`, `looks`: where the heads look, if there is anything to show, and once that is known
    `part`, `n_parts`: the part of the text that is drawn
    `asked`: the locked token and the heads that the page was drawn for
    """

    x: TextState
    run: TextRun
    side: Side | None
    before: Side | None
    first: ReadSoFar
    wanted: Measurement[Looks] | None
    looks: Looks | None
    part: int
    n_parts: int
    asked: tuple[str, str]

    @property
    def is_whole(self) -> bool:
        """Returns whether both models had read the text when the page ran."""
        return self.first.is_whole(self.side)

    @property
    def read(self) -> ReadSoFar:
        """Returns what both models have read by now."""
        return read_so_far(self.x, self.side, self.before)

    @cached_property
    def chosen(self) -> Read:
        """Returns the text that both models have read, with the locked token or the one that is shown first."""
        full, pruned, locked = self.first.full, self.first.pruned, int(self.asked[0] or 0) - 1
        assert full is not None and self.side is not None
        is_locked, data = 0 <= locked < len(full), self.whole[1]
        at = first_shown(data)
        token = locked if is_locked else None if at is None else data["start"] + at
        return Read(self.x, self.side, full, pruned, token, is_locked)

    @cached_property
    def whole(self) -> tuple[str, dict[str, Any]]:
        """Returns what `component` gives of what both models had read when the page ran."""
        assert self.first.full is not None
        return self.component(self.first.full, self.first.pruned)

    def component(self, full: TokenLosses, pruned: TokenLosses | None) -> tuple[str, dict[str, Any]]:
        """Returns what shades the text, and the data of its component."""
        x, shown = self.x, None if pruned is None else tables.extended(pruned, full)
        tokens = tables.part_range(self.part, full.n_total)
        data = component_data(full, shown, tokens, tables.landmarks_of(full, shown, x.landmarks))
        if self.looks is not None:
            seen, views = self.looks
            of = ", ".join(names_of(x.heads)) + ("" if pruned is None else OF_FULL)
            data["looks"] = looks_data(of, seen, combined([*views.values()]), tokens)
            if x.shade == ATTENTION:
                return ATTENTION, data
        return LOSS if pruned is None else CHANGE, data

    def draw(self) -> None:
        """Draws the text with the losses so far, and the progress of the rest."""
        x, read = self.x, self.read
        full, pruned = read.full, read.pruned
        if full is None:
            self.run.progress()
            unread_text(x.text)
            return
        if self.n_parts != tables.n_parts(full.n_total) or (pruned is not None and not have_same_tokens(full, pruned)):
            st.rerun()  # the whole page needs to know
        is_one_model = x.full.target == x.whole.target
        without = self.without(read.of)
        says, help = tables.losses_finding(full, pruned, without)
        read_by_all = len(full) if pruned is None else min(len(full), len(pruned))
        if read_by_all < full.n_total:
            says += f" so far, {read_by_all:,} of {full.n_total:,} tokens"
        names = "" if is_one_model or read.of is None else f" A: {x.full.name} · B: {read.of.name}"
        st.markdown(says + names, help=help)
        view, data = self.whole if self.is_whole else self.component(full, pruned)
        data = {**data, "written": written(self.chosen) if self.is_whole else None}
        turns = partial(turn, x.whole.target, x.heads) if x.heads else None
        words = WORDS if is_one_model else TWO_MODELS
        note = read.note or self._note(read, without)
        token_text(data, view, tables.FULL_NATS, x.name, full.n_total, note, words, lock=TOKEN, turn=turns)
        self.run.progress()
        if self.asked != asked():
            st.rerun()  # what is below is of another token, or of other heads
        state = "measured" if read.is_whole(self.side) else "measuring"
        mark("losses", state, tokens=len(full), **counts(read.of.mask if read.of is not None else None))

    def without(self, of: Side | None) -> str:
        """Returns what is pruned, such as "the 4 induction heads" or "L1H2, an induction head"; "" if that is not all
        that the two models differ in."""
        if of is None or self.x.full.target != of.target:
            return ""
        words, pruned = pruned_counts(of.mask), ~np.array(of.mask.heads)
        known, is_one = self.x.known, words == "1 head"
        words = of.mask.text() if is_one else words
        if known is None or not of.mask.n_heads_pruned or not known.is_induction_head[pruned].all():
            return words
        if is_one:
            return f"{words}, an {INDUCTION}"
        return "the " * (not self._n_left(of)) + words.replace("head", INDUCTION, 1)

    def _n_left(self, of: Side) -> int:
        """Returns how many induction heads are not pruned."""
        assert self.x.known is not None
        return int((self.x.known.is_induction_head & np.array(of.mask.heads)).sum())

    def _note(self, read: ReadSoFar, without: str) -> str:
        """Returns that induction heads are left that do what the pruned ones did, or else which words are hit hardest;
        "" until both models have read the text, and next to the legend of attention."""
        if read.of is None or self.x.shade == ATTENTION:
            return ""
        n = self._n_left(read.of) if INDUCTION in without else 0
        if n:
            return ALSO_COPY.get(n, f"{n} other induction heads are left: they can copy too.")
        return self.hardest if read.is_whole(self.side) else ""

    @cached_property
    def hardest(self) -> str:
        """Returns which words are hit hardest, once both models have read the text."""
        read = self.read
        return "" if read.full is None or read.pruned is None else tables.hardest_words(read.full, read.pruned)


def read_view(x: TextState, run: TextRun, side: Side | None) -> TextView:
    """Returns what the text is drawn with, draws the choice of its part, and starts what is missing. `side`: the pruned
    model, None until its order is known."""
    before = st.session_state.get(BEFORE)
    if side is not None and side != x.full and run.losses(x, PRUNED, side) is not None:
        st.session_state[BEFORE] = side
    first = read_so_far(x, side, before)
    if first.full is not None and first.pruned is not None and not have_same_tokens(first.full, first.pruned):
        st.session_state[ALONE] = x.models
        st.rerun()
    part, n_parts = choose_part(0 if first.full is None else first.full.n_total)
    wanted = looks_of(x, first)
    looks = None if wanted is None else known_looks(run, wanted, first, x.shade == ATTENTION)
    return TextView(x, run, side, before, first, wanted, looks, part, n_parts, asked())


def note_drawn(name: str, text: str) -> None:
    """Notes that a text is drawn."""
    st.session_state[DRAWN] = name, text


def choose_part(n_total: int) -> tuple[int, int]:
    """Draws the choice of a part of a text of so many tokens, if it has several; returns the part and their number."""
    n_parts = tables.n_parts(n_total)
    if n_parts == 1:
        return 1, 1
    part = st.pagination(n_parts, key=f"text_part_{n_parts}")
    tokens = tables.part_range(part, n_total)
    st.caption(f"Part {part} of {n_parts}: tokens {tokens.start + 1:,} to {tokens.stop:,} of {n_total:,}.")
    mark("part", "shown", part=part, of=n_parts, first=tokens.start + 1, last=tokens.stop)
    return part, n_parts


def asked() -> tuple[str, str]:
    """Returns the locked token, by its number in the text, and the typed heads; "" for none."""
    return str(st.session_state.get(TOKEN) or ""), str(st.session_state.get(HEADS) or "")
