"""Writes what Headroom shows as text files, to compare before and after a change of its structure:

    .venv/bin/python -m scripts.dump_presentation FOLDER [--only screens|states|commands]
    diff -r BEFORE AFTER

`screens/NAME`: what the embedded model's default views say, their tables as CSV, and their Vega specifications.
`states/SCREEN, MODEL, STORED`: which elements a screen draws and which jobs it starts, before any of them has run, for
the embedded model and a random one, when nothing, a part, or everything that it shows first is stored.
`commands/NAME.json`: what commands print with `--json` for the embedded model. Times and dates are left out.

To dump another commit, run its own copy of this file: it opens that commit's app in this process.
"""

import argparse
import contextlib
import io
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
TASKS = ("--task", "demo_outfit", "--shots", "5", "--limit", "32")
MASK = ("--mask", "L1H1-3 L3H5")
PAIR = ("--tasks", "demo_outfit,demo_copy", "--shots", "0,5", "--limit", "16")
SENTENCES = "The boat was red, and the old boat was red. Mr. Dale saw the old boat, and Mr. Dale was red. "
TEXT = ("--text", "TEXT")
COMMANDS: Mapping[str, tuple[str, ...]] = {  # TEXT and OUT stand for a text file and a file that is dumped, too
    "evaluate": ("evaluate", *TASKS, *MASK),
    "evaluate a level": ("evaluate", *TASKS, "--prune-heads", "50"),
    "importance": ("importance", *TASKS, "--out", "OUT.csv"),
    "importance measured": ("importance", *TASKS, "--score", "heads-oracle", "--out", "OUT.csv"),
    "ablate": ("ablate", *TASKS),
    "induction": ("induction", "--out", "OUT.csv"),
    "layers": ("layers", *TASKS),
    "losses": ("losses", *TEXT, *MASK, "--out", "OUT.csv"),
    "attribute": ("attribute", *TEXT, "--out", "OUT.csv"),
    "continue": ("continue", "--prompt", "The boat was red. The boat was", "--tokens", "5", *MASK, "--out", "OUT.csv"),
    "attention": ("attention", "--heads", "L3H5", *TEXT, "--out", "OUT.csv"),
    "lens": ("lens", *TEXT),
    "idealize": ("idealize", "--heads", "L3H5", *TEXT),
    "perplexity": ("perplexity", *TEXT, *MASK),
    "head": ("head", "L3H5"),
    "correlate": ("correlate", *PAIR[:-2], "--induction", "--out", "OUT.csv"),
    "sweep": ("sweep", *PAIR, "--head-levels", "0,50", "--out", "OUT.csv"),
    "compare": ("compare", *TASKS, "--criteria", "gradient,weight", "--levels", "0,50", "--out", "OUT.csv"),
    "mechanisms": ("mechanisms",),
    "vector": ("vector",),
    "patch": ("patch", "--prompt", "The boat was red.", "--other-prompt", "The boat was old.", "--answers", "It,He"),
    "corpus": ("corpus", "--windows", "20", "--out", "OUT.csv"),
    "tasks": ("tasks",),
    "models": ("models",),
    "demo": ("demo",),
}
# What differs from run to run: how long something took, when, and where the store lies.
VARIES = re.compile(r"second|_s$|_at$|measured_on|when|time|elapsed|free|cache|machine|date|speed|ago")
LOCAL = ((str(ROOT), "."), (os.path.expanduser("~"), "~"))
STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
N_RUNS = 60
WAIT_S = 120


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m scripts.dump_presentation", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the files are written")
    parser.add_argument("--only", choices=["screens", "states", "commands"], help="write these alone")
    options = parser.parse_args()
    # kernels change the last digits, so all machines use the same
    os.environ |= {"HEADROOM_IDLE_SECONDS": "1000000", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    from engine.accuracy import evaluation
    from scripts.make_demo.shipped import KERNELS

    os.environ["HEADROOM_PRODUCTS"] = KERNELS[-1]
    evaluation.LONG_S = math.inf  # a slow machine measures in quarters, which round differently
    os.environ.pop("HEADROOM_TASK_DATA", None)
    kinds: dict[str, Callable[[Path, Path], None]] = {"screens": screens, "states": states, "commands": commands}
    for name, dump in kinds.items():
        if options.only in (None, name):
            with TemporaryDirectory() as temporary:
                dump(options.folder / name, Path(temporary))


def screens(folder: Path, temporary: Path) -> None:
    """Dumps the shipped default views: findings, tables, and pictures."""
    from scripts.make_demo.shipped import VIEWS

    for name, (screen, address) in VIEWS.items():
        use_store(temporary / name, shipped=True)
        at, sheets = opened(screen, address)
        settle(at)
        _write(folder / f"{name}.txt", "\n".join(text_of(at)))
        if not sheets:
            continue
        sheet = sheets[-1]
        _write(folder / name / "says.txt", "\n".join(sheet.says))
        for title in sheet.tables:
            _write(folder / name / f"{_file(title)}.csv", sheet.table(title).decode())
        for title in sheet.pictures:
            _write(folder / name / f"{_file(title)}.json", as_json(sheet.picture(title).spec))


def states(folder: Path, temporary: Path) -> None:
    """Dumps what each screen draws first and starts, by how much is stored."""
    from pages.ui.page.screens import STORY
    from tests.conftest import make_tiny_opt

    (temporary / "tiny").mkdir()
    tiny = make_tiny_opt(temporary / "tiny")
    questions = temporary / "boats.jsonl"
    boats(questions)
    own = {"model": str(tiny), "precision": "fp32", "task": str(questions), "shots": "0"}
    for screen in (each.file for group in STORY.values() for each in group):
        store = temporary / screen

        def dump(name: str, address: Mapping[str, str], screen: str = screen) -> None:
            lines = first_run(opened(screen, address)[0])
            _write(folder / f"{screen}, {name}.txt", "\n".join(lines).replace(str(temporary), "TEMPORARY"))

        for is_shipped, stored in ((False, "nothing"), (True, "everything")):
            use_store(temporary / f"{screen} demo", is_shipped)
            dump(f"demo, {stored}", {})
        for stored in ("nothing", "everything", "a part"):
            use_store(store, shipped=False)
            if stored == "everything":
                settle(opened(screen, own)[0])
                use_store(store, shipped=False)
            elif stored == "a part":
                delete_half()
            dump(f"tiny, {stored}", own)


def commands(folder: Path, temporary: Path) -> None:
    """Dumps what commands print as JSON; the line of the error for one that does not exist."""
    from engine.__main__ import main as run

    os.environ |= {"HEADROOM_CACHE": str(temporary / "results"), "HEADROOM_SHIPPED": "0"}
    text, file = temporary / "text.txt", temporary / "out.csv"
    text.write_text(
        "The boat was red, and the old boat was red. Mr. Dale saw the old boat, and Mr. Dale was red. " * 20
    )
    for name, words in COMMANDS.items():
        words = [word.replace("TEXT", str(text)).replace("OUT.csv", str(file)) for word in words]
        printed, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
            try:
                run([*words, "--json"])
            except SystemExit:
                pass
        try:
            shown = as_json(without_times(json.loads(printed.getvalue())))
        except ValueError:
            shown = printed.getvalue() + said.getvalue().splitlines()[-1]
        _write(folder / f"{_file(name)}.json", shown.replace(str(temporary), "TEMPORARY"))
        if file.exists():
            _write(folder / f"{_file(name)}.csv", file.read_text(encoding="utf-8"))
            file.unlink()


def use_store(folder: Path, shipped: bool) -> None:
    """Opens the app's store in this folder, with new threads."""
    import streamlit as st

    from pages.ui.page import runtime
    from tests.pages.conftest import tab_of_tests

    os.environ |= {"HEADROOM_CACHE": str(folder), "HEADROOM_SHIPPED": str(int(shipped))}
    runtime.tab = tab_of_tests
    st.cache_resource.clear()


def opened(screen: str, address: Mapping[str, str]) -> tuple[Any, list[Any]]:
    """Returns the page, which has not run, and the sheets that its buttons will get."""
    from streamlit.testing.v1 import AppTest

    from pages.ui.downloads import actions

    at, sheets = AppTest.from_file(str(ROOT / "app.py"), default_timeout=WAIT_S), list[Any]()
    for name, value in address.items():
        at.query_params[name] = value
    at.screen = screen  # type: ignore[attr-defined]
    actions._draw = lambda files, link: sheets.append(files.sheet)
    return at, sheets


def run(at: Any) -> None:
    """Runs the page once."""
    from tests.pages.conftest import page_hash

    at._page_hash, at._finished_page_script_hash = page_hash(at.screen), ""
    at.run()
    assert not at.exception, at.exception


def settle(at: Any) -> None:
    """Runs the page until nothing is left to do for the measuring thread."""
    from pages.ui.page import runtime
    from tests.pages.conftest import job_states

    for _ in range(N_RUNS):
        before = job_states()
        run(at)
        if before == job_states() and all(ended for *_, ended in before):
            return
        for slot, *_ in job_states():
            runtime.jobs().join(slot, WAIT_S)


def first_run(at: Any) -> list[str]:
    """Runs the page until all stored results are read, while nothing is measured; returns a line for each job that it
    asks for, and what it draws."""
    from pages.ui.page import runtime
    from tests.pages.conftest import job_states

    with measuring_rests():
        before = None
        while before != (before := job_states()):
            run(at)
            lane = runtime.jobs()._lanes.reading
            while lane.queue or lane.running:
                time.sleep(0.01)
        held = runtime.jobs()._slots.held.items()
        jobs = {f"job in {slot}, {job.status.state}: {job.status.title}" for (_, slot), job in held}
    return [*sorted(jobs), *text_of(at)]


@contextlib.contextmanager
def measuring_rests() -> Iterator[None]:
    """Context in which jobs that measure are queued and not run."""
    from engine.lanes import Lane

    put = Lane.put

    def queue(self: Any, job: Any, work: Any) -> None:
        if self.name == "headroom-reads":
            put(self, job, work)
        else:
            self.queue.append(job)

    Lane.put = queue  # type: ignore[method-assign]
    try:
        yield
    finally:
        Lane.put = put  # type: ignore[method-assign]


def delete_half() -> None:
    """Deletes every second record of the store, in the order of the keys."""
    from pages.ui.page import runtime

    for key in sorted(runtime.store().keys())[::2]:
        runtime.store().delete(key)


def boats(file: Path) -> None:
    """Writes a small task of 20 questions, and the same for training."""
    rows = [
        {"context": f"He counted {i} boats. How many?", "choices": [f" {i + k} boats" for k in range(3)], "gold": i % 3}
        for i in range(20)
    ]  # fmt: skip
    for each in (file, file.with_suffix(".train.jsonl")):
        each.write_text("".join(json.dumps(row) + "\n" for row in rows))


def text_of(at: Any) -> Iterator[str]:
    """Yields a line for each element of the page: its type and what it says."""
    import pandas as pd
    from streamlit.testing.v1.element_tree import UnknownElement

    for element in _elements(at.main):
        if element.type == "vega_lite_chart":
            said = summary_of_spec(element.proto.spec)
        elif isinstance(element, UnknownElement):  # a component, a picture, a piece of HTML
            said = str(getattr(element.proto, "body", getattr(element.proto, "json", "")))
        elif isinstance(element.value, pd.DataFrame):
            said = f"\n{element.value.to_csv()}"
        else:
            said = " | ".join(
                str(each) for each in (getattr(element, "label", ""), element.value) if each not in (None, "", False)
            )
        yield f"{element.type}: {re.sub(STYLE, '', said)}".rstrip()


def summary_of_spec(spec: str) -> str:
    """Returns the title, marks, and field names of a Vega specification in one line."""
    found = json.loads(spec)
    names = sorted(set(re.findall(r'"field": "([^"]+)"', json.dumps(found))))
    return f"{found.get('title', '')} {', '.join(names)}"


def _elements(block: Any) -> Iterator[Any]:
    for child in block.children.values():
        if hasattr(child, "children"):
            yield from _elements(child)
        else:
            yield child


def without_times(value: Any) -> Any:
    """Returns a JSON value without what differs from run to run."""
    if isinstance(value, dict):
        return {name: without_times(each) for name, each in value.items() if not VARIES.search(str(name))}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def as_json(value: Any) -> str:
    """Returns indented JSON."""
    return json.dumps(value, indent=1, sort_keys=True, default=str)


def _file(title: str) -> str:
    return re.sub(r"[^\w, -]", "_", title)


def _write(file: Path, text: str) -> None:
    for path, name in LOCAL:
        text = text.replace(path, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
