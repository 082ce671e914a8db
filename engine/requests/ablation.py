"""Accuracy without heads: `AblateHeads`, each alone and the induction heads together."""

from dataclasses import dataclass
from typing import ClassVar

from engine.importance.criteria import CRITERIA, KINDS, MEASURED_BY
from engine.importance.scores import ORACLES
from engine.measurement import Measurement
from engine.models.session import Session
from engine.requests.base import NamesTask, RequestRun, Result
from engine.requests.fields import choice, number
from engine.requests.shared_fields import MOST
from engine.studies.ablations import Ablations, ablations
from engine.studies.surveys import describe_task
from engine.views.accuracy import ablation_view

SCORES = tuple(each.heads for name, each in CRITERIA.items() if name not in KINDS)
MEASURED = CRITERIA["oracle"].heads


@dataclass(frozen=True, kw_only=True)
class AblateHeads(NamesTask):
    """Measure accuracy without heads: the costliest alone, the induction heads alone and together, and random ones. The
    value is Ablations."""

    command: ClassVar[str] = "ablate"
    group: ClassVar[str] = "Scores"
    limit: int | None = number(64, (1, MOST), "number of training questions, as a stratified sample (default: 64)")
    best: int = number(5, (0, MOST), "number of the costliest heads (default: 5)")
    score: str = choice(
        MEASURED,
        SCORES,
        f"score that chooses the costliest heads (default: {MEASURED}, the accuracy lost without each of all heads)",
    )

    def measurement(self, session: Session) -> Measurement[Ablations]:
        task = self.task_spec(session, "train")
        return ablations(self.target(session), task, self.score, self.best, self.limit, self.data_dir)

    def measure(self, run: RequestRun) -> Result:
        found, task = run.value(self.measurement(run.session)), self.task_spec(run.session)
        names, together = found.shape.head_names, found.together
        removed = together.removed
        fields = {
            "task": self.task, "shots": self.shots, "n": found.n, "score": self.score,
            "costliest": [names[head] for head in found.costliest],
            "induction_heads": [names[head] for head in found.induction_heads],
            "alone": [
                {"head": names[head], "acc_lost": -each.difference, "ci95": [-end for end in reversed(each.interval)],
                 "p": each.p_mcnemar, "is_clear": head in found.clear}
                for head, each in found.alone.items()
            ],
            "together": None if removed is None else {
                "acc": removed.full, "acc_without": removed.pruned, "p": removed.change.p_mcnemar,
                "acc_without_random": [each.pruned for each in together.draws],
            },
        }  # fmt: skip
        label = "" if self.score in ORACLES else MEASURED_BY[self.score].label.lower()
        return Result(found, fields, ablation_view(found, describe_task(task), label))
