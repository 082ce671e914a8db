"""The statements of the paper over made-up runs of which it is known what holds."""

from dataclasses import replace

import numpy as np
import pytest

from engine.heads.induction import SCORES
from engine.training.findings import findings, turns
from engine.training.recipe import Recipe
from engine.training.trajectory import Trajectory

TOKENS = np.linspace(0, 4e6, 41)
ORDER = ("share", "plain", "smeared", "sooner", "crosses", "convex", "part", "turns", "projected", "ablated", "law")


def made(start=1e6, n_layers=2, best=0.8, depth=0.4, **recipe):
    """A run whose phase change lies between `start` and half a million tokens behind: nothing at all with a depth of
    0; head L1H0 (L0H0 of one layer) is its induction head."""
    recipe = Recipe(n_layers=n_layers, n_heads=2, **recipe)
    done = np.clip((TOKENS - start) / 0.5e6, 0, 1) * bool(depth)
    drawn = np.random.default_rng(0)
    before, change = drawn.normal(size=(2, 20))
    losses = 5 + np.outer(np.minimum(TOKENS, start) / 4e6, before) + np.outer(done, change)
    heads = {name: np.full((41, n_layers, 2), 0.05, np.float32) for name in SCORES}
    heads["prefix_matching"][:, -1, 0] += done * (best - 0.05)
    ablated = np.array([0, 40])
    without = np.zeros((2, n_layers, 2, 20))
    without[1, -1, 0] = -change
    icl = np.full((2, n_layers, 2), -0.01)
    icl[1, -1, 0] = depth
    return Trajectory(
        "made", recipe.in_words, recipe.as_json(), {"text_digest": "t"}, np.arange(41), TOKENS,
        loss=5 - 0.1 * TOKENS / 4e6 - 0.5 * done, icl=-depth * done, first_copy=done, second_copy=done,
        by_index=losses, token_losses=losses.astype(np.float32), heads=heads, ablated=ablated, ablated_icl=icl,
        ablated_losses=without,
    )  # fmt: skip


def told(runs):
    return dict(zip(ORDER, findings(runs), strict=True))


def verdicts(runs):
    return {name: found.verdict for name, found in told(runs).items()}


def test_everything_holds_of_runs_as_in_the_paper():
    plain = made(2e6, batch=4, n_ctx=16)
    runs = [made(n_layers=1, depth=0), made(n_layers=1, smeared=True), made(1e6, smeared=True, batch=4, n_ctx=16)]
    found = told([*runs, plain, made(n_layers=1, depth=0, batch=4, n_ctx=16)])
    assert {name: each.verdict for name, each in found.items()} == dict.fromkeys(ORDER, "holds")
    assert found["share"].ours == "2 layers, attention only: 100% from 2.0 to 2.5 M tokens"
    assert found["sooner"].ours == "1.0 to 1.5 M tokens with smeared keys, 2.0 to 2.5 M tokens without"
    assert "2.3 M tokens, the window" in found["crosses"].ours
    assert found["law"].ours == "2 layers, attention only: 4.0 M said, 2.2 M seen"


def test_what_does_not_hold_is_said_with_its_numbers():
    never = made(depth=0)
    found = told([never, made(n_layers=1, best=0.6), made(n_layers=1, smeared=True, depth=0)])
    assert found["share"].verdict == "not measured"
    assert found["share"].ours == "2 layers, attention only: no phase change by 4.0 M tokens"
    assert found["plain"].verdict == found["smeared"].verdict == "does not hold"
    assert found["law"].verdict == found["crosses"].verdict == "not measured"
    run = made()
    late = replace(run, heads={**run.heads, "prefix_matching": np.full((41, 2, 2), 0.1, np.float32)})
    assert told([late])["crosses"].ours.endswith("it never does, 0.10 at most")
    early = run.heads["prefix_matching"].copy()
    early[5:, -1, 0] = 0.9
    assert verdicts([replace(run, heads={**run.heads, "prefix_matching": early})])["crosses"] == "does not hold"
    assert verdicts([replace(run, loss=5 - TOKENS / 4e6)])["convex"] == "does not hold"
    wrong = replace(run, ablated_losses=-run.ablated_losses, ablated_icl=-run.ablated_icl)
    assert (verdicts([wrong])["projected"], verdicts([wrong])["ablated"]) == ("does not hold", "does not hold")
    assert verdicts([made(batch=16, n_ctx=4096)])["law"] == "does not hold"
    assert verdicts([made(1e6, smeared=True), made(0.6e6)])["sooner"] == "does not hold"


def test_what_was_not_measured_is_not_judged():
    assert set(verdicts([]).values()) == {"not measured"}
    run = made()
    bare = replace(run, heads={}, ablated=np.zeros(0, np.int64), token_losses=np.zeros((41, 0), np.float32))
    found = verdicts([bare])
    assert {name for name, verdict in found.items() if verdict != "not measured"} == {"share", "convex", "law"}


def test_runs_with_repeats_count_and_are_told_apart():
    assert told([made(2e6), made(1e6, repeats=0.5)])["share"].ours.count("%") == 3
    assert told([made(1e6, repeats=0.5)])["share"].ours.startswith("2 layers, attention only, 50% repeats: 100%")


def test_seeds_are_told_apart():
    assert "(seed 1, batch 4)" in told([made(), made(seed=1)])["share"].ours


def test_turns_are_angles_between_pieces_of_the_path():
    x = np.concatenate([np.arange(10), np.full(10, 9)])
    y = np.concatenate([np.zeros(10), np.arange(1, 11)])
    found = turns(np.stack([x, y], 1).astype(float), np.arange(20) * 1e5)
    assert int(np.nanargmax(found)) == 9 and found[9] == pytest.approx(90)
    assert found[4] == pytest.approx(0) and np.isnan(found[[0, 1, -1]]).all()
