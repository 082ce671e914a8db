"""Training in a separate process while the app runs: `trained` starts it and reports its progress.

The process takes a run on its standard input and ends, its state saved, as soon as that is closed, however the app
ended; the same run goes on from there when it is asked for again. It leaves one core to the page.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.checkpoints.names import is_run
from engine.errors import HeadroomError, one_line, unforeseen
from engine.progress import Progress
from engine.training.folders import Run, open_run
from engine.training.recipe import Recipe, recipe_of

CODE = Path(__file__).resolve().parents[2]  # where `engine` lies
TICK_S, LEAVE_S = 0.2, 5.0  # how often it says how it goes; for the state to be saved
LOADING, READING = "Loading PyTorch", "Reading text and making the vocabulary"  # before the first step


def trained(
    folder: Path, recipe: Recipe, text: Path | None = None
) -> Generator[Progress[Run | dict[str, Any]], None, None]:
    """Trains a run by a process of its own: Progress in tokens, its value first what the `untrained` model is like,
    while the text of a new run is read, and at last the run. Closing the generator ends the process; what it has done
    is kept, and the next time it goes on. HeadroomError: as of `begin` and `train`."""
    arguments = {"folder": str(folder), "recipe": recipe.as_json(), "text": str(text) if text else None,
             "threads": max(1, (os.cpu_count() or 2) - 1)}  # fmt: skip
    total = recipe.n_steps * recipe.step_tokens
    yield Progress(0, total, None, LOADING, is_loading=True)
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "true", "OMP_NUM_THREADS": str(arguments["threads"])}
    if __name__.startswith("engine."):  # in a clone; an installed package is found as it is
        environment["PYTHONPATH"] = str(CODE)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        # -P: nothing in the folder that the app was started in is to be taken for the engine
        process = subprocess.Popen([sys.executable, "-P", "-m", __name__], env=environment, stderr=errors,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        ending: Any = None
        try:
            process.stdin.write(json.dumps(arguments).encode() + b"\n")
            process.stdin.flush()
            for line in process.stdout:
                report = json.loads(line)
                if "end" in report:
                    ending = report["end"]
                    break
                done, message = report["done"], report["message"]
                yield Progress(done, total, report["untrained"], message, is_loading=message in (LOADING, READING))
        except (BrokenPipeError, ValueError):  # it ended while it spoke, or was spoken to
            pass
        finally:
            with suppress(BrokenPipeError):  # unread input
                process.stdin.close()
            try:
                process.wait(LEAVE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        if ending != "done":
            errors.seek(0)
            last = next((line for line in reversed(errors.read().splitlines()) if line.strip()), "")
            ended = f"the process that trained {folder.name} has ended ({last or process.returncode}); start it again: "
            raise HeadroomError(ending or one_line(f"{ended}it goes on where it was"))
    yield Progress(total, total, open_run(folder), "")


def free_name(folder: Path, name: str, recipe: Recipe) -> Path:
    """The folder for a run of that name: the first of name, name-2, … that is free, or holds the same not yet done."""
    number = 1
    while True:
        place = folder / (name if number == 1 else f"{name}-{number}")
        if not place.exists() or (is_run(place) and _goes_on(place, recipe)):
            return place
        number += 1


def _goes_on(place: Path, recipe: Recipe) -> bool:
    try:
        held = open_run(place)
    except HeadroomError:
        return False
    return held.recipe == recipe and held.about.get("path") is None and not held.is_done


def main() -> None:
    """The process itself."""
    asked = json.loads(sys.stdin.readline())
    state: dict[str, Any] = {"done": 0, "message": LOADING, "untrained": None}
    is_to_end, ended = threading.Event(), threading.Event()
    threading.Thread(target=_listen, args=(state, is_to_end, ended), daemon=True).start()
    threading.Thread(target=_tell, args=(state, ended), daemon=True).start()
    end: Any = "done"
    try:
        text = Path(asked["text"]) if asked["text"] else None
        folder, recipe = Path(asked["folder"]), recipe_of(asked["recipe"])
        if not is_run(folder):  # the text of one that goes on is read already
            import torch

            from engine.training.model import untrained

            torch.set_num_threads(1)  # others would begin before `nice`, which is of the threads that follow
            state["untrained"] = untrained(recipe)
        from engine.training.running import begin, train

        if hasattr(os, "nice"):  # not sooner: the user waits for the first point
            os.nice(5)
        state["message"] = READING
        run = begin(folder, recipe, text, asked["threads"])
        _follow(train(run), state, is_to_end)
    except HeadroomError as error:
        end = one_line(error)
    except Exception as error:
        end = unforeseen(error)
    ended.set()
    _say({"end": end})
    os._exit(0)


def _follow(steps: Iterator[Progress[Any]], state: dict[str, Any], is_to_end: threading.Event) -> None:
    for step in steps:
        state["done"], state["message"] = step.done, step.message
        if is_to_end.is_set():
            break
    steps.close()  # type: ignore[attr-defined]  # with it the state is saved


def _listen(state: dict[str, Any], is_to_end: threading.Event, ended: threading.Event) -> None:
    """Has the process end when its standard input is closed: once its state is saved, at once where it has none."""
    while sys.stdin.buffer.read(1):
        pass
    is_to_end.set()
    if state["message"] not in (LOADING, READING):
        ended.wait(LEAVE_S)
    os._exit(0)


def _tell(state: dict[str, Any], ended: threading.Event) -> None:
    while not ended.is_set():
        _say(dict(state))
        time.sleep(TICK_S)


def _say(what: dict[str, Any]) -> None:
    try:
        print(json.dumps(what), flush=True)
    except OSError:  # the reader is gone; `_listen` notices that
        pass


if __name__ == "__main__":
    main()
