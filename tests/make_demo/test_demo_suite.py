"""The embedded questions are what their generator gives, training sees none of them, the model is a true OPT folder."""

import functools
import json
import random

import pytest

from engine.demo import model_folder, passages, tasks_folder
from scripts.make_demo import suite
from scripts.make_demo.corpus import build_tokenizer
from scripts.make_demo.families import FAMILIES, episode, suite_rule, training_rule

pytestmark = pytest.mark.thorough

NAMES = list(FAMILIES)
needs_model = pytest.mark.skipif(not (model_folder() / "model.safetensors").is_file(), reason="no embedded model here")


@functools.cache
def validation(name):
    return suite.questions(FAMILIES[name], "validation")


@pytest.fixture(scope="module")
def written():
    return suite.files()


def rows(written, name, split):
    return [json.loads(line) for line in written[f"{name}/{split}.jsonl"].splitlines()]


def test_the_files_on_disk_are_what_the_generator_writes(written):
    on_disk = {str(path.relative_to(tasks_folder())) for path in tasks_folder().rglob("*") if path.is_file()}
    assert on_disk == set(written)
    for path, text in written.items():
        assert (tasks_folder() / path).read_text(encoding="utf-8") == text, path


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_well_formed_balanced_and_in_one_split_only(written, name):
    seen = {}
    for split in ("train", "validation"):
        found = rows(written, name, split)
        assert len(found) == suite.N_ROWS
        for row in found:
            assert all(text == text.strip() for text in row.values() if isinstance(text, str))
            assert len(set(row.get("choices", ()))) == len(row.get("choices", ()))
        if "gold" in found[0]:
            golds = [row["gold"] for row in found]
            counts = [golds.count(place) for place in range(len(found[0]["choices"]))]
            assert max(counts) - min(counts) <= 1, "one place would be right more often"
        seen[split] = {json.dumps(row) for row in found}
        assert len(seen[split]) == suite.N_ROWS
    assert not seen["train"] & seen["validation"]


@pytest.mark.parametrize("name", ["demo_guest", "demo_yesno"])
def test_yes_and_no_are_right_equally_often(written, name):
    answers = [row["choices"][row["gold"]] for row in rows(written, name, "validation")]
    assert answers.count("yes") == answers.count("no")


def test_the_suite_is_varied():
    from scripts.make_demo import words
    from scripts.make_demo.words import TEMPLATES

    assert set(TEMPLATES) == set(NAMES)
    assert sum(map(len, TEMPLATES.values())) >= 60
    assert len(words.single_tokens()) >= 400
    for name in NAMES:
        contexts = {item.context for item in validation(name)}
        assert len(contexts) >= 120, name


@pytest.mark.parametrize("name", NAMES)
def test_the_harness_renders_what_training_shows(name):
    """Few-shot prompts and answers as lm-eval builds them are the text of the training episodes."""
    from engine.questions.rendering import TaskSpec, render_questions

    family = FAMILIES[name]
    questions = render_questions(TaskSpec(name, 2, "validation"), None, None).questions
    train = {item.solved for item in suite.questions(family, "train")}
    for question, item in zip(questions[:20], validation(name)[:20], strict=False):
        right = question.golds[0]
        *examples, asked = (question.contexts[right] + question.continuations[right]).split("\n\n")
        assert asked == item.solved
        assert len(examples) == 2 and set(examples) <= train
        assert question.continuations[right] == item.answer


def test_every_passage_is_there_with_its_source():
    texts = passages()
    assert len(texts) == 5
    assert all(passage.title and passage.about and passage.source for passage in texts)
    long = [passage for passage in passages(long=True) if passage not in texts]
    assert [passage.title for passage in long] == ["Five log books", "A letter without a name"]
    assert all(each.title and each.about and each.source and len(each.text.split()) > 2500 for each in long)
    longest = max((passage.text for passage in texts), key=len)
    assert len(longest.split()) > 700
    quoted = next(passage for passage in texts if "Rowling" in passage.source).text
    half = len(quoted) // 2
    assert quoted[:half] == quoted[half + 1 :] and quoted.count(".") == 4


@pytest.mark.parametrize("name", NAMES)
def test_no_phrase_of_validation_is_ever_shown_in_training(name):
    family, rng = FAMILIES[name], random.Random(f"audit {name}")
    held_out = {phrase for item in validation(name) for phrase in item.phrases}
    solved = {item.solved for item in validation(name)}
    assert all(item.held_out for item in validation(name))
    for _ in range(60):
        for item in episode(family, rng, 5):
            assert item.held_out is False
            assert not held_out & set(item.phrases)
            assert item.solved not in solved


@pytest.mark.parametrize("name", ["demo_completion", "demo_yesno", "demo_entailment", "demo_sense"])
def test_the_phrases_of_what_needs_no_context_stand_in_its_questions(name):
    for item in validation(name):
        assert all(phrase in item.context for phrase in item.phrases)


def test_what_families_need_of_their_context():
    needs = [family.needs for family in FAMILIES.values()]
    assert needs.count("examples") >= 8 and needs.count("nothing") >= 2
    for family in FAMILIES.values():
        assert (suite_rule(family) is not None) == (family.needs == "examples"), family.name


@pytest.mark.parametrize("name", ["demo_outfit", "demo_surname", "demo_walk", "demo_pet", "demo_price", "demo_lookup"])
def test_keys_stand_at_distances_that_vary(name):
    keys = suite_rule(FAMILIES[name])[0]
    distances = set()
    for item in validation(name):
        behind = next(item.context.split(f" {key}")[-1] for key in keys if f" {key}" in item.context)
        distances.add(len(behind.split()))
    assert len(distances) >= 2


@pytest.mark.parametrize("name", [name for name in NAMES if suite_rule(FAMILIES[name]) is not None])
def test_the_rule_of_the_suite_is_never_a_training_rule(name):
    family, rng = FAMILIES[name], random.Random(0)
    assert all(training_rule(family, rng) != suite_rule(family) for _ in range(100))


def test_the_tokenizer_begins_with_bos_splits_at_blanks_and_loses_no_byte():
    tokenizer = build_tokenizer(["The river was low that summer. A question has an answer."], 300)
    assert tokenizer.encode("river").ids[0] == 2
    context, continuation = "The river was", " low"
    joint = tokenizer.encode(context + continuation).ids
    assert joint == tokenizer.encode(context).ids + tokenizer.encode(continuation, add_special_tokens=False).ids
    text = "Ünïcode, naïve\n\n  two blanks\t✓"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert [tokenizer.token_to_id(token) for token in ("<s>", "<pad>", "</s>", "<unk>")] == [0, 1, 2, 3]


@needs_model
def test_the_embedded_model_is_a_small_opt_in_fp16():
    from safetensors import safe_open

    config = json.loads((model_folder() / "config.json").read_text())
    assert config["model_type"] == "opt" and config["architectures"] == ["OPTForCausalLM"]
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (2, 2, 1)
    assert config["max_position_embeddings"] >= 512 and config["activation_function"] == "relu"
    file = model_folder() / "model.safetensors"
    assert file.stat().st_size < 30e6
    with safe_open(file, "pt") as tensors:
        assert {tensors.get_slice(name).get_dtype() for name in tensors.keys()} == {"F16"}


@needs_model
def test_five_shots_of_every_family_fit_the_context():
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder())
    assert tokenizer("a").input_ids[0] == 2
    for family in FAMILIES.values():
        longest = sorted(suite.questions(family, "train"), key=lambda item: len(item.solved))[-6:]
        text = "\n\n".join(item.solved for item in longest)
        assert len(tokenizer(text).input_ids) < 512, family.name
