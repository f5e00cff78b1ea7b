"""A lock file is its owner's alone, and a refusal names the process that the kernel names."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.project import run_lock

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def taken(lock: Path) -> Iterator[Path]:
    """Held by this process, while the file names another."""
    lock.write_text("1\n")
    handle = os.open(lock, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    yield lock
    os.close(handle)


def refused(path: Path) -> DshpcError:
    with pytest.raises(DshpcError) as caught, run_lock.held(path, "in X", "Why."):
        pass
    return caught.value


def test_nobody_else_can_open_it(lock: Path) -> None:
    before = os.umask(0)
    try:
        with run_lock.held(lock, "in X", "Why."):
            assert stat.S_IMODE(lock.stat().st_mode) == 0o600
            assert lock.read_text() == f"{os.getpid()}\n"
    finally:
        os.umask(before)


def test_one_of_an_older_version_is_closed_to_others(lock: Path) -> None:
    lock.touch(0o644)
    with run_lock.held(lock, "in X", "Why."):
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600


def test_the_process_is_the_kernels_and_not_the_files(taken: Path) -> None:
    error = refused(taken)
    assert error.brief == f"Another run (process {os.getpid()}) is at work in X."
    assert error.details == "Why."
    assert taken.read_text() == "1\n"


@pytest.mark.parametrize("says", [None, "", "1: FLOCK  ADVISORY  WRITE 1 00:01:{inode} 0 EOF\n",
                                  "1: -> FLOCK  ADVISORY  WRITE {me} 00:01:{inode} 0 EOF\n",
                                  "1: POSIX  ADVISORY  WRITE {me} 00:01:{inode} 0 EOF\n",
                                  "1: FLOCK  ADVISORY  WRITE {me} 00:01:7 0 EOF\n", "x\n"])  # fmt: skip
def test_where_it_is_not_known_nobody_is_named(
    says: str | None, taken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No /proc/locks; a process that does not have the file open; one that only waits; another kind."""
    listed = tmp_path / "locks"
    if says is not None:
        listed.write_text(says.format(inode=taken.stat().st_ino, me=os.getpid()))
    monkeypatch.setattr(run_lock, "_LOCKS", str(listed))
    assert refused(taken).brief == "Another run is at work in X."


def test_no_link_is_followed_and_no_pipe_waited_for(lock: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    lock.symlink_to(victim)
    assert "Cannot write" in refused(lock).brief
    lock.unlink()
    os.link(victim, lock)
    assert "not a lock file of ours" in refused(lock).brief
    lock.unlink()
    os.mkfifo(lock)
    assert "not a lock file of ours" in refused(lock).brief
    assert victim.read_text() == "precious"


@needs_root
def test_anothers_file_is_no_lock_of_ours(lock: Path) -> None:
    lock.touch()
    os.chown(lock, 4321, 4321)
    assert "It belongs to user 4321" in refused(lock).details


def test_in_another_users_folder_nothing_is_made(lock: Path, tmp_path: Path) -> None:
    with run_lock.held_by_another(lock, "in X", "Why."):
        assert not lock.exists()
    lock.write_text("1\n")
    with run_lock.held_by_another(lock, "in X", "Why."):
        assert lock.read_text() == "1\n"
        with pytest.raises(DshpcError), run_lock.held_by_another(lock, "in X", "Why."):
            pass
    lock.unlink()
    lock.symlink_to(tmp_path / "elsewhere")
    with run_lock.held_by_another(lock, "in X", "Why."):
        assert not (tmp_path / "elsewhere").exists()
