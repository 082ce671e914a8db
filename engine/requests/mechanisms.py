"""Which kinds of heads in-context learning needs: `CompareMechanisms`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from engine.errors import HeadroomError, UsageError
from engine.heads.fills import FILLS
from engine.heads.induction import best_heads
from engine.importance.rankings import permille
from engine.measurement import Measurement
from engine.models.session import Session, Target
from engine.questions.rendering import MAX_SHOTS
from engine.requests.base import OfModel, OnRay, RequestRun, Result, WithData
from engine.requests.fields import choice, flag, names_of, number, output, string
from engine.requests.output import TABLES, file_of, table_file
from engine.requests.shared_fields import MOST, labels_of_examples, training_questions
from engine.studies.mechanism_findings import mechanisms_finding
from engine.studies.mechanisms import (
    KINDS,
    N_ASKED,
    N_OF_DEMO,
    N_RANDOM,
    OF_DEMO,
    OF_PAIRS,
    RANDOM,
    SHARES,
    Mechanisms,
    MechanismSettings,
    depths,
    mechanisms,
    overlaps,
)
from engine.studies.signs import signed_heads
from engine.studies.surveys import SurveySettings
from engine.training.measuring import target_at
from engine.training.trajectory import series_of
from engine.views.mechanisms import N_BEST, mechanisms_view, series_view, signs_view

MOST_SETS = 20


@dataclass(frozen=True, kw_only=True)
class CompareMechanisms(OnRay, WithData, OfModel):
    """Measure what tasks gain from examples without the top heads of each kind. The value is Mechanisms; of a series,
    Mechanisms by step; by sign, SignedHeads."""

    command: ClassVar[str] = "mechanisms"
    group: ClassVar[str] = "Kinds of heads"
    tasks: str | None = string(
        None,
        f"comma-separated task names (default: {', '.join(OF_PAIRS)}; for the included model {', '.join(OF_DEMO)})",
        what="tasks",
    )
    shots: int = number(5, (1, MAX_SHOTS), "number of examples in the prompt, compared with none (default: 5)")
    labels: str = labels_of_examples()
    kinds: str = string(",".join(KINDS), f"comma-separated kinds of heads (default: {', '.join(KINDS)})")
    shares: str = string(
        ",".join(f"{share / 10:g}" for share in SHARES),
        "comma-separated percentages of all heads that are removed, at least one head (default: 5,10)",
    )
    exclusive: bool = flag("also remove as many heads of each kind without those of the other kinds")
    random_sets: int | None = number(
        None,
        (1, MOST_SETS),
        f"number of random sets of heads per percentage (default: {N_RANDOM}; for the included model {N_OF_DEMO})",
    )
    fill: str = choice(
        "zero",
        FILLS,
        "output of removed heads. zero (default): 0; mean: their mean over training questions; knockout: what they "
        "output without attention to what followed earlier copies of a token",
    )
    by_sign: bool = flag(
        "instead of kinds, remove the function-vector heads that raise the right answer (writers), and those that "
        "lower it (cancellers), at most the largest of --shares of all heads"
    )
    limit: int = number(N_ASKED, (1, MOST), "number of validation questions per task (default: 48)")
    order_questions: int = training_questions()
    series: str | None = string(
        None,
        "training run or published series, as for `trajectory`, to measure at each snapshot in fp32 instead of --model",
    )
    out: str | None = output(TABLES)

    def settings(self) -> MechanismSettings:
        """The settings, as the engine names them."""
        is_demo = self.spec.is_demo and not self.series
        known, n_random = list(OF_DEMO if is_demo else OF_PAIRS), N_OF_DEMO if is_demo else N_RANDOM
        shares = tuple(sorted({permille(share) for share in names_of(self.shares, ())}))
        kinds = tuple(names_of(self.kinds, tuple(KINDS)))
        return MechanismSettings(
            tuple(names_of(self.tasks, known)), self.shots, shares, kinds, self.exclusive,
            self.random_sets or n_random, self.fill, self.labels,
        )  # fmt: skip

    def measurement(self, session: Session) -> Measurement[Any]:
        if self.series:
            raise TypeError("a series is one measurement for each snapshot; run it")
        return self._measured(self.target(session))

    def _measured(self, target: Target) -> Measurement[Any]:
        setting = SurveySettings(target.spec, self.bos, self.data_dir, self.limit, self.order_questions)
        return (signed_heads if self.by_sign else mechanisms)(target, setting, self.settings())

    def _by_sign(self, run: RequestRun) -> Result:
        import pandas as pd

        if self.series or self.exclusive or self.kinds != ",".join(KINDS):
            raise UsageError("--by-sign has kinds of its own; leave out --kinds, --exclusive, and --series")
        found, shape = run.value(self.measurement(run.session)), self.target(run.session).shape
        rows = found.rows(shape)
        fields = {"tasks": list(found.settings.tasks), "shots": self.shots, "labels": self.labels, "n": self.limit,
                  "rows": rows, "out": self.out}  # fmt: skip
        files = file_of(self.out, lambda suffix: table_file(suffix, pd.DataFrame(rows)))
        return Result(found, fields, signs_view(rows), files)

    def measure(self, run: RequestRun) -> Result:
        import pandas as pd

        if self.by_sign:
            return self._by_sign(run)
        if self.series:
            return self._of_series(run)
        found, shape = run.value(self.measurement(run.session)), self.target(run.session).shape
        if not found.scores:
            raise HeadroomError(f"nothing could be measured: {'; '.join(found.failed.values())}")
        rows = found.rows(shape)
        best = {kind: [name for name, _ in best_heads(scores, N_BEST)] for kind, scores in found.scores.items()}
        shared, depth = overlaps(shape, found.scores), depths(shape, found.scores)
        fields: dict[str, Any] = {
            "tasks": list(found.settings.tasks), "shots": self.shots, "labels": self.labels, "n": self.limit,
            "gain_points": found.gain, "finding": mechanisms_finding(found, shape), "best": best, "depth": depth,
            "overlaps": shared, "rows": rows, "not_measured": dict(found.failed), "out": self.out,
        }  # fmt: skip
        files = file_of(self.out, lambda suffix: table_file(suffix, pd.DataFrame(rows)))
        return Result(found, fields, mechanisms_view(found, shape), files)

    def _of_series(self, run: RequestRun) -> Result:
        import pandas as pd

        if self.model != "demo" or self.bos is not None:
            raise UsageError("--series names the models; leave out --model, --bos, and --no-bos")
        series, found, rows = series_of(self.series or "", 1), dict[int, Mechanisms](), list[dict[str, Any]]()
        for at, step in enumerate(series.steps):
            target = target_at(run.session, series, at)
            steps = self._measured(target).run(run.session)
            found[step] = run.last(replace(each, message=f"step {step}: {each.message}") for each in steps)
            rows += [{"step": step, **row} for row in found[step].rows(target.shape)]
        top = [row for row in rows if row["kind"] != RANDOM and not row["exclusive"]]
        top = [row for row in top if row["share"] == max(each["share"] for each in top)]
        gains = {step: each.gain for step, each in found.items()}
        kinds = {kind: _first_steps([row for row in top if row["kind"] == kind]) for kind in self.settings().kinds}
        failed = {step: dict(each.failed) for step, each in found.items() if each.failed}
        fields = {"series": series.name, "gain_points": gains, "kinds": kinds, "rows": rows, "not_measured": failed,
                  "out": self.out}  # fmt: skip
        files = file_of(self.out, lambda suffix: table_file(suffix, pd.DataFrame(rows)))
        return Result(found, fields, series_view(found, top, kinds), files)


def _first_steps(rows: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    """Returns the first step at which a kind's top heads have half of the highest score, and at which the loss without
    them is beyond random; None if there is none."""
    most = max((row["score"] for row in rows), default=0.0)
    half = [row["step"] for row in rows if most > 0 and row["score"] >= most / 2]
    needed = [row["step"] for row in rows if row["beyond_random"]]
    return {"half_of_highest_score": min(half, default=None), "beyond_random": min(needed, default=None)}
