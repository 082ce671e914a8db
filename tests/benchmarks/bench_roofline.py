"""Share of the roofline: what the matrix products alone would take, over what scoring takes.

Every product that the linear layers and the unembedding are asked for while questions are scored is noted: its rows,
inputs and outputs. The same products, of random numbers, are then timed by themselves, each shape at the machine's own
rate for it (int8: exact products of whole numbers; bf16 and fp32: torch's). The share is their sum over scoring's time,
tokens and log-probabilities included: 1 would be a program that does nothing but multiply. Padding and passes that
could be spared count as products. Times are the processor's; each is the least of ROUNDS in turn.
"""

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from engine.accuracy.scoring import score
from engine.models.loading import LoadSpec, load
from engine.questions.requests import CHUNK, TaskSpec, get_requests
from engine.questions.tasks import embedded_tasks
from tests.benchmarks.measure import Comparison, encoded, finished, in_turn, opt_125m, task_data

FAMILY = "The matrix products' own time, over scoring's"
TASKS = ("piqa", "arc_easy", "hellaswag", "boolq", "lambada_openai", "winogrande")
ROUNDS = 3
UNIT = "processor ms a question"
BARS = {"bf16": 0.55, "int8": 0.4, "fp32": None}
LLAMA = os.environ.get("HEADROOM_BENCH_LLAMA")  # a model folder; left out without

Shapes = Counter[tuple[int, int, int, bool]]  # rows, inputs, outputs, whether in int8: how often


def compare(quick: bool) -> Iterator[Comparison]:
    """One comparison for each model and precision; the ratio is the share."""
    names = (TASKS[:2] if quick else TASKS) if task_data() else tuple(embedded_tasks())[:2]
    with tempfile.TemporaryDirectory() as folder:
        models = {"OPT-125m shape": opt_125m(folder), **({Path(LLAMA).name: LLAMA} if LLAMA and not quick else {})}
        for title, model in models.items():
            for precision, bar in BARS.items():
                loaded, costs = load(LoadSpec(model, precision)), []
                for name in names:
                    costs.append(_costs(loaded, f"{title}, {precision}, {name}", name))
                whole, alone = zip(*costs, strict=True)
                yield Comparison(
                    FAMILY, f"{title}, {precision}, 0 shots", UNIT, whole, alone, f"{len(names)} tasks", bar
                )


def _costs(loaded: Any, title: str, name: str) -> tuple[float, float]:
    """Milliseconds a question of scoring, and of its products alone."""
    questions = get_requests(TaskSpec(name), task_data()).questions[:CHUNK]

    def whole() -> None:
        finished(score(loaded, encoded(loaded, questions)))

    shapes = asked_for(loaded.model, whole)
    (took,), alone = least_s([whole]), products_s(shapes, loaded.spec.precision)
    operations = sum(2 * rows * n_in * n_out * n for (rows, n_in, n_out, _), n in shapes.items())
    print(f"  {title}: {alone / took:.2f}, {operations / alone / 1e9:,.0f} G operations a second", flush=True)
    return 1000 * took / len(questions), 1000 * alone / len(questions)


def asked_for(model: Any, run: Callable[[], None]) -> Shapes:
    """The products that `run` asks the model's linear layers for."""
    import torch

    shapes: Shapes = Counter()

    def note(module: Any, args: tuple[Any, ...]) -> None:
        n_out, n_in = module.weight.shape
        shapes[args[0].numel() // n_in, n_in, n_out, not module.weight.is_floating_point()] += 1

    hooks = [each.register_forward_pre_hook(note) for each in model.modules() if isinstance(each, torch.nn.Linear)]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return shapes


def products_s(shapes: Shapes, precision: str) -> float:
    """Processor seconds of these products and nothing else."""
    import torch

    from engine.kernels.cpu_kernels import exact_product

    runs = []
    for rows, n_in, n_out, in_int8 in shapes:
        x, weight = torch.randn(rows, n_in), torch.randn(n_out, n_in)
        if in_int8:
            x, weight = ((10 * each).to(torch.int8) for each in (x, weight))
            runs.append(lambda x=x, weight=weight: exact_product(x, weight.t()))
        else:
            x, weight = (each.to(torch.float32 if precision == "fp32" else torch.bfloat16) for each in (x, weight))
            runs.append(lambda x=x, weight=weight: torch.nn.functional.linear(x, weight))
    with torch.inference_mode():
        return sum(n * taken for n, taken in zip(shapes.values(), least_s(runs), strict=True))


def least_s(runs: Sequence[Callable[[], Any]]) -> list[float]:
    """Processor seconds of each, the least of some rounds in turn."""
    return [min(each.seconds) for each in in_turn(runs, ROUNDS, time.process_time, warm_up=True)]
