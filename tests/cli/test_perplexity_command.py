"""The command `perplexity` prints what the function gives, for masks by level and by name, and is found again."""

import json
import math

import pytest

from cache import open_store
from engine.models.in_memory import Models
from engine.models.masks import Mask, parse_mask
from engine.models.session import Session
from engine.progress import final
from engine.texts.perplexity import change, perplexity
from tests.cli.conftest import own_text, refused, write_lambada
from tests.conftest import TEXT
from tests.engine.fixtures import target_in

LONG = " ".join([TEXT] * 4)


@pytest.fixture
def text(tmp_path):
    return own_text(tmp_path, LONG)


def test_full_and_pruned_are_printed_with_the_change(cli, told, tiny, tiny_opt, text, monkeypatch):
    options = ("perplexity", *tiny, "--text", text, "--mask", "L1H2 F0")
    printed = told(*options)
    session = Session(open_store())
    target = target_in(session, tiny_opt)
    masks = {"full": Mask.full(target.shape), "pruned": parse_mask("L1H2 F0", target.shape)}
    monkeypatch.setattr(Models, "get", lambda *_: pytest.fail("what the command stored was computed again"))
    found = {name: final(perplexity(target, LONG, mask).run(session)) for name, mask in masks.items()}
    for name, each in found.items():
        expected = {"perplexity": each.a_token, "word_perplexity": each.a_word, "byte_perplexity": each.a_byte}
        assert printed[name] == pytest.approx(expected | {"nats": each.nats})
    changed = change(found["full"], found["pruned"])
    assert printed["change"] == {"nats": changed.nats, "ci95": [changed.low, changed.high]}
    assert printed["n_scored"] == len(found["full"]) and not printed["cached"]
    code, out, _ = cli(*options)
    assert code == 0 and f"full model {found['full'].a_token:.2f}" in out
    assert " nats a token" in out and "in windows of 256" in out


def test_levels_go_by_a_task_s_ranking(told, tiny, text):
    levels = ("--prune-heads", 50, "--order-questions", 16, "--task", "demo_copy", "--mask", "F0")
    by_level = told("perplexity", *tiny, *levels, "--text", text)
    same = told("evaluate", *tiny, *levels, "--limit", 16)
    assert by_level["mask"] == same["mask"] and by_level["heads_pruned"] == 4 and by_level["ffns_pruned"] == 1


def test_rows_are_joined_as_the_recipe_does(told, tiny, tmp_path):
    rows = [TEXT[:300], "", TEXT[300:]]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    (tmp_path / "joined.txt").write_text("\n\n".join(rows))
    found = [told("perplexity", *tiny, "--text", tmp_path / name) for name in ("rows.jsonl", "joined.txt")]
    assert found[0]["full"] == found[1]["full"] and found[1]["cached"] and "pruned" not in found[0]


@pytest.mark.parametrize("bos", ["--bos", "--no-bos"])
def test_lambada_has_its_perplexity(bos, told, tiny, tmp_path):
    words = ("evaluate", *tiny, bos, "--task-data", write_lambada(tmp_path / "data", 16))
    found = told(*words, "--task", "lambada_openai", "--questions-out", tmp_path / "items.jsonl")
    items = [json.loads(line)["loglikelihoods"][0] for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    assert found["perplexity"] == pytest.approx(math.exp(-sum(items) / 16)) and found["acc_norm"] is None
    assert told(*words, "--task", "demo_copy", "--limit", 4)["perplexity"] is None


def test_bad_input_gets_one_line(cli, tiny, text, tmp_path):
    of_model = ("perplexity", *tiny)
    refused(cli(*of_model, "--prune-heads", 50, "--text", text), 2, "--task", "order")
    refused(cli(*of_model), 2, "exactly one of --text")
    refused(cli(*of_model, "--text", text, "--passage", "The ferry"), 2, "exactly one of --text")
    refused(cli(*of_model, "--passage", "Nothing"), 2, "'Nothing'", "The ferry")
    refused(cli(*of_model, "--text", tmp_path / "gone.txt"), 1, "gone.txt", "cannot read")
    refused(cli(*of_model, "--text", "/dev/zero"), 1, "is not a regular file")
    refused(cli(*of_model, "--text", "a\0b"), 2, "embedded null")
    refused(cli(*of_model, "--text", text, "--window", 1000), 2, "1000", "256")
    refused(cli(*of_model, "--text", text, "--window", -1), 2, "--window is -1; choose 0 to 1,000,000")
    for content, words in (('{"text": "a"}\n["b"]\n', "row 2"), ('{"words": 1}\n', '"text"'), ("{\n", "row 1")):
        (tmp_path / "bad.jsonl").write_text(content)
        refused(cli(*of_model, "--text", tmp_path / "bad.jsonl"), 1, words, "bad.jsonl")
