"""Snapshots of small models trained here: as they are opened, they compute what the model in training did."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from engine.accuracy.evaluation import evaluation
from engine.architecture.modeling_headroom import smeared, tokens_before
from engine.demo import passages
from engine.errors import HeadroomError, UsageError
from engine.export.exporting import Export, export, sizes
from engine.heads.ablation import Ablating, head_ablations
from engine.heads.attention import overview
from engine.heads.in_text import head_in_texts, head_on_probe
from engine.heads.induction import induction
from engine.importance.scores import importance
from engine.models.loading import LoadSpec
from engine.models.masks import Mask, parse_mask
from engine.models.patterns import visited
from engine.models.session import Session
from engine.questions.rendering import TaskSpec, render_questions, select
from engine.texts.continuation import How, continuation
from engine.texts.perplexity import perplexity
from engine.texts.tokenloss import token_losses
from engine.training.model import SmallModel
from engine.training.recipe import Recipe, recipe_of
from engine.training.running import begin
from engine.training.snapshots import save_snapshot
from tests.engine.fixtures import configured, last, loaded, refused_by, target_in

SHAPE = dict(n_heads=4, d_model=32, n_ctx=64, n_vocab=512, tokens=256)
RECIPES = {
    "1 layer": Recipe(n_layers=1, **SHAPE),
    "2 layers": Recipe(n_layers=2, **SHAPE),
    "with MLP": Recipe(n_layers=2, mlp=True, **SHAPE),
    "smeared": Recipe(n_layers=2, smeared=True, **SHAPE),
    "shortformer": Recipe(n_layers=2, positions="shortformer", **SHAPE),
    "both": Recipe(n_layers=2, smeared=True, positions="shortformer", mlp=True, **SHAPE),
}


def trained(recipe: Recipe) -> SmallModel:
    """A model whose every parameter, biases and smear too, has moved away from where it began."""
    torch.manual_seed(3)
    model = SmallModel(recipe).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights += torch.randn_like(weights) * (0.4 if weights.dim() == 1 else 0.1)
    return model


def test_without_a_loss_on_copies_the_loss_is_a_plain_loops_over_new_pairs():
    recipe = Recipe(n_layers=1, n_heads=2, d_model=16, n_ctx=24, n_vocab=300, hapax=True)
    rows = np.random.default_rng(0).integers(0, 5, (3, 25))
    model = SmallModel(recipe)
    with torch.no_grad():
        log_p = model(torch.from_numpy(rows[:, :-1])).log_softmax(-1)
        nats = []
        for row, of_row in zip(rows.tolist(), log_p, strict=True):
            for at in range(24):
                pairs = [(row[before], row[before + 1]) for before in range(at)]
                if (row[at], row[at + 1]) not in pairs:
                    nats.append(-float(of_row[at, row[at + 1]]))
        assert float(model.loss(rows)) == pytest.approx(np.mean(nats), abs=1e-5) and len(nats) < 60
        assert float(SmallModel(replace(recipe, hapax=False)).loss(rows)) != pytest.approx(np.mean(nats), abs=1e-4)
    assert "hapax" not in replace(recipe, hapax=False).as_json() and recipe_of(recipe.as_json()) == recipe
    assert "no loss on copies" in recipe.in_words


@pytest.fixture(scope="module", params=RECIPES)
def both(request, tmp_path_factory, tiny_opt):
    """(a recipe, its model in training, the folder of its snapshot)."""
    recipe, folder = RECIPES[request.param], tmp_path_factory.mktemp("run") / "step1"
    model = trained(recipe)
    save_snapshot(model, recipe, tiny_opt / "tokenizer.json", folder)
    return recipe, model, folder


def drawn(n: int) -> torch.Tensor:
    return torch.randint(0, 512, (3, n), generator=torch.Generator().manual_seed(5))


def test_a_snapshot_gives_the_logits_of_the_model_in_training(both):
    recipe, model, folder = both
    opened = loaded(folder).model
    assert type(opened).__name__ == ("LlamaForCausalLM" if recipe in plain() else "HeadroomSmallForCausalLM")
    tokens = drawn(recipe.n_ctx)
    with torch.no_grad():
        due, found = model(tokens), opened(input_ids=tokens).logits
    assert due.std() > 0.5
    assert (due - found).abs().max() < 1e-5


def plain():
    return [recipe for recipe in RECIPES.values() if not recipe.smeared and recipe.positions == "rotary"]


def test_token_by_token_with_a_cache_as_at_once(both):
    _, _, folder = both
    opened, tokens = loaded(folder).model, drawn(20)
    with torch.no_grad():
        whole, kept, found = opened(input_ids=tokens).logits, DynamicCache(), []
        for part in tokens.split([7, 1, 1, 4, 1, 6], 1):
            found.append(opened(input_ids=part, past_key_values=kept, use_cache=True).logits)
    assert (whole - torch.cat(found, 1)).abs().max() < 1e-5


def test_smeared_keys_equal_a_plain_loop():
    torch.manual_seed(0)
    keys, alpha = torch.randn(2, 3, 9, 4), torch.randn(3)
    positions = torch.tensor([[0, 1, 2, 3, 4, 3, 4, 3, 0], [0, 1, 0, 1, 2, 3, 0, 1, 2]])  # branches; texts in a row
    before = [[0, 0, 1, 2, 3, 2, 5, 2, 8], [0, 0, 2, 2, 3, 4, 6, 6, 7]]
    assert tokens_before(positions).tolist() == before
    found = smeared(keys, alpha, torch.tensor(before))
    for row in range(2):
        for head in range(3):
            own = 1 / (1 + np.exp(-alpha[head].item()))
            for at in range(9):
                due = own * keys[row, head, at] + (1 - own) * keys[row, head, before[row][at]]
                np.testing.assert_allclose(found[row, head, at], due, atol=1e-6)
    np.testing.assert_array_equal(found[:, :, 0], keys[:, :, 0])


def test_a_smeared_key_looks_back_by_a_whole_plain_loop(tmp_path, tiny_opt):
    """One head, one layer: the pattern from embeddings, norm, projections, smear, rotation and softmax, in numpy."""
    recipe = Recipe(n_layers=1, n_heads=1, d_model=8, n_ctx=16, n_vocab=512, tokens=64, smeared=True)
    model = trained(recipe)
    save_snapshot(model, recipe, tiny_opt / "tokenizer.json", tmp_path / "step1")
    tokens = drawn(6)[0].numpy()
    held = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    x = held["embed.weight"][tokens]
    read = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * held["layers.0.attention_norm.weight"]
    q, k, _ = np.split(read @ held["layers.0.attention.qkv.weight"].T + held["layers.0.attention.qkv.bias"], 3, -1)
    own = 1 / (1 + np.exp(-held["layers.0.attention.smear"][0]))
    k = [k[0], *(own * k[at] + (1 - own) * k[at - 1] for at in range(1, 6))]
    pattern = np.zeros((6, 6))
    for at in range(6):
        scores = [_turned(q[at], at) @ _turned(k[source], source) / np.sqrt(8) for source in range(at + 1)]
        pattern[at, : at + 1] = np.exp(scores) / np.exp(scores).sum()
    opened = loaded(tmp_path / "step1")
    found = []
    with torch.no_grad(), visited(opened, lambda layer, seen, z, values: found.append(seen)):
        opened.model(input_ids=torch.from_numpy(tokens)[None])
    np.testing.assert_allclose(found[0][0, 0], pattern, atol=1e-5)


def _turned(vector, position):
    """Rotary positions by complex numbers."""
    half = len(vector) // 2
    turned = (vector[:half] + 1j * vector[half:]) * np.exp(1j * position / 10_000.0 ** (np.arange(half) / half))
    return np.concatenate([turned.real, turned.imag])


def test_what_no_class_of_transformers_has_is_not_exported(both, tmp_path, session: Session):
    recipe, _, folder = both
    target = target_in(session, folder)
    mask = parse_mask("L0H1", target.shape)
    if recipe in plain():
        assert last(export(session, target, Export(mask, str(tmp_path / "out")))).value.folder.is_dir()
    else:
        for refused in (lambda: last(export(session, target, Export(mask, str(tmp_path / "out")))),
                        lambda: sizes(target.identity, mask, "small")):  # fmt: skip
            refused_by(UsageError, "no class of transformers supports", refused)
        assert not (tmp_path / "out").exists()


def test_positions_of_another_kind_get_one_line(both, tmp_path):
    recipe, _, folder = both
    if recipe in plain():
        pytest.skip("Llama's config has no such field")
    shutil.copytree(folder, tmp_path / "step1")
    refused_by(HeadroomError, "'sideways'", lambda: loaded(configured(tmp_path / "step1", positions="sideways")))


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    """`of(recipe)`: the folder of a snapshot of random weights, with a vocabulary of 512 made from the built-in story,
    as `RUN@step1`."""
    text = tmp_path_factory.mktemp("text") / "story.txt"
    text.write_text("\n".join(passage.text for passage in passages()) * 2, encoding="utf-8")

    def of(recipe: Recipe) -> str:
        folder = tmp_path_factory.mktemp("runs") / "run"
        run = begin(folder, recipe, text)
        save_snapshot(trained(recipe), recipe, folder / "tokenizer.json", run.snapshot(1))
        return f"{folder}@step1"

    return of


SMALLEST = dict(n_heads=2, d_model=16, n_vocab=320, batch=1)
WINDOWS = {
    "64": Recipe(n_layers=1, smeared=True, n_ctx=64, tokens=64, **SMALLEST),
    "256": Recipe(n_layers=2, smeared=True, positions="shortformer", n_ctx=256, tokens=256, **SMALLEST),
    "512": Recipe(n_layers=2, n_ctx=512, tokens=512, **SMALLEST),
}


@pytest.mark.parametrize("window", WINDOWS)
def test_every_screen_s_figures_of_a_snapshot_or_one_line(window, snapshot, session):
    recipe = WINDOWS[window]
    target = session.target(LoadSpec(snapshot(recipe), "fp32"))
    mask, n_ctx, story = parse_mask("L0H1 F0", target.shape), recipe.n_ctx, passages()[0].text
    questions = select(render_questions(TaskSpec("demo_outfit", 5), None, session.store), 6)
    evaluated = last(evaluation(target, questions, mask).run(session)).value
    assert np.isfinite(evaluated.log_likelihood_nats).any() and target.identity.name.endswith("run@step1")
    for what in ("heads", "ffns"):
        scores = last(importance(target, questions, what).run(session)).value.scores
        assert np.isfinite(scores).all() and (what == "heads" or recipe.mlp or not scores.any())
    found = last(induction(target, "olsson").run(session)).value
    assert np.isfinite(found.mean["prefix_matching"]).all() and found.n_tokens == min(25, (n_ctx - 1) // 4)
    assert ("15 random tokens instead of 25" in found.note) == (n_ctx == 64)
    if n_ctx == 64:
        with pytest.raises(HeadroomError, match="too short for 25 tokens four times over; choose the variant olsson"):
            list(induction(target, "bansal").run(session))
    probe = last(head_on_probe(target, (0, 1)).run(session)).value
    assert probe.period == found.n_tokens and len(probe.pieces) == 1 + 4 * probe.period
    assert np.isfinite(last(token_losses(target, story, mask).run(session)).value.loss_nats[1:]).all()
    assert len(last(head_in_texts(target, {"story": story}, (0, 1)).run(session)).value["story"].pattern) == min(
        n_ctx, 512
    )
    assert len(last(continuation(target, "import", mask, How(4)).run(session)).value.token_ids) == 4
    assert np.isfinite(last(perplexity(target, story, mask).run(session)).value.loss_nats).all()
    assert np.isfinite(last(overview(target, story, mask).run(session)).value.logit).all()
    how = Ablating(Mask.full(target.shape), "pattern-preserving", "zero")
    without = last(head_ablations(target, [story], how).run(session)).value
    assert without.ablated[0].shape[:2] == (recipe.n_layers, recipe.n_heads)
    if n_ctx < 512:
        refused_by(HeadroomError, "or a model with a window of 512 tokens", lambda: without.icl())
