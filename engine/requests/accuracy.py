"""Accuracy of a model under one mask (`Evaluate`), and compared with published values (`CheckPublished`)."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from engine.accuracy.confidence import confidence
from engine.accuracy.evaluation import Answers, accuracy, compared, evaluation
from engine.accuracy.harness_logs import is_samples, to_samples
from engine.errors import UsageError
from engine.heads.fills import FILLS, N_QUESTIONS, filled_evaluation
from engine.importance.orders import Pruning, pruning_of_second
from engine.measurement import Measurement
from engine.models.added_vector import AddedVector
from engine.models.masks import Mask
from engine.models.session import Session, Target
from engine.questions.rendering import Questions, TaskSpec, harness_rows
from engine.questions.tasks import SPLITS, task_info
from engine.requests.base import OfModel, OfTask, RequestRun, Result, WithData, WithPruning, mask_of, selected
from engine.requests.fields import choice, names_of, number, numbers_of, output, path, string
from engine.requests.output import to_json
from engine.requests.shared_fields import MOST
from engine.requests.vectors import vector_named, vector_option
from engine.statistics import Paired
from engine.views.accuracy import accuracy_view, cut_notes, published_view
from engine.views.confidence import describe_confidence

if TYPE_CHECKING:
    from engine.accuracy.published import Published

AGAINST = (
    "second model to evaluate on the same questions, pruned to the same levels by its own order: a precision "
    "(fp32) or revision (@step512) of this model, or another model ('facebook/opt-125m in bf16')"
)


@dataclass(frozen=True, kw_only=True)
class Evaluate(WithPruning, OfTask):
    """Measure the accuracy of a model under one mask. The value is the Answers."""

    command: ClassVar[str] = "evaluate"
    group: ClassVar[str] = "Pruning"
    split: str = choice("validation", SPLITS, "which split the questions come from (default: validation)")
    questions_out: str | None = output(
        (),
        "write the result of each question to this file, as JSON Lines; as lm-evaluation-harness logs samples if its "
        "name is like samples_piqa.jsonl",
    )
    fill: str = choice(
        "zero",
        FILLS,
        f"output of pruned components. zero (default): 0; mean: their mean over up to {N_QUESTIONS} training questions "
        "of --task; knockout: what heads output without attention to what followed earlier copies of a token",
    )
    against: str | None = string(None, AGAINST)
    add_vector: str | None = vector_option("each context")

    def measure(self, run: RequestRun) -> Result:
        other = None if self.against is None else self.spec.compared_with(self.against)
        target, session = self.target(run.session), run.session
        pruning, started_s = self.pruning(self.task_spec(run.session, self.split), target), time.monotonic()
        questions = self.questions(session, self.split)
        mask = mask_of(run, target, pruning, self.data_dir)
        added = self._vector(run, target)
        answers = run.value(self._evaluation(session, target, questions, mask, added))
        seconds = time.monotonic() - started_s
        result, is_greedy = accuracy(answers), questions.rendered.greedy
        fields = {
            "task": self.task, "shots": self.shots, "same_examples": self.same_examples, "split": self.split,
            "labels": self.labels, "labels_kept": questions.rendered.labels_kept,
            "n": result.n, "acc": result.acc, "acc_norm": None if is_greedy else result.acc_norm,
            "perplexity": result.perplexity, "acc_ci95": [result.ci_low, result.ci_high],
            "items_per_second": result.n / seconds, "mask": mask.text(), "fill": self.fill,
            "vector_layer": added and added.layer,
            "heads_pruned": mask.n_heads_pruned, "ffns_pruned": mask.n_ffns_pruned,
            "layers_dropped": list(mask.layers_dropped),
            "model": target.identity.name, "precision": self.precision, "bos": target.bos,
            "contexts_cut": answers.n_contexts_cut, "saved": session.store.on_disk,
            "calibration": _calibration(answers),
        }  # fmt: skip
        notes = [] if added is None else [f"The vector of {self.add_vector} is added at layer {added.layer}."]
        if kept := questions.rendered.labels_kept:
            notes.append(f"{100 * kept:.1f}% of the examples keep their true answer: too few answers differ.")
        sides, change, by_model = [fields], None, {target.spec.in_words: answers}
        if other is not None:
            second = session.target(other, self.bos)
            found, change, others = self._second(run, (target, pruning), second, answers)
            fields |= {"against": found}
            sides.append(found)
            by_model[second.spec.in_words] = others
        notes += [f"{side['model']}: {describe_confidence(found)}" for side in sides if (found := side["calibration"])]
        files = {self.questions_out: partial(self._questions_file, session, answers)} if self.questions_out else {}
        return Result(answers, fields, accuracy_view(sides, change, [*notes, *cut_notes(by_model)]), files)

    def _questions_file(self, session: Session, answers: Answers) -> bytes:
        """The answers as JSON Lines: as samples of the harness if the file is named like them, or else `items`."""
        if not is_samples(self.questions_out or ""):
            return "".join(to_json(item) + "\n" for item in items(answers)).encode()
        first = self.limit if self.sample == "first" else 0
        return to_samples(answers, *harness_rows(self.task_spec(session, self.split), self.data_dir, first))

    def _vector(self, run: RequestRun, target: Target) -> AddedVector | None:
        return None if self.add_vector is None else run.value(vector_named(target, self.add_vector))

    def _evaluation(
        self, session: Session, target: Target, questions: Questions, mask: Mask, added: AddedVector | None
    ) -> Measurement[Answers]:
        def train() -> Questions:
            return selected(self.task_spec(session, "train"), self.data_dir, session, N_QUESTIONS, "stratified")

        return filled_evaluation(target, questions, train, mask, self.fill, added)

    def _second(
        self, run: RequestRun, first: tuple[Target, Pruning], second: Target, answers: "Answers"
    ) -> tuple[dict[str, Any], Paired, Answers]:
        """(what JSON says of the second model under `against`, the change from the first, its answers): `first` is the
        first model and its pruning, `answers` are its."""
        part = RequestRun(run.session, run.report)
        pruning = pruning_of_second(first[1], first[0].shape, second.shape)
        mask = mask_of(part, second, pruning, self.data_dir)
        questions = self.questions(run.session, self.split)
        wanted = self._evaluation(run.session, second, questions, mask, self._vector(part, second))
        others = part.value(wanted)
        both = compared(answers, others)
        change, (low, high) = both.change, both.change.interval
        found = {
            "model": second.identity.name, "precision": second.spec.precision, "bos": second.bos,
            "acc": both.second.acc, "acc_ci95": [both.second.ci_low, both.second.ci_high], "mask": mask.text(),
            "heads_pruned": mask.n_heads_pruned, "ffns_pruned": mask.n_ffns_pruned, "difference": change.difference,
            "difference_ci95": [low, high], "only_first": change.lost, "only_second": change.gained,
            "layers_dropped": list(mask.layers_dropped), "p_mcnemar": change.p_mcnemar, "cached": part.cached,
            "seconds": part.seconds, "contexts_cut": others.n_contexts_cut,
            "calibration": _calibration(others),
        }  # fmt: skip
        return found, change, others


def _calibration(answers: Answers) -> dict[str, Any] | None:
    """The Confidence of a model as fields; None without choices."""
    return None if answers.by_greedy else asdict(confidence(answers))


def items(answers: Answers) -> Iterator[dict[str, Any]]:
    """One mapping a question in dataset order: doc_id, gold, loglikelihoods (nats), pred, correct."""
    predicted, correct = answers.predicted, answers.correct
    for row in sorted(range(len(answers)), key=lambda row: answers.questions[row].doc_id):
        question = answers.questions[row]
        scores = answers.log_likelihood_nats[row, : len(question.contexts)]
        gold = question.golds[0] if len(question.golds) == 1 else list(question.golds)
        yield {"doc_id": question.doc_id, "gold": gold, "loglikelihoods": scores.tolist(),
               "pred": int(predicted[row]), "correct": bool(correct[row])}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CheckPublished(WithData, OfModel):
    """Compare the published results of a model with measured ones; exit code 1 if any differ. The value is a list of
    PublishedComparison."""

    command: ClassVar[str] = "check"
    group: ClassVar[str] = "Checks"
    tasks: str | None = string(None, "comma-separated task names (default: all with published values)", what="tasks")
    shots: str = string("0", "comma-separated numbers of examples in the prompt (default: 0)")
    limit: int | None = number(None, (1, MOST), "number of questions per task (default: all)")
    table: str | None = path(None, "CSV file of published values to use instead of the included table")
    hub_id: str | None = string(None, "Hub id (or id@revision) that the local folder --model corresponds to")

    def measure(self, run: RequestRun) -> Result:
        from engine.accuracy.published import compare, n_published

        spec, wanted, found = self.spec, self._wanted(), []
        for task, shots, bos in dict.fromkeys((row.task, row.shots, row.bos) for row in wanted):
            rows = [row for row in wanted if (row.task, row.shots, row.bos) == (task, shots, bos)]
            target = run.session.target(spec, bos)
            questions = selected(TaskSpec(task, shots), self.data_dir, run.session, self.limit)
            answers = run.value(evaluation(target, questions, Mask.full(target.shape)))
            n_all = n_published(rows, len(questions.rendered.questions))
            found += [compare(row, answers, spec.precision, n_all) for row in rows]
        agree = all(each.verdict != "differs" for each in found)
        rows = [_compared_fields(each) for each in found]
        fields = {"model": spec.model, "known_as": self.hub_id, "precision": spec.precision, "agree": agree,
                  "rows": rows}  # fmt: skip
        return Result(found, fields, published_view(rows, f"{spec.model} in {spec.precision}"), agrees=agree)

    def _wanted(self) -> "list[Published]":
        """The published values that are named; UsageError where there are none."""
        from engine.accuracy.published import built_in, published_for, read_table

        spec = self.spec
        if self.hub_id:
            spec = replace(spec, model=self.hub_id)
        table = read_table(Path(self.table)) if self.table else built_in()
        of_model, shots = published_for(spec, table), numbers_of("--shots", self.shots)
        if not of_model:
            names = ", ".join(dict.fromkeys(row.model for row in table))
            raise UsageError(f"no number of {spec.model!r} is in the table; it has {names}; where a folder holds one "
                             "of these, --hub-id says which")  # fmt: skip
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


def _compared_fields(each: Any) -> dict[str, Any]:
    row, unit = each.published, "percent" if each.published.metric == "perplexity" else "points"
    numbers = {"ours": each.ours, "published": row.value, "stderr": row.stderr, "difference": each.difference,
               "allowed": each.allowed}  # fmt: skip
    return {"task": row.task, "shots": row.shots, "metric": row.metric, "bos": row.bos, "n": each.n, **numbers,
            "unit": unit, "verdict": each.verdict, "source": row.source}  # fmt: skip
