"""The models in memory: the one that is measured, and others that open tabs show, as far as memory has room."""

import gc
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import replace

from cache import Store
from engine.checkpoints.identity import Identity
from engine.errors import HeadroomError
from engine.kernels.kernel_choice import set_threads, tuning
from engine.memory import return_freed_memory
from engine.models import loading
from engine.models.loading import Loaded, LoadSpec, aside_folder, identify, ways_of
from engine.models.self_check import check_model, fault_of
from engine.placement.devices import CPU, free_bytes
from engine.placement.needs import measuring_needs, passing_bytes
from engine.placement.placement import asked_places, plan_placement
from engine.progress import tell


class Models:
    """Holds the model used last, and those that `shown` names (the models of open tabs) while there is room for what
    measuring any of them needs. Asking for another frees the ones not shown, then the least recently used, before it is
    loaded. Safe to share between threads: one loads at a time."""

    def __init__(self, store: Store | None = None, shown: Callable[[], Collection[LoadSpec]] = lambda: ()) -> None:
        self._store, self._shown = store, shown
        self._lock = threading.RLock()
        self._held: OrderedDict[LoadSpec, Loaded] = OrderedDict()  # the last used is the last

    @property
    def held(self) -> tuple[Loaded, ...]:
        """The models in memory, the last used first."""
        return tuple(self._held.copy().values())[::-1]

    @property
    def loaded(self) -> Loaded | None:
        """The model that was used last."""
        return next(iter(self.held), None)

    def holds(self, spec: LoadSpec) -> bool:
        """Whether this model is in memory."""
        return spec in self._held

    def get(self, spec: LoadSpec) -> Loaded:
        """The loaded model of `spec`: the one in memory if its files have not changed, else freshly loaded."""
        with self._lock:
            shown = self._shown()
            self._free(*(each for each in self._held if each != spec and each not in shown))
            held = self._held.get(spec)
            if held and identify(spec, self._store).digest == held.identity.digest:
                if held.products == ways_of(spec, held.identity, self._store):
                    self._use(held)
                    return held
            del held
            self._free(spec)
            if self._held:
                self._make_room(spec, identify(spec, self._store))
            loaded = self._held[spec] = self.checked(loading.load(spec, self._store))
            return loaded

    def unload(self) -> None:
        """Releases the loaded models and returns their memory to the system."""
        with self._lock:
            self._free(*self._held)

    def checked(self, loaded: Loaded) -> Loaded:
        """The model with the self-check that it fails, if any; the included model is known to pass. HeadroomError: its
        type is not in the table of families, and it fails one."""
        fault = ""
        if not loaded.spec.is_demo:
            tell.get()(99, 100, f"checking the layers of {loaded.spec.model}", None)
            fault = fault_of(check_model(loaded, self._store))
            tell.get()(99, 100, "", None)  # what follows is no part of the check
        if fault and not loaded.family.is_verified:
            raise HeadroomError(f"{loaded.spec.model}: the layout of {loaded.family.name} was not recognized correctly "
                                f"({fault}); use a model of a supported type")  # fmt: skip
        return replace(loaded, fault=fault)

    def _use(self, held: Loaded) -> None:
        """Has this model be the one used last, and frees others as long as its passes lack memory."""
        if next(reversed(self._held)) != held.spec:
            self._held.move_to_end(held.spec)
            set_threads(held.identity.n_params, tuning(self._store))
        needed = passing_bytes(held.identity.model_config, held.spec.precision) if len(self._held) > 1 else 0
        while len(self._held) > 1 and held.device == CPU and needed > free_bytes():
            self._free(next(iter(self._held)))

    def _make_room(self, spec: LoadSpec, identity: Identity) -> None:
        """Frees the least recently used models until this one can be loaded and measured next to the others, placed as
        if it were alone."""
        while self._held and not self._fits(spec, identity):
            self._free(next(iter(self._held)))

    def _fits(self, spec: LoadSpec, identity: Identity) -> bool:
        if asked_places() is not None or not all(each.placing.is_whole for each in self._held.values()):
            return False
        _return_memory()
        if measuring_needs(identity.model_config, spec.precision).total > free_bytes():
            return False
        try:
            return plan_placement(identity.model_config, spec.precision, aside_folder(self._store)).is_whole
        except HeadroomError:
            return False

    def _free(self, *specs: LoadSpec) -> None:
        n_before = len(self._held)
        for spec in specs:
            self._held.pop(spec, None)
        if len(self._held) < n_before:
            gc.collect()
            _return_memory()


def _return_memory() -> None:
    """Gives the system what freed tensors leave."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return_freed_memory()
