"""The command line: parsing, what each command does, and how results leave.

`options`: the options that commands share, as the engine wants them
`downloads`: a hub model that is not here, fetched once a person has agreed
`output`: progress, one line, one JSON object, or a file
`measure`: the commands about one model and task: `evaluate`, `importance`, `induction`
`layers`: the command about whole layers: `layers`
`perplexity`: the command about a text as a whole: `perplexity`
`check`: the command that compares with published numbers: `check`
`head`: the command about one head: `head`
`studies`: the commands over many tasks: `correlate` and `sweep`
`plans`: the command of workers: `work`
`forecast`: the command that says what a model would take elsewhere: `plan`
`compare`: by which criterion most can go: `compare`
`texts`: the commands about texts: `losses`, `attribute`, `continue` and `attention`
`idealise`: the command about heads with an ideal pattern: `idealise`
`trajectory`: the command about the snapshots of a run: `trajectory`
`export`: the command that writes a pruned model: `export`
`speed`: the command that measures what pruning saves: `speed`
`train`: the command that trains a small model: `train`
`store`: the commands that look around: `cache`, `tasks` and `models`
`equal`: what `cache equal` does
`exchange`: what `cache push`, `cache pull` and `cache verify WHERE` do

Each module holds its commands with the options of their own. Exit codes: 0 done, 1 failed with one plain line, 2 bad
usage, 130 cancelled. With --json exactly one JSON object goes to standard output; progress and messages always go to
standard error.
"""

import io
import os
import signal
import sys
from argparse import Namespace
from contextvars import copy_context
from typing import Any, NoReturn

from engine.cli import (
    check,
    compare,
    export,
    forecast,
    head,
    idealise,
    layers,
    measure,
    perplexity,
    plans,
    speed,
    store,
    studies,
    texts,
    train,
    trajectory,
)
from engine.cli.downloads import fetch
from engine.cli.options import Parser
from engine.cli.output import report_to_terminal
from engine.cli.studies import Draw
from engine.errors import Cancelled, HeadroomError, NotHere, UsageError, one_line, unforeseen
from engine.files import named
from engine.memory import bound_growth
from engine.placement.placement import PLACE, places
from engine.progress import tell

CANCELLED = "cancelled; finished parts are stored, the same command goes on from there"


def main(draw: Draw, arguments: list[str] | None = None) -> int:
    """Exit code of the command in `arguments` (default: the process's own); `draw` makes the pictures of a study."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    bound_growth()
    was_told: list[int] = []

    def stop(signum: int, frame: Any) -> NoReturn:
        was_told.append(signum)
        raise KeyboardInterrupt if signum == signal.SIGINT else Cancelled

    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        typed = sys.argv[1:] if arguments is None else arguments
        options = parser(draw).parse_args(typed, Namespace(typed=typed))
        return copy_context().run(_run, options)  # consent to download task rows ends with the command
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:
        # a library that was being imported may have made another error of it
        code, line = (130, CANCELLED) if was_told else _told(error)
        print(f"headroom: {line}", file=sys.stderr)
        return code
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _told(error: BaseException) -> tuple[int, str]:
    """(exit code, line) for what ended a command."""
    if isinstance(error, KeyboardInterrupt | Cancelled):
        return 130, CANCELLED
    if isinstance(error, HeadroomError):
        return 2 if isinstance(error, UsageError) else 1, one_line(error)
    if isinstance(error, MemoryError):
        return 1, "out of memory; choose a smaller model or --precision int8"
    return 1, unforeseen(error)


def parser(draw: Draw) -> Parser:
    """The parser of all commands; each sets `run`, what it does."""
    whole = Parser(prog="headroom", description="Headroom without a browser: the same work, the same store.")
    whole.epilog = "Without a command, headroom opens the app in the browser."
    commands = whole.add_subparsers(dest="command", required=True, parser_class=Parser)
    measure.add_parsers(commands)
    layers.add_parsers(commands)
    check.add_parsers(commands)
    texts.add_parsers(commands)
    idealise.add_parsers(commands)
    perplexity.add_parsers(commands)
    head.add_parsers(commands)
    studies.add_parsers(commands, draw)
    plans.add_parsers(commands)
    forecast.add_parsers(commands)
    export.add_parsers(commands)
    speed.add_parsers(commands)
    compare.add_parsers(commands)
    train.add_parsers(commands)
    trajectory.add_parsers(commands)
    store.add_parsers(commands)
    return whole


def _run(options: Namespace) -> int:
    threads = getattr(options, "threads", None)
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(threads)  # read when torch is imported, which has not happened yet
    if place := getattr(options, "place", None):
        places(place)  # said before anything is read
        os.environ[PLACE] = place
    if options.cache:
        named(options.cache, "--cache")
    for stream in (sys.stdout, sys.stderr):  # half a character in what a model says cannot be written
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    from cache import open_store
    from engine.models.session import Session
    from engine.readable import is_readable

    results, report = open_store(options.cache, is_readable), report_to_terminal()
    session = Session(results)
    tell.set(report)
    try:
        code = _run_when_here(options, session, report)
        if (held := session.models.loaded) is not None and (where := session.places(held.spec)):
            print(f"headroom: {held.spec.in_words}: {where}", file=sys.stderr)
    finally:
        results.close()
    if results.notice:
        print(f"headroom: {results.notice}", file=sys.stderr)
    return code


def _run_when_here(options: Namespace, session: Any, report: Any) -> int:
    """The command's exit code; it begins anew after a model that it lacks was fetched: models come before measuring."""
    while True:
        try:
            return options.run(options, session, report)
        except NotHere as away:
            fetch(options, away, session, report)
