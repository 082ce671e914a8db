"""Published numbers of a model and those measured here: `CheckPublished`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from engine.errors import UsageError
from engine.requests.base import MOST, OfModel, RequestRun, Result, WithData, selected
from engine.requests.fields import names_of, number, numbers_of, path, string

if TYPE_CHECKING:
    from engine.accuracy.published import Published


@dataclass(frozen=True, kw_only=True)
class CheckPublished(WithData, OfModel):
    """Published numbers of a model beside those measured here; the value is a list of PublishedComparison."""

    command: ClassVar[str] = "check"
    gives: ClassVar[str] = "published numbers of a model beside those measured here; exit code 1 where one differs"

    tasks: str | None = string("names joined by commas (default: all that something was published of)")
    shots: str = string("solved examples, joined by commas (default: 0)", default="0")
    limit: int | None = number((1, MOST), "use this many questions a task (default: all)")
    table: str | None = path("a CSV table of published values instead of the one that comes with the app")
    known_as: str | None = string("the hub id (or id@revision) of what the folder --model holds", name="as")

    def measure(self, run: RequestRun) -> Result:
        from engine.accuracy.evaluation import evaluation
        from engine.accuracy.published import compare, n_published
        from engine.models.masks import Mask
        from engine.questions.requests import TaskSpec

        spec, wanted, found = self.spec, self._wanted(), []
        for task, shots, bos in dict.fromkeys((row.task, row.shots, row.bos) for row in wanted):
            rows = [row for row in wanted if (row.task, row.shots, row.bos) == (task, shots, bos)]
            target = run.session.target(spec, bos)
            questions = selected(TaskSpec(task, shots), self.data_dir, run.session, self.limit)
            answers = run.value(evaluation(target, questions, Mask.full(target.shape)))
            n_all = n_published(rows, len(questions.requests.questions))
            found += [compare(row, answers, spec.precision, n_all) for row in rows]
        judged = [each for each in found if each.verdict != "range only"]
        n_agree = sum(each.verdict == "agrees" for each in judged)
        agree, n = n_agree == len(judged), len(judged)
        what = f"{n_agree} of {n} agree" if n else "nothing can be judged: other solved examples were drawn"
        fields = {"model": spec.model, "known_as": self.known_as, "precision": spec.precision, "agree": agree,
                  "rows": [_fields(each) for each in found]}  # fmt: skip
        lines = [_HEAD, *map(_line, found), f"{spec.model} in {spec.precision}: {what}"]
        return Result(found, fields, "\n".join(lines), agrees=agree)

    def _wanted(self) -> "list[Published]":
        """The published values that are named; UsageError where there are none."""
        from engine.accuracy.published import built_in, published_for, read_table
        from engine.questions.tasks import task_info

        spec = self.spec
        if self.known_as:
            spec = replace(spec, model=self.known_as)
        table = read_table(Path(self.table)) if self.table else built_in()
        of_model, shots = published_for(spec, table), numbers_of("--shots", self.shots)
        if not of_model:
            names = ", ".join(dict.fromkeys(row.model for row in table))
            raise UsageError(f"no number of {spec.model!r} is in the table; it has {names}; where a folder holds one "
                             "of these, --as says which")  # fmt: skip
        there = [row for row in of_model if row.task != "wikitext-2" and row.shots in shots]
        there = [row for row in there if self.bos is None or row.bos == self.bos]
        names = names_of(self.tasks, list(dict.fromkeys(row.task for row in there)))
        known = {row.task for row in there}
        for name in names:
            if name not in known:
                how = " with --bos" if self.bos else " with --no-bos" if self.bos is False else ""
                raise UsageError(f"no number of {spec.model} for {name!r} at {self.shots} shots{how} is in the table; "
                                 f"it has {', '.join(sorted(known)) or 'none at all'}")  # fmt: skip
            task_info(name)
        if not names:
            raise UsageError(f"no number of {spec.model} at {self.shots} shots is in the table; choose other --shots")
        return [row for row in there if row.task in names]


_HEAD = f"{'task':<18}shots  {'metric':<11}{'ours':>9}{'published':>11}{'difference':>12}{'allowed':>10}  verdict"


def _line(each: Any) -> str:
    row = each.published
    scale, unit = (1, " %") if row.metric == "perplexity" else (100, " pt")
    return (f"{row.task:<18}{row.shots:>5}  {row.metric:<11}{scale * each.ours:>9.2f}{scale * row.value:>11.2f}"
            f"{f'{each.difference:+.2f}{unit}':>12}{f'{each.allowed:.2f}{unit}':>10}  {each.verdict}, n {each.n:,}"
            f"{'' if row.bos else ', no BOS'}")  # fmt: skip


def _fields(each: Any) -> dict[str, Any]:
    row, unit = each.published, "percent" if each.published.metric == "perplexity" else "points"
    numbers = {"ours": each.ours, "published": row.value, "stderr": row.stderr, "difference": each.difference,
               "allowed": each.allowed}  # fmt: skip
    return {"task": row.task, "shots": row.shots, "metric": row.metric, "bos": row.bos, "n": each.n, **numbers,
            "unit": unit, "verdict": each.verdict, "source": row.source}  # fmt: skip
