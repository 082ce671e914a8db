"""A run or a published series measured at each of its snapshots, through the store, as a `Trajectory`.

One snapshot is in memory at a time. Losses, the in-context score, losses by index, the one token of each text and the
copies come from one pass over the texts; heads' scores and passages are the same records as on the other screens.
"""

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from engine.checkpoints.hub_internals import is_blob
from engine.checkpoints.weight_files import weight_files
from engine.composed import ComposedRun, all_of, composed
from engine.demo import passages as built_in
from engine.errors import HeadroomError, UsageError
from engine.heads.induction import SCORES, InductionScores, fits, induction
from engine.measurement import Measurement
from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.models.session import Session, Target
from engine.progress import Progress, driven
from engine.records import Record, version
from engine.texts.incontext import EARLY, LATE, MIN_TOKENS
from engine.texts.passages import text_digest
from engine.texts.tokenloss import TokenLosses, token_losses
from engine.training.phase_change import Window, window
from engine.training.snapshot_losses import Texts, held_out, of_text, snapshot_ablations, snapshot_losses
from engine.training.trajectory import PassageTrajectory, Series, Trajectory

T = TypeVar("T")
QUANTITIES = ("loss", "icl", "index", "induction", "copies", "passages", "tokens", "ablations")
WITHOUT_ABLATIONS = QUANTITIES[:-1]
N_TEXTS, N_ABLATED_TEXTS, N_ABLATED = 1000, 200, 12
LOSSES, INDUCTION, PASSAGES, ABLATIONS = 10, 2, 3, 20  # how long each takes for one snapshot, relative to the others


@dataclass(frozen=True)
class TrajectoryPlan:
    """The measured quantities (`what`, of QUANTITIES), the number of texts, and between which token indices the
    in-context score lies: 0 = the 50th and the 500th of 512, or the same shares of a shorter context. `around`: tokens
    on either side that it is a mean over. `text`: measured on in place of a run's held-out texts. UsageError: what
    cannot be."""

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
        """(early, late) in texts of this many tokens, from 1; UsageError if there are none."""
        early, late = (given or max(1, round(usual / MIN_TOKENS * n_tokens))
                       for given, usual in ((self.early, EARLY), (self.late, LATE)))  # fmt: skip
        if not 1 <= early < late <= n_tokens:
            raise UsageError(f"the in-context score cannot lie between tokens {early} and {late} of {n_tokens}; give "
                             f"two in order, at most {n_tokens}")  # fmt: skip
        return early, late


@dataclass
class _Results:
    """Results so far, by snapshot number; of the included passages in order, None for a missing one."""

    losses: dict[int, Record] = field(default_factory=dict)
    scores: dict[int, InductionScores] = field(default_factory=dict)
    passages: dict[int, tuple[TokenLosses | None, ...]] = field(default_factory=dict)
    ablations: dict[int, Record] = field(default_factory=dict)


def trajectory(first: Target, series: Series, plan: TrajectoryPlan = TrajectoryPlan()) -> Measurement[Trajectory]:
    """The Trajectory of a series as far as it is measured, None if no snapshot's losses are; its progress counts
    snapshots. `first`: the first of them, as `target_at` gives it.

    HeadroomError: a snapshot was deleted meanwhile, or cannot be read; UsageError: a plan that does not fit.
    """
    n, scored = len(series.models), "induction" in plan.what and fits(first.shape)
    n_ablated = min(n, plan.n_ablated) if "ablations" in plan.what else 0
    each = LOSSES + INDUCTION * scored + PASSAGES * ("passages" in plan.what)

    def body(run: ComposedRun) -> Generator[Progress[Any], None, Trajectory | None]:
        started, texts, results, targets = time.monotonic(), _texts(series, plan), _Results(), list[Target]()
        done, total, run.total = 0, n + n_ablated, n * each + n_ablated * ABLATIONS

        def measure(
            part: Measurement[T], size: int, at: int, into: dict[int, T]
        ) -> Generator[Progress[Any], None, None]:
            """Merges the results of a part of one snapshot `into` the rest; its steps name the snapshot."""

            def named(step: Progress[Any]) -> Progress[Any]:
                message = step.message if step.is_loading else f"step {series.steps[at]}: {step.message}"
                return replace(step, done=done, total=total, message=message)

            if (value := (yield from driven(run.known(part, size), named))) is not None:
                into[at] = value

        def so_far() -> Progress[Trajectory]:
            value = _trajectory(series, plan, texts, targets, results)
            return Progress(done, total, value, cached=run.cached, share=run.done / run.total)

        for at in range(n):
            targets.append(target := target_at(run.session, series, at))
            yield from measure(snapshot_losses(target, texts), LOSSES, at, results.losses)
            if scored:
                yield from measure(induction(target), INDUCTION, at, results.scores)
            if "passages" in plan.what:
                losses = [token_losses(target, passage.text, Mask.full(target.shape)) for passage in built_in()]
                yield from measure(all_of(losses), PASSAGES, at, results.passages)
            done += 1
            yield so_far()
        value = so_far().value
        if value is not None and len(results.losses) == n:
            for at in ablated_at(value.tokens, window(value.tokens, value.icl), n_ablated):
                part = snapshot_ablations(targets[at], texts, plan.n_ablated_texts)
                yield from measure(part, ABLATIONS, at, results.ablations)
                done += 1
                yield so_far()
        run.total, value = total, so_far().value
        return value and replace(value, about={**value.about, "seconds": round(time.monotonic() - started, 1)})

    about = ("trajectory", series.models, replace(plan, text=text_digest(plan.text)))
    return composed(first, about, body)


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


def target_at(session: Session, series: Series, at: int = 0) -> Target:
    """One snapshot of a series, as it is measured. HeadroomError: it was deleted."""
    model = series.models[at]
    if series.run is not None and not (Path(model) / "model.safetensors").is_file():
        raise HeadroomError(f"the snapshot of step {series.steps[at]} of {series.run.folder} is gone; start again, and "
                            f"the others are measured")  # fmt: skip
    return session.target(LoadSpec(model, "fp32"))


def _texts(series: Series, plan: TrajectoryPlan) -> Texts:
    if plan.text:
        return of_text(plan.text, plan.source or "a text", plan.n_texts)
    if series.run is None or series.run.is_shipped:
        return of_text("\n\n".join(passage.text for passage in built_in()), "the built-in passages", plan.n_texts)
    source = f"held-out text: {series.run.about.get('text', 'of the run')}"
    return held_out(series.run.held_out(), source, plan.n_texts, series.run.alphabet)


def _trajectory(
    series: Series, plan: TrajectoryPlan, texts: Texts, targets: Sequence[Target], found: _Results
) -> Trajectory | None:
    if not found.losses:
        return None
    n, shape = len(series.models), targets[0].shape
    first = found.losses[min(found.losses)]
    early, late = plan.indices(first.arrays["by_index"].shape[0])
    by_index, copies, token_losses = (_rows(n, {at: record.arrays[name] for at, record in found.losses.items()})
                                      for name in ("by_index", "copies", "token_losses"))  # fmt: skip
    period = copies.shape[1] // 2
    heads = {name: _rows(n, {at: scores.mean[name] for at, scores in found.scores.items()},
                         (shape.n_layers, shape.n_heads)) for name in SCORES}  # fmt: skip
    passages = {}
    for number, passage in enumerate(built_in()):
        each = {at: losses for at, of in found.passages.items() if (losses := of[number]) is not None}
        if each:
            pieces = tuple(next(iter(each.values())).pieces)
            passages[passage.title] = PassageTrajectory(pieces, _rows(n, {at: of.loss_nats for at, of in each.items()}))
    ablated = np.array(sorted(found.ablations), np.int64)
    records = [found.ablations[at].arrays for at in ablated]
    none = np.zeros((0, shape.n_layers, shape.n_heads), np.float32)
    icl_of = [_icl(arrays["by_index"], early, late, plan.around) for arrays in records]
    about = {
        "text": texts.source, "text_digest": first.receipt["used"],
        "n_texts": first.receipt["n_texts"], "n_ablated_texts": records[0]["token_losses"].shape[2] if records else 0,
        "early": early, "late": late, "around": plan.around, "n_ctx": by_index.shape[1], "period": period,
        "precision": "fp32", "same_weights": _same_weights(series, targets),
        "versions": {name: version(name) for name in ("torch", "transformers")},
    }  # fmt: skip
    if plan.early or plan.late:
        about["asked"] = asdict(plan) | {"text": bool(plan.text)}
    return Trajectory(
        series.name, series.label, series.run.as_json() if series.run else None, about,
        steps=np.array(series.steps, np.int64), tokens=np.array(series.tokens, np.int64),
        loss=by_index.mean(1), icl=_icl(by_index, early, late, plan.around),
        first_copy=copies[:, :period].mean(1), second_copy=copies[:, period:].mean(1), by_index=by_index,
        token_losses=token_losses, heads=heads, passages=passages, ablated=ablated,
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
    """(n, ...) float32, nan for missing rows."""
    found = np.full((n, *(shape or next(iter(rows.values())).shape)), np.nan, np.float32)
    for at, row in rows.items():
        found[at] = row
    return found


def _same_weights(series: Series, targets: Sequence[Target]) -> list[list[int]]:
    """Steps next to each other whose weights are the same: some published branches hold final ones."""
    pairs = zip(zip(series.steps, targets, strict=False), zip(series.steps[1:], targets[1:], strict=False),
                strict=False)  # fmt: skip
    return [[a, b] for (a, one), (b, other) in pairs if _weights(one) == _weights(other)]


def _weights(target: Target) -> tuple[str, ...]:
    """A value that is equal for equal weights: for a Hub model the content names of its cached files, as its digest is
    its name's."""
    files = [file.resolve() for file in weight_files(target.identity.folder)]
    if all(map(is_blob, files)):
        return tuple(file.name for file in files)
    return (target.identity.digest,)
