"""A run or a published series measured at each of its snapshots, through the store: `measure` gives the `Trajectory`,
`stored` the one that is stored already.

One snapshot is in memory at a time. Losses, the in-context score, losses by index, the one token of each text and the
copies come from one pass over the texts; heads' scores and passages are the same records as on the other screens.
"""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.demo import passages as built_in
from engine.errors import HeadroomError, UsageError
from engine.heads.induction import SCORES, InductionScores, fits, induction
from engine.models.hub_internals import is_blob
from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.models.subject import Lab, Subject
from engine.models.weight_files import weight_files
from engine.pieces import Piece, found, measured
from engine.progress import Progress
from engine.records import Record, version
from engine.texts.incontext import EARLY, LATE, MIN_TOKENS
from engine.texts.tokenloss import TokenLosses, token_losses
from engine.training.phase_change import Window, window
from engine.training.series import Series
from engine.training.snapshot_losses import Texts, ablations_piece, held_out, losses_piece, of_text
from engine.training.trajectory import Passage, Trajectory

QUANTITIES = ("loss", "icl", "index", "induction", "copies", "passages", "tokens", "ablations")
WITHOUT_ABLATIONS = QUANTITIES[:-1]
N_TEXTS, N_ABLATED_TEXTS, N_ABLATED = 1000, 200, 12
SHARES = {"induction": 0.2, "passages": 0.3, "ablations": 2.0}  # of the time of the losses, about


@dataclass(frozen=True)
class Plan:
    """What is measured (`what`, of QUANTITIES) on how many texts, and between which token indices the in-context score
    lies: 0 = the 50th and the 500th of 512, or the same shares of a shorter context. `around`: tokens on either side
    that it is a mean over. `text`: measured on in place of a run's held-out texts. UsageError: what cannot be."""

    what: tuple[str, ...] = QUANTITIES
    n_texts: int = N_TEXTS
    n_ablated_texts: int = N_ABLATED_TEXTS
    n_ablated: int = N_ABLATED
    early: int = 0
    late: int = 0
    around: int = 0
    text: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        for name in self.what:
            if name not in QUANTITIES:
                raise UsageError(f"quantity {name!r} is unknown; choose of {', '.join(QUANTITIES)}")

    def indices(self, n_tokens: int) -> tuple[int, int]:
        """(early, late) in texts of so many tokens, from 1; UsageError where there are no such."""
        early, late = (given or max(1, round(usual / MIN_TOKENS * n_tokens))
                       for given, usual in ((self.early, EARLY), (self.late, LATE)))  # fmt: skip
        if not 1 <= early < late <= n_tokens:
            raise UsageError(f"the in-context score cannot lie between tokens {early} and {late} of {n_tokens}; give "
                             f"two in order, at most {n_tokens}")  # fmt: skip
        return early, late


@dataclass
class _Found:
    """What there is so far, by the place of a snapshot."""

    losses: dict[int, Record]
    scores: dict[int, InductionScores]
    passages: dict[int, dict[str, TokenLosses]]
    ablations: dict[int, Record]


def measure(lab: Lab, series: Series, plan: Plan = Plan()) -> Iterator[Progress[Trajectory]]:
    """Yields Progress in snapshots, its value the Trajectory so far; what is stored is not computed again.

    HeadroomError: a snapshot was deleted meanwhile, or cannot be read; UsageError: a plan that does not fit.
    """
    started, texts, so_far = time.monotonic(), _texts(series, plan), _Found({}, {}, {}, {})
    subjects: list[Subject] = []
    each = 1 + sum(SHARES[name] for name in ("induction", "passages") if name in plan.what)
    n = len(series.models)
    more = min(n, plan.n_ablated) if "ablations" in plan.what else 0
    total, whole, all_cached = n + more, n * each + more * SHARES["ablations"], True

    def told(steps: Iterator[Progress[Any]], at: int, before: float, size: float) -> Generator[Any, None, Any]:
        """Gives the last value; its steps have their place in the whole."""
        nonlocal all_cached
        value = None
        for step in steps:
            value = step.value if step.value is not None else value
            all_cached &= step.cached
            message = step.message if step.is_loading else f"step {series.steps[at]}: {step.message}"
            yield Progress(done, total, None, message, all_cached, step.is_loading, (before + size * step.part) / whole)
        return value

    done, share = 0, 0.0
    for at in range(n):
        subject = _subject(lab, series, at)
        subjects.append(subject)
        so_far.losses[at] = yield from told(_one(lab, subject, losses_piece(subject, texts)), at, share, 1)
        plan.indices(so_far.losses[at].arrays["by_index"].shape[0])
        share += 1
        if "induction" in plan.what:
            if fits(subject.shape):
                steps = induction(subject, "olsson").run(lab)
                so_far.scores[at] = yield from told(steps, at, share, SHARES["induction"])
            share += SHARES["induction"]
        if "passages" in plan.what:
            so_far.passages[at], shown = {}, built_in()
            for passage in shown:
                steps = token_losses(subject, passage.text, Mask.full(subject.shape)).run(lab)
                losses = yield from told(steps, at, share, SHARES["passages"] / len(shown))
                so_far.passages[at][passage.title] = losses
                share += SHARES["passages"] / len(shown)
        done += 1
        yield Progress(done, total, _trajectory(series, plan, subjects, so_far), cached=all_cached, share=share / whole)
    if more:
        held = _trajectory(series, plan, subjects, so_far)
        for at in ablated_at(held.tokens, window(held.tokens, held.icl), more):
            piece = ablations_piece(subjects[at], texts, plan.n_ablated_texts)
            so_far.ablations[at] = yield from told(_one(lab, subjects[at], piece), at, share, SHARES["ablations"])
            share, done = share + SHARES["ablations"], done + 1
            value = _trajectory(series, plan, subjects, so_far)
            yield Progress(done, total, value, cached=all_cached, share=share / whole)
    value = _trajectory(series, plan, subjects, so_far)
    value = replace(value, about={**value.about, "seconds": round(time.monotonic() - started, 1)})
    yield Progress(total, total, value, cached=all_cached)


def stored(lab: Lab, series: Series, plan: Plan = Plan()) -> Trajectory | None:
    """The Trajectory as far as it is stored, None where no snapshot's losses are; loads no model, computes nothing."""
    texts, so_far, subjects = _texts(series, plan), _Found({}, {}, {}, {}), []
    for at in range(len(series.models)):
        subject = _subject(lab, series, at)
        subjects.append(subject)
        if (record := found(lab.store, losses_piece(subject, texts))) is not None:
            so_far.losses[at] = record
        if "induction" in plan.what:
            scores = induction(subject, "olsson").stored(lab) if fits(subject.shape) else None
            so_far.scores |= {} if scores is None else {at: scores}
        if "passages" in plan.what:
            each = {passage.title: token_losses(subject, passage.text, Mask.full(subject.shape)).stored(lab)
                    for passage in built_in()}  # fmt: skip
            so_far.passages[at] = {title: losses for title, losses in each.items() if losses is not None}
        if "ablations" in plan.what:
            piece = ablations_piece(subject, texts, plan.n_ablated_texts)
            if (record := found(lab.store, piece)) is not None:
                so_far.ablations[at] = record
    return _trajectory(series, plan, subjects, so_far) if so_far.losses else None


def ablated_at(tokens: np.ndarray, where: Window | None, most: int = N_ABLATED) -> list[int]:
    """The snapshots at which every head is ablated: half of them evenly spread, half in the window, then wherever the
    gaps are largest."""
    n = len(tokens)
    if n <= most:
        return list(range(n))
    wanted = {int(at) for at in np.linspace(0, n - 1, most if where is None else most // 2).round()}
    if where is not None:
        inside = np.linspace(where.first, where.last, most - len(wanted)).round()
        wanted |= {int(at) for at in inside}
    while len(wanted) < most:
        listed = sorted(wanted)
        gap, at = max((b - a, a) for a, b in zip(listed, listed[1:], strict=False))
        wanted.add(at + gap // 2)
    return sorted(wanted)


def _one(lab: Lab, subject: Subject, piece: Piece) -> Iterator[Progress[Record]]:
    """A piece that is read or measured."""
    record, cached = found(lab.store, piece), True
    if record is None:
        record, cached = (yield from measured(lab, subject, piece)), False
    yield Progress(1, 1, record, cached=cached)


def _subject(lab: Lab, series: Series, at: int) -> Subject:
    model = series.models[at]
    if series.run is not None and not (Path(model) / "model.safetensors").is_file():
        raise HeadroomError(f"the snapshot of step {series.steps[at]} of {series.run.folder} is gone; start again, and "
                            f"the others are measured")  # fmt: skip
    return lab.subject(LoadSpec(model, "fp32"))


def _texts(series: Series, plan: Plan) -> Texts:
    if plan.text:
        return of_text(plan.text, plan.source or "a text", plan.n_texts)
    if series.run is None:
        return of_text("\n\n".join(passage.text for passage in built_in()), "the built-in passages", plan.n_texts)
    source = f"held-out text: {series.run.about.get('text', 'of the run')}"
    return held_out(series.run.held_out(), source, plan.n_texts, series.run.alphabet)


def _trajectory(series: Series, plan: Plan, subjects: Sequence[Subject], so_far: _Found) -> Trajectory:
    n, shape = len(series.models), subjects[0].shape
    first = so_far.losses[min(so_far.losses)]
    early, late = plan.indices(first.arrays["by_index"].shape[0])
    by_index = _rows(n, {at: record.arrays["by_index"] for at, record in so_far.losses.items()})
    copies = _rows(n, {at: record.arrays["copies"] for at, record in so_far.losses.items()})
    period = copies.shape[1] // 2
    heads = {name: _rows(n, {at: scores.mean[name] for at, scores in so_far.scores.items()},
                         (shape.n_layers, shape.n_heads)) for name in SCORES}  # fmt: skip
    passages = {}
    for title in {title: None for each in so_far.passages.values() for title in each}:
        each = {at: of[title] for at, of in so_far.passages.items() if title in of}
        pieces = tuple(next(iter(each.values())).pieces)
        passages[title] = Passage(pieces, _rows(n, {at: losses.loss_nats for at, losses in each.items()}))
    ablated = np.array(sorted(so_far.ablations), np.int64)
    records = [so_far.ablations[at].arrays for at in ablated]
    none = np.zeros((0, shape.n_layers, shape.n_heads), np.float32)
    icl_of = [_icl(arrays["by_index"], early, late, plan.around) for arrays in records]
    about = {
        "text": first.receipt.get("source", _texts(series, plan).source), "text_digest": first.receipt["used"],
        "n_texts": first.receipt["n_texts"], "n_ablated_texts": records[0]["token_losses"].shape[2] if records else 0,
        "early": early, "late": late, "around": plan.around, "n_ctx": by_index.shape[1], "period": period,
        "precision": "fp32", "same_weights": _same_weights(series, subjects),
        "versions": {name: version(name) for name in ("torch", "transformers")},
    }  # fmt: skip
    if plan.early or plan.late:
        about["asked"] = asdict(plan) | {"text": bool(plan.text)}
    return Trajectory(
        series.name, series.label, series.run.as_json() if series.run else None, about,
        steps=np.array(series.steps, np.int64), tokens=np.array(series.tokens, np.int64),
        loss=by_index.mean(1), icl=_icl(by_index, early, late, plan.around),
        first_copy=copies[:, :period].mean(1), second_copy=copies[:, period:].mean(1), by_index=by_index,
        token_losses=_rows(n, {at: record.arrays["token_losses"] for at, record in so_far.losses.items()}),
        heads=heads, passages=passages, ablated=ablated,
        ablated_icl=np.stack(icl_of).astype(np.float32) if records else none,
        ablated_losses=np.stack([arrays["token_losses"] for arrays in records]) if records else none[..., None],
    )  # fmt: skip


def _icl(by_index: np.ndarray, early: int, late: int, around: int) -> np.ndarray:
    """(...) loss around the late index minus loss around the early one, of mean losses (..., T)."""
    n = by_index.shape[-1]
    late_side, early_side = (by_index[..., max(0, index - 1 - around) : min(n, index + around)].mean(-1)
                             for index in (late, early))  # fmt: skip
    return late_side - early_side


def _rows(n: int, rows: Mapping[int, np.ndarray], shape: tuple[int, ...] | None = None) -> np.ndarray:
    """(n, ...) float32, nan where there is no row."""
    found = np.full((n, *(shape or next(iter(rows.values())).shape)), np.nan, np.float32)
    for at, row in rows.items():
        found[at] = row
    return found


def _same_weights(series: Series, subjects: Sequence[Subject]) -> list[list[int]]:
    """Steps next to each other whose weights are the same: some published branches hold final ones."""
    pairs = zip(zip(series.steps, subjects, strict=False), zip(series.steps[1:], subjects[1:], strict=False),
                strict=False)  # fmt: skip
    return [[a, b] for (a, one), (b, other) in pairs if _weights(one) == _weights(other)]


def _weights(subject: Subject) -> tuple[str, ...]:
    """What is the same where weights are: of a hub model what its cache calls the files by their content, as its digest
    is its name's."""
    files = [file.resolve() for file in weight_files(subject.identity.folder)]
    if all(map(is_blob, files)):
        return tuple(file.name for file in files)
    return (subject.identity.digest,)
