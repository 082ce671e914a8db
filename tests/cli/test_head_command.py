"""`head` tells all that is known of one head, measures what is missing, and refuses bad input in one line."""

import json

import pytest

from engine.importance.rankings import CRITERIA
from engine.models.loading import Models
from tests.cli.conftest import refused
from tests.engine.fixtures import write_questions


@pytest.fixture
def command(cli, tiny_opt, tmp_path):
    task = write_questions(tmp_path / "mine.jsonl", 12)

    def run(head, *more, tasks=task):
        options = ("--model", tiny_opt, "--precision", "fp32", "--shots", 0, "--limit", 8, "--ranking-questions", 6)
        return cli("head", head, *options, *(("--tasks", tasks) if tasks else ()), *more)

    return run


def test_a_head_is_told_and_then_found_again(command, monkeypatch):
    code, out, _ = command("L1H2", "--stored", "--json")
    before = json.loads(out)
    assert code == 0 and before["verdict"] == "" and "scores" in before["left"] and before["scores"] == {}
    code, out, _ = command("L1H2", "--token", " river", "--json")
    found = json.loads(out)
    assert code == 0 and not found["left"] and not found["cached"] and found["verdict"]
    assert found["head"] == "L1H2" and found["scores"]["olsson"]["prefix_matching"]["rank"] in range(1, 9)
    assert [each["head"][:2] for each in found["fed_by"]] == ["L0"] * 4
    assert sum(each["part"] for each in found["fed_by"]) == pytest.approx(
        found["scores"]["olsson"]["qk_trace"]["score"], rel=1e-3, abs=1e-3
    )
    [task] = found["tasks"]
    assert task["n"] == 8 and task["change"] == pytest.approx((task["gained"] - task["lost"]) / 8)
    assert {each["what"] for each in found["importance"]} == {criterion.heads for criterion in CRITERIA.values()}
    assert len(found["tokens"][0]["raises"]) == 10 and set(found["failed"]) == {"context"}
    assert all(each["looks"] and each["raises"] for each in found["texts"].values())
    monkeypatch.setattr(Models, "get", lambda *_: pytest.fail("what is stored was computed again"))
    code, out, _ = command("L1H2", "--stored", "--token", " river", "--json")
    again = json.loads(out)
    differing = ("seconds", "cached")
    assert code == 0 and {**again, **dict.fromkeys(differing)} == {**found, **dict.fromkeys(differing)}
    code, out, _ = command("L1H2")
    assert out.startswith("L1H2: ") and "points without it" in out


def test_bad_input_gets_one_line(command):
    refused(command("L9H0"), 2, "L9H0", "0 to 1")
    refused(command("nose"), 2, "'nose'", "L1H0")
    refused(command("L0H*"), 2, "names 4 heads", "give one")
    refused(command("L0H0,", tasks="no_such_task"), 2, "no_such_task")
