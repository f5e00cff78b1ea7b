"""The host name."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup.container import folders
from dshpc_setup.slurm.paths import Paths


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "etc").mkdir()
    (tmp_path / "var/lib/dshpc/key").mkdir(parents=True)
    return Paths(str(tmp_path))


def test_a_name_of_the_hosts_file_is_left_alone(paths: Paths, tmp_path: Path) -> None:
    hosts = tmp_path / "etc/hosts"
    hosts.write_text("127.0.0.1 localhost\n172.17.0.2\tdshpc\n")

    def asked(name: str) -> bool:
        raise AssertionError("it stands in the file: nobody is asked")

    assert folders.host_name_note(paths, "dshpc", "dshpc", asked) is None
    assert hosts.read_text() == "127.0.0.1 localhost\n172.17.0.2\tdshpc\n"


def test_a_name_that_dns_knows_is_left_alone(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "etc/hosts").write_text("")
    assert folders.host_name_note(paths, "dshpc", "dshpc", lambda _: True) is None
    assert (tmp_path / "etc/hosts").read_text() == ""


@pytest.mark.parametrize("before", ["", "127.0.0.1 localhost\n", "# dshpc\n1.2.3.4 my-dshpc"])
def test_a_name_that_nobody_knows_is_added_and_said(
    paths: Paths, tmp_path: Path, before: str
) -> None:
    hosts = tmp_path / "etc/hosts"
    hosts.write_text(before)
    note = folders.host_name_note(paths, "dshpc", "dshpc", lambda _: False)
    assert note is not None
    assert "dshpc" in note
    assert hosts.read_text().startswith(before)
    assert hosts.read_text().splitlines()[-1] == "127.0.0.1\tdshpc"
    assert folders.host_name_note(paths, "dshpc", "dshpc", lambda _: False) is None


def test_another_name_of_the_node_gets_the_address_of_the_containers_own(
    paths: Paths, tmp_path: Path
) -> None:
    hosts = tmp_path / "etc/hosts"
    hosts.write_text("127.0.0.1 localhost\n172.17.0.2\tdshpc # ours\n172.17.0.9 dshpc\n")
    note = folders.host_name_note(paths, "node1", "dshpc", lambda _: False)
    assert note is not None
    assert "172.17.0.2" in note
    assert hosts.read_text().splitlines()[-1] == "172.17.0.2\tnode1"
