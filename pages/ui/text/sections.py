"""Below the text: the loss by token index of a long text, with the in-context gain, the logit lens of the chosen token,
and the losses token by token."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from engine.composed import ComposedRun, composed
from engine.heads.logit_lens import LogitLens, logit_lens
from engine.importance.orders import Pruning, evidence
from engine.importance.rules import Evidence
from engine.measurement import Measurement, Workload
from engine.models.session import Target
from engine.receipts import Measurements
from engine.requests import MeasureAttention, MeasureLens, Request
from engine.requests.texts import attention_file
from engine.studies.one_head import AROUND
from engine.texts.incontext import MIN_TOKENS, MeanOverTexts, icl_change, icl_score
from engine.texts.passages import LOG_BOOKS, Source, text_digest, texts_of
from engine.texts.tokenloss import TokenLosses, losses_of_texts
from engine.timing.workload import CHARACTERS_A_TOKEN
from engine.views.texts import BY_INDEX, SERIES, by_index_part, gain_in_words, token_lens_view
from pages.ui.controls.controls import folded
from pages.ui.downloads.origin import Origin, of_model
from pages.ui.figures.drawing import draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.page.tables import number
from pages.ui.sections.section import Section, draw_part, draw_section
from pages.ui.text import tables
from pages.ui.text.continued import continued
from pages.ui.text.looks import names_of
from pages.ui.text.reading import Read
from pages.ui.text.view import TextView

N_WINDOWS = LOG_BOOKS.n_texts  # enough for a clear interval, few enough to be read at once
MOST_READ = N_WINDOWS * MIN_TOKENS * CHARACTERS_A_TOKEN  # characters
GAIN_SHOWS = "You will see how the loss falls along the text, in the full and in the pruned model."
GAIN_HELP = (
    f"Of the first {N_WINDOWS} windows of {MIN_TOKENS} tokens, each read by itself. The in-context gain is the loss at "
    f"token 50 minus that at token 500, each with {AROUND} tokens on either side; above 0, later tokens are predicted "
    "better. It is the in-context score of Olsson et al. with its sign reversed, the same as on Training."
)
LENS_SHOWS = "You will see what the model would guess in place of the chosen token after each layer."
LENS_HELP = (
    "Logit lens: the residual stream after each layer, read by the final norm and the unembedding as if no layer "
    "followed. Choose a token by a click in the text."
)
Losses = Mapping[str, tuple[np.ndarray, ...]]  # of each text, by series
Lenses = Mapping[str, LogitLens]  # by series


def draw_below(view: TextView) -> tuple[Origin, Sheet]:
    """Draws what is below a text that both models have read; returns what the screen's downloads are made of."""
    x, side, full, pruned = view.x, view.side, view.first.full, view.first.pruned
    assert full is not None and side is not None
    frame = tables.token_frame(full, pruned)
    sheet = Sheet({"Text": partial(tables.tinted_text, frame, full)}, {"Losses by token": frame})
    finding = tables.losses_finding(full, pruned, view.without(side))[0]
    sheet.says, sheet.views = [finding], {finding: [*sheet.pictures]}
    requests: list[Request] = [x.request(side)]
    measured: dict[str, Measurement[Any]] = {"Full model": x.losses(x.full), "Pruned model": x.losses(side)}
    measured |= ranking_part(side.target, x.pruning, x.data_dir)
    if view.looks is not None and view.wanted is not None:
        heads = ",".join(names_of(x.heads))
        requests.append(MeasureAttention(**of_model(side.target), **x.named, heads=heads, out="attention.csv"))
        measured["Attention"], sheet.tables["Attention"] = view.wanted, partial(attention_file, ".csv", *view.looks)
    for section in _draw_sections(view.chosen, frame, sheet, view.run.since_s):
        requests.append(section.request)
        measured[section.title] = section.measured
    return Origin("Text", requests, measured, x.in_words(side, full.n_total)), sheet


def _draw_sections(read: Read, frame: pd.DataFrame, sheet: Sheet, since_s: float) -> list[Section]:
    """Draws all of them; returns the sections that are open. `frame` of `tables.token_frame`."""
    sections = [continued(read)]
    sections += [gain_section(read)] * read.has_gain + [lens_section(read)] * (not read.x.is_chat)
    opened = [section for section in sections if draw_section(section, sheet, since_s)]
    folded("Loss token by token", "text_tokens", partial(draw_tokens, frame, read.full), in_address=True)
    return opened


def gain_section(read: Read) -> Section:
    """Returns the section of the in-context gain, of a text that is long enough."""
    request = read.x.request(read.side, texts=N_WINDOWS, average_tokens=AROUND)
    return Section("In context", request, read.side.target, GAIN_SHOWS, of=windows(read), draw=draw_gain)


def windows(read: Read) -> Measurement[Losses]:
    """Returns the losses of the first windows of the text by both models."""
    x = read.x
    kind, content = ("passage", "") if "passage" in x.named else ("text", x.text)
    source = Source(kind, x.name, content, N_WINDOWS)
    sides = {SERIES["full"]: x.full} | ({SERIES["masked"]: read.side} if read.pruned is not None else {})

    def body(run: ComposedRun) -> Any:
        texts = yield from run.part(texts_of(x.full.target, source), 0)
        found = dict[str, tuple[np.ndarray, ...]]()
        for name, side in sides.items():
            if texts is None:
                run.expect(name, partial(Workload, {"forward": float(min(len(x.text), MOST_READ))}))
                continue
            losses = yield from run.part(losses_of_texts(side.target, texts, side.mask, f"{name}, windows"), N_WINDOWS)
            found |= {} if losses is None else {name: losses}
        return found if len(found) == len(sides) else None

    about = ("windows", text_digest(x.text), *(f"{side.target} {side.mask.key()}" for side in sides.values()))
    return composed(read.side.target, about, body, len(sides) * N_WINDOWS)


def draw_gain(losses: Losses, sheet: Sheet) -> None:
    """Draws the in-context gain of both models, and their loss by token index."""
    full, pruned = losses[SERIES["full"]], losses.get(SERIES["masked"])
    scores: dict[str, MeanOverTexts] = {"full": icl_score(full, AROUND)}
    if pruned is not None:
        scores |= {"masked": icl_score(pruned, AROUND), "change": icl_change(full, pruned, AROUND)}
    finding = gain_in_words(scores, pruned is not None)
    sheet.says.append(finding)
    st.markdown(finding, help=GAIN_HELP)
    draw_part(by_index_part(losses, True), BY_INDEX, finding, sheet)


def lens_section(read: Read) -> Section:
    """Returns the folded section of the logit lens of the chosen token."""
    x, target = read.x, read.side.target
    each = {name: logit_lens(target, x.text, mask) for name, mask in read.masks.items()}

    def body(run: ComposedRun) -> Any:
        found = dict[str, LogitLens]()
        for name, wanted in each.items():
            lens = yield from run.part(wanted, label=name)
            found |= {} if lens is None else {name: lens}
        return found if len(found) == len(each) else None

    request = MeasureLens(**of_model(target), **x.named, mask=read.side.mask.text(), out="lens.csv")
    of = composed(target, ("lenses", *(wanted.key for wanted in each.values())), body, len(each))
    draw = partial(_draw_lens, read.token)
    return Section("Logit lens", request, target, LENS_SHOWS, "at once", is_folded=True, of=of, draw=draw)


def _draw_lens(token: int | None, found: Lenses, sheet: Sheet) -> None:
    n, first = min(len(each.ends) for each in found.values()), max(each.first_text for each in found.values())
    at = n - 1 if token is None else token
    if not (0 if first else 1) <= at < n:
        st.caption(f"The lens reads the first {n:,} tokens; choose one of them after the first.", help=LENS_HELP)
        return
    view = token_lens_view(found, at)
    sheet.says.append(view.finding)
    st.markdown(view.finding, help=LENS_HELP)
    draw_part(view.parts[0], "text lens", view.finding, sheet, has_table=False)


def draw_tokens(frame: pd.DataFrame, full: TokenLosses) -> None:
    """Draws the losses token by token, the largest changes first; `frame` of `tables.token_frame`."""
    by = "change_nats" if "change_nats" in frame else "loss_full_nats"
    frame = frame.assign(word=tables.words_of(full)[: len(frame)])
    shown = frame.reindex(frame[by].abs().sort_values(ascending=False, kind="stable").index)
    titles: dict[str, Any] = {
        "index": st.column_config.NumberColumn("No.", format="%d", width=60),
        "word": "Word",
        "token": "Token",
        "loss_full_nats": "Full, nats" if by == "change_nats" else "Loss, nats",
        "loss_pruned_nats": "Pruned, nats",
        "change_nats": "Change, nats",
    }
    titles = {name: title for name, title in titles.items() if name in shown}
    formats = {name: number for name in titles if name.startswith("loss")}
    formats |= {"change_nats": partial(number, sign=True)} if by == "change_nats" else {}
    draw_table(shown, titles, "The loss of each token", formats=formats)


def ranking_part(target: Target, pruning: Pruning, data_dir: str | None) -> Measurements:
    """Returns the scores that rank the levels of a pruning; empty if they need none."""
    wanted = pruning.missing(Evidence())
    if not wanted:
        return {}
    return {"Ranking": evidence(target, pruning.task, pruning.ranking, wanted, data_dir=data_dir)}
