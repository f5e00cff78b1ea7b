"""The files of a tree that lies under another root: nothing of our own machine shows through."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup.machine import commands
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.probes import platform


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A root with a folder beside it that no path of the tree may reach."""
    root = tmp_path / "root"
    for folder in ("etc", "usr/lib", "proc/sys/kernel", "sys/bus/pci/devices", "sys/devices/pci0"):
        (root / folder).mkdir(parents=True)
    (root / "usr/lib/os-release").write_text("ID=inside\n")
    (tmp_path / "secret").write_text("outside\n")
    return root


@pytest.mark.parametrize(
    "target",
    ["/usr/lib/os-release", "../usr/lib/os-release", "../../../../usr/lib/os-release"],
)
def test_links_lead_to_the_trees_own(tree: Path, target: str) -> None:
    (tree / "etc/os-release").symlink_to(target)
    assert LocalMachine(str(tree)).read("/etc/os-release").text == "ID=inside\n"
    assert platform.probe(LocalMachine(str(tree)), 1.0).fact.os_id == "inside"


def test_a_link_to_what_only_we_have_leads_nowhere(tree: Path) -> None:
    (tree / "etc/os-release").symlink_to("/etc/os-release")  # to itself
    (tree / "etc/passwd").symlink_to("/etc/passwd-")
    (tree / "etc/up").symlink_to("../../secret")
    (tree / "etc/folder").symlink_to("/etc")
    machine = LocalMachine(str(tree))
    assert machine.read("/etc/os-release").state == "error"
    assert machine.access("/etc/os-release") == "error"
    assert machine.read("/etc/passwd").state == "absent"
    assert machine.read("/etc/up").state == "absent"
    assert machine.read("/../secret").state == "absent"
    assert machine.listdir("/etc/folder") == ("folder", "os-release", "passwd", "up")
    assert (machine.exists("/etc/passwd"), machine.exists("/etc/nothing")) == (True, False)


def test_when_a_file_changed_and_what_number_a_device_has(tree: Path) -> None:
    (tree / "etc/file").write_text("")
    (tree / "etc/link").symlink_to("file")
    (tree / "etc/out").symlink_to("../../secret")
    machine = LocalMachine(str(tree))
    assert machine.changed("/etc/link") == os.stat(tree / "etc/file").st_ctime
    assert (machine.changed("/etc/none"), machine.changed("/etc/out")) == (None, None)
    assert LocalMachine().device_number("/dev/null") == (1, 3)
    assert (machine.device_number("/etc/file"), machine.device_number("/etc/none")) == (None, None)
    assert (machine.device_number("\0"), machine.changed("\0")) == (None, None)


def test_how_large_a_file_system_is(tree: Path) -> None:
    found = os.statvfs(tree)
    size = found.f_blocks * found.f_frsize // (1 << 20)
    machine = LocalMachine(str(tree))
    assert (machine.disk_mib("/etc"), machine.disk_mib("/")) == (size, size)
    assert (machine.disk_mib("/none"), machine.disk_mib("\0")) == (None, None)
    assert LocalMachine().disk_mib("/proc") is None, "it has no size"


def test_links_of_sysfs_are_seen_and_followed(tree: Path) -> None:
    (tree / "sys/devices/pci0/0000:01:00.0").mkdir()
    (tree / "sys/devices/pci0/0000:01:00.0/vendor").write_text("0x10de\n")
    link = tree / "sys/bus/pci/devices/0000:01:00.0"
    link.symlink_to("../../../devices/pci0/0000:01:00.0")
    (tree / "sys/devices/pci0/0000:01:00.0/driver").symlink_to("/sys/bus/pci/drivers/nvidia")
    machine = LocalMachine(str(tree))
    assert machine.read("/sys/bus/pci/devices/0000:01:00.0/vendor").text == "0x10de\n"
    assert (
        machine.readlink("/sys/bus/pci/devices/0000:01:00.0/driver")
        == "/sys/bus/pci/drivers/nvidia"
    )


@pytest.mark.parametrize(
    ("files", "release"),
    [
        ({"osrelease": "6.1.0-mine\n"}, "6.1.0-mine"),
        ({"../../version": "Linux version 5.15.167.4-microsoft-standard-WSL2 (root@x)\n"},
         "5.15.167.4-microsoft-standard-WSL2"),
        ({"../../version": "garbage"}, ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_the_kernel_is_the_trees(tree: Path, files: dict[str, str], release: str) -> None:
    for name, text in files.items():
        (tree / "proc/sys/kernel" / name).write_text(text)
    machine = LocalMachine(str(tree))
    assert machine.system == ("Linux", release, "")
    fact = platform.probe(machine, 1.0).fact
    assert (fact.kernel, fact.arch) == (release or None, None)
    assert fact.kind == ("wsl2" if "WSL2" in release else "linux")


def test_the_processor_is_the_trees(tree: Path) -> None:
    (tree / "proc/sys/kernel/arch").write_text("aarch64\n")
    assert LocalMachine(str(tree)).system[2] == "aarch64"
    assert LocalMachine().system == (os.uname().sysname, os.uname().release, os.uname().machine)


def test_what_tells_of_our_own_container_tells_nothing_of_a_tree(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("container", "podman")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    assert {"container", "KUBERNETES_SERVICE_HOST"} <= set(LocalMachine().env)
    assert not platform.in_container(LocalMachine(str(tree)))
    assert LocalMachine(str(tree)).env["LD_LIBRARY_PATH"] == "/opt/lib"
    (tree / ".dockerenv").touch()
    assert platform.in_container(LocalMachine(str(tree)))


def test_the_engine_is_asked_for_a_tree_only_where_one_is_named(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    reply = LocalMachine(str(tree)).docker(1.0)
    assert reply.state == "unsupported"
    assert "DOCKER_HOST" in (reply.detail or "")


@pytest.mark.parametrize("root", [True, False])
def test_what_is_no_file_is_never_waited_for(tree: Path, root: bool) -> None:
    os.mkfifo(tree / "proc/cpuinfo")
    path = "/proc/cpuinfo" if root else str(tree / "proc/cpuinfo")
    machine = LocalMachine(str(tree) if root else "/")
    read = machine.read(path)
    assert (read.state, read.detail) == ("error", "not a regular file")
    assert machine.read("/etc" if root else "/dev/zero").state == "error"


def test_a_program_is_no_text(tree: Path) -> None:
    (tree / "usr/tool").write_bytes(b"\x7fELF\x02\x01" + bytes(100))
    assert LocalMachine(str(tree)).read("/usr/tool").detail == "a program, and no text"
    (tree / "usr/tool").write_bytes(b"\xff\xfe")
    assert LocalMachine(str(tree)).read("/usr/tool").text == "\ufffd\ufffd"


@pytest.mark.parametrize("path", ["/a\0b", "/" + "x" * 5000, "/", "//etc//os-release"])
def test_odd_paths_are_answers(tree: Path, path: str) -> None:
    for machine in (LocalMachine(str(tree)), LocalMachine()):
        machine.read(path)
        machine.exists(path)
        machine.listdir(path)
        machine.readlink(path)
        machine.is_device(path)
        machine.group_of(path)
        machine.access(path)


def test_a_folder_that_may_not_be_listed_is_denied(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LocalMachine(str(tree)).read("/sys/bus").state == "error"

    def refused(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    assert LocalMachine(str(tree)).read("/sys/bus").state == "denied"


def test_programs_and_libraries_tell_their_processor(tmp_path: Path) -> None:
    def elf(bits: int, number: int) -> bytes:
        return b"\x7fELF" + bytes((bits, 1)) + bytes(12) + number.to_bytes(2, "little") + b"more"

    for name, head in (
        ("old", elf(1, 3)), ("new", elf(2, 62)), ("arm", elf(2, 183)), ("rare", elf(2, 8)),
        ("script", b"#!/bin/sh\nexec /opt/tool\n"), ("short", b"\x7fELF"), ("empty", b""),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(head)
    (tmp_path / "link").symlink_to("/new")
    (tmp_path / "nowhere").symlink_to("/none")
    machine = LocalMachine(str(tmp_path))
    told = {name: machine.binary(f"/{name}").architecture for name in os.listdir(tmp_path)}
    assert told == {
        "old": "i686", "new": "x86_64", "arm": "aarch64", "rare": "machine 8", "link": "x86_64",
        "script": None, "short": None, "empty": None, "nowhere": None,
    }  # fmt: skip
    assert {machine.binary(f"/{name}").state for name in ("old", "rare", "link")} == {"present"}
    assert {machine.binary(f"/{name}").state for name in ("script", "empty", "")} == {"unsupported"}
    assert {machine.binary(f"/{name}").state for name in ("none", "nowhere", "new/x")} == {"absent"}
    assert machine.binary("/\0").state == "error"


def test_a_line_without_an_end_is_told_in_parts(tmp_path: Path) -> None:
    """Of a machine that is asked by ssh, say: it would be kept in memory for as long as it goes on."""
    told: list[str] = []
    (tmp_path / "said").write_bytes(b"x" * 3_000_000)
    with (tmp_path / "said").open("rb") as stream:
        lines = commands._Lines(stream, told.append)
        for _ in range(3):
            lines.pump()
        assert lines._rest == b""
        lines.pump(last=True)
    assert "".join(told) == "x" * 3_000_000
