"""The command `perplexity` prints what the function gives, for masks by level and by name, and is found again."""

import json
import math

import pytest

from engine.models.loading import Models
from engine.models.masks import Mask, parse_mask
from engine.models.session import Session
from engine.progress import final
from engine.texts.perplexity import change, perplexity
from tests.cli.conftest import refused
from tests.conftest import TEXT
from tests.engine.fixtures import target_in

LONG = " ".join([TEXT] * 4)


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "own.txt"
    file.write_text(LONG, encoding="utf-8")
    return file


def test_full_and_pruned_are_printed_with_the_change(cli, tiny_opt, text, monkeypatch):
    options = ("perplexity", "--model", tiny_opt, "--precision", "fp32", "--text", text, "--mask", "L1H2 F0")
    code, printed, _ = cli(*options, "--json")
    told = json.loads(printed)
    from cache import open_store

    session = Session(open_store())
    target = target_in(session, tiny_opt)
    masks = {"full": Mask.full(target.shape), "pruned": parse_mask("L1H2 F0", target.shape)}
    monkeypatch.setattr(Models, "get", lambda *_: pytest.fail("what the command stored was computed again"))
    found = {name: final(perplexity(target, LONG, mask).run(session)) for name, mask in masks.items()}
    for name, each in found.items():
        expected = {"perplexity": each.a_token, "word_perplexity": each.a_word, "byte_perplexity": each.a_byte}
        assert told[name] == pytest.approx(expected | {"nats": each.nats})
    changed = change(found["full"], found["pruned"])
    assert told["change"] == {"nats": changed.nats, "ci95": [changed.low, changed.high]}
    assert code == 0 and told["n_scored"] == len(found["full"]) and not told["cached"]
    code, printed, _ = cli(*options)
    assert code == 0 and f"full: perplexity {found['full'].a_token:.2f} a token" in printed
    assert "change: " in printed and "in windows of 256" in printed


def test_levels_go_by_a_task_s_ranking(cli, tiny_opt, text):
    of_model = ("--model", tiny_opt, "--precision", "fp32", "--json")
    levels = ("--prune-heads", 50, "--ranking-questions", 16, "--task", "demo_copy", "--mask", "F0")
    _, printed, _ = cli("perplexity", *of_model, *levels, "--text", text)
    _, evaluated, _ = cli("evaluate", *of_model, *levels, "--limit", 16)
    by_level, same = json.loads(printed), json.loads(evaluated)
    assert by_level["mask"] == same["mask"] and by_level["heads_pruned"] == 4 and by_level["ffns_pruned"] == 1
    refused(cli("perplexity", *of_model, "--prune-heads", 50, "--text", text), 2, "--task", "order")


def test_rows_are_joined_as_the_recipe_does(cli, tiny_opt, tmp_path):
    of_model, rows = ("--model", tiny_opt, "--precision", "fp32", "--json"), [TEXT[:300], "", TEXT[300:]]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    (tmp_path / "joined.txt").write_text("\n\n".join(rows))
    found = [
        json.loads(cli("perplexity", *of_model, "--text", tmp_path / name)[1]) for name in ("rows.jsonl", "joined.txt")
    ]
    assert found[0]["full"] == found[1]["full"] and found[1]["cached"] and "pruned" not in found[0]


@pytest.mark.parametrize("bos", ["--bos", "--no-bos"])
def test_lambada_has_its_perplexity(bos, cli, tiny_opt, tmp_path):
    folder, words = tmp_path / "data" / "lambada_openai", TEXT.split()
    folder.mkdir(parents=True)
    for split in ("train", "validation"):
        rows = [json.dumps({"text": " ".join(words[at : at + 12])}) for at in range(16)]
        (folder / f"{split}.jsonl").write_text("\n".join(rows))
    of_model = ("--model", tiny_opt, "--precision", "fp32", "--json", bos, "--task-data", tmp_path / "data")
    _, printed, _ = cli("evaluate", *of_model, "--task", "lambada_openai", "--items", tmp_path / "items.jsonl")
    items = [json.loads(line)["loglikelihoods"][0] for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    found = json.loads(printed)
    assert found["perplexity"] == pytest.approx(math.exp(-sum(items) / 16)) and found["acc_norm"] is None
    _, printed, _ = cli("evaluate", *of_model, "--task", "demo_copy", "--limit", 4)
    assert json.loads(printed)["perplexity"] is None


def test_bad_input_gets_one_line(cli, tiny_opt, text, tmp_path):
    of_model = ("perplexity", "--model", tiny_opt, "--precision", "fp32")
    refused(cli(*of_model), 2, "exactly one of --text")
    refused(cli(*of_model, "--text", text, "--passage", "The ferry"), 2, "exactly one of --text")
    refused(cli(*of_model, "--passage", "Nothing"), 2, "'Nothing'", "The ferry")
    refused(cli(*of_model, "--text", tmp_path / "gone.txt"), 1, "gone.txt", "cannot read")
    refused(cli(*of_model, "--text", "/dev/zero"), 1, "is not a regular file")
    refused(cli(*of_model, "--text", "a\0b"), 2, "null byte")
    refused(cli(*of_model, "--text", text, "--window", 1000), 2, "1000", "256")
    refused(cli(*of_model, "--text", text, "--window", -1), 2, "--window is -1; choose 0 to 1,000,000")
    for content, words in (('{"text": "a"}\n["b"]\n', "row 2"), ('{"words": 1}\n', '"text"'), ("{\n", "row 1")):
        (tmp_path / "bad.jsonl").write_text(content)
        refused(cli(*of_model, "--text", tmp_path / "bad.jsonl"), 1, words, "bad.jsonl")
