"""What was measured is never measured again: after a restart or a cancel; a bad disk only loses the saving. Kill -9 is
in test_a_sweep_survives_kill.py."""

import json
import re
import time

import numpy as np
import pytest

from cache import open_store
from engine.accuracy import evaluation as module
from engine.accuracy.evaluation import evaluation
from engine.models.masks import parse_mask
from engine.models.session import Session
from engine.progress import final
from engine.timing.observed_timings import learn
from tests.engine.fixtures import questions_in, run, target_in, write_questions


def test_the_same_question_twice_costs_no_forward_pass(tiny_opt, tmp_path, monkeypatch):
    questions, cache = write_questions(tmp_path / "own.jsonl", 40), tmp_path / "results"
    for text in ("", "L0H1 F1"):
        store = open_store(cache)
        first = run(Session(store), tiny_opt, "fp32", questions, text)
        store.close()
        assert not first.cached

    def no_model(*arguments, **named):
        raise AssertionError("the model was loaded for a stored answer")

    monkeypatch.setattr("engine.models.loading.load", no_model)
    store = open_store(cache)  # as after a restart
    started = time.process_time()  # not by the clock on the wall: others may want this computer as well
    again = run(Session(store), tiny_opt, "fp32", questions, "L0H1 F1")
    assert again.cached and time.process_time() - started < 5
    np.testing.assert_array_equal(again.value.log_likelihood_nats, first.value.log_likelihood_nats)
    some = run(Session(store), tiny_opt, "fp32", questions, "F1 L0H1-1", limit=20)
    assert some.cached and len(some.value) == 20, "a smaller limit and another spelling find the same chunks"
    assert run(Session(store), tiny_opt, "fp32", questions, " , ").cached, "the full mask in another spelling"
    store.close()


def test_a_chunk_is_encoded_once_for_all_masks_and_anew_for_another_beginning(tiny_opt, tmp_path, session, monkeypatch):
    questions = questions_in(write_questions(tmp_path / "own.jsonl", 48), session)
    real, calls = module.encode_chunk, []
    monkeypatch.setattr(module, "encode_chunk", lambda *arguments: calls.append(1) or real(*arguments))

    def answers(text, bos):
        target = target_in(session, tiny_opt, bos=bos)
        return final(evaluation(target, questions, parse_mask(text, target.shape)).run(session))

    answers("", True)
    assert len(calls) == 3
    answers("L0H1", True)
    assert len(calls) == 3
    without = answers("F1", False)
    assert len(calls) == 6
    one = module._n_tokens(next(iter(session.models.loaded.encoded.values())))
    monkeypatch.setattr(module, "ENCODED_TOKENS", int(2.5 * one))
    answers("F0 L1H0", True)
    session.models.unload()
    again = answers("F1 L0H0", False)
    assert len(calls) == 9 and len(session.models.loaded.encoded) == 2, (
        "only so many are kept, and none without the model"
    )
    assert not np.array_equal(without.log_likelihood_nats, again.log_likelihood_nats)


def test_a_store_that_cannot_save_does_not_stop_the_run(cli, tiny, tmp_path):
    (tmp_path / "results").write_text("a file where the folder should be")
    code, out, lines = cli("evaluate", *tiny, "--task", write_questions(tmp_path / "own.jsonl", 20), "--json")
    found = json.loads(out)
    assert code == 0 and found["n"] == 20 and found["saved"] is False
    assert any("results are kept in memory" in line for line in lines)


def test_standard_output_is_one_json_object_and_items_are_in_dataset_order(told, tiny, tmp_path):
    questions, items = write_questions(tmp_path / "own.jsonl", 20), tmp_path / "items.jsonl"
    result = told("evaluate", *tiny, "--task", questions, "--questions-out", items, "--sample", "stratified")
    names = "task shots n acc acc_norm acc_ci95 seconds items_per_second cached mask"
    assert set(names.split()) <= set(result)
    rows = [json.loads(line) for line in items.read_text().splitlines()]
    assert [row["doc_id"] for row in rows] == list(range(20))
    assert np.mean([row["correct"] for row in rows]) == pytest.approx(result["acc"])
    for row in rows:
        assert row["pred"] == int(np.argmax(row["loglikelihoods"])) and row["correct"] == (row["pred"] == row["gold"])


def test_a_long_sweep_says_first_how_long_it_takes_here(cli, tiny, tiny_opt, tmp_path):
    options = ("--tasks", "demo_copy", "--shots", "0", "--head-levels", "0,50", "--order", "weight", "--limit", 4)
    command = ("sweep", *tiny, *options, "--out", tmp_path / "found.csv")
    store = open_store(tmp_path / "results")
    learn(store, target_in(Session(store), tiny_opt), "forward", 1000, 3600.0)
    store.close()
    lines = cli(*command)[2]
    assert re.fullmatch(r"headroom: about \d+ min, by earlier passes of this model on this computer", lines[0])
    assert not any("earlier passes" in line for line in cli(*command)[2]), "now it is stored"
