"""`head` tells all that is known of one head, measures what is missing, and refuses bad input in one line."""

import pytest

from engine.importance.criteria import CRITERIA, ON_REQUEST
from engine.models.in_memory import Models
from tests.cli.conftest import refused
from tests.engine.fixtures import write_questions


@pytest.fixture
def options(tiny, tmp_path):
    task = write_questions(tmp_path / "mine.jsonl", 12)
    return *tiny, "--shots", 0, "--limit", 8, "--tasks", task


def test_a_head_is_told_and_then_found_again(cli, told, options, monkeypatch):
    before = told("head", "L1H2", *options, "--stored")
    assert "scores" in before["left"] and before["scores"] == {}
    found = told("head", "L1H2", *options, "--token", " river")
    assert not found["left"] and not found["cached"] and found["finding"].startswith("L1H2 is ")
    assert found["head"] == "L1H2" and found["scores"]["olsson"]["prefix_matching"]["rank"] in range(1, 9)
    assert [each["head"][:2] for each in found["fed_by"]] == ["L0"] * 4
    assert sum(each["part"] for each in found["fed_by"]) == pytest.approx(
        found["scores"]["olsson"]["qk_trace"]["score"], rel=1e-3, abs=1e-3
    )
    [task] = found["tasks"]
    assert task["n"] == 8 and task["change"] == pytest.approx((task["gained"] - task["lost"]) / 8)
    assert {each["what"] for each in found["importance"]} == {
        each.heads for name, each in CRITERIA.items() if name not in ON_REQUEST
    }
    assert len(found["tokens"][0]["raises"]) == 10 and set(found["failed"]) == {"context"}
    assert all(each["looks"] and each["raises"] for each in found["texts"].values())
    monkeypatch.setattr(Models, "get", lambda *_: pytest.fail("what is stored was computed again"))
    again = told("head", "L1H2", *options, "--stored", "--token", " river")
    differing = ("seconds", "cached")
    assert {**again, **dict.fromkeys(differing)} == {**found, **dict.fromkeys(differing)}
    _, out, _ = cli("head", "L1H2", *options)
    assert out.startswith("L1H2 is ") and "Lost without it, 8 train questions a task" in out


def test_bad_input_gets_one_line(cli, options):
    refused(cli("head", "L9H0", *options), 2, "L9H0", "0 to 1")
    refused(cli("head", "nose", *options), 2, "'nose'", "L1H0")
    refused(cli("head", "L0H*", *options), 2, "names 4 heads", "give one")
    refused(cli("head", "L0H0,", *options, "--tasks", "no_such_task"), 2, "no_such_task")


def test_a_head_is_ranked_by_kinds_whose_scores_are_stored(told, tiny, options, tmp_path):
    assert told("head", "L1H2", *tiny, "--stored")["kinds"] == {}
    scores = ("--score", "heads-copy-suppression", "--out", tmp_path / "scores.npz")
    told("importance", *tiny, "--task", options[-1], *scores)
    told("induction", *tiny, "--out", tmp_path / "induction.npz")
    kinds = told("head", "L1H2", *tiny, "--stored")["kinds"]
    assert [*kinds] == ["copy-suppression"] and kinds["copy-suppression"]["rank"] in range(1, 9)
