"""The server: on the loopback alone, until Ctrl-C."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn

from dshpc_setup import diagnose  # before threads fork: see machine/workers.py
from dshpc_setup.dashboard.access import LOOPBACK, Access
from dshpc_setup.dashboard.app import application
from dshpc_setup.dashboard.board import Board
from dshpc_setup.dashboard.browser import TITLE
from dshpc_setup.dashboard.browser_files import of_machine
from dshpc_setup.dashboard.connections import Connection
from dshpc_setup.dashboard.live_source import LiveSource
from dshpc_setup.dashboard.site import Site
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.machine import browser as browser_of
from dshpc_setup.machine import listeners

_FIRST_S = 0.5  # for the first answers, before the address is said
_GONE_S = 2.0
_REPAIR_S = 60.0  # that is being done while we are to end
_MOST_AT_ONCE = 200
_MOST_WORD = 1 << 17  # of a WebSocket: what is pasted comes in parts


@dataclass(frozen=True)
class Place:
    """`port` 0: any that is free; `token`: one that is kept, else this run makes its own."""

    address: str
    port: int
    token: str | None = None


@dataclass(frozen=True)
class Says:
    """`address` is told as soon as it answers; `note` is for who waits for the end."""

    address: Callable[[str], None]
    note: Callable[[str], None]


def serve(source: LiveSource, place: Place, says: Says, *, browser: bool) -> None:
    """Serve until a signal ends it, or the project's folder is gone; the address is said first. Raises
    DshpcError."""
    host = loopback(place.address)
    diagnose.catalogue()
    with contextlib.closing(listening_at(host, place.port)) as listening:
        port = listening.getsockname()[1]
        named = f"[{host}]" if ":" in host else host
        access = Access(port, {*LOOPBACK, named}, token=place.token)
        board = Board(source)
        site = Site(source, board, access, of_machine(source.machine))
        site.prepare()
        url = access.url(named)
        board.start()
        try:
            # Both before the address is said: who opens it waits for neither
            server = _server(application(site))
            board.wait_first(_FIRST_S)
            _end_with(source.project.own.is_dir, server, board)
            with (
                browser_of.opened(source.machine, url, TITLE)
                if browser and os.isatty(1)
                else contextlib.nullcontext()
            ):
                says.address(url)
                server.run(sockets=[listening])
        finally:
            if site.fixing.runs:
                says.note("A repair is being done: it is waited for. Ctrl-C ends it half-way.")
                site.fixing.wait(_REPAIR_S)
            site.terminals.end_all()
            board.stop()


def loopback(address: str) -> str:
    """The address to listen on; raises DshpcError for one that others can reach."""
    host = "127.0.0.1" if address == "localhost" else address.strip("[]")
    try:
        known = ipaddress.ip_address(host)
    except ValueError:
        raise usage_error(
            f"--listen {address}: that is no address.",
            "",
            "Leave it out, or say --listen 127.0.0.1",
        ) from None
    if not known.is_loopback:
        raise DshpcError(
            f"--listen {address}: others could reach the dashboard there.",
            "It acts as the user who starts it, and has neither TLS nor a login.",
            (
                "Leave --listen out, and come by ssh from elsewhere: ssh -L 8410:127.0.0.1:8410 HOST, "
                "with --port 8410 here.",
                "Or put a reverse proxy before it that logs users in, and say all of: --tls-certificate "
                "--tls-key --login-header --login-from --name (docs/how-to/dashboard.md)",
            ),
            Exit.USAGE,
        )
    return host


def listening_at(host: str, port: int) -> socket.socket:
    try:
        return listeners.listen(host, port)
    except OSError as error:
        raise DshpcError(
            f"The dashboard cannot listen on {host} port {port}.",
            error.strerror or str(error),
            (
                "Take another port: dshpc dashboard --port N",
                "Or any that is free: leave --port out.",
            ),
        ) from None


def _server(app: object) -> uvicorn.Server:
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=Connection,
        ws="wsproto",
        ws_max_size=_MOST_WORD,
        lifespan="off",
        # What fails is told by the page; a traceback holds what jobs and users wrote
        log_level="error" if os.environ.get("DSHPC_DEBUG") == "1" else "critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nobody stands before it
        limit_concurrency=_MOST_AT_ONCE,
        timeout_graceful_shutdown=1,
    )
    config.load()
    return uvicorn.Server(config)


def _end_with(is_there: Callable[[], bool], server: uvicorn.Server, board: Board) -> None:
    """Have it end with the folder: by one that is gone nobody can find the process."""

    def watch() -> None:
        while is_there() and not board.is_over:
            time.sleep(_GONE_S)
        server.should_exit = True

    threading.Thread(target=watch, daemon=True).start()
