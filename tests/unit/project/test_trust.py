"""Whose a project folder is: decided from owners and modes, read from what was looked at."""

from __future__ import annotations

import grp
import json
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError
from dshpc_setup.project import trust
from dshpc_setup.project.folder import Project, find_project, need_project, project_at

ME, OTHER, PRIVATE, SHARED, CROWDED, FOREIGN = 1000, 1001, 1000, 100, 1002, 1001
RUNTIME = {"container": "c", "prefix": "p", "work": "/w"}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def seen(mode: int, uid: int, gid: int = PRIVATE, kind: int = stat.S_IFDIR) -> os.stat_result:
    return os.stat_result((kind | mode, 1, 1, 1, uid, gid, 0, 0, 0, 0))


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> None:
    """ada has a group of her own; "crowd" is ada's by name and number, and bob is in it."""
    users = {
        0: SimpleNamespace(pw_name="root", pw_gid=0),
        ME: SimpleNamespace(pw_name="ada", pw_gid=PRIVATE),
        OTHER: SimpleNamespace(pw_name="bob", pw_gid=FOREIGN),
        CROWDED: SimpleNamespace(pw_name="crowd", pw_gid=CROWDED),
    }
    groups = {
        0: SimpleNamespace(gr_name="root", gr_mem=[]),
        PRIVATE: SimpleNamespace(gr_name="ada", gr_mem=["ada"]),
        FOREIGN: SimpleNamespace(gr_name="bob", gr_mem=[]),
        SHARED: SimpleNamespace(gr_name="users", gr_mem=[]),
        CROWDED: SimpleNamespace(gr_name="crowd", gr_mem=["bob"]),
    }
    monkeypatch.setattr(pwd, "getpwuid", users.__getitem__)
    monkeypatch.setattr(grp, "getgrgid", groups.__getitem__)


# -- owners and modes ------------------------------------------------------------------------------

_MODES = st.integers(0, 0o7777)
_OWNERS = st.sampled_from([0, ME, OTHER, CROWDED])
_GROUPS = st.sampled_from([0, PRIVATE, SHARED, FOREIGN, CROWDED])


@given(_MODES, _OWNERS, _GROUPS)
def test_nobody_else_could_have_written_what_is_read(mode: int, uid: int, gid: int) -> None:
    """Against the rule said once more: its owner is one of ours, and no class of others has a `w`."""
    with pytest.MonkeyPatch.context() as patch:
        people.__wrapped__(patch)  # type: ignore[attr-defined]
        fault = trust.of("/x", seen(mode, uid, gid), (0, ME))
        in_private = (uid, gid) in [(0, 0), (ME, PRIVATE)]
        expected = (
            "owner" if uid not in (0, ME)
            else "mode" if mode & 0o002 or (mode & 0o020 and not in_private)
            else None
        )  # fmt: skip
        assert (fault and fault.kind) == expected
        higher = trust.above("/x", seen(mode, uid, gid), (0, ME))
        kept = expected == "mode" and mode & stat.S_ISVTX
        assert (higher and higher.kind) == (None if kept else expected)


@pytest.mark.usefixtures("people")
@pytest.mark.parametrize(
    ("uid", "gid", "whole"),
    [
        (ME, PRIVATE, True),
        (0, 0, True),
        (ME, SHARED, False),  # the primary group of all of them, on some systems
        (ME, FOREIGN, False),
        (CROWDED, CROWDED, False),  # its own by name, with somebody else in it
        (0, SHARED, False),
        (ME, 4711, False),  # of no name
    ],
)
def test_a_group_may_write_where_it_is_the_owners_own(uid: int, gid: int, whole: bool) -> None:
    fault = trust.of("/x", seen(0o775, uid, gid), (0, uid))
    assert (fault is None) is whole


@pytest.mark.usefixtures("people")
def test_an_access_list_is_no_private_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mask stands where the group's bits are."""
    monkeypatch.setattr(os, "getxattr", lambda *_, **__: b"acl", raising=False)
    fault = trust.of("/x", seen(0o775, ME, PRIVATE), (0, ME))
    assert fault is not None
    assert fault.why == "/x can be written by the group ada (mode 0775)."


_WSL = "5.15.153.1-microsoft-standard-WSL2\n"
_DRIVE = r"90 80 0:45 / /mnt/c rw,noatime - 9p C:\134 rw,dirsync,aname=drvfs;path=C:\;uid=1000"


@pytest.mark.parametrize(
    ("kernel", "mount", "uid", "whole"),
    [
        (_WSL, _DRIVE, ME, True),
        (_WSL, _DRIVE, OTHER, False),  # the owner is asked for there, too
        (_WSL, _DRIVE.replace("drvfs", "other"), ME, False),
        (_WSL, _DRIVE.replace("0:45", "0:46"), ME, False),
        ("6.1.0-18-amd64\n", _DRIVE, ME, False),
    ],
)
def test_a_drive_of_windows(
    kernel: str, mount: str, uid: int, whole: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = {"/proc/sys/kernel/osrelease": kernel, "/proc/self/mountinfo": f"{mount}\n"}
    for number, text in enumerate(files.values()):
        (tmp_path / str(number)).write_text(text)
    places = {path: tmp_path / str(number) for number, path in enumerate(files)}
    monkeypatch.setattr("builtins.open", lambda path, *_, **__: places[path].open(encoding="utf-8"))
    of_it = seen(0o777, uid)
    there = os.stat_result((*of_it[:2], os.makedev(0, 45), *of_it[3:]))
    assert (trust.of("/mnt/c/x", there, (0, ME)) is None) is whole


@pytest.mark.parametrize(
    ("uid", "sudo", "expected"),
    [
        (1000, "4711", (0, 1000)),  # believed only by root
        (0, "1000", (0, 1000)),
        (0, "", (0,)),
        (0, "0; id", (0,)),
        (0, "-1", (0,)),
        (0, "9" * 11, (0,)),
        (0, "²", (0,)),
    ],
)
def test_whose_files_are_ours(
    uid: int, sudo: str, expected: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setenv("SUDO_UID", sudo)
    assert trust.ours() == expected


# -- the search ------------------------------------------------------------------------------------

Made = Callable[..., Path]


@pytest.fixture(autouse=True)
def _nobody_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SUDO_UID", "DSHPC_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def make(tmp_path: Path) -> Made:
    def project(name: str, uid: int | None = None, **more: Any) -> Path:
        folder = tmp_path / name
        (folder / ".dshpc").mkdir(parents=True)
        runtime = {**RUNTIME, "work": str(folder / "work"), **more}
        (folder / ".dshpc/runtime.json").write_text(json.dumps(runtime))
        if uid is not None:
            for path in (folder, folder / ".dshpc", folder / ".dshpc/runtime.json"):
                os.chown(path, uid, uid)
        return folder

    return project


def found(start: Path) -> tuple[str | None, list[str]]:
    place, ignored = trust.search(str(start))
    return place.folder if place else None, [each.folder for each in ignored]


def test_the_nearest_of_ones_own(make: Made) -> None:
    outer, inner = make("a"), make("a/b/c")
    assert found(inner) == (str(inner), [])
    assert found(inner.parent) == (str(outer), [])
    assert found(outer.parent) == (None, [])


@pytest.mark.parametrize("where", ["work", "work/jobs/7"])
def test_the_work_folder_of_a_project_holds_no_other(make: Made, where: str) -> None:
    outer, inner = make("a"), make(f"a/{where}")
    assert found(inner) == (str(outer), [str(inner)])


def test_nor_does_a_work_folder_elsewhere(make: Made, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a/data")
    outer, inner = make("a", work=str(tmp_path / "link")), make("a/data/x")
    assert found(inner) == (str(outer), [str(inner)])


@pytest.mark.parametrize("loose", ["", ".dshpc", ".dshpc/runtime.json"])
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_what_others_can_write_hides_nothing(make: Made, loose: str, mode: int) -> None:
    outer, inner = make("a"), make("a/b")
    (inner / loose).chmod(mode)
    assert found(inner) == (str(outer), [str(inner)])
    (place,) = trust.search(str(inner))[1]
    assert place.fault is not None
    assert (place.fault.kind, place.fault.path) == ("mode", str(inner / loose).rstrip("/"))


def test_a_folder_above_that_others_can_write(make: Made, tmp_path: Path) -> None:
    inner = make("shared/a")
    inner.parent.chmod(0o777)
    assert found(inner) == (None, [str(inner)])
    with pytest.raises(DshpcError) as caught:
        need_project(inner, {})
    assert caught.value.details == f"{inner.parent} can be written by everybody (mode 0777)."
    assert f"chmod go-w {inner.parent}" in caught.value.resolution[0]
    inner.parent.chmod(0o1777)  # as /tmp
    assert found(inner) == (str(inner), [])


def test_a_folder_made_for_everybody_stays_so(make: Made) -> None:
    inner = make("tmp")
    inner.chmod(0o1777)
    with pytest.raises(DshpcError) as caught:
        need_project(inner, {})
    assert not any("chmod" in step for step in caught.value.resolution)
    assert "--dir" in caught.value.resolution[0]


def test_links_are_no_projects(make: Made, tmp_path: Path) -> None:
    real = make("a")
    for name in ("linked", "file"):
        (tmp_path / name).mkdir()
    (tmp_path / "linked/.dshpc").symlink_to(real / ".dshpc")
    assert found(tmp_path / "linked") == (None, [])
    own = tmp_path / "file/.dshpc"
    own.mkdir()
    (own / "runtime.json").symlink_to(real / ".dshpc/runtime.json")
    place = trust.search(str(own.parent))[0]
    assert place is not None
    assert place.runtime == {}


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / ".dshpc").mkdir()
    os.mkfifo(tmp_path / ".dshpc/runtime.json")
    project = find_project(tmp_path, {})
    assert project is not None
    assert project.runtime() == {}


@needs_root
def test_another_users_is_data(make: Made) -> None:
    folder = make("a", uid=OTHER)
    (folder / "dshpc.yaml").write_text("partition: theirs\n")
    os.chown(folder / "dshpc.yaml", OTHER, OTHER)
    project = find_project(folder, {})
    assert project is not None
    assert project.foreign == OTHER
    assert project.runtime() == {**RUNTIME, "work": str(folder / "work")}
    assert project.settings({}).partition == "theirs"
    for use in (project.need_own, project.lock().__enter__):
        with pytest.raises(DshpcError, match="belongs to"):
            use()
    assert sorted(path.name for path in (folder / ".dshpc").iterdir()) == ["runtime.json"]
    with project.lock(files=False):
        assert not (folder / ".dshpc/lock").exists()


@needs_root
def test_of_another_users_folder_no_link_is_followed(make: Made, tmp_path: Path) -> None:
    folder, secret = make("a", uid=OTHER), tmp_path / "secret"
    secret.write_text("partition: stolen\n")
    (folder / "dshpc.yaml").symlink_to(secret)
    project = find_project(folder, {})
    assert project is not None
    assert project.settings({}).partition != "stolen"
    (folder / "dshpc.yaml").unlink()
    os.link(secret, folder / "dshpc.yaml")  # of ours, in the folder of another
    os.chown(secret, ME, ME)
    assert project.settings({}).partition != "stolen"


@needs_root
def test_ones_own_comes_before_another_users(make: Made) -> None:
    outer, inner = make("a"), make("a/b", uid=OTHER)
    assert found(inner) == (str(outer), [str(inner)])


@needs_root
@pytest.mark.parametrize("whose", [(OTHER, ME), (ME, OTHER)])
def test_two_other_users_are_one_too_many(make: Made, whose: tuple[int, int]) -> None:
    folder = make("a", uid=whose[0])
    os.chown(folder / ".dshpc/runtime.json", whose[1], whose[1])
    assert found(folder) == (None, [str(folder)])


@needs_root
def test_who_called_sudo_has_files_of_his_own(make: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make("a", uid=OTHER)
    monkeypatch.setenv("SUDO_UID", str(OTHER))
    project = project_at(folder, (OTHER, OTHER))
    assert project.foreign is None
    with project.lock():
        assert (folder / ".dshpc/lock").stat().st_uid == OTHER


# -- a folder that is named, and the files in it -----------------------------------------------------


def test_a_folder_that_is_named_is_looked_at_as_well(make: Made, tmp_path: Path) -> None:
    folder = make("a")
    assert find_project(tmp_path, {"DSHPC_DIR": str(folder)}) is not None
    folder.chmod(0o777)
    with pytest.raises(DshpcError, match="is not used as a project"):
        find_project(tmp_path, {"DSHPC_DIR": str(folder)})
    with pytest.raises(DshpcError, match="is not used as a project"):
        project_at(folder)


def test_one_that_is_not_there_yet(tmp_path: Path) -> None:
    with project_at(tmp_path / "new/folder").lock():
        assert stat.S_IMODE((tmp_path / "new/folder/.dshpc/lock").stat().st_mode) == 0o600
    (tmp_path / "new").chmod(0o777)
    with pytest.raises(DshpcError, match="is not used as a project"):
        project_at(tmp_path / "new/other")


@pytest.mark.parametrize(
    "name", ["docker-compose.yml", "dshpc.yaml", ".env", "config", "config/slurm.conf"]
)
def test_every_file_that_is_used_is_looked_at(name: str, tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/slurm.conf").touch()
    (tmp_path / name).touch() if "." in name else None
    project.need_own()
    (tmp_path / name).chmod(0o777)
    with pytest.raises(DshpcError) as caught:
        project.need_own()
    assert caught.value.details == f"{tmp_path / name} can be written by everybody (mode 0777)."


def test_a_link_to_a_file_of_ones_own(tmp_path: Path) -> None:
    for name in ("project", "dotfiles"):
        (tmp_path / name).mkdir()
    (tmp_path / "dotfiles/dshpc.yaml").touch()
    (tmp_path / "project/dshpc.yaml").symlink_to(tmp_path / "dotfiles/dshpc.yaml")
    project = Project(tmp_path / "project")
    project.need_own()
    (tmp_path / "dotfiles").chmod(0o777)
    with pytest.raises(DshpcError) as caught:
        project.need_own()
    assert str(tmp_path / "dotfiles") in caught.value.details


# -- what runtime.json may say -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"container": "a-slurm", "work": "/w"}, {"container": "a-slurm", "work": "/w"}),
        ({"container": "--privileged", "docker": "/tmp/evil"}, {}),
        ({"container": "../x", "prefix": "a b", "work": "relative"}, {}),
        ({"container": 7, "prefix": "", "work": None, "volumes_of": "/a"}, {"volumes_of": "/a"}),
        ({"container": "é"}, {}),
        ({"engine": "builtin", "cache": "/c"}, {"engine": "builtin", "cache": "/c"}),
        ({"engine": "/tmp/evil", "cache": "--volume"}, {}),
        ([], {}),
    ],
)  # fmt: skip
def test_names_and_paths_only(said: Any, kept: dict[str, str]) -> None:
    assert trust.usable(json.dumps(said).encode()) == kept


@pytest.mark.parametrize("text", [None, b"", b"\xff\xfe", b"{", b"[" * 100_000])
def test_what_is_no_object_says_nothing(text: bytes | None) -> None:
    assert trust.usable(text) == {}
