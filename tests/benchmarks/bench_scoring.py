"""Prints how many times faster the packed scoring is than lm-eval's HFLM (its best batch size), on the same questions.

Both run in this process on the embedded model in fp32, in turn, several times; printed are the ratios' minimum, median
and maximum, and the largest difference between their log-likelihoods.
"""

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.encoding import encode_questions
from engine.loading import LoadSpec, load
from engine.requests import TaskSpec, get_requests
from engine.scoring import score

TASKS = (("demo_sort", 0), ("demo_sort", 5), ("demo_translation", 5), ("demo_question", 5))
N_QUESTIONS, N_ROUNDS, BATCH_SIZES = 48, 3, (1, 8, 16, 32)


def ours(model, questions):
    steps = score(model, encode_questions(questions, model.tokenizer, True, model.identity.shape.n_ctx))
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return finished.value[0]


def theirs(lm, questions):
    from lm_eval.api.instance import Instance

    pairs = [(c, d) for q in questions for c, d in zip(q.contexts, q.continuations, strict=True)]
    return [value for value, _ in lm.loglikelihood([Instance("loglikelihood", {}, p, 0) for p in pairs], True)]


def seconds(function, *arguments):
    started = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - started, result


def main():
    from lm_eval.models.huggingface import HFLM

    model = load(LoadSpec("demo", "fp32"))
    harness = [HFLM(pretrained=model.model, tokenizer=model.tokenizer, add_bos_token=True, batch_size=size)
               for size in BATCH_SIZES]  # fmt: skip
    for name, shots in TASKS:
        questions = get_requests(TaskSpec(name, shots)).questions[:N_QUESTIONS]
        ratios, difference = [], 0.0
        for _ in range(N_ROUNDS):
            mine, scores = seconds(ours, model, questions)
            rounds = [seconds(theirs, lm, questions) for lm in harness]
            best, reference = min(rounds, key=lambda pair: pair[0])
            flat = [v for q, row in zip(questions, scores, strict=True) for v in row[: len(q.contexts)]]
            difference = max(difference, *(abs(a - b) for a, b in zip(flat, reference, strict=True)))
            ratios.append(best / mine)
        spread = f"{min(ratios):.1f} / {statistics.median(ratios):.1f} / {max(ratios):.1f}"
        print(f"{name}, {shots} shots: {spread} times as fast (min / median / max), differs by {difference:.0e} nats")


if __name__ == "__main__":
    main()
