"""Where workspaces lie, and what others may have put there."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import records, removal, rights, safe_open, workspace, workspace_folders
from dshpc_setup.jobs.limits import Limits
from dshpc_setup.jobs.workspace import Workspace

UID = os.getuid()
ROOT = pytest.mark.skipif(UID != 0, reason="only root gives files to others")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def ready(work: Path) -> Path:
    with workspace_folders.of_user(str(work), UID):
        return work / "jobs" / str(UID)


def test_a_users_folder_is_that_users_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    user = ready(tmp_path)
    assert (mode(tmp_path / "jobs"), mode(user)) == (0o755, 0o700)


def test_the_group_reads_where_the_setting_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = ready(tmp_path)
    monkeypatch.setenv(workspace.ACCESS, "group")
    assert workspace.folder_mode() == 0o750
    assert mode(ready(tmp_path)) == 0o750
    user.chmod(0o2777)
    assert mode(ready(tmp_path)) == 0o2755, "nobody else writes there; who may read, its user says"


def test_in_a_shared_work_folder_nobody_moves_what_others_made(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    ready(tmp_path)
    assert mode(tmp_path / "jobs") == 0o1777


def test_a_jobs_folder_that_all_may_rename_in_is_put_right_by_its_owner(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs").chmod(0o777)
    ready(tmp_path)
    assert mode(tmp_path / "jobs") == 0o1777


@ROOT
@pytest.mark.parametrize(("owner", "mode_of", "why"), [
    (4711, 0o1777, "belongs to user 4711"), (0, 0o777, "everybody may rename"),
])  # fmt: skip
def test_a_jobs_folder_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode_of: int, why: str
) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    os.chown(jobs, owner, -1)
    jobs.chmod(mode_of)
    monkeypatch.setattr("os.getuid", lambda: 4712)
    monkeypatch.setattr(safe_open, "given_owner", lambda _: 4712)
    with pytest.raises(DshpcError, match=why) as told:
        ready(tmp_path)
    assert f"sudo chown --reference={tmp_path} {jobs}" in told.value.resolution[0]


@pytest.mark.parametrize("name", ["jobs", f"jobs/{UID}"])
def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).symlink_to(elsewhere)
    with pytest.raises(DshpcError, match="is not"):
        ready(tmp_path)
    assert list(elsewhere.iterdir()) == []


@ROOT
def test_root_makes_it_for_a_user(tmp_path: Path) -> None:
    os.chown(tmp_path, 1000, 1000)
    workspace_folders.prepare(str(tmp_path), 4711, 4712)
    jobs, user = tmp_path / "jobs", tmp_path / "jobs/4711"
    assert (jobs.stat().st_uid, mode(jobs)) == (1000, 0o755)
    assert (user.stat().st_uid, user.stat().st_gid, mode(user)) == (4711, 4712, 0o700)
    (user / "kept").touch()
    workspace_folders.prepare(str(tmp_path), 4711, 4712)
    assert (user / "kept").exists()
    assert [path.name for path in jobs.iterdir()] == ["4711"]


@ROOT
def test_a_projects_group_stays(tmp_path: Path) -> None:
    os.chown(tmp_path, 1000, 2000)
    tmp_path.chmod(0o2775)
    workspace_folders.prepare(str(tmp_path), 4711, 4711)
    user = tmp_path / "jobs/4711"
    assert (user.stat().st_gid, mode(user)) == (2000, 0o2700)


@ROOT
def test_a_group_that_the_work_folder_got_later_is_handed_on(tmp_path: Path) -> None:
    """configure-environment makes `jobs` before anybody can give the work folder its group."""
    workspace_folders.make(str(tmp_path))
    os.chown(tmp_path, 0, 2000)
    tmp_path.chmod(0o2775)
    workspace_folders.prepare(str(tmp_path), 4711, 4711)
    jobs, user = tmp_path / "jobs", tmp_path / "jobs/4711"
    assert (jobs.stat().st_gid, mode(jobs)) == (2000, 0o2755)
    assert (user.stat().st_gid, mode(user)) == (2000, 0o2700)


@ROOT
def test_what_the_first_user_made_for_all_is_taken_from_that_user(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    (jobs / "old-1").mkdir(parents=True)
    for path, owner in ((tmp_path, 0), (jobs, 4711), (jobs / "old-1", 4712)):
        os.chown(path, owner, owner)
    jobs.chmod(0o1777)
    workspace_folders.prepare(str(tmp_path), 4712, 4712)
    assert (jobs.stat().st_uid, jobs.stat().st_mode & 0o022) == (0, 0)
    assert (jobs / "old-1").stat().st_uid == 4712


@ROOT
def test_a_private_folder_in_its_place_is_given_to_nobody(tmp_path: Path) -> None:
    """Somebody may have moved another's folder there, for root to give it away."""
    jobs = tmp_path / "jobs"
    jobs.mkdir(mode=0o700)
    os.chown(jobs, 4711, 4711)
    workspace_folders.prepare(str(tmp_path), 4712, 4712)
    assert (jobs.stat().st_uid, mode(jobs)) == (4711, 0o700)


def _planted_folder(at: Path) -> None:
    at.mkdir()
    (at / "forged").touch()
    os.chown(at, 4711, 4711)


def _planted_link(at: Path) -> None:
    (at.parent.parent / "elsewhere").mkdir()
    at.symlink_to(at.parent.parent / "elsewhere")


@ROOT
@pytest.mark.parametrize("plant", [_planted_folder, _planted_link, Path.touch])
def test_what_somebody_has_laid_in_its_place_loses_its_name(
    tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    plant(jobs / "4712")
    workspace_folders.prepare(str(tmp_path), 4712, 4712)
    user = jobs / "4712"
    assert not user.is_symlink()
    assert (user.stat().st_uid, list(user.iterdir())) == (4712, [])
    (aside,) = (path for path in jobs.iterdir() if path != user)
    assert aside.name.startswith(".not-of-4712-")
    assert aside.is_symlink() or aside.stat().st_uid in (0, 4711)


def test_only_who_owns_the_work_folder_makes_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getuid", lambda: UID + 1)
    monkeypatch.setattr(safe_open, "given_owner", lambda _: UID + 1)
    with pytest.raises(PermissionError, match=f"only user {UID}"):
        ready(tmp_path)
    # A file system that gives all files to one user
    monkeypatch.setattr(safe_open, "given_owner", lambda _: UID)
    ready(tmp_path)


@pytest.mark.parametrize(("path", "uid", "name"), [
    ("/w/jobs/1000/train-1", 1000, "train-1"), ("/w/jobs/0/a b", 0, "a b"),
    ("/w/jobs/1000/.workflows", None, None), ("/w/jobs/1000/a/b", None, None),
    ("/w/jobs/01/a", None, None), ("/w/jobs/ada/a", None, None), ("/w/jobs/1000/", None, None),
    ("/x/jobs/1000/a", None, None), ("/w/jobs/../1000/a", None, None), ("", None, None),
])  # fmt: skip
def test_a_path_names_a_workspace(path: str, uid: int | None, name: str | None) -> None:
    for work in ("/w", "/w/"):
        found = workspace.of_path(work, path)
        assert (found and (found.uid, found.name, found.path)) == (
            None if uid is None else (uid, name, path)
        )


def test_no_part_of_a_workspace_is_a_link(tmp_path: Path) -> None:
    user = ready(tmp_path)
    (user / "real/.job").mkdir(parents=True)
    with Workspace(str(tmp_path), UID, "real").own():
        pass
    (user / "link").symlink_to("real")
    (user / "other").mkdir()
    (user / "other/.job").symlink_to("../real/.job")
    for name in ("link", "other"):
        with pytest.raises(OSError), Workspace(str(tmp_path), UID, name).own():  # noqa: PT011
            pass


def test_a_file_by_a_whole_path(tmp_path: Path) -> None:
    good = tmp_path / "a" / "log"
    good.parent.mkdir()
    good.write_text("x")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "a/link").symlink_to("log")
    for work in ("", str(tmp_path), "/elsewhere"):
        os.close(safe_open.file_at(str(good), work, UID))
        for name in ("b/log", "a/link", "a/../a/log", "a", "", "missing/log"):
            with pytest.raises(OSError):  # noqa: PT011
                safe_open.file_at(f"{tmp_path}/{name}", work, UID)
    with pytest.raises(safe_open.NotTheirsError):
        safe_open.file_at(str(good), "", UID + 1)


def test_whom_a_file_system_gives_files_is_seen_at_the_file_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one in its place, put there once it was open, says nothing."""
    at = safe_open.folder(str(tmp_path))
    fstat = os.fstat

    def replaced(handle: int) -> os.stat_result:
        for path in tmp_path.iterdir():
            path.unlink()
            path.symlink_to("/nowhere")
        return fstat(handle)

    monkeypatch.setattr("os.fstat", replaced)
    assert safe_open.given_owner(at) == UID
    monkeypatch.setattr("os.fstat", fstat)
    os.close(at)


def test_a_folder_goes_with_all_that_is_in_it_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    (tmp_path / "gone/below").mkdir(parents=True)
    (tmp_path / "gone/below/file").touch()
    (tmp_path / "gone/link").symlink_to(tmp_path / "kept")
    with safe_open.opened(str(tmp_path)) as at:
        removal.discard("gone", at)
        (tmp_path / "link").symlink_to("kept")
        removal.discard("link", at)
        removal.discard("missing", at)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "link"]
    assert (tmp_path / "kept/file").exists()


def test_a_folder_deeper_than_a_program_may_call_itself_goes_too(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    at = os.open(tmp_path / "gone", os.O_RDONLY)
    for _ in range(sys.getrecursionlimit() + 100):
        os.mkdir("d", dir_fd=at)
        before = at
        at = os.open("d", os.O_RDONLY, dir_fd=before)
        os.close(before)
    os.close(at)
    with safe_open.opened(str(tmp_path)) as top:
        removal.discard("gone", top)
    assert list(tmp_path.iterdir()) == []


def test_what_lets_a_user_write_there() -> None:
    denied, full = OSError(errno.EACCES, "Permission denied"), OSError(errno.ENOSPC, "full")
    step = workspace_folders.room_for_writing(denied, "/w")
    assert step.endswith("for all users: mkdir -p /w/jobs; chmod 1777 /w/jobs")
    assert workspace_folders.room_for_writing(full, "/w").startswith("Make room in /w")


def test_a_link_at_a_workspaces_name_is_not_looked_through(tmp_path: Path) -> None:
    user = tmp_path / f"jobs/{UID}"
    (user / "real/.job").mkdir(parents=True)
    (tmp_path / "elsewhere/.job").mkdir(parents=True)
    (user / "link").symlink_to(tmp_path / "elsewhere")
    found = records._of_user(str(tmp_path), UID, Limits())
    assert [name for _, name, _ in found] == ["real"]


@ROOT
def test_where_all_users_are_one_what_he_made_outside_is_his(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There it has his number as its name, and ours as its owner."""
    kept = tmp_path / "jobs/4711/.images"
    kept.mkdir(parents=True)
    monkeypatch.setattr(rights, "is_one_id", lambda: True)
    workspace_folders.prepare(str(tmp_path), 4711, 4711)
    assert kept.is_dir()
    monkeypatch.setattr(rights, "is_one_id", lambda: False)
    workspace_folders.prepare(str(tmp_path), 4711, 4711)
    assert not kept.exists()
