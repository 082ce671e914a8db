"""Every row of a sweep is the accuracy of the mask that its ranking says, worked out here by hand from the importance.

"By hand" is a store of its own: what a sweep found is compared with single evaluations that share nothing with it.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from cache import open_store
from engine.importance.orders import OF_MANY_TASKS, Orders
from engine.importance.scores import Scores, importance
from engine.measurement import known_value
from engine.models.loading import LoadSpec
from engine.models.masks import Edits, Mask, parse_mask
from engine.models.session import Session
from engine.studies.surveys import SurveySettings, together
from engine.studies.sweeps import Point, points
from tests.engine.fixtures import in_turns
from tests.engine.studies.conftest import (
    FEW,
    MANY,
    N_CHUNKS,
    ByHand,
    N,
    answers_stored,
    counted,
    no_importance,
    no_model,
    one_plain_line,
    read_only,
    sweep_in,
    swept,
    without_columns,
)

# --- rankings -----------------------------------------------------------------------------------------------------


ONE_SHOT = [by for by in OF_MANY_TASKS if by != "rescored"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "by, grid", in_turns(ONE_SHOT, [(0, (0, FEW, MANY, 1000), (0,)), (1, (0, FEW), (0, 500, 1000))])
)
def test_rows_are_those_of_the_masks_that_the_ranking_says(by, grid, setting, tasks, pool, session, store, by_hand):
    at, heads, ffns = grid
    wanted = points([tasks[at]], heads, ffns, by, of=pool[2] if by == "task" else "", seed=1)
    found = swept(session, setting, wanted, pool)
    assert [row.point for row in found.rows] == wanted and not found.failed
    masks = [by_hand.mask(point, pool) for point in wanted]
    for row, mask in zip(found.rows, masks, strict=True):
        by_hand.check(row, mask, store)
    assert {row.n_ffns_pruned for row in found.rows} == {level // 500 for level in ffns}
    assert len(set(masks)) == len(wanted)
    if by not in ("oracle", "knockouts") and ffns == (0,):  # these answer questions under other masks
        assert answers_stored(store) == len(wanted) * N_CHUNKS, "no other mask was measured"


def test_the_rankings_are_different_ones(tasks, pool, by_hand):
    """Without this the test above could not tell one from another."""
    here = [Point(tasks[0], FEW, 0, by, pool[2] if by == "task" else "", 1) for by in ONE_SHOT]
    assert len({tuple(by_hand.order(point, pool, "heads")) for point in here}) == len(here)


def hand_made(monkeypatch, scores_of):
    """Puts importance by task name in the place of what the store holds."""

    def known(target, questions, what):
        scores = Scores(what, questions.n, np.array(scores_of[questions.task.name]).reshape(2, 8))
        return known_value(target, (what, questions), scores)

    monkeypatch.setattr("engine.studies.surveys.importance", known)


@pytest.mark.parametrize("how", ["scores", "ranks"])
@pytest.mark.parametrize("by", ["aggregate", "others"])
def test_a_task_that_dominates_is_left_out_by_others(
    how, by, setting, tasks, pool, session, store, by_hand, monkeypatch
):
    rng = np.random.default_rng(0)
    scores = dict(zip(pool, rng.permuted(np.tile(np.arange(1.0, 17), (3, 1)), axis=1), strict=True))
    scores[pool[0]] *= 1e6
    hand_made(monkeypatch, scores)
    row = swept(session, replace(setting, aggregate=how), [Point(tasks[0], 500, 0, by)], pool).rows[0]
    ranks = {name: stats.rankdata(values) for name, values in scores.items()}
    names = pool if by == "aggregate" else pool[1:]
    order = np.argsort(np.mean([(scores if how == "scores" else ranks)[name] for name in names], axis=0), kind="stable")
    mask = Orders(by_hand.shape, order, np.arange(2)).mask(500, 0)
    by_hand.check(row, mask, store)
    loud = Orders(by_hand.shape, np.argsort(scores[pool[0]]), np.arange(2)).mask(500, 0)
    assert (mask == loud) == (how == "scores" and by == "aggregate"), "one task decides the mean of raw scores alone"


def test_equal_ffn_scores_are_ordered_by_the_mean_tie_break(setting, tasks):
    first = Scores("ffns", 9, np.array([0.1, 0.1, 0.0]), np.array([3.0, 1, 2]))
    both = together(setting, {tasks[0]: first, tasks[1]: replace(first, tie_break=np.array([0.0, 9, 2]))})
    np.testing.assert_array_equal(both.tie_break, [1.5, 5, 2])
    np.testing.assert_allclose(both.scores, [0.1, 0.1, 0.0])
    assert together(setting, {tasks[0]: first, tasks[1]: replace(first, tie_break=None)}).tie_break is None


@pytest.mark.parametrize("rankings", [ONE_SHOT, ["rescored"]])
def test_no_and_full_pruning_need_no_importance(rankings, setting, tasks, pool, session, store, by_hand, monkeypatch):
    """Nor does a level at which no component goes: 4% of 16 heads is none."""
    monkeypatch.setattr("engine.importance.scores.gate_gradients", no_importance)
    masks = {(0, 0): "", (40, 0): "", (1000, 0): "L*H*", (0, 300): "", (0, 1000): "F*", (1000, 1000): "L*H* F*"}
    wanted = [Point(tasks[0], *at, by, pool[1] if by == "task" else "") for by in rankings for at in masks]
    found = swept(session, setting, wanted, pool)
    assert [row.point for row in found.rows] == wanted and not found.failed
    assert answers_stored(store) == 4 * N_CHUNKS, "one full model and three masks, no oracle"
    full = by_hand.answers(tasks[0], Mask.full(by_hand.shape))
    for row in found.rows:
        text = masks[row.point.heads_permille, row.point.ffns_permille]
        by_hand.check(row, parse_mask(text, by_hand.shape), store)
        if not text:
            assert (row.acc, row.gained, row.lost) == (full.correct.mean(), 0, 0)


def test_a_row_of_a_table_has_every_number_under_a_plain_name(setting, tasks, session):
    row = swept(session, setting, [Point(tasks[0], 600, 500, "random", seed=2)], ()).rows[0]
    assert row.cells() == {
        "task": tasks[0].name, "shots": 0, "heads": 0.6, "ffns": 0.5, "by": "random", "of": "", "seed": 2, "n": N,
        "acc": row.acc, "low": row.low, "high": row.high, "chance": row.chance, "n_heads_pruned": 9,
        "n_ffns_pruned": 1, "gained": row.gained, "lost": row.lost, "p_mcnemar": row.p_mcnemar,
    }  # fmt: skip


# --- the oracle and the gate as rankings, shots ---------------------------------------------------------------------


def test_other_kinds_of_head_importance_and_shots_are_the_ones_asked_for(tiny_opt, tasks, pool, store, tmp_path):
    for heads_by, shots in (("gate", 0), ("heads-oracle", 0), ("heads", 2)):
        setting = SurveySettings(LoadSpec(str(tiny_opt), "fp32"), bos=False, heads_by=heads_by)
        task = replace(tasks[1], shots=shots)
        row = swept(Session(store), setting, [Point(task, 500, 0)], pool).rows[0]
        own_store = open_store(tmp_path / f"{heads_by}{shots}")
        by_hand = ByHand(setting, own_store)
        scores = by_hand.scores(task, heads_by)
        ties = np.zeros(8) if scores.tie_break is None else scores.tie_break.ravel()
        order = sorted(range(8), key=lambda head: (scores.scores.ravel()[head], ties[head]))
        by_hand.check(row, Orders(by_hand.shape, np.array(order), np.arange(2)).mask(500, 0), store)
        own_store.close()


# --- scored anew ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what, text", [("heads", "L0H2-5 L1H7 F1"), ("heads", "L0H* L1H0-6"), ("gate", "L1H1 F0")])
def test_importance_under_a_mask_is_that_of_a_model_without_those_columns(what, text, by_hand, tasks, tmp_path, store):
    mask = parse_mask(text, by_hand.shape)
    masked = by_hand.scores(tasks[0], what, mask)
    folder = without_columns(by_hand.folder, mask, tmp_path / "zeroed")
    zeroed = ByHand(replace(by_hand.setting, spec=LoadSpec(str(folder), "fp32")), store).scores(tasks[0], what)
    np.testing.assert_allclose(masked.scores, zeroed.scores, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(masked.gate_heads, zeroed.gate_heads, rtol=2e-3, atol=1e-6)  # kept in fp16
    np.testing.assert_allclose(masked.gate_ffns, zeroed.gate_ffns, rtol=2e-3, atol=1e-6)
    kept = np.array(mask.heads)
    assert (masked.scores[~kept] == 0).all() and (masked.scores[kept] > 0).all()
    assert (np.nan_to_num(masked.gate_ffns[..., ~np.array(mask.ffns)]) == 0).all()
    assert np.abs(masked.scores - by_hand.scores(tasks[0], what).scores)[kept].max() > 1e-3, "the rest is scored anew"


def test_importance_under_the_full_mask_is_importance(by_hand, tasks):
    plain = by_hand.scores(tasks[0], "heads")
    about = (by_hand.session, by_hand.target, by_hand.asked(tasks[0]), "heads", Mask.full(by_hand.shape))
    with counted() as passes:
        step = list(importance(*about[1:]).run(about[0]))[-1]
    assert step.cached and not passes
    again = step.value
    np.testing.assert_array_equal(again.scores, plain.scores)


@pytest.mark.parametrize("heads_by", ["heads", "gate"])
def test_the_first_step_of_scoring_anew_is_the_one_shot_ranking(
    heads_by, setting, tasks, pool, session, store, by_hand
):
    """Whichever importance the setting ranks by: `rescored` is `own`, measured anew."""
    setting = replace(setting, heads_by=heads_by)
    by_score = np.argsort(by_hand.scores(tasks[0], heads_by).scores.ravel(), kind="stable")
    found = swept(session, setting, points(tasks[:1], [0, FEW], [0], "rescored"), ())
    assert [row.point.heads_permille for row in found.rows] == [0, FEW]
    by_hand.check(found.rows[1], Orders(by_hand.shape, by_score, np.arange(2)).mask(FEW, 0), store)
    own = swept(session, setting, points(tasks[:1], [0, FEW], [0]), pool)
    assert [replace(row, point=None) for row in own.rows] == [replace(row, point=None) for row in found.rows]
    assert answers_stored(store) == 2 * N_CHUNKS, "the two share their only mask"


def test_scoring_anew_equals_pruning_columns_step_by_step(setting, tasks, session, store, by_hand, tmp_path):
    """Each step by hand: columns set to 0 in the model's file, its importance measured, the least of what is left."""
    task, levels, gone, masks = tasks[0], [0, 200, 210, 450, 700, 900], [], []
    for level in levels:
        if (more := level * 16 // 1000 - len(gone)) > 0:
            folder = without_columns(by_hand.folder, without(gone), tmp_path / f"at{level}")
            zeroed = ByHand(replace(setting, spec=LoadSpec(str(folder), "fp32")), by_hand.store)
            scores = zeroed.scores(task, "heads").scores.ravel()
            assert (scores[gone] == 0).all()
            gone += [int(head) for head in np.argsort(scores, kind="stable") if head not in gone][:more]
        masks.append(without(gone))
    found = swept(session, setting, points([task], levels[::-1], [0], "rescored"), ())
    assert [row.point.heads_permille for row in found.rows] == levels[::-1], "the order asked for does not matter"
    for row, mask in zip(found.rows, masks[::-1], strict=True):
        by_hand.check(row, mask, store)
    assert len(set(masks)) == 5 and answers_stored(store) == 5 * N_CHUNKS
    for earlier, later in zip(masks, masks[1:], strict=False):
        assert Edits(later, without([])).on(earlier) == later, "a pruned head came back"
    assert any(mask != by_hand.mask(Point(task, level, 0), ()) for mask, level in zip(masks, levels, strict=True)), (
        "the one-shot ranking prunes the same, so this could not tell"
    )


def test_scoring_anew_by_the_oracle_is_done_or_refused_but_never_left_out(
    setting, tasks, session, store, by_hand, tmp_path
):
    """The oracle knows no mask: its scores of the whole model must not pass for scores of what is left."""
    setting, task = replace(setting, heads_by="heads-oracle"), tasks[1]
    found = swept(session, setting, points([task], [500, 700], [0], "rescored"), ())
    oracle = by_hand.scores(task, "heads-oracle")
    first = [int(head) for head in np.lexsort((np.arange(16), oracle.tie_break.ravel(), oracle.scores.ravel()))][:8]
    folder = without_columns(by_hand.folder, without(first), tmp_path / "half")
    zeroed = ByHand(replace(setting, spec=LoadSpec(str(folder), "fp32")), by_hand.store).scores(task, "heads-oracle")
    ranked = np.lexsort((np.arange(16), zeroed.tie_break.ravel(), zeroed.scores.ravel()))
    second = first + [int(head) for head in ranked if head not in first][:3]
    if not found.failed:
        for row, gone in zip(found.rows, (first, second), strict=True):
            by_hand.check(row, without(gone), store)
    else:
        assert one_plain_line(found.failed[task]) and not [row for row in found.rows if row.n_heads_pruned == 11]


def without(gone):
    kept = np.ones(16, bool)
    kept[gone] = False
    return Mask.from_arrays(kept.reshape(2, 8), np.ones(2, bool))


# --- what is stored is not measured again ---------------------------------------------------------------------------


def everything(tasks, pool):
    return [
        *points(tasks[:2], [0, 250, 700], [0, 500]),
        *points(tasks[:1], [250, 700], [0], "rescored"),
        *points(tasks[:1], [500], [0], "aggregate"),
        *points(tasks[:1], [500], [0], "others"),
        *points(tasks[:1], [500], [0], "task", of=pool[1]),
        *points(tasks[:2], [500], [0], "random", seed=4),
    ]


def test_reading_alone_on_an_empty_store_finds_nothing_and_measures_nothing(setting, tasks, pool, store, monkeypatch):
    monkeypatch.setattr("engine.models.loading.load", no_model)
    monkeypatch.setattr("engine.importance.scores.gate_gradients", no_importance)
    with counted() as passes:
        wanted = sweep_in(session := Session(store), setting, everything(tasks, pool), pool)
        known = wanted.stored_part(session)
    assert (known.value.rows, known.value.failed) == ((), {}) and not passes
    left = known.left.characters
    assert left["forward"] > 0 and left["gradient"] > 0, "how much there is to do is known"
    assert wanted.seconds(session) is None, "nothing was timed yet"
    assert not [key for key in store.keys() if "/answers/" in key or "/importance/" in key]


def test_reading_alone_gives_the_rows_that_are_stored_already(setting, tasks, pool, session, store, monkeypatch):
    swept(session, setting, points(tasks[:1], [0, 250], [0]), pool)
    monkeypatch.setattr("engine.models.loading.load", no_model)
    found = read_only(Session(store), setting, everything(tasks, pool), pool)
    assert not found.failed
    # the full model needs no importance; the first step of scoring anew is the one-shot ranking's
    assert {(row.point.by, row.point.task, row.point.heads_permille) for row in found.rows} == {
        ("own", tasks[0], 0), ("own", tasks[0], 250), ("rescored", tasks[0], 250)
    }  # fmt: skip


def test_a_finished_sweep_costs_no_forward_pass_and_loads_no_model(setting, tasks, pool, store, monkeypatch):
    wanted = everything(tasks, pool)
    with counted() as passes:
        first = list(sweep_in(Session(store), setting, wanted, pool).run(Session(store)))
    assert [row.point for row in first[-1].value.rows] == wanted and passes and not first[-1].cached
    before = {key: store.get(key) for key in store.keys()}
    monkeypatch.setattr("engine.models.loading.load", no_model)
    with counted() as passes:
        again = list(sweep_in(Session(store), setting, wanted, pool).run(Session(store)))
    known = sweep_in(Session(store), setting, wanted, pool).stored(Session(store))
    assert not passes and again[-1].value == first[-1].value == known
    assert all(step.cached for step in again)
    assert {key: store.get(key) for key in store.keys()} == before


def test_a_sweep_that_shares_masks_measures_only_the_new_ones(setting, tasks, pool, session, store):
    swept(session, setting, points(tasks[:1], [0, 250, 700], [0]), pool)
    n_before = answers_stored(store)
    with counted() as passes:  # 260 permille of 16 heads are the 4 heads of 250
        found = swept(session, setting, points(tasks[:1], [0, 250, 260, 500, 700], [0]), pool)
    assert len(found.rows) == 5 and answers_stored(store) == n_before + N_CHUNKS
    with counted() as passes_of_one:
        swept(session, setting, points(tasks[:1], [900], [0]), pool)
    assert len(passes) == len(passes_of_one) > 0, "one new mask"
    with counted() as passes:
        fewer = swept(session, replace(setting, n_questions=16, n_ranking=N), points(tasks[:1], [0, 500], [0]), pool)
    assert [row.n for row in fewer.rows] == [16, 16] and not passes, "the first questions are a beginning of all"


def test_own_curves_come_point_by_point_and_before_random_orders(setting, tasks, pool, session):
    wanted = [*points(tasks[:2], (FEW, MANY), [0]), *points(tasks[:2], (FEW,), [0], "random")]
    steps = [step.value for step in sweep_in(session, setting, wanted, pool).run(session) if step.value is not None]
    early = [{row.point for row in found.rows} for found in steps]
    assert early[: len(early)] == sorted(early, key=len), "nothing that was reported is missing later"
    seen = dict.fromkeys(row.point for found in steps for row in found.rows)
    assert [*seen] == wanted and {len(found.rows) for found in steps} >= {*range(1, len(wanted) + 1)}


def test_a_sweep_that_is_closed_keeps_what_was_finished(setting, tasks, pool, session, store):
    wanted = everything(tasks[::-1], pool[::-1])

    def run(stop=None):
        """(forward passes, last step) up to the step of that number."""
        with counted() as passes:
            steps = sweep_in(session, setting, wanted, pool).run(session)
            for number, step in enumerate(steps):  # noqa: B007
                if number == stop:
                    break
            steps.close()
        modules = session.models.get(setting.spec).model.modules()
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in modules)
        return len(passes), step

    rendered = {key: store.get(key) for key in store.keys()}
    n_whole, whole = run()
    for key in set(store.keys()) - set(rendered):
        store.delete(key)
    stops = (4, 11, 24, 40)
    n_pieces = [run(stop)[0] for stop in stops]
    n_rest, rest = run()
    assert whole.value == rest.value and len(whole.value.rows) == len(wanted)
    assert all(n_pieces) and n_rest < n_whole
    assert n_whole <= sum(n_pieces) + n_rest <= n_whole + len(stops), "at most the pass in hand is measured again"
