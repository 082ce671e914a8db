"""Pruning criteria compared: `CompareCriteria`, one task pruned in several orders and at random."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from engine.errors import HeadroomError
from engine.importance.rankings import CRITERIA, permille
from engine.measurement import Measurement
from engine.models.session import Session
from engine.requests.base import MOST, NamesTask, RequestRun, Result, training_questions
from engine.requests.fields import choice, names_of, number, path, string
from engine.requests.output import TABLES, check_out, file_of, table_file
from engine.studies.compare import ALONG, SEEDS, TENTHS, Area, ComparedCriteria, Comparing, areas, comparison
from engine.studies.surveys import StudySettings

MOST_SEEDS = 100
LEVELS = ",".join(f"{level / 10:g}" for level in TENTHS)


@dataclass(frozen=True, kw_only=True)
class CompareCriteria(NamesTask):
    """Compare pruning criteria by accuracy at each level, area under the curve, and agreement of orders. The value is
    ComparedCriteria."""

    command: ClassVar[str] = "compare"
    limit: int = number(100, (1, MOST), "number of validation questions, as a stratified sample (default: 100)")
    order_questions: int = training_questions()
    criteria: str | None = string(
        None, f"comma-separated criteria: any --order of `evaluate` except random (default: {', '.join(CRITERIA)})"
    )
    axis: str = choice(
        "heads", ALONG, "components to prune; both: the same percentage of heads and of FFNs (default: heads)"
    )
    levels: str = string(LEVELS, "comma-separated pruning levels, in percent (default: 0,10,...,100)")
    random_orders: int = number(
        SEEDS, (1, MOST_SEEDS), "number of random orders to compare with (default: 5)", aliases=("--seeds",)
    )
    out: str | None = path(None, "file to write all accuracies to: .csv or .parquet", is_required=True, is_output=True)

    @property
    def comparing(self) -> Comparing:
        """The comparison, as an engine value."""
        levels = tuple(sorted({permille(level) for level in names_of(self.levels, ())}))
        return Comparing(
            self.task_spec(), tuple(names_of(self.criteria, tuple(CRITERIA))), self.axis, levels, self.random_orders
        )

    def measurement(self, session: Session) -> Measurement[ComparedCriteria]:
        settings = StudySettings(self.spec, self.bos, self.data_dir, self.limit, self.order_questions)
        return comparison(self.target(session), settings, self.comparing)

    def measure(self, run: RequestRun) -> Result:
        import pandas as pd

        check_out(self.out, TABLES)
        comparing, found = self.comparing, run.value(self.measurement(run.session))
        if not found.curves:
            raise HeadroomError(f"nothing could be measured: {'; '.join(found.failed.values())}")
        ranked, agreeing = areas(found), {axis: found.agreement(axis) for axis in comparing.axes}
        fields: dict[str, Any] = {
            "task": self.task, "shots": self.shots, "axis": self.axis, "n": found.n,
            "ranking_questions": self.order_questions, "levels": [level / 1000 for level in comparing.levels],
            "seeds": self.random_orders, "chance": found.chance,
            "areas": [asdict(each) | {"verdict": each.verdict} for each in ranked],
            "rank_agreement": {axis: {"criteria": list(each.labels), "spearman": each.srcc}
                               for axis, each in agreeing.items() if each is not None},
            "not_measured": dict(found.failed), "rows": found.cells(), "out": self.out,
        }  # fmt: skip
        lines = [*map(_line, ranked), *(f"not measured: {name}: {reason}" for name, reason in found.failed.items())]
        lines.append(f"{len(found.cells())} accuracies of {found.n} questions{run.taken}")
        files = file_of(self.out, lambda suffix: table_file(suffix, pd.DataFrame(found.cells())))
        return Result(found, fields, "\n".join(lines), files)


def _line(area: Area) -> str:
    """An area with its interval, what it is above random, and the verdict."""
    words = f"{area.criterion:<20} {area.area:.3f} ({area.low:.3f} to {area.high:.3f})"
    if not area.verdict:
        return f"{words}, the mean of {area.n_random}"
    gain = f"{area.gain:+.3f} ({area.gain_low:+.3f} to {area.gain_high:+.3f})"
    return f"{words}, {gain} on random, beats {area.beats} of {area.n_random}: {area.verdict}"
