"""Measures the embedded model against what it is meant to show: `python -m engine.demo.making.report [--corpus DIR]`.

Every figure comes through the same code as the app's own and through the same store, so a second call is quick.
"""

import argparse
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from cache import Store
from engine.demo import model_folder
from engine.demo.making.families import FAMILIES
from engine.errors import HeadroomError

SHOTS = (0, 1, 5)
LEVELS = tuple(range(0, 1001, 100))
SEEDS = (0, 1, 2)
WINDOW, STRIDE = 512, 256
BEGINNING = "It was late in the evening when the old man came back to the house."


class Measured:
    """One model with all that its measurements need; methods return plain numbers."""

    def __init__(self, model: str, n_questions: int | None, store: Store) -> None:
        from engine.models.loading import LoadSpec
        from engine.models.subject import Lab

        self.lab, self.n_questions = Lab(store), n_questions
        self.subjects = {precision: self.lab.subject(LoadSpec(model, precision)) for precision in ("fp32", "int8")}

    @property
    def loaded(self) -> Any:
        """The model in fp32."""
        return self.lab.models.get(self.subjects["fp32"].spec)

    def accuracy(
        self, family: str, n_shots: int, precision: str = "fp32", mask: Any = None, n: int | None = None
    ) -> float:
        """Accuracy (0-1) of one family."""
        from engine.accuracy.evaluation import accuracy, evaluate
        from engine.models.masks import Mask
        from engine.progress import final
        from engine.questions.requests import TaskSpec, get_requests, select

        subject, requests = self.subjects[precision], get_requests(TaskSpec(family, n_shots), None, self.lab.store)
        questions = select(requests, n or self.n_questions, "stratified")
        return accuracy(final(evaluate(self.lab, subject, questions, mask or Mask.full(subject.shape)))).acc

    def orders(self, family: str, ranking: str, seed: int = 0) -> Any:
        """The order of heads at 5 shots."""
        from engine.importance.rankings_of import Pruning, Ranking, compute_orders
        from engine.models.masks import parse_edits
        from engine.progress import final
        from engine.questions.requests import TaskSpec

        subject = self.subjects["fp32"]
        nothing = parse_edits("", subject.shape)
        pruning = Pruning(TaskSpec(family, 5), Ranking(ranking, seed, 64), max(LEVELS), 0, nothing)
        return final(compute_orders(self.lab, subject, pruning))

    def pruned_means(self, ranking: str, n: int, seed: int = 0) -> list[float]:
        """Mean accuracy over the suite at 5 shots, at each of LEVELS of heads pruned."""
        orders = {family: self.orders(family, ranking, seed) for family in FAMILIES}

        def mean(level: int) -> float:
            found = [self.accuracy(family, 5, mask=order.mask(level, 0), n=n) for family, order in orders.items()]
            return float(np.mean(found))

        return [mean(level) for level in LEVELS]

    def repeats(self) -> tuple[float, float]:
        """Mean loss in nats over the first and the second copy of random tokens."""
        import torch

        from engine.heads.induction import N_EXAMPLES, N_TOKENS
        from engine.heads.probes import repeated_tokens

        loaded = self.loaded
        generators = [np.random.default_rng((0, example)) for example in range(N_EXAMPLES)]
        inputs = torch.from_numpy(repeated_tokens(loaded, N_TOKENS, 2, generators))
        losses = _losses(loaded.model, inputs).mean(0)
        return float(losses[:N_TOKENS].mean()), float(losses[N_TOKENS:].mean())

    def text_loss(self, pieces: list[str]) -> tuple[float, float]:
        """(nats a token, bits a byte) of held-out texts; from its 257th on, a token sees 256 or more before it."""
        import torch

        loaded = self.loaded
        total, n_tokens, n_bytes = 0.0, 0, 0
        for piece in pieces:
            ids = loaded.tokenizer(piece).input_ids
            n_bytes += len(piece.encode())
            scored = 1
            for start in range(0, max(1, len(ids) - STRIDE), STRIDE):
                window = torch.tensor([ids[start : start + WINDOW]])
                losses = _losses(loaded.model, window)[0, scored - start - 1 :]
                total, n_tokens, scored = total + float(losses.sum()), n_tokens + len(losses), start + window.shape[1]
        return total / n_tokens, total / math.log(2) / n_bytes

    def sample(self, beginning: str, n_tokens: int = 160, seed: int = 0) -> str:
        """A continuation drawn at temperature 0.7 from the 40 likeliest tokens.

        Without BOS: in training that stands in front of questions, and text goes on from text.
        """
        import torch

        loaded = self.loaded
        torch.manual_seed(seed)
        inputs = loaded.tokenizer(beginning, return_tensors="pt", add_special_tokens=False)
        inputs.pop("token_type_ids", None)
        with torch.inference_mode():
            drawn = loaded.model.generate(**inputs, do_sample=True, temperature=0.7, top_k=40, max_new_tokens=n_tokens,
                                          pad_token_id=1)  # fmt: skip
        return loaded.tokenizer.decode(drawn[0], skip_special_tokens=True)


def _losses(model: Any, inputs: Any) -> Any:
    """(row, position) loss in nats of each token but the first."""
    import torch

    with torch.inference_mode():
        logits = model(input_ids=inputs, use_cache=False).logits[:, :-1].float()
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), inputs[:, 1:], reduction="none")


def _bar(text: str, reached: bool) -> None:
    print(f"{'reached' if reached else 'MISSED '}  {text}", flush=True)


def suite_part(measured: Measured) -> None:
    """Accuracy of every family at 0, 1 and 5 shots, and in int8."""
    table: dict[str, list[float]] = {}
    int8, fp32_seconds, int8_seconds = [], 0.0, 0.0
    print(f"{'family':<18} chance " + " ".join(f"{shots:>6}" for shots in SHOTS) + "   int8 at 5 (questions shots)")
    for name, family in FAMILIES.items():
        table[name] = []
        for shots in SHOTS:
            started = time.monotonic()
            table[name].append(measured.accuracy(name, shots))
            fp32_seconds += time.monotonic() - started if shots == 5 else 0.0
        print(f"{name:<18} {family.chance:>6.2f} " + " ".join(f"{acc:>6.3f}" for acc in table[name]), flush=True)
    for name in FAMILIES:
        started = time.monotonic()
        int8.append(measured.accuracy(name, 5, "int8"))
        int8_seconds += time.monotonic() - started
    found = np.array(list(table.values()))
    print(f"{'mean':<18} {'':>6} " + " ".join(f"{acc:>6.3f}" for acc in found.mean(0)) + f"   {np.mean(int8):.3f}")
    rises = int((found[:, 2] - found[:, 0] >= 0.15).sum())
    above = int((found[:, 2] - [family.chance for family in FAMILIES.values()] >= 0.30).sum())
    _bar(f"mean at 5 shots {found[:, 2].mean():.3f} (at least 0.80)", found[:, 2].mean() >= 0.80)
    _bar(f"{rises} of {len(FAMILIES)} families rise by 0.15 or more from 0 to 5 shots (at least half)",
         2 * rises >= len(FAMILIES))  # fmt: skip
    _bar(f"{above} families 0.30 or more above chance at 5 shots (at least 12)", above >= 12)
    worst = float(np.abs(np.array(int8) - found[:, 2]).max())
    _bar(f"int8 differs by {abs(np.mean(int8) - found[:, 2].mean()):.3f} in the mean (at most 0.02), {worst:.3f} in "
         f"the worst family", abs(np.mean(int8) - found[:, 2].mean()) <= 0.02)  # fmt: skip
    took = f"{fp32_seconds:.0f} s in fp32, {int8_seconds:.0f} s in int8"
    _bar(f"the suite at 5 shots took {took} (under 60; 0 if stored)", max(fp32_seconds, int8_seconds) < 60)


def heads_part(measured: Measured) -> None:
    """Prefix matching, copying, and the loss on repeated random tokens."""
    from engine.heads.induction import SCORES, best_heads, induction
    from engine.progress import final

    found = final(induction(measured.lab, measured.subjects["fp32"], "olsson")).mean
    for name in SCORES:
        print(f"{name}: " + ", ".join(f"{head} {score:.2f}" for head, score in best_heads(found[name], 6)))
    both = int(((found["prefix_matching"] >= 0.6) & (found["copying"] > 0.3)).sum())
    _bar(f"{both} heads with prefix matching >= 0.6 and copying > 0.3 (at least 2)", both >= 2)
    first, second = measured.repeats()
    _bar(f"loss on random tokens {first:.2f} nats, on their second copy {second:.2f} (at least 4 less)",
         first - second >= 4)  # fmt: skip


def pruning_part(measured: Measured, n: int) -> None:
    """Mean accuracy over the suite at 5 shots while heads go, by importance and at random."""
    means = {"importance": measured.pruned_means("importance", n)}
    means |= {f"random {seed}": measured.pruned_means("random", n, seed) for seed in SEEDS}
    print(f"\nheads pruned, mean of {n} questions of each family at 5 shots")
    print(f"{'%':<12}" + " ".join(f"{level // 10:>5}" for level in LEVELS))
    for name, values in means.items():
        print(f"{name:<12}" + " ".join(f"{value:>5.3f}" for value in values), flush=True)
    own, random = np.array(means["importance"]), np.mean([means[f"random {seed}"] for seed in SEEDS], axis=0)
    free = max(level // 10 for level, value in zip(LEVELS, own, strict=True) if own[0] - value < 0.05)
    chance = float(np.mean([family.chance for family in FAMILIES.values()]))
    _bar(f"{free} % of the heads can go with under 5 points lost (at least 40)", free >= 40)
    _bar(f"at 100 % the mean is {own[-1]:.3f}, chance is {chance:.3f} (within 0.10)", abs(own[-1] - chance) <= 0.10)
    _bar(f"at 50 %: importance {own[5]:.3f}, random {random[5]:.3f} (clearly worse: 0.10 or more)",
         own[5] - random[5] >= 0.10)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the embedded model against its bars.")
    parser.add_argument("--model", default="demo", help="`demo` or a model folder")
    parser.add_argument("--corpus", type=Path, help="folder of the training text, for the loss on its held-out part")
    parser.add_argument("--questions", type=int, help="questions of each family (default: all 200)")
    parser.add_argument("--pruning-questions", type=int, default=64, help="the same for the pruning curves; 0: none")
    parser.add_argument("--cache", type=Path, help="folder of the store")
    options = parser.parse_args()
    from cache import open_store

    store = open_store(options.cache)
    try:
        measured = Measured(options.model, options.questions, store)
        suite_part(measured)
        heads_part(measured)
        if options.corpus:
            from engine.demo.making.corpus import documents

            pieces = documents(options.corpus)[1]
            nats, bits = measured.text_loss(pieces)
            print(f"held-out text, {len(pieces)} pieces: {nats:.3f} nats a token, {bits:.3f} bits a byte")
        print(f"\na sample:\n{measured.sample(BEGINNING)}\n")
        if options.pruning_questions:
            pruning_part(measured, options.pruning_questions)
        print(f"\nweights: {(model_folder() / 'model.safetensors').stat().st_size / 1e6:.1f} MB")
    except HeadroomError as error:
        print(f"headroom: {error}", file=sys.stderr)
        sys.exit(2)
    finally:
        store.close()


if __name__ == "__main__":
    main()
