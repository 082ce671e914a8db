"""The Passage screen in one process: what it shows of a text is what the engine measures, whoever brought the text."""

import re
import shlex
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from engine.demo import passages
from engine.models.loading import LoadSpec
from engine.models.masks import parse_mask
from engine.texts import passages as kept
from engine.texts.tokenloss import TokenLosses, token_losses
from pages.ui.figures.token_text import component_data
from pages.ui.page import runtime
from pages.ui.passage import tables
from tests.embedded import heads_at
from tests.pages.conftest import (
    components,
    labels,
    press,
    printed_by_the_program,
    same_on_the_command_line,
    settled,
    slide,
)

TITLE = "Privet Drive, twice"
HOSTILE = (
    "<script>alert(1)</script> <img src=x onerror=alert(2)> & ** $x^2$ \u202eright to left\u202c مرحبا 👩‍👩‍👧\n\n\tend"
)


@pytest.fixture
def open_screen(open_app):
    return partial(open_app, "passage", passage_text=TITLE, passage_order="random", passage_heads="0")


def shown(at):
    """What the component was sent."""
    [data] = [data for data in components(at) if "pieces" in data]
    return data


def summary(at):
    return next(text.value for text in at.main.markdown if text.value.startswith("Mean loss"))


def finding(at):
    return next(text.value for text in at.main.markdown if re.match(r"\*\*(Without|From A to B)", text.value))


def measured(model, text, mask="", precision="fp32"):
    """The engine's own losses."""
    target = runtime.session().target(LoadSpec(str(model), precision))
    *_, last = token_losses(target, text, parse_mask(mask, target.shape)).run(runtime.session())
    return last.value


def test_the_whole_text_is_shown_with_the_losses_of_the_full_model(open_screen, tiny_opt):
    at = open_screen()
    data, text = shown(at), next(passage.text for passage in passages() if passage.title == TITLE)
    found = measured(tiny_opt, text)
    assert "".join(data["pieces"]) == text and data["n_total"] == len(found) == len(data["ids"])
    np.testing.assert_allclose([x for x in data["loss"]["a"] if x is not None],
                               found.loss_nats[np.isfinite(found.loss_nats)], atol=1e-4)  # fmt: skip
    assert data["view"] == "A" and "are the same model" in data["note"]
    assert f"A **{np.nanmean(found.loss_nats):.3f}**" in summary(at)
    best = [data["strings"][str(ids[0])] for ids in data["likely"]["a"]]
    assert best[3] == found.strings[int(found.top_ids[3, 0])]
    assert data["p"]["a"][3][0] == pytest.approx(float(np.exp(found.top_log_p[3, 0])), abs=1e-4)


def test_a_moved_slider_gives_b_and_the_command_and_the_program_agree(
    open_screen, tiny_opt, capsys, monkeypatch, tmp_path
):
    at = open_screen()
    slide(at, "passage_heads", 50)
    settled(at)
    data = shown(at)
    assert data["view"] == "B − A" and data["full"] == 4 and data["note"] == ""
    monkeypatch.chdir(tmp_path)
    result = same_on_the_command_line(at, capsys)
    assert result["cached"], "the page and the command line must share their results"
    assert f"B **{result['loss_masked_nats']:.3f}**" in summary(at) and "4 of 8 heads," in finding(at)
    text = next(passage.text for passage in passages() if passage.title == TITLE)
    found = measured(tiny_opt, text, result["mask"])
    np.testing.assert_allclose(data["loss"]["b"][1:], found.loss_nats[1:], atol=1e-4)
    assert data["rank"]["b"] == found.rank.tolist()
    nats = re.search(r"from ([\d.]+) to ([\d.]+), over", printed_by_the_program(at)).groups()
    assert all(f"**{float(each):.3f}**" in summary(at) for each in nats)
    assert not at.dataframe and not at.get("vega_lite_chart"), "chart and tables are drawn when they are opened"
    at.session_state["passage_more"] = True
    settled(at)
    assert [len(table.value) for table in at.dataframe] == [10, 10]
    assert "B is worse on" in at.get("vega_lite_chart")[0].proto.alt
    other = shown(open_screen(passage_heads="50", precision="bf16"))
    assert other["loss"] != data["loss"] and other["text_key"] == data["text_key"], "other numbers, the same text"


@pytest.mark.parametrize(
    "parameters, expected",
    [
        ({"passage_a_mask": "L1H*"}, ["--base-mask 'L1H*'", "--mask L0H0"]),
        ({"against": "bf16"}, ["--other-precision fp32"]),
    ],
)
def test_what_a_is(open_screen, capsys, monkeypatch, tmp_path, parameters, expected):
    at = open_screen(passage_mask="L0H0", **parameters)
    assert all(words in at.code[0].value for words in expected)
    monkeypatch.chdir(tmp_path)
    result = same_on_the_command_line(at, capsys)
    assert result["cached"]
    assert f"A **{result['loss_full_nats']:.3f}**, of B **{result['loss_masked_nats']:.3f}**" in summary(at)
    assert "without them" not in summary(at)
    assert finding(at).startswith("**From A to B, "), "A and B differ in more than what B lacks"


def test_a_model_with_another_tokenizer_leaves_the_view_of_the_first_alone(open_screen):
    one = open_screen(passage_heads="50")
    both = open_screen(passage_heads="50", against="demo")
    [note] = [each.value for each in both.info]
    assert note.startswith("demo in fp32 has another tokenizer: ") and not both.error
    assert {**shown(both), "name": ""} == {**shown(one), "name": ""}, "the same losses of the same two"
    assert summary(both) == summary(one) and finding(both) == finding(one) and not one.info


def test_the_colours_before_stay_while_b_is_measured(open_screen, gate):
    at = open_screen(passage_heads="25")
    old = shown(at)
    gate.occupy()
    slide(at, "passage_heads", 75).run()
    data = shown(at)
    assert data["loss"] == old["loss"] and "previous levels" in data["note"]
    assert data["text_key"] == old["text_key"], "the text must not be set again"
    assert "waiting" in at.progress[0].text and "2 of 8 heads," in finding(at)
    gate.go_on.set()
    settled(at)
    assert shown(at)["loss"]["a"] == old["loss"]["a"] and shown(at)["loss"]["b"] != old["loss"]["b"]
    assert "6 of 8 heads," in finding(at)


def test_the_button_prunes_the_induction_heads_unless_they_are_pruned_already(open_screen):
    def is_offered(at):
        return "Prune the induction heads" in labels(at)

    at = open_screen(model="demo", passage_order="induction-first", passage_heads="10")
    assert not is_offered(at)
    words = shlex.split(at.code[0].value)
    best = words[words.index("--mask") + 1]
    assert not is_offered(open_screen(model="demo", passage_mask=best)), "named, they are pruned too"
    kept = f"keep {best.split()[0]}"
    at = open_screen(model="demo", passage_order="induction-first", passage_heads="10", passage_mask=kept)
    assert is_offered(at), "an edit keeps one of them"
    at = open_screen(model="demo")
    assert is_offered(at)
    at.button(key="passage example").click()
    assert not is_offered(settled(at))


def test_a_ranking_by_importance_is_measured_on_the_way_and_a_wrong_mask_is_one_line(open_screen, questions):
    at = open_screen(passage_order="importance", passage_task=str(questions), passage_heads="50", passage_ffns="50")
    assert "Without 4 of 8 heads and 1 of 2 FFNs," in finding(at)
    at.text_input(key="passage_mask").set_value("L9H0").run()
    assert [error.value for error in at.error] == ["mask term 'L9H0': this model has layers 0 to 1; choose within that"]


def test_a_long_text_is_shown_in_parts(open_screen, monkeypatch):
    monkeypatch.setattr(tables, "PART_TOKENS", 100)
    at = open_screen(passage_mask="L0H0")
    first = shown(at)
    assert len(first["pieces"]) == 100 and first["n_total"] > 200
    n_parts = tables.n_parts(first["n_total"])
    assert any(f"Part 1 of {n_parts}: tokens 1 to 100" in caption.value for caption in at.caption)
    at.session_state[f"passage_part_{n_parts}"] = 2
    settled(at)
    second = shown(at)
    assert second["start"] == 100 and second["pieces"] != first["pieces"]
    assert max(second["same_before"]) > 0 and summary(at), "what lies in earlier parts is counted"


def paste(at, text):
    at.text_area(key="passage_text_pasted").set_value(text)
    return press(at, "Use the pasted text")


def test_a_pasted_text_is_measured_remembered_and_forgotten(open_screen):
    at = paste(open_screen(), HOSTILE)
    assert "".join(shown(at)["pieces"]) == HOSTILE, "as text, whatever it says"
    at.selectbox(key="passage_text").set_value(TITLE)  # as a browser reports that has not drawn the new text yet
    assert "".join(shown(settled(at))["pieces"]) == HOSTILE
    assert at.selectbox(key="passage_text").value == "Pasted text" and "--text text.txt" in at.code[0].value
    assert not any("gone after a reload" in caption.value for caption in at.caption)
    at.text_input(key="passage_text_name").set_value(TITLE)
    next(button for button in at.button if button.label == "Remember").click().run()
    assert "is the title of a built-in passage" in at.error[0].value and kept.names(runtime.store()) == []
    at.text_input(key="passage_text_name").set_value("Mine <b>")
    press(at, "Remember")
    assert kept.recall("Mine <b>", runtime.store()) == HOSTILE
    again = open_screen(passage_text="Mine <b>")
    assert "".join(shown(again)["pieces"]) == HOSTILE
    press(again, "Forget this text")
    assert kept.names(runtime.store()) == [] and shown(again)["name"] == "Names that return"
    gone = open_screen(passage_text="Mine <b>")
    assert "no text named 'Mine <b>' is kept on this computer" in gone.error[0].value.replace("\\", "")
    settled(gone)
    assert not gone.error, "said once"


def test_a_link_holds_a_short_text_and_of_a_long_one_the_screen_says_that_it_does_not(open_screen):
    at = paste(open_screen(), HOSTILE)
    assert at.session_state["passage_own"] == HOSTILE and at.session_state["passage_text_menu"] is False
    again = open_screen(passage_text="Pasted text", passage_own=HOSTILE)
    assert "".join(shown(again)["pieces"]) == HOSTILE and not again.error
    at = paste(again, "a " * 751)
    assert at.session_state["passage_own"] == ""
    assert any("gone after a reload" in caption.value for caption in at.caption)
    at.selectbox(key="passage_text").set_value(TITLE)
    assert shown(settled(at))["name"] == TITLE
    bad = open_screen(passage_text="Pasted text", passage_own="null\0")
    assert shown(bad)["name"] == "Names that return", "as without a text in the address"


def test_what_cannot_be_measured_is_refused_in_one_line_and_a_loaded_file_gets_its_name(open_screen):
    at = open_screen()
    for text in ("", " \n\t ", "null\0"):
        at.text_area(key="passage_text_pasted").set_value(text)
        next(button for button in at.button if button.label == "Use the pasted text").click().run()
        assert len(at.error) == 1 and at.error[0].value.startswith("the pasted text"), repr(text)
        assert shown(at)["name"] == TITLE, "the text stays"
    for raw, line in (("näher".encode("latin-1"), "is not UTF-8 text (byte 2)"), (b"x" * 1_000_001, "1,000,001 bytes")):
        at.file_uploader(key="passage_text_loaded").set_value(("story.txt", raw, "text/plain")).run()
        assert len(at.error) == 1 and line in at.error[0].value.replace("\\", "") and "story.txt" in at.error[0].value
    at.file_uploader(key="passage_text_loaded").set_value(("story.txt", b"\xef\xbb\xbfA boat.\r\n", "text/plain"))
    settled(at)
    assert shown(at)["name"] == "story" and "".join(shown(at)["pieces"]) == "A boat.\n"


def losses(text, ends, loss, ids=None):
    n, top = len(ends), np.zeros((len(ends), 5), np.int32)
    return TokenLosses(text, n, np.array(ids if ids else range(n), np.int32), np.array(ends, np.int32),
                       np.array(loss, np.float32), np.ones(n, np.int32), top, top.astype(np.float32), {0: "a"}, 8, 4,
                       False)  # fmt: skip


def test_landmarks_are_in_their_passages():
    two = [passage for passage in passages() if passage.landmarks]
    assert len(two) >= 4
    for passage in two:
        assert ["returns" in mark.about for mark in passage.landmarks] == [True, False], passage.title
        for mark in passage.landmarks:
            at = mark.start(passage.text)
            assert passage.text[at:].startswith(mark.text) and passage.text[:at].count(mark.text) == mark.occurrence - 1


def test_a_landmark_is_the_sum_of_its_tokens():
    landmark = replace(passages()[0].landmarks[0], text="Boat", occurrence=2)
    a = losses("A Boat, a Boat.", [1, 4, 6, 7, 9, 12, 14, 15], [np.nan, 1, 2, 3, 4, 5, 6, 7])
    [mark] = tables.landmarks_of(a, replace(a, loss_nats=2 * a.loss_nats), [landmark])
    assert (mark["first"], mark["last"]) == (5, 6) and (mark["loss_a"], mark["loss_b"]) == (11, 22)
    assert (
        mark["measured"] == "A gives it < 0.1%, B < 0.1%: B predicts it worse (+11.00 nats for its 2 tokens together)."
    )
    [alone] = tables.landmarks_of(a, a, [landmark])
    assert alone["measured"] == "The model gives it < 0.1%."
    half = replace(a, **{name: getattr(a, name)[:5] for name in ("token_ids", "ends", "loss_nats")})
    assert tables.landmarks_of(half, half, [landmark]) == []


def test_the_screen_opens_pruned_and_says_what_a_file_stands_for(open_app):
    at = open_app("passage", model="demo")
    assert at.number_input(key="passage_heads").value == 10 and at.selectbox(key="passage_task").disabled
    assert at.selectbox(key="passage_order").value == "induction-first"
    assert (
        shown(at)["view"] == "B − A"
        and f"Without {heads_at(10)}, mainly repetitions get harder to predict: the mean loss rises" in finding(at)
    )
    assert summary(at).endswith("A: demo in fp32 · B: the same without them"), "what they are is said above"
    assert not [each for each in at.caption if "text.txt" in each.value]
    at = paste(at, "A boat and a boat.")
    assert "text.txt" in at.code[0].value and [each for each in at.caption if "text.txt" in each.value]


def test_what_stands_in_earlier_parts_is_counted():
    ids = np.random.default_rng(0).integers(0, 4, 60)
    a = losses("x" * 60, range(1, 61), np.ones(60), ids.tolist())
    data = component_data(a, a, range(20, 50), [])
    for at, (same, pair) in enumerate(zip(data["same_before"], data["pair_before"], strict=True), 20):
        assert same == sum(ids[j] == ids[at] for j in range(20))
        assert pair == sum((ids[j - 2 : j] == ids[at - 2 : at]).all() for j in range(2, 20))


def test_b_that_has_not_come_so_far_has_no_losses_there():
    a = losses("abcd", [1, 2, 3, 4], [np.nan, 1, 2, 3])
    names = ("token_ids", "ends", "loss_nats", "rank", "top_ids", "top_log_p")
    b = replace(a, **{name: getattr(a, name)[:2] for name in names})
    whole = tables.extended(b, a)
    assert len(whole) == 4 and np.isnan(whole.loss_nats[2:]).all() and whole.loss_nats[1] == 1
    assert component_data(a, whole, range(4), [])["loss"]["b"] == [None, 1.0, None, None]
    assert tables.means(a, b) == (1.0, 1.0, 1)


def test_a_text_of_one_token_has_no_mean():
    a = losses("a", [1], [np.nan])
    assert "no token has one" in tables.summary(a)[0]
    assert tables.finding(a, a, "1 of 8 heads") == ("", None)


TWICE = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14] * 2  # the last nine follow the same token as before


@pytest.mark.parametrize("once, again, lead, words", [
    (0.1, 2.0, "1 of 8 heads", "Without 1 of 8 heads, mainly repetitions get harder to predict: the mean loss rises "
     "from 1.00 to 2.00 nats"),
    (1.0, 1.1, "1 of 8 heads", "Without 1 of 8 heads, the mean loss rises from 1.00 to 2.05 nats"),
    (-1.0, 0.5, "1 of 8 heads", "Without 1 of 8 heads, the mean loss falls from 1.00 to 0.71 nats"),
    (0.0, 0.0, "", "From A to B, the mean loss stays at 1.00 nats"),
])  # fmt: skip
def test_the_finding_names_repetitions_only_if_they_hold_the_rise(once, again, lead, words):
    a = losses("x" * 20, range(1, 21), [np.nan, *[1.0] * 19], TWICE)
    b = replace(a, loss_nats=a.loss_nats + np.array([once] * 11 + [again] * 9, np.float32))
    said, help = tables.finding(a, b, lead)
    assert said == f"**{words}**" and (help is not None) == ("repetitions" in words)
    if help:
        assert "hold 95% of the rise" in help


def test_the_table_has_the_largest_with_what_stands_before():
    a = losses("a b\nc d", [1, 3, 4, 5, 7], [np.nan, 5, 5, 5, 5])
    table = tables.token_frame(a, replace(a, loss_nats=np.array([np.nan, 4, 8, 5, 6], np.float32)))
    worse = tables.largest(table, a.text, gains=False)
    assert worse[["token", "difference_nats", "context"]].values.tolist() == [["↵", 3, "a b"], ["␣d", 1, "a b↵c"]]
    assert tables.largest(table, a.text, gains=True)["index"].tolist() == [2]
    assert "worse on 2 of 4 tokens; most on token 3, ↵, by +3.000" in tables.in_words(table)


def test_a_text_that_another_screen_has_renamed_or_forgotten_gives_way(open_screen):
    at = paste(open_screen(), "A short one, and a short one.")
    del at.session_state["own_text"]  # as after it was remembered on another screen
    settled(at)
    assert shown(at)["name"] in {passage.title for passage in passages()}
