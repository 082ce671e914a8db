"""The Text screen, in one process, shows what the engine measures, of included texts and of the user's own."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from engine.demo import passages
from engine.heads.attention import HeadView, Overview
from engine.heads.induction import induction
from engine.models.loading import LoadSpec
from engine.models.masks import Mask, parse_mask
from engine.progress import final
from engine.texts import incontext
from engine.texts import passages as kept
from engine.texts.continuation import How, continuation
from engine.texts.passages import LOG_BOOKS
from engine.texts.tokenloss import TokenLosses, token_losses
from pages.ui.controls.texts import PAPER, PAPER_BEGINS, PAPER_SAYS
from pages.ui.downloads import actions
from pages.ui.figures.token_text import component_data, first_shown, looks_data
from pages.ui.page import runtime, work
from pages.ui.page.work import Work
from pages.ui.text import continued, sections, tables
from pages.ui.text.looks import combined
from tests.pages.conftest import (
    WAIT_S,
    command_of,
    components,
    frames_of,
    opened,
    press,
    printed_by_the_program,
    ran,
    said,
    same_on_the_command_line,
    settled,
    slide,
)

TITLE = "Privet Drive, twice"
HOSTILE = (
    "<script>alert(1)</script> <img src=x onerror=alert(2)> & ** $x^2$ \u202eright to left\u202c مرحبا 👩‍👩‍👧\n\n\tend"
)
PRUNED = {"order": "random", "heads": "50"}


@pytest.fixture
def open_screen(open_app):
    return partial(open_app, "text", text_text=TITLE, order="random")


def shown(at):
    """What the component was sent."""
    [data] = [data for data in components(at) if "text_key" in data]
    return data


def written(at):
    """How both models write on, by their names."""
    return {each["who"]: each for each in shown(at)["written"]["sides"]}


def finding(at):
    return next(text.value for text in at.main.markdown if "mean loss" in text.value.lower())


def target_of(model, precision="fp32"):
    return runtime.session().target(LoadSpec(str(model), precision))


def measured(model, text, mask="", precision="fp32"):
    """The engine's own losses."""
    target = target_of(model, precision)
    return final(token_losses(target, text, parse_mask(mask, target.shape)).run(runtime.session()))


def passage(title):
    return next(each.text for each in passages(long=True) if each.title == title)


def test_the_whole_text_is_shown_with_the_losses_of_the_full_model(open_screen, tiny_opt):
    at = open_screen()
    data, text = shown(at), passage(TITLE)
    found = measured(tiny_opt, text)
    assert "".join(data["pieces"]) == text and data["n_total"] == len(found) == len(data["ids"])
    np.testing.assert_allclose([x for x in data["loss"]["a"] if x is not None],
                               found.loss_nats[np.isfinite(found.loss_nats)], atol=1e-4)  # fmt: skip
    assert data["view"] == "loss" and "b" not in data["loss"], "nothing is pruned"
    mean = float(np.nanmean(found.loss_nats))
    likely = tables.probability(np.exp(-mean))
    assert finding(at) == f"**The right token gets {likely} on average** (mean loss {mean:.2f} nats)"
    best = [data["strings"][str(ids[0])] for ids in data["likely"]["a"]]
    assert best[3] == found.strings[int(found.top_ids[3, 0])]
    assert data["p"]["a"][3][0] == pytest.approx(float(np.exp(found.top_log_p[3, 0])), abs=1e-4)


def test_a_moved_slider_prunes_and_the_command_and_the_program_agree(
    open_screen, tiny_opt, capsys, monkeypatch, tmp_path
):
    at = settled(slide(open_screen(), "heads", 50))
    data = shown(at)
    assert data["view"] == "change" and data["full"] == 4 and data["note"].startswith("Hardest hit: ")
    monkeypatch.chdir(tmp_path)
    result = same_on_the_command_line(at, capsys)
    assert result["cached"], "the page and the command line must share their results"
    full, pruned = (tables.number(result[f"loss_{name}_nats"]) for name in ("full", "masked"))
    assert re.search(rf"Without 4 heads, .*mean loss {full} to {pruned} nats", finding(at))
    text = passage(TITLE)
    found = measured(tiny_opt, text, result["mask"])
    np.testing.assert_allclose(data["loss"]["b"][1:], found.loss_nats[1:], atol=1e-4)
    nats = re.search(r"from ([\d.]+) to ([\d.]+), over", printed_by_the_program(at)).groups()
    assert [float(each) for each in nats] == pytest.approx(
        [result["loss_full_nats"], result["loss_masked_nats"]], abs=1e-4
    )
    other = shown(open_screen(**PRUNED, precision="bf16"))
    assert other["loss"] != data["loss"] and other["text_key"] == data["text_key"], "other numbers, the same text"


def test_two_models_are_compared(open_screen, capsys, monkeypatch, tmp_path):
    at = open_screen(mask="L0H0", against="bf16")
    assert all(words in command_of(at) for words in ("--precision bf16", "--other-precision fp32", "--mask L0H0"))
    monkeypatch.chdir(tmp_path)
    result = same_on_the_command_line(at, capsys)
    assert result["cached"]
    full, pruned = (tables.number(result[f"loss_{name}_nats"]) for name in ("full", "masked"))
    assert finding(at).startswith("**From A to B, ") and (f"{full} to {pruned}" in finding(at) or full == pruned)
    assert shown(at)["words"]["a"] == "A" and "A: " in finding(at) and "B: " in finding(at)


def test_a_model_with_another_tokenizer_leaves_the_view_of_the_first_alone(open_screen):
    one = open_screen(**PRUNED)
    both = open_screen(**PRUNED, against="demo")
    [note] = [each.value for each in both.info]
    assert note.startswith("demo in fp32 has another tokenizer: ") and not both.error
    assert shown(both) == shown(one), "the same losses of the same two"
    assert finding(both) == finding(one) and not one.info


def test_the_colors_before_stay_while_the_pruned_model_is_measured(open_screen, gate):
    at = open_screen(**PRUNED | {"heads": "25"})
    old = shown(at)
    gate.occupy()
    slide(at, "heads", 75).run()
    data = shown(at)
    assert data["loss"] == old["loss"] and "previous setting" in data["note"]
    assert data["text_key"] == old["text_key"], "the text must not be set again"
    assert "waiting" in at.progress[0].text and "2 heads," in finding(at)
    gate.go_on.set()
    settled(at)
    assert shown(at)["loss"]["a"] == old["loss"]["a"] and shown(at)["loss"]["b"] != old["loss"]["b"]
    assert "6 heads," in finding(at)


def test_a_button_prunes_the_induction_heads_and_nothing_else(open_screen):
    at = press(open_screen(model="demo", heads="20", mask="F0"), "Prune the induction heads")
    assert "--mask 'L1H1-3 L3H5'" in command_of(at) and at.session_state["order"] == "random"
    assert "**Without the 4 induction heads, the right token is " in finding(at) and "on repetitions" in finding(at)
    assert "mean loss" in finding(at) and "--mask" not in command_of(press(at, "Restore"))


def test_a_ranking_by_importance_is_measured_on_the_way_and_a_wrong_mask_is_one_line(open_screen, questions):
    at = open_screen(order="importance", task=str(questions), heads="50", ffns="50")
    assert "Without 4 heads and 1 FFN," in finding(at)
    at = open_screen(mask="L9H0")
    assert [error.value for error in at.error] == ["mask term 'L9H0': this model has layers 0 to 1; choose within that"]


def test_a_long_text_is_shown_in_parts(open_screen, monkeypatch):
    monkeypatch.setattr(tables, "PART_TOKENS", 100)
    at = open_screen(mask="L0H0")
    first, before = shown(at), finding(at)
    assert len(first["pieces"]) == 100 and first["n_total"] > 200
    n_parts = tables.n_parts(first["n_total"])
    assert any(f"Part 1 of {n_parts}: tokens 1 to 100" in caption.value for caption in at.caption)
    at.session_state[f"text_part_{n_parts}"] = 2
    settled(at)
    second = shown(at)
    assert second["start"] == 100 and second["pieces"] != first["pieces"]
    assert finding(at) == before, "of the whole text"


# ---- texts of the user


def paste(at, text):
    at.text_area(key="text_text_pasted").set_value(text)
    return press(at, "Use the pasted text")


def test_a_pasted_text_is_measured_remembered_and_forgotten(open_screen):
    at = paste(open_screen(), HOSTILE)
    assert "".join(shown(at)["pieces"]) == HOSTILE, "as text, whatever it says"
    at.selectbox(key="text_text").set_value(TITLE)  # as a browser reports that has not drawn the new text yet
    assert "".join(shown(settled(at))["pieces"]) == HOSTILE
    assert at.selectbox(key="text_text").value == "Pasted text" and "--text text.txt" in command_of(at)
    assert [each for each in opened(at, actions.EXPORT).code if "# text.txt: " in each.value]
    assert not any("gone after a reload" in caption.value for caption in at.caption)
    at.text_input(key="text_text_name").set_value(TITLE)
    next(button for button in at.button if button.label == "Remember").click().run()
    assert "is the title of a built-in passage" in at.error[0].value and kept.names(runtime.store()) == []
    at.text_input(key="text_text_name").set_value("Mine <b>")
    press(at, "Remember")
    assert kept.recall("Mine <b>", runtime.store()) == HOSTILE
    again = open_screen(text_text="Mine <b>")
    assert "".join(shown(again)["pieces"]) == HOSTILE
    press(again, "Forget this text")
    assert kept.names(runtime.store()) == [] and shown(again)["name"] == "Names that return"
    gone = open_screen(text_text="Mine <b>")
    assert "no text named 'Mine <b>' is kept on this computer" in gone.error[0].value.replace("\\", "")
    settled(gone)
    assert not gone.error, "said once"


def test_a_link_holds_a_short_text_and_of_a_long_one_the_screen_says_that_it_does_not(open_screen):
    at = paste(open_screen(), HOSTILE)
    assert at.session_state["text_own"] == HOSTILE and at.session_state["text_text_menu_1"] is False
    again = open_screen(text_text="Pasted text", text_own=HOSTILE)
    assert "".join(shown(again)["pieces"]) == HOSTILE and not again.error
    at = paste(again, "a " * 751)
    assert at.session_state["text_own"] == ""
    assert any("gone after a reload" in caption.value for caption in at.caption)
    at.selectbox(key="text_text").set_value(TITLE)
    assert shown(settled(at))["name"] == TITLE
    bad = open_screen(text_text="Pasted text", text_own="null\0")
    assert shown(bad)["name"] == "Names that return", "as without a text in the address"


def test_what_cannot_be_measured_is_refused_in_one_line_and_a_loaded_file_gets_its_name(open_screen):
    at = open_screen()
    for text in ("", " \n\t ", "null\0"):
        at.text_area(key="text_text_pasted").set_value(text)
        next(button for button in at.button if button.label == "Use the pasted text").click().run()
        assert len(at.error) == 1 and at.error[0].value.startswith("the pasted text"), repr(text)
        assert shown(at)["name"] == TITLE, "the text stays"
    at.file_uploader(key="text_text_loaded").set_value(("story.txt", b"x" * 1_000_001, "text/plain")).run()
    assert (
        len(at.error) == 1
        and "1,000,001 bytes" in at.error[0].value
        and "story.txt" in at.error[0].value.replace("\\", "")
    )
    at.file_uploader(key="text_text_loaded").set_value(("story.md", b"\xef\xbb\xbfA boat.\r\n", "text/plain"))
    settled(at)
    assert shown(at)["name"] == "story" and "".join(shown(at)["pieces"]) == "A boat.\n"
    russian = "Однажды весною, в час небывало жаркого заката, в Москве, на Патриарших прудах, появились два гражданина."
    at.file_uploader(key="text_text_loaded").set_value(("other.txt", russian.encode("cp1251"), "text/plain")).run()
    assert any("was read as cp1251, a guess" in each.value for each in at.caption)
    assert "".join(shown(settled(at))["pieces"]) == russian


def test_the_passage_of_the_paper_is_known_by_its_beginning_and_kept_with_the_papers_reading(open_screen):
    at = open_screen()
    assert PAPER_SAYS not in said(at)
    at = paste(at, f"{PAPER_BEGINS}, and so on.")
    assert shown(at)["name"] == PAPER and PAPER_SAYS in said(at)
    assert shown(open_screen(text_text=PAPER))["name"] == PAPER


def test_a_text_that_another_screen_has_renamed_or_forgotten_gives_way(open_screen):
    at = paste(open_screen(), "A short one, and a short one.")
    del at.session_state["own_text"]  # as after it was remembered on another screen
    settled(at)
    assert shown(at)["name"] in {each.title for each in passages()}


# ---- where the heads look


def a_view(n, seed=0):
    rng = np.random.default_rng(seed)
    scores = np.where(np.tri(n, dtype=bool), rng.normal(size=(n, n)) * 3, -np.inf)
    pattern = np.exp(scores - scores.max(1, keepdims=True))
    raised = np.tril(rng.normal(size=(n, n))).astype(np.float32)
    return HeadView((pattern / pattern.sum(1, keepdims=True)).astype(np.float32), raised)


def an_overview(pieces, seed=0):
    rng, n = np.random.default_rng(seed), len(pieces)
    ends = np.cumsum([len(piece) for piece in pieces[1:]])
    return Overview("".join(pieces[1:]), np.arange(n), ends, 0, *(rng.random(n) for _ in range(6)))


def test_a_token_is_predicted_from_the_token_before_it():
    seen, view = an_overview(["⟨bos⟩", "a", "b", "c"]), a_view(4)
    found = looks_data("L1H0", seen, view, range(1, 3))
    assert found["first"] == 1 and len(found["at"]) == 2
    by_source = {source: (share, nats, piece) for source, share, nats, piece in found["at"][1]}
    assert [*by_source] == sorted(by_source, key=lambda source: -by_source[source][0])
    for source, (share, nats, piece) in by_source.items():
        assert share == pytest.approx(view.pattern[2, source + 1], abs=1e-3), "of c, from b, which is in row 2"
        assert nats == pytest.approx(view.raised_nats[2, source + 1], abs=0.01)
        assert piece == ["⟨bos⟩", "a", "b"][source + 1]


def test_several_heads_are_the_mean_of_patterns_and_the_sum_of_nats():
    views = [a_view(9, seed) for seed in range(3)]
    both = combined(views)
    assert np.allclose(both.pattern[5], [np.mean([view.pattern[5, s] for view in views]) for s in range(9)])
    assert both.raised_nats[7, 2] == pytest.approx(sum(view.raised_nats[7, 2] for view in views), abs=1e-5)


def test_attention_shades_the_text_and_the_command_and_the_program_agree(open_screen, tmp_path, capsys):
    at = open_screen(text_head="L1H0,L0H3", text_text="Pattern labels", text_shade="Attention", mask="L0H1")
    data = shown(at)
    assert data["view"] == "attention" and data["looks"]["heads"] == "L1H0, L0H3 (full model)"
    number = next(k for k, line in enumerate(command_of(at).splitlines()) if " attention " in line)
    assert same_on_the_command_line(at, capsys, number, out=tmp_path / "attention.csv")["cached"]
    written = pd.read_csv(tmp_path / "attention.csv")
    n, first = len(data["pieces"]), data["looks"]["first"]
    true = np.zeros((2, n + first, n + first))
    for k, head in enumerate(("L1H0", "L0H3")):
        rows = written[written["head"] == head]
        true[k][rows["destination"], rows["source"]] = rows["attention"]
    for token, looks in enumerate(data["looks"]["at"]):
        for source, share, _, _ in looks:
            assert share == pytest.approx(true.mean(0)[token + first - 1, source + first], abs=1e-3)
    printed = printed_by_the_program(at)
    share = re.search(r"L1H0 and L0H3 give .*?(\d+)% (?:of attention )?to the first token", printed)[1]
    assert float(share) == pytest.approx(100 * true.mean(0)[1:, 0].mean(), abs=0.6)


def test_the_best_induction_head_is_chosen_by_itself_and_keys_turn_to_the_next(measures_ahead, open_screen, tiny_opt):
    at = settled(open_screen())
    best = np.argmax(induction(target_of(tiny_opt)).stored(runtime.session()).mean["prefix_matching"])
    assert shown(at)["looks"]["heads"] == "L{}H{}".format(*divmod(int(best), 4))
    at.session_state["text_head"] = "L0H3"
    assert shown(settled(at))["looks"]["heads"] == "L0H3"


def test_the_page_watches_induction_scores_that_end_in_the_run_that_starts_them(open_screen, monkeypatch):
    start, live, watched = Work.start, work.live, []

    def start_and_end(of, again=False):
        start(of, again)
        runtime.jobs().join(of.slot, WAIT_S)
        return of.now()

    def noted(slots, *rest, **more):
        watched.append([*slots])
        live(slots, *rest, **more)

    monkeypatch.setattr(Work, "start", start_and_end)
    monkeypatch.setattr(work, "live", noted)
    at = ran(open_screen(run=False))
    assert watched[0] == ["text induction"], "this run has drawn the list of heads without them"
    assert at.selectbox(key="text_head").placeholder != "…"


def test_where_heads_look_is_measured_of_a_model_that_was_never_timed(with_shipped, measures_ahead, open_app):
    assert shown(settled(open_app("text", model="demo", precision="int8")))["looks"]["at"]


def test_the_head_that_is_looked_at_is_pruned_alone(open_screen):
    at = press(open_screen(text_head="L1H3", heads="50", mask="F0"), "Prune only this one")
    assert "--mask L1H3 " in command_of(at) and "Without L1H3, " in finding(at)


def test_one_induction_head_is_named(open_screen, with_shipped):
    at = open_screen(model="demo", precision="int8", mask="L1H2")
    assert "Without L1H2, an induction head, the right token is" in finding(at)
    assert shown(at)["note"] == "3 other induction heads are left: they can copy too."
    both = open_screen(model="demo", precision="int8", mask="L1H2 F7")
    assert "Without 1 induction head and 1 FFN, " in finding(both)


def test_a_bad_head_in_the_address_gets_one_plain_line(open_screen):
    at = open_screen(text_head="<img src=x onerror=alert(1)>")
    assert len(at.error) == 1 and "\n" not in at.error[0].value


def test_a_long_text_has_looks_as_far_as_the_window_reaches(open_screen):
    at = open_screen(text_text="The ferry", text_shade="Attention", text_head="L0H0")
    data = shown(at)
    assert len(data["looks"]["at"]) == 256 - data["looks"]["first"] < len(data["pieces"])


# ---- below the text


def test_the_in_context_gain_is_that_of_the_command_and_the_program(
    measures_ahead, open_app, wide_opt, capsys, tmp_path
):
    at = open_app("text", model=str(wide_opt), text_text="The ferry", **PRUNED)
    lines = command_of(at).splitlines()
    number = next(k for k, line in enumerate(lines) if f"--texts {sections.N_WINDOWS}" in line)
    assert "--average-tokens 10" in lines[number]
    found = same_on_the_command_line(at, capsys, number, out=tmp_path / "out.csv")
    assert found["cached"]
    assert found["icl_score"]["full"]["n"] == 5
    full, pruned = (tables.number(-found["icl_score"][name]["nats"]) for name in ("full", "masked"))
    says = next(each.value for each in at.main.markdown if "in-context gain" in each.value)
    assert f"from {full} to {pruned} nats" in says, "the gain is the score, more is better"
    low, high = (tables.number(-end, sign=True) for end in reversed(found["icl_score"]["change"]["ci95"]))
    assert f"(95% {low} to {high})" in says
    printed = re.findall(r"\nfull +([-+][\d.]+)", printed_by_the_program(at))
    assert full == tables.number(float(printed[-1])), "of the windows"
    [curve] = [frames["rows"] for frames in frames_of(at) if "mean" in frames["rows"]]
    assert set(curve["model"]) == {"full model", "pruned model"} and curve["first"].min() >= 10


def test_the_gain_that_the_induction_heads_make(open_app, with_shipped, measures_ahead):
    """The embedded model, and what the engine itself finds of the same windows."""
    at = open_app("text", model="demo", text_text=LOG_BOOKS.name, mask="L1H1-3 L3H5")
    target, session = target_of("demo"), runtime.session()
    texts = final(kept.texts_of(target, LOG_BOOKS).run(session))
    full, pruned = Mask.full(target.shape), parse_mask("L1H1 L1H2 L1H3 L3H5", target.shape)
    both = [[token_losses(target, text, mask).stored(session).loss_nats for text in texts] for mask in (full, pruned)]
    before, after = (incontext.icl_score(losses, sections.AROUND) for losses in both)
    assert before.high < -0.5 and after.low > 0
    moves = f"falls from {tables.number(-before.value)} to {tables.number(-after.value)} nats**"
    assert f"**The in-context gain {moves}" in said(at)


UNFINISHED = {"text_text": "Pasted text", "text_own": "The boat was blue. The boat was"}
FINISHED = UNFINISHED | {"text_own": "The boat was blue. The boat was old."}


@pytest.mark.parametrize("where", [{}, {"text_token": "40"}, FINISHED, UNFINISHED, UNFINISHED | {"text_token": "5"}])
def test_both_models_write_on_from_a_token_or_after_an_unfinished_text(measures_ahead, open_screen, tiny_opt, where):
    at = open_screen(**PRUNED | where)
    data, mask = shown(at), re.search(r"--mask '?([^'\n]*?)'? --", command_of(at))[1]
    shown_first = best_repetition(data)
    assert data["first_shown"] == shown_first
    at_end = len(data["pieces"]) if where == UNFINISHED else shown_first
    n = int(where["text_token"]) - 1 if "text_token" in where else at_end
    prompt, target = "".join(data["pieces"][:n]), target_of(tiny_opt)
    for name, each in (("Full model", ""), ("Pruned model", mask)):
        how = How(continued.WRITTEN)
        found = final(continuation(target, prompt, parse_mask(each, target.shape), how).run(runtime.session()))
        assert written(at)[name]["pieces"] == list(found.pieces)
    assert data["written"]["after"] == " ".join(prompt.split()[-3:])


def best_repetition(data):
    """The first of the first 150 tokens that is predicted best compared with where it and the token before it occurred
    first; else the one that changes most."""
    ids, a, b = (each[:150] for each in (data["ids"], data["loss"]["a"], data["loss"]["b"]))
    gains, changes = [0.0] * len(ids), [0.0] * len(ids)
    for at in range(1, len(ids)):
        first = next(k for k in range(1, at + 1) if ids[k - 1 : k + 1] == ids[at - 1 : at + 1])
        if a[first] is not None and a[at] is not None:
            gains[at], changes[at] = a[first] - a[at], abs(b[at] - a[at])
    best = [gain if loss is not None and loss < np.log(2) else gain / 1e3 for gain, loss in zip(gains, a, strict=True)]
    return best.index(max(best)) if max(gains) > 1 else changes.index(max(changes))


def test_the_token_shown_first_repeats_another_whatever_is_pruned():
    ids, full = [1, 2, 3, 1, 2, 4, 2], [None, 6.0, 1.0, 9.0, 0.5, 8.0, 0.1]
    for loss in ({"a": full}, {"a": full, "b": [None, 6.0, 9.0, 9.0, 0.5, 8.0, 0.1]}):
        assert first_shown({"ids": ids, "loss": loss}) == 4, "of 2 after 1, not after 4"
    known = {"ids": [1, 2, 1, 2, 3, 4, 3, 4], "loss": {"a": [None, 9.0, 9.0, 3.0, 9.0, 3.0, 9.0, 0.5]}}
    assert first_shown(known) == 7, "predicted, not merely less unlikely"
    assert first_shown({"ids": [1, 2, 3], "loss": {"a": full[:3]}}) == 1, "of the largest loss"
    assert first_shown({"ids": [1, 2, 3], "loss": {"a": full[:3], "b": [None, 6.0, 9.0]}}) == 2, "of the largest change"
    assert first_shown({"ids": [1], "loss": {"a": [None]}}) is None


def test_with_nothing_pruned_one_model_writes_on(measures_ahead, open_screen):
    assert [*written(open_screen())] == ["Full model"]


def test_the_lens_is_of_the_locked_token(open_screen):
    at = open_screen(section_logit_lens="true", mask="L0H* F1", text_token="12")
    [lens] = [frames["rows"] for frames in frames_of(at) if "guess" in frames["rows"]]
    assert set(lens["model"]) == {"full model", "pruned model"}
    last = lens[lens["layers"] == lens["layers"].max()].set_index("model")["p"]
    data = shown(at)
    for side, name in (("a", "full model"), ("b", "pruned model")):
        assert last[name] == pytest.approx(np.exp(-data["loss"][side][11]), rel=1e-3), "the last layer is the model"


def test_losses_are_listed_token_by_token(open_screen):
    at = open_screen(mask="L0H0", text_tokens="true")
    table = at.dataframe[-1].value
    letters = [re.sub(r"^\W+|\W+$", "", token) for token in table["token"]]
    assert all(part in word for part, word in zip(letters, table["word"], strict=True)) and any(letters)
    assert table["change_nats"].abs().dropna().is_monotonic_decreasing and len(table) == shown(at)["n_total"]


# ---- tables


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
    assert (mark["first"], mark["last"]) == (5, 6) and (mark["loss_full"], mark["loss_pruned"]) == (11, 22)
    of_both = "The full model gives it 0.002%, the pruned one < 0.0001%: worse (+11.00 nats for its 2 tokens together)."
    assert mark["measured"] == of_both
    [alone] = tables.landmarks_of(a, None, [landmark])
    assert alone["measured"] == "The model gives it 0.002%."
    half = replace(a, **{name: getattr(a, name)[:5] for name in ("token_ids", "ends", "loss_nats")})
    assert tables.landmarks_of(half, half, [landmark]) == []


def test_a_pruned_model_that_has_not_come_so_far_has_no_losses_there():
    a = losses("abcd", [1, 2, 3, 4], [np.nan, 1, 2, 3])
    names = ("token_ids", "ends", "loss_nats", "rank", "top_ids", "top_log_p")
    b = replace(a, **{name: getattr(a, name)[:2] for name in names})
    whole = tables.extended(b, a)
    assert len(whole) == 4 and np.isnan(whole.loss_nats[2:]).all() and whole.loss_nats[1] == 1
    assert component_data(a, whole, range(4), [])["loss"]["b"] == [None, 1.0, None, None]
    assert tables.means(a, b) == (1.0, 1.0, 1)


def test_a_text_of_one_token_has_no_mean():
    a = losses("a", [1], [np.nan])
    assert "No token has a loss" in tables.losses_finding(a, a, "1 head")[0]


TWICE = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14] * 2  # the last nine follow the same token as before


@pytest.mark.parametrize("once, again, lead, words", [
    (0.1, 2.0, "1 head", "Without 1 head, the right token is 2.7 times less likely** (mean loss 1.00 to 2.00 nats, "
     "**95% of the rise on repetitions**)"),
    (1.0, 1.1, "1 head", "Without 1 head, the right token is 2.9 times less likely** (mean loss 1.00 to 2.05 nats, "
     "**50% of the rise on repetitions**)"),
    (-1.0, 0.5, "1 head", "Without 1 head, the right token is 1.34 times more likely** (mean loss 1.00 to 0.71 nats)"),
    (0.0, 0.04, "1 head", "Without 1 head, hardly anything changes** (mean loss 1.00 to 1.02 nats)"),
    (0.0, 0.0, "", "From A to B, the mean loss stays at 1.00 nats a token**"),
])  # fmt: skip
def test_the_finding_names_the_share_of_the_rise_on_repetitions(once, again, lead, words):
    a = losses("x" * 20, range(1, 21), [np.nan, *[1.0] * 19], TWICE)
    b = replace(a, loss_nats=a.loss_nats + np.array([once] * 11 + [again] * 9, np.float32))
    found, help = tables.losses_finding(a, b, lead)
    assert found == f"**{words}" and ("Repetitions" in help) == ("repetitions" in words)


def test_the_words_whose_loss_rises_most_are_named():
    ends = [3, 6, 9, 13, 18, 21, 24, 25, 29, 33, 35, 41, 42]
    full = losses("Mr. Quill saw Mrs. Quill, who saw a _cat_.", ends, [0] * 13)
    rise = np.array([np.nan, 1, 2, 7, -9, 2.6, 3, 20, 6.5, -1, 0, 5, 9], np.float32)  # of the last "Quill", 5.6
    hardest = tables.hardest_words(full, replace(full, loss_nats=rise))
    assert hardest == "Hardest hit: Quill (2 times, +4.3 nats each), who (+6.5 nats).", "in all; not “saw”, 3 each"
    assert tables.hardest_words(full, full) == ""


def test_the_table_has_the_change_and_the_word_of_each_token():
    a = losses("a b\nc d", [1, 3, 4, 5, 7], [np.nan, 5, 5, 5, 5])
    assert tables.words_of(a) == ["a", "b", "", "c", "d"]
    assert tables.words_of(losses("  Quill, \n", [1, 5, 7, 8, 9], [0] * 5)) == ["", "Quill", "Quill", "Quill", ""]
    assert tables.words_of(losses("ab" * 100_000, [2, 200_000], [0] * 2)) == ["", ""], "not all of it for each token"
    table = tables.token_frame(a, replace(a, loss_nats=np.array([np.nan, 4, 8, 5, 6], np.float32)))
    assert table["token"].tolist() == ["a", "␣b", "↵", "c", "␣d"]
    assert table["change_nats"].tolist()[1:] == [-1, 3, 0, 1]
    assert "change_nats" not in tables.token_frame(a, None)
