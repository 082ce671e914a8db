"""What heads cost alone and together on one task: the costliest by a score, the induction heads, and random ones; and
what one head costs by task.

All on the same train questions as the scores of importance, so that a map of them and this agree.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from engine.accuracy.evaluation import evaluation
from engine.composed import ComposedRun, all_of, composed, every
from engine.heads.attention import Head
from engine.importance.criteria import passes
from engine.importance.rankings import order
from engine.importance.scores import Scores, importance
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.models.session import Session, Target
from engine.progress import Progress
from engine.questions.rendering import TaskSpec, render_questions, select
from engine.shapes import ModelShape
from engine.statistics import ALPHA, Paired, holm, mcnemar, paired
from engine.studies.removal import N_DRAWS, Removal, found_heads, without, without_heads
from engine.studies.surveys import SurveySettings


@dataclass(frozen=True)
class Ablations:
    """The accuracy lost without heads, on the same questions.

    shape: of the model
    n: questions
    costliest: heads by flat index, the highest score first
    together: the induction heads, best prefix matching first, all removed at once, and random ones
    alone: the change without each of the costliest and of the induction heads
    clear: those of them whose change is clear (Holm's correction for all heads that were removed one by one)
    """

    shape: ModelShape
    n: int
    costliest: tuple[int, ...]
    together: Removal
    alone: Mapping[int, Paired] = field(default_factory=dict)
    clear: frozenset[int] = frozenset()

    @property
    def induction_heads(self) -> tuple[int, ...]:
        return self.together.heads

    @property
    def costly(self) -> list[int]:
        """The heads that clearly cost accuracy alone, the costliest first."""
        found = [head for head in self.alone if head in self.clear and self.alone[head].difference < 0]
        return sorted(found, key=lambda head: self.alone[head].difference)


def ablations(
    target: Target, task: TaskSpec, score: str, n_best: int, n: int | None, data_dir: str | None = None
) -> Measurement[Ablations]:
    """Returns the Ablations on `n` train questions of a task, with the `n_best` costliest heads by a score of
    importance; of a score that is the accuracy lost, each head alone is known from it."""
    task = replace(task, split="train")

    def body(run: ComposedRun) -> Generator[Progress[Any], None, Ablations | None]:
        yield Progress(0, 1, message="preparing the questions")
        questions = select(render_questions(task, data_dir, run.session.store), n, "stratified")
        answers = partial(evaluation, target, questions)
        n_scored = passes(score, target.shape) * questions.n
        run.total = 1 + n_scored + (2 + n_best + N_DRAWS) * questions.n
        induction_removal = yield from run.part(found_heads(target), 1, "induction scores")
        scores = yield from run.part(importance(target, questions, score), n_scored, "scores of heads")
        if induction_removal is None or scores is None:
            full = answers(Mask.full(target.shape))
            run.expect("without heads", partial(full.left(run.session).times, 2 + n_best + N_DRAWS))
            return None
        best = order(scores.scores, scores.tie_break)[::-1][:n_best]
        costliest = tuple(int(head) for head in best)
        heads = tuple(dict.fromkeys([*costliest, *induction_removal.heads]))
        if scores.flips is not None and scores.is_clear is not None:
            alone = _alone(scores, heads)
            clear = {head for head in heads if scores.is_clear.flat[head]}
        else:
            run.total += (len(heads) - n_best) * questions.n
            masks = [Mask.full(target.shape), *(without(target.shape, (head,)) for head in heads)]
            each_alone = all_of([answers(mask) for mask in masks], "each head alone")
            alone_answers = yield from run.part(each_alone, len(masks) * questions.n)
            sides = [each for each in alone_answers or () if each is not None]  # all, or none before all are measured
            alone = {head: paired(sides[0].correct, each.correct) for head, each in zip(heads, sides[1:], strict=False)}
            adjusted = holm([each.p_mcnemar for each in alone.values()])
            clear = {head for head, p in zip(alone, adjusted, strict=True) if p < ALPHA}
        together: Removal | None = induction_removal
        if induction_removal.heads:
            removed = without_heads(target, task, induction_removal.heads, questions.n, data_dir)
            together = yield from run.part(removed, (2 + N_DRAWS) * questions.n, "induction heads together")
        if together is None or len(alone) < len(heads):
            return None
        return Ablations(target.shape, questions.n, costliest, together, alone, frozenset(clear))

    return composed(target, ("ablations", task, score, n_best, n, data_dir), body)


def costs_by_task(
    target: Target, setting: SurveySettings, tasks: Sequence[TaskSpec], head: Head
) -> Measurement[dict[TaskSpec, Paired]]:
    """Returns the change of accuracy without one head on each task so far, on the questions of importance."""

    def both(task: TaskSpec, session: Session) -> Measurement[Any]:
        questions = setting.train_questions(task, session.store)
        masks = Mask.full(target.shape), without(target.shape, (head[0] * target.shape.n_heads + head[1],))
        return all_of([evaluation(target, questions, mask) for mask in masks])

    parts = {task: partial(both, task) for task in tasks}
    every_one = every(target, ("costs by task", setting, head, *tasks), parts, label=lambda task: task.title)
    return every_one.map(
        lambda found: {
            task: paired(full.correct, gone.correct) for task, (full, gone) in found.values.items() if full and gone
        }
    )


def known_costs(
    head: Head, tasks: Sequence[TaskSpec], removed: Mapping[TaskSpec, Scores], apart: Mapping[TaskSpec, Paired]
) -> tuple[dict[TaskSpec, Paired], dict[TaskSpec, bool]]:
    """Returns what one head costs on each task so far, and whether that is clear: among all heads where scores tell
    what each costs (`removed`), else by itself (`apart`)."""
    costs, clear = dict[TaskSpec, Paired](), dict[TaskSpec, bool]()
    for task in tasks:
        if (scores := removed.get(task)) is not None and scores.is_clear is not None:
            costs[task], clear[task] = cost_of(scores, head), bool(scores.is_clear[head])
        elif task in apart:
            costs[task], clear[task] = apart[task], apart[task].is_significant
    return costs, clear


def cost_of(scores: Scores, head: Head) -> Paired:
    """Returns the change of accuracy without one head, of scores that are the accuracy lost."""
    assert scores.flips is not None
    gained, lost = (int(each) for each in scores.flips[(slice(None), *head)])
    return Paired(scores.n, gained, lost, mcnemar(gained, lost))


def _alone(scores: Scores, heads: Sequence[int]) -> dict[int, Paired]:
    n_heads = scores.scores.shape[1]
    return {head: cost_of(scores, (head // n_heads, head % n_heads)) for head in heads}
