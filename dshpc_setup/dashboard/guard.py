"""What stands before every page: host, token or cookie, and the headers that each answer has."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from dshpc_setup.dashboard.access import Access

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with none, a browser says of our own forms: Origin: null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_READING = ("GET", "HEAD")
BEARER = (
    "dshpc.bearer"  # of the scope: it came with the token itself, as no other page's request does
)
_REFUSED = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Not let in</title>
<h1>Not let in</h1><p>Open the address that <code>dshpc dashboard</code> has printed: it holds the token
of this run.</p></html>"""

_ONWARD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Let in</title>
<meta http-equiv="refresh" content="0; url={page}"><p><a href="{page}">To the dashboard</a></p></html>"""


class Guard:
    """Lets nobody to `app` who has neither the token nor the cookie."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            if self._may_talk(HTTPConnection(scope)):
                await self._app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._answer(scope) or self._app
        await answer(scope, receive, with_headers)

    def _may_talk(self, asked: HTTPConnection) -> bool:
        """Whether a page of ours opens this WebSocket: browsers ask nobody before they open one to us from a
        page of somebody else's, and send the cookie along."""
        hosts, origins = (asked.headers.getlist(name) for name in ("host", "origin"))
        return (
            len(hosts) == 1
            and self._access.is_host(hosts[0])
            and len(origins) == 1
            and self._access.is_origin(origins[0])
            and self._access.is_session(asked.cookies.get(self._access.cookie, ""))
        )

    def _answer(self, scope: Scope) -> Response | None:
        """What is said in the place of the page; None where it may be seen."""
        asked = HTTPConnection(scope)
        hosts = asked.headers.getlist("host")
        if len(hosts) != 1 or not self._access.is_host(hosts[0]):
            return PlainTextResponse("This host name is not the dashboard's.\n", 400)
        reading = scope["method"] in _READING
        if not reading and not self._is_ours(asked):
            return PlainTextResponse("Another page sent this.\n", 403)
        if reading and "token" in asked.query_params:
            return self._exchanged(scope, asked)
        kind, _, given = asked.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            scope[BEARER] = self._access.is_token(given)
            return None if scope[BEARER] else self._wrong()
        if self._access.is_session(asked.cookies.get(self._access.cookie, "")):
            return None
        return _unknown(401)

    def _is_ours(self, asked: HTTPConnection) -> bool:
        """Browsers say where a form was sent from; who says nothing still needs the form's own token."""
        site = asked.headers.get("sec-fetch-site", "same-origin")
        origin = asked.headers.get("origin")
        return site in ("same-origin", "none") and (
            origin is None or self._access.is_origin(origin)
        )

    def _exchanged(self, scope: Scope, asked: HTTPConnection) -> Response:
        """The cookie for the token, and the same page without it: an address is kept in histories."""
        if not self._access.is_token(asked.query_params["token"]):
            return self._wrong()
        # Two slashes at its beginning would be another machine's name
        path = quote("/" + scope["path"].lstrip("/\\"))
        rest = [pair for pair in parse_qsl(asked.url.query) if pair[0] != "token"]
        page = path + (f"?{urlencode(rest)}" if rest else "")
        answer: Response = RedirectResponse(page, 303)
        if asked.headers.get("sec-fetch-site") == "cross-site":
            # Followed from another page, or from a file: a browser would not send the cookie along
            answer = HTMLResponse(_ONWARD.format(page=escape(page)))
        answer.set_cookie(
            self._access.cookie, self._access.session, httponly=True, samesite="strict", path="/"
        )
        return answer

    def _wrong(self) -> Response:
        self._access.failed()
        return _unknown(429 if self._access.too_often else 401)


def _unknown(code: int) -> Response:
    return HTMLResponse(_REFUSED, code, {"WWW-Authenticate": "Bearer"})
