"""The embedded model's training: its forward pass is OPT's, a step's rows are what the recipe says, a run goes on, and
what is said of it is what its log and its weights say."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, OPTForCausalLM

from engine import demo
from engine.errors import HeadroomError
from engine.models.masks import Mask
from engine.progress import final
from engine.texts.tokenloss import token_losses
from engine.training import running
from engine.training.folders import Foreign, opened
from engine.training.running import begin, train
from engine.training.trajectory import decode
from scripts.make_demo import corpus, recipe, runs
from scripts.make_demo.corpus import BEGINNING, build_tokenizer
from scripts.make_demo.recipe import DemoRecipe, Stage
from scripts.make_demo.runs import EMBEDDED, EmbeddedModel
from tests.engine.fixtures import foreign_run, refused_by, target_in

pytestmark = pytest.mark.thorough

SMALL = DemoRecipe(n_layers=2, n_heads=2, d_model=16, n_vocab=700, batch=1, tokens=4096, warm_up=2)
WORDS = "the old man went down to the river and the river was low that summer\n\nin the house a lamp was lit "


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer([WORDS * 20], 700)


@pytest.fixture(scope="module")
def text(tokenizer):
    return np.array(tokenizer.encode(WORDS * 200).ids)


def test_the_forward_pass_is_opts():
    model = EmbeddedModel(SMALL).eval()
    tokens = torch.randint(4, 700, (3, 21), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        torch.testing.assert_close(model.opt.lm_head(model.hidden_states(tokens, 0)), model(tokens))
        positions = torch.arange(7, 28)[None].expand(3, -1)
        moved = model.opt.model(input_ids=tokens, position_ids=positions).last_hidden_state
        torch.testing.assert_close(model.hidden_states(tokens, 7), moved)


def test_the_loss_is_the_weighted_mean_of_each_token_s():
    model, drawn = EmbeddedModel(SMALL).eval(), np.random.default_rng(1)
    with torch.no_grad():
        for weights in model.parameters():
            weights *= 10  # so that tokens differ in their losses
    tokens, weights = drawn.integers(4, 700, (2, 9)), drawn.choice([0.0, 1.0, 5.0], (2, 9)).astype(np.float32)
    with torch.inference_mode():
        found, total = model.loss((tokens, weights, 0)), 0.0
        for row, each in zip(tokens, weights, strict=True):
            logits = model.opt(input_ids=torch.from_numpy(row[None, :-1])).logits[0].log_softmax(-1)
            total -= sum(weight * float(logits[at, row[at + 1]]) for at, weight in enumerate(each[1:]))
    assert float(found) == pytest.approx(total / weights[:, 1:].sum(), rel=0.01)  # bf16


def test_an_answer_carries_the_weight_and_nothing_else(tokenizer):
    import random

    for family in ("demo_price", "demo_blank", "demo_cloze", "demo_translation"):
        ids, weights = recipe._episodes(tokenizer, family, random.Random(3), 400)
        assert len(ids) == len(weights) == 400 and ids[0] == BEGINNING and set(weights) == {0.0, recipe.ANSWER_WEIGHT}
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
        tokens, weights = recipe._repeats(random.Random(seed), text, 700, 129)
        begun = int(tokens[0] == BEGINNING)
        period = int(np.argmax(weights > 0)) - begun - 1
        assert recipe.PERIOD[0] <= period <= recipe.PERIOD[1]
        body = tokens[begun:]
        assert (body[period:] == body[:-period]).all() and (weights[begun + period + 1 :] == 1).all()


def test_a_step_is_a_function_of_recipe_and_step(tokenizer, text, monkeypatch):
    monkeypatch.setattr(recipe, "STAGES", (Stage(0, 0.3, 0.4, (64, 128)),))
    of = replace(SMALL, batch=8), tokenizer, text, np.array([0, 40, 400, 2000])
    (tokens, weights, _), again = (recipe.rows_of(*of, 4) for _ in range(2))
    assert (tokens == again[0]).all() and (weights == again[1]).all()
    assert (recipe.rows_of(*of, 6)[0] != tokens).any()
    assert tokens.shape == (64, 65) and recipe.rows_of(*of, 5)[0].shape == (32, 129)
    is_text, is_episodes = (weights == 1).all(1), np.isin(weights, (0, recipe.ANSWER_WEIGHT)).all(1)
    assert 5 < (~is_text & ~is_episodes).sum() < 35 and 10 < is_episodes.sum() < 45
    assert 0.1 < (tokens[is_text, 0] == BEGINNING).mean() < 0.9


def test_the_recipe_is_the_one_that_the_embedded_model_was_made_by():
    shipped = decode((demo.runs_folder() / f"{demo.RUN}.safetensors").read_bytes())
    assert DemoRecipe().as_json() == {**(shipped.recipe or {}), "trainer": "scripts.make_demo.runs"}
    assert {*shipped.steps} <= {*DemoRecipe().snapshot_steps()}


def plain_loop(rows_at) -> dict[str, torch.Tensor]:
    """The weights that SMALL ends in, in 16 bits."""
    torch.set_num_threads(1)
    opt = (model := EmbeddedModel(SMALL)).opt
    layers, positions = opt.model.decoder.layers, opt.model.decoder.embed_positions.weight
    matrices = [weights for weights in layers.parameters() if weights.dim() == 2]
    known = {id(weights) for weights in (*matrices, positions)}
    others = [weights for weights in opt.parameters() if id(weights) not in known]
    muon = torch.optim.Muon(matrices, weight_decay=0.02, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    groups = [{"params": [positions]}, {"params": others}]
    adamw = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    shares = (0.5, 1, 1, 1, 1, 0.75, 0.5, 0.25)  # two steps of warm-up, and down from the middle
    for step, share in enumerate(shares):
        muon.zero_grad()
        adamw.zero_grad()
        model.loss(rows_at(step)).backward()
        torch.nn.utils.clip_grad_norm_(opt.parameters(), 1.0)
        muon.param_groups[0]["lr"] = 1e-3 * share
        adamw.param_groups[0]["lr"], adamw.param_groups[1]["lr"] = 2e-5 * share, 1e-3 * share
        muon.step()
        adamw.step()
    return {name: weights.half() for name, weights in opt.state_dict().items()}


def test_a_run_that_was_stopped_ends_as_one_that_was_not_and_as_a_plain_loop(tmp_path, monkeypatch):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "own.txt").write_text(WORDS * 1200)
    monkeypatch.setattr(corpus, "PIECE", 5000)
    monkeypatch.setattr(corpus, "_python", lambda: [])
    monkeypatch.setattr(recipe, "STAGES", (Stage(0, 0.3, 0.3, (64,)),))
    monkeypatch.setattr(running, "TELL_EVERY_S", -1.0)
    monkeypatch.setattr(runs, "DemoRecipe", lambda: SMALL)
    monkeypatch.setattr(runs, "_measured", lambda session, address, *_: address)
    monkeypatch.setattr(runs, "ship", lambda *found: shipped.append(found))
    argv = ["runs", "--work", str(tmp_path), "--embedded", str(tmp_path / "a"), "--corpus", str(folder)]
    monkeypatch.setattr("sys.argv", argv)
    shipped = []
    whole, stopped = (begin(tmp_path / name, SMALL, folder, 1, EMBEDDED) for name in "ab")
    due = plain_loop(recipe.rows_by_step(whole, np.load(whole.folder / "text.npy")))
    runs.main()
    assert shipped == [(str(whole.folder), demo.RUN)] and whole.is_done
    steps = train(stopped, EMBEDDED)
    assert [next(steps).done for _ in range(6)] == [512 * step for step in range(6)]
    steps.close()
    assert [step.done for step in train(stopped, EMBEDDED)] == [2560, 3072, 3584, 4096]
    ends = [load_file(run.snapshot(8) / "model.safetensors") for run in (whole, stopped)]
    assert ends[0].keys() == ends[1].keys() == due.keys() - {"lm_head.weight"}  # tied
    for name, weights in ends[0].items():
        assert torch.equal(weights, ends[1][name]) and torch.equal(weights, due[name]), name
    opened_there = AutoModelForCausalLM.from_pretrained(whole.snapshot(8))
    assert isinstance(opened_there, OPTForCausalLM), "as transformers opens it"
    assert AutoTokenizer.from_pretrained(whole.snapshot(8))("a small model").input_ids[0] == 2
    logs = [[{**line, "seconds": 0} for line in run.log()] for run in (whole, stopped)]
    assert logs[0] == logs[1] and [line["step"] for line in logs[0]] == [0, 8]
    assert whole.held_out().shape[1] == SMALL.n_ctx and whole.held_out().min() >= 4
    measured = opened(whole.folder)
    assert isinstance(measured, Foreign) and (measured.steps(), measured.tokens(8)) == ((0, 8), 4096)
    with pytest.raises(HeadroomError, match=r"scripts\.make_demo\.runs, which alone goes on with it"):
        begin(whole.folder, replace(SMALL, seed=1), folder, 1, EMBEDDED)


def test_a_folder_without_text_is_one_line(tmp_path):
    refused_by(HeadroomError, "no .txt", lambda: corpus.documents(tmp_path))


def test_the_look_knows_a_copier():
    """A model of random weights has no heads that match; the loss on text is that of guessing."""
    found = EMBEDDED.measure(EmbeddedModel(SMALL), SMALL, np.random.default_rng(0).integers(4, 700, (70, 512)))
    assert np.max(found["prefix_matching"]) < 0.1 and found["loss"] == pytest.approx(np.log(700), abs=0.2)
    assert found["first_copy"] == pytest.approx(found["second_copy"], abs=0.2)


RECORD = demo.runs_folder() / f"{demo.RUN}.safetensors"


def test_a_run_becomes_the_record_that_is_shipped(tiny_opt, tmp_path, monkeypatch):
    run = foreign_run(tmp_path / "run", tiny_opt, (0, 8))
    monkeypatch.setattr(runs, "runs_folder", lambda: tmp_path / "shipped")
    monkeypatch.setattr("sys.argv", ["runs", "--work", str(tmp_path / "work"), "--embedded", str(run.folder)])
    runs.main()
    [file] = (tmp_path / "shipped").iterdir()
    found = decode(file.read_bytes())
    assert (file.name, found.name, found.label) == ("embedded.safetensors", demo.RUN, run.label)
    assert list(found.tokens) == [0, 800] and list(found.ablated) == [0, 1] and found.by_index.dtype == np.float16
    assert len(found.passages) == len(demo.passages()) and str(tmp_path).encode() not in file.read_bytes()


@pytest.mark.skipif(not RECORD.is_file(), reason="the record of the embedded model's run is not made yet")
def test_the_last_snapshot_of_the_record_is_the_embedded_model(session):
    found, passage = decode(RECORD.read_bytes()), min(demo.passages(), key=lambda each: len(each.text))
    target = target_in(session, demo.model_folder())
    losses = final(token_losses(target, passage.text, Mask.full(target.shape)).run(session))
    assert found.passages[passage.title].losses[-1] == pytest.approx(losses.loss_nats, abs=1e-3, nan_ok=True)
    assert found.heads["prefix_matching"].shape[1:] == (target.shape.n_layers, target.shape.n_heads)
    assert found.name == demo.RUN and RECORD.stat().st_size < 1.5e6
