"""Streamlit's page for the browser, with a script that makes one history entry for each action of the user.

`headroom` and `make run` serve it for every screen; `streamlit run app.py` serves Streamlit's page as it is.
"""

import re
from functools import cache, partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.routing import Route

from pages.ui.page.screens import STORY
from pages.ui.page.streamlit_internals import page_with_script

SCRIPT = Path(__file__).with_suffix(".js")


def routes(path: str = "") -> list[Route]:
    """Returns the routes of each screen's address and of the root, which shows the first one: below a `path` such as
    "/tools/headroom" if the app is served there, to which the server's own root leads."""
    files = [screen.file for screens in STORY.values() for screen in screens]
    found = [
        Route(f"{path}/{files[0]}", partial(_redirect, to=".")),
        *(Route(f"{path}/{file}", _answer) for file in ("", *files[1:])),
    ]
    if path:
        found += [Route(path, partial(_redirect, to=f"{path.rpartition('/')[2]}/"))]
        found += [Route("/", partial(_redirect, to=f"{path[1:]}/"))]
    return found


def served_path(text: str) -> str:
    """Returns the path that `server.baseUrlPath` means, such as "/tools/headroom"; "" for the server's root.
    ValueError: it cannot be part of an address."""
    parts = [part for part in text.split("/") if part]
    if not all(re.fullmatch(r"[\w.~-]*[\w~-][\w.~-]*", part, re.ASCII) for part in parts):
        raise ValueError(f"server.baseUrlPath is {text!r}; expected a path such as tools/headroom")
    return "".join(f"/{part}" for part in parts)


async def _redirect(request: Request, to: str) -> RedirectResponse:
    """Leads to an address next to this one, as the name and the protocol may be those of a proxy."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(to + query)


async def _answer(_: Request) -> HTMLResponse:
    return HTMLResponse(_page(), headers={"cache-control": "no-cache"})


@cache
def _page() -> str:
    return page_with_script(SCRIPT.read_text(encoding="utf-8"))
