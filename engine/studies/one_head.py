"""All that is known of one head, part by part: its scores, what feeds it, where it looks, what it raises, what is lost
without it, and how important it is by every criterion. A part is read from the store, or measured there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from engine.accuracy.evaluation import Answers, evaluation
from engine.demo import passages
from engine.errors import Cancelled, HeadroomError, UsageError
from engine.heads.ablation import Ablating, recall_ablations
from engine.heads.attention import Head
from engine.heads.composition import feeding
from engine.heads.in_text import head_in_texts, head_on_probe
from engine.heads.induction import VARIANTS, induction
from engine.heads.ov_tokens import ov_tokens
from engine.importance.criteria import CRITERIA as TABLE
from engine.importance.rankings_of import INDUCTION_SEED
from engine.measurement import Measurement, Workload
from engine.models.masks import Mask, parse_heads, parse_mask
from engine.models.subject import Lab, Subject
from engine.progress import Progress, last_value
from engine.questions.amounts import CHARACTERS_A_TOKEN, all_characters
from engine.questions.requests import TaskSpec
from engine.shapes import ModelShape
from engine.studies.ideal_head import ideal_tasks, ideal_texts
from engine.studies.portrait import Portrait, with_more
from engine.studies.surveys import Setting, in_words, pass_of, survey
from engine.texts.incontext import MIN_TOKENS, MeanOverTexts, icl_change, icl_score
from engine.texts.sources import N_TEXTS, Source, texts_of
from engine.texts.tokenloss import TokenLosses, token_losses

CRITERIA = {criterion.heads: criterion.label for criterion in TABLE.values()}  # of heads
LOOKING = (
    "scores",
    "probe",
    "texts",
    "tokens",
    "feeding",
    "losses",
    "ideal-texts",
)  # of the model and built-in texts alone
LONG = ("context", "ideal-tasks", "heads-oracle")  # last: they begin unasked only where what is before leaves time
PARTS = (*LOOKING, "tasks", *(name for name in CRITERIA if name not in LONG), *LONG)
TITLES = {
    "scores": "Induction scores",
    "probe": "Pattern on random tokens",
    "texts": "Built-in texts",
    "tokens": "Tokens it raises, by weights",
    "feeding": "Heads that feed it",
    "losses": "Built-in texts without it",
    "ideal-texts": "Built-in texts with an ideal pattern",
    "tasks": "Tasks without it",
    "ideal-tasks": "Tasks with an ideal pattern",
    **CRITERIA,
    "context": "In-context-learning score without it",
}
READ = "Privet Drive, twice"  # the passage whose tokens the OV circuit is asked about
AROUND = 10  # tokens on either side of the two of an in-context-learning score, as the In context screen begins
STEPS = 1000  # of a part, on the progress bar
Found = Iterator[Progress[dict[str, Any]]]  # its values are fields of a Portrait
Parts = Iterator[Measurement[dict[str, Any]]]


@dataclass(frozen=True)
class Asked:
    """Of which head, in which `setting` and on which `tasks` (their importance too); `typed` is a text whose tokens the
    OV circuit is asked about. The in-context-learning score is that of solved questions of the first task."""

    head: Head
    setting: Setting
    tasks: tuple[TaskSpec, ...] = ()
    typed: str = ""

    @property
    def name(self) -> str:
        return f"L{self.head[0]}H{self.head[1]}"

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that there are: without a task none about tasks."""
        return PARTS if self.tasks else LOOKING


def head_named(text: str, shape: ModelShape) -> Head:
    """The one head that a text such as "L1H0" names; UsageError where that is none, or more than one."""
    found = parse_heads(text, shape)
    if len(found) != 1:
        raise UsageError(f"{text[:40]!r} names {len(found)} heads; give one, such as L1H0")
    return found[0]


def portrait(
    lab: Lab, subject: Subject, asked: Asked, names: Sequence[str] | None = None, compute: bool = True
) -> Iterator[Progress[Portrait]]:
    """Yields Progress, its value the Portrait so far, with the parts of these `names` (None: all there are); what is
    stored is not computed again, and only that is read where `compute` is False, with what is `left`. A part that
    cannot be had is set aside with the reason."""
    names = asked.parts if names is None else names
    found, all_cached, total = Portrait(subject.shape, asked.head), True, STEPS * max(1, len(names))
    for number, name in enumerate(names):
        try:
            for step in _MEASURES[name](lab, subject, asked, compute):
                all_cached &= step.cached
                found = found if step.value is None else with_more(found, step.value)
                label = f"{TITLES[name]}: {step.message}" if step.message else TITLES[name]
                placed = step.within(number * STEPS, total, STEPS, label)
                yield replace(placed, value=found, cached=all_cached)
            if name not in found.left and name not in found.failed:
                found = replace(found, done=(*found.done, name))
        except Cancelled:
            raise
        except HeadroomError as error:
            found = with_more(found, {"failed": {name: str(error)}})
        yield Progress((number + 1) * STEPS, total, found, TITLES[name], all_cached)


def built_in() -> dict[str, str]:
    """The built-in texts by title."""
    return {passage.title: passage.text for passage in passages()}


def _without(subject: Subject, asked: Asked) -> Mask:
    return parse_mask(asked.name, subject.shape)


def _scores(lab: Lab, subject: Subject, asked: Asked) -> Parts:
    """Olsson's scores, and Bansal's if they are stored."""
    olsson, bansal = VARIANTS
    stored = None
    with suppress(HeadroomError):  # the window is too short for Bansal's
        stored = induction(subject, bansal, INDUCTION_SEED).stored(lab)
    known = {} if stored is None else {bansal: stored}
    yield induction(subject, olsson, INDUCTION_SEED).map(lambda scores: {"scores": known | {olsson: scores}})


def _probe(lab: Lab, subject: Subject, asked: Asked) -> Parts:
    yield head_on_probe(subject, asked.head).map(lambda probe: {"probe": probe})


def _texts(lab: Lab, subject: Subject, asked: Asked) -> Parts:
    yield head_in_texts(subject, built_in(), asked.head).map(lambda texts: {"texts": texts})


def _tokens(lab: Lab, subject: Subject, asked: Asked) -> Parts:
    """Of the tokens of a passage, and of the typed ones."""
    yield ov_tokens(subject, built_in()[READ], asked.head).map(lambda tokens: {"tokens": tokens})
    if asked.typed.strip():
        yield ov_tokens(subject, asked.typed, asked.head).map(lambda tokens: {"typed": tokens})


def _feeding(lab: Lab, subject: Subject, asked: Asked) -> Parts:
    yield feeding(subject, asked.head).map(lambda feeding: {"feeding": feeding})


def _of_model(name: str, parts: Callable[[Lab, Subject, Asked], Parts]) -> Callable[[Lab, Subject, Asked, bool], Found]:
    """A part of a portrait that is made of these measurements."""

    def found(lab: Lab, subject: Subject, asked: Asked, compute: bool) -> Found:
        for part in parts(lab, subject, asked):
            known = part.look(lab)
            if compute or known.is_complete:
                yield from part.run(lab)
            else:
                yield _left(name, known.left)

    return found


def _losses(lab: Lab, subject: Subject, asked: Asked, compute: bool) -> Found:
    texts, masks = built_in(), (Mask.full(subject.shape), _without(subject, asked))
    found: dict[str, tuple[TokenLosses, TokenLosses]] = {}
    left, total = 0.0, len(masks) * len(texts)
    for number, (name, text) in enumerate(texts.items()):
        both, cached = [], True
        for at, mask in enumerate(masks):
            losses = token_losses(subject, text, mask).stored(lab)
            if losses is None and compute:
                cached = False
                steps = token_losses(subject, text, mask).run(lab)
                losses = yield from last_value(steps, len(masks) * number + at, total, 1)
            if losses is None:
                left += len(text)
            else:
                both.append(losses)
        if len(both) == len(masks):
            found[name] = both[0], both[1]
        yield Progress(len(masks) * (number + 1), total, {"losses": dict(found)}, cached=cached)
    if left:
        yield _left("losses", Workload({"forward": left}))


def _ideal_texts(lab: Lab, subject: Subject, asked: Asked, compute: bool) -> Found:
    return ideal_texts(lab, subject, asked.head, built_in(), compute)


def _ideal_tasks(lab: Lab, subject: Subject, asked: Asked, compute: bool) -> Found:
    return ideal_tasks(lab, subject, asked.head, (asked.setting, asked.tasks), compute)


def _tasks(lab: Lab, subject: Subject, asked: Asked, compute: bool) -> Found:
    masks, left, total = (Mask.full(subject.shape), _without(subject, asked)), 0.0, 2 * len(asked.tasks)
    failed: list[str] = []
    found: dict[TaskSpec, tuple[Answers, Answers]] = {}
    for number, task in enumerate(asked.tasks):
        both, cached = [], True
        try:
            questions = asked.setting.judged(task, lab.store)
            for at, mask in enumerate(masks):
                answers = evaluation(subject, questions, mask).stored(lab)
                if answers is None and compute:
                    cached = False
                    steps, place = evaluation(subject, questions, mask).run(lab), 2 * number + at
                    answers = yield from last_value(steps, place, total, 1, in_words(task))
                if answers is None:
                    left += all_characters(questions)
                else:
                    both.append(answers)
        except Cancelled:
            raise
        except HeadroomError as error:
            failed.append(str(error))
        if len(both) == len(masks):
            found[task] = both[0], both[1]
        more = {"failed": {"tasks": failed[0]}} if failed else {}
        yield Progress(2 * (number + 1), total, {"answers": dict(found), **more}, cached=cached)
    if left:
        yield _left("tasks", Workload({"forward": left}))


def _importance(lab: Lab, subject: Subject, asked: Asked, compute: bool, what: str) -> Found:
    for step in survey(lab, asked.setting, asked.tasks, what, compute):
        if step.value is None:
            yield step.map(lambda survey: {})
            continue
        known = {(what, task): scores for task, scores in step.value.scores.items()}
        more: dict[str, Any] = {"importance": known}
        if step.value.left:
            more["left"] = {what: Workload({pass_of(what): sum(step.value.left.values())})}
        if step.value.failed:
            more["failed"] = {what: next(iter(step.value.failed.values()))}
        yield step.map(lambda survey, more=more: more)


def _context(lab: Lab, subject: Subject, asked: Asked, compute: bool) -> Found:
    """The score of the In context screen's texts; its own ablations where they are stored, else the head's alone."""
    if subject.shape.n_ctx < MIN_TOKENS:
        raise HeadroomError(f"an in-context-learning score takes a window of {MIN_TOKENS} tokens, this model has "
                            f"{subject.shape.n_ctx}; take a model with a longer one")  # fmt: skip
    wanted = texts_of(subject, Source("task", asked.tasks[0].name), asked.setting.data_dir)
    texts = wanted.stored(lab)
    if texts is None and compute:
        texts = yield from last_value(wanted.run(lab), 0, 1, 0)
    if texts is None:
        yield _left("context", Workload({"forward": 2.0 * N_TEXTS * MIN_TOKENS * CHARACTERS_A_TOKEN}))
        return
    ablations = recall_ablations(lab, subject, texts, Ablating(Mask.full(subject.shape)))
    if ablations is not None:
        without = [each[asked.head] for each in ablations.ablated]
        yield _stored({"context": _score_and_change(ablations.base, without)})
        return
    sides: list[list[np.ndarray]] = []
    left, total = 0.0, 2 * len(texts)
    for place, mask in enumerate((Mask.full(subject.shape), _without(subject, asked))):
        side = []
        for number, text in enumerate(texts):
            losses = token_losses(subject, text, mask).stored(lab)
            if losses is None and compute:
                steps = token_losses(subject, text, mask).run(lab)
                losses = yield from last_value(steps, place * len(texts) + number, total, 1)
            if losses is None:
                left += len(text)
            else:
                side.append(losses.loss_nats)
        sides.append(side)
    if left:
        yield _left("context", Workload({"forward": left}))
    else:
        yield _stored({"context": _score_and_change(*sides)})


def _score_and_change(full: Sequence[np.ndarray], without: Sequence[np.ndarray]) -> tuple[MeanOverTexts, MeanOverTexts]:
    return icl_score(full, AROUND), icl_change(full, without, AROUND)


def _stored(more: dict[str, Any]) -> Progress[dict[str, Any]]:
    return Progress(1, 1, more, cached=True)


def _left(name: str, left: Workload) -> Progress[dict[str, Any]]:
    return _stored({"left": {name: left}})


_MEASURES: Mapping[str, Callable[[Lab, Subject, Asked, bool], Found]] = {
    "scores": _of_model("scores", _scores),
    "probe": _of_model("probe", _probe),
    "texts": _of_model("texts", _texts),
    "tokens": _of_model("tokens", _tokens),
    "feeding": _of_model("feeding", _feeding),
    "losses": _losses,
    "ideal-texts": _ideal_texts,
    "tasks": _tasks,
    "ideal-tasks": _ideal_tasks,
    **{what: partial(_importance, what=what) for what in CRITERIA},
    "context": _context,
}
