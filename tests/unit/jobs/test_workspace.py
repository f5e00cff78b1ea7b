"""The folder that all jobs' workspaces lie in."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from dshpc_setup.jobs import workspace


def test_who_may_make_folders_in_work_may_do_so_in_its_shared_folders(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    made = tmp_path / "jobs"
    workspace.make_shared(str(made), str(tmp_path))
    assert stat.S_IMODE(made.stat().st_mode) == 0o1777
    made.chmod(0o700)
    workspace.make_shared(str(made), str(tmp_path))
    assert stat.S_IMODE(made.stat().st_mode) == 0o700  # as somebody has set it since


def test_another_submission_may_make_it_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "jobs"
    mkdir = os.mkdir

    def second(path: str) -> None:
        mkdir(path, 0o755)
        mkdir(path)

    monkeypatch.setattr(os, "mkdir", second)
    workspace.make_shared(str(made), str(tmp_path))
    assert made.is_dir()


def test_a_file_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("")
    with pytest.raises(FileExistsError):
        workspace.make_shared(str(tmp_path / "jobs"), str(tmp_path))


def test_what_lets_a_user_write_there(tmp_path: Path) -> None:
    denied, full = OSError(errno.EACCES, "Permission denied"), OSError(errno.ENOSPC, "full")
    assert workspace.room_for_writing(denied, "/w").endswith("for all users: chmod 1777 /w")
    (tmp_path / "jobs").mkdir()
    step = workspace.room_for_writing(denied, str(tmp_path))
    assert step.endswith(f"write in {tmp_path}/jobs; for all users: chmod 1777 {tmp_path}/jobs")
    assert workspace.room_for_writing(full, "/w").startswith("Make room in /w")
