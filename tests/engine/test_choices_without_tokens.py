"""All choices that a model cannot score are named at once, by their lines in the user's file."""

import json
import random
import shutil
from unittest.mock import Mock

import pytest
from lm_eval.api.model import TemplateLM
from transformers import AutoTokenizer

from engine.questions.encoding import encode_questions
from engine.questions.faults import BadChoices, numbered
from engine.questions.rendering import Question
from engine.questions.word_pairs import read_pairs
from engine.requests import Evaluate
from tests.engine.fixtures import refused_by

MERGES = (["A", "Ġ"], ["AĠ", "B"])  # "A B" is one token
FILTERED = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def merging(tiny_opt, tmp_path_factory):
    """The tiny model with a tokenizer of letters that merges across the join."""
    folder = shutil.copytree(tiny_opt, tmp_path_factory.mktemp("merging") / "model")
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    model = content["model"]
    long = [token for token in model["vocab"] if len(token) > 1 and not token.startswith("<")]
    free = [model["vocab"].pop(token) for token in long]
    model["vocab"] |= {"".join(pair): free.pop() for pair in MERGES}
    model["merges"] = [*MERGES]
    content["pre_tokenizer"] = content["pre_tokenizer"] | {"use_regex": False}
    file.write_text(json.dumps(content))
    return folder


def written(file, rng, n=40):
    """(lines of the rows that cannot be scored, those of them whose choice is too long) of a file written there, with
    empty lines between rows."""
    merged, long, lines = [], [], []
    for number in range(n):
        lines += [""] * rng.choice([0, 0, 1])
        row = {"context": f"Question {number}: A", "choices": ["C", "D", "E"], "gold": rng.randrange(3)}
        if rng.random() < 0.2:
            row["choices"][rng.randrange(3)] = "B"
            merged.append(len(lines) + 1)
        elif rng.random() < 0.1:
            row["choices"][rng.randrange(3)] = "x" * 300
            long.append(len(lines) + 1)
        lines.append(json.dumps(row))
    file.write_text("\n".join(lines))
    return merged, long


@FILTERED
def test_a_merge_across_the_join_is_read_as_the_harness_reads_it(merging):
    """The context's own tokens stand in front, though the whole text has others in their place."""
    tokenizer = AutoTokenizer.from_pretrained(merging)
    [[choice]] = encode_questions([Question(0, ("Say A",), (" BC",), (0,), (0,), "")], tokenizer, False, 64)
    context, target = TemplateLM._encode_pair(Mock(backend="causal", tok_encode=tokenizer.encode), "Say A", " BC")
    whole = tokenizer.encode("Say A BC")
    assert whole[: len(context)] != context, "a merge crosses the join"
    beginning = [tokenizer.bos_token_id]  # which `encode` puts in front
    assert choice.targets == tuple(target) and beginning + [*choice.inputs, target[-1]] == context + target


@FILTERED
@pytest.mark.parametrize("seed, shots", [(0, 0), (1, 2), (2, 0)])
def test_all_rows_of_a_file_are_named(seed, shots, merging, tmp_path):
    file = tmp_path / "own.jsonl"
    merged, long = written(file, random.Random(seed))
    asked = Evaluate(model=str(merging), precision="fp32", task=str(file), shots=shots, cache=str(tmp_path / "store"))
    with pytest.raises(BadChoices) as raised:
        asked.run()
    line = str(raised.value)
    assert f"{numbered('row', merged)} of {file}: a choice has no token of its own after its context" in line
    assert f"{numbered('row', long)} of {file}: a choice has more tokens than the model's window of 256" in line
    assert f"(' B' in row {merged[0]})" in line and "\n" not in line and len(line) < 1000
    assert sorted(fault.row for fault in raised.value.details) == sorted(merged + long)


@FILTERED
def test_rows_of_a_file_for_training_are_not_mixed_up_with_those_asked(merging, tmp_path):
    file = tmp_path / "own.jsonl"
    merged, long = written(file, random.Random(0))
    written(tmp_path / "own.train.jsonl", random.Random(1))
    with pytest.raises(BadChoices) as raised:
        Evaluate(model=str(merging), precision="fp32", task=str(file), cache=str(tmp_path / "store")).run()
    assert sorted(fault.row for fault in raised.value.details) == sorted(merged + long)


def test_rows_of_word_pairs(merging, tmp_path):
    file = tmp_path / "own.csv"
    file.write_text("q;a\n\n" + "".join(f"{n};{'x' * 1100 if n % 3 == 0 else 'y'}\n" for n in range(9)))
    [task] = read_pairs(file)
    tokenizer = AutoTokenizer.from_pretrained(merging)
    line = refused_by(BadChoices, "more tokens than", lambda: task.tokenized(tokenizer))
    assert line.startswith(f"rows 3, 6 and 9 of {file}: ")


def test_questions_of_no_file_are_named_by_their_number(merging):
    tokenizer = AutoTokenizer.from_pretrained(merging)
    texts = [("A", (" B", " C")), ("", (" C", " D")), ("A", (" C", " B")), ("\n", ("", " "))]
    asked = [Question(n, (context,) * 2, choices, (0,), (1, 1), "") for n, (context, choices) in enumerate(texts)]
    found = refused_by(
        BadChoices, "questions 0 and 2: a choice has no token of its own", lambda: encoded(asked, tokenizer)
    )
    assert "question 3: the context of a choice has no token; write a text there" in found
    assert encoded(asked[1:2], tokenizer)


def encoded(asked, tokenizer):
    return encode_questions(asked, tokenizer, False, 256)
