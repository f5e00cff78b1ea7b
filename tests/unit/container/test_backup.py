"""A backup of a state is restored as it was, or not at all."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from dshpc_setup import codec
from dshpc_setup.container import backup, restore
from dshpc_setup.errors import DshpcError
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.paths import Paths
from tests.unit.engine.fake import Answer, FakeMachine

FILES = {
    "state/slurmctld/job_state": b"jobs",
    "state/slurmctld/hash.7/job.7/script": b"#!/bin/sh\n",
    "state/jobcomp/jobs.log": b"JobId=6\n" * 40,
    "state/users": b"4101:4101:ada\n",
    "state/database/mariadb/ibdata1": bytes(5000),
    "key/slurm.key": b"secret" * 9,
}
LEFT_OUT = ("state/.health", "state/database/tmp/#sql1", "state/before-restore/users")


def machine(version: str = "24.11.5") -> FakeMachine:
    said = Answer(stdout=f"slurm-wlm {version}\n")
    return FakeMachine(commands={"slurmctld -V": said})


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    for name in (*FILES, *LEFT_OUT):
        file = tmp_path / "var/lib/dshpc" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(FILES.get(name, b"x"))
    (tmp_path / "run/dshpc").mkdir(parents=True)
    return Paths(str(tmp_path))


def saved(paths: Paths, monkeypatch: pytest.MonkeyPatch, **of: str) -> bytes:
    stream = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stream, write_through=True))
    assert backup.write(machine(**of), paths, Settings()) == 0
    return stream.getvalue()


def check(paths: Paths, content: bytes, prefix: str = "dshpc") -> None:
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(content))
    try:
        restore.check(machine(), paths, Settings(prefix=prefix))
    finally:
        sys.stdin = before


def there(paths: Paths) -> dict[str, bytes]:
    top = Path(paths.at("/var/lib/dshpc"))
    return {
        str(file.relative_to(top)): file.read_bytes()
        for file in sorted(top.rglob("*"))
        if file.is_file()
    }


def test_it_is_restored_as_it_was_and_what_was_there_is_kept(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = saved(paths, monkeypatch)
    monkeypatch.undo()
    state = Path(paths.state)
    (state / "users").write_bytes(b"changed\n")
    (state / "new").write_bytes(b"later\n")
    Path(paths.key).write_bytes(b"another key")
    check(paths, content)
    told = json.loads(capsys.readouterr().out)
    assert (told["prefix"], told["slurm"], told["files"]) == ("dshpc", "24.11.5", {})
    assert restore.take(paths) is None, "nobody has agreed to it"
    assert (state / "users").read_bytes() == b"changed\n"
    restore.accept(paths)
    assert restore.take(paths) is not None
    found = there(paths)
    before = {name: found.pop(name) for name in list(found) if "before-restore" in name}
    assert found == FILES
    assert before["state/before-restore/users"] == b"changed\n"
    assert before["state/before-restore/new"] == b"later\n"
    assert before["state/before-restore/.key/slurm.key"] == b"another key"
    assert restore.take(paths) is None


def test_no_link_leads_out_of_what_is_saved(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nor does one that is put there between the look and the opening: some folders are their users'."""
    secret = tmp_path / "secret"
    (secret / "in").mkdir(parents=True)
    (secret / "in/file").write_bytes(b"not ours")
    mine = Path(paths.state) / "ended/4101"
    (mine / "folder").mkdir(parents=True)
    (mine / "folder/file").write_bytes(b"plain")
    (mine / "file").write_bytes(b"plain")
    (mine / "link").symlink_to(secret / "in/file")
    (mine / "out").symlink_to(secret / "in")
    os.mkfifo(mine / "pipe")
    deep = mine
    for _ in range(40):
        deep /= "d"
        deep.mkdir()
    (deep / "file").write_bytes(b"deep")
    looked = os.stat

    def swaps(path: str, **how: Any) -> os.stat_result:
        found = looked(path, **how)
        for name, goal in (("file", secret / "in/file"), ("folder", secret / "in")):
            if path == name and not (mine / name).is_symlink():
                (mine / name).rename(mine / f"{name}.was")
                (mine / name).symlink_to(goal)
        return found

    monkeypatch.setattr(os, "stat", swaps)
    content = saved(paths, monkeypatch)
    monkeypatch.undo()
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content))) as archive:
        held = {each.name: each for each in archive if "/ended/" in each.name}
        assert {each.type for each in held.values()} <= {tarfile.REGTYPE, tarfile.DIRTYPE}
        texts = [archive.extractfile(each) for each in held.values() if each.isfile()]
        assert {file.read() for file in texts if file is not None} <= {b"plain"}
    assert not {"link", "out", "pipe", "file", "folder"} & {Path(name).name for name in held}


def test_a_start_that_is_killed_meanwhile_is_gone_on_with(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each of its renames: the next one ends with all of the backup, and all of before is kept."""
    content = saved(paths, monkeypatch)
    monkeypatch.undo()
    (Path(paths.state) / "users").write_bytes(b"changed\n")
    check(paths, content)
    restore.accept(paths)
    rename, left = os.rename, 0

    def killed(source: str, target: str) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        rename(source, target)

    tries = 0
    while True:
        left, tries = 1, tries + 1
        with monkeypatch.context() as patched:
            patched.setattr(os, "rename", killed)
            try:
                assert restore.take(paths) is not None
                break
            except KeyboardInterrupt:
                continue
    assert tries > len({name.split("/")[1] for name in FILES})
    found = there(paths)
    assert {name: found[name] for name in FILES} == FILES
    assert found["state/before-restore/users"] == b"changed\n"


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    top = tmp_path_factory.mktemp("saved")
    with pytest.MonkeyPatch.context() as patch:
        for name in FILES:
            file = top / "var/lib/dshpc" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(os.urandom(300))
        (top / "run/dshpc").mkdir(parents=True)
        return saved(Paths(str(top)), patch)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 1_000_000), st.booleans())
@example(0, True)
@example(935, False)
def test_what_is_cut_off_or_damaged_is_refused_and_leaves_nothing(
    content: bytes, paths: Paths, at: int, cut: bool
) -> None:
    before, place = there(paths), at % len(content)
    changed = bytes([content[place] ^ 0x55])
    bad = content[:place] if cut else content[:place] + changed + content[place + 1 :]
    with contextlib.suppress(OSError, EOFError, zlib.error):
        # Another time in gzip's head, or another way to say the same run of zeros, is no damage
        assume(gzip.decompress(bad) != gzip.decompress(content))
    with pytest.raises(DshpcError):
        check(paths, bad)
    assert there(paths) == before


@pytest.mark.parametrize(
    "foreign",
    [b"", b"a note of mine\n", b"PK\x03\x04", gzip.compress(b"x", mtime=0)],
    ids=["empty", "text", "zip", "gzip"],
)
def test_a_file_that_is_no_backup_is_told_in_words(paths: Paths, foreign: bytes) -> None:
    with pytest.raises(DshpcError, match="no whole backup") as told:
        check(paths, foreign)
    assert told.value.details.startswith("It is ")


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for member, data in members:
            member.size = len(data) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "state/../../x", "../x", "home/x", "state//x", "state/./x", "x"]
)
def test_no_member_leads_out_of_it(paths: Paths, name: str) -> None:
    member = tarfile.TarInfo(name)
    with pytest.raises(DshpcError, match="no whole backup"):
        check(paths, packed((member, b"x")))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_no_link_and_no_device_comes_with_it(paths: Paths, kind: bytes) -> None:
    member = tarfile.TarInfo("state/x")
    member.type, member.linkname = kind, "/etc/passwd"
    with pytest.raises(DshpcError, match="no whole backup"):
        check(paths, packed((member, b"")))


def test_that_of_another_cluster_or_of_a_newer_slurm_is_refused(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = saved(paths, monkeypatch)
    newer = saved(paths, monkeypatch, version="26.05.5")
    monkeypatch.undo()
    with pytest.raises(DshpcError, match="of the cluster dshpc"):
        check(paths, ours, prefix="lab")
    with pytest.raises(DshpcError, match=r"of Slurm 26\.05\.5"):
        check(paths, newer)
    assert "state/restore.new" not in "\n".join(there(paths))


@pytest.mark.parametrize(
    "name",
    [
        "state", "key", "key/folder/slurm.key", "state/restore.ready/users", "state/before-restore",
        "state/restore.moving", "state/users/below-a-file",
    ],
)  # fmt: skip
def test_nothing_that_a_start_could_not_move_is_accepted(paths: Paths, name: str) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for each in ("state/users", name):
            member = tarfile.TarInfo(each)
            member.uid, member.gid = os.getuid(), os.getgid()
            archive.addfile(member, io.BytesIO())
        sums = dict.fromkeys(("state/users", name), hashlib.sha256().hexdigest())
        manifest = backup.Manifest("dshpc", 1, "24.11.5", "1", False, sums)
        text = json.dumps(codec.to_json(manifest, backup.SCHEMA)).encode()
        end = tarfile.TarInfo(backup.MANIFEST)
        end.size = len(text)
        archive.addfile(end, io.BytesIO(text))
    before = there(paths)
    with pytest.raises(DshpcError, match="no whole backup"):
        check(paths, stream.getvalue())
    assert there(paths) == before


def bomb(size: int) -> bytes:
    """A file that declares that size, and is cut off behind its first block."""
    member = tarfile.TarInfo("state/large")
    member.size, member.uid, member.gid = size, os.getuid(), os.getgid()
    return gzip.compress(member.tobuf() + bytes(512))


def test_what_needs_more_room_than_there_is_is_refused_before_it_is_written(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, written = there(paths), os.open
    opened: list[str] = []

    def notes(path: Any, *how: Any, **more: Any) -> int:
        opened.append(str(path))
        return written(path, *how, **more)

    monkeypatch.setattr(os, "open", notes)
    with pytest.raises(DshpcError, match="more room than the state volume has") as told:
        check(paths, bomb(1 << 60))
    assert "64 MB" in told.value.details.replace("MiB", "MB")
    assert not [path for path in opened if path.endswith("large")]
    assert there(paths) == before


def test_many_small_files_count_as_well(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "_room", lambda _: 20 * 4096)
    names = [tarfile.TarInfo(f"state/{nth}") for nth in range(30)]
    for each in names:
        each.uid, each.gid = os.getuid(), os.getgid()
    before = there(paths)
    with pytest.raises(DshpcError, match="more room"):
        check(paths, packed(*((each, b"") for each in names)))
    assert there(paths) == before


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE])
def test_a_head_without_an_end_is_not_held_in_memory(paths: Paths, kind: bytes) -> None:
    head = tarfile.TarInfo("state/x")
    head.type, head.size = kind, 200 << 20
    packed_head = gzip.compress(head.tobuf() + bytes(100 << 20), 1)
    tracemalloc.start()
    with pytest.raises(DshpcError, match="no whole backup"):
        check(paths, packed_head)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 << 20


def test_no_end_of_zeros_is_read_for_ever(paths: Paths) -> None:
    with pytest.raises(DshpcError, match="no whole backup"):
        check(paths, gzip.compress(bytes(100 << 20), 1))


def test_no_folder_is_deeper_than_those_of_a_backup(paths: Paths) -> None:
    member = tarfile.TarInfo("state/" + "d/" * 3000 + "x")
    with pytest.raises(DshpcError, match="no whole backup"):
        check(paths, packed((member, b"x")))
