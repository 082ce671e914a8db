"""Measures the embedded model against what it is meant to show: `python -m scripts.make_demo.report [--corpus DIR]`.

Every figure comes through the app's own functions and store, so that a second call is quick.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import HeadroomError
from engine.questions.tasks import embedded_tasks
from scripts.make_demo import bars
from scripts.make_demo.families import FAMILIES

SHOTS = (0, 1, 5)
N_DRAWS = 10
NEXT_TO = {"heads": "the paper's", "heads-one-divisor": "one divisor for all layers"}
BEGINNING = "It was late in the evening when the old man came back to the house."


def needs() -> dict[str, str]:
    """What each family needs from its context, as the catalogue says."""
    return {name: embedded_tasks()[name].needs for name in FAMILIES}


def families_part(measured: Any, options: argparse.Namespace) -> list[bars.Bar]:
    """Accuracy of every family at 0, 1 and 5 shots, and in int8."""
    int8 = {name: _share(measured.answers(name, 5, precision="int8")) for name in FAMILIES}  # one model at a time
    shots: dict[str, dict[int, float]] = {}
    _table("family", "needs", "chance", *(f"{n} shots" for n in SHOTS), "int8, 5")
    for name, family in FAMILIES.items():
        shots[name] = {n: _share(measured.answers(name, n)) for n in SHOTS}
        _row(name, needs()[name], family.chance, *shots[name].values(), int8[name])
    return bars.of_accuracy(shots, int8)


def heads_part(measured: Any, options: argparse.Namespace) -> list[bars.Bar]:
    """Induction scores of the best heads, and which ones are removed."""
    from engine.heads.induction import SCORES, best_heads

    found = measured.induction().mean
    for score in SCORES:
        print(f"{score}: " + ", ".join(f"{head} {value:.2f}" for head, value in best_heads(found[score], 6)))
    names = measured.target().shape.head_names
    print(f"removed as induction heads: {' '.join(names[head] for head in sorted(measured.heads())) or 'none'}")
    return bars.of_heads(found["prefix_matching"])


def removal_part(measured: Any, options: argparse.Namespace) -> list[bars.Bar]:
    """Every family without the induction heads, and without as many others."""
    if not measured.heads():
        return [bars.Bar("no head counts as an induction head: there is nothing to remove", False)]
    found = {}
    _table("family", "needs", "5 shots", "without", "0 shots", "without", "draws, points")
    for name in FAMILIES:
        each = found[name] = measured.removed(name, needs()[name], options.draws, options.draw_questions)
        five, none = each.at_five, each.at_none
        drawn = " ".join(f"{line.points:.0f}" for line in each.draws)
        _row(name, each.needs, five.full, five.pruned, none.full, none.pruned, drawn)
    return bars.of_removal(found)


def importance_part(measured: Any, options: argparse.Namespace) -> list[bars.Bar]:
    """Importance over the families that need examples, and prefix matching, by each divisor."""
    from engine.heads.induction import best_heads

    families = [name for name, need in needs().items() if need == bars.EXAMPLES]
    prefix = measured.induction().mean["prefix_matching"]
    found = []
    for what, name in NEXT_TO.items():
        scores = measured.importance(families, what)
        print(f"{name}: " + ", ".join(f"{head} {value:.2g}" for head, value in best_heads(scores, 8)))
        found += bars.of_importance(name, scores, prefix)
    layers = bars.by_layer_norm(measured.importance(families, "heads-one-divisor"))
    return found + bars.of_importance("each layer by its own L2 norm (Michel et al.)", layers, prefix, is_bar=False)


def pruning_part(measured: Any, options: argparse.Namespace) -> list[bars.Bar]:
    """Accuracy at 5 shots while heads go by each family's own importance, with McNemar's exact p."""
    from scripts.make_demo.measured import LEVELS

    found = {}
    _table("family", *(f"{level // 10}%" for level in LEVELS))
    for name in FAMILIES:
        found[name] = measured.pruned(name, options.heads_by)
        _row(name, *(f"{line.pruned:.3f} p {line.change.p_mcnemar:.2g}{' rises' * bars.rises(line)}" if level else
                     f"{line.full:.3f}" for level, line in found[name].items()))  # fmt: skip
    return bars.of_pruning(found)


def text_part(measured: Any, options: argparse.Namespace) -> list[bars.Bar]:
    """Held-out prose, with BOS and without."""
    if options.corpus is None:
        return [bars.Bar("held-out prose is not measured: give --corpus DIR")]
    from scripts.make_demo.corpus import documents

    every = documents(options.corpus)[1]
    pieces = every[:: max(1, len(every) // options.pieces)]
    print(f"{len(pieces)} of {len(every)} held-out pieces, {sum(len(piece.encode()) for piece in pieces):,} bytes")
    with_bos, none = (measured.bits(pieces, bos) for bos in (True, False))
    return bars.of_text(with_bos, none, measured.with_and_without_bos(pieces))


def passage_part(measured: Any, options: argparse.Namespace) -> list[bars.Bar]:
    """The passage that is said twice, with the induction heads and without."""
    from engine.studies.removal import without

    heads = measured.heads()
    gone = measured.copies(without(measured.target().shape, heads)) if heads else None
    return bars.of_passage(measured.copies(measured.full), gone)


def sample_part(measured: Any, options: argparse.Namespace) -> list[bars.Bar]:
    """A continuation, and the size of the weights."""
    from engine.checkpoints.weight_files import weight_files

    print(measured.sample(BEGINNING))
    n_bytes = sum(file.stat().st_size for file in weight_files(measured.target().identity.folder))
    return [bars.Bar(f"weights: {n_bytes / 1e6:.1f} MB (under 20)", n_bytes < 20e6)]


PARTS: dict[str, Callable[[Any, argparse.Namespace], list[bars.Bar]]] = {
    "families": families_part, "heads": heads_part, "removal": removal_part, "importance": importance_part,
    "pruning": pruning_part, "text": text_part, "passage": passage_part, "sample": sample_part,
}  # fmt: skip


def _share(answers: Any) -> float:
    return float(np.mean(answers.correct))


def _table(*titles: str) -> None:
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")


def _row(*cells: str | float) -> None:
    print("| " + " | ".join(cell if isinstance(cell, str) else f"{cell:.3f}" for cell in cells) + " |", flush=True)


def parsed(words: list[str] | None = None) -> argparse.Namespace:
    """The command's options."""
    parser = argparse.ArgumentParser(description="Measure the embedded model against its bars.")
    parser.add_argument("--model", default="demo", help="`demo` or a model folder")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="that part alone; may come several times")
    parser.add_argument("--corpus", type=Path, help="folder of the training text, for the loss on its held-out part")
    parser.add_argument("--pieces", type=int, default=40, help="about how many of its held-out pieces are read")
    parser.add_argument("--questions", type=int, help="questions of each family (default: all 200)")
    parser.add_argument("--draws", type=int, default=N_DRAWS, help="sets of as many other heads")
    parser.add_argument("--draw-questions", type=int, default=48, help="questions that each draw answers; 0: all")
    help = "the head score that pruning goes by (default: heads, the paper's)"
    parser.add_argument("--heads-by", default="heads", choices=list(NEXT_TO), help=help)
    parser.add_argument("--cache", type=Path, help="folder of the store")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> None:
    from cache import open_store
    from engine.models.session import Session
    from scripts.make_demo.measured import Measured

    options = parsed(words)
    store = open_store(options.cache)
    all_bars: list[bars.Bar] = []
    try:
        measurements = Measured(Session(store), options.model, options.questions)
        for name in options.part or PARTS:
            print(f"\n## {name}\n", flush=True)
            part_bars = PARTS[name](measurements, options)
            print("\n" + "\n".join(map(str, part_bars)), flush=True)
            all_bars += part_bars
        missed = sum(each.reached is False for each in all_bars)
        print(f"\n{sum(each.reached is True for each in all_bars)} bars reached, {missed} missed")
    except HeadroomError as error:
        print(f"headroom: {error}", file=sys.stderr)
        sys.exit(2)
    finally:
        store.close()


if __name__ == "__main__":
    main()
