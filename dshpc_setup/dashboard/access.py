"""Who may look: the token of the address, the cookie that it is exchanged for, the hosts, forms of ours.

Pure, but for the secrets that are made at the start. See docs/decisions/0052-dashboard.md.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_MOST_FAILURES, _WITHIN_S = 10, 60.0


class Access:
    """The secrets of one run of the dashboard, which end with it, but for a `token` that is kept.

    `hosts`: the names by which a browser may call it. Whatever else stands in the Host header is a page of
    somebody else's, whose name leads to our address (DNS rebinding).
    """

    def __init__(
        self,
        port: int,
        hosts: Collection[str] = LOOPBACK,
        clock: Callable[[], float] = time.monotonic,
        token: str | None = None,
    ) -> None:
        self.token = token or secrets.token_urlsafe(32)
        # Made of it: with a token that is kept, pages that are open outlive a restart
        self.session = _made_of(self.token, b"session")
        # Cookies know no ports: two dashboards of one machine would overwrite each other's
        self.cookie = f"dshpc-dashboard-{port}"
        self._port = port
        self._hosts = {f"{host}:{port}" for host in hosts}
        self._clock = clock
        self._failures: deque[float] = deque(maxlen=_MOST_FAILURES)

    @property
    def csrf(self) -> str:
        """What each form of ours holds: no page of somebody else's can know it."""
        return _made_of(self.session, b"form")

    def url(self, host: str) -> str:
        """The address that lets one in."""
        return f"http://{host}:{self._port}/?token={self.token}"

    def is_host(self, host: str) -> bool:
        return host.lower() in self._hosts

    def is_origin(self, origin: str) -> bool:
        parts = urlsplit(origin)
        return parts.scheme in ("http", "https") and self.is_host(parts.netloc)

    def is_token(self, text: str) -> bool:
        return _same(text, self.token)

    def is_session(self, text: str) -> bool:
        return _same(text, self.session)

    def is_csrf(self, text: str) -> bool:
        return _same(text, self.csrf)

    def failed(self) -> None:
        """A token was shown that is none."""
        self._failures.append(self._clock())

    @property
    def too_often(self) -> bool:
        """Whether wrong tokens come faster than a person mistypes one. A right one counts all the same:
        else any user of the machine could keep its owner out."""
        full = len(self._failures) == _MOST_FAILURES
        return full and self._clock() - self._failures[0] < _WITHIN_S


def _same(given: str, wanted: str) -> bool:
    """Compared in constant time, which `compare_digest` promises for bytes of any kind."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())


def _made_of(secret: str, what: bytes) -> str:
    return hmac.new(secret.encode(), what, hashlib.sha256).hexdigest()
