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


def test_a_time_of_any_zone_is_told_in_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(clock.OFFSET, "3600")
    assert clock.of_text("2026-11-22T06:42:02Z") == "2026-11-22 07:42:02"
    assert clock.of_text("2026-11-22T08:42:02+02:00") == "2026-11-22 07:42:02"
    assert [clock.of_text(text) for text in ("", "-", "2026-11-22T06:42:02")] == [
        "", "-", "2026-11-22T06:42:02",
    ]  # fmt: skip
