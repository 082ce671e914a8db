"""Prints what not computing pruned parts, restarting in the middle and sharing examples each save.

On a random model of OPT-125m's shape with the embedded model's tokenizer, in fp32, each pair in turn in this process:
masked against sliced at 70 % of heads and 20 % of FFNs; one whole evaluation for each FFN against the oracle; examples
drawn anew for each question against the same for all at 5 shots. Ratios are minimum / median / maximum.
"""

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from engine.demo import model_folder
from engine.encoding import encode_questions
from engine.loading import LoadSpec, load
from engine.masks import Mask, pruned
from engine.oracle import single_ablations
from engine.rankings import mask_at, random_order
from engine.requests import TaskSpec, get_requests
from engine.restarts import score_each
from engine.scoring import score
from engine.slicing import applied, sliced

TASKS = (("demo_sort", 0), ("demo_outfit", 5), ("demo_question", 5))
N_QUESTIONS, N_ROUNDS = 8, 3


def opt_125m(folder):
    from transformers import OPTConfig, OPTForCausalLM

    OPTForCausalLM(OPTConfig(vocab_size=4096, bos_token_id=2, eos_token_id=2)).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model_folder() / name, folder)
    return load(LoadSpec(str(folder), "fp32"))


def finished(steps, context=None):
    while True:
        try:
            if context is None:
                next(steps)
            else:
                with context():
                    next(steps)
        except StopIteration as end:
            return end.value


def compared(title, slow, fast):
    ratios, difference = [], None
    for _ in range(N_ROUNDS):
        times = []
        for run in (slow, fast):
            started = time.perf_counter()
            found = run()
            times.append((time.perf_counter() - started, found))
        ratios.append(times[0][0] / times[1][0])
        if times[0][1] is not None:
            difference = max(difference or 0.0, float(np.nanmax(np.abs(np.subtract(times[0][1], times[1][1])))))
    spread = f"{min(ratios):.2f} / {statistics.median(ratios):.2f} / {max(ratios):.2f}"
    same = "" if difference is None else f", differs by {difference:.0e} nats"
    print(f"{title}: {spread} times as fast{same}", flush=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        model = opt_125m(folder)
        shape = model.identity.shape
        heads, ffns = random_order(shape.n_heads_total, 0), random_order(shape.n_layers, 0)
        mask = mask_at(shape, heads, ffns, 700, 200)
        every = [Mask.full(shape), *single_ablations(shape, "ffns")]
        for name, shots in TASKS:
            questions = get_requests(TaskSpec(name, shots)).questions[:N_QUESTIONS]
            encoded = encode_questions(questions, model.tokenizer, True, shape.n_ctx)

            def masked(encoded=encoded):
                return finished(score(model, encoded), lambda: pruned(model, mask))[0]

            def smaller(encoded=encoded):
                parts = sliced(model, mask)
                return finished(score(model, encoded), lambda: applied(model, parts))[0]

            def one_by_one(encoded=encoded):
                return [finished(score(model, encoded), lambda each=each: pruned(model, each))[0] for each in every]

            def restarted(encoded=encoded):
                return [found[0] for found in finished(score_each(model, encoded, every))]

            compared(f"{name}, {shots} shots, 70 % of heads and 20 % of FFNs, sliced against masked", masked, smaller)
            compared(f"{name}, {shots} shots, FFN oracle against one evaluation an FFN", one_by_one, restarted)
            if shots:
                same = get_requests(TaskSpec(name, shots, same_examples=True)).questions[:N_QUESTIONS]
                shared = encode_questions(same, model.tokenizer, True, shape.n_ctx)
                compared(f"{name}, {shots} shots, same examples for every question",
                         lambda encoded=encoded: finished(score(model, encoded)) and None,
                         lambda shared=shared: finished(score(model, shared)) and None)  # fmt: skip


if __name__ == "__main__":
    main()
