"""Root filesystems in the cache: once for a digest, and nothing half done."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from dshpc_setup.builtin import archive, one_id, refused_calls, rootfs, trees
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import owned
from tests.unit.builtin.test_archive import ELF, Member
from tests.unit.builtin.test_archive import archive as made
from tests.unit.engine.fake import Answer, FakeMachine

IDS = Ids("root")


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(env={"XDG_CACHE_HOME": str(tmp_path / "cache")})


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "root.tar"
    path.write_bytes(content)
    return path


GOOD = made(Member("usr/bin/env", content=ELF, mode=0o755), Member("etc/passwd", content=b"root"))


def test_it_is_unpacked_once_and_removed(tmp_path: Path, machine: FakeMachine) -> None:
    path = written(tmp_path, GOOD)
    first = rootfs.ensure(machine, path, IDS)
    assert (Path(first.folder) / "etc/passwd").read_text() == "root"
    (Path(first.folder) / "marked").touch()
    assert rootfs.ensure(machine, path, IDS) == first
    assert (Path(first.folder) / "marked").exists(), "it is that one"
    rootfs.remove(machine, first.digest, IDS)
    assert list((tmp_path / "cache/dshpc/images").iterdir()) == []


def test_what_a_killed_run_has_left_is_removed(tmp_path: Path, machine: FakeMachine) -> None:
    path = written(tmp_path, GOOD)
    place = rootfs.cache_folder(machine.env) / rootfs.digest_of(path)
    for name in (".root.new", "root"):  # half done, and done but for its record
        (place / name / "half").mkdir(parents=True)
    found = rootfs.ensure(machine, path, IDS)
    assert sorted(each.name for each in place.iterdir()) == ["lock", "root", "root.json"]
    assert not (Path(found.folder) / "half").exists()


def test_one_with_other_ids_is_made_anew(tmp_path: Path, machine: FakeMachine) -> None:
    path = written(tmp_path, GOOD)
    first = rootfs.ensure(machine, path, IDS)
    record = Path(first.folder).with_suffix(".json")
    record.write_text(record.read_text().replace('"uids": null', '"uids": 5'))
    (Path(first.folder) / "marked").touch()
    assert rootfs.ensure(machine, path, IDS) == first
    assert not (Path(first.folder) / "marked").exists()


OTHER = ELF[:18] + b"\xb7\x00" + ELF[20:]


@pytest.mark.parametrize(
    "content",
    [
        b"no archive" * 200,
        GOOD[:1600],
        made(Member("../evil")),
        made(Member("usr/bin/env", content=OTHER)),
    ],
)
def test_what_cannot_be_used_leaves_nothing(
    tmp_path: Path, machine: FakeMachine, content: bytes
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(DshpcError) as raised:
        rootfs.ensure(machine, path, IDS)
    assert raised.value.steps
    place = rootfs.cache_folder(machine.env) / rootfs.digest_of(path)
    assert not place.exists()


def test_a_full_disk_is_told_and_leaves_nothing(
    tmp_path: Path, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archive.Tree, "_file", full)
    path = written(tmp_path, GOOD)
    with pytest.raises(DshpcError) as raised:
        rootfs.ensure(machine, path, IDS)
    assert any("df" in step for step in raised.value.resolution)
    place = rootfs.cache_folder(machine.env) / rootfs.digest_of(path)
    assert not place.exists()


def test_another_archive_than_expected_is_refused(tmp_path: Path, machine: FakeMachine) -> None:
    with pytest.raises(DshpcError):
        rootfs.ensure(machine, written(tmp_path, GOOD), IDS, expected="0" * 64)
    assert not (tmp_path / "cache").exists()


def test_a_folder_that_runs_no_program_is_told(
    tmp_path: Path, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Without:
        f_flag = os.ST_NOEXEC

    monkeypatch.setattr(os, "statvfs", lambda _: Without)
    with pytest.raises(DshpcError) as raised:
        rootfs.ensure(machine, written(tmp_path, GOOD), IDS)
    assert "XDG_CACHE_HOME" in raised.value.resolution[0]


def test_who_waits_for_another_run_has_an_end(tmp_path: Path, machine: FakeMachine) -> None:
    path = written(tmp_path, GOOD)
    place = rootfs.cache_folder(machine.env) / rootfs.digest_of(path)
    place.mkdir(parents=True)
    with open(place / "lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DshpcError):
            rootfs.ensure(machine, path, IDS, deadline_s=0.1)


def test_zstd_is_asked_for_where_it_is_missing(tmp_path: Path, machine: FakeMachine) -> None:
    with pytest.raises(DshpcError) as raised:
        rootfs.ensure(machine, written(tmp_path, b"\x28\xb5\x2f\xfdrest"), IDS)
    assert "zstd" in (raised.value.fixes[0].command or "")


@pytest.mark.parametrize("digest", ["", "..", "a/b", "ABC"])
def test_what_is_no_digest_removes_nothing(machine: FakeMachine, digest: str) -> None:
    with pytest.raises(DshpcError):
        rootfs.remove(machine, digest, IDS)


def test_a_copy_is_like_what_it_was_made_of(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "folder").mkdir(parents=True)
    (source / "file").write_text("text")
    (source / "file").chmod(0o640)
    os.link(source / "file", source / "folder/same")
    (source / "link").symlink_to("/nowhere")
    (source / "folder").chmod(0o500)
    trees.copy_here(source, tmp_path / "copy")
    copy = tmp_path / "copy"
    assert (copy / "folder/same").samefile(copy / "file")
    assert os.readlink(copy / "link") == "/nowhere"
    modes = [(copy / name).stat().st_mode & 0o7777 for name in ("file", "folder")]
    assert modes == [0o640, 0o500]
    trees.remove_here(copy)
    trees.remove_here(source)
    assert not copy.exists()


def test_a_tree_is_removed_however_deep_and_closed_it_is(tmp_path: Path) -> None:
    """Deeper than a path may be long; with names that we use ourselves, and links that lead out."""
    top, outside = tmp_path / "top", tmp_path / "outside"
    top.mkdir()
    outside.write_text("kept")
    above = os.open(top, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("dddd", dir_fd=above)
        os.symlink(outside, "link", dir_fd=above)
        below = os.open("dddd", os.O_RDONLY, dir_fd=above)
        os.close(above)
        above = below
    os.close(above)
    for name in (".dshpc-0", ".dshpc-1", "other/.dshpc-0/x"):
        (top / name).mkdir(parents=True)
        (top / name / "file").write_text("x")
    (top / "other").chmod(0o000)
    top.chmod(0o500)
    trees.remove_here(top)
    assert list(tmp_path.iterdir()) == [outside]
    trees.remove_here(top)  # which is not there
    (tmp_path / "link").symlink_to(outside)
    trees.remove_here(tmp_path / "link")
    assert list(tmp_path.iterdir()) == [outside]


def answer(lines: bytes, architecture: int, number: int, first: int = 0) -> int:
    """What a filter says, run as the kernel runs it: seccomp(2) and the machine of classic BPF."""
    words = {0: number, 4: architecture, 16: first}
    held, at = 0, 0
    while True:
        code, yes, no, value = struct.unpack_from("=HBBI", lines, at * 8)
        at += 1
        if code == 0x20:
            held = words[value]
        elif code == 0x06:
            return int(value)
        else:
            true = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += yes if true else no


PC, ARM = 0xC000003E, 0xC00000B7


def test_the_filter_answers_its_calls_and_lets_all_others_be() -> None:
    calls = (92, 116, 117)
    lines = one_id.program(PC, calls)
    for number in range(400):
        pretended = number in calls
        assert answer(lines, PC, number) == (0x00050000 if pretended else 0x7FFF0000)
        assert answer(lines, ARM, number) == 0x7FFF0000, "its numbers mean other calls"


@pytest.mark.parametrize("machine_name", ["x86_64", "aarch64"])
def test_what_root_of_a_container_may_not_ask_the_kernel(machine_name: str) -> None:
    calls = refused_calls.CALLS[machine_name]
    lines = refused_calls.program(calls)
    allow, eperm, enosys = 0x7FFF0000, 0x00050001, 0x00050026
    for number in range(460):
        said = answer(lines, calls.architecture, number)
        wanted = eperm if number in calls.refused else allow
        assert said == (enosys if number == calls.clone3 else wanted), number
        assert answer(lines, 0x40000003, number) == eperm, "the calls of another ABI"
        assert answer(lines, calls.architecture, number | 0x40000000) == eperm
    for flag in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert answer(lines, calls.architecture, calls.clone, flag | 17) == eperm
        # Into an image with namespaces of users and of mounts, and no other
        said = allow if flag in (0x20000, 0x10000000) else eperm
        assert answer(lines, calls.architecture, calls.unshare, flag) == said
        assert answer(lines, calls.architecture, calls.unshare, flag | 0x10020000) == said
    for flags in (17, 0x3D0F00, 0x4111):  # fork, a thread, vfork
        assert answer(lines, calls.architecture, calls.clone, flags) == allow


def test_a_file_that_another_may_have_written_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text("{}")
    assert owned.read_text(file) == "{}"
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(OSError, match="link"):
        owned.read_text(tmp_path / "link")
    for mode in (0o620, 0o602):
        file.chmod(mode)
        with pytest.raises(PermissionError):
            owned.read_text(file)
    with pytest.raises(OSError, match=r"directory|this user"):
        owned.read_text(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(PermissionError):
        owned.read_text(tmp_path / "pipe")


def test_zstd_is_stopped_before_it_fills_the_disk(
    tmp_path: Path, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the kernel's limit of a file's size, of which it dies."""
    machine.programs.add("zstd")
    machine.commands["sh -c ulimit -f"] = Answer(code=-signal.SIGXFSZ)
    path = written(tmp_path, b"\x28\xb5\x2f\xfdrest")
    seen = os.statvfs(tmp_path)
    for free_mib, said in ((1 << 20, "far too large"), (100, "no room")):
        blocks = (1 << 20, 1 << 20, free_mib, free_mib, free_mib)
        disk = os.statvfs_result((*blocks, *seen[5:10]))
        monkeypatch.setattr(os, "statvfs", lambda _, disk=disk: disk)
        with pytest.raises(DshpcError, match=said):
            rootfs.ensure(machine, path, IDS)
    limits = [line.split()[4] for line in machine.lines("sh -c ulimit -f")]
    assert limits == [str((1 << 30) // 512), str((90 << 20) // 512)]


def test_files_of_a_range_that_was_taken_away_are_told_as_that(
    tmp_path: Path, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody but root, or who has the range again, can remove them."""

    def refused(*_: object) -> None:
        raise PermissionError(1, "newuidmap or newgidmap refused the ids", "newuidmap")

    monkeypatch.setattr(trees, "become_root", refused)
    machine.programs |= {"newuidmap", "newgidmap"}
    (tmp_path / "tree").mkdir()
    ids = Ids("mapped", 300000, 400000)
    for count, lost in ((1000, True), (65536, False)):
        machine.files |= {
            "/etc/subuid": f"0:300000:{count}\n", "/etc/subgid": f"0:400000:{count}\n",
        }  # fmt: skip
        with pytest.raises(DshpcError) as raised:
            trees.remove(machine, ids, tmp_path / "tree")
        told = "--add-subuids 300000-365535 --add-subgids 400000-465535" in raised.value.details
        assert told is lost


def test_an_image_goes_for_whichever_ids_its_user_had(tmp_path: Path, machine: FakeMachine) -> None:
    """He was given a range, or it was taken away, since it was unpacked first."""
    machine.system = ("Linux", "6.1.0", "x86_64")
    path = written(tmp_path, GOOD)
    found = rootfs.ensure(machine, path, Ids("root"))
    place = Path(found.folder).parent
    (place / "mapped.json").write_text(
        (place / "root.json").read_text().replace('"root"', '"mapped"')
    )
    assert rootfs.known(machine, found.digest, Ids("root")) == found
    rootfs.remove_all(machine, found.digest)
    assert not place.exists()


@pytest.mark.parametrize("number", [errno.EPERM, errno.EINVAL, errno.EACCES])
def test_a_file_system_without_owners_is_told_before_anything_lies_there(
    tmp_path: Path, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "chown", refused)
    path = written(tmp_path, GOOD)
    makes: tuple[Callable[[], object], ...] = (
        lambda: rootfs.ensure(machine, path, IDS),
        lambda: rootfs.make(machine, "ab", IDS, Path.mkdir),
    )
    for make in makes:
        with pytest.raises(DshpcError, match="does not let files belong") as raised:
            make()
        assert os.strerror(number) in raised.value.details
        assert "XDG_CACHE_HOME" in str(raised.value.steps)
        assert list((tmp_path / "cache/dshpc/images").iterdir()) == []
    number = errno.ENOSPC  # what else may be wrong is told by those who meet it
    trees.need_owners(machine, IDS, tmp_path)
