"""No unit test may start a process or open a socket; the interpreter itself watches over it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest

from dshpc_setup.builtin import kernel
from dshpc_setup.terminal import command_names

FORBIDDEN = frozenset(
    {
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "pty.spawn",
        "socket.__new__",
        "socket.getaddrinfo",
        "subprocess.Popen",
    }
)
"""Audit events: raised below every library, so that no library is a way around them."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ForbiddenInUnitTest(BaseException):
    """A unit test reached for the world; not an Exception, so that no product code swallows it."""


_watching = False


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and event in FORBIDDEN:
        raise ForbiddenInUnitTest(f"{event}{arguments!r}: give the code under test a fake Machine")


sys.addaudithook(_watch)


@pytest.fixture(autouse=True)
def _no_world() -> Iterator[None]:
    """Watch during the test; pytest's own work around it is not a test's."""
    global _watching
    _watching = True
    yield
    _watching = False


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """A program that is about to end may leave them ignored; here it is called, and others come after it."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that is asked in this process would take all tests after it along; no event tells of it."""

    def forbidden(*arguments: object) -> None:
        raise ForbiddenInUnitTest(
            f"namespaces{arguments!r}: give the code under test a fake Machine"
        )

    for name in ("unshare", "setns"):
        monkeypatch.setattr(kernel, name, forbidden)


@pytest.fixture(autouse=True)
def _no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which clusters whoever runs the tests has is nothing to them."""
    monkeypatch.setenv("XDG_STATE_HOME", "/nonexistent")


@pytest.fixture(autouse=True)
def _dockers_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A project's engine is known once for a process, which for these tests is one of many projects'."""
    monkeypatch.setattr(command_names, "_in_engines_words", command_names._in_engines_words)
