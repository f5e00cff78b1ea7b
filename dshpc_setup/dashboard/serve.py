"""The server: on the loopback alone, until Ctrl-C."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn

from dshpc_setup import diagnose  # before threads fork: see machine/workers.py
from dshpc_setup.dashboard.access import LOOPBACK, Access
from dshpc_setup.dashboard.app import application
from dshpc_setup.dashboard.board import Board
from dshpc_setup.dashboard.browser_files import of_machine
from dshpc_setup.dashboard.site import Site
from dshpc_setup.dashboard.source import LiveSource
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.machine import browser as browser_of
from dshpc_setup.machine import listeners

_MOST_AT_ONCE = 200


@dataclass(frozen=True)
class Place:
    address: str
    port: int  # 0: any that is free


def serve(source: LiveSource, place: Place, say: Callable[[str], None], *, browser: bool) -> None:
    """Serve until a signal ends it; the address is said first. Raises DshpcError."""
    host = loopback(place.address)
    diagnose.catalogue()
    with contextlib.closing(_listening(host, place.port)) as listening:
        port = listening.getsockname()[1]
        named = f"[{host}]" if ":" in host else host
        access = Access(port, {*LOOPBACK, named})
        board = Board(source)
        site = Site(source, board, access, of_machine(source.machine))
        site.prepare()
        app = application(site)
        url = f"http://{named}:{port}/?token={access.token}"
        board.start()
        try:
            with (
                browser_of.opened(source.machine, url, "dshpc dashboard")
                if browser and os.isatty(1)
                else contextlib.nullcontext()
            ):
                say(url)
                _server(app).run(sockets=[listening])
        finally:
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
            "It acts as the user who starts it, and has neither TLS nor a login: that takes a reverse "
            "proxy, which it does not support yet.",
            (
                "Leave --listen out, and come by ssh from elsewhere: ssh -L 8410:127.0.0.1:8410 HOST, "
                "with --port 8410 here.",
            ),
            Exit.USAGE,
        )
    return host


def _listening(host: str, port: int) -> socket.socket:
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
    return uvicorn.Server(
        uvicorn.Config(
            app,  # type: ignore[arg-type]
            http="h11",
            ws="none",
            lifespan="off",
            # What fails is told by the page; a traceback holds what jobs and users wrote
            log_level="error" if os.environ.get("DSHPC_DEBUG") == "1" else "critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # nobody stands before it
            limit_concurrency=_MOST_AT_ONCE,
            timeout_graceful_shutdown=1,
        )
    )
