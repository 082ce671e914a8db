"""Questions: embedded ones and a user's own go through the harness, are rendered once, hashed, and fairly ordered."""

import json
from contextlib import closing
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache import Store
from engine.questions import rendering as module
from engine.questions.rendering import (
    CHUNK,
    Question,
    RenderedQuestions,
    TaskSpec,
    questions_in,
    render_questions,
    select,
)
from engine.questions.tasks import HARNESS_TASKS, embedded_tasks, list_tasks, packaged_tasks, task_info
from engine.questions.word_pairs import read_pairs
from engine.receipts import is_readable
from engine.records import Record, made_of
from scripts.make_demo.pair_tasks import FOLDER, files, name_of
from tests.engine.fixtures import write_questions


def test_rendered_questions_come_from_the_store(tmp_path, store, monkeypatch):
    spec = TaskSpec(str(write_questions(tmp_path / "own.jsonl", 12)), 2)
    first = render_questions(spec, None, store)

    def no_rendering(*arguments):
        raise AssertionError("rendered a second time")

    monkeypatch.setattr(module, "_render", no_rendering)
    assert render_questions(spec, None, store) == first
    monkeypatch.undo()
    write_questions(tmp_path / "own.jsonl", 12, seed=5)
    assert render_questions(spec, None, store) != first, "a changed file is rendered again"


@pytest.mark.parametrize("change", [
    (b'"questions"', b'"questionz"'), (b'"greedy": false', b'"greedy": falsf'), (b'"golds": [0]', b'"golds": [7]'),
    (b'"golds"', b'"goldz"'), (b'"doc_id": 3', b'"doc_id": {'), (b'"n_chars": [', b'"n_chars": ]'),
])  # fmt: skip
def test_a_planted_result_is_a_miss_and_is_found(change, tmp_path):
    spec = TaskSpec(str(write_questions(tmp_path / "own.jsonl", 12)))
    with closing(Store(tmp_path / "a", is_readable)) as store:
        expected = render_questions(spec, None, store)
        [key] = [key for key in store.keys() if "/requests/" in key]
        blob = store.get(key)
        planted = blob.replace(*change)
        assert planted != blob and len(planted) == len(blob)
        store.put(key, planted)
        assert render_questions(spec, None, store) == expected and store.get(key) == blob, "it is rendered again"
        store.put(key, planted)
        assert store.verify().bad_keys == (key,) and key not in store.keys()


@given(st.data())
@settings(max_examples=40)
def test_questions_with_any_byte_changed_are_questions_or_a_miss(data):
    entry = asdict(Question(0, ("a", "a"), ("b", "c"), (1,), (1, 1), "d"))
    content = bytearray(json.dumps({"greedy": False, "questions": [entry]}).encode())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    found = made_of(Record({"json": np.frombuffer(bytes(content), np.uint8)}, {}), questions_in)
    if found is not None:
        [question], greedy, kept = found
        assert type(greedy) is bool and kept == 0 and 0 <= question.golds[0] < 2 and len(question.n_chars) == 2


def test_own_questions_look_as_the_harness_shows_them(tmp_path):
    rows = [{"context": f"Q{n}", "choices": ["yes", "no indeed"], "gold": n % 2} for n in range(4)]
    for name in ("own.jsonl", "own.train.jsonl"):
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
    plain = render_questions(TaskSpec(str(tmp_path / "own.jsonl"))).questions
    assert plain[1].contexts == ("Q1", "Q1") and plain[1].continuations == (" yes", " no indeed")
    assert plain[1].golds == (1,) and plain[1].n_chars == (3, 9)
    for question in render_questions(TaskSpec(str(tmp_path / "own.jsonl"), 2)).questions:
        shots = question.contexts[0].split("\n\n")
        assert shots[-1] == f"Q{question.doc_id}" and len(shots) == 3
        for shot in shots[:-1]:  # solved, and never the question itself
            number = int(shot[1])
            assert number != question.doc_id and shot.endswith(rows[number]["choices"][rows[number]["gold"]])


def test_the_seed_draws_the_examples(tmp_path):
    file = str(write_questions(tmp_path / "own.jsonl", 20))
    first, again, other = (render_questions(TaskSpec(file, 3, seed=seed)).questions for seed in (1, 1, 2))
    assert first == again and first != other
    assert [q.contexts[0].split("\n\n")[-1] for q in first] == [q.contexts[0].split("\n\n")[-1] for q in other]


@pytest.mark.parametrize("name", embedded_tasks())
def test_embedded_tasks_render_with_every_number_of_shots(name):
    for shots in (0, 1, 5):
        rendered = render_questions(TaskSpec(name, shots))
        assert len(rendered.questions) >= 100 and rendered.source.startswith("file")
        assert rendered.chance == pytest.approx(task_info(name).chance, abs=1e-3)


def test_word_pairs_are_asked_as_their_file_has_them():
    """Files and prompts equal the pairs of the CSV file, and an answer is right if greedy decoding gives it."""
    assert {str(path.relative_to(FOLDER)): path.read_text(encoding="utf-8")
            for path in FOLDER.rglob("*") if path.is_file()} == files()  # fmt: skip
    for pairs in read_pairs(FOLDER.with_name("word_pairs.csv")):
        asked = render_questions(TaskSpec(name_of(pairs), 0))
        assert asked.greedy and asked.chance == 0
        assert [each.contexts + each.continuations for each in asked.questions] == [
            pairs.asked(pair).contexts + pairs.asked(pair).continuations for pair in pairs.test
        ]
        first = render_questions(TaskSpec(name_of(pairs), 2)).questions[0].contexts[0]
        *shots, question = first.split("\n\n")
        solved = {pairs.asked(pair).contexts[0] + f" {pair.answer}" for pair in pairs.train}
        assert len(shots) == 2 and {*shots} <= solved and question == asked.questions[0].contexts[0]


def test_every_task_is_listed_with_where_it_comes_from(tmp_path):
    states = {state.info.name: state for state in list_tasks(None)}
    assert set(states) == {*HARNESS_TASKS, *packaged_tasks()}
    assert all(states[name].where == "embedded" for name in packaged_tasks())
    (tmp_path / "piqa").mkdir()
    (tmp_path / "piqa" / "validation.jsonl").write_text("{}")
    [piqa] = [state for state in list_tasks(tmp_path) if state.info.name == "piqa"]
    assert not piqa.available and "train.jsonl" in piqa.note


@given(st.lists(st.integers(0, 3), min_size=1, max_size=120), st.integers(1, 150))
def test_a_stratified_beginning_is_fair_and_chunks_are_fixed(golds, limit):
    questions = tuple(Question(i, ("c",), (" d",), (gold,), (1,), str(i)) for i, gold in enumerate(golds))
    rendered = RenderedQuestions(TaskSpec("piqa"), questions, False, "", 0.5)
    selection = select(rendered, limit, "stratified")
    assert sorted(selection.order) == list(range(len(golds))) and selection.n == min(limit, len(golds))
    chosen = np.array(golds)[list(selection.order[: selection.n])]
    for gold in set(golds):
        assert abs(np.sum(chosen == gold) - selection.n * golds.count(gold) / len(golds)) <= len(set(golds)) / 2 + 1
    more = select(rendered, None, "stratified")
    assert more.chunks()[: len(selection.chunks())] == selection.chunks(), "a larger limit reuses the same chunks"
    assert all(len(chunk) == CHUNK for chunk in selection.chunks()[:-1])
    assert select(rendered, limit).order[: selection.n] == tuple(range(selection.n))
