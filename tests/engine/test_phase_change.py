"""The window, vector and components of hand-made runs whose answers are known, and what the statements of the
paper say of them."""

from dataclasses import replace

import numpy as np
import pytest

from engine.demo import runs_folder
from engine.errors import HeadroomError
from engine.heads.induction import SCORES
from engine.training.findings import findings, turns, twins
from engine.training.phase_change import (
    WEIGHTS,
    Rise,
    _slopes,
    apart,
    before_and_after,
    copying_forms,
    heads_form,
    joint_components,
    projections,
    window,
)
from engine.training.recipe import Recipe
from engine.training.trajectory import PassageTrajectory, Trajectory, decode, encode, of_log
from engine.views.training import difference, phase_change, training_finding
from tests import synthetic_runs
from tests.engine.fixtures import refused_by

EVEN = np.linspace(0, 4e6, 41)  # tokens: one snapshot every 100,000


def made(n=41, n_texts=30, seed=0, **more):
    """A trajectory of random numbers."""
    random = np.random.default_rng(seed)

    def drawn(*shape):
        return random.normal(size=shape).astype(np.float32)

    numbers = {"loss": drawn(n), "icl": drawn(n), "first_copy": drawn(n), "second_copy": drawn(n)}
    numbers |= {"by_index": drawn(n, 64), "token_losses": drawn(n, n_texts), "ablated": np.array([1, n - 1])}
    numbers |= {"ablated_icl": drawn(2, 2, 3), "ablated_losses": drawn(2, 2, 3, 10)}
    held = Trajectory("a", "a run", {"version": 1}, {"text_digest": "t"}, np.arange(n), np.arange(n) * 1024.0,
                      **numbers, heads={name: drawn(n, 2, 3) for name in SCORES},
                      passages={"story": PassageTrajectory(("The", " end", " ü"), drawn(n, 3))})  # fmt: skip
    return replace(held, **more)


def fall(tokens, start, end, depth):
    """A score of 0 until `start`, `depth` lower from `end` on, straight in between."""
    return -depth * np.clip((tokens - start) / (end - start), 0, 1)


FEW = np.array([0, 512, 1000, 2000, 3000, 8000, 143000]) * 2e6
DENSE = np.concatenate([np.arange(0, 6e6, 0.25e6), np.arange(6e6, 101e6, 2e6)])
LASTING = 0.05 - 0.3 / (1 + np.exp(-(EVEN / 1e6 - 1) / 0.08))
NOISE = np.random.default_rng(0).normal(0, 0.02, 41)


@pytest.mark.parametrize("tokens, icl, expected", [
    # at either end half of the intervals around, by weight, lie in the fall
    (EVEN, fall(EVEN, 1e6, 2e6, 0.4), {"start": 1e6, "end": 2e6, "first": 10, "last": 20, "smoothed": 5, "share": 1}),
    (EVEN, np.where(EVEN > 1.95e6, -0.5, 0), {"first": 18, "last": 21, "share": 1}),  # widened by the smoothing alone
    # the fall that training begins with is passed over
    (EVEN, np.where(EVEN > 0, -0.15, 0) + fall(EVEN, 2e6, 3e6, 0.3), {"start": 2e6, "end": 3e6, "share": 0.3 / 0.45}),
    (FEW, np.array([0, 0.01, -0.1, -0.3, -0.35, -0.38, -0.4]), {"smoothed": 3, "start": 2e9, "end": 4e9}),
    (EVEN, NOISE + fall(EVEN, 1e6, 2e6, 0.4), {}), (EVEN, LASTING, {}),
    (EVEN, np.where(EVEN > 0, -0.5, 0), None), (EVEN, NOISE, None), (EVEN, fall(EVEN, 1e6, 2e6, 0.09), None),
    (EVEN, -fall(EVEN, 1e6, 2e6, 0.4), None),  # it rises
    (EVEN, LASTING + 0.28 / (1 + np.exp(-(EVEN / 1e6 - 3) / 0.3)), None),  # it does not last
    (EVEN, np.full(41, np.nan), None), (EVEN, np.random.default_rng(1).normal(0, 0.5, 41), None),  # all noise
    (EVEN[:3], np.array([0, -1.0, -1.0]), None),
])  # fmt: skip
def test_the_window_is_where_the_score_falls_for_good(tokens, icl, expected):
    found = window(tokens, icl)
    assert (found is None) == (expected is None)
    assert expected is None or {name: getattr(found, name) for name in expected} == pytest.approx(expected)


def test_the_derivative_is_the_slope_of_the_line_through_five_snapshots():
    icl = np.random.default_rng(3).normal(0, 0.001, 41) + fall(EVEN, 1e6, 2e6, 0.6)
    found = _slopes(EVEN / 1e6, icl, WEIGHTS)
    for at in range(2, 39):
        five = slice(at - 2, at + 3)
        assert found[at] == pytest.approx(np.polyfit(EVEN[five] / 1e6, icl[five], 1)[0], rel=1e-9)


def test_before_and_after_and_projections():
    run = made()
    where = replace(window(EVEN, fall(EVEN, 1e6, 2e6, 0.4)), first=3, last=9)
    vector = before_and_after(run, where)
    change = run.token_losses[9] - run.token_losses[3]
    assert np.linalg.norm(vector) == pytest.approx(1) and vector == pytest.approx(change / np.linalg.norm(change))
    cut = change[:10] / np.linalg.norm(change[:10])
    for a, layer, head in np.ndindex(2, 2, 3):
        expected = sum(float(x) * float(y) for x, y in zip(run.ablated_losses[a, layer, head], cut, strict=True))
        assert projections(run, where)[a, layer, head] == pytest.approx(expected, rel=1e-4)


def test_components_equal_the_svd_of_the_raw_centered_matrix():
    runs = [made(seed=1), made(9, seed=2)]
    rows = np.concatenate([run.token_losses for run in runs]).astype(float)
    u, s, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    found = np.concatenate(joint_components(runs))
    for axis in range(2):
        expected = u[:, axis] * s[axis]
        assert abs(found[:, axis] - expected).max() < 1e-4 or abs(found[:, axis] + expected).max() < 1e-4


def test_components_of_runs_on_other_texts_are_refused():
    refused_by(HeadroomError, "different tokens", lambda: joint_components([made(), made(about={"text_digest": "u"})]))
    with pytest.raises(HeadroomError, match="not measured"):
        joint_components([made(token_losses=np.zeros((41, 0), np.float32))])
    losses = made().token_losses.copy()
    losses[4] = np.nan
    [path] = joint_components([made(token_losses=losses)])
    assert np.isnan(path[4]).all() and np.isfinite(np.delete(path, 4, 0)).all()


def test_a_trajectory_survives_its_file():
    run = made()
    back = decode(encode(run))
    assert (back.name, back.label, back.recipe, back.about) == (run.name, run.label, run.recipe, run.about)
    for name in ("steps", "tokens", "loss", "icl", "by_index", "token_losses", "ablated", "ablated_icl"):
        assert np.array_equal(getattr(back, name), getattr(run, name))
    assert set(back.heads) == set(SCORES) and np.array_equal(back.heads["copying"], run.heads["copying"])
    assert back.passages["story"].pieces == ("The", " end", " ü")
    assert np.array_equal(back.passages["story"].losses, run.passages["story"].losses)
    assert back.best("copying") == pytest.approx(run.heads["copying"].reshape(41, -1).max(1))
    assert np.isnan(replace(run, heads={}).best("copying")).all()


def test_other_bytes_are_no_trajectory(monkeypatch):
    for wrong in (b"", b"x" * 100, encode(made())[:500]):
        refused_by(HeadroomError, "not a trajectory file", lambda wrong=wrong: decode(wrong))
    monkeypatch.setattr("engine.training.trajectory.VERSION", 2)
    blob = encode(made())
    monkeypatch.undo()
    refused_by(HeadroomError, "another version", lambda: decode(blob))


def test_snapshots_that_are_dense_at_first_show_an_early_phase_change():
    where = window(DENSE, -0.05 * (1 - np.exp(-DENSE / 1e6)) - 0.4 / (1 + np.exp((2.5e6 - DENSE) / 0.1e6)))
    assert where is not None and 2e6 <= where.start < 2.5e6 < where.end <= 3e6
    assert list(apart(np.array([0, 1, 2, 4, 8, 100, 200, 300, 400, 500, 501.0]))) == [0, 5, 6, 7, 8, 9]


AT = np.linspace(0, 4e6, 41)
ORDER = (
    "share",
    "plain",
    "smeared",
    "sooner",
    "crosses",
    "convex",
    "part",
    "turns",
    "projected",
    "ablated",
    "law",
    "hapax",
)


def made_run(start=1e6, n_layers=2, best=0.8, depth=0.4, **recipe):
    """A run whose phase change lies between `start` and half a million tokens behind: nothing at all with a depth of
    0; head L1H0 (L0H0 of one layer) is its induction head."""
    recipe = Recipe(n_layers=n_layers, n_heads=2, **recipe)
    done = np.clip((AT - start) / 0.5e6, 0, 1) * bool(depth)
    drawn = np.random.default_rng(0)
    before, change = drawn.normal(size=(2, 20))
    losses = 5 + np.outer(np.minimum(AT, start) / 4e6, before) + np.outer(done, change)
    heads = {name: np.full((41, n_layers, 2), 0.05, np.float32) for name in SCORES}
    heads["prefix_matching"][:, -1, 0] += done * (best - 0.05)
    ablated = np.array([0, 40])
    without = np.zeros((2, n_layers, 2, 20))
    without[1, -1, 0] = -change
    icl = np.full((2, n_layers, 2), -0.01)
    icl[1, -1, 0] = depth
    return Trajectory(
        "made_run", recipe.in_words, recipe.as_json(), {"text_digest": "t"}, np.arange(41), AT,
        loss=5 - 0.1 * AT / 4e6 - 0.5 * done, icl=-depth * done, first_copy=done, second_copy=done,
        by_index=losses, token_losses=losses.astype(np.float32), heads=heads, ablated=ablated, ablated_icl=icl,
        ablated_losses=without,
    )  # fmt: skip


def told(runs):
    return dict(zip(ORDER, findings(runs), strict=True))


def verdicts(runs):
    return {name: found.verdict for name, found in told(runs).items()}


def test_everything_holds_of_runs_as_in_the_paper():
    plain = made_run(2e6, batch=4, n_ctx=16)
    runs = [
        made_run(n_layers=1, depth=0),
        made_run(n_layers=1, smeared=True),
        made_run(1e6, smeared=True, batch=4, n_ctx=16),
    ]
    without_copies = made_run(n_layers=1, smeared=True, hapax=True, best=0.1)
    found = told([*runs, plain, made_run(n_layers=1, depth=0, batch=4, n_ctx=16), without_copies])
    assert {name: each.verdict for name, each in found.items()} == dict.fromkeys(ORDER, "holds")
    assert found["share"].ours == "2 layers, attention only: 100% from 2.0 to 2.5 M tokens"
    assert found["sooner"].ours == "1.0 to 1.5 M tokens with smeared keys, 2.0 to 2.5 M tokens without"
    assert "2.3 M tokens, the window" in found["crosses"].ours
    assert found["law"].ours == "2 layers, attention only: 4.0 M said, 2.2 M seen"


def test_what_does_not_hold_is_said_with_its_numbers():
    never = made_run(depth=0)
    found = told([never, made_run(n_layers=1, best=0.6), made_run(n_layers=1, smeared=True, depth=0)])
    assert found["share"].verdict == "not measured"
    assert found["share"].ours == "2 layers, attention only: no phase change by 4.0 M tokens"
    assert found["plain"].verdict == found["smeared"].verdict == "does not hold"
    assert found["law"].verdict == found["crosses"].verdict == "not measured"
    run = made_run()
    late = replace(run, heads={**run.heads, "prefix_matching": np.full((41, 2, 2), 0.1, np.float32)})
    assert told([late])["crosses"].ours.endswith("it never does, 0.10 at most")
    early = run.heads["prefix_matching"].copy()
    early[5:, -1, 0] = 0.9
    assert verdicts([replace(run, heads={**run.heads, "prefix_matching": early})])["crosses"] == "does not hold"
    assert verdicts([replace(run, loss=5 - AT / 4e6)])["convex"] == "does not hold"
    wrong = replace(run, ablated_losses=-run.ablated_losses, ablated_icl=-run.ablated_icl)
    assert (verdicts([wrong])["projected"], verdicts([wrong])["ablated"]) == ("does not hold", "does not hold")
    assert verdicts([made_run(batch=16, n_ctx=4096)])["law"] == "does not hold"
    assert verdicts([made_run(1e6, smeared=True), made_run(0.6e6)])["sooner"] == "does not hold"


def test_what_comes_without_loss_on_copies_is_said_whichever_way_it_falls():
    def found(**without):
        runs = [
            made_run(seed=seed, hapax=hapax, **(without if hapax else {})) for hapax in (False, True) for seed in (0, 1)
        ]
        said = told(runs)
        assert said["share"].ours.count("%") == 2, "they count for no other statement"
        return said["hapax"]

    holds = found(best=0.1, depth=0.3)
    assert holds.verdict == "holds" and holds.ours == (
        "2 runs without loss on copies: best prefix matching 0.10 (0.10 to 0.10), of their twins 0.80 (0.80 to 0.80); "
        "in-context gain in nats 0.30 (0.30 to 0.30), of their twins 0.40 (0.40 to 0.40)"
    )
    assert found(best=0.1, depth=0).verdict == "does not hold", "no induction head, and no gain"
    assert found(best=0.7, depth=0.3).verdict == "does not hold", "induction heads all the same"
    assert told([made_run(hapax=True), made_run(seed=1)])["hapax"].verdict == "not measured", "not its twin"
    of_other_text = replace(made_run(), about={"text_digest": "another"})
    assert told([made_run(hapax=True), of_other_text])["hapax"].verdict == "not measured"


def test_what_was_not_measured_is_not_judged():
    assert set(verdicts([]).values()) == {"not measured"}
    run = made_run()
    bare = replace(run, heads={}, ablated=np.zeros(0, np.int64), token_losses=np.zeros((41, 0), np.float32))
    found = verdicts([bare])
    assert {name for name, verdict in found.items() if verdict != "not measured"} == {"share", "convex", "law"}
    one = made_run(n_layers=1, depth=0)
    assert told([replace(one, icl=np.full(41, np.nan))])["plain"].verdict == "not measured", "it reads no text"


def test_runs_with_repeats_count_and_are_told_apart():
    assert told([made_run(2e6), made_run(1e6, repeats=0.5)])["share"].ours.count("%") == 3
    assert told([made_run(1e6, repeats=0.5)])["share"].ours.startswith("2 layers, attention only, 50% repeats: 100%")


def test_turns_are_angles_between_pieces_of_the_path():
    x = np.concatenate([np.arange(10), np.full(10, 9)])
    y = np.concatenate([np.zeros(10), np.arange(1, 11)])
    found = turns(np.stack([x, y], 1).astype(float), np.arange(20) * 1e5)
    assert int(np.nanargmax(found)) == 9 and found[9] == pytest.approx(90)
    assert found[4] == pytest.approx(0) and np.isnan(found[[0, 1, -1]]).all()


def test_three_shipped_runs_without_loss_on_copies_have_their_twins():
    files = [*runs_folder().glob("smeared-hapax*.safetensors"), *runs_folder().glob("smeared-twin*.safetensors")]
    runs = [decode(file.read_bytes()) for file in [*files, runs_folder() / "smeared-seed-2.safetensors"]]
    assert len(runs) == 6 and all(np.array_equal(run.tokens, runs[0].tokens) for run in runs)
    assert told(runs)["hapax"].ours.startswith("3 runs without loss on copies: best prefix matching 0.05 ")
    assert sorted(pair.seed for pair in twins(runs)) == [0, 1, 2]
    for pair in twins(runs):
        assert pair.without.recipe["hapax"] and pair.with_copies.recipe == {
            name: value for name, value in pair.without.recipe.items() if name != "hapax"
        }
        assert pair.gain_nats == (-pair.without.icl[-1], -pair.with_copies.icl[-1])
        assert pair.matching[1] == pair.with_copies.heads["prefix_matching"].max() > 4 * pair.matching[0]


def test_a_score_that_ends_where_it_began_has_no_share_of_its_change():
    tokens = 1e6 * np.arange(1, 21)
    icl = np.r_[np.linspace(0, 1, 8), 1, 1, 1, 0.9, 0.5, 0.1, np.zeros(6)]
    for last in (-0.02, 0.0, 0.01):
        icl[-1] = last
        found = window(tokens, icl)
        assert found is not None and np.isnan(found.share)
    assert window(tokens, icl - np.linspace(0, 0.5, 20)).share > 0


def test_the_runs_that_the_screen_opens_with_make_its_argument():
    two, one = (decode((runs_folder() / f"{name}.safetensors").read_bytes()) for name in ("two-layers", "one-layer"))
    said = training_finding(two, one)
    assert said == "**Induction heads form at 0.66 M tokens, and copying with them; the run with 1 layer has neither.**"
    assert difference(two, one) == "The two runs differ only in the number of layers (2 and 1)."
    heads, copying = heads_form(two), copying_forms(two)
    assert heads is not None and heads.end - heads.start < two.tokens[-1] / 3, "suddenly"
    assert copying is not None and heads.start <= copying.middle <= heads.end
    assert two.second_copy[-1] < two.first_copy[-1] / 3
    trained = one.tokens > 100_000  # before, both learn which tokens there are
    assert (abs(one.second_copy / one.first_copy - 1)[trained] < 0.1).all(), "the control copies nothing"
    assert one.best("prefix_matching").max() < 0.1


def test_findings_of_other_runs():
    one, smeared, two = synthetic_runs.runs()
    assert training_finding(two) == "**Induction heads form at 2.1 M tokens, and copying with them**."
    assert training_finding(one) == "**No induction head forms by 4 M tokens**."
    assert training_finding(one, one) == training_finding(one)
    both = "**Induction heads form at 2.1 M tokens, and copying with them**"
    assert training_finding(two, smeared).startswith(
        f"{both}; 1 layer, smeared keys: induction heads form at 1.3 M tokens, and"
    )
    never = replace(two, second_copy=two.first_copy)
    assert training_finding(never) == "**Induction heads form at 2.1 M tokens, and random tokens are hardly copied**."
    later = replace(two, second_copy=np.where(two.tokens < 3.5e6, 6.0, 1.0).astype(np.float32))
    assert training_finding(later) == "**Induction heads form at 2.1 M tokens, and copying at 3.6 M tokens**."
    unscored = replace(two, heads={})
    assert training_finding(unscored) == f"**{phase_change(two)}**" and phase_change(two).startswith(
        "Phase change from "
    )
    said = "The two runs differ only in the number of layers (2 and 1), smeared keys (no and yes)."
    assert difference(two, smeared) == said
    assert difference(two, replace(two, recipe=None)) == ""


def test_a_rise_begins_where_its_curve_last_was_low():
    best = np.zeros(41, np.float32)
    best[5], best[20:25], best[25:] = 0.3, (0.1, 0.3, 0.5, 0.7, 0.9), 1.0
    found = made(tokens=EVEN, heads={"prefix_matching": np.repeat(best[:, None, None], 3, 2)})
    assert heads_form(found) == Rise(2e6, 2.2e6, 2.4e6)
    assert heads_form(replace(found, heads={"prefix_matching": np.full((41, 1, 3), 0.2)})) is None


def test_a_log_is_a_trajectory_which_survives_its_file():
    line = {"step": 4, "loss": 6.0, "icl": -0.1, "first_copy": 6.0, "second_copy": 5.0,
            "prefix_matching": [[0.1, 0.2]], "previous_token": [[0.3, 0.4]]}  # fmt: skip
    recipe = Recipe(1, 2, 16, 16, batch=4, tokens=3000)
    found = decode(encode(of_log("own", recipe, [line | {"step": 0}, line])))
    assert found.tokens.tolist() == [0, 256] and found.best("prefix_matching").tolist() == pytest.approx([0.2, 0.2])
    assert found.icl.tolist() == pytest.approx([-0.1, -0.1]) and not found.passages
    repeats = replace(recipe, n_ctx=64, repeats=1.0, period=(8, 16), alphabet=24)
    assert np.isnan(of_log("own", repeats, [line]).loss).all(), "it reads no text"
