"""The heads whose attention the Text screen shows, and where they look. The full model's: pruning a head changes what
later heads look at."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.composed import ComposedRun, composed
from engine.heads.attention import Head, HeadView, Overview, head_views, overview
from engine.heads.induction import InductionScores, best_heads
from engine.measurement import Measurement
from engine.models.masks import Mask, parse_heads
from engine.models.session import Target
from engine.studies.removal import induction_heads, without
from engine.texts.passages import text_digest
from pages.ui.controls.controls import with_own
from pages.ui.controls.study import restore
from pages.ui.page.runtime import session
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.widget_writes import hold, write
from pages.ui.page.work import Work
from pages.ui.text.reading import ReadSoFar, TextRun, TextState

HEADS = "text_head"  # query parameter
MARKED = " · induction"  # behind the name of an induction head
Looks = tuple[Overview, Mapping[Head, HeadView]]
HELP = (
    "Its attention colors the text, and is listed next to it. First are induction heads, then what matches prefixes "
    "best. Several can be typed: `L1H1,L3H5` shows the mean of their attention and the sum of what they add."
)


def choose_heads(where: DeltaGenerator, target: Target, known: InductionScores | None) -> list[Head]:
    """Draws the button that prunes the induction heads, the choice of heads, and the button that prunes these; returns
    them, of themselves the best induction head. Empty while that is not known. UsageError if the text names no heads of
    this model."""
    found = () if known is None else induction_heads(known)
    _prune_button(where, "Prune the induction heads", without(target.shape, found).text(), "text_prune_induction")
    best = [] if known is None else best_heads(known.mean["prefix_matching"], target.shape.n_heads_total)
    marked = [target.shape.head_names[flat] + MARKED for flat in found]
    listed = marked + [name for name, _ in best if name + MARKED not in marked]
    first = listed[0] if listed else ""
    hold(HEADS)
    typed = where.selectbox(
        "Head",
        with_own(listed, HEADS),
        key=HEADS,
        help=HELP,
        index=None,
        placeholder=first or "…",
        accept_new_options=True,
        bind="query-params",
        width=160,
    )
    heads = parse_heads((str(typed or "").strip() or first).removesuffix(MARKED), target.shape)
    label = "Prune only these" if len(heads) > 1 else "Prune only this one"
    _prune_button(where, label, " ".join(names_of(heads)), "text_prune")
    return heads


def _prune_button(where: DeltaGenerator, label: str, mask: str, key: str) -> None:
    """Draws a button that prunes what this mask names, and nothing else."""
    where.button(label, disabled=not mask, on_click=restore, args=(mask,), key=key, icon=":material/content_cut:")


def turn(target: Target, heads: Sequence[Head], by: int) -> None:
    """Chooses the head after (1) or before (-1) the last of these, in the next run."""
    layer, head = heads[-1]
    at = (layer * target.shape.n_heads + head + by) % target.shape.n_heads_total
    write(HEADS, target.shape.head_names[at])


def names_of(heads: Sequence[Head]) -> list[str]:
    """Returns names such as `L1H0`."""
    return [f"L{layer}H{head}" for layer, head in heads]


def looks_of(x: TextState, read: ReadSoFar) -> Measurement[Looks] | None:
    """Returns where the chosen heads of the full model look. None without heads, and for a chat or a single token."""
    if not x.heads or x.is_chat or read.full is None or read.full.n_total < 2:
        return None
    return _looks(x.whole.target, x.text, x.heads)


def known_looks(run: TextRun, wanted: Measurement[Looks], read: ReadSoFar, is_shown: bool) -> Looks | None:
    """Returns where the heads look, if that is stored or known soon. It is measured if attention `is_shown`, and else
    once the losses are known, if it is short."""
    found = wanted.stored(session())
    if found is None:
        work = Work("text looks", "Attention", wanted, 1, while_seen=True)
        if is_shown:
            found = work.value()
        elif read.full is not None and len(read.full) == read.full.n_total:
            work.results_so_far()  # a forecast by size is of what such a read has found missing
            work.start_ahead(by_size=True)
        run.waiting[work.slot] = work
    return found


def _looks(target: Target, text: str, heads: Sequence[Head]) -> Measurement[Looks]:
    full = Mask.full(target.shape)

    def body(run: ComposedRun) -> Any:
        views = yield from run.part(head_views(target, text, full, heads))
        seen = yield from run.part(overview(target, text, full))
        return None if views is None or seen is None else (seen, {head: views[head] for head in heads})

    return composed(target, ("looks", text_digest(text), *names_of(heads)), body, 2)


def combined(views: Sequence[HeadView]) -> HeadView:
    """Returns several heads as one: the mean of their patterns, the sum of the logits that they raised."""
    pattern = np.stack([view.pattern for view in views]).mean(0, dtype=np.float32)
    return HeadView(pattern, np.stack([view.raised_nats for view in views]).sum(0, dtype=np.float32))
