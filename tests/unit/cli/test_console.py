"""What stands on a stream that is no terminal."""

from __future__ import annotations

import pytest

from dshpc_setup.cli.console import ConsoleReporter


def test_what_does_not_change_is_said_again_after_minutes_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("dshpc_setup.cli.console.time.monotonic", lambda: now[0])
    reporter = ConsoleReporter(to_stderr=True, yes=False, interactive=False)
    for second in range(2, 1000, 2):
        now[0] = float(second)
        reporter.progress("waiting for job 7" if second < 600 else "waiting for job 8")
    said = [line.split()[-1] for line in capsys.readouterr().err.splitlines()]
    assert said == ["7", "7", "8", "8"]
