"""What any version 0.4 of lm-evaluation-harness logs with --log_samples is read next to the answers measured here."""

import json
import random
from itertools import product

import numpy as np
import pytest

from engine.accuracy.evaluation import Answers, evaluation
from engine.accuracy.harness_logs import harness_answers
from engine.errors import HeadroomError
from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.progress import final
from engine.questions import rows
from engine.questions.rendering import Question, TaskSpec, render_questions, select
from engine.questions.tasks import local_files, task_info
from tests.conftest import IS_THOROUGH
from tests.engine.fixtures import loaded, refused_by, write_questions

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
        questions = select(render_questions(TaskSpec(str(logged[0]), shots), None, session.store), n, "first")
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


QUESTIONS = (
    *(Question(at, (f"Q{at}:",) * n, tuple(f" choice {each}" for each in range(n)), (1,), (8,) * n, "")
      for at, n in enumerate((2, 3, 12))),
    Question(3, ("He", "She"), (" left.", " left."), (0,), (5, 5), ""),  # as in WinoGrande
    Question(4, ("", ""), (" a", " b"), (0,), (1, 1), ""),
    Question(5, ("Q0:",) * 2, (" choice 0", " choice 1"), (1,), (8, 8), ""),  # asked twice
)  # fmt: skip
WORD = Question(0, ("He saw a",), (" boat",), (0,), (5,), "")


def answers_to(*questions, by_greedy=False):
    """Answers that differ from choice to choice and from question to question."""
    nats = np.full((len(questions), max(len(each.contexts) for each in questions)), np.nan)
    for row, question in enumerate(questions):
        nats[row, : len(question.contexts)] = [-1.5 - at - row / 8 for at in range(len(question.contexts))]
    greedy = np.isfinite(nats) & (np.arange(nats.shape[1]) == 0)
    return Answers(questions, nats, greedy, np.zeros(len(questions), int), by_greedy)


def by_name(pairs):
    return {f"gen_args_{at}": {f"arg_{each}": text for each, text in enumerate(pair)} for at, pair in enumerate(pairs)}


CONTAINERS = {
    "lines": lambda rows: "".join(json.dumps(row) + "\n" for row in rows),
    "list": lambda rows: json.dumps(rows),
    "list on many lines": lambda rows: json.dumps(rows, indent=2, ensure_ascii=False),
    "lines of Windows": lambda rows: "\ufeff" + "\r\n".join(json.dumps(row) for row in rows),
}
ARGUMENTS = {
    "lists": lambda pairs: pairs,
    "by name": by_name,
    "names in order of text": lambda pairs: dict(sorted(by_name(pairs).items())),
    "places of other questions": lambda pairs: by_name(pairs) | {"gen_args_99": None},
    "a list of objects": lambda pairs: [*by_name(pairs).values()],
    "with an image": lambda pairs: [[*pair, {"visual": None}] for pair in pairs],
}
SCORES = {
    "numbers": lambda nats, greedy: [nats, greedy],
    "text": lambda nats, greedy: [str(nats), str(greedy)],
    "text in lower case": lambda nats, greedy: [str(nats), str(greedy).lower()],
    "one in a list": lambda nats, greedy: [[nats, greedy]],
    "repeats": lambda nats, greedy: [[str(nats), str(greedy)]] * 2,
}
BARE = {  # of (pairs, answers): the requests without a context
    "none": lambda pairs, scores: (pairs, scores, {}),
    "last": lambda pairs, scores: (
        [*pairs, *(["", pair[1]] for pair in pairs)],
        [*scores, *([-99.0, False] for _ in scores)],
        {"acc_mutual_info": 1.0},
    ),
    "in turns, without a blank": lambda pairs, scores: (
        [each for pair in pairs for each in (pair, ["", pair[1].strip()])],
        [each for score in scores for each in (score, [-99.0, False])],
        {"acc_mutual_info": 0.0},
    ),
}
FILTERS = ("one", "two", "text first", "none")


def rows_of(answers, arguments, scored, bare, filters):
    for row, question in enumerate(answers.questions):
        pairs = [[*pair] for pair in zip(question.contexts, question.continuations, strict=True)]
        nats, greedy = answers.log_likelihood_nats[row].tolist(), answers.greedy[row].tolist()
        found = [[*each] for each in zip(nats, greedy, strict=True)][: len(pairs)]
        pairs, found, more = BARE[bare](pairs, found)
        written = [SCORES[scored](*each) for each in found]
        common = {"doc_id": question.doc_id, "doc": {"a": [None]}, "target": 1, "acc": 1.0} | more
        common |= {"arguments": ARGUMENTS[arguments](pairs), "resps": [[each] for each in written]}
        if filters == "text first":
            yield common | {"filtered_resps": ["A" for _ in written], "filter": "letter"}
        if filters == "none":  # nothing was filtered: a list of answers to each
            yield common | {"filtered_resps": common["resps"]}
            continue
        yield common | {"filtered_resps": written, "filter": "none"}
        if filters == "two":
            changed = [SCORES[scored](-77.0, False) for _ in written]
            yield common | {"filtered_resps": changed, "filter": "strict"}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("bare", BARE)
@pytest.mark.parametrize("filters", FILTERS)
def test_the_logs_of_every_version_give_the_same_answers(container, bare, filters, tmp_path):
    for by_greedy, questions in ((False, QUESTIONS), (True, [WORD])):
        ours = answers_to(*questions, by_greedy=by_greedy)
        ways = [*product(ARGUMENTS, SCORES)]
        for number, (arguments, scored) in enumerate(
            ways if IS_THOROUGH else random.Random(container + bare).sample(ways, 5)
        ):
            rows = [*rows_of(ours, arguments, scored, bare, filters)]
            random.Random(number).shuffle(rows) if filters in ("one", "none") else None  # as several GPUs do
            file = tmp_path / f"{by_greedy} {number}.json"
            file.write_text(CONTAINERS[container](rows), encoding="utf-8")
            found = harness_answers(str(file), "any", ours)
            assert found.rows == tuple(range(len(questions))) and found.n_other == 0
            np.testing.assert_array_equal(found.answers.log_likelihood_nats, ours.log_likelihood_nats)
            np.testing.assert_array_equal(found.answers.greedy, ours.greedy)


NAMES = (  # the newer file of a task, the older one
    ("samples_own_2026-02-01T00-00-00.123456.jsonl", "samples_own_2026-01-01T00-00-00.jsonl"),
    ("samples_own_2026-02-01T00-00-00.123456.json", "samples_own.jsonl"),
    ("samples_own_2026-02-01T00-00-00.jsonl", "pretrained__a__b,dtype__float_own.jsonl"),
    ("a__model/samples_own.jsonl", "results.json"),
    ("pretrained__a__b_own.jsonl", "pretrained__a__b_other_task.jsonl"),
    ("_own.json", "samples_other_2026-02-01T00-00-00.jsonl"),
    ("pretrained__a__b_own_questions.jsonl", "results_2026-02-01T00-00-00.json"),  # by another name
)


@pytest.mark.parametrize(("name", "other"), NAMES)
def test_files_are_found_by_the_names_of_every_version(name, other, tmp_path):
    ours = answers_to(*QUESTIONS)
    rows = [*rows_of(ours, "by name", "text", "none", "one")]
    for each in (other, name):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text(json.dumps(rows))
    found = harness_answers(str(tmp_path), "folder/own.jsonl", ours)
    assert found.file == tmp_path / name


def test_a_file_that_cannot_be_compared_does_not_hide_another(tmp_path):
    ours = answers_to(*QUESTIONS)
    generated = {"doc_id": 0, "arguments": [["x", {"until": ["."]}]], "filtered_resps": ["text"]}
    (tmp_path / "samples_b_2026-02-01T00-00-00.jsonl").write_text(json.dumps(generated))
    older = tmp_path / "samples_a_2026-01-01T00-00-00.jsonl"
    older.write_text(json.dumps([*rows_of(ours, "lists", "numbers", "none", "one")]))
    assert harness_answers(str(tmp_path), "own", ours).file == older


def test_infinities_are_read_as_python_writes_them(tmp_path):
    ours = answers_to(*QUESTIONS)
    ours.log_likelihood_nats[0, 1] = -np.inf
    file = tmp_path / "samples_own.jsonl"
    for container, scored in product(CONTAINERS, SCORES):
        file.write_text(CONTAINERS[container]([*rows_of(ours, "lists", scored, "none", "one")]))
        found = harness_answers(str(file), "own", ours)
        np.testing.assert_array_equal(found.answers.log_likelihood_nats, ours.log_likelihood_nats)


CHOICES = [["x", " a"], ["x", " b"]]
SCORED = [[-1.0, True], [-2.0, False]]
GENERATED, WHOLE = [["x", {"until": ["\n"]}]], [["x"]]
UNUSABLE = {  # what differs from a row that can be read, and what is said
    "generates text": ({"arguments": GENERATED, "filtered_resps": ["y"]}, "generated text.*until.*only logs of"),
    "a whole text": ({"arguments": WHOLE, "filtered_resps": [-3.0]}, "a whole text was scored here"),
    "multi-turn": ({"arguments": [[["x"], " a"]], "filtered_resps": SCORED[:1]}, "has .* expected the two texts"),
    "no arguments": ({"arguments": [], "filtered_resps": []}, "`arguments` is empty"),
    "without arguments": ({"arguments": None}, "arguments"),
    "too few answers": ({"filtered_resps": SCORED[:1]}, "expected 2 answers in .*, got 1"),
    "not a number": ({"filtered_resps": [["nan", "True"]] * 2}, "has \\['nan', 'True'\\], expected a log-"),
    "no log-likelihood": ({"filtered_resps": ["A", "B"]}, "has 'A', expected a log-likelihood"),
    "no bare requests": ({"acc_mutual_info": 1.0}, "lacks the requests without a context that acc_mutual_info"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_row_that_cannot_be_compared_is_one_line(case, tmp_path):
    row, says = UNUSABLE[case]
    good = {"doc_id": 0, "arguments": CHOICES, "filtered_resps": SCORED}
    file = tmp_path / "samples_x.jsonl"
    for container, place in (("lines", "line 2"), ("list", "row 2")):
        file.write_text(CONTAINERS[container]([good, good | row]))
        line = refused_by(HeadroomError, says, lambda: harness_answers(str(tmp_path), "own", answers_to(*QUESTIONS)))
        assert line.startswith(f"{file}, {place}") and len(line) < 400
        assert "give a file samples_TASK_DATE" in line or "only logs of tasks with choices" in line


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "samples_x.jsonl, line 1: .*; give a file"),
        (b"[{]", "samples_x.jsonl: .*; give a file"),
        (b'\n{"doc_id": 0}', "line 2: .*`arguments`"),
        (b"\xff\xfe{", "line 1: "),
        (b"[" * 100_000 + b"NaN", "samples_x.jsonl: "),
        (b"", "none of these questions"),
    ],
)
def test_a_file_that_is_no_log_is_one_line(content, says, tmp_path):
    file = tmp_path / "samples_x.jsonl"
    file.write_bytes(content)
    line = refused_by(HeadroomError, says, lambda: harness_answers(str(tmp_path), "own", answers_to(*QUESTIONS)))
    assert line.startswith(str(file))


def test_a_place_without_logs_is_one_line(tmp_path):
    (tmp_path / "results.json").write_text("{}")
    nowhere = tmp_path / "none"
    for place, says in ((tmp_path, "has no samples; give a file samples_TASK"), (nowhere, "is not a folder or file")):
        line = refused_by(HeadroomError, says, lambda at=place: harness_answers(str(at), "own", answers_to(*QUESTIONS)))
        assert line.startswith(str(place))
