"""The Continue screen in one process: what both models say is what the engine measures, whatever the prompt holds."""

from functools import partial

import numpy as np
import pytest

from engine.models.loading import LoadSpec
from engine.models.masks import Mask, parse_mask
from engine.progress import final
from engine.shapes import ModelShape
from engine.texts.continuation import Continuation, How, NextTokens, continuation, next_tokens
from engine.views.pictures import to_svg
from engine.views.view import BREAKS
from pages.ui.continuation import charts, sections
from pages.ui.controls.pruning import by_importance
from pages.ui.page import runtime
from tests.pages.conftest import components, frames_of, printed_by_the_program, same_on_the_command_line, settled, slide

PROMPT = "One two three, one two"


def test_of_equally_likely_tokens_the_one_that_was_said_is_first():
    found = NextTokens(np.array([5, 6]), (" Elmore", " Norwood"), np.log([[0.4, 0.4], [0.1, 0.1]]))
    said = Continuation(np.array([6]), np.log([0.1]), (" Norwood",))
    ranks = sections.next_frame(found, (None, said))
    assert ranks["rank"].tolist() == [1, 2, 2, 1] and sections.next_frame(found)["rank"].tolist() == [1, 2, 1, 2]


@pytest.fixture
def open_screen(open_app):
    defaults = {"continue_prompt": PROMPT, "continue_order": "random", "continue_heads": "50"}
    return partial(open_app, "continuation", **defaults, continue_tokens="6")


def said(at):
    """What the two components were sent, by model."""
    return {data["who"]: data for data in components(at) if "prompt" in data}


def test_both_models_continue_and_the_command_and_the_program_agree(
    open_screen, tiny_opt, capsys, monkeypatch, tmp_path
):
    at = open_screen()
    found = said(at)
    assert [data["prompt"] for data in found.values()] == [PROMPT] * 2
    monkeypatch.chdir(tmp_path)
    result = same_on_the_command_line(at, capsys)
    assert result["cached"], "the page and the command line must share their results"
    texts = {"Full model": result["said"]["full"], "Pruned model": result["said"]["masked"]}
    assert {who: "".join(data["pieces"]) for who, data in found.items()} == texts
    assert f"masked  {texts['Pruned model'].translate(BREAKS)}".rstrip() in printed_by_the_program(at).splitlines()
    target = runtime.session().target(LoadSpec(str(tiny_opt), "fp32"))
    masks = [Mask.full(target.shape), parse_mask(result["mask"], target.shape)]
    assert masks[1].n_heads_pruned == 4
    for mask, data in zip(masks, found.values(), strict=True):
        alone = final(continuation(target, PROMPT, mask, How(6)).run(runtime.session()))
        assert data["pieces"] == list(alone.pieces) and len(data["p"]) == 6
    likeliest = final(next_tokens(target, PROMPT, masks).run(runtime.session()))
    for row, frames in zip(likeliest.log_p, frames_of(at), strict=True):
        p = dict(zip(likeliest.token_ids.tolist(), np.exp(row.astype(float)), strict=True))
        drawn = frames["tokens"]
        np.testing.assert_allclose(drawn["p"], [p[token] for token in drawn["token_id"]], rtol=1e-6)
        assert len(drawn) == min(len(p), sections.N_DRAWN)


def test_draws_are_in_the_address_and_repeat(open_screen):
    words = {"continue_by": "T 1", "continue_seed": "7"}
    at, again, other = (open_screen(**words | more) for more in ({}, {}, {"continue_seed": "8"}))
    assert said(at) == said(again) != said(other)
    assert "--temperature 1 --seed 7" in at.code[0].value and not at.number_input(key="continue_seed").disabled


def test_with_nothing_pruned_there_is_one_model(open_screen):
    at = settled(slide(open_screen(), "continue_heads", 0))
    assert list(said(at)) == ["Full model"] and "Nothing is pruned" in at.info[0].value
    assert "--mask" not in at.code[0].value


@pytest.mark.parametrize("prompt", ["   ", "<script>alert(1)</script> ** $x$ `a` \u202e"])
def test_any_prompt_gives_a_line_or_is_shown_as_it_stands(open_screen, prompt):
    at = open_screen(continue_prompt=prompt)
    if prompt.strip():
        assert said(at)["Full model"]["prompt"] == prompt and not at.error
    else:
        assert "the prompt is empty" in at.error[0].value and "\n" not in at.error[0].value


def test_the_screen_opens_pruned(open_app):
    at = open_app("continuation", model="demo")
    assert at.number_input(key="continue_heads").value == 10
    assert at.selectbox(key="continue_order").value == "induction-first"
    assert "Heads pruned, induction-first" in [each.get("label") for each in components(at)]
    assert at.selectbox(key="continue_task").disabled, "no head goes by importance"
    assert "--mask L" in at.code[0].value.replace("'", "")


@pytest.mark.parametrize(
    "ranking, ffns, used",
    [("importance", 0, True), ("random", 500, False), ("induction-first", 0, False), ("induction-first", 100, True)],
)
def test_a_task_is_asked_for_where_something_goes_by_it(ranking, ffns, used):
    assert by_importance(ranking, ffns) == used


def test_tokens_are_to_be_read_and_each_has_a_bar_of_its_own():
    found = NextTokens(np.array([5, 6, 7]), (" a", "\n", "\ufffd"), np.log([[0.7, 0.2, 0.0005], [0.1, 0.5, 0.1]]))
    frame = sections.next_frame(found)
    assert frame["token"].tolist() == ["␣a", "↵", "\ufffd"] * 2
    assert frame["said"].tolist() == ["70.0%", "20.0%", "< 0.1%", "10.0%", "50.0%", "10.0%"]
    alike = NextTokens(np.array([5, 6]), ("\ufffd", "\ufffd"), np.log([[0.7, 0.2]]))
    assert sections.next_frame(alike)["token"].tolist() == ["\ufffd (5)", "\ufffd (6)"]
    picture = charts.next_bars(frame, charts.PRUNED)
    assert {row["token"]: row["p"] for row in picture.datasets["tokens"]} == pytest.approx(
        {"␣a": 0.1, "↵": 0.5, "\ufffd": 0.1}
    )
    assert b"<svg" in to_svg(picture, "Next token")


@pytest.mark.parametrize("strings, p, words", [
    (("R", "."), [[0.06, 0.022], [0.005, 0.08]], "`R` falls from 6.0% to 0.5%; now likeliest: `.`, 8.0%"),
    (("a",), [[0.9], [0.90001]], "`a` stays at 90.0%"),
    (("\ufffd", "a"), [[0.07, 0.06], [0.0005, 0.02]],
     "a part of a character falls from 7.0% to < 0.1%; now likeliest: `a`, 2.0%"),
])  # fmt: skip
def test_the_finding_is_of_the_full_models_likeliest_token_and_says_when_another_takes_its_place(strings, p, words):
    frame = sections.next_frame(NextTokens(np.arange(len(strings)), strings, np.log(p)))
    mask = parse_mask("L0H0", ModelShape(2, 2, 4, 8, 4, 16, 32, 16))
    assert sections.finding(frame, mask) == f"Without 1 head, {words}"
