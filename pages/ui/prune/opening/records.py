"""What the opening story shows, from stored records alone: accuracy without the induction heads and without as many
others, as the story "Remove induction heads" measures it, and the losses of a text said twice, as Passage does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.demo import passages
from engine.heads.induction import induction
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.models.session import Session, Target
from engine.questions.requests import TaskSpec
from engine.questions.tasks import task_info
from engine.statistics import wilson
from engine.studies.removal import N_DRAWS, AccuracyWithout, Removal, draw, removal, without
from engine.texts.tokenloss import TokenLosses, token_losses
from pages.ui.page.defaults import SHOTS
from pages.ui.page.tables import number
from pages.ui.prune.stories import N_ASKED, TEXT, cast_from

FULL_NATS = 4.0  # full color of an added loss, as Passage has it at first
BEGINNING = 40  # characters that identify the beginning of a text


@dataclass(frozen=True)
class OpeningStory:
    """The records of the story.

    target: the model
    task: the task that is asked
    found: its induction heads, and the accuracies
    scores: prefix matching of each head, by flat index
    full, pruned: the losses of the text, of the full model and without the induction heads
    repeats_at: the first token of the text's second copy
    """

    target: Target
    task: TaskSpec
    found: Removal
    scores: np.ndarray
    full: TokenLosses
    pruned: TokenLosses
    repeats_at: int

    @property
    def draws(self) -> list[tuple[int, ...]]:
        """The heads of each random draw, by flat index."""
        masks = [draw(self.target.shape, self.found.heads, seed) for seed in range(len(self.found.draws))]
        return [tuple(np.flatnonzero(~np.array(mask.heads).ravel()).tolist()) for mask in masks]

    @property
    def added_nats(self) -> np.ndarray:
        """The loss of each token that appears without the induction heads, (n,); nan without a loss."""
        return self.pruned.loss_nats - self.full.loss_nats

    def mean_nats(self, losses: TokenLosses, second: bool) -> float:
        """Returns the mean loss of a token in the first copy of the text, or in the second."""
        copy = losses.loss_nats[self.repeats_at :] if second else losses.loss_nats[: self.repeats_at]
        return float(np.nanmean(copy))

    @property
    def holds(self) -> bool:
        """Whether the records show what the sentences say."""
        found = self.found
        if len(found.draws) != N_DRAWS or not found.holds or any(line.is_loss for line in found.draws):
            return False
        added = self.added_nats
        first, second = np.nanmean(added[: self.repeats_at]), np.nanmean(added[self.repeats_at :])
        return bool(second > 1 and second > 4 * abs(first))


def story_task(names: Mapping[str, str]) -> tuple[TaskSpec, TaskSpec] | None:
    """Returns the task that the story asks and the one without examples, of tasks by name with their
    `TaskInfo.needs`; None without both."""
    main, control = cast_from(names) or (None, None)
    return (TaskSpec(main, SHOTS), TaskSpec(control, 0)) if main and control else None


def measurement(target: Target, tasks: tuple[TaskSpec, TaskSpec], data_dir: str | None) -> Measurement[Removal]:
    """Returns the measurement of the accuracies: that of the story's button at the default settings."""
    return removal(target, *tasks, N_ASKED, data_dir)


def losses(target: Target, mask: Mask) -> Measurement[TokenLosses]:
    """Returns the measurement of the losses of the text that is said twice: that of Passage."""
    return token_losses(target, _text(), mask)


def read_story(
    target: Target, tasks: tuple[TaskSpec, TaskSpec], data_dir: str | None, session: Session
) -> OpeningStory | None:
    """Returns the story, None if a record is missing or the records do not show what it says."""
    found, scores = measurement(target, tasks, data_dir).stored(session), induction(target).stored(session)
    if found is None or scores is None or not found.heads:
        return None
    full = losses(target, Mask.full(target.shape)).stored(session)
    pruned = losses(target, without(target.shape, found.heads)).stored(session)
    if full is None or pruned is None:
        return None
    text = full.text
    repeats_at = int(np.searchsorted(full.ends, text.rindex(text[:BEGINNING]), side="right"))
    matching = np.nan_to_num(scores.mean["prefix_matching"].ravel())
    story = OpeningStory(target, tasks[0], found, matching, full, pruned, repeats_at)
    return story if story.holds else None


def component_data(story: OpeningStory) -> dict[str, Any]:
    """Returns what the component plays: heads, accuracies, losses, and one sentence for each of the four steps."""
    found, shape = story.found, story.target.shape
    assert found.removed is not None
    n, added = found.removed.change.n, np.where(np.isfinite(story.added_nats), story.added_nats, 0.0)
    loss = {side: [story.mean_nats(of, second) for second in (False, True)]
            for side, of in (("full", story.full), ("pruned", story.pruned))}  # fmt: skip
    return {
        "columns": shape.n_heads,
        "scores": [round(float(score), 3) for score in story.scores],
        "heads": list(found.heads),
        "draws": [list(heads) for heads in story.draws],
        "accuracy": {
            "full": _accuracy(found.removed.full, n),
            "removed": _accuracy(found.removed.pruned, n),
            "draws": [_accuracy(line.pruned, n) for line in found.draws],
        },
        "n": n,
        "chance": task_info(story.task.name).chance,
        "pieces": story.full.pieces,
        "added": [round(float(nats), 3) for nats in added],
        "full_nats": FULL_NATS,
        "repeats_at": story.repeats_at,
        "loss": {side: [number(nats, 1) for nats in copies] for side, copies in loss.items()},
        "more_nats": number(loss["pruned"][1] - loss["full"][1], 1, sign=True),
        "title": f"{story.target.identity.name} model, {shape.n_layers} layers of {shape.n_heads} heads",
        "sentences": sentences(found, shape.n_heads_total),
    }


def sentences(found: Removal, n_heads: int) -> list[str]:
    """Returns the sentence of each step, at most 90 characters."""
    removed, k = found.removed, len(found.heads)
    assert removed is not None
    n, least, most = removed.change.n, *_extremes(found.draws)
    return [
        f"Prune {k} of {n_heads} attention heads: those that best find earlier copies (strongest color).",
        f"Without these induction heads, {_right(removed.pruned, n)} of {n} answers are right, not "
        f"{_right(removed.full, n)}.",
        f"Prune {k} other heads at random, {len(found.draws)} times: {least} to {most} of {n} answers stay right.",
        "Why: they find what the text said before. Orange: the loss that appears without them.",
    ]


def _extremes(draws: tuple[AccuracyWithout, ...]) -> tuple[int, int]:
    counts = [_right(line.pruned, line.change.n) for line in draws]
    return min(counts), max(counts)


def _right(share: float, n: int) -> int:
    return round(share * n)


def _accuracy(share: float, n: int) -> dict[str, Any]:
    """Returns an accuracy with the ends of its 95% interval in percent, as text."""
    low, high = wilson(_right(share, n), n)
    return {"share": share, "interval": [number(100 * end, 1) for end in (low, high)]}


def _text() -> str:
    return next(passage.text for passage in passages() if passage.title == TEXT)
