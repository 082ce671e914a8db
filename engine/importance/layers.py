"""Pruning orders of whole layers: the table of criteria, what each measures, and how it is stored.

Dropping a layer prunes its heads and its FFN; its biases stay, and in OPT-350m its norms.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from engine.accuracy.evaluation import encoded_chunk
from engine.accuracy.passes import hidden_states, passes, tokens_computed
from engine.accuracy.restarts import lost, oracle, under_each
from engine.composed import ComposedRun, composed
from engine.importance.rankings import order, random_order
from engine.measurement import Measurement, Workload, known_value, measured_apart, of_records
from engine.models.loading import Loaded
from engine.models.masks import Mask, without_layers
from engine.models.session import Session, Target
from engine.pieces import Measuring, Piece, is_sound
from engine.progress import Progress
from engine.questions.encoding import pack
from engine.questions.rendering import Questions
from engine.records import Key, Record, canonical_key, encode
from engine.shapes import ModelShape
from engine.timing.workload import all_characters, gradient_characters

# all criteria, and whether each is measured (on the task's train questions)
LAYERS_BY = {"influence": True, "oracle": True, "greedy": True, "last-first": False, "random": False}


@dataclass(frozen=True)
class Step:
    """One step of the greedy search: the layer that was dropped, and the accuracy (0-1) after that."""

    layer: int
    accuracy: float


def n_passes(shape: ModelShape, by: str, n: int) -> int:
    """Returns how many times all questions are read to find the first n layers to drop; a pass without a layer starts
    in that layer."""
    counts = {"influence": 1, "oracle": 1 + shape.n_layers, "greedy": sum(shape.n_layers - at for at in range(n))}
    return counts.get(by, 0)


def layer_order(target: Target, questions: Questions | None, by: str, n: int, seed: int = 0) -> Measurement[np.ndarray]:
    """Returns layers in pruning order: all of them; for `greedy` the first n, and more if they are stored. Orders that
    are not measured need no questions."""
    if questions is None or not LAYERS_BY[by]:
        return known_value(target, (by, seed), unmeasured_order(target.shape, by, seed))
    if by == "influence":
        return block_influence(target, questions).map(order)
    if by == "oracle":
        return oracle(target, questions, "layers").map(lambda answers: order(*lost(answers[0], answers[1:])))
    return greedy(target, questions, n).map(lambda steps: np.array([step.layer for step in steps], int))


def unmeasured_order(shape: ModelShape, by: str, seed: int) -> np.ndarray:
    """Returns layers in a pruning order that needs no measurement: `last-first`, or seeded `random`."""
    return random_order(shape.n_layers, seed) if by == "random" else np.arange(shape.n_layers)[::-1]


@measured_apart
def block_influence(target: Target, questions: Questions) -> Measurement[np.ndarray]:
    """Returns (L,): 1 - the mean over all tokens of the cosine between a layer's input and output residual stream, of
    the full model (Men et al. 2403.03853).

    The tokens are those of each question with its gold choice, as the model reads them. Cosines are computed in fp64,
    because a layer may rotate the stream by less than fp32 resolves.
    """

    def pieces(session: Session, records: list[Record]) -> list[Piece]:
        wanted, n_layers = [], target.shape.n_layers
        measure = partial(_measured, target=target, questions=questions)
        for chunk, size in questions.sized_chunks():
            golds = [question.golds[0] for question in questions.at(chunk)]
            fields = target.key() | {"questions": questions.digest(chunk), "golds": golds}
            shapes = {"sums": (len(chunk), n_layers), "lengths": (len(chunk),)}
            key, measured = canonical_key("block-influence", fields), partial(measure, chunk=chunk)
            wanted.append(Piece(key, size, shapes, measured, partial(reads, chunk)))
        return wanted

    def reads(chunk: Sequence[int]) -> float:
        return gradient_characters(questions.at(chunk), every_choice=False) / 2  # half of a forward and a backward pass

    def value(records: list[Record]) -> np.ndarray | None:
        if not records:
            return None
        sums, lengths = (np.concatenate([each.arrays[name] for each in records])[: questions.n]
                         for name in ("sums", "lengths"))  # fmt: skip
        return sums.sum(0) / lengths.sum()

    return of_records(target, ("influence", questions), pieces, value)


def _measured(loaded: Loaded, target: Target, questions: Questions, chunk: Sequence[int]) -> Measuring:
    encoded = encoded_chunk(loaded, target, questions, chunk)
    rows = []
    for question, choices in zip(questions.at(chunk), encoded, strict=True):
        row = pack([choices[question.golds[0]]])[0]
        # the last layer is needed at all positions, not only at the targets
        rows.append(replace(row, read=tuple((0, position, 0) for position in range(len(row.tokens)))))
    sums, lengths = np.zeros((len(rows), target.shape.n_layers)), np.zeros(len(rows), np.int64)
    done, total = 0, sum(len(row.tokens) for row in rows)
    for groups in passes(loaded, rows):
        together = [row for group in groups for row in group]
        with _turning(loaded) as found:
            hidden_states(loaded, groups)
        ends = np.cumsum(tokens_computed(loaded, together))[:-1]
        for row, part in zip(together, np.split(np.stack(found), ends, axis=1), strict=True):
            at = row.choices[0].question
            sums[at], lengths[at] = part[:, : len(row.tokens)].sum(1), len(row.tokens)
            done += len(row.tokens)
        yield Progress(0, 1, share=done / total)
    return {"sums": sums, "lengths": lengths}, questions.receipt() | {"kind": "block-influence"}


@contextmanager
def _turning(loaded: Loaded) -> Iterator[list[np.ndarray]]:
    """While open, a forward pass appends for each layer 1 - the cosine between the stream before and after it,
    (token,), to the list that is yielded."""
    import torch

    found: list[np.ndarray] = []

    def compare(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        before, after = (args[0] if args else kwargs["hidden_states"]), output
        after = after if isinstance(after, torch.Tensor) else after[0]
        cosine = torch.nn.functional.cosine_similarity(before.double(), after.to(before.device).double(), dim=-1)
        found.append((1 - cosine).flatten().cpu().numpy())

    with ExitStack() as hooks:
        for layer in loaded.family.layer_list(loaded.model):
            hooks.enter_context(layer.register_forward_hook(compare, with_kwargs=True))
        yield found


def greedy(target: Target, questions: Questions, n: int) -> Measurement[list[Step]]:
    """Returns the first n Steps, or those known so far. Each step drops the layer that costs least, and the next
    measures again without each remaining layer.

    The layer whose removal leaves the most questions right is dropped; of equals, the one that leaves the most gold
    log-likelihood. Each step is stored; so are the answers under each mask. Reading also returns stored steps beyond n.
    """
    n_layers = target.shape.n_layers

    def expected(n_done: int) -> Workload:
        passes = n_passes(target.shape, "greedy", n) - n_passes(target.shape, "greedy", n_done)
        return Workload({"forward": all_characters(questions) * passes / 2})  # a pass without a layer starts in it

    def body(run: ComposedRun) -> Generator[Progress[Any], None, list[Step]]:
        found: list[Step] = []
        run.total = max(1, n_passes(target.shape, "greedy", n) * questions.n)
        for number in range(n if run.measures else n_layers):
            key, dropped = _key(target, questions, found), [each.layer for each in found]
            left = [layer for layer in range(n_layers) if layer not in dropped]
            size, record = len(left) * questions.n, run.session.record(key)
            if record is not None and is_sound(
                record, dict.fromkeys(("layers", "accuracy", "gold_nats"), (len(left),))
            ):
                run.done += size
            elif not run.measures:
                if number < n:
                    run.expect(key, partial(expected, number))
                break
            else:
                run.cached = False
                masks = [without_layers(Mask.full(target.shape), [*dropped, layer]) for layer in left]
                label = f"layer {number + 1} of {n} to go"
                answers = yield from run.part(under_each(target, questions, masks), size, label)
                assert answers is not None
                accuracy = [each.correct.mean() for each in answers]
                nats = [each.gold_log_likelihood_nats.mean() for each in answers]
                arrays = {"layers": np.array(left), "accuracy": np.array(accuracy), "gold_nats": np.array(nats)}
                about = questions.receipt() | {"kind": "greedy-layers", "dropped": dropped}
                record = Record(arrays, target.receipt(0.0, **about))
                run.session.store.put(key, encode(record))
            best = order(-record.arrays["accuracy"], -record.arrays["gold_nats"])[0]
            found = [*found, Step(int(record.arrays["layers"][best]), float(record.arrays["accuracy"][best]))]
            yield run.so_far(found)
        return found

    return composed(target, ("greedy", questions, n), body)


def _key(target: Target, questions: Questions, gone: Sequence[Step]) -> Key:
    asked = questions.order[: questions.n]
    golds = [list(question.golds) for question in questions.at(asked)]
    about = {"questions": questions.digest(asked), "golds": golds, "dropped": [step.layer for step in gone]}
    return canonical_key("greedy-layers", target.key() | about)
