"""Debian's packages fetched from a mirror on this machine that is slow, wrong or not there; no engine."""

from __future__ import annotations

import hashlib
import lzma
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dshpc_setup.builtin.ids import Ids
from dshpc_setup.debian import base, signature, sources
from dshpc_setup.debian.faults import DebianError, Fault, in_words
from dshpc_setup.debian.index import Index
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.machine.web import File, Route
from tests.integration.relay import own_certificate, serve
from tests.signed import CASES, case, certificate, kept, key, signed

SUITE = "/debian/dists/trixie"
POOL = "/debian/pool/a.deb"
CONTENT = b"a package of some length " * 4000


@dataclass
class Mirror:
    """What lies there by its path, and how each path is answered where not simply with that."""

    files: dict[str, bytes] = field(default_factory=dict)
    odd: dict[str, Callable[[BaseHTTPRequestHandler, bytes], None]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    url: str = ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    mirror: Mirror

    def do_GET(self) -> None:
        self.mirror.asked.append(self.path)
        content = self.mirror.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.mirror.odd.get(self.path, whole)(self, content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def whole(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def cut(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content[: len(content) // 2])
    handler.close_connection = True


def cut_without_length(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.write(content[: len(content) // 2])


def wrong(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    whole(handler, b"x" + content[1:])


def endless(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    whole(handler, content * 20)


def silent(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    time.sleep(4)


def dripping(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    for at in range(100):
        handler.wfile.write(content[at : at + 1])
        time.sleep(0.2)


def broken(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    handler.send_error(503)


def once(
    first: Callable[[BaseHTTPRequestHandler, bytes], None],
) -> Callable[[BaseHTTPRequestHandler, bytes], None]:
    left = [first]

    def answer(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        (left.pop() if left else whole)(handler, content)

    return answer


@contextmanager
def serving(mirror: Mirror) -> Iterator[Mirror]:
    class Handler(_Handler):
        pass

    Handler.mirror = mirror
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    mirror.url = f"http://127.0.0.1:{server.server_port}/debian"
    try:
        yield mirror
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def release(packages: bytes, **more: str) -> str:
    told = {
        "Suite": "stable",
        "Codename": "trixie",
        "Date": f"{datetime.now(timezone.utc) - timedelta(hours=1):%a, %d %b %Y %H:%M:%S} UTC",
        "Acquire-By-Hash": "yes",
        **more,
    }
    digest = hashlib.sha256(packages).hexdigest()
    lines = "".join(f"{name}: {value}\n" for name, value in told.items())
    return f"{lines}SHA256:\n {digest} {len(packages)} main/binary-amd64/Packages.xz\n"


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    digest = hashlib.sha256(CONTENT).hexdigest()
    listed = lzma.compress(
        f"Package: a\nVersion: 1\nFilename: pool/a.deb\nSize: {len(CONTENT)}\nSHA256: {digest}\n".encode()
    )
    by_hash = f"{SUITE}/main/binary-amd64/by-hash/SHA256/{hashlib.sha256(listed).hexdigest()}"
    made = Mirror(
        {
            f"{SUITE}/InRelease": signed(release(listed), key("ours")),
            by_hash: listed,
            POOL: CONTENT,
        }
    )
    with serving(made):
        yield made


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalMachine:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return LocalMachine()


def listed(machine: LocalMachine, mirror: Mirror, way: Route = Route()) -> Index:
    with sources.locked(machine, 5) as folder:
        keys = kept(folder, certificate(key("ours")))
        return sources.index(
            machine, folder, [sources.source(mirror.url, "trixie")], "amd64", way, 20, keys
        )


def brought(machine: LocalMachine, mirror: Mirror, way: Route = Route()) -> int:
    """The list and the package: how many bytes of packages came."""
    package = listed(machine, mirror, way).get("a")
    assert package is not None
    with sources.locked(machine, 5) as folder:
        from_ = [sources.source(mirror.url, "trixie")]
        came = sources.debs(machine, folder, from_, [package], way, 20)
        assert sources.place(folder, package).read_bytes() == CONTENT
        assert list(folder.glob("*.part")) == []
        return came


def test_what_is_there_is_not_fetched_again(machine: LocalMachine, mirror: Mirror) -> None:
    assert brought(machine, mirror) == len(CONTENT)
    assert brought(machine, mirror) == 0
    assert mirror.asked.count(POOL) == 1
    assert sum("by-hash" in path for path in mirror.asked) == 1


def test_what_has_become_wrong_is_fetched_again(machine: LocalMachine, mirror: Mirror) -> None:
    brought(machine, mirror)
    with sources.locked(machine, 5) as folder:
        (deb,) = folder.glob("*.deb")
        deb.write_bytes(b"y" * len(CONTENT))
        (folder / "killed.deb.part").touch()
    assert brought(machine, mirror) == len(CONTENT)


@pytest.mark.parametrize("first", [cut, cut_without_length, wrong, endless, broken])
def test_what_comes_wrong_is_fetched_once_more(
    machine: LocalMachine,
    mirror: Mirror,
    first: Callable[[BaseHTTPRequestHandler, bytes], None],
) -> None:
    mirror.odd[POOL] = once(first)
    assert brought(machine, mirror) == len(CONTENT)
    assert mirror.asked.count(POOL) == 2


@pytest.mark.parametrize(
    ("answer", "fault", "times"),
    [
        (cut, "truncated", 2),
        (cut_without_length, "truncated", 2),
        (wrong, "hash", 2),
        (endless, "hash", 2),
        (broken, "status", 2),
        (silent, "silent", 2),
        (dripping, "deadline", 1),
        (None, "status", 1),
    ],
)
def test_what_stays_wrong_is_told(
    machine: LocalMachine,
    mirror: Mirror,
    answer: Callable[[BaseHTTPRequestHandler, bytes], None] | None,
    fault: Fault,
    times: int,
    tmp_path: Path,
) -> None:
    if answer is None:
        del mirror.files[POOL]
    else:
        mirror.odd[POOL] = answer
    place = tmp_path / "a.deb"
    file = File(
        f"{mirror.url}/pool/a.deb",
        str(place),
        hashlib.sha256(CONTENT).hexdigest(),
        len(CONTENT),
    )
    began = time.monotonic()
    with pytest.raises(DebianError) as raised:
        sources.fetched(machine, [file], Route(), 3.0, silent_s=0.5)
    assert raised.value.fault == fault
    assert time.monotonic() - began < 10
    assert mirror.asked.count(POOL) == times
    assert not place.exists()


def test_nobody_there_is_told(machine: LocalMachine, tmp_path: Path) -> None:
    for url in ("http://127.0.0.1:9/debian", "http://mirror.invalid/debian"):
        with pytest.raises(DebianError) as raised:
            sources.fetched(machine, [File(url, str(tmp_path / "x"))], Route(), 20)
        assert raised.value.fault == "unreachable"


def test_a_list_of_a_bad_mirror_is_refused(machine: LocalMachine, mirror: Mirror) -> None:
    """And so is its base, with words for people; nothing is left but the cache."""
    mirror.files[f"{SUITE}/InRelease"] = signed(
        release(b"", Codename="sid", Suite="x"), key("ours")
    )
    with pytest.raises(DebianError) as raised:
        listed(machine, mirror)
    assert raised.value.fault == "suite"
    late = f"{datetime.now(timezone.utc) - timedelta(seconds=30):%a, %d %b %Y %H:%M:%S} UTC"
    text = release(b"", **{"Valid-Until": late})
    mirror.files[f"{SUITE}/InRelease"] = signed(text, key("ours"))
    with pytest.raises(DebianError) as raised:
        listed(machine, mirror)
    assert raised.value.fault == "expired"
    place = sources.cache_folder(machine.env).parent / "made"
    with pytest.raises(DshpcError) as told:
        base.make_base(machine, mirror.url, "trixie", Ids("root"), place / "base")
    assert told.value.brief == in_words(DebianError("unknown-key")).brief
    assert [path.name for path in place.iterdir()] == [".base.lock"]


def test_gpgv_judges_as_the_library_does(machine: LocalMachine, tmp_path: Path) -> None:
    """The same cases as in tests/unit/debian/test_signature.py, and Debian's own keys are read."""
    assert shutil.which("gpgv"), "gpgv is a part of Debian"
    content, keys = case("good")
    assert "Codename: trixie" in signature.verified(machine, content, kept(tmp_path, keys))
    for name, fault in CASES.items():
        content, keys = case(name)
        with pytest.raises(DebianError) as raised:
            signature.verified(machine, content, kept(tmp_path, keys))
        assert (name, raised.value.fault) == (name, fault)
    content, _ = case("good")
    with pytest.raises(DebianError) as raised:
        signature.verified(machine, content)
    assert raised.value.fault == "unknown-key"


def test_a_proxy_that_wants_a_password_is_passed(machine: LocalMachine, mirror: Mirror) -> None:
    with serve("127.0.0.1", login="me:p@ss") as relay:
        way = Route({"http": f"http://me:p%40ss@127.0.0.1:{relay.port}"})
        assert brought(machine, mirror, way) == len(CONTENT)
        assert relay.requests == 3
        beside = Route({**way.proxies, "no": "127.0.0.1"})
        listed(machine, mirror, beside)
        assert relay.requests == 3
        for wrong_way in (
            Route({"http": f"http://me:wrong@127.0.0.1:{relay.port}"}),
            Route({"all": "socks5://127.0.0.1:1"}),
        ):
            with pytest.raises(DebianError) as raised:
                listed(machine, mirror, wrong_way)
            assert raised.value.fault == "proxy"
            assert "wrong" not in raised.value.what


def test_a_tunnel_that_is_refused_is_told(machine: LocalMachine, tmp_path: Path) -> None:
    with serve("127.0.0.1") as relay:
        way = Route({"https": f"http://127.0.0.1:{relay.port}"})
        with pytest.raises(DebianError) as raised:
            sources.fetched(machine, [File("https://m.invalid/x", str(tmp_path / "x"))], way, 20)
    assert raised.value.fault == "proxy"


def test_a_certificate_of_the_site_is_trusted_where_it_is_named(
    machine: LocalMachine, mirror: Mirror, tmp_path: Path
) -> None:
    pem, private = own_certificate(tmp_path, "127.0.0.1", "own")
    upstream = mirror.url.removesuffix("/debian")
    with serve("127.0.0.1", upstream=upstream, certificate=(pem, private)) as relay:
        own = Mirror(url=f"https://127.0.0.1:{relay.port}/debian")
        with pytest.raises(DebianError) as raised:
            listed(machine, own)
        assert raised.value.fault == "certificate"
        assert brought(machine, own, Route(ca_pem=pem.read_text())) == len(CONTENT)


def test_another_run_is_waited_for(machine: LocalMachine) -> None:
    with (
        sources.locked(machine, 5),
        pytest.raises(DebianError) as raised,
        sources.locked(machine, 0.2),
    ):
        pass
    assert raised.value.fault == "deadline"
