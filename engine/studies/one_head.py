"""All that is known of one head, part by part: its scores, what feeds it, where it looks, what it raises, what is lost
without it, and how important it is by every criterion. A part is read from the store, or measured there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from engine.accuracy.evaluation import evaluation
from engine.composed import all_of, every, then
from engine.demo import passages
from engine.errors import HeadroomError, UsageError
from engine.heads.ablation import Ablating, head_ablations
from engine.heads.attention import Head
from engine.heads.composition import feeding
from engine.heads.idealised import Ideal, ideal_answers, ideal_losses
from engine.heads.in_text import head_in_texts, head_on_probe
from engine.heads.induction import VARIANTS, induction
from engine.heads.ov_tokens import ov_tokens
from engine.importance.criteria import CRITERIA as TABLE
from engine.importance.rankings_of import INDUCTION_SEED
from engine.measurement import Measurement, Workload, known_value
from engine.models.masks import Mask, parse_heads, parse_mask
from engine.models.session import Session, Target
from engine.questions.requests import TaskSpec
from engine.shapes import ModelShape
from engine.studies.portrait import Portrait
from engine.studies.surveys import StudySettings, Survey, survey
from engine.texts.incontext import MIN_TOKENS, icl_change, icl_score
from engine.texts.sources import N_TEXTS, Source, texts_of
from engine.texts.tokenloss import losses_of_texts, token_losses
from engine.timing.workload import CHARACTERS_A_TOKEN

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
Fields = dict[str, Any]  # of a Portrait
K = TypeVar("K")


@dataclass(frozen=True)
class HeadRequest:
    """Of which head, in which `setting` and on which `tasks` (their importance too); `typed` is a text whose tokens the
    OV circuit is asked about. The in-context-learning score is that of solved questions of the first task."""

    head: Head
    setting: StudySettings
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


def portrait(target: Target, asked: HeadRequest, names: Sequence[str] | None = None) -> Measurement[Portrait]:
    """The Portrait so far, with the parts of these `names` (None: all there are). A part that cannot be measured is set
    aside with the reason."""
    names = asked.parts if names is None else names
    parts = {name: partial(_PARTS[name], target, asked) for name in names}
    # not told apart by their parts: on a screen they are one job
    every_part = every(target, ("portrait", asked), parts, lambda name: STEPS, TITLES.__getitem__)
    return every_part.map(Portrait(target.shape, asked.head).with_parts)


def built_in() -> dict[str, str]:
    """The built-in texts by title."""
    return {passage.title: passage.text for passage in passages()}


def _masks(target: Target, asked: HeadRequest) -> tuple[Mask, Mask]:
    """Of the model with the head and without it."""
    return Mask.full(target.shape), parse_mask(asked.name, target.shape)


def _scores(target: Target, asked: HeadRequest, session: Session) -> Measurement[Fields]:
    """Olsson's scores, and Bansal's if they are stored."""
    olsson, bansal = VARIANTS
    stored = None
    with suppress(HeadroomError):  # the window is too short for Bansal's
        stored = induction(target, bansal, INDUCTION_SEED).stored(session)
    known = {} if stored is None else {bansal: stored}
    return induction(target, olsson, INDUCTION_SEED).map(lambda scores: {"scores": known | {olsson: scores}})


def _tokens(target: Target, asked: HeadRequest, session: Session) -> Measurement[Fields]:
    """Of the tokens of a passage, and of the typed ones."""
    texts = {"tokens": built_in()[READ]} | ({"typed": asked.typed} if asked.typed.strip() else {})
    known = all_of([ov_tokens(target, text, asked.head) for text in texts.values()])
    return known.map(lambda found: {name: each for name, each in zip(texts, found, strict=True) if each is not None})


def _losses(target: Target, asked: HeadRequest, session: Session) -> Measurement[Fields]:
    def both(title: str, session: Session) -> Measurement[Any]:
        return all_of([token_losses(target, built_in()[title], mask) for mask in _masks(target, asked)])

    return _each(target, asked, "losses", "losses", built_in(), both)


def _tasks(target: Target, asked: HeadRequest, session: Session) -> Measurement[Fields]:
    def both(task: TaskSpec, session: Session) -> Measurement[Any]:
        questions = asked.setting.judged(task, session.store)
        return all_of([evaluation(target, questions, mask) for mask in _masks(target, asked)])

    return _each(target, asked, "tasks", "answers", asked.tasks, both)


def _ideal_texts(target: Target, asked: HeadRequest, session: Session) -> Measurement[Fields]:
    texts = list(built_in().values())
    known = ideal_losses(target, texts, _ideal(target, asked))
    # shown once all of them are there
    return known.map(lambda losses: {"ideal_texts": losses} if len(losses["full"]) == len(texts) else {})


def _ideal_tasks(target: Target, asked: HeadRequest, session: Session) -> Measurement[Fields]:
    def answers(task: TaskSpec, session: Session) -> Measurement[Any]:
        return ideal_answers(target, asked.setting.judged(task, session.store), _ideal(target, asked))

    return _each(target, asked, "ideal-tasks", "ideal_answers", asked.tasks, answers)


def _ideal(target: Target, asked: HeadRequest) -> Ideal:
    return Ideal((asked.head,), Mask.full(target.shape))


def _importance(what: str, target: Target, asked: HeadRequest, session: Session) -> Measurement[Fields]:
    def fields(found: Survey) -> Fields:
        return {"importance": {(what, task): each for task, each in found.scores.items()}, **_why(what, found.failed)}

    return survey(target, asked.setting, asked.tasks, what).map(fields)


def _context(target: Target, asked: HeadRequest, session: Session) -> Measurement[Fields]:
    """The score of the In context screen's texts; its own ablations if they are stored, else the head's alone."""
    if target.shape.n_ctx < MIN_TOKENS:
        raise HeadroomError(f"an in-context-learning score takes a window of {MIN_TOKENS} tokens, this model has "
                            f"{target.shape.n_ctx}; take a model with a longer one")  # fmt: skip
    full, without = _masks(target, asked)

    def change(before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> Fields:
        return {"context": (icl_score(before, AROUND), icl_change(before, after, AROUND))}

    def of_texts(texts: tuple[str, ...]) -> Measurement[Fields]:
        ablations = head_ablations(target, texts, Ablating(full)).stored(session)
        if ablations is not None:
            fields = change(ablations.base, [each[asked.head] for each in ablations.ablated])
            return known_value(target, ("context", asked), fields)
        sides = all_of([losses_of_texts(target, texts, mask) for mask in (full, without)])
        return sides.map(lambda both: change(*(each for each in both if each is not None)) if all(both) else None)

    def expected() -> Workload:
        return Workload({"forward": 2.0 * N_TEXTS * MIN_TOKENS * CHARACTERS_A_TOKEN})

    return then(texts_of(target, Source("task", asked.tasks[0].name), asked.setting.data_dir), of_texts, expected)


def _each(
    target: Target,
    asked: HeadRequest,
    part: str,
    field: str,
    names: Iterable[K],
    build: Callable[[K, Session], Measurement[Any]],
) -> Measurement[Fields]:
    """A field of the Portrait that is measured entry by entry."""
    parts = {name: partial(build, name) for name in names}
    every_one = every(target, (part, asked), parts, label=lambda name: "")
    return every_one.map(lambda known: {field: dict(known.values), **_why(part, known.failed)})


def _why(part: str, failed: Mapping[Any, str]) -> Fields:
    """The first reason why an entry cannot be measured, as the reason of its part."""
    return {"failed": {part: next(iter(failed.values()))}} if failed else {}


def _as(field: str) -> Callable[[Any], Fields]:
    return lambda value: {field: value}


_PARTS: Mapping[str, Callable[[Target, HeadRequest, Session], Measurement[Fields]]] = {
    "scores": _scores,
    "probe": lambda target, asked, session: head_on_probe(target, asked.head).map(_as("probe")),
    "texts": lambda target, asked, session: head_in_texts(target, built_in(), asked.head).map(_as("texts")),
    "tokens": _tokens,
    "feeding": lambda target, asked, session: feeding(target, asked.head).map(_as("feeding")),
    "losses": _losses,
    "ideal-texts": _ideal_texts,
    "tasks": _tasks,
    "ideal-tasks": _ideal_tasks,
    **{what: partial(_importance, what) for what in CRITERIA},
    "context": _context,
}
