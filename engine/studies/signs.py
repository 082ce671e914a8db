"""Writers and cancellers (Wang 2606.07560): function-vector heads split by the sign of their score, each set removed
without the other, next to random sets of as many other heads. Cancellers lower the right answer, so it should become
likelier without them, and less likely without the writers.

Departure: the sign is that of the function-vector score, not of the direct logit attribution. It is clear by a t test
over the prompts of the score, at a false discovery rate of 5% over all heads.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from engine.accuracy.evaluation import Answers
from engine.composed import ComposedRun, composed
from engine.heads.fills import filled_evaluation
from engine.heads.function_vectors import FunctionVectorScores, function_vectors
from engine.measurement import Measurement, Workload
from engine.models.session import Target
from engine.progress import Progress
from engine.shapes import ModelShape
from engine.statistics import ALPHA, mean_over, paired
from engine.studies.mechanisms import FULL, RANDOM, MechanismSettings, RemovedHeads
from engine.studies.removal import drawn_heads, without
from engine.studies.surveys import SurveySettings, describe_task
from engine.timing.workload import all_characters

SIGNS = {"writer": 1, "canceller": -1}  # of the scores of these heads


@dataclass(frozen=True)
class SignedHeads:
    """The results so far: (L, H) `scores`, and the `answers` with examples by set of heads and task."""

    settings: MechanismSettings
    scores: np.ndarray
    answers: Mapping[RemovedHeads, Mapping[str, Answers]] = field(default_factory=dict)

    def risen(self, removed: RemovedHeads, task: str, instead: RemovedHeads) -> tuple[float, float, float]:
        """Returns by how many nats the right choice is likelier without some heads than without `instead`, with the 95%
        t interval over questions."""
        before, after = (self.answers[each][task].gold_log_likelihood_nats for each in (instead, removed))
        return mean_over(after - before)

    def holds(self, removed: RemovedHeads, task: str) -> bool:
        """Whether the right choice is clearly likelier without cancellers, or less likely without writers, than with
        all heads and than without each of the random sets."""
        drawn = [each for each in self.answers if each.kind == RANDOM and len(each.heads) == len(removed.heads)]
        found = [self.risen(removed, task, each) for each in (RemovedHeads(FULL), *drawn)]
        return all(high < 0 if SIGNS[removed.kind] > 0 else low > 0 for _, low, high in found)

    def rows(self, shape: ModelShape) -> list[dict[str, Any]]:
        """Returns one row per task and set of heads but the empty one: nats that the right choice rises and points that
        are gained, each with its interval, and whether the prediction `holds` (None: of a random set)."""
        full, found = RemovedHeads(FULL), list[dict[str, Any]]()
        for task, before in self.answers.get(full, {}).items():
            for removed in self.answers:
                if removed == full:
                    continue
                nats, low, high = self.risen(removed, task, full)
                change = paired(before.correct, self.answers[removed][task].correct)
                found.append({
                    "task": task, "kind": removed.kind, "draw": removed.draw, "n_heads": len(removed.heads),
                    "nats": nats, "low": low, "high": high, "points": 100 * change.difference,
                    "points_low": 100 * change.interval[0], "points_high": 100 * change.interval[1],
                    "p": change.p_mcnemar, "n": change.n,
                    "holds": None if removed.kind == RANDOM else self.holds(removed, task),
                    "heads": " ".join(shape.head_names[head] for head in removed.heads),
                })  # fmt: skip
        return found


def signed_heads(target: Target, setting: SurveySettings, settings: MechanismSettings) -> Measurement[SignedHeads]:
    """Returns the SignedHeads so far. At most the largest of the shares of all heads is removed, the clearest signs by
    score first; both sets have random ones of their own size."""

    def body(run: ComposedRun) -> Generator[Progress[Any], None, SignedHeads | None]:
        questions = {spec: setting.validation_questions(spec, run.session.store) for spec in settings.specs[::2]}
        size, n_sets = sum(each.n for each in questions.values()), 1 + len(SIGNS) * (1 + settings.n_random)
        run.total = size * (1 + n_sets)
        scores = yield from run.part(function_vectors(target), size, "function-vector scores")
        if scores is None:
            read = float(sum(map(all_characters, questions.values())))
            run.expect("sets of heads", lambda: Workload({"forward": read}).times(n_sets))
            return None
        signed, sets = SignedHeads(settings, scores.mean), sets_by_sign(scores, settings)
        run.total = size * (1 + len(sets))
        for removed in sets:
            answers, mask = dict[str, Answers](), without(target.shape, removed.heads)
            for spec, each in questions.items():
                ranked = partial(setting.train_questions, spec, run.session.store)
                wanted = filled_evaluation(target, each, ranked, mask, settings.fill)
                of_task = yield from run.part(wanted, each.n, f"{describe_task(spec)}, {removed.label}")
                answers |= {} if of_task is None else {spec.name: of_task}
            if len(answers) == len(questions):
                signed = SignedHeads(settings, scores.mean, {**signed.answers, removed: answers})
            yield run.so_far(signed, removed.label)
        return signed

    return composed(target, ("signed heads", setting, settings), body)


def sets_by_sign(scores: FunctionVectorScores, settings: MechanismSettings) -> list[RemovedHeads]:
    """Returns the empty set, then the heads whose score is clearly above and below 0, and for each size random sets of
    heads that are neither."""
    rise = scores.rise.reshape(len(scores.rise), -1)
    mean, clear = rise.mean(0), clearly_signed(rise)
    most = max(1, max(settings.shares) * mean.size // 1000)
    found, others = [RemovedHeads(FULL)], np.flatnonzero(~clear)
    for kind, sign in SIGNS.items():
        heads = [int(head) for head in np.argsort(-sign * mean, kind="stable") if clear[head] and sign * mean[head] > 0]
        found += [RemovedHeads(kind, heads=tuple(heads[:most]))] if heads else []
    for size in dict.fromkeys(len(each.heads) for each in found[1:]):
        for draw in range(settings.n_random):
            found.append(RemovedHeads(RANDOM, draw=draw, heads=drawn_heads(others, size, (size, draw))))
    return found


def clearly_signed(rise: np.ndarray) -> np.ndarray:
    """Returns which of the scores (n, head) differ from 0: by a two-sided t test each over n prompts, such that of
    these heads 5% are expected to be wrong (Benjamini and Hochberg 1995)."""
    from scipy.special import stdtr
    from scipy.stats import false_discovery_control

    error = rise.std(0, ddof=1) / np.sqrt(len(rise))
    t = np.divide(rise.mean(0), error, out=np.zeros_like(error), where=error > 0)
    p = 2 * stdtr(len(rise) - 1, -np.abs(t))
    return false_discovery_control(p) <= ALPHA
