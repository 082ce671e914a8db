"""What is measured at the snapshots of a run equals plain loops over them, resumes, and refuses bad input in a line."""

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.errors import HeadroomError, UsageError
from engine.heads.induction import SCORES, induction
from engine.models.in_memory import Models
from engine.progress import final
from engine.training.measuring import TrajectoryPlan, ablated_at, target_at, trajectory
from engine.training.phase_change import window
from engine.training.snapshot_losses import _chosen
from engine.training.trajectory import decode, encode, series_of
from tests.engine.fixtures import left_when, refused_by, small_run, target_in

FEW = TrajectoryPlan(
    n_texts=3, n_ablated_texts=2, n_ablated=2, what=("loss", "icl", "index", "copies", "tokens", "ablations")
)


@pytest.fixture
def run(tmp_path):
    return small_run(tmp_path / "run", n_layers=2)


def wanted(session, series, plan=FEW):
    return trajectory(target_at(session, series), series, plan)


def plain_losses(folder, ids, without=None, forced=None):
    """((row, T) nats of rows (row, T) behind a beginning token, patterns by layer): Llama in numpy."""
    w = {name: array.astype(float) for name, array in load_file(folder / "model.safetensors").items()}
    inputs = np.concatenate([np.zeros((len(ids), 1), int), ids[:, :-1]], 1)
    x, seen, n_heads, (n, n_tokens) = w["model.embed_tokens.weight"][inputs], [], 2, inputs.shape
    d = x.shape[-1] // n_heads
    angles = np.arange(n_tokens)[:, None] / 10_000 ** (np.arange(0, d, 2) / d)
    cosines, sines = (np.concatenate([f(angles)] * 2, -1) for f in (np.cos, np.sin))

    def norm(x, weight):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight

    def turned(x):
        return x * cosines + np.concatenate([-x[..., d // 2 :], x[..., : d // 2]], -1) * sines

    for layer in range(2):
        at = f"model.layers.{layer}"
        h = norm(x, w[f"{at}.input_layernorm.weight"])
        q, k, v = (h @ w[f"{at}.self_attn.{name}_proj.weight"].T + w.get(f"{at}.self_attn.{name}_proj.bias", 0)
                   for name in "qkv")  # fmt: skip
        q, k, v = (part.reshape(n, n_tokens, n_heads, d).transpose(0, 2, 1, 3) for part in (q, k, v))
        scores = turned(q) @ turned(k).transpose(0, 1, 3, 2) / d**0.5
        scores[..., np.triu(np.ones((n_tokens, n_tokens), bool), 1)] = -np.inf
        pattern = np.exp(scores - scores.max(-1, keepdims=True))
        pattern /= pattern.sum(-1, keepdims=True)
        seen.append(pattern)
        z = (pattern if forced is None else forced[layer]) @ v
        if without is not None and without[0] == layer:
            z[:, without[1]] = 0
        x = x + z.transpose(0, 2, 1, 3).reshape(n, n_tokens, -1) @ w[f"{at}.self_attn.o_proj.weight"].T
    logits = norm(x, w["model.norm.weight"]) @ w["lm_head.weight"].T
    highest = logits.max(-1)
    normal = highest + np.log(np.exp(logits - highest[..., None]).sum(-1))
    return normal - np.take_along_axis(logits, ids[..., None], -1)[..., 0], seen


def test_every_number_equals_a_plain_loop(run, session):
    steps = (0, 8, 32)
    series = series_of(f"{run.folder}@step{{0,8,32}}")
    found = final(wanted(session, series).run(session))
    wide = final(wanted(session, series, replace(FEW, around=5)).run(session))
    ids = run.held_out()[:3, :64].astype(int)
    chosen = _chosen(3, 64, 0)
    assert tuple(found.steps) == steps and found.tokens[-1] == run.recipe.tokens
    assert (found.about["early"], found.about["late"], found.about["around"]) == (6, 62, 0)
    for at, step in enumerate(steps):
        losses, _ = plain_losses(run.snapshot(step), ids)
        assert found.loss[at] == pytest.approx(losses.mean(), abs=1e-5)
        assert found.by_index[at] == pytest.approx(losses.mean(0), abs=1e-5)
        assert found.icl[at] == pytest.approx(losses[:, 61].mean() - losses[:, 5].mean(), abs=1e-5)
        late, early = losses[:, 56:].mean(), losses[:, :11].mean()  # 57th to 64th, the last there is; 1st to 11th
        assert wide.icl[at] == pytest.approx(late - early, abs=1e-5)
        for text in range(3):
            assert found.token_losses[at, text] == pytest.approx(losses[text, chosen[text]], abs=1e-5)
    twice = np.tile(np.random.default_rng(0).choice(np.arange(1, 300), (50, 25)), 2)
    losses, _ = plain_losses(run.snapshot(32), twice)
    assert found.first_copy[-1] == pytest.approx(losses[:, :25].mean(), abs=1e-5)
    assert found.second_copy[-1] == pytest.approx(losses[:, 25:].mean(), abs=1e-5)
    assert np.isnan(found.heads["copying"]).all() and not found.passages  # not asked for
    for a, at in enumerate(found.ablated):
        folder = run.snapshot(steps[at])
        losses, patterns = plain_losses(folder, ids[:2])
        for layer, head in np.ndindex(2, 2):
            ablated, _ = plain_losses(folder, ids[:2], (layer, head), patterns)
            change = ablated - losses
            icl = change[:, 61].mean() - change[:, 5].mean()
            assert found.ablated_icl[a, layer, head] == pytest.approx(icl, abs=1e-5)
            assert found.ablated_losses[a, layer, head] == pytest.approx(change[[0, 1], chosen[:2]], abs=1e-5)


def test_heads_and_passages_are_those_of_the_other_screens(run, session):
    plan = TrajectoryPlan(n_texts=2, what=("induction", "passages"))
    found = final(wanted(session, series_of(f"{run.folder}@step{{8,32}}"), plan).run(session))
    assert list(found.steps) == [8, 32] and found.recipe == run.recipe.as_json()
    scores = final(induction(target_in(session, run.snapshot(32)), "olsson").run(session))
    assert "15 random tokens instead of 25" in scores.note  # of a context of 64
    for name in SCORES:
        assert np.array_equal(found.heads[name][1], scores.mean[name].astype(np.float32), equal_nan=True)
    assert len(found.passages) == 5
    for passage in found.passages.values():
        assert passage.losses.shape == (2, len(passage.pieces)) and np.isfinite(passage.losses[:, 1:]).all()
    assert decode(encode(found)).passages.keys() == found.passages.keys()


def test_what_was_stopped_goes_on(run, session, monkeypatch):
    series = series_of(f"{run.folder}@step{{0,4,16,32}}")
    of = wanted(session, series)
    nothing = of.stored_part(session)
    assert nothing.value is None and len(nothing.missing) == len(series.models)
    left_when(of.run(session), lambda step: step.done == 2)
    half = of.so_far(session)
    assert np.isfinite(half.loss[:2]).all() and np.isnan(half.loss[2:]).all() and of.stored(session) is None
    held, loads = Models.get, []
    monkeypatch.setattr(Models, "get", lambda self, spec, *rest: loads.append(spec.model) or held(self, spec, *rest))
    whole = final(of.run(session))
    assert not {str(run.snapshot(step)) for step in (0, 4)} & set(loads[:-2])
    monkeypatch.setattr(Models, "get", lambda *_: pytest.fail("what is stored was computed again"))
    again = list(of.run(session))
    assert again[-1].cached and again[-1].done == again[-1].total == len(series.models) + FEW.n_ablated
    parts = [step.part for step in again]
    assert parts == sorted(parts) and parts[-1] == 1
    for found in (again[-1].value, of.stored(session)):
        without_time = {name: value for name, value in whole.about.items() if name != "seconds"}
        assert {name: value for name, value in found.about.items() if name != "seconds"} == without_time
        assert np.array_equal(found.ablated_losses, whole.ablated_losses)
        assert np.array_equal(found.icl, whole.icl)
    other = wanted(session, series, replace(FEW, early=10, late=40)).stored(
        session
    )  # nothing is computed for another pair
    assert other.icl == pytest.approx(whole.by_index[:, 39] - whole.by_index[:, 9], abs=1e-6)


def test_shares_of_the_progress_go_by_how_long_parts_take(run, session):
    series = series_of(f"{run.folder}@step{{0,32}}")
    plan = TrajectoryPlan(n_texts=2, n_ablated_texts=1, n_ablated=1, what=("loss", "passages", "ablations"))
    steps = [step for step in wanted(session, series, plan).run(session) if step.value is not None]
    assert [(step.done, step.total) for step in steps] == [(1, 3), (2, 3), (3, 3), (3, 3)]
    assert [step.part for step in steps] == pytest.approx([13 / 46, 26 / 46, 1, 1])


def test_a_text_of_ones_own_is_cut_into_stretches(run, session):
    text = "The river was low that summer. " * 400
    plan = replace(FEW, what=("loss",), text=text, source="mine")
    found = final(wanted(session, series_of(f"{run.folder}@step32"), plan).run(session))
    assert found.about["n_texts"] == 3 and found.about["text"] == "mine" and found.by_index.shape == (1, 64)


def test_bad_input_is_told_in_one_line(run, session, tmp_path):
    refused_by(UsageError, "quantity 'lose' is unknown; choose of loss, icl", lambda: TrajectoryPlan(("lose",)))
    refused_by(HeadroomError, "no snapshot of step 5; there are those of 0, ", lambda: series_of(f"{run.folder}@step5"))
    series = series_of(f"{run.folder}@step{{16,32}}")
    for early, late in ((40, 20), (10, 65)):
        with pytest.raises(UsageError, match="of 64; give two in order"):
            final(wanted(session, series, replace(FEW, early=early, late=late)).run(session))
    (run.snapshot(16) / "model.safetensors").unlink()
    refused_by(HeadroomError, "snapshot of step 16 of .* is gone", lambda: final(wanted(session, series).run(session)))
    said = (run.folder / "recipe.json").read_text()
    (run.folder / "recipe.json").write_text(said.replace('"version": 1', '"version": 0'))
    refused_by(UsageError, "another version of Headroom", lambda: series_of(str(run.folder)))


def test_ablations_are_denser_in_the_window():
    tokens = np.linspace(0, 4e6, 44)
    icl = -0.4 * np.clip((tokens - 1e6) / 0.5e6, 0, 1)
    where = window(tokens, icl)
    found = ablated_at(tokens, where)
    assert len(found) == 12 and {0, 43, where.first, where.last} <= set(found)
    assert sum(where.first <= at <= where.last for at in found) >= 6
    assert len(ablated_at(tokens, None)) == 12 and ablated_at(tokens[:5], None) == [0, 1, 2, 3, 4]
