"""`headroom` opens the app, `headroom COMMAND` is the command line: what an installation and a clone have in common.

In a clone this file lies beside app.py, cache, engine and pages. A wheel holds all of them in one package, and this
file as that package's own: so that nothing called cache, engine or pages comes to lie in site-packages.
"""

import os
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOON_S = 0.5  # the server takes connections a moment after it says that it starts


def main() -> int:
    """Exit code of the command that the process was given, or of the app."""
    sys.path.insert(0, str(HERE))
    arguments = sys.argv[1:]
    try:
        if not arguments or "." in arguments[0].partition("=")[0]:  # such as --server.port=8600
            return open_app(arguments)
        from engine.__main__ import main as command_line

        return command_line(arguments)
    except KeyboardInterrupt:
        print("headroom: cancelled", file=sys.stderr)
        return 130


def open_app(arguments: Sequence[str]) -> int:
    """Exit code of the app, served until it is stopped; `arguments` are settings as `streamlit run` takes them."""
    import streamlit as st
    from starlette.middleware import Middleware
    from streamlit.errors import StreamlitAPIException

    from pages.ui.shared.gate import Gate

    sys.argv = [str(HERE / "app.py")]  # as after `streamlit run`: beside it Streamlit looks for what else there is
    try:
        config = settings(arguments)
        hosts = config["server.allowedHosts"]
        gate = Middleware(Gate, hosts=[hosts] if isinstance(hosts, str) else hosts)
        st.App(HERE / "app.py", lifespan=in_the_browser, middleware=[gate]).run(config=config)
    except (StreamlitAPIException, ValueError) as error:
        print(f"headroom: {error}; settings are written like --server.port=8600", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass  # Ctrl-C is how it is stopped
    return 0


def settings(arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Streamlit's settings by name: this app's own, wherever it is started, and above them what `arguments` say."""
    own = tomllib.loads((HERE / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    words = [word for argument in arguments for word in argument.split("=", 1)]
    if len(words) % 2:
        raise ValueError(f"{words[-1]} has no value")
    given = {name.removeprefix("--"): _value(text) for name, text in zip(words[::2], words[1::2], strict=True)}
    return {**dict(_flat(own)), **given}


@asynccontextmanager
async def in_the_browser(app: Any) -> AsyncIterator[None]:
    """While the app is served: it is shown in the browser, where there is a screen."""
    import threading
    import webbrowser

    import streamlit as st

    if not st.get_option("server.headless"):
        address = f"http://{st.get_option('server.address')}:{st.get_option('server.port')}"
        threading.Timer(SOON_S, webbrowser.open, [address]).start()
    yield


def _flat(table: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # a word, which TOML would have in quotes


if __name__ == "__main__":
    code = main()
    if code == 130:  # at once, as `engine.__main__.leave` does
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)
