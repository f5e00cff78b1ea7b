"""Who is ended by a second `dshpc lab`: who has the file of the first open, and nobody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup.cli import job_server


def test_a_number_that_is_another_programs_by_now_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with job_server._State("lab", "/project") as state:
        assert state._is_open_in(os.getpid())
        assert not state._is_open_in(os.getppid())
        assert not state._is_open_in(1)
        assert not state._is_open_in(0)
