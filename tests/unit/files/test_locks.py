"""Locks between processes: held, waited for, and given up in time."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.files import locks


@pytest.fixture
def two(tmp_path: Path) -> Any:
    handles = [os.open(tmp_path, os.O_RDONLY) for _ in range(2)]
    yield handles
    for handle in handles:
        os.close(handle)


def test_a_lock_has_one_holder(two: list[int]) -> None:
    assert locks.hold(two[0], fcntl.LOCK_EX)
    began = time.monotonic()
    assert not locks.hold(two[1], fcntl.LOCK_EX, 0.2)
    assert 0.2 <= time.monotonic() - began < 30
    fcntl.flock(two[0], fcntl.LOCK_UN)
    assert locks.hold(two[1], fcntl.LOCK_EX)


def test_one_that_is_given_back_is_taken(two: list[int]) -> None:
    assert locks.hold(two[0], fcntl.LOCK_EX)
    later = threading.Timer(0.1, lambda: fcntl.flock(two[0], fcntl.LOCK_UN))
    later.start()
    assert locks.hold(two[1], fcntl.LOCK_EX, 60)
    later.join()


def test_where_a_file_system_has_no_locks_nobody_waits(
    two: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", without)
    assert locks.hold(two[0], fcntl.LOCK_EX, 60)
