"""Where numbers come from: the Python program that a screen gives finds the screen's own number, and the receipts are
those of the stored records that it shows."""

import ast
import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from streamlit.util import calc_hash

from engine.demo import passages
from engine.heads.attention import head_views, overview
from engine.heads.composition import feeding
from engine.heads.induction import induction
from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.receipts import facts, read_receipts
from engine.requests import Sweep
from engine.training.phase_change import window
from engine.training.trajectory import decode
from pages.ui.downloads.provenance import SLOT
from pages.ui.page import runtime
from tests.conftest import HANG_S
from tests.engine.fixtures import target_in, write_questions
from tests.pages.conftest import components, figure, frames_of, settled

pytest_plugins = ["tests.pages.test_in_context_page"]  # the model whose window holds a text of 512 tokens
FEW = {"importance": {"importance_tasks": "demo_copy", "importance_shots": "0"},
       "correlations": {"correlations_tasks": "demo_copy,demo_walk", "correlations_shots": "0"},
       "sweeps": {"sweeps_tasks": "demo_copy", "sweeps_shots": "0", "sweeps_limit": "16"},
       "passage": {"passage_text": "Privet Drive, twice", "passage_mask": "L0H1", "passage_ranking": "random"},
       "attention": {"attention_text": "Privet Drive, twice", "attention_heads": "L0H1,L1H2"},
       "induction": {}}  # fmt: skip


@pytest.fixture
def open_screen(open_app):
    def open_screen(name, measure=(), **parameters):
        at = open_app(run=False, **FEW.get(name, {}) | parameters)
        at.wanted_page_hash = calc_hash(name)
        at = settled(at)
        for label in measure:
            next(button for button in at.button if button.label.startswith(label)).click()
            at = settled(at)
        return at

    return open_screen


def program_of(at):
    [code] = [each.value for each in at.code if each.language == "python"]
    return code


def said_by_the_program(at):
    """What the Python program of a screen prints; it opens the store anew."""
    code = program_of(at)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "program", "exec"), {})
    assert not re.search(r"^from \S+ import .*\b(\w+)\b(?![\s\S]*\b\1\b)", code, re.M), "imports what it does not use"
    return printed.getvalue()


def number_after(words, text):
    return float(re.search(rf"{words}(-?[\d.]+)", text)[1])


def test_the_program_finds_the_accuracy_after_pruning(open_app):
    at = open_app(prune_heads="40", prune_ffns="50", prune_mask="L0H1")
    assert f"{100 * number_after('acc ', said_by_the_program(at)):.1f} %" == figure(at)[0]
    at = open_app(prune_mask="L1H2", prune_task="demo_copy", prune_shots="1", prune_same="true")
    assert f"{100 * number_after('acc ', said_by_the_program(at)):.1f} %" == figure(at)[0]


def test_the_program_finds_the_mean_loss_by_a_and_b(open_screen):
    at = open_screen("passage")
    words = next(text.value for text in at.main.markdown if text.value.startswith("Mean loss")).replace("**", "")
    said = re.search(r"mean loss ([\d.]+) nats, ([\d.]+) masked", said_by_the_program(at))
    assert all(f"{float(nats):.3f}" in words for nats in said.groups())


def test_the_program_finds_the_best_induction_heads(open_screen):
    at = open_screen("induction")
    frame = frames_of(at)[1]["heads"].set_index("name")["prefix_matching"]
    [line] = [line for line in said_by_the_program(at).splitlines() if line.startswith("prefix_matching")]
    best = [each.split() for each in line.removeprefix("prefix_matching").split(",")]
    assert [name for name, _ in best] == frame.nlargest(5).index.to_list()
    assert float(best[0][1]) == pytest.approx(frame.max(), rel=5e-3)


def test_the_program_finds_the_accuracies_of_a_sweep(open_screen):
    at = open_screen("sweeps", ["Measure"])
    curves = frames_of(at)[0]["curves"]
    own = curves[curves["line"] == "demo_copy"].sort_values("level")["acc"].to_list()
    assert len(own) == 11
    lines = said_by_the_program(at).splitlines()
    assert f"demo_copy, 0 shots: full {own[0]:.3f}" in lines[0] and "11 accuracies, from the store" in lines
    _, printed, *_ = ast.parse(program_of(at)).body
    found = eval(compile(ast.Expression(printed.value.args[0]), "program", "eval"), {"Sweep": Sweep})
    assert [row["acc"] for row in found.fields["rows"]] == own


def test_the_program_finds_the_importance_of_heads(open_screen):
    at = open_screen("importance", ["Measure 1 "])
    frame = at.dataframe[0].value
    best = said_by_the_program(at).strip().rpartition(": ")[2].split(", ")
    assert [each.split()[0] for each in best] == frame["Head"].head(5).to_list()


def test_the_program_finds_how_much_rankings_agree(open_screen):
    at = open_screen("correlations", ["Measure "])
    [matrix] = [frame for frame in frames_of(at)[0].values() if "value" in frame]
    shown = matrix.set_index(["a", "b"])["value"]["demo_copy", "demo_walk"]
    said = said_by_the_program(at)
    assert number_after("0 shots: mean SRCC of two tasks ", said) == pytest.approx(shown, abs=6e-4)


def test_the_program_finds_what_the_pruned_model_says(open_screen):
    at = open_screen("continuation", continue_prompt="One two, one", continue_tokens="5", continue_ranking="random",
                     continue_heads="20", continue_by="T 1", continue_seed="3")  # fmt: skip
    [pruned] = ["".join(data["pieces"]) for data in components(at) if data.get("who") == "Pruned model"]
    assert said_by_the_program(at).splitlines()[1] == f"masked: {pruned!r}"


def test_the_program_finds_where_heads_look(open_screen, tiny_opt):
    at = open_screen("attention")
    said, target = said_by_the_program(at), runtime.session().target(LoadSpec(str(tiny_opt), "fp32"))
    heads, mask = ((0, 1), (1, 2)), Mask.full(target.shape)
    text = next(each.text for each in passages() if each.title == "Privet Drive, twice")
    seen = overview(target, text, mask).stored(runtime.session())
    views = head_views(target, text, mask, heads).stored(runtime.session())
    pattern = sum(each.pattern for each in views.values())
    last = seen.pieces[pattern[-1].argmax()]
    assert said.startswith(f"2 heads on {len(seen.pieces)} tokens; the last one looks most at {last!r}; ")


def test_the_program_finds_the_in_context_score(open_screen, wide_opt, tmp_path):
    task = str(write_questions(tmp_path / "rivers.jsonl", 60))
    at = open_screen("in_context", model=str(wide_opt), incontext_task=task, incontext_texts="3",
                     incontext_mask="L0H1")  # fmt: skip
    shown = [metric.value.replace("−", "-") for metric in at.metric]
    assert shown[1] == f"{number_after('masked [+]?', said_by_the_program(at).partition('score')[2]):.2f}"


def test_the_program_finds_the_windows_of_runs(open_screen):
    at = open_screen("training")
    said = said_by_the_program(at).splitlines()
    shown = chosen_runs(at)
    assert len(shown) > 1 and [line.split(": ")[0] for line in said if " snapshots to " in line] == [
        found.label for found in shown
    ]
    windows = [window(found.tokens, found.icl) for found in shown]
    told = [f"phase change from {each.start:,.0f} to {each.end:,.0f} tokens" for each in windows if each]
    assert told and [line.rpartition(":")[0] for line in said if line.startswith("phase change")] == told


def chosen_runs(at):
    """The trajectories that the commands of the Training screen read."""
    return [decode(Path(shlex.split(line)[2]).read_bytes()) for line in at.code[0].value.splitlines()]


def test_receipts_are_those_of_the_records_that_are_shown(open_app):
    at = open_app(prune_heads="40")
    assert not at.get("popover")[0].proto.popover.open
    at.session_state["measured"] = True
    at.run()
    runtime.jobs().join(SLOT, HANG_S)
    at.session_state["measured"] = True  # AppTest, which knows no popovers, forgets that it is open
    at.run()
    parts = {part.name: part for part in runtime.jobs().snapshot(SLOT).value}
    x_n = 20
    for name in ("Full model", "Pruned model"):
        told = parts[name].receipts
        assert {each["kind"] for each in told} == {"answers"} and sum(1 for _ in told) * 16 >= x_n
    assert parts["Full model"].receipts[0]["mask"] == "" != parts["Pruned model"].receipts[0]["mask"]
    assert {each["kind"] for each in parts["Importance"].receipts} == {"heads", "answers"}
    assert parts["Pruned model"].first <= parts["Pruned model"].last and parts["Pruned model"].seconds > 0
    words = "\n".join(text.value for text in [*at.markdown, *at.caption])
    for part in (parts["Full model"], parts["Pruned model"]):
        assert f"| {part.name} |" in words
    told = facts(parts["Full model"].receipts)
    assert len(told["Versions"]) == 1 and told["Versions"][0] in words and "torch" in words


def test_a_receipt_that_lacks_what_came_later_is_read(session):
    old = {"name": "m", "model": "0" * 40, "precision": "fp32", "bos": True, "python": "3", "machine": "x86_64",
           "device": "cpu", "versions": {"torch": "2"}, "measured_at": "2026-01-01", "seconds": 1}  # fmt: skip
    told = facts([old])
    assert told["Machine"] == ["cpu, x86_64"] and told["Matrix products"] == ["the library's own"]


def test_nothing_is_measured_to_find_a_receipt(session, tiny_opt):
    target = target_in(session, tiny_opt)
    wanted = {"whole": feeding(target, (0, 0)), "missing": induction(target, "olsson")}
    *_, last = read_receipts(wanted, session)
    assert [part.n for part in last.value] == [0, 0] and session.models.loaded is None
