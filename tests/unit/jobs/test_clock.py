"""Times as the people who ask have them."""

from __future__ import annotations

import time

import pytest

from dshpc_setup.jobs import clock


def test_a_time_is_that_of_the_callers_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(clock.OFFSET, "-18000")
    assert clock.told(1795340624.0) == "2026-11-22 04:43:44"
    monkeypatch.setenv(clock.OFFSET, "3600")
    assert clock.told(1795340624.0) == "2026-11-22 10:43:44"


@pytest.mark.parametrize("odd", ["", "x", "1e3", "999999", "٣"])
def test_what_is_no_offset_counts_for_nothing(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(clock.OFFSET, odd)
    here = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1795340624))
    assert clock.told(1795340624.0) == here
