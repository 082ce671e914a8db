"""Which tasks there are and their rows: the sixteen of lm-evaluation-harness, the embedded ones, a user's own file.

Rows are checked one by one before the harness sees them, so that an error names the file, the row and the column.
"""

import json
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Any

from engine.errors import HeadroomError, UsageError

SPLITS = ("validation", "train")


@dataclass(frozen=True)
class TaskInfo:
    """One task: harness name, title, what is asked, folder of its YAML, columns its rows need.

    `chance` is the accuracy (0-1) of guessing, 0 where it depends on each question's number of choices.
    """

    name: str
    title: str
    asks: str
    chance: float
    yaml_folder: str
    columns: tuple[str, ...]


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
    """The tasks that come with the app, by name; read from the list beside their data."""
    from engine.demo import tasks_folder

    catalogue = tasks_folder() / "catalogue.json"
    if not catalogue.is_file():
        return {}
    entries = json.loads(catalogue.read_text(encoding="utf-8"))
    return {
        entry["name"]: TaskInfo(
            entry["name"],
            entry["title"],
            entry["asks"],
            float(entry["chance"]),
            str(tasks_folder() / entry["name"]),
            tuple(entry["columns"]),
        )
        for entry in entries
    }


@dataclass(frozen=True)
class TaskStatus:
    """Whether a task can be used now and where its rows come from: `embedded`, `folder`, `hub`."""

    info: TaskInfo
    where: str
    available: bool
    note: str


def task_info(name: str) -> TaskInfo:
    """The task called `name`, or one made for a user's `.jsonl` file; UsageError lists the nearest names."""
    if name.endswith(".jsonl"):
        return TaskInfo(name, Path(name).stem, "your own questions", 0.0, "", ("context", "choices", "gold"))
    known = {**embedded_tasks(), **HARNESS_TASKS}
    if name not in known:
        import difflib

        near = difflib.get_close_matches(name, known, n=3) or list(known)[:3]
        raise UsageError(f"task {name!r} is unknown; did you mean {', '.join(near)}? `headroom tasks` lists all")
    return known[name]


def list_tasks(data_dir: str | Path | None) -> list[TaskStatus]:
    """Every task with its state, embedded ones first. Only looks for files: nothing is loaded or fetched."""
    found = []
    for info in [*embedded_tasks().values(), *HARNESS_TASKS.values()]:
        files = local_files(info, data_dir)
        if files is None:
            found.append(TaskStatus(info, "hub", True, "is fetched from the Hugging Face hub when first used"))
        elif missing := [str(file) for file in files.values() if not file.is_file()]:
            found.append(TaskStatus(info, "folder", False, f"missing: {', '.join(missing)}"))
        else:
            where = "embedded" if info.name in embedded_tasks() else "folder"
            found.append(TaskStatus(info, where, True, str(files["validation"].parent)))
    return found


def local_files(info: TaskInfo, data_dir: str | Path | None) -> dict[str, Path] | None:
    """The files of a task's splits, or None where it comes from the hub. HeadroomError: no such file or folder."""
    if info.name.endswith(".jsonl"):
        file = Path(info.name).expanduser()
        if not file.is_file():
            raise HeadroomError(f"no such task file: {info.name!r}; give a .jsonl with context, choices and gold")
        return {split: file for split in SPLITS}
    if info.name in embedded_tasks():
        folder = Path(info.yaml_folder)
    elif data_dir is None:
        return None
    elif not Path(data_dir).expanduser().is_dir():
        raise HeadroomError(f"no such task data folder: {str(data_dir)!r}; give a folder with <task>/validation.jsonl")
    else:
        folder = Path(data_dir).expanduser() / info.name
        if not folder.is_dir():
            return None
    return {split: folder / f"{split}.jsonl" for split in SPLITS}


def read_rows(file: Path, info: TaskInfo) -> list[dict[str, Any]]:
    """The rows of a JSON Lines file, checked; HeadroomError names the file, row (from 1) and column that is wrong."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise HeadroomError(f"task {info.name}: {file} does not exist; put its rows there as JSON lines") from error
    except (OSError, UnicodeDecodeError) as error:
        raise HeadroomError(
            f"task {info.name}: {file} cannot be read as UTF-8 text ({error}); save it as UTF-8"
        ) from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{file}, row {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise HeadroomError(f"{where}: is not valid JSON ({error}); write one object a line") from error
        if not isinstance(row, dict):
            raise HeadroomError(f"{where}: is {type(row).__name__}, must be a JSON object")
        for column in info.columns:
            if row.get(column) is None:
                present = ", ".join(sorted(row)) or "none"
                raise HeadroomError(f"{where}: column {column!r} is missing (present: {present}); add it to the row")
        if info.columns == ("context", "choices", "gold"):
            _check_own_row(where, row)
        rows.append(row)
    if not rows:
        raise HeadroomError(f"task {info.name}: {file} is empty; write one question a line as JSON")
    return rows


def _check_own_row(where: str, row: dict[str, Any]) -> None:
    context, choices, gold = row["context"], row["choices"], row["gold"]
    if not isinstance(context, str) or not context.strip():
        raise HeadroomError(f"{where}: column 'context' is {context!r}, must be text that is not empty")
    if not isinstance(choices, list) or len(choices) < 2:
        raise HeadroomError(f"{where}: column 'choices' must be a list of at least 2 texts, got {choices!r}")
    for choice in choices:
        if not isinstance(choice, str) or not choice.strip():
            raise HeadroomError(
                f"{where}: column 'choices' holds {choice!r}, every choice must be text that is not empty"
            )
    if not isinstance(gold, int) or isinstance(gold, bool) or not 0 <= gold < len(choices):
        raise HeadroomError(f"{where}: column 'gold' is {gold!r}, must be a whole number from 0 to {len(choices) - 1}")
