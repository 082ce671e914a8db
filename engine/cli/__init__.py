"""Command line: parses a request, runs it, delivers the result.

`options`: the parser, made from the fields of requests
`output`: progress, lines, one JSON object, or a file; a hub model that is not here, fetched once a person has agreed

Exit codes: 0 done, 1 failed with one plain line, 2 bad usage, 130 canceled. With --json exactly one JSON object goes
to standard output; progress and messages always go to standard error.
"""

import io
import os
import signal
import sys
from argparse import Namespace
from contextvars import copy_context
from typing import Any, NoReturn

from engine.cli.options import Parser, request_of
from engine.cli.output import deliver, fetch, report_to_terminal
from engine.errors import Canceled, HeadroomError, NotHere, UsageError, one_line, unforeseen
from engine.files import named
from engine.memory import bound_growth
from engine.progress import announce, tell
from engine.requests import REQUESTS, Request
from engine.requests.base import gives
from engine.requests.running import apply_settings

CANCELED = "canceled; finished parts are stored, and the same command resumes from there"


def main(arguments: list[str] | None = None) -> int:
    """Exit code of the command in `arguments` (default: the process's own)."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    bound_growth()
    was_told: list[int] = []

    def stop(signum: int, frame: Any) -> NoReturn:
        was_told.append(signum)
        raise KeyboardInterrupt if signum == signal.SIGINT else Canceled

    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        words = sys.argv[1:] if arguments is None else arguments
        options = parser(words[0] if words else "").parse_args(words)
        return copy_context().run(_run, options)  # consent to download task rows ends with the command
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:
        # a library that was being imported may have made another error of it
        code, line = (130, CANCELED) if was_told else _told(error)
        print(f"headroom: {line}", file=sys.stderr)
        return code
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _told(error: BaseException) -> tuple[int, str]:
    """(exit code, line) for what ended a command."""
    if isinstance(error, KeyboardInterrupt | Canceled):
        return 130, CANCELED
    if isinstance(error, HeadroomError):
        return 2 if isinstance(error, UsageError) else 1, one_line(error)
    if isinstance(error, MemoryError):
        return 1, "out of memory; choose a smaller model or --precision int8"
    return 1, unforeseen(error)


def parser(only: str | None = None) -> Parser:
    """The parser of all commands; each sets `request`, the class of what it asks. `only`: the one whose options are
    wanted, which spares those of the others."""
    whole = Parser(prog="headroom", description="Headroom command-line interface. Results are shared with the app.")
    whole.epilog = "Without a command, headroom opens the app. `headroom COMMAND --help` lists a command's options."
    commands = whole.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", required=True, parser_class=Parser
    )
    for request in REQUESTS:
        does = gives(request)
        each = commands.add_parser(request.command, help=does[:1].lower() + does[1:], description=f"{does}.")
        if only in (None, request.command):
            each.add_request(request)
    return whole


def _run(options: Namespace) -> int:
    request = request_of(options)
    apply_settings(request)
    if request.cache:
        named(request.cache, "--cache")
    for stream in (sys.stdout, sys.stderr):  # half a character in what a model says cannot be written
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    from cache import open_store
    from engine.models.session import Session
    from engine.receipts import is_readable

    results, report = open_store(request.cache, is_readable), report_to_terminal()
    session = Session(results)
    tell.set(report)
    announce.set(lambda line: print(f"headroom: {line}", file=sys.stderr, flush=True))
    try:
        code = _run_when_here(request, session, report)
        if (held := session.models.loaded) is not None and (where := session.places(held.spec)):
            print(f"headroom: {held.spec.in_words}: {where}", file=sys.stderr)
    finally:
        results.close()
    if results.notice:
        print(f"headroom: {results.notice}", file=sys.stderr)
    return code


def _run_when_here(request: Request, session: Any, report: Any) -> int:
    """The command's exit code; it begins again after what it lacks was fetched: models come before measuring."""
    while True:
        try:
            result = request.run(session, report)
        except NotHere as away:
            fetch(request, away, session, report)
        else:
            deliver(request, result)
            return 0 if result.agrees else 1
