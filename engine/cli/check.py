"""The command that compares: `check` measures what others have published of a model, and says whether it agrees."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.cli.options import MOST, Parser, data, data_dir, model, names_of, numbers_of, shared, spec_of
from engine.cli.output import Report, last, print_result
from engine.errors import UsageError
from engine.models.session import Session


def add_parsers(commands: Any) -> None:
    """The parser of check."""
    words = "published numbers of a model beside those measured here; exit code 1 where one differs"
    parser: Parser = commands.add_parser("check", parents=[shared(), model(), data()], help=words)
    parser.add_argument("--tasks", help="names joined by commas (default: all that something was published of)")
    parser.add_argument("--shots", default="0", help="solved examples, joined by commas (default: 0)")
    parser.add_number("--limit", (1, MOST), "use this many questions a task (default: all)")
    parser.add_argument("--table", help="a CSV table of published values instead of the one that comes with the app")
    parser.add_argument("--as", dest="known_as", help="the hub id (or id@revision) of what the folder --model holds")
    parser.set_defaults(run=_check)


def _check(options: Namespace, session: Session, report: Report) -> int:
    from engine.accuracy.evaluation import evaluation
    from engine.accuracy.published import compare, n_published
    from engine.models.masks import Mask
    from engine.questions.requests import TaskSpec, get_requests, select

    spec, wanted, found = spec_of(options), _wanted(options), []
    for task, shots, bos in dict.fromkeys((row.task, row.shots, row.bos) for row in wanted):
        rows = [row for row in wanted if (row.task, row.shots, row.bos) == (task, shots, bos)]
        target = session.target(spec, bos)
        requests = get_requests(TaskSpec(task, shots), data_dir(options), session.store)
        questions = select(requests, options.limit, "stratified")
        answers, _ = last(evaluation(target, questions, Mask.full(target.shape)).run(session), report)
        n_all = n_published(rows, len(requests.questions))
        found += [compare(row, answers, spec.precision, n_all) for row in rows]
    judged = [each for each in found if each.verdict != "range only"]
    n_agree = sum(each.verdict == "agrees" for each in judged)
    what = f"{n_agree} of {len(judged)} agree" if judged else "nothing can be judged: other solved examples were drawn"
    print_result(options, {
        "model": spec.model, "known_as": options.known_as, "precision": spec.precision, "agree": n_agree == len(judged),
        "rows": [_fields(each) for each in found],
    }, "\n".join([_HEAD, *map(_line, found), f"{spec.model} in {spec.precision}: {what}"]))  # fmt: skip
    return 0 if n_agree == len(judged) else 1


def _wanted(options: Namespace) -> Any:
    """The published values that the options name; UsageError where there are none."""
    from engine.accuracy.published import built_in, published_for, read_table
    from engine.questions.tasks import task_info

    spec = spec_of(options)
    if options.known_as:
        spec = replace(spec, model=options.known_as)
    table = read_table(Path(options.table)) if options.table else built_in()
    of_model, shots = published_for(spec, table), numbers_of("--shots", options.shots)
    if not of_model:
        names = ", ".join(dict.fromkeys(row.model for row in table))
        raise UsageError(f"no number of {spec.model!r} is in the table; it has {names}; where a folder holds one "
                         "of these, --as says which")  # fmt: skip
    there = [row for row in of_model if row.task != "wikitext-2" and row.shots in shots]
    there = [row for row in there if options.bos is None or row.bos == options.bos]
    names = names_of(options.tasks, list(dict.fromkeys(row.task for row in there)))
    known = {row.task for row in there}
    for name in names:
        if name not in known:
            how = " with --bos" if options.bos else " with --no-bos" if options.bos is False else ""
            raise UsageError(f"no number of {spec.model} for {name!r} at {options.shots} shots{how} is in the table; "
                             f"it has {', '.join(sorted(known)) or 'none at all'}")  # fmt: skip
        task_info(name)
    if not names:
        raise UsageError(f"no number of {spec.model} at {options.shots} shots is in the table; choose other --shots")
    return [row for row in there if row.task in names]


_HEAD = f"{'task':<18}shots  {'metric':<11}{'ours':>9}{'published':>11}{'difference':>12}{'allowed':>10}  verdict"


def _line(each: Any) -> str:
    row = each.published
    scale, unit = (1, " %") if row.metric == "perplexity" else (100, " pt")
    return (f"{row.task:<18}{row.shots:>5}  {row.metric:<11}{scale * each.ours:>9.2f}{scale * row.value:>11.2f}"
            f"{f'{each.difference:+.2f}{unit}':>12}{f'{each.allowed:.2f}{unit}':>10}  {each.verdict}, n {each.n:,}"
            f"{'' if row.bos else ', no BOS'}")  # fmt: skip


def _fields(each: Any) -> dict[str, Any]:
    row, unit = each.published, "percent" if each.published.metric == "perplexity" else "points"
    numbers = {"ours": each.ours, "published": row.value, "stderr": row.stderr, "difference": each.difference,
               "allowed": each.allowed}  # fmt: skip
    return {"task": row.task, "shots": row.shots, "metric": row.metric, "bos": row.bos, "n": each.n, **numbers,
            "unit": unit, "verdict": each.verdict, "source": row.source}  # fmt: skip
