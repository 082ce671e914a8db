"""`Diagnose`: the state of this installation, for bug reports."""

import importlib.metadata
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from engine.checkpoints.hub import in_bytes
from engine.checkpoints.hub_internals import held_revisions
from engine.demo import passages, run_records
from engine.errors import HeadroomError
from engine.export.card import headroom_version
from engine.kernels.kernel_choice import PINNED, SMALL_PARAMETERS, abilities, known_products, processor
from engine.models.loading import LoadSpec, identify
from engine.models.session import Session
from engine.placement.devices import free_on_disk, main_memory_bytes
from engine.questions.tasks import list_tasks
from engine.requests.base import Request, RequestRun, Result
from engine.views.view import text_view

LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "huggingface-hub", "accelerate", "bitsandbytes",
             "gguf", "lm-eval", "datasets", "diskcache", "streamlit", "altair")  # fmt: skip
INSTRUCTIONS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
SHOWN = ("HEADROOM_DEVICE", "HEADROOM_IDLE_SECONDS", "HEADROOM_PLACE", PINNED)  # variables without paths or addresses
Facts = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Diagnose(Request):
    """Report versions, processor, kernels, store and included data, for bug reports. The value is the facts by
    section. The only path in it is the store's."""

    command: ClassVar[str] = "doctor"
    is_measured: ClassVar[bool] = False

    def measure(self, run: RequestRun) -> Result:
        facts, problems = diagnose(run.session)
        lines = [f"{name}: {value}" for section in facts.values() for name, value in section.items()]
        lines += [f"problem: {problem}" for problem in problems] or ["no problems found"]
        return Result(facts, {**facts, "problems": problems}, text_view("\n".join(lines)), agrees=not problems)


def diagnose(session: Session) -> tuple[dict[str, Facts], list[str]]:
    """The facts by section, and one line for each problem."""
    facts, problems = {}, []
    for name, section in SECTIONS.items():
        try:
            facts[name] = section(session)
        except HeadroomError as error:
            facts[name] = {}
            problems.append(str(error))
    if facts["store"].get("store is writable") == "no":
        problems.append(f"results cannot be stored in {facts['store']['store']}; set HEADROOM_CACHE to another folder")
    missing = [name for name, version in facts["versions"].items() if version is None]
    problems += [f"{name} is not installed; run pip install -r requirements.txt" for name in missing]
    problems += [f"{name} is missing; reinstall Headroom" for name, n in facts["included"].items() if not n]
    return facts, problems


def _versions(session: Session) -> Facts:
    found: Facts = {"headroom": headroom_version(), "python": platform.python_version(), "system": platform.platform()}
    for library in LIBRARIES:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            found[library] = None
    return found


def _machine(session: Session) -> Facts:
    import psutil
    import torch

    able = [name for name in INSTRUCTIONS if name in abilities()]
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "processor": processor() or "unknown", "instructions": ", ".join(able) or "unknown", "cores": os.cpu_count(),
        "threads": torch.get_num_threads(), "memory": in_bytes(psutil.virtual_memory().total),
        "free memory": in_bytes(main_memory_bytes()), "GPUs": ", ".join(gpus) or "none",
    }  # fmt: skip


def _kernels(session: Session) -> Facts:
    """The kernels that models of two sizes would use; those of larger models are measured when one is first loaded."""
    found = {}
    for size, n_params in (("small models", 0), ("larger models", SMALL_PARAMETERS)):
        chosen = known_products(session.store, n_params)
        each = ", ".join(f"{name} {kernel}" for name, kernel in asdict(chosen).items()) if chosen else "not chosen yet"
        found[f"kernels of {size}"] = each
    return found


def _store(session: Session) -> Facts:
    store = session.store
    return {
        "store": _without_home(store.directory), "results": len(store.sizes()),
        "store size": in_bytes(store.size_bytes()), "free disk": in_bytes(free_on_disk(Path(store.directory))),
        "store is writable": "yes" if store.on_disk else "no",
    }  # fmt: skip


def _included(session: Session) -> Facts:
    identity = identify(LoadSpec("demo"), session.store)
    return {
        "demo model": f"{identity.n_params / 1e6:,.1f} M parameters, {identity.digest[:12]}",
        "included tasks": sum(state.where == "embedded" and state.available for state in list_tasks(None)),
        "included training runs": len(run_records()),
        "included passages": len(passages()),
    }  # fmt: skip


def _found(session: Session) -> Facts:
    held = list(held_revisions())
    tasks = list_tasks(os.environ.get("HEADROOM_TASK_DATA") or None)
    return {
        "downloaded models": len(held),
        "tasks in HEADROOM_TASK_DATA": sum(each.where == "folder" for each in tasks),
    }


def _settings(session: Session) -> Facts:
    """HEADROOM_ variables: their values, or only that they are set if they may hold a path or an address."""
    names = sorted(name for name in os.environ if name.startswith("HEADROOM_"))
    return {name: os.environ[name] if name in SHOWN else "set" for name in names}


def _without_home(folder: str | Path) -> str:
    """The folder with the user's home folder as `~`."""
    path, home = Path(folder).resolve(), Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) and path != home else str(path)


SECTIONS: Mapping[str, Callable[[Session], Facts]] = {
    "versions": _versions, "machine": _machine, "kernels": _kernels, "store": _store, "included": _included,
    "found": _found, "settings": _settings,
}  # fmt: skip
