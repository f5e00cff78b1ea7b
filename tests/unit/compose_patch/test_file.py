"""The file on disk: owner, mode, links and line ends stay; nothing is lost; nothing is half written."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.compose_patch import file as compose_file
from dshpc_setup.errors import DshpcError, Exit
from tests.unit.compose_patch.expected import refused


@pytest.fixture
def compose(tmp_path: Path) -> Path:
    path = tmp_path / "compose.yml"
    path.write_bytes(b"old\r\n")
    path.chmod(0o640)
    return path


def test_replaced_with_its_mode_and_a_backup(compose: Path) -> None:
    kept = compose_file.replace(compose_file.read(compose), "new\r\n")
    assert compose.read_bytes() == b"new\r\n"
    assert compose.stat().st_mode & 0o777 == 0o640
    assert kept.name == "compose.yml.dshpc-backup"
    assert kept.read_bytes() == b"old\r\n"
    assert kept.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in compose.parent.iterdir()) == [compose.name, kept.name]


def test_an_older_backup_is_never_lost(compose: Path) -> None:
    first = compose_file.replace(compose_file.read(compose), "second\n")
    second = compose_file.replace(compose_file.read(compose), "old\r\n")
    again = compose_file.replace(compose_file.read(compose), "third\n")
    assert (first.read_bytes(), second.read_bytes()) == (b"old\r\n", b"second\n")
    assert again == first
    (compose.parent / "compose.yml.dshpc-backup.3").symlink_to("nowhere")
    assert compose_file.replace(compose_file.read(compose), "x").name.endswith(".4")


def test_a_link_stays_a_link(compose: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    link = folder / "docker-compose.yml"
    link.symlink_to("../compose.yml")
    kept = compose_file.replace(compose_file.read(link), "new\n")
    assert os.readlink(link) == "../compose.yml"
    assert compose.read_bytes() == b"new\n"
    assert kept == compose.with_name("compose.yml.dshpc-backup")


def test_what_was_changed_meanwhile_is_not_overwritten(compose: Path) -> None:
    found = compose_file.read(compose)
    compose.write_bytes(b"edited\n")
    assert "was changed while this ran" in refused(compose_file.replace, found, "new").brief
    assert compose.read_bytes() == b"edited\n"
    assert [path.name for path in compose.parent.iterdir()] == ["compose.yml"]


def test_two_runs_at_once(compose: Path) -> None:
    found = compose_file.read(compose)
    with compose.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert "Another run" in refused(compose_file.replace, found, "new").brief
    assert [path.name for path in compose.parent.iterdir()] == ["compose.yml"]
    compose_file.replace(found, "new")
    assert "was changed" in refused(compose_file.replace, found, "other").brief
    compose.unlink()
    assert "was changed" in refused(compose_file.replace, found, "other").brief


def test_a_file_system_without_locks(compose: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    compose_file.replace(compose_file.read(compose), "new")
    assert compose.read_text() == "new"


def test_a_mode_that_was_changed_meanwhile_stays(compose: Path) -> None:
    found = compose_file.read(compose)
    compose.chmod(0o600)
    compose_file.replace(found, "new")
    assert compose.stat().st_mode & 0o777 == 0o600


def test_what_is_no_compose_file(tmp_path: Path) -> None:
    error = refused(compose_file.read, tmp_path / "none.yml")
    assert (error.exit_code, error.brief) == (Exit.USAGE, f"There is no file {tmp_path}/none.yml.")
    (tmp_path / "compose.yaml").write_text("a")
    error = refused(compose_file.read, tmp_path)
    assert error.exit_code == Exit.USAGE
    assert error.resolution == (f"Name it: {tmp_path}/compose.yaml",)
    assert refused(compose_file.read, tmp_path / "compose.yaml" / "x").exit_code == Exit.USAGE
    os.mkfifo(tmp_path / "pipe")
    assert "is not a file" in refused(compose_file.read, tmp_path / "pipe").brief
    (tmp_path / "loop").symlink_to("loop")
    assert refused(compose_file.read, tmp_path / "loop").brief.startswith("Cannot read")
    (tmp_path / "large").write_bytes(b" " * (4 * 1024 * 1024 + 1))
    assert "too large" in refused(compose_file.read, tmp_path / "large").brief


def test_what_is_no_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.yml"
    path.write_bytes("a: b\n# f\u00fcr\n".encode("latin-1"))
    error = refused(compose_file.read, path)
    assert error.brief == f"{path}:2: this is not UTF-8 text."
    assert error.exit_code == Exit.ERROR
    path.write_bytes("a: b\n".encode("utf-16"))
    assert "not UTF-8" in refused(compose_file.read, path).brief


def test_another_ones_file_is_refused(compose: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compose_file.read(compose)
    compose_file.need_writable(found)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.setattr(os, "access", lambda *_: True)
    assert "another user" in refused(compose_file.need_writable, found).details
    monkeypatch.setattr(os, "access", lambda path, _: path != found.path.parent)
    assert "its folder" in refused(compose_file.need_writable, found).details
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "not write to it" in refused(compose_file.need_writable, found).details


@given(st.binary(max_size=60))
def test_any_bytes_are_kept_or_refused(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "compose.yml"
    path.write_bytes(raw)
    try:
        found = compose_file.read(path)
    except DshpcError as error:
        assert "UTF-8" in error.brief
        return
    assert compose_file.replace(found, f"# new\n{found.text}").read_bytes() == raw
    assert path.read_bytes() == b"# new\n" + raw
