"""The command about whole layers: `layers`, in what order each way of ranking drops them, and how much they agree."""

import math
import time
from argparse import Namespace
from typing import Any

from engine.cli.measure import first_of, of_task, task_of
from engine.cli.options import MOST, Parser, data_dir, spec_of
from engine.cli.output import Report, last, print_result
from engine.models.session import Session
from engine.questions.tasks import SPLITS


def add_parsers(commands: Any) -> None:
    """The parser of layers."""
    words = "what dropping each layer costs: block influence, oracle, greedy"
    parser: Parser = commands.add_parser("layers", parents=of_task(), help=words)
    parser.add_choice("--split", SPLITS, "whose questions (default: train)", default="train")
    help = "drop the layer that costs least, again, so many times; all questions are read once for each layer that is "
    help += "left each time (default: 0, no search)"
    parser.add_number("--greedy", (0, MOST), help, default=0)
    parser.set_defaults(run=_layers)


def _layers(options: Namespace, session: Session, report: Report) -> int:
    """Prints a line a layer, each order, and Spearman's rank correlation of block influence and the oracle."""
    from engine.importance.layers import block_influence, greedy, n_passes, unmeasured_order
    from engine.importance.oracle import lost, oracle
    from engine.importance.rankings import agreement, order
    from engine.questions.requests import get_requests, select

    target, started = session.target(spec_of(options), options.bos), time.monotonic()
    requests = get_requests(task_of(options), data_dir(options), session.store, first_of(options))
    questions, n = select(requests, options.limit, options.sample), min(options.greedy, target.shape.n_layers)
    influence, cached = last(block_influence(target, questions).run(session), report)
    answers, also = last(oracle(target, questions, "layers").run(session), report)
    accuracy_lost, nats_lost = lost(answers[0], answers[1:])
    steps, found = last(greedy(target, questions, n).run(session), report)
    orders = {"influence": order(influence), "oracle": order(accuracy_lost, nats_lost)}
    orders |= {"last-first": unmeasured_order(target.shape, "last-first", 0)}
    orders |= {"greedy": [step.layer for step in steps]} if steps else {}
    named = {"accuracy lost": accuracy_lost, "nats lost": nats_lost}
    pairs = agreement({"influence": influence, **named})
    spearman = {
        name: {what: getattr(pairs, what)[0, at] for what in ("srcc", "low", "high", "p")}
        for at, name in enumerate(named, start=1)
    }
    went = {step.layer: (number, step) for number, step in enumerate(steps, start=1)}
    rows, lines = [], [f"{'layer':>5} {'influence':>10} {'points lost':>12} {'nats lost':>10}  greedy"]
    for layer in range(target.shape.n_layers):
        number, step = went.get(layer, (None, None))
        row = {"layer": layer, "influence": influence[layer], "accuracy_lost": accuracy_lost[layer]}
        row |= {"gold_nats_lost": nats_lost[layer], "greedy_step": number}
        rows.append(row | {"greedy_accuracy": None if step is None else step.accuracy})
        search = "" if step is None else f"{number}, then {step.accuracy:.3f} right"
        line = f"{layer:>5} {influence[layer]:>10.4f} {100 * accuracy_lost[layer]:>12.1f} {nats_lost[layer]:>10.4f}"
        lines.append(f"{line}  {search}".rstrip())
    lines += [f"{name} goes first: {' '.join(map(str, layers))}" for name, layers in orders.items()]
    lines += [f"Spearman of influence and {name}: {_in_words(each)}" for name, each in spearman.items()]
    read = {by: n_passes(target.shape, by, n) for by in ("influence", "oracle", "greedy")}
    print_result(options, {
        "task": options.task, "shots": options.shots, "n": questions.n, "acc": float(answers[0].correct.mean()),
        "layers": rows, "orders": {name: [int(layer) for layer in layers] for name, layers in orders.items()},
        "spearman": spearman, "passes": read, "model": target.identity.name, "precision": options.precision,
        "bos": target.bos, "seconds": time.monotonic() - started, "cached": cached and also and found,
    }, "\n".join(lines))  # fmt: skip
    return 0


def _in_words(each: dict[str, float]) -> str:
    if math.isnan(each["srcc"]):
        return "undefined: one of them is the same for all layers"
    if math.isnan(each["low"]):
        return f"{each['srcc']:+.3f}"
    return f"{each['srcc']:+.3f} (95 % {each['low']:+.2f} to {each['high']:+.2f}, p {each['p']:.3f})"
