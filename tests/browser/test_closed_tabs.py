"""Two tabs, one closed: what nobody looks at any more rests, and whoever opens it again goes on where it was."""

import json
import time

import psutil
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import await_mark, marked
from tests.conftest import HANG_S

N = 1000
LOOK_S, IDLE_S = 2.0, 0.4  # of processor time within so long: nothing is measured then


@pytest.fixture
def many(tmp_path):
    """A file of so many long questions that nobody waits for the last of them."""
    story = " ".join(
        f"Then {name} went to the market and came back with {name.lower()}s." for name in "ABCDEFGHIJKLMNOPQR"
    )
    rows = [{"context": f"{i}. {story} The answer is", "choices": [" yes", " no"], "gold": i % 2} for i in range(N)]
    file = tmp_path / "many.jsonl"
    for each in (file, file.with_suffix(".train.jsonl")):
        each.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def under_way(page):
    """Waits until the progress line says that some of the questions are answered, and not all."""
    begun = page.locator(':not([data-done="0"])')
    marked(page, "job", "running", slot="accuracy", total=N).and_(begun).first.wait_for(state="attached")


def wait_for_rest(process):
    """Until the server's process does nothing."""
    server, end_s = psutil.Process(process.pid), time.monotonic() + HANG_S
    while time.monotonic() < end_s:
        before = sum(server.cpu_times()[:2])
        time.sleep(LOOK_S)
        if sum(server.cpu_times()[:2]) - before < IDLE_S:
            return
    raise AssertionError("the server works on")


@pytest.mark.slow("watches the measuring thread for several seconds three times")
def test_what_a_closed_tab_showed_rests_and_goes_on_when_it_is_opened_again(page, server, many):
    address, process = server
    page.goto(f"{address}/?precision=fp32&limit=16&order=random")
    await_mark(page, "figure", "measured", questions=16)
    asked = f"{address}/?precision=fp32&order=random&limit={N}&task={many}&shots=0"
    closed = page.context.new_page()
    closed.goto(asked)
    under_way(closed)
    closed.close()
    wait_for_rest(process)
    page.goto(asked)
    under_way(page)  # not all of it: it has rested, and now goes on
    cancel = page.get_by_role("button", name="Cancel")
    expect(cancel).to_have_count(1)  # while the page redraws it may stand twice
    cancel.click()
    await_mark(page, "job", "canceled", slot="accuracy")
