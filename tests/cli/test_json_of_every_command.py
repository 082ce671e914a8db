"""Every `--json` is one JSON object: no NaN, no infinity, one encoder for all commands."""

import ast
import inspect
import json
import math
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from engine.architecture.families import FAMILIES
from engine.architecture.transformers_internals import model_config
from engine.requests import REQUESTS
from engine.requests.output import to_json
from tests.engine.fixtures import SIZES, STOCK, TINY, family_folder
from tests.write_docs import commands_of, parser

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
    requests = {action.get_default("request") for _, action in commands_of(parser()).values()}
    assert len(requests) > 20 and {*REQUESTS} <= requests, "their results are delivered in one place"
    modules = {sys.modules[request.__module__] for request in REQUESTS}
    for module in modules:
        source = inspect.getsource(module)
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
        called = [ast.unparse(call.func) for call in calls]
        assert not {"json.dumps", "sys.stdout.write", "print"} & {*called}, module


def test_induction_of_a_model_whose_qk_trace_is_undefined(tiny_opt, tmp_path, cli):
    folder = family_folder("gpt2", tiny_opt, tmp_path / "model")
    one_layer = AutoConfig.from_pretrained(folder, n_layer=1)  # the trace is defined from layer 1 on
    AutoModelForCausalLM.from_config(one_layer).save_pretrained(folder)
    options = ("--model", folder, "--precision", "fp32", "--out", tmp_path / "heads.csv")
    code, printed, lines = cli("induction", *options, "--json")
    assert code == 0, lines
    best = strict(printed)["best"]
    assert len(best["prefix_matching"]) == 4 and best["qk_trace"] == []
    assert all(line.endswith("–") for line in cli("induction", *options)[1].splitlines()[4:8]), "no QK trace"


@pytest.mark.parametrize("family, is_normed", [("gemma3", True), ("gemma2", False)])
def test_normed_queries_and_keys_have_no_qk_trace(family, is_normed, tiny_opt, tmp_path, cli):
    folder = family_folder(family, tiny_opt, tmp_path / "model")
    options = ("--model", folder, "--precision", "fp32")
    code, printed, lines = cli("induction", *options, "--out", tmp_path / "heads.csv", "--json")
    assert code == 0, lines
    found, table = strict(printed), pd.read_csv(tmp_path / "heads.csv")
    assert (found["best"]["qk_trace"] == []) == table["qk_trace"].isna().all() == is_normed
    assert ("no QK trace, because queries and keys are normed" in found["note"]) == is_normed


def test_which_families_have_a_qk_trace_is_seen_in_their_modules():
    for name in STOCK:
        config = {"model_type": TINY[name], **FAMILIES[TINY[name]].tiny[name], "pad_token_id": 0}
        small = {FAMILIES[TINY[name]].own_name(each): size for each, size in SIZES.items()}
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(model_config(small | config))
        norms = {part for part, _ in model.named_modules() if part.rpartition(".")[2] in ("q_norm", "k_norm")}
        assert bool(norms) == bool(FAMILIES[TINY[name]].qk_norms), name
