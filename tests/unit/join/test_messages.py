"""A line of the other side: whole in time, or not at all."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import cast

import pytest

from dshpc_setup.join import messages


class Stream:
    def __init__(self, parts: Iterable[bytes]) -> None:
        self.parts = iter(parts)

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0

    def recv(self, _: int) -> bytes:
        return next(self.parts, b"")


def received(parts: Iterable[bytes], clock: Iterable[float]) -> bytes:
    ticks = iter(clock)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("dshpc_setup.join.messages.time.monotonic", lambda: next(ticks))
        return messages.receive(cast("socket.socket", Stream(parts)), 30.0)


def test_who_sends_byte_after_byte_keeps_nobody() -> None:
    with pytest.raises(TimeoutError):
        received([b"x"] * 9, [0.0, 1.0, 20.0, 29.0, 31.0])


def test_a_line_that_comes_in_parts() -> None:
    assert received([b"{", b"}\n"], [0.0, 1.0, 2.0]) == b"{}\n"


def test_a_line_that_ends_before_its_end() -> None:
    with pytest.raises(ValueError, match="has ended"):
        received([b"{"], [0.0, 1.0, 2.0])
