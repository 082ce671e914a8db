"""What is kept for the next time is bounded, and what long work has freed goes back to the system."""

import os
import subprocess
import sys

import pytest

from engine.accuracy import evaluation as module
from engine.accuracy.evaluation import evaluation
from engine.memory import CAPACITIES, GROWN_BYTES, Kept, Trimming, bound_growth, resident_bytes
from engine.models.masks import Mask
from engine.questions import rendering
from engine.questions.rendering import TaskSpec, render_questions
from tests.cli.test_a_run_resumes import questions_in, target_in
from tests.conftest import HANG_S, IS_THOROUGH, REPOSITORY
from tests.engine.fixtures import write_questions

# Prints MB by which the process grows over so many shapes of a bf16 product, after as many as are kept.
SHAPES = """
import sys
from engine.memory import SHAPES_KEPT, bound_growth, resident_bytes, return_freed_memory
if sys.argv[1] == "bounded":
    bound_growth()
import torch
torch.set_num_threads(1)
weight, x = torch.ones(576, 576, dtype=torch.bfloat16), torch.ones(700, 576, dtype=torch.bfloat16)
def held(lengths):
    for n in lengths:
        torch.nn.functional.linear(x[:n], weight)
    return_freed_memory()
    return resident_bytes()
before = held(range(700, 700 - SHAPES_KEPT, -1))  # the largest first: with AMX what is kept of them is larger too
print((held(range(700 - SHAPES_KEPT, 100, -1)) - before) / 1e6)
"""


def grown_mb(how, **environment):
    known = {name: value for name, value in os.environ.items() if name not in CAPACITIES}
    command = [sys.executable, "-c", SHAPES, how]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=known | environment, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.thorough
def test_products_of_ever_new_shapes_do_not_add_up():
    if IS_THOROUGH and grown_mb("unbounded") < 50:
        pytest.skip("torch keeps nothing by shape on this processor")
    assert grown_mb("bounded") < 20


def test_the_users_own_bounds_stand(monkeypatch):
    for name in CAPACITIES:
        monkeypatch.setenv(name, "1024")
    bound_growth()
    assert {os.environ[name] for name in CAPACITIES} == {"1024"}


def test_kept_values_stay_within_their_limit_and_the_last_used_stay():
    kept, made = Kept(100), []

    def get(key, size=40):
        return kept.get(key, lambda: made.append(key) or key.upper(), lambda value: size)

    assert [get("a"), get("b"), get("a")] == ["A", "B", "A"] and made == ["a", "b"]
    get("c")
    assert ("a" in kept, "b" in kept, "c" in kept) == (True, False, True) and kept.size == 80
    get("huge", 1000)
    assert len(kept) == 1 and kept.size == 1000, "what is larger than the limit is kept alone"
    get("d")
    assert len(kept) == 1 and kept.size == 40


def test_questions_are_parsed_once_and_forgotten_beyond_so_many_bytes(tmp_path, store, monkeypatch):
    real, parsed = rendering._parsed, []
    monkeypatch.setattr(rendering, "_parsed", lambda content: parsed.append(len(content)) or real(content))
    kept = Kept(0)
    monkeypatch.setattr(rendering, "PARSED_QUESTIONS", kept)
    files = [write_questions(tmp_path / f"{name}.jsonl", n) for name, n in (("one", 8), ("two", 9), ("three", 10))]
    for file in (files[0], files[0], files[1], files[0]):
        render_questions(TaskSpec(str(file)), store=store)
    assert len(parsed) == 3 and len(kept) == 1, "one at least is kept, and no more than fit"
    kept.limit = sum(parsed[:2])
    for file in files[:2] * 3:
        render_questions(TaskSpec(str(file)), store=store)
    assert len(parsed) == 4 and len(kept) == 2 and kept.size == sum(parsed[:2])


def test_the_choices_of_a_question_share_its_context(tmp_path, store):
    questions = render_questions(TaskSpec(str(write_questions(tmp_path / "own.jsonl", 8))), store=store).questions
    assert all(first is other for question in questions for first, *rest in [question.contexts] for other in rest)


def test_encoded_questions_are_bounded_by_their_tokens(tiny_opt, tmp_path, session, monkeypatch):
    questions, target = questions_in(write_questions(tmp_path / "own.jsonl", 80), session), target_in(session, tiny_opt)
    loaded = session.models.get(target.spec)
    monkeypatch.setattr(module, "ENCODED_TOKENS", 700)
    for chunk in questions.chunks():
        module.encoded_chunk(loaded, target, questions, chunk)
        assert len(loaded.encoded) == 1 or sum(map(module._n_tokens, loaded.encoded.values())) <= 700
    assert len(loaded.encoded) < len(questions.chunks())


def test_freed_memory_is_given_back_whenever_the_process_has_grown_by_so_much():
    held, gave = [], []
    trimming = Trimming(lambda: held.pop(0), lambda: gave.append(1))

    def trimmed(*now):
        held.extend(now)
        trimming.trim_if_grown()
        assert not held
        return len(gave)

    assert trimmed(1000) == 0
    assert trimmed(1000 + GROWN_BYTES - 1) == 0
    assert trimmed(1000 + GROWN_BYTES, 2000) == 1
    assert trimmed(1000 + GROWN_BYTES) == 1, "from what was left"
    assert trimmed(500) == 1
    assert trimmed(500 + GROWN_BYTES, 500 + GROWN_BYTES) == 2
    assert trimmed(500 + GROWN_BYTES) == 2, "what is in use is not given back again and again"


def test_it_is_looked_after_between_the_pieces_of_one_job(tiny_opt, tmp_path, session):
    seen = []
    session.trimming = Trimming(lambda: seen.append(1) or GROWN_BYTES * len(seen))
    questions, target = questions_in(write_questions(tmp_path / "own.jsonl", 48), session), target_in(session, tiny_opt)
    for _ in evaluation(target, questions, Mask.full(target.shape)).run(session):
        pass
    assert len(seen) >= 3, "once a chunk at least"


def test_resident_memory_is_that_of_this_process():
    before, block = resident_bytes(), bytearray(b"x") * 100_000_000
    assert 80_000_000 < resident_bytes() - before < 150_000_000, len(block)
