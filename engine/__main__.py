"""`python -m engine COMMAND`: the command line of a clone. A front end as app.py is: it has studies drawn."""

import os
import sys
from typing import Any, NoReturn


def draw_report(study: Any, folder: str) -> None:
    """Writes a study's figures and report into `folder`."""
    from pages.ui.study_report import write_report  # here, since it imports altair and pandas

    write_report(study, folder)


def main(arguments: list[str] | None = None) -> int:
    """Exit code of the command in `arguments` (default: the process's own)."""
    try:
        from engine import cli  # here, so that Ctrl-C while it is imported is heard

        return cli.main(draw_report, arguments)
    except KeyboardInterrupt:
        print("headroom: cancelled", file=sys.stderr)
        return 130


def leave(code: int) -> NoReturn:
    """Ends the process. After Ctrl-C at once: Python's own way out waits for libraries that were left half imported."""
    if code == 130:
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    leave(main())
