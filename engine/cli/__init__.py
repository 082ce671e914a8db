"""The command line: parsing, what each command does, and how results leave.

`options`: the options that commands share, as the engine wants them
`output`: progress, one line, one JSON object, or a file
`measure`: the commands about one model and task: `evaluate`, `importance`, `induction`
`perplexity`: the command about a text as a whole: `perplexity`
`check`: the command that compares with published numbers: `check`
`studies`: the commands over many tasks: `correlate` and `sweep`
`texts`: the commands about texts: `losses`, `attribute`, `continue` and `attention`
`store`: the commands that look around: `cache`, `tasks` and `models`

Each module holds its commands with the options of their own. Exit codes: 0 done, 1 failed with one plain line, 2 bad
usage, 130 cancelled. With --json exactly one JSON object goes to standard output; progress and messages always go to
standard error.
"""

import os
import signal
import sys
from argparse import Namespace
from typing import Any

from engine.cli import check, measure, perplexity, store, studies, texts
from engine.cli.options import Parser
from engine.cli.output import report_to_terminal
from engine.cli.studies import Draw
from engine.errors import Cancelled, HeadroomError, UsageError
from engine.memory import bound_growth


def main(draw: Draw, arguments: list[str] | None = None) -> int:
    """Exit code of the command in `arguments` (default: the process's own); `draw` makes the pictures of a study."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    bound_growth()
    signal.signal(signal.SIGTERM, _stop)
    options = parser(draw).parse_args(arguments)
    try:
        return _run(options)
    except UsageError as error:
        print(f"headroom: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, Cancelled):
        print("headroom: cancelled; finished parts are stored, the same command goes on from there", file=sys.stderr)
        return 130
    except HeadroomError as error:
        print(f"headroom: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError:
        print("headroom: out of memory; choose a smaller model or --precision int8", file=sys.stderr)
        return 1


def parser(draw: Draw) -> Parser:
    """The parser of all commands; each sets `run`, what it does."""
    whole = Parser(prog="headroom", description="Headroom without a browser: the same work, the same store.")
    whole.epilog = "Without a command, headroom opens the app in the browser."
    commands = whole.add_subparsers(dest="command", required=True, parser_class=Parser)
    measure.add_parsers(commands)
    check.add_parsers(commands)
    texts.add_parsers(commands)
    perplexity.add_parsers(commands)
    studies.add_parsers(commands, draw)
    store.add_parsers(commands)
    return whole


def _run(options: Namespace) -> int:
    threads = getattr(options, "threads", None)
    if threads is not None:
        if threads < 1:
            raise UsageError(f"--threads is {threads}; give at least 1")
        os.environ["OMP_NUM_THREADS"] = str(threads)  # read when torch is imported, which has not happened yet
    from cache import open_store
    from engine.models.subject import Lab

    results = open_store(options.cache)
    try:
        code = options.run(options, Lab(results), report_to_terminal())
    finally:
        results.close()
    if results.notice:
        print(f"headroom: {results.notice}", file=sys.stderr)
    return code


def _stop(signum: int, frame: Any) -> None:
    raise Cancelled
