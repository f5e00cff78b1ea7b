"""Who is talked to by the join service, and for how long it waits."""

from __future__ import annotations

from typing import Any

import pytest

from dshpc_setup.join import service
from dshpc_setup.join.service import Seats


def test_one_address_keeps_no_other_from_joining() -> None:
    seats = Seats()
    assert [seats.take("10.0.0.9") for _ in range(5)] == [True] * 4 + [False]
    assert seats.take("10.0.0.2")
    seats.leave("10.0.0.9")
    assert seats.take("10.0.0.9")


def test_no_more_than_all_of_them_at_once() -> None:
    seats = Seats()
    taken = [seats.take(f"10.0.0.{number}") for number in range(100)]
    assert taken == [True] * 64 + [False] * 36
    seats.leave("10.0.0.1")
    assert seats.take("10.0.0.200")
    assert not seats.take("10.0.0.201")


class Stream:
    """Sends that first; `waited`: the deadlines that were set."""

    def __init__(self, first: bytes | None) -> None:
        self.first, self.waited, self.closed = first, list[float](), False

    def settimeout(self, seconds: float) -> None:
        self.waited.append(seconds)

    def recv(self, *_: int) -> bytes:
        if self.first is None:
            raise TimeoutError
        return self.first

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("first", [None, b""], ids=["silent", "gone"])
def test_who_says_nothing_loses_the_seat_without_a_handshake(first: bytes | None) -> None:
    seats, stream, nobody = Seats(), Stream(first), object()
    assert seats.take("10.0.0.9")
    like: Any = (nobody, nobody, stream, "10.0.0.9", seats)
    service._talk(*like)
    assert stream.closed
    assert stream.waited == [service._HELLO_S]
    assert [seats.take("10.0.0.9") for _ in range(4)] == [True] * 4
