"""What lm-evaluation-harness logs with --log_samples is read next to the answers measured here; and these are written
in that form."""

import json
import re
import shutil

import numpy as np
import pytest

from engine.accuracy.evaluation import evaluation
from engine.accuracy.harness_logs import harness_answers, is_samples, to_samples
from engine.errors import HeadroomError
from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.progress import final
from engine.questions import rows
from engine.questions.requests import TaskSpec, get_requests, select
from engine.questions.tasks import local_files, task_info
from tests.engine.fixtures import loaded, write_questions

N, SHOTS = 8, 1


@pytest.fixture(scope="module")
def logged(tiny_opt, tmp_path_factory):
    """(a file of questions, the folder in which the harness logged its own answers to them)."""
    from lm_eval.evaluator import evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.models.huggingface import HFLM

    from engine.questions.harness import harness_task_of

    folder = tmp_path_factory.mktemp("logged")
    file = write_questions(folder / "own.jsonl", 3 * N)
    info = task_info(str(file))
    task = harness_task_of(TaskSpec(str(file), SHOTS), info, rows.read(info, local_files(info, None)))
    model = loaded(tiny_opt)
    lm = HFLM(pretrained=model.model, tokenizer=model.tokenizer, add_bos_token=True, batch_size=1)
    found = evaluate(lm, {"loaded": task}, limit=N, bootstrap_iters=0, log_samples=True)
    tracker = EvaluationTracker(output_path=str(folder / "log"))
    tracker.general_config_tracker.model_name_sanitized = "a__model"
    tracker.date_id = "2026-01-31T12-00-00.123456"
    [(name, samples)] = found["samples"].items()
    tracker.save_results_samples(name, samples)
    return file, folder / "log"


@pytest.fixture
def asked(logged, session, tiny_opt):
    def asked(shots=SHOTS, n=N):
        target = session.target(LoadSpec(str(tiny_opt), "fp32"), True)
        questions = select(get_requests(TaskSpec(str(logged[0]), shots), None, session.store), n, "first")
        return final(evaluation(target, questions, Mask.full(target.shape)).run(session))

    return asked


@pytest.mark.slow("the harness runs a model")
@pytest.mark.filterwarnings("ignore")
def test_its_answers_are_found_next_to_ours(logged, asked):
    file, folder = logged
    ours = asked()
    [log] = folder.glob("*/samples_*.jsonl")
    for where in (folder, log.parent, log):
        found = harness_answers(str(where), str(file), ours)
        assert found.file == log and found.rows == tuple(range(N)) and found.n_other == 0
        assert found.is_same(ours).all() and found.largest_difference_nats(ours) < 1e-3
        assert (found.answers.correct == ours.correct).all() and (found.answers.correct_norm == ours.correct_norm).all()
    logged_acc = [json.loads(line)["acc"] for line in log.read_text().splitlines()]
    assert np.mean(logged_acc) == ours.correct.mean()
    assert harness_answers(str(folder), str(file), asked(n=N + 3)).n_other == 3
    with pytest.raises(HeadroomError, match="none of these questions with the same prompt; choose its task and shots"):
        harness_answers(str(folder), str(file), asked(shots=0))


@pytest.mark.slow("the harness runs a model")
@pytest.mark.filterwarnings("ignore")
def test_ours_are_written_as_the_harness_writes_its_own(logged, asked, tmp_path):
    file, folder = logged
    ours = asked()
    [log] = folder.glob("*/samples_*.jsonl")
    written = tmp_path / "samples_own_2026-02-01T00-00-00.jsonl"
    written.write_bytes(to_samples(ours))
    for mine, theirs in zip(written.read_text().splitlines(), log.read_text().splitlines(), strict=True):
        mine, theirs = json.loads(mine), json.loads(theirs)
        assert mine.keys() == theirs.keys() and set(mine["metrics"]) == set(theirs["metrics"])
        for name in ("doc_id", "target", "arguments", "filter", "acc", "acc_norm", "prompt_hash", "target_hash"):
            assert mine[name] == theirs[name], name
        assert [greedy for _, greedy in mine["filtered_resps"]] == [greedy for _, greedy in theirs["filtered_resps"]]
    read = harness_answers(str(written), str(file), ours)
    np.testing.assert_array_equal(read.answers.log_likelihood_nats, ours.log_likelihood_nats)
    task = log.name.removeprefix("samples_").partition("_2026")[0]
    for name in (log.name, written.name, f"samples_{task}_2025-12-31T00-00-00.jsonl"):
        shutil.copy(log, tmp_path / name)
    assert harness_answers(str(tmp_path), f"folder/{task}.jsonl", ours).file.name == log.name, "the newest of the task"
    assert harness_answers(str(tmp_path), "piqa", ours).file == written, "the newest of all, if none is of the task"


def test_a_file_is_written_as_samples_if_it_is_named_so():
    assert is_samples("out/samples_piqa.jsonl") and is_samples("samples_piqa_2026-01-31T12-00-00.1.jsonl")
    assert not is_samples("items.jsonl") and not is_samples("samples_piqa.json") and not is_samples("samples/x.jsonl")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "samples_x.jsonl, line 1: "),
        (b'\n{"doc_id": 0}', "line 2: .*`arguments`"),
        (b'{"doc_id": 0, "arguments": {"a": {"arg_0": "x", "arg_1": {}}}, "filtered_resps": ["text"]}', "not log-like"),
        (b'{"doc_id": 0, "arguments": {"a": {"arg_0": "x", "arg_1": "y"}}, "filtered_resps": []}', "one log-like"),
        (
            b'{"doc_id": 0, "arguments": {"a": {"arg_0": "x", "arg_1": "y"}}, "filtered_resps": [["nan", "True"]]}',
            "one log-",
        ),
        (b"", "none of these questions"),
    ],
)
@pytest.mark.slow("measures questions")
def test_a_file_that_is_no_log_is_one_line(content, says, asked, tmp_path):
    file = tmp_path / "samples_x.jsonl"
    file.write_bytes(content)
    with pytest.raises(HeadroomError, match=says) as raised:
        harness_answers(str(tmp_path), "own", asked())
    assert "\n" not in str(raised.value) and str(file) in str(raised.value)


@pytest.mark.slow("measures questions")
def test_a_place_without_logs_is_one_line(asked, tmp_path):
    with pytest.raises(HeadroomError, match="has no samples; give a file samples_TASK_DATE"):
        harness_answers(str(tmp_path), "own", asked())
    with pytest.raises(HeadroomError, match=re.escape(f"{tmp_path}/none is not a folder or file")):
        harness_answers(str(tmp_path / "none"), "own", asked())
