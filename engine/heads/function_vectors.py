"""Function-vector scores of heads (Todd et al. 2310.15213): how much a head's mean output on solved examples of a task
brings back the right answer where the examples' answers are shuffled.

Departures: 8 prompts per task, not 25 to 100, and means of 16 clean ones, not 100, so that a small model takes about a
minute; clean prompts end with a train pair, so that no mean has seen the pair that is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from engine.accuracy.scoring import nats_of
from engine.errors import HeadroomError
from engine.heads.last_token import head_outputs, hidden_with
from engine.measurement import Measurement, measured_apart, of_records
from engine.models.loading import Loaded
from engine.models.session import Session, Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import encode_questions
from engine.questions.rendering import Question
from engine.questions.word_pairs import N_SHOTS, PairTask, included_tasks
from engine.records import Record, canonical_key
from engine.timing.workload import CHARACTERS_A_TOKEN

N_CLEAN, N_SHUFFLED = 16, 8  # prompts of a task, for means and for scores
Tokenize = Callable[[Any], PairTask]  # from a tokenizer


@dataclass(frozen=True)
class FunctionVectorScores:
    """Scores of every head over n prompts with shuffled answers, of all tasks.

    rise: (n, L, H) probability of the first token of the answer with the head's mean output, minus that without
    shuffled: (n,) the probability without
    """

    rise: np.ndarray
    shuffled: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """(L, H)."""
        return self.rise.mean(0)


@measured_apart
def function_vectors(target: Target, tasks: Sequence[PairTask] | None = None) -> Measurement[FunctionVectorScores]:
    """Returns the FunctionVectorScores over these tasks (None: the included ones) once all records are stored.
    HeadroomError: no task has enough answers that begin differently."""
    asked = included_tasks(target.identity.folder) if tasks is None else tasks
    known = [lru_cache(maxsize=1)(task.tokenized) for task in asked]  # once, not for every prompt

    def pieces(session: Session, records: list[Record]) -> list[Piece]:
        return _pieces(target, asked, known, records)

    def value(records: list[Record]) -> FunctionVectorScores | None:
        return _scores(target, records) if len(records) == len(asked) * (1 + N_SHUFFLED) else None

    return of_records(target, ("function vectors", *(task.digest for task in asked)), pieces, value)


def _pieces(
    target: Target, tasks: Sequence[PairTask], known: Sequence[Tokenize], records: Sequence[Record]
) -> list[Piece]:
    """Returns for each task the means, then one piece per prompt, which reads them from the `records` so far; `known`:
    what gives each task with its tokens."""
    shape, found = target.shape, list[Piece]()
    rows = CHARACTERS_A_TOKEN * shape.n_heads * (shape.n_layers + 1) / 2  # of all heads, as characters of a full pass
    for task, tokenized in zip(tasks, known, strict=True):
        about = target.key() | {"pairs": task.digest, "clean": N_CLEAN}
        read, at = prompt_characters(task), len(found)
        found.append(mean_outputs(target, task, tokenized))
        for number in range(N_SHUFFLED):
            measure = partial(_patched, bos=target.bos, tokenized=tokenized, number=number, at=at, records=records)
            key = canonical_key("function vectors", about | {"prompt": number})
            found.append(Piece(key, 1, {"p": (1 + shape.n_heads_total,)}, measure, partial(float, read + rows)))
    return found


def prompt_characters(task: PairTask) -> float:
    """Returns how many characters a solved prompt of a task has on average."""
    texts = [len(task.asked(pair).contexts[0] + pair.answer) for pair in task.pairs]
    return (N_SHOTS + 1) * sum(texts) / max(len(texts), 1)


def mean_outputs(target: Target, task: PairTask, tokenized: Tokenize) -> Piece:
    """Returns the piece with the mean z (L, H, d_head) at the last token of solved prompts of a task."""
    shape, read = target.shape, N_CLEAN * prompt_characters(task)
    key = canonical_key("function vectors", target.key() | {"pairs": task.digest, "clean": N_CLEAN})
    shapes = {"z": (shape.n_layers, shape.n_heads, shape.d_head)}
    return Piece(key, N_CLEAN, shapes, partial(_means, bos=target.bos, tokenized=tokenized), partial(float, read))


def _means(loaded: Loaded, bos: bool, tokenized: Tokenize) -> Measuring:
    """Measures z at the last token, averaged over clean prompts; 0 for a task with too few pairs."""
    known, shape = tokenized(loaded.tokenizer), loaded.identity.shape
    z = np.zeros((shape.n_layers, shape.n_heads, shape.d_head), np.float32)
    for number in range(N_CLEAN if known.is_usable else 0):
        dropped = (
            f" ({known.n_dropped} of {known.n_dropped + len(known.pairs)} pairs dropped)" if known.n_dropped else ""
        )
        yield Progress(0, 1, message=f"mean outputs on {known.name}{dropped}", share=number / N_CLEAN)
        ids, _ = read_prompt(loaded, bos, known.prompt("train", number))
        z += head_outputs(loaded, ids).numpy() / N_CLEAN
    return {"z": z}, {"kind": "function vectors", "task": known.name, "dropped_pairs": known.n_dropped}


def _patched(
    loaded: Loaded, bos: bool, tokenized: Tokenize, number: int, at: int, records: Sequence[Record]
) -> Measuring:
    """Measures p of the answer after a prompt with shuffled answers, as it is and with each head's mean output; nan for
    a task with too few pairs. `at`: the place of its means among the records."""
    import torch

    known = tokenized(loaded.tokenizer)
    yield Progress(0, 1, message=f"function vectors of {known.name}", share=0.0)
    p = np.full(1 + loaded.identity.shape.n_heads_total, np.nan, np.float32)
    if known.is_usable:
        ids, token = read_prompt(loaded, bos, known.prompt("test", number, shuffled=True))
        with torch.inference_mode():
            hidden = hidden_with(loaded, ids, torch.from_numpy(records[at].arrays["z"]))
            p = np.exp(-nats_of(loaded, hidden, np.full(len(hidden), token)))
    return {"p": p}, {"kind": "function vectors", "task": known.name, "prompt": number}


def read_prompt(loaded: Loaded, bos: bool, question: Question) -> tuple[tuple[int, ...], int]:
    """Returns the tokens of a prompt, and the first token of the answer."""
    [[choice]] = encode_questions([question], loaded.tokenizer, bos, loaded.identity.shape.n_ctx)
    return choice.inputs[: len(choice.inputs) - len(choice.targets) + 1], choice.targets[0]


def _scores(target: Target, records: Sequence[Record]) -> FunctionVectorScores:
    found = np.stack([record.arrays["p"] for record in records if "p" in record.arrays]).astype(np.float64)
    found = found[~np.isnan(found[:, 0])]
    if not len(found):
        raise HeadroomError(f"{target.identity.name}: the first tokens of answers are too often the same; choose a "
                            "model with a larger vocabulary")  # fmt: skip
    rise = found[:, 1:] - found[:, :1]
    return FunctionVectorScores(rise.reshape(-1, target.shape.n_layers, target.shape.n_heads), found[:, 0])
