"""The command that compares criteria: `compare`, one task pruned level by level by several rankings and at random."""

import time
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli.options import MOST, Parser, data, data_dir, model, names_of, shared, spec_of
from engine.cli.output import Report, check_out, last, print_result, table_file, write
from engine.errors import HeadroomError
from engine.importance.criteria import CRITERIA
from engine.importance.rankings import permille
from engine.models.session import Session
from engine.questions.requests import MAX_SHOTS, TaskSpec
from engine.studies.compare import ALONG, SEEDS, TENTHS, Comparing, areas, comparison
from engine.studies.surveys import StudySettings

if TYPE_CHECKING:
    from engine.studies.compare import Area

MOST_SEEDS = 100
LEVELS = ",".join(f"{level / 10:g}" for level in TENTHS)


def add_parsers(commands: Any) -> None:
    """The parser of compare."""
    words = "by which criterion can most go: accuracy over levels, areas, and how much criteria agree"
    parser: Parser = commands.add_parser("compare", parents=[shared(), model(), data()], help=words)
    parser.add_argument("--task", required=True, help="task name (see `tasks`) or a .jsonl with context, choices, gold")
    parser.add_number("--shots", (0, MAX_SHOTS), "solved examples in front of each question (0)", default=0)
    help = "the same solved examples for every question: faster"
    parser.add_argument("--same-examples", action="store_true", help=help)
    parser.add_number("--limit", (1, MOST), "validation questions that judge, a stratified sample (100)", default=100)
    parser.add_number("--ranking-questions", (1, MOST), "train questions behind each ranking (64)", default=64)
    help = f"rankings separated by commas (default: {','.join(CRITERIA)}); any of evaluate's --ranking but random"
    parser.add_argument("--criteria", help=help)
    parser.add_choice("--axis", ALONG, "what is pruned; both: the same share of each (default: heads)", default="heads")
    parser.add_argument("--levels", default=LEVELS, help="levels in percent (0,10,..,100)")
    parser.add_number("--seeds", (1, MOST_SEEDS), f"random orders to compare with ({SEEDS})", default=SEEDS)
    parser.add_argument("--out", required=True, help="file for every accuracy: .csv or .parquet")
    parser.set_defaults(run=_compare)


def _compare(options: Namespace, session: Session, report: Report) -> int:
    """Exit code of `compare`: all accuracies as a table; areas with verdicts, and the rank agreement, are printed."""
    import pandas as pd

    check_out(options.out, (".csv", ".parquet"))
    task = TaskSpec(options.task, options.shots, same_examples=options.same_examples)
    levels = tuple(sorted({permille(level) for level in names_of(options.levels, ())}))
    comparing = Comparing(task, tuple(names_of(options.criteria, tuple(CRITERIA))), options.axis, levels, options.seeds)
    setting = StudySettings(spec_of(options), options.bos, data_dir(options), options.limit, options.ranking_questions)
    started = time.monotonic()
    target = session.target(setting.spec, setting.bos)
    found, cached = last(comparison(target, setting, comparing).run(session), report)
    if not found.curves:
        raise HeadroomError(f"nothing could be measured: {'; '.join(found.failed.values())}")
    write(options.out, table_file(Path(options.out).suffix, pd.DataFrame(found.cells())))
    ranked = areas(found)
    agreeing = {axis: found.agreement(axis) for axis in comparing.axes}
    lines = [*map(_line, ranked), *(f"not measured: {name}: {reason}" for name, reason in found.failed.items())]
    print_result(options, {
        "task": options.task, "shots": options.shots, "axis": options.axis, "n": found.n,
        "ranking_questions": options.ranking_questions, "levels": [level / 1000 for level in levels],
        "seeds": options.seeds, "chance": found.chance,
        "areas": [asdict(each) | {"verdict": each.verdict} for each in ranked],
        "rank_agreement": {axis: {"criteria": list(each.labels), "spearman": each.srcc}
                           for axis, each in agreeing.items() if each is not None},
        "not_measured": dict(found.failed), "rows": found.cells(), "seconds": time.monotonic() - started,
        "cached": cached, "out": options.out,
    }, "\n".join([*lines, f"{len(found.cells())} accuracies of {found.n} questions written to {options.out}"
                  f"{', from the store' if cached else ''}"]))  # fmt: skip
    return 0


def _line(area: "Area") -> str:
    """An area with its interval, what it is above random, and the verdict."""
    words = f"{area.criterion:<20} {area.area:.3f} ({area.low:.3f} to {area.high:.3f})"
    if not area.verdict:
        return f"{words}, the mean of {area.n_random}"
    gain = f"{area.gain:+.3f} ({area.gain_low:+.3f} to {area.gain_high:+.3f})"
    return f"{words}, {gain} on random, beats {area.beats} of {area.n_random}: {area.verdict}"
