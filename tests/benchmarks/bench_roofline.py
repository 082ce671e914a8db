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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engine.accuracy.scoring import score
from engine.models.loading import LoadSpec, load
from engine.questions.encoding import encode_questions
from engine.questions.requests import CHUNK, TaskSpec, get_requests
from engine.questions.tasks import embedded_tasks
from tests.benchmarks.measure import Comparison, finished, opt_125m, task_data

FAMILY = "The matrix products' own time, over scoring's"
TASKS = ("piqa", "arc_easy", "hellaswag", "boolq", "lambada_openai", "winogrande")
ROUNDS = 3
UNIT = "processor ms a question"
BARS = {"bf16": 0.55, "int8": 0.4, "fp32": None}
LLAMA = os.environ.get("HEADROOM_BENCH_LLAMA")  # a model folder; left out without

Shapes = Counter[tuple[int, int, int, bool]]  # rows, inputs, outputs, whether in int8: how often


def compare(quick: bool) -> Iterator[Comparison]:
    """One comparison for each model and precision; the ratio is the share."""
    with tempfile.TemporaryDirectory() as folder:
        models = {"OPT-125m shape": opt_125m(folder), **({Path(LLAMA).name: LLAMA} if LLAMA and not quick else {})}
        for title, model in models.items():
            for precision in ("bf16", "int8", "fp32"):
                yield _compared(title, LoadSpec(model, precision), quick)


def _compared(title: str, spec: LoadSpec, quick: bool) -> Comparison:
    loaded, costs = load(spec), ([], [])
    names = (TASKS[:2] if quick else TASKS) if task_data() else tuple(embedded_tasks())[:2]
    for name in names:
        questions = get_requests(TaskSpec(name), task_data()).questions[:CHUNK]

        def whole(questions: Any = questions) -> None:
            bos, n_ctx = loaded.identity.default_bos, loaded.identity.shape.n_ctx
            finished(score(loaded, encode_questions(questions, loaded.tokenizer, bos, n_ctx)))

        shapes = asked_for(loaded.model, whole)
        (took,), alone = least_s([whole]), products_s(shapes, spec.precision)
        costs[0].append(1000 * took / len(questions))
        costs[1].append(1000 * alone / len(questions))
        operations = sum(2 * rows * n_in * n_out * n for (rows, n_in, n_out, _), n in shapes.items())
        print(f"  {title}, {spec.precision}, {name}: {costs[1][-1] / costs[0][-1]:.2f}, "
              f"{operations / alone / 1e9:,.0f} G operations a second", flush=True)  # fmt: skip
    return Comparison(
        FAMILY, f"{title}, {spec.precision}, 0 shots", UNIT, tuple(costs[0]), tuple(costs[1]), f"{len(names)} tasks",
        BARS[spec.precision],
    )  # fmt: skip


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

    runs, numbers = [], []
    for (rows, n_in, n_out, in_int8), n in shapes.items():
        x, weight = torch.randn(rows, n_in), torch.randn(n_out, n_in)
        if in_int8:
            x, weight = ((10 * each).to(torch.int8) for each in (x, weight))
            runs.append(lambda x=x, weight=weight: exact_product(x, weight.t()))
        else:
            x, weight = (each.to(torch.float32 if precision == "fp32" else torch.bfloat16) for each in (x, weight))
            runs.append(lambda x=x, weight=weight: torch.nn.functional.linear(x, weight))
        numbers.append(n)
    with torch.inference_mode():
        return sum(n * taken for n, taken in zip(numbers, least_s(runs), strict=True))


def least_s(runs: list[Callable[[], Any]]) -> list[float]:
    """Processor seconds of each, the least of some rounds in turn."""
    for run in runs:
        run()
    taken = [float("inf")] * len(runs)
    for _ in range(ROUNDS):
        for index, run in enumerate(runs):
            started = time.process_time()
            run()
            taken[index] = min(taken[index], time.process_time() - started)
    return taken
