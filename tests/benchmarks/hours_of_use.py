"""Memory of hours of use: the browser tests' restless user on two models in turn, and what the app holds meanwhile.

    python -m tests.benchmarks.hours_of_use [--seconds 600] [--seed 1]

HEADROOM_BENCH_LLAMA is the folder of a second model (without it the embedded one is used alone), HEADROOM_TASK_DATA a
folder of real tasks. Each turn is a minute of random actions on one model, any screen, any precision; then the same
place is opened, its 16 questions are measured in int8, all other work is cancelled, and the process is weighed. Memory
of a turn is compared with that model's first turn, which comes after all screens and precisions were visited once.
At last every browser is closed, and the process is weighed once more.
"""

import os
import re
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Error, Page

from tests.benchmarks.browser import tab
from tests.benchmarks.measure import options, task_data
from tests.browser.conftest import await_mark
from tests.browser.monkey import OTHERS, SCREENS, act
from tests.browser.weighed import Server

TURN_S, CLOSED_S, REST_MS = 60, 30, 3000
BAR = 1.1
UNSEEN = Random("home")


def main() -> None:
    given = options(__doc__, seconds=600.0, seed=1)
    models = [model for model in (os.environ.get("HEADROOM_BENCH_LLAMA"), "demo") if model]
    data = {"HEADROOM_TASK_DATA": folder} if (folder := task_data()) else {}
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), **data)
        try:
            with tab(1280, 800) as page:
                turns = used(page, server, models, given.seconds, Random(given.seed))
            time.sleep(CLOSED_S)
            print(f"every browser closed for {CLOSED_S} s: {in_words(server.weigh())}")
        finally:
            server.end()
    for model in dict.fromkeys(model for model, _ in turns):
        home = [mb for each, mb in turns if each == model]
        first, last = home[0], home[-1]
        verdict = "within" if last <= BAR * first else "beyond"
        print(f"{Path(model).name}: {first:.0f} MB after its first of {len(home)} turns, {max(home):.0f} at most, "
              f"{last:.0f} after its last: {last / first:.3f} of the first, {verdict} {BAR}")  # fmt: skip


def used(page: Page, server: Server, models: list[str], seconds: float, rng: Random) -> list[tuple[str, float]]:
    """(model, resident MB at home) of each turn."""
    for model in models:
        come_home(page, server, model)
        warm_up(page)
        print(f"{Path(model).name}: every screen visited: {in_words(come_home(page, server, model))}", flush=True)
    spent, turns = 0.0, []
    while spent < seconds:
        model, turn_s, n = models[len(turns) % len(models)], 0.0, 0
        come_home(page, server, model)
        while turn_s < TURN_S:
            began = time.monotonic()
            act(page, rng, [model])
            turn_s, n = turn_s + time.monotonic() - began, n + 1
        spent += turn_s
        busy = server.megabytes()
        home = come_home(page, server, model)
        turns.append((model, home["resident"]))
        name = Path(model).name
        print(f"{spent:4.0f} s, {n} actions on {name}: {busy:.0f} MB; at home {in_words(home)}", flush=True)
    return turns


def come_home(page: Page, server: Server, model: str) -> dict[str, Any]:
    """What the server holds once this model is in memory in int8, 16 questions are measured, and all else has ended."""
    chosen = "" if model == "demo" else f"&model={quote(model, safe='')}"
    for _ in range(9):  # a mask that is stored already would be answered without the model
        server.cancel_all()
        heads = sorted(UNSEEN.sample([f"L{layer}H{head}" for layer in range(4) for head in range(6)], 3))
        page.goto(f"{server.address}/?prune_limit=16&prune_order=random&prune_mask={quote(' '.join(heads))}{chosen}")
        await_mark(page, "figure", "measured", questions=16)
        for _ in range(30):
            page.wait_for_timeout(1000)
            if server.weigh().get("loaded") == f"{model} int8":
                page.wait_for_timeout(REST_MS)
                server.cancel_all()
                page.wait_for_timeout(REST_MS)
                return server.weigh()
    raise AssertionError(f"{model} is never loaded")


def warm_up(page: Page) -> None:
    """Every precision and every screen once."""
    for precision in ("fp32", "bf16", "int8"):
        page.get_by_role("radio", name=precision, exact=True).click()
        page.wait_for_timeout(1500)
        await_mark(page, "figure", "measured", questions=16)
    for name in (*OTHERS, *SCREENS):
        page.get_by_role("link", name=name).click()
        page.wait_for_timeout(4000)
        with suppress(Error):
            page.get_by_role("button", name=re.compile("^Cancel")).first.click(timeout=500)


def in_words(held: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value if isinstance(value, str) else round(value)}" for name, value in held.items())


if __name__ == "__main__":
    main()
