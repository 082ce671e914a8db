"""What a lower precision disturbs: how far the output of each head and FFN is from that of the same model in a
reference precision, on the same tokens, next to its importance; and what accuracy, log-likelihoods, and perplexity
lose.

The outputs are compared twice. In one pass, each layer reads what it reads in the reference model, and each FFN what is
there behind the reference model's attention, so that differences do not pile up; the other is the model as it is.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.accuracy.evaluation import Answers, compared, evaluation
from engine.accuracy.scoring import hidden_of
from engine.composed import ComposedRun, composed
from engine.importance.criteria import CRITERIA, passes
from engine.importance.rankings import agreement
from engine.importance.scores import importance
from engine.measurement import Measurement, single
from engine.models.loading import Loaded, LoadSpec
from engine.models.masks import Mask, refuse_faulty
from engine.models.session import Target
from engine.pieces import Measuring, Piece, found
from engine.progress import Progress, may_stop
from engine.questions.encoding import read_within
from engine.questions.rendering import Questions
from engine.records import canonical_key
from engine.statistics import mean_over
from engine.texts.passages import checked, text_digest
from engine.texts.perplexity import MOST_BYTES, Perplexity, change, perplexity
from engine.timing.workload import CHARACTERS_A_TOKEN

if TYPE_CHECKING:
    from torch import Tensor

N_TOKENS = 256  # with BOS; outputs on them are held in memory while models are compared
PARTS = {"heads": CRITERIA["gradient"].heads, "ffns": CRITERIA["gradient"].ffns}  # and the score of their importance
# of one text, a tensor for each layer: "input" (T, d_model), "z" (T, H, d_head), "attention" and "ffn" (T, d_model)
Outputs = Mapping[str, Sequence["Tensor"]]


@dataclass(frozen=True)
class PrecisionEffects:
    """Models next to the same one in a reference precision, the first that has answers.

    answers, perplexity: of each model
    disturbed: of the others, by "heads" (L, H) and "ffns" (L,): mean over tokens of |z - z_ref| / |z_ref|, each layer
        fed with the reference model's input; by "heads_end_to_end" and "ffns_end_to_end": of the model as it is
    importance: by "heads" and "ffns", in the model after the reference
    """

    answers: Mapping[LoadSpec, Answers]
    perplexity: Mapping[LoadSpec, Perplexity]
    disturbed: Mapping[LoadSpec, Mapping[str, np.ndarray]]
    importance: Mapping[str, np.ndarray]

    @property
    def reference(self) -> LoadSpec:
        return next(iter(self.answers))

    def row(self, spec: LoadSpec) -> dict[str, Any]:
        """Returns what the precision of a model disturbs and loses: means of `disturbed` by name; Spearman's rho of
        importance and disturbance, with a 95% interval and p; and, each with its interval, points of accuracy lost
        (`p`: McNemar's), log-likelihood of the right choice lost (nats a question), and the rise of the loss (nats a
        token)."""
        disturbed, own, row = self.disturbed[spec], self.answers[spec], dict[str, Any](name=name_of(spec))
        row |= {f"disturbed_{name}": float(each.mean()) for name, each in disturbed.items()}
        for part in PARTS:
            pair = agreement({"importance": self.importance[part], "disturbed": disturbed[part]})
            row |= {f"{part}_{name}": float(getattr(pair, name)[0, 1]) for name in ("srcc", "low", "high", "p")}
        both = compared(self.answers[self.reference], own)
        low, high = both.change.interval
        lost = 100 * (both.first.acc - both.second.acc)
        row |= {"acc": both.second.acc, "points_lost": lost, "points_low": -100 * high, "points_high": -100 * low,
                "p": both.change.p_mcnemar, "n": both.change.n}  # fmt: skip
        rights = [each.gold_log_likelihood_nats for each in (self.answers[self.reference], own)]
        row |= dict(zip(("nats_lost", "nats_low", "nats_high"), mean_over(rights[0] - rights[1]), strict=True))
        loss = change(self.perplexity[self.reference], self.perplexity[spec])
        row |= {"loss_change": loss.nats, "loss_low": loss.low, "loss_high": loss.high}
        return row | {"perplexity": self.perplexity[spec].a_token}


def name_of(spec: LoadSpec) -> str:
    """Returns the precision of a model, of int8 with its outlier threshold."""
    return f"int8, threshold {spec.int8_threshold:g}" if spec.precision == "int8" else spec.precision


def precision_effects(
    targets: Sequence[Target], text: str, questions: Questions, ranking: Questions
) -> Measurement[PrecisionEffects]:
    """Returns the PrecisionEffects of a model in several precisions, the reference first, once all is measured: outputs
    on the beginning of a text and perplexity of all of it, answers to `questions`, and importance on `ranking`.

    Each model is loaded once: the reference model's outputs are held until all others are compared with them."""
    text, n, (reference, first, *_) = checked(text, most=MOST_BYTES), max(1, questions.n), targets
    sizes = {part: passes(what, first.shape) * ranking.n for part, what in PARTS.items()}

    def body(run: ComposedRun) -> Generator[Progress[Any], None, PrecisionEffects | None]:
        held, known = list[Outputs](), dict[str, dict[LoadSpec, Any]]()
        for target in targets:
            full, piece = Mask.full(target.shape), _piece(target, reference, text, held)
            wanted = dict[str, Measurement[Any]](answers=evaluation(target, questions, full))
            wanted["perplexity"] = perplexity(target, text, full)
            if target != reference:
                wanted["disturbed"] = single(target, piece, lambda record: record.arrays)
                if run.measures and not held and found(run.session, piece) is None:
                    loaded = yield from run.session.loaded(reference, run.done, run.total)
                    held.append(outputs(loaded, text, reference.bos))
                    del loaded  # before the other model takes its place
            if target == first:
                wanted |= {part: importance(first, ranking, what) for part, what in PARTS.items()}
            for name, each in wanted.items():
                value = yield from run.part(each, sizes.get(name, n), f"{name}, {target.spec.in_words}")
                known.setdefault(name, {})[target.spec] = value
        if any(value is None for values in known.values() for value in values.values()):
            return None
        scores = {part: known.pop(part)[first.spec].scores for part in PARTS}
        return PrecisionEffects(**known, importance=scores)

    about = ("precision", *targets, text_digest(text), questions, ranking)
    return composed(first, about, body, n * (3 * len(targets) - 1) + sum(sizes.values()))


def _piece(target: Target, reference: Target, text: str, held: Sequence[Outputs]) -> Piece:
    """Returns the piece with `disturbed`; `held` has the reference model's outputs when it is measured."""
    fields = {"reference": reference.key(), "text": text_digest(text), "tokens": N_TOKENS}
    sizes = {"heads": (target.shape.n_layers, target.shape.n_heads), "ffns": (target.shape.n_layers,)}
    shapes = {f"{part}{way}": size for part, size in sizes.items() for way in ("", "_end_to_end")}

    def measure(loaded: Loaded) -> Measuring:
        arrays = dict[str, np.ndarray]()
        for at, (way, fed) in enumerate((("", held[0]), ("_end_to_end", None))):
            yield Progress(0, 1, share=at / 2)
            own = outputs(loaded, text, target.bos, fed)
            for part, name in (("heads", "z"), ("ffns", "ffn")):
                pairs = zip(own[name], held[0][name], strict=True)
                arrays[part + way] = np.stack([relative_difference(*pair) for pair in pairs])
        return arrays, {"kind": "disturbed outputs", "reference": reference.spec.precision}

    characters = 2.0 * min(len(text), N_TOKENS * CHARACTERS_A_TOKEN)
    return Piece(canonical_key("disturbed", target.key() | fields), 1, shapes, measure, lambda: characters)


def relative_difference(own: Tensor, reference: Tensor) -> np.ndarray:
    """Returns the mean over tokens of |own - reference| / |reference|, of vectors along the last axis; tokens at which
    the reference is 0 do not count."""
    size = reference.double().norm(dim=-1)
    share = (own.double() - reference.double()).norm(dim=-1) / size.where(size > 0, 1.0)
    return ((share * (size > 0)).sum(0) / (size > 0).sum(0).clamp_min(1)).float().numpy()


def outputs(loaded: Loaded, text: str, bos: bool, fed: Outputs | None = None) -> Outputs:
    """Returns the Outputs of a model on the first tokens of a text, fp32 in main memory. If it is `fed` those of
    another model, each layer reads that one's input, and that one's attention output is added in place of its own."""
    import torch

    refuse_faulty(loaded)
    known: dict[str, list[Tensor]] = {"input": [], "z": [], "attention": [], "ffn": []}
    shape = loaded.identity.shape

    def keep(name: str, value: Tensor, *each: int) -> Tensor:
        """Notes a layer's value; returns it, or that of the other model."""
        at = len(known[name])
        known[name].append(value.reshape(-1, *(each or (shape.d_model,))).float().cpu())
        return value if fed is None else fed[name][at].to(value).view_as(value)

    def on_layer(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        may_stop()
        read = keep("input", args[0] if args else kwargs["hidden_states"])
        return ((read, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": read})

    def on_heads(module: Any, args: tuple[Any, ...]) -> None:
        keep("z", args[0], shape.n_heads, shape.d_head)

    layers = zip(loaded.family.layer_list(loaded.model), loaded.family.layer_modules(loaded.model), strict=True)
    with torch.inference_mode(), ExitStack() as hooks:
        for layer, (attention, ffn) in layers:
            hooks.enter_context(layer.register_forward_pre_hook(on_layer, with_kwargs=True))
            hooks.enter_context(attention.register_forward_pre_hook(on_heads))
            hooks.enter_context(attention.register_forward_hook(lambda _, args, output: keep("attention", output)))
            hooks.enter_context(ffn.register_forward_hook(lambda _, args, output: keep("ffn", output)))
        hidden_of(loaded, read_within(text, loaded.tokenizer, bos, min(N_TOKENS, shape.n_ctx)).inputs[None])
    return known
