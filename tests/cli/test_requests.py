"""A request is written once: as the words of a command it is parsed back, and as a program it prints what the command
does."""

import ast
import contextlib
import io
import json
from dataclasses import MISSING, asdict
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headroom
from engine import demo
from engine.cli import parser
from engine.cli.options import request_of
from engine.errors import HeadroomError, UsageError
from engine.models.session import Session
from engine.requests import REQUESTS, Evaluate, ReportHead, ScoreImportance, ScoreInduction, Sweep, argv, program
from engine.requests.fields import option_name, options
from engine.requests.output import file_of, to_json
from engine.requests.running import Result
from engine.training.findings import findings
from engine.training.trajectory import decode
from engine.views.view import text_view
from tests.cli.conftest import refused
from tests.conftest import IS_THOROUGH
from tests.engine.fixtures import refused_by
from tests.write_docs import commands_of

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="~\0"), max_size=9).filter(
    lambda text: text != "--"  # which Python's own parser takes for no value
)
WORDS = TEXT | st.sampled_from(["-x", "--task", "-1", "a b", "L3H5 F7", "=", "--json=1"])


def values(name, field, option):
    """A strategy of values of a field."""
    if name == "period":
        return st.none() | st.tuples(st.integers(1, 99), st.integers(1, 99))
    low, high = option.ends
    kinds = {
        "number": st.integers(int(low), int(high)) if option.of is int else st.floats(low, high),
        "choice": st.sampled_from(sorted(option.names) or [None]),
        "flag": st.booleans(),
        "switch": st.none() | st.booleans(),
        "text": WORDS,
        "path": WORDS,
    }
    found = kinds[option.kind]
    return found if field.default is MISSING else found | st.just(field.default)


@st.composite
def requests(draw, kind):
    found = {name: draw(values(name, *each)) for name, each in options(kind).items()}
    for name, (_, option) in options(kind).items():
        if option.is_required and not found[name]:
            found[name] = "out"
    return kind(**found)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.command)
@given(data=st.data())
@settings(max_examples=25 if IS_THOROUGH else 8)
def test_what_is_shown_is_parsed_back(kind, data):
    request = data.draw(requests(kind))
    assert request_of(PARSER.parse_args(argv(request))) == request
    assert ast.parse(program([request]))


PARSER = parser()
WRONG = {  # values that no field of a kind takes, whatever its ends and names
    "number": ["20", [1], True, b"1", 10**12, -1, float("nan"), object()],
    "choice": ["no such name", 3, ["zero"], b"zero"],
    "text": [3, ["a"], b"a", 2.5, {"a": 1}, object()],
    "path": [3, ["a"], b"a", True],
    "flag": ["yes", 1, None, []],
    "switch": ["yes", 1, []],
}
RIGHT = {
    "number": lambda option: [np.float64(option.ends[1])] if option.of is float else [np.int64(option.ends[1])],
    "choice": lambda option: [*option.names][:1],
    "text": lambda option: ["a", np.str_("a")],
    "path": lambda option: ["a", Path("a")],
    "flag": lambda option: [True, np.bool_(True)],
    "switch": lambda option: [False, None, np.bool_(False)],
}


def needed_by(kind):
    """Values of the fields that have no default."""
    return {name: RIGHT[option.kind](option)[0] for name, (field, option) in options(kind).items()
            if field.default is MISSING}  # fmt: skip


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.command)
def test_a_value_of_another_type_is_one_line_that_names_the_field(kind):
    needed, hints = needed_by(kind), get_type_hints(kind)
    for name, (_, option) in options(kind).items():
        is_int = option.kind == "number" and option.of is int
        wrong = [
            *WRONG[option.kind],
            *([2.5] if is_int else []),
            *([] if type(None) in get_args(hints[name]) else [None]),
        ]
        for value in wrong:
            line = refused_by(UsageError, "expected", lambda: kind(**needed | {name: value}))  # noqa: B023
            assert line.startswith(f"{kind.__name__}: {name} is {repr(value)[:40]}")
        if option.parse is str:
            for value in RIGHT[option.kind](option):
                found = getattr(kind(**needed | {name: value}), name)
                assert type(found) in (*get_args(hints[name]), hints[name]), "as the command line gives it"
                assert found == value or found == str(value)


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.command)
def test_files_are_checked_before_any_work_and_written_by_run_alone(kind, tmp_path, monkeypatch, session):
    """Whichever field names the file: `run` writes it, from Python as from the shell, and `stored` does not."""
    needed = needed_by(kind)
    monkeypatch.setattr(kind, "measure", lambda *_: pytest.fail("it must be refused first"))
    outputs = {
        name: option for name, (_, option) in options(kind).items() if option.is_output and option.kind == "path"
    }
    for name, option in outputs.items():
        ending = [*option.endings, ""][0]
        bad = [(HeadroomError, "does not exist", tmp_path / "none" / f"file{ending}")]
        if option.endings:
            bad.append((UsageError, f"{option_name(name, option)} .* must end in", tmp_path / "a.x"))
        else:
            bad.append((HeadroomError, "it is a folder", tmp_path))
        for error, says, file in bad:
            refused_by(error, says, lambda: kind(**needed | {name: file}).run(session))  # noqa: B023
    for name, option in outputs.items():
        file = tmp_path / f"{name}{[*option.endings, ''][0]}"
        result = Result(1, {}, text_view("done"), file_of(str(file), lambda suffix: f"a{suffix}".encode()))
        monkeypatch.setattr(kind, "measure", lambda *_: result)  # noqa: B023
        kind(**needed | {name: file}).stored(session)
        assert not file.exists()
        assert kind(**needed | {name: file}).run(session).files.keys() == {str(file)}
        assert file.read_bytes() == f"a{file.suffix}".encode()


def test_a_paper_study_is_drawn_from_python_as_from_the_shell(tmp_path, monkeypatch, session):
    drawn = []
    monkeypatch.setattr("engine.__main__.draw_report", lambda *given: drawn.append(given))
    files = {str(tmp_path / "a" / "x.csv"): lambda: b"1"}
    result = Result("study", {}, text_view("done"), files, report_folder=str(tmp_path / "a"))
    monkeypatch.setattr(Sweep, "measure", lambda *_: result)
    headroom.Sweep(preset="paper", out=str(tmp_path / "a")).run(session)
    assert drawn == [("study", str(tmp_path / "a"))] and (tmp_path / "a" / "x.csv").read_bytes() == b"1"
    headroom.Sweep(preset="paper", out=str(tmp_path / "b")).stored(session)
    assert len(drawn) == 1 and not (tmp_path / "b").exists()


def test_there_is_a_request_of_every_command():
    assert {request.command for request in REQUESTS} == commands_of(parser()).keys()
    assert all(
        option.help for request in REQUESTS for name, (_, option) in options(request).items() if name != "action"
    )


def test_a_command_shows_what_differs_from_the_defaults_and_no_more():
    assert argv(Evaluate(task="demo_copy", prune_heads="40", bos=False, int8_threshold=0.5)) == [
        "evaluate", "--int8-threshold", "0.5", "--no-bos", "--task", "demo_copy", "--prune-heads", "40"
    ]  # fmt: skip
    assert argv(ReportHead(head="L1H0", token="-s")) == ["head", "L1H0", "--token=-s"]
    assert argv(ReportHead(head="-L1H0", shots=0)) == ["head", "--shots", "0", "--", "-L1H0"]


def test_a_program_leaves_out_how_results_leave_the_command_line():
    code = program([ScoreImportance(task="demo_copy", shots=1, out="heads.csv", json=True)])
    assert code.splitlines()[1:] == [
        "from headroom import ScoreImportance", "", "print(ScoreImportance(task='demo_copy', shots=1).run())"
    ]  # fmt: skip
    several = program([ScoreInduction(model="a" * 99), ScoreInduction(), ScoreImportance(task="x")]).splitlines()
    assert several[1] == "from headroom import ScoreImportance, ScoreInduction"
    assert several[3:7] == [
        "print(ScoreInduction(",
        f"    model='{'a' * 99}',",
        ").run())",
        "print(ScoreInduction().run())",
    ]


def test_an_installed_program_imports_from_the_package(monkeypatch):
    monkeypatch.setattr("engine.requests.fields.__name__", "headroom.engine.requests.fields")
    assert program([ScoreInduction()]).startswith("from headroom import ScoreInduction\n")


def test_a_request_gives_what_its_command_prints(cli, told, tiny_opt):
    request = Evaluate(model=str(tiny_opt), precision="fp32", task="demo_copy", limit=16, prune_heads="50")
    code, out, _ = cli(*argv(request))
    assert code == 0
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program([request]), "program", "exec"), {})
    assert printed.getvalue().splitlines()[0] == out.splitlines()[0]
    result = request.run()
    as_json = told(*argv(request))
    same = {name: value for name, value in result.fields.items() if name not in ("seconds", "items_per_second")}
    assert {name: as_json[name] for name in same} == json.loads(to_json(same))
    assert len(result.value) == 16 and result.fields["cached"] and str(result) == f"{result.text}\n{result.taken}"


def test_a_request_is_a_measurement_where_it_is_one(session, tiny_opt):
    request = ScoreInduction(model=str(tiny_opt), precision="fp32")
    assert request.measurement(session).stored(session) is None
    found = request.run(session)
    stored = request.measurement(session).stored(session)
    assert stored is not None and (stored.mean["copying"] == found.value.mean["copying"]).all()
    assert found.files == {} and "written" not in found.text
    with pytest.raises(TypeError, match="more than one measurement"):
        Evaluate(task="demo_copy").measurement(session)


def test_what_cannot_be_is_refused_without_a_store_too():
    with pytest.raises(UsageError, match="leave out --bos"):
        ScoreInduction(bos=True).run(Session(None))  # pyright: ignore[reportArgumentType]


def test_a_record_of_a_trajectory_is_read_and_nothing_is_measured(cli, told, tmp_path):
    record = demo.runs_folder() / "smeared.safetensors"
    found = decode(record.read_bytes())
    read = told("trajectory", record, "--out", tmp_path / "run.csv")
    assert read["cached"] and read["steps"] == found.steps.tolist()
    assert read["loss"] == pytest.approx(found.loss.tolist())
    table = pd.read_csv(tmp_path / "run.csv")
    assert table.query("quantity == 'loss'")["value"].to_numpy() == pytest.approx(found.loss)
    refused(cli("trajectory", tmp_path / "none.safetensors"), 1, "cannot read", "No such file")
    (tmp_path / "other.safetensors").write_bytes(b"no record")
    refused(cli("trajectory", tmp_path / "other.safetensors"), 1, "not a trajectory file")


def test_statements_on_training_are_judged_by_records(cli, told, tmp_path):
    records = [demo.runs_folder() / f"{name}.safetensors" for name in ("smeared", "two-layers")]
    judged = told("judge", "--runs", f"{records[0]}, {records[1]}")
    assert judged["runs"] == ["smeared", "two-layers"]
    found = findings([decode(file.read_bytes()) for file in records])
    assert judged["statements"] == [asdict(each) for each in found]
    assert {each.verdict for each in found} == {"holds", "not measured"}
    code, printed, _ = cli("judge", "--runs", records[0])
    assert code == 0 and "of Olsson et al. hold here" in printed
    assert len(demo.run_records()) == 20
    refused(cli("judge", "--runs", tmp_path / "none.safetensors"), 1, "cannot read", "No such file")
