"""`python -m engine COMMAND`: the command line of a clone. A front end as app.py is: it has paper studies drawn."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # without importing typing: up to `main` Ctrl-C would be a traceback
if TYPE_CHECKING:
    from typing import Any, NoReturn


def draw_report(study: Any, folder: str) -> None:
    """Writes a paper study's figures and report into `folder`."""
    from pages.ui.paper_report import write_report  # here, since it imports altair and pandas

    write_report(study, folder)


def main(arguments: list[str] | None = None) -> int:
    """Exit code of the command in `arguments` (default: the process's own)."""
    before = None
    try:
        import signal

        before = signal.signal(signal.SIGTERM, cancel)
        from engine import cli  # here, so that Ctrl-C while it is imported is heard
        from engine.requests.output import draw_reports_with

        draw_reports_with(draw_report)
        return cli.main(arguments)
    except KeyboardInterrupt:
        print("headroom: canceled", file=sys.stderr)
        return 130
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def silence_libraries() -> None:
    """Hides warnings of libraries, as errors are one line. Python's own options -W and PYTHONWARNINGS still show
    them."""
    if not sys.warnoptions:
        import warnings

        warnings.simplefilter("ignore")


def share_processors() -> None:
    """Lets threads that wait for one another inside a product sleep instead of spin, unless OMP_WAIT_POLICY says
    otherwise. To be called before torch is imported, which reads it."""
    # next to one other busy program a pass with two threads took 4 to 5 times as long spinning; alone, as long
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def cancel(signum: int, frame: Any) -> NoReturn:
    """What SIGTERM does while the program starts: the same as Ctrl-C."""
    raise KeyboardInterrupt


def leave(code: int) -> NoReturn:
    """Ends the process. After Ctrl-C at once: Python's own way out waits for libraries that were left half imported."""
    if code == 130:
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    silence_libraries()
    share_processors()
    leave(main())
