"""Files fetched from a web server, many at a time, each checked; through the proxies of this site.

To be used in a question that is asked apart: a name server or a proxy may never answer.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import hmac
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urljoin, urlsplit

if TYPE_CHECKING:
    import http.client
    import ssl

Trouble = Literal[
    "unreachable",  # no such host, or nobody listens there
    "certificate",
    "proxy",  # it wants a password, or is of a kind that is not known
    "silent",  # connected, and then nothing for too long
    "status",  # any other answer than 200
    "truncated",  # shorter than it must be
    "hash",  # as long as it must be, or longer, and another one
    "no-room",
    "write",
]
_AGAIN: tuple[Trouble, ...] = ("unreachable", "silent", "truncated", "hash")
_MOST_BYTES = 8 << 20  # of a file whose length nobody knows
_MOST_REDIRECTS = 5
_BLOCK = 1 << 18
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class File:
    """What to fetch, and where to put it. Without `sha256` any content does, and it is always fetched.
    `most`: how many bytes one may have whose `size` nobody knows."""

    url: str
    path: str
    sha256: str | None = None
    size: int | None = None
    most: int = _MOST_BYTES


@dataclass(frozen=True)
class Route:
    """`proxies`: by lower-case name: http, https, all, no. `ca_pem`: whom to trust; "": as Python does."""

    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_pem: str = field(default="", repr=False)


@dataclass(frozen=True)
class Fetched:
    """How it went with one: `trouble` is None where it lies there now; `bytes_` were fetched for it."""

    url: str
    bytes_: int = 0
    trouble: Trouble | None = None
    detail: str = ""


class _TroubleError(Exception):
    def __init__(self, trouble: Trouble, detail: str = "", again: bool | None = None) -> None:
        super().__init__(trouble, detail)
        self.trouble, self.detail = trouble, detail
        # Whether it may go well the next time
        self.again = trouble in _AGAIN if again is None else again


def is_whole(data: bytes, integrity: str) -> bool:
    """Whether the content has the hash, in npm's form: "sha512-" and base64; of several its strongest."""
    kind, _, wanted = integrity.split()[-1].partition("-") if integrity.strip() else ("", "", "")
    found = base64.b64encode(hashlib.sha512(data).digest()).decode()
    return kind == "sha512" and hmac.compare_digest(found, wanted)


def fetch(
    files: Sequence[File],
    route: Route,
    say: Callable[[Fetched], None],
    *,
    threads: int = 8,
    silent_s: float = 30.0,
) -> None:
    """Each is said when it is over. After a trouble no other file is begun.

    What lies there already and is right is not fetched. A file that comes shorter or with another content
    is fetched once more. It is written beside its place and moved there when it is whole and right.
    """
    left: queue.SimpleQueue[File] = queue.SimpleQueue()
    for file in sorted(files, key=lambda each: -(each.size or 0)):
        left.put(file)
    stop = threading.Event()

    def work() -> None:
        with contextlib.closing(_Lines(route, silent_s)) as lines:
            while not stop.is_set():
                try:
                    file = left.get_nowait()
                except queue.Empty:
                    return
                done = _one(lines, file)
                if done.trouble is not None:
                    stop.set()
                say(done)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(threads, len(files)))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _one(lines: _Lines, file: File) -> Fetched:
    try:
        if file.sha256 is not None and _hash(file) == file.sha256:
            return Fetched(file.url)
        try:
            size = _get(lines, file)
        except _TroubleError as error:
            if not error.again:
                raise
            lines.close()
            size = _get(lines, file)
        return Fetched(file.url, size)
    except _TroubleError as error:
        return Fetched(file.url, 0, error.trouble, error.detail)


def _hash(file: File) -> str | None:
    found = hashlib.sha256()
    try:
        with open(file.path, "rb") as whole:
            if file.size is not None and os.fstat(whole.fileno()).st_size != file.size:
                return None
            while block := whole.read(_BLOCK):
                found.update(block)
    except OSError:
        return None
    return found.hexdigest()


def _get(lines: _Lines, file: File) -> int:
    part = f"{file.path}.part"
    try:
        with open(part, "wb") as into:
            size, found = _body(lines, file, into)
        if file.size is not None and size < file.size:
            raise _TroubleError("truncated", f"{size} of {file.size} bytes")
        if file.sha256 is not None and found != file.sha256:
            raise _TroubleError("hash", f"{found} instead of {file.sha256}")
        os.replace(part, file.path)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise _TroubleError("no-room" if full else "write", str(error)) from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)
    return size


def _body(lines: _Lines, file: File, into: object) -> tuple[int, str]:
    import http.client

    most = file.most if file.size is None else file.size
    size, found = 0, hashlib.sha256()
    answer = lines.ask(file.url)
    told = answer.length
    while True:
        try:
            block = answer.read(_BLOCK)
        except (OSError, http.client.HTTPException) as error:
            raise _in_words(error, file.url) from None
        if not block:
            break
        size += len(block)
        if size > most:
            raise _TroubleError("hash", f"longer than {most} bytes")
        found.update(block)
        into.write(block)  # type: ignore[attr-defined]
    if told is not None and size < told:
        raise _TroubleError("truncated", f"{size} of {told} bytes")
    return size, found.hexdigest()


class _Lines:
    """The connections of one thread, each kept for the next request to that server."""

    def __init__(self, route: Route, silent_s: float) -> None:
        self._route, self._silent_s = route, silent_s
        self._open: dict[tuple[str, str], http.client.HTTPConnection] = {}
        self._trust: ssl.SSLContext | None = None

    def close(self) -> None:
        for line in self._open.values():
            line.close()
        self._open.clear()

    def ask(self, url: str) -> http.client.HTTPResponse:
        """The answer, of which the body is still to be read."""
        for _ in range(_MOST_REDIRECTS):
            answer = self._answer(url)
            if answer.status == 200:
                return answer
            to = answer.getheader("Location")
            answer.read(_BLOCK)
            self._drop(url)
            if answer.status == 407:
                raise _TroubleError("proxy", f"{url}: it wants another user or password (407)")
            if answer.status not in (301, 302, 303, 307, 308) or not to:
                said = f"{answer.status} {answer.reason}: {url}"
                raise _TroubleError("status", said, answer.status >= 500)
            url = urljoin(url, to)
        raise _TroubleError("status", f"too many redirects: {url}")

    def _answer(self, url: str) -> http.client.HTTPResponse:
        import http.client

        kept = self._key(url) in self._open
        try:
            return self._request(url)
        except (OSError, http.client.HTTPException) as error:
            self._drop(url)
            if not kept or isinstance(error, TimeoutError):
                raise _in_words(error, url) from None
        try:  # the server had closed the connection that was kept
            return self._request(url)
        except (OSError, http.client.HTTPException) as error:
            self._drop(url)
            raise _in_words(error, url) from None

    def _key(self, url: str) -> tuple[str, str]:
        parts = urlsplit(url)
        return parts.scheme, parts.netloc

    def _drop(self, url: str) -> None:
        line = self._open.pop(self._key(url), None)
        if line is not None:
            line.close()

    def _request(self, url: str) -> http.client.HTTPResponse:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise _TroubleError("status", f"not a web address: {url}")
        proxy = self._proxy(parts.scheme, parts.hostname)
        line = self._open.get(self._key(url))
        if line is None:
            line = self._open[self._key(url)] = self._line(url, proxy)
        target = parts.path or "/"
        if parts.query:
            target += f"?{parts.query}"
        headers = {"User-Agent": "dshpc", "Accept-Encoding": "identity"}
        if proxy is not None and parts.scheme == "http":
            target = f"http://{parts.netloc}{target}"
            headers |= _login(proxy)
        line.request("GET", target, headers=headers)
        return line.getresponse()

    def _line(self, url: str, proxy: str | None) -> http.client.HTTPConnection:
        import http.client

        parts = urlsplit(url)
        at = parts if proxy is None else urlsplit(proxy)
        try:
            port = at.port or _PORTS.get(at.scheme, 80)
        except ValueError:
            port = 0
        if at.scheme not in _PORTS or not at.hostname or not port:
            raise _TroubleError("proxy", f"not known: {at.scheme}://...")
        if proxy is None and parts.scheme == "https":
            return http.client.HTTPSConnection(
                at.hostname, port, timeout=self._silent_s, context=self._context()
            )
        if proxy is not None and parts.scheme == "https":
            if at.scheme == "https":
                raise _TroubleError("proxy", "an https:// proxy for an https:// address")
            line = http.client.HTTPSConnection(
                at.hostname, port, timeout=self._silent_s, context=self._context()
            )
            line.set_tunnel(parts.hostname or "", parts.port or 443, headers=_login(proxy))
            return line
        if at.scheme == "https":
            return http.client.HTTPSConnection(
                at.hostname, port, timeout=self._silent_s, context=self._context()
            )
        return http.client.HTTPConnection(at.hostname, port, timeout=self._silent_s)

    def _proxy(self, scheme: str, host: str) -> str | None:
        import urllib.request

        proxies = self._route.proxies
        found = proxies.get(scheme) or proxies.get("all")
        beside = {"no": proxies.get("no", "")}
        if not found or urllib.request.proxy_bypass_environment(host, beside):  # type: ignore[attr-defined]
            return None
        return found if "//" in found else f"http://{found}"

    def _context(self) -> ssl.SSLContext:
        if self._trust is None:
            import ssl

            self._trust = ssl.create_default_context(cadata=self._route.ca_pem or None)
            # Certificates of proxies that look into TLS often break a rule of RFC 5280
            self._trust.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        return self._trust


def _login(proxy: str) -> dict[str, str]:
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(login.encode()).decode()}


def _in_words(error: Exception, url: str) -> _TroubleError:
    import http.client
    import ssl

    said = f"{url}: {error or type(error).__name__}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return _TroubleError("certificate", said)
    if isinstance(error, TimeoutError):
        return _TroubleError("silent", said)
    if isinstance(error, http.client.IncompleteRead):
        return _TroubleError("truncated", said)
    if type(error) is OSError and error.errno is None:  # of HTTPConnection's tunnel
        return _TroubleError("proxy", said)
    return _TroubleError("unreachable", said)
