"""How results leave: lines or one JSON object on standard output, files, progress on standard error; and a model of the
hub or a task's rows that a command needs and lacks, fetched once a person has agreed.
"""

import sys
import time
from contextlib import closing
from typing import Any

from engine.errors import HeadroomError, NotHere
from engine.models.session import Session
from engine.progress import TimeLeft, in_time
from engine.requests.base import Request
from engine.requests.output import to_json
from engine.requests.running import Report, Result


def deliver(request: Request, result: Result) -> None:
    """Prints a result: as one JSON object with --json, else its lines. HeadroomError: nothing could be measured."""
    lines = str(result)
    written = [] if result.report_folder else [f"written to {path}" for path in result.files if path not in lines]
    print(to_json(dict(result.fields)) if request.json else "\n".join([lines, *written]), flush=True)
    if result.failure:
        raise HeadroomError(result.failure)


def report_to_terminal() -> Report:
    """What shows progress: in place on a terminal, else a line now and then."""
    return _report if sys.stderr.isatty() else _report_sparsely()


def _report(done: int, total: int, message: str, left_s: float | None) -> None:
    is_end = bool(total) and done >= total
    print(f"\r\033[K{_line(done, total, message, left_s)}", end="\n" if is_end else "", file=sys.stderr, flush=True)


def _report_sparsely() -> Report:
    last_s = time.monotonic()

    def report(done: int, total: int, message: str, left_s: float | None) -> None:
        nonlocal last_s
        if time.monotonic() - last_s > 5:
            last_s = time.monotonic()
            print(_line(done, total, message, left_s), file=sys.stderr, flush=True)

    return report


def _line(done: int, total: int, message: str, left_s: float | None) -> str:
    left = "" if left_s is None or done >= total else f", about {in_time(left_s)} left"
    return f"{done} of {total}  {message}{left}"


def fetch(request: Any, away: NotHere, session: Session, report: Report) -> None:
    """Fetches it where `--download` says so, or who sits at the terminal; else raises what the command has ended in."""
    may_ask = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    if not (getattr(request, "download", False) or may_ask):
        raise away
    if not away.model:
        from engine.questions.tasks import agree_to_fetch

        if not request.download:
            print(f"headroom: {away}", file=sys.stderr)
            _ask("Fetch the rows of this command's tasks from the hub?")
        agree_to_fetch()
        return
    from engine.checkpoints import hub
    from engine.models.loading import aside_folder
    from engine.placement.placement import refusal

    offer = hub.look_up(away.model)
    if refused := refusal(offer, request.precision, aside_folder(session.store)):
        raise HeadroomError(refused)
    sizes = f"{hub.in_bytes(offer.missing_bytes)} to download, {hub.in_bytes(offer.free_bytes)} free on the disk"
    print(f"headroom: {away.model} is not on this computer: {sizes}", file=sys.stderr)
    if not request.download:
        _ask("Download it?")
    time_left = TimeLeft(time.monotonic())
    with closing(hub.download(offer)) as steps:
        for step in steps:
            time_left.told(now_s := time.monotonic(), step)
            done, total = step.done // 1_000_000, -(-step.total // 1_000_000)
            is_end = step.done == step.total
            report(total if is_end else done, total, f"MB of {away.model}", time_left.left_s(now_s))


def _ask(question: str) -> None:
    """HeadroomError where who sits at the terminal does not say yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)  # `input` would ask on standard output
    try:
        answer = input()
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise HeadroomError("nothing was downloaded")
