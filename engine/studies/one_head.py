"""The measurements of one head, in parts: scores, heads that feed it, attention patterns, raised tokens, effects of
ablating it, and importance by every criterion. Each part is read from the store, or measured and stored.
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
from engine.heads.circuits import feeding, ov_tokens
from engine.heads.idealized import Ideal, ideal_answers, ideal_losses
from engine.heads.in_text import head_in_texts, head_on_probe
from engine.heads.induction import VARIANTS, InductionScores, induction
from engine.importance.criteria import CRITERIA as TABLE
from engine.importance.criteria import KINDS, ON_REQUEST, SLOW
from engine.importance.scores import Scores, of_prompts
from engine.measurement import Measurement, Workload, known_value
from engine.models.masks import Mask, parse_heads, parse_mask
from engine.models.session import Session, Target
from engine.questions.rendering import TaskSpec
from engine.shapes import ModelShape
from engine.studies.portrait import Portrait
from engine.studies.surveys import Survey, SurveySettings, survey
from engine.texts.incontext import MIN_TOKENS, icl_change, icl_score
from engine.texts.passages import LOG_BOOKS, texts_of
from engine.texts.tokenloss import losses_of_texts, token_losses
from engine.timing.workload import CHARACTERS_A_TOKEN

CRITERIA = {criterion.heads: criterion.label for name, criterion in TABLE.items() if name not in ON_REQUEST}  # of heads
OF_KINDS = {TABLE[name].heads: name for name in ("function-vector", *KINDS)}
# of the model and built-in texts alone
LOOKING = ("scores", "probe", "texts", "tokens", "feeding", "losses", "ideal-texts", "context")
# last: they start by themselves only if the parts before leave time
LONG = ("ideal-tasks", *(TABLE[name].heads for name in SLOW))
PARTS = (*LOOKING, "tasks", *(name for name in CRITERIA if name not in LONG), *LONG)
READ = "Privet Drive, twice"  # the passage whose tokens are shown for the OV circuit
AROUND = 10  # tokens averaged on either side in an in-context score, as on the Text screen
Fields = dict[str, Any]  # of a Portrait
K = TypeVar("K")
Build = Callable[[K, Session], Measurement[Any]]  # of one entry, by its name


@dataclass(frozen=True)
class HeadRequest:
    """A request for the measurements of a head, in a `setting` and on the train questions of `tasks`, as a map of what
    all heads cost; `typed` is a text whose tokens are shown for the OV circuit."""

    head: Head
    setting: SurveySettings
    tasks: tuple[TaskSpec, ...] = ()
    typed: str = ""

    @property
    def name(self) -> str:
        return f"L{self.head[0]}H{self.head[1]}"

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts to measure: without a task, only those that need none."""
        return PARTS if self.tasks else LOOKING


def head_named(text: str, shape: ModelShape) -> Head:
    """Returns the head named by a text such as "L1H0". UsageError: it names no head, or several."""
    found = parse_heads(text, shape)
    if len(found) != 1:
        raise UsageError(f"{text[:40]!r} names {len(found)} heads; give one, such as L1H0")
    return found[0]


def portrait(target: Target, request: HeadRequest, names: Sequence[str] | None = None) -> Measurement[Portrait]:
    """Returns the Portrait so far, with the parts of these `names` (None: all). A part that cannot be measured is
    listed with the reason."""
    names = request.parts if names is None else names
    parts = {name: partial(_PARTS[name][1], target, request) for name in names}
    # the key ignores the names of the parts, so that a screen has one job
    every_part = every(target, ("portrait", request), parts, label=_now)
    return every_part.map(Portrait(target.shape, request.head).with_parts)


def _now(name: str) -> str:
    """Returns the part under way, as what the progress counts are parts."""
    return f"Parts, now {TITLES[name][:1].lower()}{TITLES[name][1:]}"


def built_in() -> dict[str, str]:
    """Returns the built-in texts by title."""
    return {passage.title: passage.text for passage in passages()}


def texts_to_read() -> dict[str, str]:
    """Returns the built-in texts, first the one whose pattern is drawn on top."""
    texts = built_in()
    return {READ: texts[READ], **texts}


def _masks(target: Target, request: HeadRequest) -> tuple[Mask, Mask]:
    """Returns the masks with the head and without it."""
    return Mask.full(target.shape), parse_mask(request.name, target.shape)


def _scores(target: Target, request: HeadRequest, session: Session) -> Measurement[Fields]:
    """Measures Olsson's scores, and adds Bansal's and those of kinds of heads that are stored and differ."""
    olsson, bansal = VARIANTS
    variants, kinds = dict[str, InductionScores](), dict[str, np.ndarray]()
    with suppress(HeadroomError):  # the window is too short for Bansal's
        if bansal_scores := induction(target, bansal).stored(session):
            variants[bansal] = bansal_scores
    for what in OF_KINDS:
        with suppress(HeadroomError):  # the window or the vocabulary is too small
            if kind_scores := of_prompts(target, what).stored(session):
                kinds |= _as_kind(kind_scores)
    return induction(target).map(lambda scores: {"scores": variants | {olsson: scores}, "kinds": kinds})


def _tokens(target: Target, request: HeadRequest, session: Session) -> Measurement[Fields]:
    """Measures the OvTokens of a passage, and of the typed text."""
    texts = {"tokens": built_in()[READ]} | ({"typed": request.typed} if request.typed.strip() else {})
    every_text = all_of([ov_tokens(target, text, request.head) for text in texts.values()])
    return every_text.map(
        lambda tokens: {name: each for name, each in zip(texts, tokens, strict=True) if each is not None}
    )


def _losses(target: Target, request: HeadRequest, session: Session) -> Measurement[Fields]:
    def both(title: str, session: Session) -> Measurement[Any]:
        return all_of([token_losses(target, built_in()[title], mask) for mask in _masks(target, request)])

    return _each(target, request, "losses", "losses", built_in(), both)


def _tasks(target: Target, request: HeadRequest, session: Session) -> Measurement[Fields]:
    def both(task: TaskSpec, session: Session) -> Measurement[Any]:
        questions = request.setting.train_questions(task, session.store)
        return all_of([evaluation(target, questions, mask) for mask in _masks(target, request)])

    return _each(target, request, "tasks", "answers", request.tasks, both)


def _ideal_texts(target: Target, request: HeadRequest, session: Session) -> Measurement[Fields]:
    texts = list(built_in().values())
    measurement = ideal_losses(target, texts, _ideal(target, request))
    # shown once all are measured
    return measurement.map(lambda losses: {"ideal_texts": losses} if len(losses["full"]) == len(texts) else {})


def _ideal_tasks(target: Target, request: HeadRequest, session: Session) -> Measurement[Fields]:
    def answers(task: TaskSpec, session: Session) -> Measurement[Any]:
        return ideal_answers(target, request.setting.train_questions(task, session.store), _ideal(target, request))

    return _each(target, request, "ideal-tasks", "ideal_answers", request.tasks, answers)


def _ideal(target: Target, request: HeadRequest) -> Ideal:
    return Ideal((request.head,), Mask.full(target.shape))


def _importance(what: str, target: Target, request: HeadRequest, session: Session) -> Measurement[Fields]:
    def fields(found: Survey) -> Fields:
        kinds = {name: scores for each in found.scores.values() for name, scores in _as_kind(each).items()}
        scores = {(what, task): each for task, each in found.scores.items()}
        return {"importance": scores, "kinds": kinds, **_why(what, found.failed)}

    return survey(target, request.setting, request.tasks, what).map(fields)


def _as_kind(found: Scores) -> dict[str, np.ndarray]:
    """Returns scores of a kind of heads by its criterion; {} if they are others, or if all heads score the same."""
    return {OF_KINDS[found.what]: found.scores} if found.what in OF_KINDS and np.ptp(found.scores) else {}


def _context(target: Target, request: HeadRequest, session: Session) -> Measurement[Fields]:
    """Measures the score on the windows of a text whose entries repeat, from ablations of all heads if stored, else
    from an ablation of this head alone."""
    if target.shape.n_ctx < MIN_TOKENS:
        raise HeadroomError(f"an in-context score needs a window of {MIN_TOKENS} tokens, this model has "
                            f"{target.shape.n_ctx}; choose a model with a longer window")  # fmt: skip
    full, without = _masks(target, request)

    def change(before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> Fields:
        return {"context": (icl_score(before, AROUND), icl_change(before, after, AROUND))}

    def of_texts(texts: tuple[str, ...]) -> Measurement[Fields]:
        ablations = head_ablations(target, texts, Ablating(full)).stored(session)
        if ablations is not None:
            fields = change(ablations.base, [each[request.head] for each in ablations.ablated])
            return known_value(target, ("context", request), fields)
        sides = all_of([losses_of_texts(target, texts, mask) for mask in (full, without)])
        return sides.map(lambda both: change(*(each for each in both if each is not None)) if all(both) else None)

    def expected() -> Workload:
        return Workload({"forward": 2.0 * LOG_BOOKS.n_texts * MIN_TOKENS * CHARACTERS_A_TOKEN})

    return then(texts_of(target, LOG_BOOKS), of_texts, expected, ("context", request))


def _each(
    target: Target, request: HeadRequest, part: str, field: str, names: Iterable[K], build: Build[K]
) -> Measurement[Fields]:
    """Measures a field of the Portrait entry by entry."""
    parts = {name: partial(build, name) for name in names}
    every_one = every(target, (part, request), parts, label=lambda name: "")
    return every_one.map(lambda known: {field: dict(known.values), **_why(part, known.failed)})


def _why(part: str, failed: Mapping[Any, str]) -> Fields:
    """Returns the first reason why an entry cannot be measured, as the reason for its part."""
    return {"failed": {part: next(iter(failed.values()))}} if failed else {}


def _as(field: str) -> Callable[[Any], Fields]:
    return lambda value: {field: value}


# title, and measurement, of each of PARTS
_PARTS: Mapping[str, tuple[str, Callable[[Target, HeadRequest, Session], Measurement[Fields]]]] = {
    "scores": ("Induction scores", _scores),
    "probe": (
        "Pattern on random tokens",
        lambda target, asked, session: head_on_probe(target, asked.head).map(_as("probe")),
    ),
    "texts": (
        "Built-in texts",
        lambda target, asked, session: head_in_texts(target, texts_to_read(), asked.head).map(_as("texts")),
    ),
    "tokens": ("Tokens it raises, by weights", _tokens),
    "feeding": ("Heads that feed it", lambda target, asked, session: feeding(target, asked.head).map(_as("feeding"))),
    "losses": ("Built-in texts without it", _losses),
    "ideal-texts": ("Built-in texts with an ideal pattern", _ideal_texts),
    "tasks": ("Tasks without it", _tasks),
    "ideal-tasks": ("Tasks with an ideal pattern", _ideal_tasks),
    **{what: (title, partial(_importance, what)) for what, title in CRITERIA.items()},
    "context": ("In-context gain without it", _context),
}
TITLES = {name: title for name, (title, _) in _PARTS.items()}
