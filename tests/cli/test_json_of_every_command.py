"""Every `--json` is one JSON object: no NaN, no infinity, one encoder for all commands."""

import ast
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

import engine.cli
from engine.cli.output import to_json
from tests.engine.fixtures import family_folder
from tests.write_command_line import commands_of, parser

FLOATS = st.floats() | st.floats(width=32).map(np.float32) | st.floats().map(np.float64)
LEAVES = st.none() | st.booleans() | st.integers() | st.integers(0, 9).map(np.int64) | st.text(max_size=5) | FLOATS
ARRAYS = st.lists(st.floats(width=32), max_size=4).map(np.float32)
VALUES = st.recursive(
    LEAVES | ARRAYS,
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


def strict(text):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def expected(value):
    if isinstance(value, np.ndarray):
        return [expected(each) for each in value]
    if isinstance(value, dict):
        return {name: expected(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [expected(each) for each in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


@given(VALUES)
def test_any_result_is_json_whose_undefined_numbers_are_null(value):
    assert strict(to_json(value)) == expected(value)


def test_every_command_writes_json_through_that_encoder():
    modules = {action.get_default("run") for _, action in commands_of(parser()).values()}
    modules = {getattr(run, "func", run).__module__ for run in modules if run is not None}
    assert len(modules) > 12 and all(name.startswith("engine.cli.") for name in modules)
    folder = engine.cli.__path__[0]
    for name in modules | {"engine.cli.equal", "engine.cli.exchange"}:
        with open(f"{folder}/{name.rpartition('.')[2]}.py", encoding="utf-8") as file:
            calls = [node for node in ast.walk(ast.parse(file.read())) if isinstance(node, ast.Call)]
        called = [ast.unparse(call.func) for call in calls]
        assert "json.dumps" not in called and "sys.stdout.write" not in called, name
        printed = [call for call in calls if ast.unparse(call.func) == "print"]
        assert all("file" in {each.arg for each in call.keywords} for call in printed), name
        assert "print_result" in called, name


def test_induction_of_a_model_whose_qk_trace_is_undefined(tiny_opt, tmp_path, cli):
    folder = family_folder("gpt2", tiny_opt, tmp_path / "model")
    one_layer = AutoConfig.from_pretrained(folder, n_layer=1)  # the trace is defined from layer 1 on
    AutoModelForCausalLM.from_config(one_layer).save_pretrained(folder)
    options = ("--model", folder, "--precision", "fp32", "--out", tmp_path / "heads.csv")
    code, printed, lines = cli("induction", *options, "--json")
    assert code == 0, lines
    best = strict(printed)["best"]
    assert len(best["prefix_matching"]) == 4 and best["qk_trace"] == []
    assert "qk_trace         undefined" in cli("induction", *options)[1]
