"""What benchmarks of screens share: an app that is served, and a page in a Chromium of its own."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.benchmarks.measure import AS_GIVEN

WAIT_MS = 600_000


@contextlib.contextmanager
def served(app: Path, folder: Path, **environment: str) -> Iterator[str]:
    """The address of a Streamlit app that runs while this is open."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(app), f"--server.port={port}", "--server.headless=true",
               "--server.address=127.0.0.1", "--browser.gatherUsageStats=false"]  # fmt: skip
    environment = {"HEADROOM_SHIPPED": "0"} | AS_GIVEN | environment  # shipped records would be no measurements
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        for _ in range(300):
            with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{port}/_stcore/health"):
                break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextlib.contextmanager
def tab(width: int, height: int) -> Iterator[Any]:
    """A page of that size; SystemExit where there is no Chromium."""
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import CHROMIUM, FLAGS

    if CHROMIUM is None:
        raise SystemExit("no Chromium on this computer: nothing is measured on screen")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
        page.set_default_timeout(WAIT_MS)
        yield page
        browser.close()
