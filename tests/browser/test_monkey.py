"""A restless user: random dragging, page changes, model switches and cancels, then every figure is computed anew.

Ten minutes of it: `MONKEY_SECONDS=600 python -m pytest -m browser -s tests/browser/test_monkey.py`. A run that fails
says which MONKEY_SEED it was, and all that was done.
"""

import os
import re
import time
from collections import Counter
from contextlib import suppress
from random import Random

import pytest
from playwright.sync_api import Error

from tests.browser.conftest import keyed, open_settings
from tests.browser.monkey import LONG_MS, OTHERS, SCREENS, act
from tests.browser.recompute import CHECKS, LOOK, SLOTS, Comparison, Oracle, of_jobs, waiting
from tests.browser.weighed import Server
from tests.conftest import HANG_S, IS_THOROUGH

SECONDS = float(os.environ.get("MONKEY_SECONDS", "45" if IS_THOROUGH else "6"))
SEED = int(os.environ.get("MONKEY_SEED", "1"))
LONG_S = 300  # from here on memory has had time to grow, and the warm-up to reach everything
BETWEEN_CHECKS = 120  # actions
REST_S = 2.5  # nothing changes for so long: jobs on the screen are looked at every second
GIVE_UP_S = HANG_S
SMALL = "/?precision=fp32&limit=16&order=random"


@pytest.fixture
def server(tmp_path, no_network, warm):
    server = Server(tmp_path, warm)
    yield server
    server.end()


@pytest.fixture
def oracle(tmp_path, warm):
    (tmp_path / "recomputed").mkdir()
    oracle = Oracle(tmp_path / "recomputed", warm)
    yield oracle
    oracle.close()


def faults(page, server, console):
    """What must never be seen: exceptions on screen, in the console, in the log, in a job."""
    found = list(console)
    found += page.get_by_test_id("stException").all_inner_texts()
    found += [text for text in page.get_by_test_id("stAlert").all_inner_texts() if "unexpected" in text]
    log = server.said.read_text()
    return found + ([log] if re.search("Traceback|Stack|a job failed|Error", log) else [])


def at_rest(page):
    """What the screen shows once all its figures are there and stay; what was canceled is taken up again."""
    began, since, before = time.monotonic(), time.monotonic(), None
    while time.monotonic() < began + GIVE_UP_S:
        seen = page.evaluate(LOOK)
        now = [seen[part] for part in ("controls", "figures", "changes", "commands", "alerts")]
        if now != before or (waiting(seen) and not seen["alerts"]):
            since, before = time.monotonic(), now
        if time.monotonic() > since + REST_S and not seen["running"]:
            return seen
        for job in of_jobs(seen, "canceled"):
            with suppress(Error):  # it may be gone by now
                if job["slot"] in SLOTS:
                    keyed(page, f"retry {job['slot']}").get_by_role("button").first.click(timeout=1000)
        page.wait_for_timeout(200)
    raise AssertionError(f"no rest within {GIVE_UP_S} s: {before}")


def end_studies(page, done):
    """Cancels what was begun on other screens: it would keep the measuring thread for long."""
    begun = re.compile("press_button (?:Measure|Ablate).* on ([A-Z][a-z ]+)$")  # not those that were missed
    for name in sorted({found[1] for line in done if (found := begun.match(line))} - {"Prune"}):
        page.get_by_role("link", name=name).click()
        page.wait_for_timeout(1500)
        for button in page.get_by_role("button", name="Cancel", exact=True).all():
            if button.is_visible():
                button.click()
                page.wait_for_timeout(300)


def check(page, name, oracle, found):
    """Compares every figure of a screen, once it rests; what it has to say instead of figures, if anything."""
    page.get_by_role("link", name=name).click()
    page.get_by_role("heading", name=name, exact=True, level=1).wait_for()
    seen = at_rest(page)
    if seen["alerts"]:  # such as a mask that cannot be read
        open_settings(page)
        field = page.get_by_role("textbox", name="Prune these as well", exact=True)
        field.fill("")
        field.press("Enter")
        seen = at_rest(page)
    if not seen["alerts"]:
        CHECKS[name](seen, oracle, found)
    return seen["alerts"]


@pytest.mark.thorough
@pytest.mark.slow("acts on two screens for a while, and measures what they show again")
def test_a_restless_user_finds_no_fault_and_no_stale_figure(server, page, oracle, tiny_opt):
    console, done, said, found, rng = [], [], [], Comparison(), Random(SEED)
    page.set_default_timeout(LONG_MS)
    page.on("console", lambda message: console.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: console.append(str(error)))

    def note(words):  # pytest shows what is printed when the test fails
        done.append(words)
        print(f"{spent:4.0f} s: {words}", flush=True)

    def come_home():
        page.goto(server.address + SMALL)
        at_rest(page)
        page.wait_for_timeout(3000)
        return server.megabytes()

    def look_closely(*screens):
        end_studies(page, done)
        for name in screens:
            said.extend(check(page, name, oracle, found))
            note(f"check {name}: {found.n} figures compared so far, {server.megabytes():.0f} MB")
            assert not found.wrong

    print(f"MONKEY_SEED={SEED} MONKEY_SECONDS={SECONDS:.0f}")
    page.goto(server.address + SMALL)
    at_rest(page)
    first_mb, spent = server.megabytes(), 0.0
    if SECONDS >= LONG_S:
        warm_up(page)
        first_mb = come_home()
    print(f"{first_mb:.0f} MB at first")
    models = ["demo", "demo", str(tiny_opt)]
    while spent < SECONDS:
        began = time.monotonic()
        words = act(page, rng, models)
        spent += time.monotonic() - began
        note(words)
        assert not faults(page, server, console)
        if len(done) % BETWEEN_CHECKS == 0:
            look_closely(rng.choice(SCREENS))
    look_closely(*SCREENS)
    assert not faults(page, server, console)
    last_mb = come_home() if SECONDS >= LONG_S else server.megabytes()
    kinds, missed = Counter(words.split()[0] for words in done), sum("(missed" in words for words in done)
    print(f"{len(done)} actions {dict(kinds)}, {missed} missed; {found.n} figures compared; memory {first_mb:.0f} MB "
          f"at first, {last_mb:.0f} MB at last; refused: {Counter(said)}")  # fmt: skip
    assert found.n > 0
    if SECONDS >= LONG_S:
        assert last_mb < 1.1 * first_mb


def warm_up(page):
    """Every screen and every precision once."""
    for precision in ("bf16", "int8", "fp32"):
        page.get_by_role("radio", name=precision, exact=True).click()
        at_rest(page)
    for name in (*OTHERS, *SCREENS):
        page.get_by_role("link", name=name).click()
        page.wait_for_timeout(3000)
