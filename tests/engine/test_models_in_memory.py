"""Models in memory: those that are shown stay while there is room, the least recently used go, one loads at a time."""

import gc
import threading
import weakref
from dataclasses import replace

import pytest

from engine.errors import HeadroomError
from engine.kernels.kernel_choice import set_threads
from engine.models import in_memory, loading
from engine.models.in_memory import Models
from engine.models.loading import LoadSpec, identify
from engine.placement.needs import measuring_needs, passing_bytes
from tests.conftest import HANG_S
from tests.engine.fixtures import refused_by

GB = 10**9


class Loads:
    """Models of one folder in three precisions, which of them are shown, and what was loaded."""

    def __init__(self, folder, monkeypatch):
        self.fp32, self.bf16, self.int8 = (LoadSpec(str(folder), each) for each in ("fp32", "bf16", "int8"))
        self.shown, self.loads, self.at_once, self.most = set(), [], 0, 0
        self.models, real = Models(shown=lambda: self.shown), loading.load
        self.free = 100 * GB
        monkeypatch.setattr(in_memory, "free_bytes", lambda: self.free)

        def load(spec, *rest):
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            self.loads.append(spec.precision)
            try:
                return real(spec, *rest)
            finally:
                self.at_once -= 1

        monkeypatch.setattr(loading, "load", load)

    @property
    def held(self):
        return [each.spec.precision for each in self.models.held]


@pytest.fixture
def loads(tiny_opt, monkeypatch):
    return Loads(tiny_opt, monkeypatch)


def test_models_that_are_shown_are_in_memory_at_once(loads):
    loads.shown = {loads.fp32, loads.bf16}
    first, second = loads.models.get(loads.fp32), loads.models.get(loads.bf16)
    assert loads.models.holds(loads.fp32) and loads.models.holds(loads.bf16) and loads.models.loaded is second
    for _ in range(10):
        assert loads.models.get(loads.fp32) is first and loads.models.get(loads.bf16) is second
    assert loads.loads == ["fp32", "bf16"] and loads.held == ["bf16", "fp32"]
    gone = weakref.ref(first.model)
    del first
    loads.shown = set()
    assert loads.models.get(loads.bf16) is second and loads.held == ["bf16"], "shown no more, it goes"
    gc.collect()
    assert gone() is None
    loads.models.unload()
    assert loads.models.held == () and loads.models.loaded is None


def test_the_least_recently_used_goes_where_there_is_no_room(loads, monkeypatch):
    loads.shown = {loads.fp32, loads.bf16, loads.int8}
    for spec in (loads.fp32, loads.bf16, loads.fp32):
        loads.models.get(spec)
    needed = measuring_needs(identify(loads.int8).model_config, "int8").total
    monkeypatch.setattr(in_memory, "free_bytes", lambda: needed - (loads.models.holds(loads.bf16)))
    loads.models.get(loads.int8)
    assert loads.held == ["int8", "fp32"]
    monkeypatch.setattr(in_memory, "free_bytes", lambda: 0)
    loads.models.get(loads.bf16)
    assert loads.held == ["bf16"], "alone it is loaded where it can be"


def test_others_go_when_a_job_lacks_memory_for_its_passes(loads):
    loads.shown = {loads.fp32, loads.bf16}
    for spec in (loads.fp32, loads.bf16):
        loads.models.get(spec)
    needed = passing_bytes(identify(loads.bf16).model_config, "bf16")
    loads.free = needed
    loads.models.get(loads.bf16)
    assert loads.held == ["bf16", "fp32"]
    loads.free = needed - 1
    loads.models.get(loads.bf16)
    assert loads.held == ["bf16"]
    loads.models.get(loads.bf16)
    assert loads.held == ["bf16"] and loads.loads == ["fp32", "bf16"], "the one that runs stays"


def test_on_a_gpu_passes_free_no_model(loads):
    """What torch keeps of freed tensors there is not free for others, and still there for the passes."""
    loads.shown = {loads.fp32, loads.bf16}
    for spec in (loads.fp32, loads.bf16):
        loads.models._held[spec] = replace(loads.models.get(spec), device="cuda")
    loads.free = 0
    loads.models.get(loads.bf16)
    assert loads.held == ["bf16", "fp32"]


@pytest.mark.parametrize("placed", ["cpu:1,disk", "cpu"])
def test_places_that_are_asked_for_are_those_of_one_model(loads, placed, monkeypatch, tmp_path):
    loads.shown = {loads.fp32, loads.bf16}
    monkeypatch.setenv("HEADROOM_PLACE", placed)
    for spec in (loads.fp32, loads.bf16):
        loads.models.get(spec)
    assert loads.held == ["bf16"]


def test_a_model_is_never_placed_otherwise_than_alone(loads, monkeypatch):
    loads.shown, plan = {loads.fp32, loads.bf16}, in_memory.plan_placement

    def split(*about):
        found = plan(*about)
        return replace(found, layers=("disk", *found.layers[1:])) if loads.models.held else found

    monkeypatch.setattr(in_memory, "plan_placement", split)
    for spec in (loads.fp32, loads.bf16):
        loads.models.get(spec)
    assert loads.held == ["bf16"]


def test_a_model_that_cannot_be_loaded_leaves_the_others(loads, tmp_path):
    loads.models.get(loads.fp32)
    missing = LoadSpec(str(tmp_path / "missing"), "fp32")
    loads.shown = {loads.fp32, missing}
    refused_by(HeadroomError, "missing", lambda: loads.models.get(missing))
    assert loads.held == ["fp32"]


def test_threads_are_those_of_the_model_that_is_used(loads, monkeypatch):
    loads.shown, seen = {loads.fp32, loads.bf16}, []
    monkeypatch.setattr(in_memory, "set_threads", lambda *about: seen.append(about[0]) or set_threads(*about))
    for spec in (loads.fp32, loads.bf16, loads.bf16, loads.fp32):
        loads.models.get(spec)
    assert seen == [identify(loads.fp32).n_params]


def test_two_threads_never_load_at_once(loads):
    loads.shown = {loads.fp32, loads.bf16}
    specs = [loads.fp32, loads.bf16] * 2
    threads = [threading.Thread(target=loads.models.get, args=(spec,)) for spec in specs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert loads.most == 1 and sorted(loads.loads) == ["bf16", "fp32"]
