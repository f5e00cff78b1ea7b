"""The door to other machines: TLS, only the reverse proxy is answered, each user is led to his own dashboard.

One request for each connection; what comes back is passed on as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from html import escape
from http import HTTPStatus
from pathlib import Path

import h11

from dshpc_setup.dashboard import login
from dshpc_setup.dashboard.people import People, Theirs
from dshpc_setup.dashboard.threads import in_thread
from dshpc_setup.errors import DshpcError, usage_error

_HEAD_S, _QUIET_S, _AGAIN_S = 20.0, 180.0, 0.1
_MOST_HEAD = 32 << 10
_BLOCK = 1 << 16
_MOST_AT_ONCE, _MOST_EACH = (
    400,
    100,
)  # of one user: whoever holds his open keeps nobody else's waiting
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Not let in</title>
<h1>Not let in</h1><p>{what}</p>"""


def context(certificate: Path, key: Path, clients: Path | None) -> ssl.SSLContext:
    """`clients`: who signs the proxy's certificate, where it must have one. Raises DshpcError where they are
    none, or everybody can read the key."""
    try:
        if key.stat().st_mode & 0o007:
            raise usage_error(
                f"Everybody can read {key}.", "It is the key of the TLS certificate.",
                f"Take the right away: chmod o-rwx {key}",
            )  # fmt: skip
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.load_cert_chain(certificate, key)
        if clients is not None:
            made.load_verify_locations(clients)
            made.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise usage_error(
            "The TLS certificate cannot be used.",
            f"{certificate}, {key}{f', {clients}' if clients else ''}: {error}",
            "Name PEM files: --tls-certificate FILE --tls-key FILE",
        ) from None
    return made


class Front:
    """Leads each request of the proxy's to the dashboard of the user that it names."""

    def __init__(self, proxy: login.Proxy, people: People) -> None:
        self._proxy, self._people = proxy, people
        self._free = asyncio.Semaphore(_MOST_AT_ONCE)
        self._of = Counter[str]()  # requests that are being answered, by user

    async def serve(
        self, listening: socket.socket, tls: ssl.SSLContext, ready: Callable[[], None]
    ) -> None:
        """Until it is cancelled. Who is not the proxy is answered nothing, and holds nothing open: else
        anybody's idle connections would keep the proxy's waiting."""
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        ready()
        coming = set[asyncio.Task[None]]()
        while True:
            try:
                came, where = await loop.sock_accept(listening)
            except OSError:  # it has gone already, or nothing more can be opened at present
                await asyncio.sleep(_AGAIN_S)
                continue
            if not login.is_from(self._proxy, where[0]):
                came.close()
                continue
            task = loop.create_task(self._secured(came, tls))
            coming.add(task)
            task.add_done_callback(coming.discard)

    async def _secured(self, came: socket.socket, tls: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(_BLOCK)
        protocol = asyncio.StreamReaderProtocol(reader, self._came)
        with contextlib.suppress(OSError, TimeoutError, asyncio.TimeoutError):
            await loop.connect_accepted_socket(
                lambda: protocol, came, ssl=tls, ssl_handshake_timeout=_HEAD_S
            )

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A proxy that is cut off, a browser that goes away: nothing to tell anybody
        with contextlib.suppress(OSError, TimeoutError, asyncio.TimeoutError, h11.ProtocolError):
            async with self._free:
                await self._answer(reader, writer)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_HEAD)
        try:
            request = await asyncio.wait_for(_event(asked, reader), _HEAD_S)
        except h11.RemoteProtocolError:
            await _refuse(writer, 400, "That is no request.")
            return
        if not isinstance(request, h11.Request):
            return
        headers = [(bytes(name), bytes(value)) for name, value in request.headers.raw_items()]
        name, refusal = login.user(self._proxy, writer.get_extra_info("peername")[0], headers)
        if refusal is not None:
            await _refuse(writer, *login.WORDS[refusal])
            return
        if self._of[name] >= _MOST_EACH:
            await _refuse(writer, 429, "Too many requests of yours are open: close some pages.")
            return
        self._of[name] += 1
        try:
            await self._answer_as(name, asked, request, (reader, writer))
        finally:
            self._of[name] -= 1

    async def _answer_as(
        self,
        name: str,
        asked: h11.Connection,
        request: h11.Request,
        browser: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        holding = self._people.of(name)
        try:
            theirs = await in_thread(holding.__enter__)
        except DshpcError as error:
            await _refuse(browser[1], 403, f"{error.brief} {error.details}")
            return
        try:
            await self._lead(asked, request, theirs, browser)
        finally:
            await in_thread(lambda: _leave(holding))

    async def _lead(
        self,
        asked: h11.Connection,
        request: h11.Request,
        theirs: Theirs,
        browser: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        reader, writer = browser
        headers = [(bytes(name), bytes(value)) for name, value in request.headers.raw_items()]
        changed = login.handed_on(self._proxy, headers, theirs.port, theirs.cookie)
        inner, to_inner = await asyncio.open_connection("127.0.0.1", theirs.port)
        try:
            told = h11.Connection(h11.CLIENT)
            made = h11.Request(method=request.method, target=request.target, headers=changed)
            to_inner.write(told.send(made) or b"")
            coming = asyncio.ensure_future(_passed(inner, writer))
            going = asyncio.ensure_future(
                _sent(asked, told, reader, to_inner, is_socket=login.opens_socket(headers))
            )
            try:
                # Its answer ends it, also where the browser has more to say
                await coming
            finally:
                going.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError, h11.ProtocolError):
                    await going
        finally:
            to_inner.close()


async def _event(asked: h11.Connection, reader: asyncio.StreamReader) -> object:
    while (event := asked.next_event()) is h11.NEED_DATA:
        asked.receive_data(await reader.read(_BLOCK))
    return event


async def _sent(
    asked: h11.Connection,
    told: h11.Connection,
    reader: asyncio.StreamReader,
    inner: asyncio.StreamWriter,
    *,
    is_socket: bool,
) -> None:
    """The rest of the request, as it was read; after an upgrade, all that comes. A browser that goes away
    ends it."""
    while True:
        event = await _event(asked, reader)
        if isinstance(event, h11.Data):
            inner.write(told.send(h11.Data(data=event.data)) or b"")
        elif isinstance(event, h11.EndOfMessage):
            inner.write(told.send(h11.EndOfMessage()) or b"")
            break
        else:
            break
        await inner.drain()
    await inner.drain()
    block = asked.trailing_data[0] or await reader.read(_BLOCK)
    while block:
        if is_socket:  # else it is another request, which has its own connection
            inner.write(block)
            await inner.drain()
        block = await reader.read(_BLOCK)
    inner.close()


async def _passed(inner: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while block := await asyncio.wait_for(inner.read(_BLOCK), _QUIET_S):
        writer.write(block)
        await writer.drain()


async def _refuse(writer: asyncio.StreamWriter, code: int, what: str) -> None:
    page = _PAGE.format(what=escape(what)).encode(errors="replace")
    reason = HTTPStatus(code).phrase
    head = (
        f"HTTP/1.1 {code} {reason}\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(page)}\r\nCache-Control: no-store\r\nConnection: close\r\n"
        "Content-Security-Policy: default-src 'none'\r\nX-Content-Type-Options: nosniff\r\n\r\n"
    )
    writer.write(head.encode() + page)
    await writer.drain()


def _leave(holding: AbstractContextManager[Theirs]) -> None:
    holding.__exit__(None, None, None)


def own(networks: tuple[login.Network, ...]) -> tuple[str, ...]:
    """Those of the addresses that are this machine's: any of its users can come from them."""
    found = []
    for network in networks:
        if network.is_loopback:
            found.append(str(network))
            continue
        family = socket.AF_INET6 if network.version == 6 else socket.AF_INET
        for each in network:
            with socket.socket(family, socket.SOCK_STREAM) as tried, contextlib.suppress(OSError):
                tried.bind((str(each), 0))
                found.append(str(each))
    return tuple(found)
