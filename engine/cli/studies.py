"""The commands over many tasks: `correlate` (how much rankings agree) and `sweep` (accuracy over many masks)."""

import math
import time
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.cli.output import (
    Report,
    check_ending,
    data_dir,
    last,
    names_of,
    numbers_of,
    print_result,
    spec_of,
    table_file,
    write,
)
from engine.errors import HeadroomError, UsageError
from engine.importance.rankings import permille
from engine.questions.requests import TaskSpec
from engine.studies.surveys import Setting, agreement_rows, grid, in_words, survey

TABLES = (".csv", ".parquet")


def correlate(options: Namespace, store: Any, report: Report) -> int:
    """Exit code of `correlate`: SRCC and top-30 % overlap of every two tasks and every two shot counts, as a table."""
    import pandas as pd

    from engine.heads.induction import induction
    from engine.importance.importance import WHAT
    from engine.importance.rankings_of import INDUCTION_SEED
    from engine.models.loading import Models

    if options.what not in WHAT:
        raise UsageError(f"--what {options.what!r} is unknown; choose one of {', '.join(WHAT)}")
    if options.induction and options.what == "ffns":
        raise UsageError("--induction compares heads, and --what is ffns; leave one of them out")
    check_ending(options.out, TABLES)
    tasks, setting = _tasks(options), _setting(options)
    started = time.monotonic()
    models = Models(store)
    final = last(survey(models, setting, tasks, options.what, store), report)
    others: dict[str, Any] = {}
    if options.induction:
        mean = last(induction(models, setting.spec, "olsson", INDUCTION_SEED, store), report).value.mean
        others = {name: mean[name] for name in ("prefix_matching", "copying")}
    rows = agreement_rows(final.value, options.aggregate, others)
    write(options.out, table_file(Path(options.out).suffix, pd.DataFrame(rows)))
    means = {str(shots): _mean(row["srcc"] for row in rows if row["kind"] == "tasks" and row["at"] == str(shots)
                               and not {row["a"], row["b"]} & {"aggregate", "random", *others})
             for shots in sorted({task.shots for task in tasks})}  # fmt: skip
    lines = [f"{shots} shots: mean SRCC of two tasks {'undefined' if mean is None else f'{mean:.3f}'}"
             for shots, mean in means.items()]  # fmt: skip
    _end(options, final.value.failed, lines, {
        "what": options.what, "n": setting.n_ranking, "tasks": len(final.value.scores), "mean_srcc": means,
        "rows": [_plain(row) for row in rows],
        "seconds": time.monotonic() - started, "cached": final.cached, "out": options.out,
    }, f"written to {options.out}")  # fmt: skip
    return 0


def sweep(options: Namespace, store: Any, report: Report) -> int:
    """Exit code of `sweep`: accuracy over pruning levels as a table, or with --preset paper the whole study."""
    import pandas as pd

    from engine.models.loading import Models
    from engine.studies import sweeps
    from engine.studies.break_points import break_points

    if options.preset:
        return _paper(options, store, report)
    check_ending(options.out, TABLES)
    tasks, setting, started = _tasks(options), _setting(options), time.monotonic()
    heads, ffns = ([permille(level) for level in names_of(text, ())] for text in (options.heads, options.ffns))
    wanted = sweeps.points(tasks, heads, ffns, options.by, options.of, options.seed)
    names = list(dict.fromkeys(task.name for task in tasks))
    final = last(sweeps.sweep(Models(store), setting, wanted, names, store), report)
    swept = final.value
    write(options.out, table_file(Path(options.out).suffix, pd.DataFrame([row.cells() for row in swept.rows])))
    swept_over = [("heads", "ffns", heads), ("ffns", "heads", ffns)]
    found = {axis: break_points([row for row in swept.rows if not row.point.permille(other)], axis)
             for axis, other, levels in swept_over if len(levels) > 1}  # fmt: skip
    lines = [f"{in_words(each.task)}: full {each.full_acc:.3f}, {axis} can go up to {each.level:.0%}"
             + ("" if math.isnan(each.first_loss) else f", first clear loss at {each.first_loss:.0%}")
             for axis, points in found.items() for each in points]  # fmt: skip
    _end(options, swept.failed, lines, {
        "rows": [row.cells() for row in swept.rows], "seconds": time.monotonic() - started, "cached": final.cached,
        "break_points": {axis: [_plain(each.cells()) for each in points] for axis, points in found.items()},
        "out": options.out,
    }, f"{len(swept.rows)} accuracies written to {options.out}")  # fmt: skip
    return 0


def _paper(options: Namespace, store: Any, report: Report) -> int:
    from engine.models.loading import Models
    from engine.studies.study import paper_study, tables

    folder, started = Path(options.out), time.monotonic()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HeadroomError(f"cannot make the folder {folder} ({error.strerror}); choose another --out") from error
    tasks, setting = _tasks(options), _setting(options)
    final = last(paper_study(Models(store), setting, tasks, store), report)
    study = final.value
    for name, frame in tables(study).items():
        for ending in TABLES:
            write(str(folder / f"{name}{ending}"), table_file(ending, frame))
    options.study = study  # the front end draws it: engine knows no charts
    _end(options, study.failed, [f"{each.verdict:<17} {each.text}: {each.ours}" for each in study.statements], {
        "statements": [asdict(each) for each in study.statements], "seconds": time.monotonic() - started,
        "cached": final.cached, "out": str(folder),
    }, f"tables, figures and report.html in {folder}")  # fmt: skip
    return 0


def _tasks(options: Namespace) -> list[TaskSpec]:
    from engine.questions.tasks import embedded_tasks, list_tasks

    folder = data_dir(options)
    if folder is None:
        default = list(embedded_tasks())
    else:
        default = [state.info.name for state in list_tasks(folder) if state.available and state.where == "folder"]
    names, shots = names_of(options.tasks, default), numbers_of("--shots", options.shots)
    if not names or not shots:
        raise UsageError(f"no tasks or shot counts are left of --tasks {options.tasks!r} --shots {options.shots!r}; "
                         f"`python -m engine tasks` lists the tasks")  # fmt: skip
    return grid(names, sorted(set(shots)))


def _setting(options: Namespace) -> Setting:
    for option in ("limit", "ranking_questions"):
        if (given := getattr(options, option, None)) is not None and given < 1:
            raise UsageError(f"--{option.replace('_', '-')} is {given}; give at least 1")
    return Setting(spec_of(options), options.bos, data_dir(options), getattr(options, "limit", None),
                   options.ranking_questions, aggregate=options.aggregate)  # fmt: skip


def _end(options: Namespace, failed: Any, lines: list[str], fields: dict[str, Any], text: str) -> None:
    reasons = {in_words(task): reason for task, reason in failed.items()}
    lines = [*lines, *(f"not measured: {task}: {reason}" for task, reason in reasons.items()), text]
    print_result(options, fields | {"not_measured": reasons}, "\n".join(lines))
    if reasons and not any(fields.get(name) for name in ("rows", "statements")):
        raise HeadroomError("nothing could be measured; the lines above say why")


def _mean(values: Any) -> float | None:
    kept = [value for value in values if not math.isnan(value)]
    return sum(kept) / len(kept) if kept else None


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no nan."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()}
