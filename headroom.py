"""Entry point: `headroom` opens the app, `headroom COMMAND` runs the command line, and `import headroom` gives the
requests behind both to Python:

>>> import headroom
>>> result = headroom.Evaluate(task="demo_copy", limit=20).run()
>>> result.fields["n"]
20

In a clone this file is next to app.py, cache, engine and pages. A wheel holds all of them in one package, with this
file as its `__init__`, and imports `headroom.engine`, so site-packages gets no modules named cache, engine or pages.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # without importing typing: up to `main` Ctrl-C would be a traceback
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from typing import Any

    from engine.errors import HeadroomError as HeadroomError
    from engine.errors import UsageError as UsageError
    from engine.requests import *  # noqa: F403

ERRORS = ("HeadroomError", "UsageError")
HERE = os.path.dirname(os.path.realpath(__file__))
SOON_S = 0.02  # between two looks at whether the server takes connections, a moment after it says that it starts
N_LOOKS = 250
UNCOLLECTED = 10_000  # new objects before Python looks for unused ones: after 700, a fifth of importing torch is that


def __getattr__(name: str) -> Any:
    """The public classes, imported when they are first used, so that importing this takes no time."""
    if name == "__all__":
        return __dir__()
    if name in ERRORS:
        from engine import errors

        return getattr(errors, name)
    if name[0].isupper():
        from engine import requests
        from engine.__main__ import draw_report
        from engine.requests.output import draw_reports_with

        if hasattr(requests, name):
            draw_reports_with(draw_report)
            return getattr(requests, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public classes, for completion."""
    from engine.requests import REQUESTS

    return [*(request.__name__ for request in REQUESTS), "Result", *ERRORS, "main"]


def main() -> int:
    """Exit code of the command that the process was given, or of the app."""
    arguments = sys.argv[1:]
    try:
        import gc

        gc.set_threshold(UNCOLLECTED)
        from engine.__main__ import cancel, share_processors, silence_libraries
        from engine.__main__ import main as command_line

        silence_libraries()
        share_processors()
        if not arguments or "." in arguments[0].partition("=")[0]:  # such as --server.port=8600
            import signal

            before = signal.signal(signal.SIGTERM, cancel)
            return open_app(arguments, lambda: signal.signal(signal.SIGTERM, before))
        return command_line(arguments)
    except KeyboardInterrupt:
        print("headroom: canceled", file=sys.stderr)
        return 130


def open_app(arguments: Sequence[str], started: Callable[[], Any]) -> int:
    """Exit code of the app, served until it is stopped; `arguments` are settings as `streamlit run` takes them.
    `started` is called before the server takes over the signals."""
    from contextlib import asynccontextmanager

    import streamlit as st
    from starlette.middleware import Middleware

    from pages.ui.page.front_page import routes, served_path
    from pages.ui.page.security_headers import Gate
    from pages.ui.page.streamlit_internals import StreamlitAPIException

    sys.argv = [os.path.join(HERE, "app.py")]  # as `streamlit run` has it: Streamlit looks for files next to it
    try:
        config = settings(arguments)
        hosts = config["server.allowedHosts"]
        # a file or a variable of the environment may say it too
        path = served_path(str(config.get("server.baseUrlPath") or st.get_option("server.baseUrlPath") or ""))
        config["server.baseUrlPath"] = path[1:]
        gate = Middleware(Gate, hosts=[hosts] if isinstance(hosts, str) else hosts)
        app = st.App(sys.argv[0], lifespan=asynccontextmanager(in_the_browser), routes=routes(path), middleware=[gate])
        started()
        app.run(config=config)
    except (StreamlitAPIException, ValueError) as error:
        print(f"headroom: {error}; settings are written like --server.port=8600", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass  # Ctrl-C is how it is stopped
    return 0


def settings(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Streamlit's settings by name: this app's own, wherever it is started, and above them what `arguments` say."""
    import tomllib

    with open(os.path.join(HERE, ".streamlit", "config.toml"), "rb") as file:
        own = tomllib.load(file)
    words = [word for argument in arguments for word in argument.split("=", 1)]
    if len(words) % 2:
        raise ValueError(f"{words[-1]} has no value")
    given = {name.removeprefix("--"): _value(text) for name, text in zip(words[::2], words[1::2], strict=True)}
    return {**dict(_flat(own)), **given}


async def in_the_browser(app: Any) -> AsyncIterator[None]:
    """While the app is served (as a context): it is shown in the browser, where there is a screen."""
    import threading

    import streamlit as st

    threading.Thread(target=_import_screens, daemon=True).start()
    if not st.get_option("server.headless"):
        where = str(st.get_option("server.address")), int(st.get_option("server.port"))
        where += (str(st.get_option("server.baseUrlPath")),)
        threading.Thread(target=_open_browser, args=where, daemon=True).start()
    yield


def _import_screens() -> None:
    """Imports what the first screen is drawn with, while the browser fetches its scripts."""
    from pages.ui.controls import sidebar  # noqa: F401
    from pages.ui.downloads import actions  # noqa: F401
    from pages.ui.prune import layout  # noqa: F401


def _open_browser(address: str, port: int, path: str = "") -> None:
    """Shows the app in the browser as soon as the server takes connections."""
    import socket
    import time
    import webbrowser
    from contextlib import suppress

    for _ in range(N_LOOKS):
        with suppress(OSError), socket.create_connection((address, port)):
            break
        time.sleep(SOON_S)
    webbrowser.open(f"http://{address}:{port}/{path}".rstrip("/"))


def _flat(table: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value


def _value(text: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # a word, which TOML would have in quotes


if __name__ == "__main__":  # in a clone; an installation imports the package
    sys.path.insert(0, HERE)
    code = main()
    if code == 130:  # at once, as `engine.__main__.leave` does
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)
