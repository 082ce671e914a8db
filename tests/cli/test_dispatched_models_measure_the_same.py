"""A model whose layers lie elsewhere measures what it measures in one piece, bit for bit: whatever a command stores.

Twice: with layers on disk, and brought to their device by accelerate's hooks, as beside a GPU; there the CPU stands in
for it, and weights are as empty between passes as they are there.
"""

import os

import numpy as np
import pytest

from cache import open_store
from engine.models import loading
from engine.placement.placement import Placement
from engine.records import decode
from tests.conftest import IS_THOROUGH, TEXT
from tests.engine.fixtures import DISTINCT, in_turns, write_questions

MASK = "L0H1-3 F1 L2H*"
TASK = ("--task", "{questions}", "--shots", "0", "--limit", "12")
TEXTS = ("--text", "{text}")
COMMANDS = {
    "accuracy": ("evaluate", *TASK, "--mask", MASK, "--limit", "20"),
    "accuracy with shared examples": ("evaluate", *TASK, "--shots", "2", "--same-examples", "--mask", "L*H0 F0"),
    "a dropped layer": ("evaluate", *TASK, "--mask", "B1"),
    "by importance": ("evaluate", *TASK, "--prune-heads", "60", "--prune-ffns", "30", "--order-questions", "8"),
    "by prefix matching": ("evaluate", *TASK, "--prune-heads", "60", "--order", "prefix"),
    "two models": ("evaluate", *TASK, "--mask", "L1H0", "--against", "bf16"),
    "gates": ("importance", *TASK, "--score", "gate", "--out", "{out}.csv"),
    "single ablations": ("importance", *TASK, "--score", "heads-oracle", "--limit", "6", "--out", "{out}.csv"),
    "FFNs one by one": ("importance", *TASK, "--score", "ffns", "--out", "{out}.csv"),
    "weights": ("importance", *TASK, "--score", "heads-weight", "--out", "{out}.csv"),
    "activations": ("importance", *TASK, "--score", "ffns-wanda", "--out", "{out}.csv"),
    "layers": ("layers", *TASK, "--greedy", "2"),
    "induction": ("induction", "--variant", "olsson", "--out", "{out}.csv"),
    "losses": ("losses", *TEXTS, "--mask", MASK, "--out", "{out}.csv"),
    "continuations": ("continue", "--prompt", "The river", "--mask", MASK, "--tokens", "6", "--out", "{out}.csv"),
    "attention": ("attention", *TEXTS, "--heads", "L1H0,L2H1", "--out", "{out}.csv"),
    "ideal heads": ("idealize", *TEXTS, "--heads", "L1H0,L2H1", *TASK),
    "perplexity": ("perplexity", *TEXTS, "--mask", MASK),
    "one head": ("head", "L1H1", "--tasks", "{questions}", "--shots", "0", "--limit", "8"),
    "criteria": ("compare", *TASK[:4], "--criteria", "importance,wanda,first-token", "--levels", "0,50",
                 "--random-orders", "1", "--order-questions", "8", "--out", "{out}.csv"),
    "what pruning saves": ("speed", "--mask", MASK),
}  # fmt: skip
BUT_OPT = [family for family in DISTINCT if family != "opt"]  # of which every command is compared
# unless thorough, each family in one of the two ways
ON_DISK, BROUGHT = (BUT_OPT, BUT_OPT) if IS_THOROUGH else (BUT_OPT[1::2], BUT_OPT[::2])
PRECISIONS = ("bf16", "int8", "fp32")
ANSWERED = ("accuracy", "by importance")
TIMED = ("rates", "tuning", "cost", "speed")  # kinds of records that are of this moment


@pytest.fixture(scope="module")
def about(tmp_path_factory):
    """Questions and a text."""
    folder = tmp_path_factory.mktemp("about")
    (folder / "text.txt").write_text(TEXT)
    questions = write_questions(folder / "questions.jsonl", 24)
    return {"questions": questions, "text": folder / "text.txt"}


@pytest.fixture
def stored(cli, about, tmp_path, monkeypatch):
    """What a command on a model leaves in a store of its own: arrays by key and name, without what was timed."""

    def run(name, *arguments):
        cache = tmp_path / name
        options = [str(part).format(out=tmp_path / f"{name}-out", **about) for part in arguments]
        code, _, lines = cli(*options, "--cache", cache, "--threads", 1)
        assert code == 0, lines
        store = open_store(cache)
        found = {key: decode(store.get(key)) for key in store.keys() if "/" in key}
        store.close()
        found = {key: record for key, record in found.items() if record is not None}
        kept = {key: each.arrays for key, each in found.items() if key.split("/")[1] not in TIMED}
        kept |= {key: {} for key, each in found.items() if key.split("/")[1] in ("cost", "speed")}
        return kept, lines

    return run


def brought(monkeypatch, tmp_path):
    """Has every model loaded as beside a GPU whose room is for one layer: accelerate brings the others there."""
    from accelerate import dispatch_model

    real, numbers = loading.load, iter(range(100))

    def load(*arguments, **options):
        held = real(*arguments, **options)
        family, n = held.family, held.identity.shape.n_layers
        places = {name: "cpu" for name, module in held.model.named_modules() if not list(module.children())}
        places = {name: place for name, place in places.items() if not name.startswith(f"{family.layers}.")}
        places |= {f"{family.layers}.{layer}": "disk" if layer else "cpu" for layer in range(n)}
        aside = tmp_path / f"offloaded-{next(numbers)}"
        dispatch_model(held.model, places, main_device="cpu", offload_dir=str(aside))
        placing = Placement(("gpu0", *("cpu",) * (n - 1)), "gpu0", held.placing.layer_bytes)
        return loading.replace(held, placing=placing)

    monkeypatch.setattr(loading, "load", load)
    rooms = {"gpu0": 10**12, "cpu": 10**12, "disk": 10**12}
    monkeypatch.setattr("engine.placement.placement.free_memory", lambda folder: rooms)
    monkeypatch.setattr("engine.export.exporting.load", load)


def assert_same(found, expected, off=0.0):
    assert found.keys() == expected.keys() and expected
    for key, arrays in expected.items():
        for name, array in arrays.items():
            assert found[key][name].dtype == array.dtype
            np.testing.assert_allclose(found[key][name], array, rtol=off, atol=off, err_msg=f"{key} {name}")


@pytest.fixture(scope="module")
def in_one_piece():
    """By command, what it stores of a model in one piece: measured once for all ways that layers may be placed."""
    return {}


@pytest.mark.thorough
@pytest.mark.parametrize("command, way", in_turns(COMMANDS, ["on disk", "brought"]))
def test_every_measurement_is_that_of_the_model_in_one_piece(
    command, way, stored, in_one_piece, folder_of, monkeypatch, tmp_path
):
    family = "opt-350m" if command == "one head" else "opt"  # whose norms stand in the way of what heads write
    arguments = (*COMMANDS[command], "--model", folder_of(family), "--precision", "fp32")
    if command not in in_one_piece:
        in_one_piece[command], _ = stored("whole", *arguments)
    if way == "brought":
        brought(monkeypatch, tmp_path)
        found, lines = stored("placed", *arguments)
        assert "layers 0 on GPU 0, 1-2 in main memory; each pass brings" in lines[-1]
    else:
        found, lines = stored("placed", *arguments, "--place", "cpu:1,disk")
        assert "layers 0 in main memory, 1-2 on disk; each pass reads" in lines[-1]
        assert not os.listdir(tmp_path / "placed" / "layers"), "the files go with the model"
    assert_same(found, in_one_piece[command])


@pytest.mark.thorough
@pytest.mark.parametrize("family, precision, command", in_turns(ON_DISK, PRECISIONS, ANSWERED))
def test_in_every_family_and_precision(command, family, precision, stored, folder_of):
    arguments = (*COMMANDS[command], "--model", folder_of(family), "--precision", precision)
    expected, _ = stored("whole", *arguments)
    assert_same(stored("placed", *arguments, "--place", "disk:1,cpu")[0], expected)


@pytest.mark.thorough
@pytest.mark.parametrize("family, command", in_turns(BROUGHT, ANSWERED[::-1]))
def test_in_every_family_where_layers_are_brought(command, family, stored, folder_of, monkeypatch, tmp_path):
    """Heads whose keys are smeared are masked there, not sliced: other sums."""
    arguments = (*COMMANDS[command], "--model", folder_of(family), "--precision", "fp32")
    expected, _ = stored("whole", *arguments)
    brought(monkeypatch, tmp_path)
    assert_same(stored("placed", *arguments)[0], expected, off=1e-5 if family == "small" else 0.0)


@pytest.mark.parametrize("form", ["masked", "small"])
def test_an_export_is_the_same(form, stored, folder_of, tmp_path):
    arguments = ("export", "--mask", MASK, "--form", form, "--out", "{out}", "--model", folder_of("opt"))
    stored("whole", *arguments)
    stored("placed", *arguments, "--place", "cpu:1,disk")
    files = ("model.safetensors", "config.json")
    whole, placed = ([(tmp_path / f"{name}-out" / file).read_bytes() for file in files] for name in ("whole", "placed"))
    assert whole == placed
