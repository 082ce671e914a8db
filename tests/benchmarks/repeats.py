"""Which numbers repeat bit for bit, and how far apart those are that do not: measured in processes of their own.

    python -m tests.benchmarks.repeats [--model demo] [--task demo_outfit] [--questions 48]

The same is measured twice in one process, in a new one, on one thread, with the questions in other company, and by
other ways of matrix products (`HEADROOM_PRODUCTS`). One line for each: values that differ in any bit, the largest
difference in nats, and questions whose answer changed.
"""

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engine.kernels.kernel_choice import processor
from tests.benchmarks.measure import alone, options

PRECISIONS = ("fp32", "bf16", "int8")
COMPANY = 4  # questions scored together, in place of 16
RUNS = {"in a new process": {}, "on one thread": {"OMP_NUM_THREADS": "1"}}
RUNS |= {f"products: {way}": {"HEADROOM_PRODUCTS": way} for way in ("own", "fp32", "integer")}


def main() -> None:
    given = options(__doc__, model="demo", task="demo_outfit", questions=48, threads=str(os.cpu_count()))
    os.environ.pop("HEADROOM_PRODUCTS", None)

    def child(**more: str) -> dict[str, np.ndarray]:
        """What another process measures."""
        found = alone(measured, given.model, given.task, given.questions, **{"OMP_NUM_THREADS": given.threads} | more)
        return {name: np.array(values) for name, values in found.items()}

    first = child()
    print(f"{given.model}, {given.task}, {given.questions} questions, {given.threads} threads, {processor()}\n")
    print("| precision | number | against | bits differ | largest, nats | answers changed |")
    print("|---|---|---|--:|--:|--:|")
    for precision in PRECISIONS:
        compare(precision, "again in the process", first, first, " again")
        compare(precision, f"{COMPANY} questions together, not 16", first, first, " company")
    for name, more in RUNS.items():
        other = child(**more)
        for precision in PRECISIONS:
            if not (name.startswith("products") and precision == "fp32"):
                compare(precision, name, first, other, "")


def measured(model: str, task: str, n: int) -> dict[str, list[Any]]:
    """Values of every number by its name, in each precision."""
    from cache import open_store
    from engine.accuracy.evaluation import answers_of, chunk_pieces, evaluation
    from engine.demo import story
    from engine.heads.induction import induction
    from engine.importance.importance import importance
    from engine.measurement import of_records
    from engine.models.loading import LoadSpec
    from engine.models.masks import Mask, parse_mask
    from engine.models.session import Session
    from engine.progress import final
    from engine.questions.requests import TaskSpec, get_requests, select
    from engine.texts.perplexity import perplexity

    data_dir, every = os.environ.get("HEADROOM_TASK_DATA"), {}
    with tempfile.TemporaryDirectory() as folder:
        for precision in PRECISIONS:
            session = Session(open_store(Path(folder) / precision))
            target = session.target(LoadSpec(model, precision))
            requests = get_requests(TaskSpec(task, 5), data_dir, session.store)
            questions, full = select(requests, n, "stratified"), Mask.full(target.shape)
            train = select(get_requests(TaskSpec(task, 5, "train"), data_dir, session.store), 16)
            half = parse_mask(f"L0-{target.shape.n_layers - 1}H0-{target.shape.n_heads // 2}", target.shape)
            for again in ("", " again"):
                said = [final(evaluation(target, questions, mask).run(session)) for mask in (full, half)]
                named = {"answers": np.stack([each.log_likelihood_nats for each in said])}
                named["losses"] = final(perplexity(target, story(), half).run(session)).loss_nats
                named["importance"] = final(importance(target, train, "heads").run(session)).scores
                named["induction"] = final(induction(target, "olsson", 0).run(session)).mean["copying"]
                every |= {f"{precision} {name}{again}": value.tolist() for name, value in named.items()}
                session.store.clear()
            apart = []
            for mask in (full, half):
                few = chunk_pieces(target, questions, mask, questions.sized_chunks(COMPANY))
                value = partial(answers_of, questions)
                apart.append(
                    final(of_records(target, ("few",), lambda session, records, few=few: few, value).run(session))
                )
            answers = np.stack([each.log_likelihood_nats for each in apart])
            every[f"{precision} answers company"] = answers[:, :n].tolist()
            session.store.close()
    return every


def compare(precision: str, what: str, a: dict[str, np.ndarray], b: dict[str, np.ndarray], of: str) -> None:
    """Prints a line for each number that both have."""
    for name in ("answers", "losses", "importance", "induction"):
        x, y = a[f"{precision} {name}"], b.get(f"{precision} {name}{of}")
        if y is None:
            continue
        differ = (x != y) & ~(np.isnan(x) & np.isnan(y))
        largest = f"{np.nanmax(np.abs(x - y)):.1g}" if differ.any() else "0"
        changed = f"{int((np.nanargmax(x, -1) != np.nanargmax(y, -1)).sum())} of {x[..., 0].size}"
        unit = "" if name in ("answers", "losses") else f" (of {np.abs(x).max():.2g})"
        last = changed if name == "answers" else ""
        print(
            f"| {precision} | {name} | {what} | {differ.sum():,} of {x.size:,} | {largest}{unit} | {last} |", flush=True
        )


if __name__ == "__main__":
    main()
