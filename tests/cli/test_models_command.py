"""`headroom models MODEL` shows what a model takes here by its config alone; `--check` checks it, and fails if one of
the checks does."""

import json
import subprocess
import sys

import pytest

from engine.models import masks, self_check, session
from engine.placement import needs, placement
from engine.placement.needs import in_gb
from tests.cli.conftest import refused
from tests.conftest import HANG_S, REPOSITORY

GB = 10**9


def test_a_published_model_that_is_not_here(cli, told):
    found = told("models", "facebook/opt-66b")
    assert found["parameters"] == 65_719_701_504 and found["source"] == "its published shape"
    assert found["bytes"]["int8"] < found["needed_bytes"]["int8"] < found["needed_bytes"]["bf16"]
    code, out, lines = cli("models", "facebook/opt-66b")
    assert (code, lines) == (0, []) and in_gb(found["needed_bytes"]["int8"]) in out
    assert "65,719.7 M parameters with embeddings, 64 layers of 72 heads" in out


def test_layers_lie_where_there_is_room_or_as_asked(cli, told, monkeypatch):
    rooms = {"cpu": 100 * GB, "disk": 1000 * GB}
    for module in (placement, session):
        monkeypatch.setattr(module, "free_memory", lambda folder: rooms)
    monkeypatch.setattr(needs, "free_bytes", lambda: rooms["cpu"])
    assert told("models", "facebook/opt-66b")["layers"] == ["cpu"] * 64
    split = told("models", "facebook/opt-66b", "--precision", "bf16")
    assert split["free_bytes"] == rooms and {*split["layers"]} == {"cpu", "disk"}
    assert told("models", "facebook/opt-66b", "--place", "cpu:10,disk")["layers"] == ["cpu"] * 10 + ["disk"] * 54
    out = cli("models", "facebook/opt-66b", "--place", "cpu:10,disk")[1]
    assert "In int8: layers 0-9 in main memory, 10-63 on disk; each pass reads" in out
    rooms["disk"] = 0
    monkeypatch.setenv("HEADROOM_PLACE", "")
    full = told("models", "facebook/opt-66b", "--precision", "bf16")
    assert full["layers"] is None and "100.0 GB is free on cpu" in full["note"]


def test_a_folder_needs_its_config_alone(told, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256, "max_position_embeddings": 8192,
    }))  # fmt: skip
    found = told("models", tmp_path)
    assert found["parameters"] == 8_030_261_248 and found["source"] == "its config.json"


@pytest.mark.parametrize(
    "arguments, code, parts",
    [
        ("some/model", 1, ("some/model is not on this computer", "config.json")),
        ("facebook/opt-7b", 1, ("facebook/opt-7b", "66b")),
        ("--check", 2, ("--check needs a model",)),
    ],
)
def test_bad_input_gets_one_line(cli, arguments, code, parts):
    refused(cli("models", *arguments.split()), code, *parts)


@pytest.mark.parametrize("config", ["[]", '{"model_type": "opt", "hidden_size": -1}'])
def test_a_damaged_config_gets_one_line(cli, tmp_path, config):
    (tmp_path / "config.json").write_text(config)
    refused(cli("models", tmp_path), 1)


def test_it_needs_no_torch_and_loads_nothing(tmp_path):
    heavy = {"torch", "transformers", "lm_eval", "bitsandbytes", "accelerate", "datasets", "pandas"}
    code = "import sys\nfrom engine.__main__ import main\nassert main(sys.argv[1:]) == 0\n"
    code += f"print('loaded', sorted({heavy!r} & set(sys.modules)))"
    command = [sys.executable, "-c", code, "models", "facebook/opt-66b", "--cache", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "loaded []", done.stderr


def test_a_model_is_checked(cli, tiny_opt):
    code, out, _ = cli("models", "--check", tiny_opt)
    assert code == 0 and out.splitlines()[-1] == "all 8 checks passed"
    assert f"{self_check.SLICED}: passed" in out.splitlines()


def test_a_check_that_fails_is_named_and_ends_the_command_with_1(cli, tiny_opt, monkeypatch):
    self_check._checked_copy.cache_clear()
    real = masks._instead_of_heads
    monkeypatch.setattr(masks, "_instead_of_heads", lambda kept, *rest: real(kept[1:] + kept[:1], *rest))
    code, out, _ = cli("models", "--check", tiny_opt, "--json")
    self_check._checked_copy.cache_clear()
    found = json.loads(out)
    assert code == 1 and not found["passed"]
    failed = {check["name"] for check in found["checks"] if check["error"]}
    assert self_check.COLUMNS in failed and self_check.PLAIN not in failed
