"""The machine that writes down: everything that was asked is in the log, whoever asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.machine import Ended, Machine, Read, Reply, Say, workers
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.machine.recording import RecordingMachine
from tests.unit.machine.in_place import InPlace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("sys/bus", "sys/devices/card0", "dev", "proc/self", "etc"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "sys/devices/card0/vendor").write_text("0x10de\n")
    (tmp_path / "sys/bus/card0").symlink_to("../devices/card0")
    (tmp_path / "sys/gone").symlink_to("nowhere")
    (tmp_path / "proc/self/status").write_text("x\n")
    for name in ("nvidia0", "tty7", "dri"):
        (tmp_path / "dev" / name).write_text("")
    return tmp_path


def recorder(root: Path) -> RecordingMachine:
    return RecordingMachine(InPlace(str(root)))


def test_a_file_is_kept_where_it_really_lies(root: Path) -> None:
    machine = recorder(root)
    assert machine.read("/sys/bus/card0/vendor").text == "0x10de\n"
    tree = machine.log.tree()
    assert tree.texts == {"/sys/devices/card0/vendor": "0x10de\n"}
    assert tree.links == {"/sys/bus/card0": "../devices/card0"}


def test_absent_things_leave_nothing_behind(root: Path) -> None:
    machine = recorder(root)
    assert machine.read("/sys/none").state == "absent"
    assert not machine.exists("/sys/none")
    assert machine.listdir("/sys/none") == ()
    assert (machine.readlink("/sys/none"), machine.group_of("/sys/none")) == (None, None)
    assert machine.access("/sys/none") == "absent"
    assert machine.log.tree().names() == frozenset()


def test_times_and_device_numbers_are_kept_where_the_thing_is(root: Path) -> None:
    class Numbered(InPlace):
        def device_number(self, path: str) -> tuple[int, int] | None:
            return (195, 0) if path == "/dev/nvidia0" else None

    machine = RecordingMachine(Numbered(str(root)))
    when = machine.changed("/sys/bus/card0/vendor")
    assert when == os.stat(root / "sys/devices/card0/vendor").st_ctime
    assert machine.device_number("/dev/nvidia0") == (195, 0)
    assert (machine.changed("/sys/none"), machine.device_number("/dev/dri")) == (None, None)
    tree = machine.log.tree()
    assert tree.changed == {"/sys/devices/card0/vendor": when}
    assert tree.there == {"/sys/devices/card0/vendor"}
    assert tree.numbers == {"/dev/nvidia0": (195, 0)}
    assert tree.devices == {"/dev/nvidia0"}


def test_what_a_library_is_for_is_kept_where_it_lies(root: Path) -> None:
    (root / "usr/lib").mkdir(parents=True)
    (root / "usr/lib/libx.so.2").write_bytes(b"\x7fELF\2\1" + bytes(12) + b"\x3e\0")
    (root / "usr/lib/libx.so").symlink_to("libx.so.2")
    (root / "usr/lib/tool").write_text("#!/bin/sh\n")
    machine = recorder(root)
    for name, wanted in (("libx.so", "present"), ("tool", "unsupported"), ("none", "absent")):
        assert machine.binary(f"/usr/lib/{name}").state == wanted
    tree = machine.log.tree()
    assert tree.architectures == {"/usr/lib/libx.so.2": "x86_64", "/usr/lib/tool": "none"}
    assert tree.there == {"/usr/lib/libx.so.2", "/usr/lib/tool"}
    assert tree.links == {"/usr/lib/libx.so": "libx.so.2"}


def test_sizes_of_file_systems_are_kept_as_they_were_asked_for(root: Path) -> None:
    machine = recorder(root)
    size = machine.disk_mib("/sys/")
    assert size
    assert machine.disk_mib("/none") is None
    assert machine.log.disks == {"/sys": size}


def test_a_link_to_nowhere_and_an_empty_folder_are_there(root: Path) -> None:
    machine = recorder(root)
    assert machine.exists("/sys/gone")
    assert machine.listdir("/etc") == ()
    assert machine.readlink("/sys/gone") == "nowhere"
    tree = machine.log.tree()
    assert dict(tree.links) == {"/sys/gone": "nowhere"}
    assert set(tree.there) == {"/etc"}


def test_of_dev_only_what_has_to_do_with_gpus_is_kept(root: Path) -> None:
    machine = recorder(root)
    assert "tty7" in machine.listdir("/dev"), "the probe sees them all"
    assert machine.log.tree().there == {"/dev/nvidia0", "/dev/dri"}


def test_a_process_own_folder_is_kept_under_its_common_name(root: Path) -> None:
    (root / "proc/4711").mkdir()
    (root / "proc/self/status").unlink()
    (root / "proc/self").rmdir()
    (root / "proc/self").symlink_to("4711")
    (root / "proc/4711/status").write_text("mine\n")
    machine = recorder(root)
    machine.read("/proc/self/status")
    assert machine.log.tree().texts == {"/proc/self/status": "mine\n"}
    assert machine.log.tree().links == {}


def test_of_two_answers_the_first_is_kept(root: Path) -> None:
    machine = recorder(root)
    machine.read("/proc/self/status")
    (root / "proc/self/status").write_text("other\n")
    machine.read("/proc/self/status")
    assert machine.log.tree().texts == {"/proc/self/status": "x\n"}


def test_denied_and_failing_reads_are_kept_as_such() -> None:
    class Failing(InPlace):
        def read(self, path: str) -> Read:
            return Read("denied", detail="no") if path == "/a" else Read("error", detail="I/O")

    machine = RecordingMachine(Failing("/nonexistent"))
    machine.read("/a")
    machine.read("/b")
    tree = machine.log.tree()
    assert (tree.denied, tree.errors) == ({"/a": "no"}, {"/b": "I/O"})


class Killed(LocalMachine):
    """Its questions are asked in processes that are killed in the middle, as a deadline does."""

    def apart(
        self,
        questions: Mapping[str, Callable[[Say], None]],
        *,
        deadline_s: float,
        meanwhile: Callable[[], object] | None = None,
        on_item: Callable[[Any], object] | None = None,
    ) -> Mapping[str, Ended]:
        found = {}
        for name, question in questions.items():
            items: list[object] = []

            def say(item: object, items: list[object] = items) -> None:
                items.append(item)

            try:
                question(say)
            except InterruptedError:
                found[name] = Ended("timeout", tuple(items), "no answer", 1.0)
            else:
                found[name] = Ended("present", tuple(items), None, 1.0)
        return found

    def read(self, path: str) -> Read:
        if path == "/proc/stuck":
            raise InterruptedError
        return super().read(path)

    def nvml(self, deadline_s: float) -> Reply:
        raise InterruptedError

    def which(self, program: str) -> str | None:
        return f"/usr/bin/{program}" if program == "docker" else None


def test_what_hung_is_known_and_what_came_before_it_is_kept(root: Path) -> None:
    machine = RecordingMachine(Killed(str(root)))

    def stuck(say: Say) -> None:
        machine.read("/proc/self/status")
        say("half")
        machine.read("/proc/stuck")

    ended = machine.apart(
        {
            "file": stuck,
            "library": lambda say: say(machine.nvml(3.0)),
            "good": lambda say: say(machine.which("docker")),
        },
        deadline_s=1,
    )
    assert ended["file"].items == ("half",), "our own notes are taken out"
    assert ended["good"].items == ("/usr/bin/docker",)
    machine.log.close()
    tree = machine.log.tree()
    assert tree.hangs == {"/proc/stuck"}
    assert tree.texts == {"/proc/self/status": "x\n"}
    assert machine.log.replies["nvml"].state == "timeout"
    assert machine.log.programs == {"docker": "/usr/bin/docker"}


def test_what_one_process_could_not_read_and_another_could_does_not_hang(root: Path) -> None:
    base = Killed(str(root))
    machine = RecordingMachine(base)
    machine.apart({"a": lambda say: say(machine.read("/proc/stuck"))}, deadline_s=1)
    assert machine.log.tree().hangs == {"/proc/stuck"}
    (root / "proc/stuck").write_text("now\n")
    machine.base = InPlace(str(root))
    machine.read("/proc/stuck")
    assert machine.log.tree().hangs == frozenset()


def test_it_is_a_machine() -> None:
    machine: Machine = RecordingMachine(LocalMachine())
    assert machine.uid == os.geteuid()
    assert machine.simulated is None
    assert machine.clock() <= machine.clock()
    assert workers.in_place({}) == {}
