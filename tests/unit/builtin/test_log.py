"""A container's log: since when, across a file that was full, and what a full disk leaves."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dshpc_setup.builtin import log
from dshpc_setup.builtin.log import Log, read


class Clock:
    """Both clocks of `time`, a second later where it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "time", lambda: self.now)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_since_a_start_nothing_of_the_one_before(tmp_path: Path, clock: Clock) -> None:
    Log(tmp_path, 10_000).add(b"first\n")
    clock.now = 1010.0
    again = Log(tmp_path, 10_000)
    again.add(b"second\n")
    assert read(tmp_path) == (b"first\nsecond\n", 13)
    assert read(tmp_path, 1010.5) == (b"second\n", 13)
    assert read(tmp_path, 1009.0) == (b"first\nsecond\n", 13)
    assert read(tmp_path, 999.0) == (b"first\nsecond\n", 13)


def test_since_is_exact_to_a_minute_and_shows_rather_too_much(tmp_path: Path, clock: Clock) -> None:
    made = Log(tmp_path, 10_000)
    for number in range(5):
        made.add(b"%d\n" % number)
        clock.now += 40.0
    assert read(tmp_path, 1085.0) == (b"2\n3\n4\n", 10)
    assert read(tmp_path, 1081.0) == (b"2\n3\n4\n", 10)
    assert read(tmp_path, 1079.0) == (b"0\n1\n2\n3\n4\n", 10)
    assert (tmp_path / "container.log.times").read_text().count("\n") == 3


def test_a_file_that_was_full_is_looked_at_too(tmp_path: Path, clock: Clock) -> None:
    made = Log(tmp_path, 10)
    made.add(b"12345678\n")
    clock.now = 1070.0
    made.add(b"b\n")
    assert read(tmp_path, 1071.0) == (b"b\n", 2)
    assert read(tmp_path, 1001.0) == (b"12345678\nb\n", 2)


def test_half_a_line_and_no_line_are_no_fault(tmp_path: Path, clock: Clock) -> None:
    Log(tmp_path, 10_000).add(b"a\n")
    times = tmp_path / f"{log.NAME}.times"
    times.write_text(times.read_text() + "1005.0")
    assert read(tmp_path, 1006.0) == (b"a\n", 2)
    times.unlink()
    assert read(tmp_path, 1006.0) == (b"a\n", 2)
    assert read(tmp_path / "nothing", 1.0) == (b"", 0)
