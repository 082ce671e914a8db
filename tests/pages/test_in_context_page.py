"""The In context screen in one process: scores, curves and heads are the engine's own, and the commands find them."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from engine.heads.ablation import KINDS, Ablating, HeadAblations, head_ablations
from engine.heads.induction import SCORES, InductionScores
from engine.importance.rankings_of import Pruning, Ranking
from engine.measurement import Workload
from engine.models.loading import LoadSpec
from engine.models.masks import Mask, parse_edits, parse_mask
from engine.models.session import Session
from engine.progress import final
from engine.questions.requests import TaskSpec
from engine.shapes import ModelShape
from engine.studies.removal import n_sets
from engine.texts import incontext as engine_incontext
from engine.texts import passages
from engine.texts.incontext import MeanOverTexts
from engine.texts.passages import LOG_BOOKS
from engine.texts.tokenloss import token_losses
from pages.ui.in_context import charts, setting, tables, together
from pages.ui.in_context.first_view import first_choices
from pages.ui.in_context.setting import InContextControls, LossesSoFar, ablations
from pages.ui.page import runtime
from tests.conftest import TEXT
from tests.engine.fixtures import target_in, write_questions
from tests.pages.conftest import (
    frames_of,
    labels,
    number_after,
    press,
    printed_by_the_program,
    said,
    same_on_the_command_line,
    settled,
    slide,
)

SHAPE = ModelShape(2, 4, 4, 32, 8, 64, 512, 512)
N_TEXTS = 3


@pytest.fixture
def open_as_it_is(open_app, wide_opt, tmp_path):
    """Opens the screen with no more in its address than the model and the texts."""
    task = write_questions(tmp_path / "rivers.jsonl", 60)
    of = {"incontext_from": "Solved questions", "incontext_task": str(task), "incontext_texts": str(N_TEXTS)}
    return partial(open_app, "in_context", model=str(wide_opt), **of)


@pytest.fixture
def open_screen(open_as_it_is):
    return partial(open_as_it_is, incontext_order="random", incontext_around="exact")


@pytest.fixture
def found_by_the_command(tmp_path, capsys):
    def found(at, number=0):
        told = same_on_the_command_line(at, capsys, number, out=tmp_path / "out.csv")
        assert told["cached"], "the page and the command line must share their results"
        return told, pd.read_csv(tmp_path / "out.csv")

    return found


def values(at):
    return [metric.value for metric in at.metric]


def test_scores_of_the_full_and_of_the_pruned_model_are_those_of_the_command_and_the_program(
    open_screen, found_by_the_command
):
    at = open_screen()
    found, _ = found_by_the_command(at)
    score = found["icl_score"]["full"]
    assert score["n"] == N_TEXTS
    assert values(at) == [tables.number(-score["nats"], sign=True)], "the gain is the score, more is better"
    high, low = (tables.number(-end, sign=True) for end in score["ci95"])
    assert f"95% interval {low} to {high}, 3 texts" in said(at) and "Nothing is pruned" in said(at)
    (curve,) = {len(tables["points"]) for tables in frames_of(at)[:1]}
    assert 10 < curve <= engine_incontext.CURVE_BINS
    slide(at, "incontext_heads", 50)
    at.text_input(key="incontext_mask").set_value("F1")
    settled(at)
    found, _ = found_by_the_command(at)
    assert found["mask"].endswith("F1")
    full, masked = (found["icl_score"][name]["nats"] for name in ("full", "masked"))
    assert values(at) == [tables.number(-masked, sign=True)] and "**Gain with pruning**" in said(at)
    assert at.metric[0].delta == f"from {tables.number(-full, sign=True)} (full model)", "smaller, on the same texts"
    ends = (tables.number(-end, sign=True) for end in reversed(found["icl_score"]["change"]["ci95"]))
    assert f"95% interval of the change {' to '.join(ends)}, 3 texts" in said(at)
    assert "4 of 8 heads, 1 of 2 FFNs" in said(at)
    assert set(frames_of(at)[0]["points"]["series"]) == {"full model", "pruned model"}
    masked = number_after(r"\nmasked +[+]?", printed_by_the_program(at))
    assert values(at) == [tables.number(-masked, sign=True)]
    again = open_screen(incontext_heads="50", incontext_mask="F1")  # a new session finds what is stored
    assert values(again) == values(at)


def test_the_screen_opens_around_ten_tokens_and_so_does_its_command(open_as_it_is, found_by_the_command):
    at = open_as_it_is()
    assert at.segmented_control(key="incontext_around").value == 10
    found, _ = found_by_the_command(at)
    assert values(at)[0] == tables.number(-found["icl_score"]["full"]["nats"], sign=True)
    assert all("--average-tokens 10" in line for line in at.code[0].value.splitlines())


def tasks_asked_for(at):
    return [box.key for box in at.selectbox if box.label == "Task"]


def test_a_task_is_hidden_where_nothing_goes_by_it(open_screen, questions):
    prose = {"incontext_from": "A long text", "incontext_text": "The ferry", "incontext_order": "importance"}
    at = open_screen(**prose)
    assert tasks_asked_for(at) == [], "nothing is pruned"
    slide(at, "incontext_heads", 50)
    assert tasks_asked_for(settled(at)) == ["incontext_ranked_on"], "what is pruned goes by its importance"
    assert "4 of 8 heads" in said(at), "which is measured first"
    assert tasks_asked_for(open_screen(**prose | {"incontext_order": "random", "incontext_heads": "50"})) == []
    at = open_screen()
    assert tasks_asked_for(at) == ["incontext_task"], "its questions are the texts"
    assert [link.proto.query_string for link in at.get("page_link") if "Prune scores the answers" in link.proto.label]


def test_the_screen_opens_on_a_gain_that_the_induction_heads_make(open_app):
    """The embedded model, and what the engine itself finds of the same windows."""
    at = open_app("in_context", model="demo")
    texts = runtime.jobs().snapshot("incontext texts").value
    assert at.selectbox(key="incontext_text").value == LOG_BOOKS.name and len(texts) == LOG_BOOKS.n_texts
    session = runtime.session()
    target = session.target(LoadSpec("demo", "fp32"))
    full, pruned = Mask.full(target.shape), parse_mask("L1H1 L1H2 L1H3 L3H5", target.shape)
    both = [[token_losses(target, text, mask).stored(session).loss_nats for text in texts] for mask in (full, pruned)]
    before, after = (engine_incontext.icl_score(losses, 10) for losses in both)
    assert before.high < -0.5 and after.low > 0
    assert values(at) == [tables.number(-after.value, sign=True)]
    assert at.metric[0].delta == f"from {tables.number(-before.value, sign=True)} (full model)"
    moves = f"falls from {tables.number(-before.value)} to {tables.number(-after.value)} nats** (95% interval"
    assert f"**Without 4 induction heads, the in-context gain {moves}" in said(at)
    large = frames_of(at)[0]["points"].query("is_end").set_index(["series", "index"])["mean"]
    drop = large["pruned model", 50] - large["pruned model", 500]
    assert drop == pytest.approx(-after.value), "the large points are those that the gain subtracts"
    first = {name: str(value) for name, value in first_choices([], [], is_demo=True).items()}
    assert {name: at.query_params[name] for name in first} == first, "a reload must not prune nothing"
    assert "mask" not in at.session_state, "a mask that nobody has set is not shared with other screens"
    settled(slide(at, "incontext_heads", 0))
    assert at.number_input(key="incontext_heads").value == 0 and "Without 4" not in said(at)


def test_heads_are_ablated_on_demand_and_the_command_line_agrees(open_screen, found_by_the_command):
    at = open_screen(incontext_mask="L1H2", incontext_texts="2", incontext_part="Are they induction heads?")
    assert runtime.jobs().snapshot("incontext together") is None, "its tab is closed"
    at = press(at, "Ablate 8 heads, one at a time")
    maps = [tables["heads"] for tables in frames_of(at) if "heads" in tables]
    assert len(maps) == 3, "both kinds of ablation, and the before-and-after vector"
    found, table = found_by_the_command(at, 1)
    assert found["kind"] == "full" and found["n_texts"] == 2
    rows = maps[0].set_index(["layer", "head"])
    for row in table.itertuples():
        assert rows.loc[(row.layer, row.head), "full"] == pytest.approx(row.icl_score_change_nats, abs=1e-5)
    assert rows["pruned"].sum() == 1 and rows.loc[(1, 2), "pruned"]
    again = open_screen(incontext_mask="L1H2", incontext_texts="2", incontext_kind="pattern-preserving")
    assert not any(label.startswith("Ablate 8") for label in labels(again)), "what is stored shows at once"
    shown = again.dataframe[0].value
    assert list(shown.columns)[1] == "pattern-preserving" and len(shown) == 8
    spread = shown["pattern-preserving"].abs()
    assert spread.is_monotonic_decreasing


def test_sets_of_heads_are_measured_when_their_tab_is_open_if_that_is_short(open_screen, monkeypatch):
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")
    at = open_screen(incontext_texts="1", incontext_part="Top heads together")
    offered = "Ablate the strongest together, and random others"
    assert together.SHOWS in said(at) and any(label.startswith(offered) for label in labels(at))
    monkeypatch.delenv("HEADROOM_IDLE_SECONDS")
    at = settled(at)
    assert together.SHOWS not in said(at) and not any(label.startswith(offered) for label in labels(at))
    assert len(runtime.jobs().snapshot("incontext together").value) == n_sets(SHAPE)


def test_a_long_text_is_cut_into_pieces_and_one_that_is_too_short_is_one_plain_line(open_screen):
    at = open_screen(incontext_from="A long text", incontext_text="The ferry")
    assert "3 texts)" in said(at)
    assert "--passage 'The ferry' --texts 3" in at.code[0].value
    passages.remember("short", "Once upon a time there was a river. " * 3, runtime.store())
    at = open_screen(incontext_from="A long text", incontext_text="short")
    (error,) = [error.value for error in at.error]
    assert "needs a text of at least 512 tokens, and the longest here has" in error and "\n" not in error
    assert not at.metric


def test_a_short_window_has_a_score_and_no_attribution(open_screen, tiny_opt):
    at = open_screen(model=str(tiny_opt))
    assert len(at.metric) == 1 and not at.error
    assert "this model reads 256" in said(at)
    assert not any(label.startswith("Ablate") for label in labels(at))


def test_what_a_session_shows_is_what_is_stored(open_screen, wide_opt):
    at = open_screen(incontext_texts="1")
    assert "1 text, so no interval" in said(at)
    session = runtime.session()
    target = session.target(LoadSpec(str(wide_opt), "fp32"))
    full = Mask.full(target.shape)
    (text,) = runtime.jobs().snapshot("incontext texts").value
    losses = token_losses(target, text, full).stored(session)
    assert values(at)[0] == tables.number(float(losses.loss_nats[49] - losses.loss_nats[499]), sign=True)
    how = Ablating(full, "full", "zero")
    assert head_ablations(target, [text], how).stored(session) is None, "nothing is ablated before it is asked for"


def test_losses_of_the_full_model_are_known_text_by_text(tiny_opt, session):
    target, texts = target_in(session, tiny_opt), (TEXT[:80], TEXT[100:220])
    nothing = Pruning(TaskSpec("demo_copy"), Ranking("random"), 0, 0, parse_edits("", target.shape))
    x = InContextControls(target, None, LOG_BOOKS, texts, nothing)
    seen = [step.value for step in setting.losses(x).run(session) if step.value is not None]
    assert (1, True) in [(len(found.full), found.mask.is_full) for found in seen], "before the second text is read"
    for loss, text in zip(seen[-1].full, texts, strict=True):
        np.testing.assert_array_equal(loss, token_losses(target, text, seen[-1].mask).stored(session).loss_nats)


def test_ablations_are_those_of_the_first_texts_and_the_others_are_left(tiny_opt, session):
    target, texts = target_in(session, tiny_opt), (TEXT[:80], TEXT[100:220])
    wanted = ablations(InContextControls(target, None, None, texts, None), "zero")
    n_passes = target.shape.n_heads_total + 1
    assert wanted.left(session) == Workload({"forward": 2 * n_passes * sum(map(len, texts))})
    final(head_ablations(target, texts[1:], Ablating(Mask.full(target.shape), KINDS[0])).run(session))
    assert not wanted.so_far(session)[KINDS[0]].base, "not of the second text before the first"
    steps, seen = wanted.run(session), []
    for step in steps:
        seen.append(step)
        if step.value is not None:
            break
    steps.close()
    assert "Text 1 of 2, pattern-preserving, without L1H3" in [each.message for each in seen]
    assert [each.done for each in seen] == sorted(each.done for each in seen) and seen[-1].done == 2 * n_passes
    for each in (seen[-1].value, wanted.so_far(session)):
        assert [len(each[kind].base) for kind in KINDS] == [1, 1]
    assert wanted.left(session) == Workload({"forward": n_passes * len(texts[1])}), "one kind of it is stored"
    found = final(wanted.run(session))
    for kind in KINDS:
        expected = head_ablations(target, texts, Ablating(Mask.full(target.shape), kind)).stored(session)
        for one, other in zip(found[kind].ablated, expected.ablated, strict=True):
            np.testing.assert_array_equal(one, other)


def losses(seed=0, n_texts=4, n=520):
    return tuple(np.random.default_rng(seed).gamma(2.0, 1.5, (n_texts, n)).astype(np.float32))


def attribution(seed, n_texts=4):
    rng = np.random.default_rng(seed)
    base = losses(seed, n_texts, 512)
    return HeadAblations(base, tuple(text + rng.normal(0, 0.1, (2, 4, 512)).astype(np.float32) for text in base))


def head_frame(difference=(), n_texts=4, induction=True, mask="L0H1 F1", around=0):
    mean = {name: np.random.default_rng(7).random((2, 4)) for name in SCORES}
    scored = InductionScores(mean, mean, dict.fromkeys(SCORES, 10)) if induction else None
    found = {kind: attribution(seed, n_texts) for seed, kind in enumerate(KINDS)}
    nothing = tuple(np.zeros_like(each) for each in difference)
    so_far = LossesSoFar(nothing, tuple(difference), parse_mask(mask, SHAPE))
    return tables.head_frame(SHAPE, found, so_far, "full", around, scored), found


def test_head_frames_hold_the_attributions():
    frame, found = head_frame()
    for kind in KINDS:
        mean, low, high = found[kind].icl()
        for column, expected in ((kind, mean), (f"{kind} low", low), (f"{kind} high", high)):
            assert frame[column].to_numpy() == pytest.approx(expected.ravel(), abs=1e-5)
        excludes_0 = ((low > 0) | (high < 0)).ravel()
        assert not (frame[f"{kind} clear"] & ~excludes_0).any()
    assert frame.loc[frame["pruned"], "name"].tolist() == ["L0H1"]
    assert "before_and_after" not in frame, "nothing changes, so nothing is to be attributed"
    difference = [after - before for before, after in zip(losses(0), losses(1), strict=True)]
    frame, found = head_frame(difference)
    assert frame["before_and_after"].to_numpy() == pytest.approx(found["full"].before_and_after(difference).ravel())
    assert "before_and_after" not in head_frame(difference[:3])[0], "not before all texts are measured"
    wide, _ = head_frame(around=10)
    assert not np.allclose(wide["full"], frame["full"])


def test_both_models_are_compared_on_the_same_texts():
    mask = parse_mask("L0H1", SHAPE)
    assert len(LossesSoFar(losses(0), losses(1)[:2], mask).alike.full) == 2
    assert len(LossesSoFar(losses(0), (), mask).alike.full) == 4, "none of the pruned one yet"
    assert len(LossesSoFar(losses(0), losses(0)[:2], Mask.full(SHAPE)).alike.full) == 4


def test_a_table_of_scores_by_text(tmp_path):
    full, pruned = losses(0), losses(1)
    (tmp_path / "scores.csv").write_bytes(tables.scores_csv(LossesSoFar(full, pruned[:2]), list("abcd"), 0))
    frame = pd.read_csv(tmp_path / "scores.csv")
    assert frame["full model, nats"].to_numpy() == pytest.approx([text[499] - text[49] for text in full], abs=1e-6)
    assert frame["pruned model, nats"].notna().tolist() == [True, True, False, False]


@pytest.mark.parametrize("n_texts", [1, 4])
def test_charts_are_valid_and_become_files(n_texts):
    from engine.views.pictures import to_svg

    both = {"full model": losses(0, n_texts), "pruned model": losses(1, n_texts)}
    curve, slope = tables.curves(both), tables.slopes(both)
    difference = [after - before for before, after in zip(*both.values(), strict=True)]
    frame, _ = head_frame(difference, n_texts)
    made = [charts.loss_curve(curve), charts.slope_chart(slope), charts.attribution_scatter(frame, "full")]
    made += [charts.attribution_map(frame, column, 1.0) for column in charts.TITLES]
    for chart in made:
        assert chart.datasets
        assert to_svg(chart, "title").startswith(b"<svg")


def test_the_first_view_is_opened_once():
    first = first_choices([], [], is_demo=True)
    assert first["incontext_text"] == LOG_BOOKS.name and first["incontext_heads"] == 10
    assert first_choices(["model", "precision"], [], is_demo=True) == first
    assert "incontext_heads" not in first_choices([], [], is_demo=False), "its induction heads may take long to find"
    assert first_choices([], [], is_demo=False)["incontext_order"] == first["incontext_order"]
    shared = first_choices([], ["incontext_mask"], is_demo=True)
    assert shared["incontext_text"] == LOG_BOOKS.name and "incontext_heads" not in shared, (
        "another screen has set the mask"
    )
    assert first_choices(["incontext_around"], [], is_demo=True) == {} == first_choices([], [*first], is_demo=True)


def test_the_finding_says_what_the_intervals_allow():
    def mean(value, reach, n=8):
        return MeanOverTexts(value, value - reach, value + reach, n)

    def found(pruned, change):
        return tables.finding(mean(1.5, 0.5), mean(pruned, 0.2), mean(change, 0.3), "4 heads")

    assert found(-0.6, -2.1) == (
        "**Without 4 heads, the in-context gain falls from 1.50 to −0.60 nats** (95% interval of the change "
        "−2.40 to −1.80, 8 texts)."
    )
    assert found(1.4, -0.1).startswith("**Without 4 heads, the in-context gain does not clearly change: from 1.50 to")
    full = tables.finding(mean(1.5, 0.5), None, None, "")
    assert full.startswith("Late tokens are predicted **1.50 nats better** than early ones (95% interval +1.00 to")


def test_losses_that_take_long_wait_for_a_click(open_screen, monkeypatch):
    monkeypatch.setattr(setting, "OPERATIONS_PER_S", 1.0)  # without a forecast, the size of the model decides
    at = open_screen(incontext_texts="2")
    assert "Not measured yet" in said(at) and not values(at) and not frames_of(at)
    assert not any(label.startswith("Ablate") for label in labels(at)), "nothing that takes longer"
    at = press(at, "Measure the losses")
    assert values(at)[0] != "–" and frames_of(at) and "Measure the losses" not in labels(at)
    at = press(open_screen(incontext_texts="4"), "Measure 3 texts")
    assert at.number_input(key="incontext_texts").value == 3 and values(at)[0] != "–"


@pytest.mark.parametrize("takes_s, is_long", [(9.0, False), (11.0, True), (None, False)])
def test_the_forecast_decides_what_takes_long(wide_opt, store, takes_s, is_long):
    target = Session(store).target(LoadSpec(str(wide_opt), "fp32"))
    x = setting.InContextControls(target, None, LOG_BOOKS, ("a", "b"), None)
    assert setting.is_long(x, takes_s, 10.0) == is_long
    many = replace(x, texts=("a",) * 24)
    assert [setting.fewer_texts(many, seconds, 10.0) for seconds in (None, 30.0, 79.0, 100.0)] == [12, 6, 3, 3]
