"""`python -m engine COMMAND`: the command line of a clone. A front end as app.py is: it has studies drawn."""

import sys
from functools import partial
from typing import Any

from engine import cli


def draw_report(study: Any, folder: str) -> None:
    """Writes a study's figures and report into `folder`."""
    from pages.ui.study_report import write_report  # here, since it imports altair and pandas

    write_report(study, folder)


main = partial(cli.main, draw_report)

if __name__ == "__main__":
    sys.exit(main())
