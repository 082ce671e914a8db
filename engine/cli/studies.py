"""The commands over many tasks: `correlate` (how much rankings agree) and `sweep` (accuracy over many masks)."""

import math
import os
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli.options import MOST, MOST_SEED, Parser, data, data_dir, model, names_of, numbers_of, shared, spec_of
from engine.cli.output import Report, check_out, last, print_result, table_file, write
from engine.cli.plans import write_plan
from engine.errors import HeadroomError, UsageError
from engine.files import named
from engine.importance.importance import WHAT
from engine.importance.rankings import AGGREGATES, permille
from engine.importance.rankings_of import OF_MANY_TASKS
from engine.models.session import Session
from engine.questions.requests import TaskSpec
from engine.studies.surveys import AGGREGATE, RANDOM, StudySettings, agreement_rows, grid, in_words, survey, written_row

if TYPE_CHECKING:
    from engine.studies.break_points import BreakPoint

TABLES = (".csv", ".parquet")
Draw = Callable[[Any, str], None]  # a study, and the folder for its pictures: engine knows no charts


def add_parsers(commands: Any, draw: Draw) -> None:
    """The parsers of correlate and sweep."""
    study = Parser(add_help=False)
    study.add_argument("--tasks", help="names separated by commas (default: all embedded ones, or all of --task-data)")
    study.add_argument("--shots", default="0,1,5", help="shot counts separated by commas (0,1,5)")
    study.add_number("--ranking-questions", (1, MOST), "train questions behind each ranking (64)", default=64)
    study.add_choice("--aggregate", AGGREGATES, "what tasks are put together by (default: scores)", default="scores")
    over_tasks = [shared(), model(), data(), study]

    parser = commands.add_parser("correlate", parents=over_tasks, help="how much the rankings of tasks agree")
    parser.add_choice("--what", WHAT, "which scores (default: heads)", default="heads")
    parser.add_argument("--induction", action="store_true", help="with prefix matching and copying beside the tasks")
    parser.add_argument("--out", required=True, help="file to write: .csv or .parquet")
    parser.set_defaults(run=_correlate)

    parser = commands.add_parser("sweep", parents=over_tasks, help="accuracy over tasks, shots and pruning levels")
    parser.add_argument("--heads", default="0,10,20,30,40,50,60,70,80,90,100", help="levels in percent (0,10,..,100)")
    parser.add_argument("--ffns", default="0", help="levels in percent (0)")
    parser.add_choice("--by", OF_MANY_TASKS, "whose importance says what goes first (default: own)", default="own")
    parser.add_argument("--of", default="", help="the other task, with --by task")
    parser.add_argument("--pool", help="the tasks that aggregates are made of (default: those of --tasks)")
    parser.add_number("--seed", (0, MOST_SEED), "seed of the random rankings", default=0)
    parser.add_number("--limit", (1, MOST), "questions a task (48)", default=48)
    parser.add_argument("--preset", choices=("paper",), help="the whole study: tables, figures and a report in --out")
    ends = parser.add_mutually_exclusive_group(required=True)
    ends.add_argument("--out", help="file to write: .csv or .parquet; with --preset a folder")
    help = "measure nothing: write the cells to this file, or add them to it, for any number of `work FILE`"
    ends.add_argument("--plan", metavar="FILE", help=help)
    parser.set_defaults(run=partial(_sweep, draw))


def _correlate(options: Namespace, session: Session, report: Report) -> int:
    """Exit code of `correlate`: SRCC and top-30 % overlap of every two tasks and every two shot counts, as a table."""
    import pandas as pd

    from engine.heads.induction import induction
    from engine.importance.rankings_of import INDUCTION_SEED

    if options.induction and options.what == "ffns":
        raise UsageError("--induction compares heads, and --what is ffns; leave one of them out")
    check_out(options.out, TABLES)
    tasks, setting = tasks_of(options), _setting(options)
    started = time.monotonic()
    target = session.target(setting.spec, setting.bos)
    found, cached = last(survey(target, setting, tasks, options.what).run(session), report)
    others: dict[str, Any] = {}
    if options.induction:
        mean = last(induction(session.target(setting.spec), "olsson", INDUCTION_SEED).run(session), report)[0].mean
        others = {name: mean[name] for name in ("prefix_matching", "copying")}
    rows = agreement_rows(found, options.aggregate, others)
    table = [written_row(row) for row in rows]
    write(options.out, table_file(Path(options.out).suffix, pd.DataFrame(table)))
    aside = {AGGREGATE, RANDOM, *others}
    of_tasks = [row for row in rows if row["kind"] == "tasks" and not {row["a"].name, row["b"].name} & aside]
    counts = sorted({task.shots for task in tasks})
    means = {str(shots): _mean(row["srcc"] for row in of_tasks if row["a"].shots == shots) for shots in counts}
    lines = [f"{shots} shots: mean SRCC of two tasks {'undefined' if mean is None else f'{mean:.3f}'}"
             for shots, mean in means.items()]  # fmt: skip
    _end(options, found.failed, lines, {
        "what": options.what, "n": setting.n_ranking, "tasks": len(found.scores), "mean_srcc": means,
        "rows": table,
        "seconds": time.monotonic() - started, "cached": cached, "out": options.out,
    }, f"written to {options.out}")  # fmt: skip
    return 0


def _sweep(draw: Draw, options: Namespace, session: Session, report: Report) -> int:
    """Exit code of `sweep`: accuracy over pruning levels as a table, or with --preset paper the whole study."""
    import pandas as pd

    from engine.plans.planning import planned
    from engine.studies import sweeps
    from engine.studies.break_points import break_points
    from engine.studies.study import paper_points, pool_of

    if options.preset and not options.plan:
        return _paper(draw, options, session, report)
    if options.out:
        check_out(options.out, TABLES)
    tasks, setting, started = tasks_of(options), _setting(options), time.monotonic()
    heads, ffns = ([permille(level) for level in names_of(text, ())] for text in (options.heads, options.ffns))
    wanted = sweeps.points(tasks, heads, ffns, options.by, options.of, options.seed)
    pool = pool_of(names_of(options.pool, list(dict.fromkeys(task.name for task in tasks))))
    if options.plan:
        surveys: dict[str, list[TaskSpec]] = {}
        if options.preset:
            wanted = [point for points in paper_points(tasks).values() for point in points]
            surveys = {"heads": tasks, "ffns": tasks}
        return write_plan(options, partial(planned, session, setting, wanted, pool, surveys))
    target = session.target(setting.spec, setting.bos)
    swept, cached = last(sweeps.sweep(target, setting, wanted, pool).run(session), report)
    write(options.out, table_file(Path(options.out).suffix, pd.DataFrame([row.cells() for row in swept.rows])))
    swept_over = [("heads", "ffns", heads), ("ffns", "heads", ffns)]
    found = {axis: break_points([row for row in swept.rows if not row.point.permille(other)], axis)
             for axis, other, levels in swept_over if len(levels) > 1}  # fmt: skip
    lines = [_how_much(each, axis) for axis, points in found.items() for each in points]
    _end(options, swept.failed, lines, {
        "rows": [row.cells() for row in swept.rows], "seconds": time.monotonic() - started, "cached": cached,
        "break_points": {axis: [each.cells() for each in points] for axis, points in found.items()},
        "out": options.out,
    }, f"{len(swept.rows)} accuracies written to {options.out}")  # fmt: skip
    return 0


def _how_much(each: "BreakPoint", axis: str) -> str:
    """How much of one axis a task can lose, as a line."""
    words = f"{in_words(each.task)}: full {each.full_acc:.3f}"
    if each.reading:
        return f"{words}, {each.reading}"
    first, points = each.first_detectable_loss, each.cliff_points
    loss = "" if math.isnan(first) else f", first detectable loss at {first:.0%}"
    cliff = (
        ""
        if math.isnan(points)
        else f", cliff from {each.cliff_from:.0%} to {each.cliff_to:.0%} ({points:+.0f} points)"
    )
    return f"{words}, {axis} can go up to {each.no_loss_up_to:.0%}{loss}{cliff}"


def _paper(draw: Draw, options: Namespace, session: Session, report: Report) -> int:
    import pandas as pd

    from engine.studies.statements import statements
    from engine.studies.study import paper_study, tables, with_short_names

    folder, started = named(options.out, "--out"), time.monotonic()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HeadroomError(f"cannot make the folder {folder} ({error.strerror}); choose another --out") from error
    if not os.access(folder, os.W_OK):
        raise HeadroomError(f"cannot write to {folder} (no permission); choose another --out")
    tasks, setting = tasks_of(options), _setting(options)
    study, cached = last(paper_study(session.target(setting.spec, setting.bos), setting, tasks).run(session), report)
    study = with_short_names(study)
    found = statements(study)
    for name, frame in (tables(study) | {"statements": pd.DataFrame(map(asdict, found))}).items():
        for ending in TABLES:
            write(str(folder / f"{name}{ending}"), table_file(ending, frame))
    _end(options, study.failed, [f"{each.verdict:<17} {each.text}: {each.ours}" for each in found], {
        "statements": [asdict(each) for each in found], "seconds": time.monotonic() - started,
        "cached": cached, "out": str(folder),
    }, f"tables, figures and report.html in {folder}")  # fmt: skip
    draw(study, options.out)
    return 0


def tasks_of(options: Namespace) -> list[TaskSpec]:
    """The tasks and shot counts that --tasks and --shots name. UsageError: none are left."""
    from engine.questions.tasks import embedded_tasks, list_tasks

    folder = data_dir(options)
    if folder is None:
        default = list(embedded_tasks())
    else:
        default = [state.info.name for state in list_tasks(folder) if state.available and state.where == "folder"]
    names, shots = names_of(options.tasks, default), numbers_of("--shots", options.shots)
    if not names or not shots:
        raise UsageError(f"no tasks or shot counts are left of --tasks {options.tasks!r} --shots {options.shots!r}; "
                         f"`headroom tasks` lists the tasks")  # fmt: skip
    return grid(names, sorted(set(shots)))


def _setting(options: Namespace) -> StudySettings:
    return StudySettings(spec_of(options), options.bos, data_dir(options), getattr(options, "limit", None),
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
