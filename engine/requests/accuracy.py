"""Accuracy of a model under one mask: `Evaluate`."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from engine.questions.tasks import SPLITS
from engine.requests.base import OfTask, RequestRun, Result, WithPruning, mask_of
from engine.requests.fields import choice, path, string
from engine.requests.output import check_writable, to_json

if TYPE_CHECKING:
    from engine.accuracy.evaluation import Answers
    from engine.importance.rankings_of import Pruning
    from engine.models.session import Target

AGAINST = (
    "a second model on the same questions, pruned at the same levels by its own ranking: a precision or @REVISION of "
    "this one, or another model, such as fp32 or 'facebook/opt-125m in bf16'"
)


@dataclass(frozen=True, kw_only=True)
class Evaluate(WithPruning, OfTask):
    """Accuracy of a model under one mask; the value is the Answers."""

    command: ClassVar[str] = "evaluate"
    gives: ClassVar[str] = "accuracy of a model under one mask"

    split: str = choice(SPLITS, "whose questions (default: validation)", default="validation")
    items: str | None = path("write one JSON line a question to this file", is_output=True)
    against: str | None = string(AGAINST)

    def measure(self, run: RequestRun) -> Result:
        from engine.accuracy.evaluation import accuracy, evaluation

        if self.items:
            check_writable(self.items)
        other = None if self.against is None else self.spec.compared_with(self.against)
        target, session = self.target(run.session), run.session
        pruning, started_s = self.pruning(self.task_spec(self.split), target), time.monotonic()
        questions = self.questions(session, self.split)
        mask = mask_of(run, target, pruning, self.data_dir)
        answers = run.value(evaluation(target, questions, mask))
        seconds = time.monotonic() - started_s
        result, is_greedy, taken = accuracy(answers), questions.requests.greedy, run.taken
        norm = f"perplexity {result.perplexity:.2f}" if is_greedy else f"acc_norm {result.acc_norm:.4f}"
        fields = {
            "task": self.task, "shots": self.shots, "same_examples": self.same_examples, "split": self.split,
            "n": result.n, "acc": result.acc, "acc_norm": None if is_greedy else result.acc_norm,
            "perplexity": result.perplexity, "acc_ci95": [result.ci_low, result.ci_high],
            "items_per_second": result.n / seconds, "mask": mask.text(), "heads_pruned": mask.n_heads_pruned,
            "ffns_pruned": mask.n_ffns_pruned, "layers_dropped": list(mask.layers_dropped),
            "model": target.identity.name, "precision": self.precision, "bos": target.bos,
            "contexts_cut": int((answers.n_cut > 0).sum()), "saved": session.store.on_disk,
        }  # fmt: skip
        line = (f"{self.task}, {self.shots} shots: acc {result.acc:.4f} "
                f"(95 % {result.ci_low:.3f}-{result.ci_high:.3f}), {norm}, n {result.n}, "
                f"{mask.n_heads_pruned} heads and {mask.n_ffns_pruned} FFNs pruned{taken}")  # fmt: skip
        if other is not None:
            found, more = self._second(run, (target, pruning), session.target(other, self.bos), answers)
            fields, line = fields | {"against": found}, f"{line}\n{more}"
        files = {self.items: "".join(to_json(item) + "\n" for item in items(answers)).encode()} if self.items else {}
        return Result(answers, fields, line, files)

    def _second(
        self, run: RequestRun, first: "tuple[Target, Pruning]", second: "Target", answers: "Answers"
    ) -> tuple[dict[str, Any], str]:
        """(what JSON says of the second model under `against`, a line of it): `first` is the first model and its
        pruning, `answers` are its."""
        from engine.accuracy.evaluation import evaluation
        from engine.studies.two_models import compared, pruning_of_second

        part = RequestRun(run.session, run.report)
        pruning = pruning_of_second(first[1], first[0].shape, second.shape)
        mask = mask_of(part, second, pruning, self.data_dir)
        both = compared(answers, part.value(evaluation(second, self.questions(run.session, self.split), mask)))
        low, high = both.interval
        found = {
            "model": second.identity.name, "precision": second.spec.precision, "bos": second.bos,
            "acc": both.second.acc, "acc_ci95": [both.second.ci_low, both.second.ci_high], "mask": mask.text(),
            "heads_pruned": mask.n_heads_pruned, "ffns_pruned": mask.n_ffns_pruned, "difference": both.difference,
            "difference_ci95": [low, high], "only_first": both.only_first, "only_second": both.only_second,
            "layers_dropped": list(mask.layers_dropped), "p_mcnemar": both.change.p_mcnemar, "cached": part.cached,
            "seconds": part.seconds,
        }  # fmt: skip
        line = f"{second.spec.in_words}: acc {both.second.acc:.4f}, {100 * both.difference:+.1f} points "
        line += f"(95 % {100 * low:.1f} to {100 * high:.1f}, McNemar p {both.change.p_mcnemar:.3f}), right by it alone "
        line += f"{both.only_second}, by the first alone {both.only_first}, {mask.n_heads_pruned} heads and "
        return found, f"{line}{mask.n_ffns_pruned} FFNs pruned"


def items(answers: "Answers") -> Iterator[dict[str, Any]]:
    """One mapping a question in dataset order: doc_id, gold, loglikelihoods (nats), pred, correct."""
    predicted, correct = answers.predicted, answers.correct
    for row in sorted(range(len(answers)), key=lambda row: answers.questions[row].doc_id):
        question = answers.questions[row]
        scores = answers.log_likelihood_nats[row, : len(question.contexts)]
        gold = question.golds[0] if len(question.golds) == 1 else list(question.golds)
        yield {"doc_id": question.doc_id, "gold": gold, "loglikelihoods": scores.tolist(),
               "pred": int(predicted[row]), "correct": bool(correct[row])}  # fmt: skip
