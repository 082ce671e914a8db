"""Where the layers of a model lie that is larger than one device: as the user has it, else where there is room; said
with its cost; on disk for as long as the model is held."""

import gc
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from cache import open_store
from engine.architecture.families import FAMILIES
from engine.architecture.family import shape_of
from engine.architecture.model_config import ModelConfig, opt_config
from engine.errors import HeadroomError, UsageError
from engine.heads.ablation import Ablating, head_ablations
from engine.importance.activity import gate_gradients
from engine.models.in_memory import Models
from engine.models.loading import LoadSpec, aside_folder, identify, load
from engine.models.masks import Mask, parse_mask, pruned
from engine.models.session import Session
from engine.models.slicing import applied, sliced
from engine.placement import disk_offload as set_aside
from engine.placement import needs
from engine.placement import placement as placing
from engine.placement.accelerate_internals import is_offloaded, onloaded
from engine.placement.needs import load_needs
from engine.placement.placement import Placement, places, plan_placement
from tests.conftest import HANG_S, TEXT
from tests.engine.fixtures import family_folder, last, refused_by, target_in

IDS = torch.tensor([[2, *range(40, 70)]])
GB = 10**9


@pytest.fixture(scope="module")
def folder(tiny_opt, tmp_path_factory):
    """Three layers."""
    return family_folder("opt", tiny_opt, tmp_path_factory.mktemp("opt"))


@pytest.fixture
def placed(monkeypatch):
    """Asks for places from now on."""
    return partial(monkeypatch.setenv, "HEADROOM_PLACE")


@pytest.fixture
def large(tiny_opt):
    """A model of OPT-30B's shape, as its config says it."""
    tiny = identify(LoadSpec(str(tiny_opt)))
    of = shape_of(found := {**tiny.config, **opt_config("30b")})
    return replace(tiny, config=found, shape=of, n_params=ModelConfig("", found).parts.n_params, largest_bytes=0)


@pytest.fixture
def machine(monkeypatch):
    """Makes this computer one with so much room at each place."""

    def make(**rooms):
        device = "cuda" if "gpu0" in rooms else "cpu"
        for module in (placing, needs):
            monkeypatch.setattr(module, "device_class", lambda: device)
        gpus = sum(room for name, room in rooms.items() if name.startswith("gpu"))
        monkeypatch.setattr(needs, "free_bytes", lambda: gpus or rooms["cpu"])
        monkeypatch.setattr(placing, "free_memory", lambda folder: rooms)

    return make


def where(identity, precision, tmp_path):
    return plan_placement(identity.model_config, precision, tmp_path)


def logits(loaded):
    with torch.inference_mode():
        return loaded.model(input_ids=IDS).logits


def brought(loaded, tmp_path, n_here=1):
    """The model as beside a GPU that has room for so many layers, the CPU in the place of the GPU."""
    from accelerate import dispatch_model

    family, n = loaded.family, loaded.identity.shape.n_layers
    leaves = [name for name, module in loaded.model.named_modules() if not list(module.children())]
    device_map = {name: "cpu" for name in leaves if not name.startswith(f"{family.layers}.")}
    device_map |= {f"{family.layers}.{at}": "cpu" if at < n_here else "disk" for at in range(n)}
    dispatch_model(loaded.model, device_map, main_device="cpu", offload_dir=str(tmp_path / "offloaded"))
    layers = ("gpu0",) * n_here + ("cpu",) * (n - n_here)
    return replace(loaded, placing=Placement(layers, "gpu0", loaded.placing.layer_bytes))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cpu:4,disk", (("cpu", 4), ("disk", None))),
        (" GPU0:20, gpu1:20 ,cpu:4 , disk ", (("gpu0", 20), ("gpu1", 20), ("cpu", 4), ("disk", None))),
        ("disk", (("disk", None),)),
    ],
)
def test_places_are_typed_in_order(text, found):
    assert places(text) == found


@pytest.mark.parametrize("text", ["cpu:-1", "tape", "cpu,disk", "cpu:1,disk:1,cpu", ","])
def test_nonsense_is_refused_in_one_line(text, folder, placed):
    placed(text)
    refused_by(UsageError, "HEADROOM_PLACE", lambda: load(LoadSpec(str(folder), "fp32")))


def test_places_that_this_computer_or_model_lacks_are_refused(folder, placed, machine):
    machine(cpu=GB * 10, disk=GB * 10)
    placed("gpu3:1,cpu")
    refused_by(UsageError, "names gpu3, and this computer has cpu, disk", lambda: load(LoadSpec(str(folder), "fp32")))
    placed("cpu:1,disk:1")
    refused_by(UsageError, "places for 2 layers, and .* has 3", lambda: load(LoadSpec(str(folder), "fp32")))
    placed("cpu:99,disk")
    assert load(LoadSpec(str(folder), "fp32")).placing.is_whole


def test_a_model_that_fits_lies_on_one_device(large, machine, tmp_path):
    machine(cpu=GB * 100, disk=0)
    assert where(large, "bf16", tmp_path).is_whole
    machine(gpu0=GB * 80, gpu1=GB * 80, cpu=GB * 100, disk=0)
    assert set(where(large, "bf16", tmp_path).layers) == {"gpu0"}


@pytest.mark.parametrize("precision", ["int8", "bf16", "fp32"])
def test_what_is_too_large_for_memory_goes_on_disk(precision, large, machine, tmp_path):
    needed = load_needs(large.model_config, precision)
    machine(cpu=needed.total * 3 // 4, disk=GB * 400)
    found = where(large, precision, tmp_path)
    n = found.layers.count("cpu")
    assert found.layers == ("cpu",) * n + ("disk",) * (48 - n) and 30 < n < 40
    assert found.moved_bytes() == {"disk": (48 - n) * found.layer_bytes}
    assert found.layer_bytes * 48 == pytest.approx(large.weight_bytes(precision), rel=0.04)


def test_gpus_are_filled_in_order_then_memory_then_the_disk(large, machine, tmp_path):
    machine(gpu0=GB * 24, gpu1=GB * 16, cpu=GB * 12, disk=GB * 400)
    found = where(large, "bf16", tmp_path)
    assert list(dict.fromkeys(found.layers)) == ["gpu0", "gpu1", "cpu", "disk"] and len(found.layers) == 48
    assert found.main == "gpu0" and found.moved == set(range(48 - found.layers[::-1].index("gpu1"), 48))
    counts = {name: found.layers.count(name) * found.layer_bytes for name in ("gpu0", "gpu1", "cpu")}
    assert counts["gpu0"] + 2 * 50272 * 7168 < GB * 24 and counts["gpu1"] < GB * 16 and counts["cpu"] < GB * 12
    moved = found.moved_bytes()
    on_disk = found.layers.count("disk") * found.layer_bytes
    assert moved == {"disk": on_disk, "gpu": on_disk + counts["cpu"]}
    said = found.with_cost({"disk": 2e9})
    assert said.startswith("layers 0-") and "on GPU 0, " in said and "s at the 2.0 GB/s measured here" in said
    assert "brings" in said and "to GPU 0" in said and " s at" not in said.partition("brings")[2]


def test_int8_layers_stay_on_gpus(large, machine, tmp_path):
    machine(gpu0=GB * 24, gpu1=GB * 24, cpu=GB * 100, disk=GB * 400)
    assert set(where(large, "int8", tmp_path).layers) == {"gpu0", "gpu1"}


ONE_GPU = {"gpu0": GB * 24, "cpu": GB * 100, "disk": GB * 400}


@pytest.mark.parametrize("rooms, place, precision, said", [
    # bitsandbytes has no int8 layers that are brought to a GPU for a pass
    (ONE_GPU, "", "int8", "in int8 needs about .*; in bf16 or fp32 layers may lie in main memory"),
    (ONE_GPU, "gpu0:40,cpu", "int8", "choose bf16 or fp32"),
    ({"cpu": GB * 20, "disk": GB * 30}, "", "bf16",
     r"needs about 7\d.* is free on cpu.* more in .* of its layers would lie"),
    ({"cpu": GB, "disk": GB * 400}, "", "bf16", "without its layers it needs .* layers on disk do not help"),
    ({"cpu": GB * 20, "disk": GB * 400}, "cpu:40,disk", "bf16",
     r"sets layers 0-39 in main memory, 40-47 on disk of .* do not fit"),
])  # fmt: skip
def test_no_room_is_said_with_what_is_lacking(rooms, place, precision, said, large, machine, placed, tmp_path):
    machine(**rooms)
    placed(place)
    refused_by(HeadroomError, said, lambda: where(large, precision, tmp_path))


def test_each_layer_runs_on_the_first_device_or_where_it_lies(folder):
    """So keys need not tell devices apart: beside GPUs nothing runs on the CPU."""
    from transformers import AutoConfig, OPTForCausalLM

    config = AutoConfig.from_pretrained(folder)
    opt = FAMILIES["opt"]
    found = placing.device_map(Placement(("gpu0", "gpu1", "disk"), "gpu0", 1), OPTForCausalLM, config, opt)
    layers = {name: place for name, place in found.items() if ".layers." in name}
    assert layers == {"model.decoder.layers.0": 0, "model.decoder.layers.1": 1, "model.decoder.layers.2": "cpu"}
    assert {place for name, place in found.items() if name not in layers} == {0}
    with torch.device("meta"):
        names = [name for name, _ in OPTForCausalLM(config).named_parameters()]
    assert all(any(name.startswith(f"{part}.") for part in found) for name in names)
    assert placing.device_map(Placement(("cpu", "disk", "disk"), "cpu", 1), OPTForCausalLM, config, opt) == {"": "cpu"}


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_layers_on_disk_are_files_for_as_long_as_the_model_is_held(precision, folder, store, placed):
    plain = logits(load(LoadSpec(str(folder), precision)))
    placed("cpu:1,disk")
    models = Models(store)
    found = models.get(LoadSpec(str(folder), precision))
    (aside,) = aside_folder(store).iterdir()
    n_bytes = sum(file.stat().st_size for file in aside.iterdir())
    assert found.placing.disk_bytes * 0.8 < n_bytes <= found.placing.disk_bytes
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if str(aside) in line}
    assert len(mapped) == len(list(aside.iterdir()))
    assert torch.equal(logits(found), plain) and torch.equal(logits(found), plain)
    assert {"disk"} == set(placing.known_rates(store, aside_folder(store)))
    del found
    models.unload()
    assert not list(aside_folder(store).iterdir())


def test_masks_and_slices_leave_the_model_as_it_was(folder, store, placed, tmp_path):
    whole = load(LoadSpec(str(folder), "fp32"))
    mask, plain = parse_mask("L1H0-2 F1 B2", whole.identity.shape), logits(whole)
    with pruned(whole, mask):
        masked = logits(whole)
    parts = sliced(whole, mask)
    with applied(whole, parts):
        small = logits(whole)
    placed("cpu:1,disk")
    for found in (load(LoadSpec(str(folder), "fp32"), store), brought(load(LoadSpec(str(folder), "fp32")), tmp_path)):
        with pruned(found, mask):
            assert torch.equal(logits(found), masked)
        there = sliced(found, mask)
        assert replace(there, swaps=()) == replace(parts, swaps=()), "as small, by parameters and bytes"
        with pytest.raises(ZeroDivisionError), applied(found, there):
            assert torch.equal(logits(found), small)
            raise ZeroDivisionError
        assert torch.equal(logits(found), plain)


def test_weights_are_read_where_they_lie(folder, tmp_path):
    whole = load(LoadSpec(str(folder), "fp32"))
    away = brought(load(LoadSpec(str(folder), "fp32")), tmp_path)
    layers = away.family.layer_list(away.model)
    assert [is_offloaded(layer.fc1) for layer in layers] == [False, True, True]
    for layer, plain in zip(layers, whole.family.layer_list(whole.model), strict=True):
        with onloaded(layer), onloaded(layer.fc1):
            for (name, value), (_, expected) in zip(layer.named_parameters(), plain.named_parameters(), strict=True):
                assert torch.equal(value, expected), name
    assert [is_offloaded(layer.fc1) for layer in layers] == [False, True, True], "and go back"


@pytest.mark.parametrize("place", ["disk:2,cpu", "disk"])
def test_heads_are_ablated_one_by_one_the_same(place, folder, placed, tmp_path):
    found = []
    for name in ("", place):
        placed(name)
        session = Session(open_store(tmp_path / f"results {name}"))
        target = target_in(session, folder)
        how = Ablating(Mask.full(target.shape), "pattern-preserving", "mean")
        found.append(last(head_ablations(target, [TEXT[:200]], how).run(session)).value)
        assert session.models.loaded.placing.is_whole == (not name)
        session.store.close()
    np.testing.assert_array_equal(found[1].base[0], found[0].base[0])
    np.testing.assert_array_equal(found[1].ablated[0], found[0].ablated[0])


def test_gradients_beside_a_gpu_are_refused_where_they_would_not_fit(folder, machine, tmp_path):
    found = brought(load(LoadSpec(str(folder), "fp32")), tmp_path)
    machine(gpu0=found.placing.layer_bytes, cpu=GB, disk=GB)
    with pytest.raises(HeadroomError, match="gradients through .* choose a criterion without gradients"):
        gate_gradients(found, [])


def test_a_full_disk_is_one_line_and_leaves_nothing(folder, store, placed, monkeypatch):
    placed("cpu:1,disk")
    store.put("key", b"value")
    real = set_aside.DiskOffload.mapped

    class Full(type(store.directory)):  # of this folder alone: transformers' threads go on behind the error
        def open(self, *arguments, **options):
            raise OSError(28, "No space left on device")

    def full(self, tensor):
        if len(self.files) >= 5:
            self.folder = Full(self.folder)
        return real(self, tensor)

    monkeypatch.setattr(set_aside.DiskOffload, "mapped", full)
    with pytest.raises(
        HeadroomError, match="cannot hold the model's layers .No space left on device.; free space"
    ) as no:
        load(LoadSpec(str(folder), "fp32"), store)
    assert "\n" not in str(no.value)
    monkeypatch.undo()
    assert not list(aside_folder(store).iterdir()) and store.get("key") == b"value"


def test_what_a_killed_process_left_goes_at_the_next_load(folder, store, placed, warm):
    code = "import os, sys\nfrom cache import open_store\nfrom engine.models.loading import LoadSpec, load\n"
    code += "held = load(LoadSpec(sys.argv[1], 'fp32'), open_store(sys.argv[2]))\nprint('held', flush=True)\ninput()\n"
    environment = os.environ | {"HEADROOM_PLACE": "disk"}
    child = warm.start(["-c", code, folder, store.directory], env=environment)
    try:
        assert child.stdout.readline() == "held\n"
        (left,) = aside_folder(store).iterdir()
        load(LoadSpec(str(folder), "fp32"), store)
        assert left.is_dir() and list(left.iterdir()), "of a process that lives, it stays"
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=HANG_S)
    assert left.is_dir()
    load(LoadSpec(str(folder), "fp32"), store)
    gc.collect()
    assert not list(aside_folder(store).iterdir())


def test_a_forecast_says_where_layers_would_lie_before_anything_is_loaded(session, folder, placed):
    placed("cpu:2,disk")
    spec = LoadSpec(str(folder), "fp32")
    said = session.places(spec, identify(spec))
    assert said.startswith("layers 0-1 in main memory, 2 on disk; each pass reads") and "measured here" not in said
    session.models.get(spec)
    assert "MB/s measured here, less where the system still holds them" in session.places(spec)
    session.models.unload()
    placed("")
    assert session.places(spec, identify(spec)) == ""
