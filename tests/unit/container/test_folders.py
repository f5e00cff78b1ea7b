"""The host name and the key of auth/slurm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup.container import folders
from dshpc_setup.container.places import Places
from dshpc_setup.errors import DshpcError

ME = (os.getuid(), os.getgid())


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "etc").mkdir()
    (tmp_path / "var/lib/dshpc/key").mkdir(parents=True)
    return Places(str(tmp_path))


def test_a_name_of_the_hosts_file_is_left_alone(places: Places, tmp_path: Path) -> None:
    hosts = tmp_path / "etc/hosts"
    hosts.write_text("127.0.0.1 localhost\n172.17.0.2\tdshpc\n")

    def asked(name: str) -> bool:
        raise AssertionError("it stands in the file: nobody is asked")

    assert folders.host_name_note(places, "dshpc", asked) is None
    assert hosts.read_text() == "127.0.0.1 localhost\n172.17.0.2\tdshpc\n"


def test_a_name_that_dns_knows_is_left_alone(places: Places, tmp_path: Path) -> None:
    (tmp_path / "etc/hosts").write_text("")
    assert folders.host_name_note(places, "dshpc", lambda _: True) is None
    assert (tmp_path / "etc/hosts").read_text() == ""


@pytest.mark.parametrize("before", ["", "127.0.0.1 localhost\n", "# dshpc\n1.2.3.4 my-dshpc"])
def test_a_name_that_nobody_knows_is_added_and_said(
    places: Places, tmp_path: Path, before: str
) -> None:
    hosts = tmp_path / "etc/hosts"
    hosts.write_text(before)
    note = folders.host_name_note(places, "dshpc", lambda _: False)
    assert note is not None
    assert "dshpc" in note
    assert hosts.read_text().startswith(before)
    assert hosts.read_text().splitlines()[-1] == "127.0.0.1\tdshpc"
    assert folders.host_name_note(places, "dshpc", lambda _: False) is None


def test_a_key_is_made_once(places: Places) -> None:
    assert folders.ensure_key(places, ME) is not None
    key = Path(places.key)
    content = key.read_bytes()
    assert len(content) == 1024
    assert key.stat().st_mode & 0o7777 == 0o600
    assert folders.ensure_key(places, ME) is None
    assert key.read_bytes() == content


def test_two_deployments_have_two_keys(places: Places, tmp_path: Path) -> None:
    folders.ensure_key(places, ME)
    first = Path(places.key).read_bytes()
    Path(places.key).unlink()
    folders.ensure_key(places, ME)
    assert Path(places.key).read_bytes() != first


def test_a_mode_that_let_nobody_else_in_is_put_right(places: Places) -> None:
    folders.ensure_key(places, ME)
    Path(places.key).chmod(0o400)
    note = folders.ensure_key(places, ME)
    assert note is not None
    assert "0400" in note
    assert Path(places.key).stat().st_mode & 0o7777 == 0o600


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o602])
def test_a_key_that_others_may_know_or_have_made_is_refused(places: Places, mode: int) -> None:
    folders.ensure_key(places, ME)
    Path(places.key).chmod(mode)
    with pytest.raises(DshpcError, match="not safe") as caught:
        folders.ensure_key(places, ME)
    assert caught.value.resolution
    assert Path(places.key).stat().st_mode & 0o7777 == mode


def test_a_link_in_place_of_the_key_is_refused(places: Places, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"x" * 1024)
    Path(places.key).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DshpcError, match="not a plain file"):
        folders.ensure_key(places, ME)


def test_an_empty_key_is_refused(places: Places) -> None:
    Path(places.key).touch(0o600)
    with pytest.raises(DshpcError, match="0 bytes"):
        folders.ensure_key(places, ME)
