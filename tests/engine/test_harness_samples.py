"""Answers measured here are written byte for byte as lm-evaluation-harness logs its own, for every kind of task."""

import json
import zlib

import numpy as np
import pytest

from engine.accuracy.evaluation import Answers
from engine.accuracy.harness_logs import harness_answers, is_samples, to_samples
from engine.questions.rendering import TaskSpec, harness_rows, render_questions, select
from engine.questions.tasks import HARNESS_TASKS, packaged_tasks
from tests.conftest import IS_THOROUGH, some_of
from tests.engine.fixtures import write_questions
from tests.engine.test_log_likelihoods_equal_the_harness import SHARED, skip_without_rows

N = 6
OPTIONS = {"text": ["a red boat", "a sea", "ice"], "label": ["A", "B", "C"]}
ROWS = {  # of the kinds of tasks that the harness has: how choices, targets, and metrics are made
    "arc_easy": {"question": "What floats?", "choices": OPTIONS, "answerKey": "A"},
    "boolq": {"question": "does it float", "passage": "Boats float.", "label": 1, "idx": 0},
    "cb": {"premise": "Boats float.", "hypothesis": "Boats sink", "label": 1, "idx": 0},
    "copa": {"premise": "The boat sank.", "choice1": "It leaked.", "choice2": "It was red.", "question": "cause",
             "label": 0, "idx": 0},
    "hellaswag": {"activity_label": "Rowing", "ctx_a": "A boy sits.", "ctx_b": "he", "endings": ["rows.", "sinks."] * 2,
                  "label": "2", "ind": 1},
    "lambada_openai": {"text": "“Why?” she asked, and he looked at the boat"},
    "mathqa": {"Problem": "two plus two ?", "options": "a ) 1 , b ) 2 , c ) 3 , d ) 4 , e ) 5", "correct": "d"},
    "multirc": {"paragraph": "Boats float.", "question": "What floats?", "answer": "boats", "label": 1,
                "idx": {"paragraph": 0, "question": 1, "answer": 2}},
    "record": {"passage": "Ann met Bo.\n@highlight\nThey met", "query": "@placeholder was glad",
               "entities": ["Bo", "Ann", "Bo"], "answers": ["Ann"], "idx": {"passage": 0, "query": 0}},
    "winogrande": {"sentence": "Ann thanked Bo because _ helped.", "option1": "Ann", "option2": "Bo", "answer": "2"},
    "wsc": {"text": "Ann thanked Bo because she helped .", "span1_index": 0, "span2_index": 4, "span1_text": "Ann",
            "span2_text": "she", "label": 0, "idx": 0},
}  # fmt: skip


def log_likelihood(context, continuation):
    """A number that depends on the texts, and whether it counts as greedy."""
    digest = zlib.crc32(f"{context}\0{continuation}".encode())
    return -digest / 2**26, digest % 2 == 0


def answered(questions):
    """The Answers of a model with that log-likelihood."""
    asked = [questions.rendered.questions[at] for at in questions.order[: questions.n]]
    scores = np.full((len(asked), max(len(each.contexts) for each in asked), 2), np.nan)
    for row, question in enumerate(asked):
        pairs = zip(question.contexts, question.continuations, strict=True)
        scores[row, : len(question.contexts)] = [log_likelihood(*pair) for pair in pairs]
    nats, greedy = scores[..., 0], scores[..., 1] == 1
    return Answers(tuple(asked), nats, greedy, np.zeros(len(asked), int), questions.rendered.greedy)


def logged_by_the_harness(spec, data_dir, folder):
    """The file that the harness writes for that model."""
    from lm_eval.api.model import LM
    from lm_eval.evaluator import evaluate
    from lm_eval.loggers import EvaluationTracker

    class Stub(LM):
        def loglikelihood(self, requests, disable_tqdm=False):
            return [log_likelihood(*request.args) for request in requests]

        def loglikelihood_rolling(self, requests, disable_tqdm=False):
            raise NotImplementedError

        generate_until = loglikelihood_rolling

    task, _ = harness_rows(spec, data_dir, None)
    [(name, samples)] = evaluate(Stub(), {"loaded": task}, limit=N, bootstrap_iters=0)["samples"].items()
    tracker = EvaluationTracker(output_path=str(folder))
    tracker.general_config_tracker.model_name_sanitized = "a__model"
    tracker.date_id = "2026-01-31T12-00-00.123456"
    tracker.save_results_samples(name, samples)
    [file] = folder.glob("*/samples_*.jsonl")
    return file


def compare(spec, data_dir, folder):
    ours = answered(select(render_questions(spec, data_dir), N))
    log = logged_by_the_harness(spec, data_dir, folder)
    written = to_samples(ours, *harness_rows(spec, data_dir, None))
    assert [json.loads(line) for line in written.splitlines()] == [json.loads(line) for line in log.open("rb")]
    assert written == log.read_bytes()
    found = harness_answers(str(folder), spec.name, ours)
    assert found.n_other == 0 and found.is_same(ours).all() and found.largest_difference_nats(ours) == 0
    right = [row.get("acc", row.get("em")) for row in map(json.loads, written.splitlines())]
    assert right == ours.correct.tolist(), "what counts as right here"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.slow("the harness imports more for some of them")
def test_every_kind_of_task(name, tmp_path):
    (tmp_path / name).mkdir()
    for split in ("train", "validation"):
        (tmp_path / name / f"{split}.jsonl").write_text(f"{json.dumps(ROWS[name])}\n" * 2)
    compare(TaskSpec(name), tmp_path, tmp_path / "log")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [*packaged_tasks()]
    if IS_THOROUGH
    else ["demo_copy", "demo_outfit", next(n for n in packaged_tasks() if n.startswith("pairs"))],
)
def test_included_tasks(name, tmp_path):
    compare(TaskSpec(name, 2), None, tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not SHARED.is_dir(), reason="the sample rows of the sixteen tasks are not on this computer")
@pytest.mark.parametrize("name", some_of(HARNESS_TASKS))
def test_the_sixteen_tasks(name, tmp_path):
    skip_without_rows(name)
    compare(TaskSpec(name, 1), SHARED, tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("labels", ["true", "shuffled", "unrelated"])
def test_own_questions_and_labels(labels, tmp_path):
    file = write_questions(tmp_path / "own.jsonl", 9)
    name = "demo_outfit" if labels == "unrelated" else str(file)
    compare(TaskSpec(name, 2, labels=labels), None, tmp_path / "log")


def test_a_file_is_written_as_samples_if_it_is_named_so():
    assert is_samples("out/samples_piqa.jsonl") and is_samples("samples_piqa_2026-01-31T12-00-00.1.jsonl")
    assert not is_samples("items.jsonl") and not is_samples("samples_piqa.json") and not is_samples("samples/x.jsonl")
