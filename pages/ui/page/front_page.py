"""Streamlit's page for the browser, with a script that makes one history entry for each action of the user.

`headroom` and `make run` serve it for every screen; `streamlit run app.py` serves Streamlit's page as it is.
"""

from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.routing import Route

from pages.ui.page.screens import STORY
from pages.ui.page.streamlit_internals import page_with_script

OTHERS = {"prune": ".", "continue": "continuation"}  # a screen's title as an address: where it is
SCRIPT = Path(__file__).with_suffix(".js")


def routes() -> list[Route]:
    """Returns the routes of each screen's address and of the root, which shows the first one."""
    files = [screen.file for screens in STORY.values() for screen in screens]
    return [Route(f"/{path}", _redirect) for path in OTHERS] + [Route(f"/{path}", _answer) for path in ("", *files)]


async def _redirect(request: Request) -> RedirectResponse:
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(OTHERS[request.url.path.rpartition("/")[2]] + query)


async def _answer(_: Request) -> HTMLResponse:
    return HTMLResponse(_page(), headers={"cache-control": "no-cache"})


@cache
def _page() -> str:
    return page_with_script(SCRIPT.read_text(encoding="utf-8"))
