"""How a model is typed: `demo`, a folder, a GGUF file or a folder with one, or a hub id or a run of training, which may
have a revision or a snapshot behind `@`; read here alone. `EleutherAI/pythia-70m@step{0,512,1000}` is a series: three
names at once.

A run is a folder with recipe.json and a model folder `stepN` a snapshot. It is typed as its folder's path; one that
comes with the app as `runs/NAME`. It is read here without torch, and without what a recipe means (`engine.training`).
"""

import re
from dataclasses import dataclass
from pathlib import Path

from engine.demo import runs_folder
from engine.errors import HeadroomError, UsageError
from engine.files import is_file

REPO = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*/)?[A-Za-z0-9_][A-Za-z0-9._-]*")
REVISION = re.compile(r"[A-Za-z0-9_.+-]+(?:/[A-Za-z0-9_.+-]+)*")
SERIES = re.compile(r"([^{}]*)\{([^{}]*)\}([^{}]*)")
LONGEST_REPO, LONGEST_REVISION, LONGEST_SERIES = 96, 200, 200
RECIPE, WEIGHTS = "recipe.json", "model.safetensors"
STEP = re.compile(r"step(0|[1-9]\d{0,17})")
SHIPPED = "runs/"
GGUF, MAGIC = ".gguf", b"GGUF"
OTHER_WEIGHTS = (".safetensors", ".bin")
MOST_LISTED = 5


@dataclass(frozen=True)
class ModelName:
    """What a model is called: a `folder`, a file (`gguf`), or a `repo` of the hub, whose `revision` is `main` unless
    one was typed. None of them: `demo`. Of a `run` the folder is that of a snapshot, and the `revision` its `stepN`."""

    repo: str = ""
    revision: str = "main"
    folder: Path | None = None
    run: str = ""
    gguf: Path | None = None

    def __str__(self) -> str:
        """As it is typed."""
        if self.run:
            return f"{self.run}@{self.revision}"
        if self.folder is not None or self.gguf is not None:
            return str(self.folder or self.gguf)
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
    """What `text` names. HeadroomError: it is not a name, a folder or file that does not exist, or a folder with
    several GGUF files; UsageError: a revision of what has none, a snapshot that is not there, or a series where one
    model is wanted. A run alone is its last snapshot."""
    name = text.strip()
    if name == "demo":
        return ModelName()
    if (run := run_of(name)) is not None:
        return _snapshot(*run, None)
    if (folder := _folder(name)) is not None:
        file = _only_gguf(folder)
        return ModelName(folder=folder) if file is None else ModelName(gguf=file)
    if (path := _path(name)) is not None and is_gguf(path):
        return ModelName(gguf=path.resolve())
    before, at, revision = name.partition("@") if name.count("@") == 1 else name.rpartition("@")
    run = run_of(before) if at else None
    if at and run is None and (before == "demo" or _folder(before) is not None or _is_file(before)):
        raise UsageError(f"{before} has no revisions, and {revision!r} was given; only models of the hub and runs of "
                         "training have")  # fmt: skip
    if len(series := models_of(name)) > 1:
        raise UsageError(f"{name!r} names {len(series)} models and one is wanted here; give one, such as {series[0]}")
    if run is not None:
        return _snapshot(*run, revision)
    repo = before if at else name
    if repo.lower().endswith(GGUF):
        raise HeadroomError(f"no such GGUF file: {_short(name)}; give the path of a file on this computer")
    if repo.startswith(SHIPPED) and (known := shipped_runs()):
        raise HeadroomError(f"no run {_short(repo)} comes with Headroom; there are {', '.join(known)}")
    if not repo or repo.startswith((".", "/", "~", "\\")) or repo.count("/") > 1 or _is_file(name):
        raise HeadroomError(
            f"no such model folder: {_short(name)}; give a folder with config.json, a GGUF file, a hub id, or demo"
        )
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


def _path(text: str) -> Path | None:
    """The path that is typed, None if no file can have it."""
    try:
        return Path(text).expanduser() if text else None
    except (RuntimeError, ValueError):
        return None


def _is_file(text: str) -> bool:
    path = _path(text)
    return path is not None and is_file(path)


def is_gguf(file: Path) -> bool:
    """Whether a file is named as a GGUF file, or begins as one (those of Ollama have no ending)."""
    try:
        if not file.is_file():
            return False
        if file.name.lower().endswith(GGUF):
            return True
        with file.open("rb") as handle:
            return handle.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def _only_gguf(folder: Path) -> Path | None:
    """The one GGUF file of a folder without other weights; None: it has none, or weights. HeadroomError: it has
    several."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:  # reported when the folder is read
        return None
    found = [name for name in names if name.lower().endswith(GGUF)]
    if not found or any(name.endswith(OTHER_WEIGHTS) for name in names):
        return None
    if len(found) > 1:
        listed = ", ".join(found[:MOST_LISTED]) + (
            f" and {len(found) - MOST_LISTED} more" if found[MOST_LISTED:] else ""
        )
        raise HeadroomError(f"{folder} has {len(found)} GGUF files ({listed}); give one, such as {folder / found[0]}")
    return folder / found[0]


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


def is_run(folder: Path) -> bool:
    """Whether a run was begun in that folder; a folder that is a model itself is none."""
    return (folder / RECIPE).is_file() and not (folder / "config.json").exists()


def steps_of(folder: Path) -> tuple[int, ...]:
    """The steps whose snapshots are in a run's folder, in order; one that is not whole is none."""
    found = (STEP.fullmatch(entry.name) for entry in folder.iterdir())
    return tuple(sorted(int(match[1]) for match in found if match and (folder / match[0] / WEIGHTS).is_file()))


def run_of(text: str) -> tuple[str, Path] | None:
    """(the run's name, its folder) of a path or `runs/NAME`, or None if there is no run there."""
    try:
        folder = Path(text).expanduser()
        if text and folder.is_dir():
            folder = folder.resolve()
            return (str(folder), folder) if is_run(folder) else None
        name = text.removeprefix(SHIPPED)
        folder = runs_folder() / name
        shipped = text.startswith(SHIPPED) and Path(name).name == name and folder.is_dir() and is_run(folder)
        return (text, folder) if shipped else None
    except (OSError, RuntimeError, ValueError):  # too long, no such user, a NUL
        return None


def shipped_runs() -> tuple[str, ...]:
    """The names, as they are typed, of the runs that come with the app with weights."""
    folder = runs_folder()
    names = sorted(entry.name for entry in folder.iterdir() if is_run(entry)) if folder.is_dir() else []
    return tuple(f"{SHIPPED}{name}" for name in names)


def step_of(run: str, folder: Path, revision: str | None) -> int:
    """The step that `revision` (`stepN`) names of a run, without one its last. UsageError: there is none such, and
    which are the nearest."""
    try:
        steps = steps_of(folder)
    except OSError as error:
        raise UsageError(f"the run {run} cannot be read ({error.strerror}); look at its permissions") from error
    if not steps:
        raise UsageError(f"the run {run} has no snapshot yet; begin it, or wait for its first")
    if revision is None:
        return steps[-1]
    match = STEP.fullmatch(revision)
    if match is None:
        raise UsageError(f"{revision[:40]!r} is not a snapshot of {run}; use @stepN, such as @step{steps[-1]}")
    if (step := int(match[1])) in steps:
        return step
    before, behind = ([each for each in steps if each < step][-1:], [each for each in steps if each > step][:1])
    nearest = [f"step{each}" for each in (*before, *behind)]
    are = "nearest are" if len(nearest) > 1 else "nearest is"
    raise UsageError(f"the run {run} has no snapshot step{step}; the {are} {' and '.join(nearest)}")
