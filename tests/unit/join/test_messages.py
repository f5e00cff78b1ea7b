"""A line of the other side: whole in time, or not at all."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from dshpc_setup.join import messages
from dshpc_setup.join.messages import Facts, Question, Reach, Reached
from tests.unit.join.test_answering import FACTS


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


def test_who_asks_may_not_fill_the_memory() -> None:
    with pytest.raises(ValueError, match="longer than any"):
        messages.receive(cast("socket.socket", Stream([b"x" * 65536] * 20)), 30.0, 1 << 20)


@pytest.mark.parametrize(
    "change",
    [
        {"address": "10.0.0.1 accept; reboot #"},
        {"address": "lab"},
        {"slurm_ports": (6817, 65536)},
        {"srun_ports": (61999, 61001)},
        {"work": "work"},
        {"work": "/work\n/ *(rw,no_root_squash)"},
        {"work": "/work\0"},
        {"settings": {"prefix": "other"}},
        {"clock": float("nan")},
        {"environment": {"../x": ""}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_facts_that_no_cluster_tells(change: dict[str, Any]) -> None:
    """Some of them stand in commands that root is to type on the machine that joins."""
    with pytest.raises(ValueError, match=r"."):
        replace(FACTS, **change)
    assert isinstance(FACTS, Facts)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Reach, ("10.0.0.2", 65536, 61999)),
        (Reach, ("10.0.0.2", 6818, -1)),
        (Reach, ("nowhere", 6818, 61999)),
        (Reached, (1 << 40, None, "10.0.0.2", 0)),
        (Reached, (None, -1, "10.0.0.2", 0)),
        (Reached, (None, None, "10.0.0.2", 99999)),
        (Question, (1, "facts", "", "", "-h")),
        (Question, (1, "facts", "", "", "lab 2")),
    ],
)
def test_numbers_and_names_that_are_none(kind: Any, values: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"."):
        kind(*values)
