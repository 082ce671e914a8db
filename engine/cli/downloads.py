"""A model of the hub, or a task's rows, that a command needs and lacks: fetched once a person has agreed."""

import sys
import time
from contextlib import closing
from typing import Any

from engine.errors import HeadroomError, NotHere
from engine.models.session import Session
from engine.progress import TimeLeft
from engine.requests.base import Report


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
