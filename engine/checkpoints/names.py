"""How a model is typed: `demo`, a folder, or a hub id or a run of training, which may have a revision or a snapshot
behind `@`; read here alone.

`EleutherAI/pythia-70m@step{0,512,1000}` is a series: three names at once.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from engine.checkpoints.runs import SHIPPED, run_of, shipped_runs, step_of
from engine.errors import HeadroomError, UsageError

REPO = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*/)?[A-Za-z0-9_][A-Za-z0-9._-]*")
REVISION = re.compile(r"[A-Za-z0-9_.+-]+(?:/[A-Za-z0-9_.+-]+)*")
SERIES = re.compile(r"([^{}]*)\{([^{}]*)\}([^{}]*)")
LONGEST_REPO, LONGEST_REVISION, LONGEST_SERIES = 96, 200, 200


@dataclass(frozen=True)
class ModelName:
    """What a model is called: a `folder`, or a `repo` of the hub, whose `revision` is `main` unless one was typed.
    Neither: `demo`. Of a `run` the folder is that of a snapshot, and the `revision` its `stepN`."""

    repo: str = ""
    revision: str = "main"
    folder: Path | None = None
    run: str = ""

    def __str__(self) -> str:
        """As it is typed."""
        if self.run:
            return f"{self.run}@{self.revision}"
        if self.folder is not None:
            return str(self.folder)
        return "demo" if not self.repo else self.repo + ("" if self.revision == "main" else f"@{self.revision}")


def with_revision(text: str, revision: str | None) -> str:
    """The name with a separately given revision."""
    return text if revision is None else f"{text.strip()}@{revision}"


def without_revision(text: str) -> str:
    """The name without a revision or snapshot that stands behind it; a folder's and a name that is none stay as they
    are."""
    before, at, _ = text.strip().rpartition("@")
    if at and _folder(text.strip()) is None and run_of(before):
        return before
    try:
        found = model_name(text)
    except HeadroomError:
        return text
    return found.repo or text


def short_name(text: str) -> str:
    """The name for a label: a folder's without what leads to it."""
    return text.rstrip("/").rpartition("/")[2] or text if text.startswith((".", "/", "~")) else text


def model_name(text: str) -> ModelName:
    """What `text` names. HeadroomError: it is not a name, or a folder that does not exist; UsageError: a revision of
    what has none, a snapshot that is not there, or a series where one model is wanted. A run alone is its last
    snapshot."""
    name = text.strip()
    if name == "demo":
        return ModelName()
    if (run := run_of(name)) is not None:
        return _snapshot(*run, None)
    if (folder := _folder(name)) is not None:
        return ModelName(folder=folder)
    before, at, revision = name.partition("@") if name.count("@") == 1 else name.rpartition("@")
    run = run_of(before) if at else None
    if at and run is None and (before == "demo" or _folder(before) is not None):
        raise UsageError(f"{before} has no revisions, and {revision!r} was given; only models of the hub and runs of "
                         "training have")  # fmt: skip
    if len(series := models_of(name)) > 1:
        raise UsageError(f"{name!r} names {len(series)} models and one is wanted here; give one, such as {series[0]}")
    if run is not None:
        return _snapshot(*run, revision)
    repo = before if at else name
    if repo.startswith(SHIPPED) and (known := shipped_runs()):
        raise HeadroomError(f"no run {_short(repo)} comes with Headroom; there are {', '.join(known)}")
    if not repo or repo.startswith((".", "/", "~", "\\")) or repo.count("/") > 1 or _is_file(name):
        raise HeadroomError(f"no such model folder: {_short(name)}; give a folder with config.json, a hub id, or demo")
    if not REPO.fullmatch(repo) or len(repo) > LONGEST_REPO or ".." in repo or "--" in repo:
        raise HeadroomError(
            f"model {_short(repo)} is neither a folder nor a hub id; write it like facebook/opt-125m or "
            "EleutherAI/pythia-70m@step1000"
        )
    if at and (not REVISION.fullmatch(revision) or ".." in revision or len(revision) > LONGEST_REVISION):
        raise HeadroomError(f"{_short(revision)} is not a revision of {repo}; use a branch, a tag or a commit")
    return ModelName(repo, revision if at else "main")


def models_of(text: str) -> tuple[str, ...]:
    """The names in a series such as `org/model@step{0,512}`; the name itself where it is none. UsageError: it is empty
    or too long."""
    found = SERIES.fullmatch(text.strip())
    if found is None or "@" not in found[1]:
        return (text.strip(),)
    items = [item.strip() for item in found[2].split(",")]
    if not all(items) or len(items) > LONGEST_SERIES:
        raise UsageError(
            f"{_short(text.strip())} is not a series of 1 to {LONGEST_SERIES} revisions; write it like "
            "EleutherAI/pythia-70m@step{0,512,1000}"
        )
    return tuple(dict.fromkeys(f"{found[1]}{item}{found[3]}" for item in items))


def _snapshot(run: str, folder: Path, revision: str | None) -> ModelName:
    step = f"step{step_of(run, folder, revision)}"
    return ModelName(revision=step, folder=folder / step, run=run)


def _folder(text: str) -> Path | None:
    """The folder of that path, None where there is none."""
    try:
        folder = Path(text).expanduser()
        return folder.resolve() if text and folder.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # too long, no such user, a NUL
        return None


def _is_file(text: str) -> bool:
    try:
        return Path(text).expanduser().is_file()
    except (OSError, RuntimeError, ValueError):
        return False


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
