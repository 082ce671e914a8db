"""The embedded model's training: its forward pass is OPT's, a step's rows are what the recipe says, a run goes on."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.demo.making import corpus, recipe, rows, train
from engine.demo.making.network import hidden_states, look, losses_of, new_model
from engine.demo.making.recipe import STAGES, DemoRecipe, Stage
from engine.demo.making.tokenizer import BEGINNING, build_tokenizer
from engine.errors import HeadroomError

SMALL = DemoRecipe(n_layers=2, n_heads=2, d_model=16, n_vocab=700, step_tokens=512, tokens=4096, warm_up=2)
WORDS = "the old man went down to the river and the river was low that summer\n\nin the house a lamp was lit "


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer([WORDS * 20], 700)


@pytest.fixture(scope="module")
def text(tokenizer):
    tokens = np.array(tokenizer.encode(WORDS * 200).ids)
    return rows.CorpusText(tokens, np.array([0, 40, 400, 2000]))


def test_the_forward_pass_is_opts():
    model = new_model(SMALL).eval()
    tokens = torch.randint(4, 700, (3, 21), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        torch.testing.assert_close(model.lm_head(hidden_states(model, tokens)), model(input_ids=tokens).logits)
        positions = torch.arange(7, 28)[None].expand(3, -1)
        moved = model.model(input_ids=tokens, position_ids=positions).last_hidden_state
        torch.testing.assert_close(hidden_states(model, tokens, 7), moved)
        patterns = []
        hidden_states(model, tokens, patterns=patterns)
    eager = new_model(SMALL).eval()
    eager.set_attn_implementation("eager")
    with torch.inference_mode():
        for own, its in zip(patterns, eager(tokens, output_attentions=True).attentions, strict=True):
            torch.testing.assert_close(own, its)


def test_losses_are_those_of_the_wanted_tokens():
    model = new_model(SMALL).eval()
    tokens = torch.randint(4, 700, (2, 9), generator=torch.Generator().manual_seed(1))
    wanted = torch.rand(2, 8, generator=torch.Generator().manual_seed(2)) > 0.5
    with torch.inference_mode():
        found = losses_of(model, tokens, 0, wanted)
        loss = torch.nn.functional.cross_entropy(
            model(input_ids=tokens[:, :-1]).logits.mT, tokens[:, 1:], reduction="none"
        )
    torch.testing.assert_close(found, loss[wanted], atol=0.05, rtol=0.01)  # bf16


def test_only_the_positions_start_as_something():
    model = new_model(DemoRecipe())
    weights = {name: value.detach() for name, value in model.named_parameters() if value.dim() == 2}
    for name, value in weights.items():
        spread = 0.005 if name.endswith(("out_proj.weight", "fc2.weight")) else 0.02
        if "embed_positions" in name:
            spread = 0.04
        elif "embed_tokens" not in name:
            assert float(value.mean().abs()) < 1e-3 and float((value @ value.T).fill_diagonal_(0).mean().abs()) < 1e-3
        assert float(value.std()) == pytest.approx(spread, rel=0.1), name
    assert len(model.model.decoder.layers) == 8


def test_an_answer_carries_the_weight_and_nothing_else(tokenizer):
    import random

    for family in ("demo_price", "demo_blank", "demo_cloze", "demo_translation"):
        ids, weights = rows._episodes(tokenizer, family, random.Random(3), 400)
        assert len(ids) == len(weights) == 400 and ids[0] == BEGINNING and set(weights) == {0.0, rows.ANSWER_WEIGHT}
        solved = tokenizer.decode(ids[: list(ids).index(BEGINNING, 1)]).split("\n\n")
        answers = tokenizer.decode(ids[: list(ids).index(BEGINNING, 1)][weights[: list(ids).index(BEGINNING, 1)] > 0])
        assert len(solved) >= 1 and answers
        at = 0
        for question in solved:  # each answer ends its question
            rest = answers[at:]
            fitting = [n for n in range(1, len(question)) if rest.startswith(question[-n:])]
            assert fitting, (question, rest)
            at += max(fitting)
        assert at == len(answers)


def test_repeats_repeat_and_their_first_copy_is_not_asked(text):
    import random

    for seed in range(20):
        tokens, weights = rows._repeats(random.Random(seed), text, 700, 129)
        begun = int(tokens[0] == BEGINNING)
        period = int(np.argmax(weights > 0)) - begun - 1
        assert rows.PERIOD[0] <= period <= rows.PERIOD[1]
        body = tokens[begun:]
        assert (body[period:] == body[:-period]).all() and (weights[begun + period + 1 :] == 1).all()


def test_a_step_is_a_function_of_recipe_and_step(tokenizer, text, monkeypatch):
    monkeypatch.setattr(recipe, "STAGES", (Stage(0, 0.3, 0.4, (64, 128)),))
    big = replace(SMALL, step_tokens=4096)
    first, again = (rows.rows_of(big, tokenizer, text, 4) for _ in range(2))
    assert (first.tokens == again.tokens).all() and first.kinds == again.kinds
    assert (rows.rows_of(big, tokenizer, text, 6).tokens != first.tokens).any()
    assert first.tokens.shape == (64, 65) and rows.rows_of(big, tokenizer, text, 5).tokens.shape == (32, 129)
    shares = [kind if kind in ("text", "repeats") else "episodes" for kind in first.kinds]
    assert 5 < shares.count("repeats") < 35 and 10 < shares.count("episodes") < 45
    assert ((first.tokens[np.array(shares) == "text", 0] == BEGINNING).mean()) > 0.1


def test_the_repeats_fade_and_the_rates_fall():
    assert [stage.repeats for stage in STAGES] == sorted((stage.repeats for stage in STAGES), reverse=True)
    whole = DemoRecipe()
    assert whole.share_of_rate(0) < 0.02 and whole.share_of_rate(whole.warm_up) == 1.0
    assert whole.share_of_rate(whole.n_steps - 1) == pytest.approx(0.02)
    assert {0, whole.n_steps} <= whole.snapshot_steps() and len(whole.snapshot_steps()) >= 30


def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path, monkeypatch):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "own.txt").write_text(WORDS * 1200)
    monkeypatch.setattr(corpus, "PIECE", 5000)
    monkeypatch.setattr(corpus, "_python", lambda: [])
    monkeypatch.setattr(recipe, "STAGES", (Stage(0, 0.3, 0.3, (64,)),))
    monkeypatch.setattr(train, "SAVE_EVERY_S", 0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train.train(SMALL, folder, tmp_path / "a")
        train.train(SMALL, folder, tmp_path / "b", until=2048)
        train.train(SMALL, folder, tmp_path / "b")
    finally:
        torch.set_num_threads(threads)
    ends = [(tmp_path / name / "step8" / "model.safetensors").read_bytes() for name in "ab"]
    assert ends[0] == ends[1]
    logs = [[json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()] for name in "ab"]
    assert [line["step"] for line in logs[0]] == [line["step"] for line in logs[1]] and logs[0][-1]["step"] == 8
    assert logs[0][-1]["text"] == logs[1][-1]["text"]
    assert np.load(tmp_path / "a" / "held_out.npy").shape[1] == recipe.N_CTX


def test_a_folder_without_text_is_one_line(tmp_path):
    with pytest.raises(HeadroomError, match="no .txt"):
        corpus.documents(tmp_path)


def test_the_look_knows_a_copier():
    """A model of random weights has no heads that match; the loss on text is that of guessing."""
    found = look(new_model(SMALL), np.random.default_rng(0).integers(4, 700, (70, 512)))
    assert found["prefix_matching"][0][1] < 0.1 and found["text"] == pytest.approx(np.log(700), abs=0.2)
    assert found["first_copy"] == pytest.approx(found["second_copy"], abs=0.2)
