"""What commit daeb778 wrote: a plan that was begun, a result store, a shared folder and saved views, as one zip.

It was made in a worktree of daeb778, with HEADROOM_PRODUCTS=own, on a CPU, and with the versions of libraries that
`tests.cli.conftest` names:

- `tiny` and `wide` are random OPT models as `tests.conftest.make_tiny_opt` makes them, but with a vocabulary of 1,024
  entries made from the built-in passages, and with weights rounded to sixteenths, which pack well. `tiny` has 2 layers
  of 4 heads, width 32 and a window of 256 tokens; `wide` has 1 layer of 1 head, width 16 and a window of 512.
- `boats.jsonl` and `roads.jsonl` are `tests.engine.fixtures.write_questions(file, 20, seed)` with the seeds 0 and 1.
  `run` is `small_run` of that module, without the snapshots between the first and the last. `demo` has two short
  passages.
- `plan.json`: each of SWEEPS in `tests/cli/test_a_plan_of_daeb778_goes_on.py` but the last, with `--plan plan.json
  --cache store`. Then `headroom work plan.json --cache store` was stopped by Ctrl-C in the 15th cell that it took,
  started again, and killed in its 9th. Then the last of SWEEPS.
- `shared`: each of COMMANDS and CHANGED in `tests/cli/test_results_of_daeb778_are_found.py`, in this order, with
  HEADROOM_SHARED=shared, `engine.demo.FOLDER` set to `demo`, `--model ./tiny --precision fp32` unless the command says
  otherwise, and one store that is not in the zip.
- `views.json`: the app was started in this folder, each link in `tests/pages/test_views_of_daeb778.py` opened in
  Chromium and saved under its name, and the views saved as a file. They were loaded into `store` too.

Some numbers were defined in another way soon after. Commit 8155879, the last before a measurement became one value,
added what it measured of them: CHANGED with HEADROOM_SHARED=since, and SPEED with `--cache store`.

All paths are relative, as ids of cells name files of questions: tests go to the unpacked folder.
"""

import zipfile
from pathlib import Path

ZIP = Path(__file__).parent / "cli" / "written_by_daeb778.zip"


def unpack(folder: Path) -> Path:
    """The folder, with all that daeb778 wrote in it."""
    with zipfile.ZipFile(ZIP) as packed:
        packed.extractall(folder)
    return folder
