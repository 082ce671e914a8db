"""Middleware: the hosts that may send requests, and the headers that limit what pages may request, on every response.

Streamlit itself checks the Host of its socket only, and accepts pages of any port of this computer. `headroom` and
`make run` serve the app through this.
"""

from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# 'self' is the socket too. Charts are compiled in the browser (unsafe-eval); styles and components are written inline.
MAY_ASK = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "form-action 'self'; base-uri 'self'; object-src 'none'; frame-src 'self' blob: data:; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", MAY_ASK.encode()),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
]


class Gate:
    """The app, for requests to one of its `hosts` from its own pages or from no page; all others get 403. Its pages
    cannot be embedded in a frame."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.app, self.hosts = app, frozenset(host.encode() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        called = [value for name, value in scope["headers"] if name == b"host"]
        if len(called) != 1 or not self._is_known(called[0]) or not _is_own_page(scope, called[0]):
            return await _refuse(scope, send)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        await self.app(scope, receive, send_with_headers)

    def _is_known(self, called: bytes) -> bool:
        """Returns whether a Host header is one of the names, with or without a port; `localhost.` is another name."""
        host, _, port = called.lower().partition(b":")
        return host in self.hosts and (port.isdigit() or b":" not in called)


def _is_own_page(scope: Scope, called: bytes) -> bool:
    """Returns whether a request comes from a page under the same name and port, or from no page. As pages send no
    referrer, browsers send the origin "null" with some plain requests of theirs, never with a WebSocket."""
    own = {b"http://" + called.lower(), b"https://" + called.lower(), *([b"null"] if scope["type"] == "http" else [])}
    return own.issuperset(value.lower() for name, value in scope["headers"] if name == b"origin")


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})  # before it was accepted: 403
        return
    await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain"), *HEADERS]})
    await send({"type": "http.response.body", "body": b"Headroom answers to this computer and its own pages only.\n"})
