"""The dashboard for users of other machines, until Ctrl-C: see front.py and people.py."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Callable
from pathlib import Path

from dshpc_setup.dashboard import front, login, people
from dshpc_setup.dashboard.others import Others
from dshpc_setup.dashboard.serve import listening_at
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.machine import Machine


def serve(
    machine: Machine,
    folder: Path,
    asked: Others,
    where: tuple[str, int],
    say: Callable[[str], None],
) -> None:
    """Until a signal ends it; `say` is told where it answers. Raises DshpcError."""
    address, port = _address(where[0]), where[1]
    if asked.missing:
        raise usage_error(
            "The dashboard is opened to others only behind a reverse proxy that logs them in.",
            f"It is not said: {', '.join(asked.missing)}.",
            "See docs/how-to/dashboard.md: For users of other machines",
        )
    proxy = login.proxy(asked.login_header or "", asked.login_from or "", asked.name or "")
    clients = Path(asked.proxy_ca) if asked.proxy_ca else None
    ours = front.own(proxy.networks)
    if ours and clients is None:
        raise DshpcError(
            f"--login-from {', '.join(ours)}: every user of this machine can come from there.",
            "He could say that he is anybody.",
            ("Give the proxy a certificate, and name who has signed it: --proxy-ca FILE",),
            Exit.USAGE,
        )
    people.refuse_without_rights(machine)
    tls = front.context(Path(asked.tls_certificate or ""), Path(asked.tls_key or ""), clients)
    with contextlib.closing(listening_at(address, port)) as listening:
        named = f"[{address}]" if ":" in address else address
        url = f"https://{named}:{listening.getsockname()[1]}/"
        everybody = people.People(machine, folder)
        try:
            asyncio.run(front.Front(proxy, everybody).serve(listening, tls, lambda: say(url)))
        finally:
            everybody.end_all()


def _address(text: str) -> str:
    host = "127.0.0.1" if text == "localhost" else text.strip("[]")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        raise usage_error(
            f"--listen {text}: that is no address.", "", "Such as: --listen 0.0.0.0"
        ) from None
