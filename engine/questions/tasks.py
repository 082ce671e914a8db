"""Which tasks there are and where their rows are: those of lm-evaluation-harness, the embedded ones, a user's own
file.
"""

import json
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path

from engine.errors import HeadroomError, UsageError
from engine.files import is_file, named

SPLITS = ("validation", "train")
N_SIMILAR = 3  # names that are suggested for an unknown one
OWN_COLUMNS, PAIR_COLUMNS = ("context", "choices", "gold"), ("question", "answer")
OWN, OWN_PAIRS = OWN_SUFFIXES = (".jsonl", ".csv")  # of a user's own file: of questions, of word pairs


@dataclass(frozen=True)
class TaskInfo:
    """One task: harness name, title, description, folder of its YAML, columns its rows need.

    `chance` is the accuracy (0-1) of guessing, 0 where it depends on each question's number of choices. `needs`, of the
    embedded tasks: what an answer takes from its context, `examples` in front, `copying` a word of the question,
    `reading` what a passage in it says, or `nothing`; "" if unknown.
    """

    name: str
    title: str
    asks: str
    chance: float
    yaml_folder: str
    columns: tuple[str, ...]
    needs: str = ""


def _task(name: str, title: str, asks: str, chance: float, yaml_folder: str, columns: str) -> TaskInfo:
    return TaskInfo(name, title, asks, chance, yaml_folder, tuple(columns.split()))


HARNESS_TASKS = {
    info.name: info
    for info in (
        _task("arc_easy", "ARC Easy", "grade-school science, 4 answers", 0.25, "arc", "question choices answerKey"),
        _task("arc_challenge", "ARC Challenge", "harder science, 4 answers", 0.25, "arc", "question choices answerKey"),
        _task("openbookqa", "OpenBookQA", "science facts, 4 answers", 0.25, "openbookqa",
              "question_stem choices answerKey"),
        _task("hellaswag", "HellaSwag", "which of 4 endings follows", 0.25, "hellaswag",
              "activity_label ctx_a ctx_b endings label"),
        _task("piqa", "PIQA", "which of 2 ways works", 0.5, "piqa", "goal sol1 sol2 label"),
        _task("winogrande", "WinoGrande", "whom a blank refers to, 2 options", 0.5, "winogrande",
              "sentence option1 option2 answer"),
        _task("boolq", "BoolQ", "yes or no about a passage", 0.5, "super_glue/boolq", "question passage label"),
        _task("cb", "CommitmentBank", "true, false or neither", 1 / 3, "super_glue/cb", "premise hypothesis label"),
        _task("copa", "COPA", "cause or effect, 2 options", 0.5, "super_glue/copa",
              "premise choice1 choice2 question label"),
        _task("multirc", "MultiRC", "is this answer right, yes or no", 0.5, "super_glue/multirc",
              "paragraph question answer label"),
        _task("record", "ReCoRD", "which entity fills the blank", 0.0, "super_glue/record",
              "passage query entities answers"),
        _task("rte", "RTE", "does it follow, true or false", 0.5, "glue/rte", "sentence1 sentence2 label"),
        _task("wic", "WiC", "same sense of a word, yes or no", 0.5, "super_glue/wic",
              "sentence1 sentence2 start1 end1 label"),
        _task("wsc", "WSC", "does the pronoun mean this, yes or no", 0.5, "super_glue/wsc",
              "text span1_text span2_text span2_index label"),
        _task("mathqa", "MathQA", "word problems, 5 answers", 0.2, "mathqa", "Problem options correct"),
        _task("lambada_openai", "LAMBADA", "last word of a passage, exactly", 0.0, "lambada", "text"),
    )
}  # fmt: skip


@once
def embedded_tasks() -> dict[str, TaskInfo]:
    """The tasks of the included model by name."""
    from engine.demo import tasks_folder

    return _listed(tasks_folder())


@once
def pair_tasks() -> dict[str, TaskInfo]:
    """The included tasks of word pairs by name, which models trained on natural text can answer."""
    return _listed(Path(__file__).with_name("pairs"))


def packaged_tasks() -> dict[str, TaskInfo]:
    """All tasks that come with the package."""
    return {**embedded_tasks(), **pair_tasks()}


def _listed(folder: Path) -> dict[str, TaskInfo]:
    """The tasks of a folder by name, read from the list next to their data."""
    catalogue, found = folder / "catalogue.json", {}
    for entry in json.loads(catalogue.read_text(encoding="utf-8")) if catalogue.is_file() else ():
        more = {"yaml_folder": str(folder / entry["name"]), "columns": tuple(entry["columns"])}
        found[entry["name"]] = TaskInfo(**entry | more)
    return found


@dataclass(frozen=True)
class TaskStatus:
    """Whether a task can be used now and where its rows come from: `embedded`, `folder`, `hub`."""

    info: TaskInfo
    where: str
    available: bool
    note: str


_MAY_FETCH: ContextVar[bool] = ContextVar("may_fetch", default=False)


def task_info(name: str) -> TaskInfo:
    """The task called `name`, or one made for a user's own file; UsageError proposes names."""
    if name.endswith(OWN):
        return TaskInfo(name, Path(name).stem, "your own questions", 0.0, "", OWN_COLUMNS)
    if name.endswith(OWN_PAIRS):
        return TaskInfo(name, Path(name).stem, "your own word pairs, written out exactly", 0.0, "", PAIR_COLUMNS)
    known = {**packaged_tasks(), **HARNESS_TASKS}
    if name not in known:
        near = ", ".join(similar_names(name, list(known)))
        raise UsageError(f"task {name!r} is unknown; did you mean {near}? `headroom tasks` lists all")
    return known[name]


def similar_names(typed: str, names: Sequence[str]) -> list[str]:
    """The names that contain what was typed, else those spelled most like it, else the first ones."""
    import difflib

    part = typed.strip().lower()
    contain = [name for name in names if part and part in name.lower()]
    return (contain or difflib.get_close_matches(typed, names, n=N_SIMILAR) or list(names))[:N_SIMILAR]


def list_tasks(data_dir: str | Path | None) -> list[TaskStatus]:
    """Every task with its state, embedded ones first. Only looks for files: nothing is loaded or fetched."""
    found = []
    for info in [*packaged_tasks().values(), *HARNESS_TASKS.values()]:
        files = local_files(info, data_dir)
        if files is None:
            found.append(TaskStatus(info, "hub", True, "is fetched from the Hugging Face hub once you agree"))
        elif missing := [str(file) for file in files.values() if not file.is_file()]:
            found.append(TaskStatus(info, "folder", False, f"missing: {', '.join(missing)}"))
        else:
            where = "embedded" if info.name in packaged_tasks() else "folder"
            found.append(TaskStatus(info, where, True, str(files["validation"].parent)))
    return found


def agree_to_fetch(yes: bool = True) -> None:
    """Sets whether the current job or command may download task rows from the Hugging Face Hub, as its user agreed.

    Applies to the current context alone: other threads and jobs need consent of their own.
    """
    _MAY_FETCH.set(yes)


def may_fetch() -> bool:
    """Whether the user of the current job or command agreed to download task rows."""
    return _MAY_FETCH.get()


def local_files(info: TaskInfo, data_dir: str | Path | None) -> dict[str, Path] | None:
    """The files of a task's splits, or None where it comes from the hub. HeadroomError: no such file or folder."""
    if info.name.endswith(OWN_SUFFIXES):
        file = named(info.name, "task")
        if not file.exists():
            raise HeadroomError(f"no such task file: {info.name!r}; give a .jsonl with context, choices, and "
                                "gold, or a .csv of word pairs")  # fmt: skip
        train = file.with_name(f"{file.stem}.train{file.suffix}")
        return {"validation": file, "train": train if is_file(train) else file}
    if info.name in packaged_tasks():
        folder = Path(info.yaml_folder)
    elif data_dir is None:
        return None
    elif not (given := named(str(data_dir), "task data folder")).is_dir():
        raise HeadroomError(f"no such task data folder: {str(data_dir)!r}; give a folder with <task>/validation.jsonl")
    else:
        folder = given / info.name
        if not folder.is_dir():
            return None
    return {split: folder / f"{split}.jsonl" for split in SPLITS}
