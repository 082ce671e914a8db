"""The Prune screen's second figure: perplexity under the same mask, behind the accuracy, the command line's own."""

import json
import re
import shlex
from dataclasses import replace

import pytest

from engine.demo import passages
from engine.texts.perplexity import both, change
from pages.ui.controls.texts import OWN, Chosen
from pages.ui.page import runtime
from pages.ui.page.work import under_way
from pages.ui.prune.panels import perplexity
from tests.pages.conftest import experiment_of, press, settled, slide


def said(at):
    """The second figure as it stands, without its type size, and the change that its help begins with."""
    found = [each for each in at.main.markdown if each.value.startswith(":small[Perplexity of")]
    lines = [found[0].value, *found[0].proto.help.split("  \n")[:-1]] if found else []
    return re.sub(r":small\[(.*?)\](?=  \n|$)", r"\1", "  \n".join(lines))


def of_store(at, title="The ferry"):
    """(full, pruned) perplexity as it is stored."""
    x = experiment_of(at)
    text = next(each.text for each in passages() if each.title == title)
    found = both(x.target, text, x.mask(x.known(runtime.session()))).stored(runtime.session())
    return found.full, found.pruned


def test_it_is_measured_behind_the_accuracy_under_the_same_mask(measures_ahead, open_app, capsys):
    at = open_app(order="random", prune_perplexity="true")
    [full, _] = of_store(at)
    assert said(at) == f"Perplexity of The ferry: **{perplexity._four_digits(full.a_token)}**", "one number"
    settled(slide(at, "heads", 50))
    full, pruned = of_store(at)
    differs = change(full, pruned)
    first, second = said(at).split("  \n")
    shown, whole = perplexity._four_digits(pruned.a_token), perplexity._four_digits(full.a_token)
    assert first == f"Perplexity of The ferry: **{shown}**, full {whole}"
    assert second == perplexity.change_in_words(differs) and "nats a token (95%: " in second
    [command] = [each.value for each in at.code if " perplexity " in each.value]
    from engine.__main__ import main

    assert main([*shlex.split(command)[1:], "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["cached"] and told["pruned"]["perplexity"] == pruned.a_token and told["heads_pruned"] == 4
    assert told["change"]["nats"] == differs.nats
    [row] = [each.value for each in at.main.markdown if each.value.startswith("| | a token")]
    assert f"| Pruned model | {perplexity._four_digits(pruned.a_token)} |" in row
    jobs = {slot: runtime.jobs().snapshot(slot) for slot in ("accuracy", perplexity.SLOT)}
    assert jobs["accuracy"] is None or jobs["accuracy"].finished_s < jobs[perplexity.SLOT].finished_s


def test_the_text_is_in_the_address_and_the_user_s_own_is_measured_too(measures_ahead, open_app):
    at = open_app(prune_text="Three languages", heads="50", order="random")
    assert said(at).startswith("Perplexity of Three languages: **")
    at = open_app(run=False, prune_text="*mine*", heads="50", order="random")
    at.session_state[OWN] = Chosen("*mine*", "The river was low that summer. " * 20)
    at = settled(at)
    assert said(at).startswith(r"Perplexity of \*mine\*: **")
    at = open_app(prune_text="no such text")
    assert said(at).startswith("Perplexity of The ferry: **")


def test_more_than_the_budget_is_a_button_and_not_begun(open_app, monkeypatch):
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")
    at = open_app(heads="50", order="random")
    assert said(at) == "" and runtime.jobs().snapshot(perplexity.SLOT) is None
    press(at, "Measure perplexity")
    assert "nats a token" in said(at)


def test_a_moving_slider_measures_and_reads_nothing(open_app, monkeypatch):
    at = open_app(order="random")
    fails = {"steps": lambda *_: pytest.fail("read while a slider moves")}
    monkeypatch.setattr(perplexity, "both", lambda *given: replace(both(*given), **fails))
    before = runtime.store().n_puts
    slide(at, "heads", 30, moving=True).run()
    assert said(at).endswith(": …") and runtime.store().n_puts == before and not under_way([perplexity.SLOT])
