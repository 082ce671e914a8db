"""`plan` says what a model would take before anything of it is here: as text, as JSON, and why not in one line."""

import json
import os
import subprocess
import sys

import pytest

from cache import open_store
from engine.checkpoints.config_lookup import read_model_config
from engine.kernels.kernel_choice import processor
from engine.models.session import Session
from engine.questions.requests import TaskSpec, get_requests, select
from engine.timing import observed_timings as rates
from engine.timing.observed_timings import operations_a_token
from engine.timing.workload import all_characters
from tests.cli.conftest import refused
from tests.conftest import HANG_S, REPOSITORY
from tests.engine.fixtures import target_in

OPT_66B = ("plan", "--model", "facebook/opt-66b", "--gpus", "2xA100-80GB")


def told(cli, *arguments):
    code, out, lines = cli(*arguments, "--json")
    assert (code, lines) == (0, [])
    return json.loads(out)


def test_opt_66b_in_8_bits_on_two_gpus(cli):
    found = told(cli, *OPT_66B)
    assert found["fits"] and (found["used"], found["needed"], found["workers"]) == (2, 2, 1)
    assert found["parameters"] == 65_719_701_504 and found["shape_from"] == "its published shape"
    first, second = found["devices"]
    assert (first["first"], first["stop"], second["stop"]) == (0, second["first"], 64)
    assert found["place"] == f"gpu0:{first['stop']},gpu1:{64 - first['stop']}"
    assert first["n_bytes"]["weights"] + second["n_bytes"]["weights"] == found["weight_bytes"]
    assert all(share["total"] == sum(share["n_bytes"].values()) <= share["free"] == 80e9 for share in (first, second))
    assert found["timed"] is found["study_s"] is None and found["question_s"] == found["study"] == {}
    code, out, lines = cli(*OPT_66B)
    assert (code, lines) == (0, []) and "2xA100-80GB: it fits; room for 1 worker" in out
    assert "GPU 0, layers 0 to" in out and "pruned copy" in out and "set HEADROOM_PLACE=gpu0:" in out
    assert out.splitlines()[-1].startswith("no timings for this device yet: evaluate any model in int8 on it")


def test_there_is_room_for_as_many_workers_as_gpus_hold(cli):
    eight = told(cli, *OPT_66B[:-1], "8xA100-80GB")
    assert (eight["used"], eight["workers_at_once"], eight["workers"]) == (2, 4, 4)
    assert told(cli, *OPT_66B, "--workers", 10)["workers"] == 10


def test_what_does_not_fit_says_how_many_would_and_what_each_pass_fetches(cli):
    in_bf16 = (*OPT_66B[:-1], "A100-80GB", "--precision", "bf16", "--memory", 1000)
    found, whole = told(cli, *in_bf16), told(cli, *in_bf16, "--gpus", "8xA100-80GB")
    assert not found["fits"] and found["runs"] and found["needed"] == whole["used"] > 2
    [main] = [share for share in found["devices"] if share["place"] == "cpu"]
    assert found["fetched_bytes"] == {"cpu": main["n_bytes"]["weights"]}
    lines = cli(*in_bf16)[1]
    assert f"{found['needed']}xA100-80GB would hold it" in lines and "each pass also fetches" in lines
    without = told(cli, *in_bf16[:-1], 0)
    assert without["fetched_bytes"] == {"disk": main["n_bytes"]["weights"]}


def test_int8_lies_on_gpus_or_nowhere(cli):
    """bitsandbytes multiplies where it lies, so that layers cannot be moved."""
    found = told(cli, *OPT_66B[:-1], "A100-80GB", "--memory", 1000)
    assert (found["fits"], found["runs"], found["needed"], found["place"]) == (False, False, 2, "")
    assert "in bf16, layers can also be placed in main memory" in cli(*OPT_66B[:-1], "A100-80GB")[1]


def test_a_study_takes_as_long_as_passes_were_timed(cli, tmp_path, tiny_opt):
    """A model's own timing gives its own seconds; another model's follow by operations."""
    store = open_store(tmp_path / "results")
    target = target_in(Session(store), tiny_opt, "fp32")
    about = ("--precision", "fp32", "--tasks", "demo_sort,arc_easy", "--shots", "0,5", "--limit", 4)
    assert told(cli, "plan", "--model", tiny_opt, *about)["timed"] is None
    rates.learn(store, target, "forward", 1000, 4.0)
    rates.learn(store, target, "gradient", 1000, 10.0)
    store.close()
    found, other = told(cli, "plan", "--model", tiny_opt, *about), told(cli, "plan", "--model", "demo", *about)
    questions = select(get_requests(TaskSpec("demo_sort", 5), None), 4, "stratified")
    assert found["question_s"]["demo_sort, 5 shots"] == pytest.approx(all_characters(questions) / 4 * 4.0 / 1000)
    assert {reason.split(",")[0] for reason in found["not_measured"]} == {"arc_easy"}
    parts = [part["seconds"] for part in found["study"].values()]
    assert found["study_s"] == pytest.approx(sum(parts)) and found["timed"].endswith(timed_on())
    ratio = operations_a_token(read_model_config("demo")) / operations_a_token(read_model_config(str(tiny_opt)))
    for task, seconds in found["question_s"].items():
        assert other["question_s"][task] == pytest.approx(ratio * seconds)
    lines = cli("plan", "--model", tiny_opt, *about, "--workers", 2)[1]
    assert "scaled by operations" in lines and " by 2\n" in lines and "not timed: arc_easy" in lines
    on_gpus = told(cli, "plan", "--model", tiny_opt, *about, "--gpus", "L4")
    assert on_gpus["timed"] is None, "a processor's timing says nothing of a GPU"
    in_bf16 = told(cli, "plan", "--model", tiny_opt, *about, "--precision", "bf16")
    assert in_bf16["timed"] is None, "nor one in another precision"


def timed_on():
    return f"{os.cpu_count()} cores of {processor() or 'this processor'}"


def test_a_folder_needs_its_config_alone(cli, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256, "max_position_embeddings": 8192,
    }))  # fmt: skip
    found = told(cli, "plan", "--model", tmp_path, "--gpus", "L4")
    assert found["parameters"] == 8_030_261_248 and found["shape_from"] == "its config.json"


@pytest.mark.parametrize(
    "arguments, code, parts",
    [
        ("--model some/model", 1, ("some/model is not on this computer", "config.json")),
        ("--model facebook/opt-7b", 1, ("facebook/opt-7b", "66b")),
        ("--gpus 2xfoo", 2, ("'2xfoo'", "A100-80GB", "L4-24GB")),
        ("--gpus 0xL4", 2, ("'0xL4'", "1 to 1,024")),
        ("--gpus V100-32GB", 2, ("int8", "--precision bf16")),
        ("--shots x", 2, ("--shots 'x'",)),
        ("--shots 65", 2, ("65", "0 to 64")),
        ("--shots ,", 2, ("no tasks or shot counts",)),
        ("--workers 0", 2, ("--workers is 0",)),
        ("--memory -1", 2, ("--memory is -1",)),
        ("--precision int4", 2, ("'int4'",)),
    ],
)
def test_bad_input_gets_one_line(cli, arguments, code, parts):
    refused(cli("plan", *arguments.split()), code, *parts)


@pytest.mark.parametrize("config", ["{}", "[]", '{"model_type": "bert"}', '{"model_type": "opt", "hidden_size": -1}'])
def test_a_damaged_config_gets_one_line(cli, tmp_path, config):
    (tmp_path / "config.json").write_text(config)
    refused(cli("plan", "--model", tmp_path), 1)


def test_it_needs_no_torch_and_loads_nothing(tmp_path):
    heavy = {"torch", "transformers", "lm_eval", "bitsandbytes", "accelerate", "datasets", "pandas"}
    code = "import sys\nfrom engine.__main__ import main\nassert main(sys.argv[1:]) == 0\n"
    code += f"print('loaded', sorted({heavy!r} & set(sys.modules)))"
    command = [sys.executable, "-c", code, *OPT_66B, "--cache", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "loaded []", done.stderr
