"""How full the disks are: what `df -P` answers, and what is not asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import probes
from dshpc_setup.checkup.disks import disks, parse
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.observed.model import Disk

MACHINE = Path(__file__).parents[2] / "machines/workstation-rtx4090"
FACTS = probes.gather(RecordedMachine(MACHINE))
HEAD = "Filesystem     1024-blocks     Used Available Capacity Mounted on\n"
KIB = HEAD + "/dev/sda1        264212084 42572168  63818744      41% /\n"
INODES = "Filesystem Inodes IUsed IFree IUse% Mounted on\n/dev/sda1 16777216 781774 15995442 5% /\n"
NO_INODES = "Filesystem Inodes IUsed IFree IUse% Mounted on\nbtrfs 0 0 0 - /home\n"


class Disks(RecordedMachine):
    """`df` answers by option; each path is there unless it is in `gone`."""

    stuck: tuple[str, ...] = ()  # asked for one of these, it never answers

    def __init__(self, answers: Mapping[str, str | None], gone: Sequence[str] = ()) -> None:
        super().__init__(MACHINE)
        self.answers, self.gone, self.asked = answers, gone, list[tuple[str, ...]]()

    def exists(self, path: str) -> bool:
        return path not in self.gone

    def run(self, argv: Sequence[str], **rest: Any) -> CommandResult:
        self.asked.append(tuple(argv))
        answer = self.answers[argv[1]]
        if answer is None or any(path in self.stuck for path in argv[2:]):
            return CommandResult(tuple(argv), "timeout", None, "", "", 3000.0)
        head, row = answer.splitlines()
        text = "\n".join([head, *(row for _ in argv[2:])])
        return CommandResult(tuple(argv), "present", 0, f"{text}\n", "", 1.0)


def test_room_and_inodes_of_each() -> None:
    found = disks(Disks({"-Pk": KIB, "-Pi": INODES}), FACTS, Path("/home/someone/cluster"))
    assert [(item.what, item.path) for item in found] == [
        ("engine", "/var/lib/docker"),
        ("project", "/home/someone/cluster"),
        ("tmp", "/tmp"),
    ]
    assert found[0] == Disk("engine", "/var/lib/docker", 62322, 258019, 15995442)


def test_the_work_folder_where_it_lies_elsewhere() -> None:
    found = disks(Disks({"-Pk": KIB, "-Pi": INODES}), FACTS, Path("/cluster"), "/scratch")
    assert ("work", "/scratch") in [(item.what, item.path) for item in found]


def test_a_file_system_without_a_number_of_inodes() -> None:
    found = disks(Disks({"-Pk": KIB, "-Pi": NO_INODES}), FACTS, None)
    assert {item.free_inodes for item in found} == {None}


def test_what_does_not_answer_is_left_out() -> None:
    assert disks(Disks({"-Pk": None, "-Pi": INODES}), FACTS, None) == ()


def test_all_are_asked_at_once_and_each_alone_where_one_hangs() -> None:
    machine = Disks({"-Pk": KIB, "-Pi": INODES})
    disks(machine, FACTS, None)
    assert machine.asked == [("df", option, "/var/lib/docker", "/tmp") for option in ("-Pk", "-Pi")]
    machine.stuck = ("/var/lib/docker",)
    (left,) = disks(machine, FACTS, None)
    assert (left.what, left.free_mib, left.free_inodes) == ("tmp", 62322, 15995442)


def test_what_is_not_there_is_not_asked() -> None:
    machine = Disks({"-Pk": KIB, "-Pi": INODES}, gone=("/var/lib/docker",))
    assert [item.what for item in disks(machine, FACTS, None)] == ["tmp"]
    assert all(argv[-1] == "/tmp" for argv in machine.asked)


@pytest.mark.parametrize("change", [{"kind": "desktop"}, {"kind": "remote"}, {"state": "denied"}])
def test_an_engine_elsewhere_has_its_disk_elsewhere(change: dict[str, Any]) -> None:
    facts = replace(FACTS, engine=replace(FACTS.engine, **change))
    found = disks(Disks({"-Pk": KIB, "-Pi": INODES}), facts, None)
    assert [item.what for item in found] == ["tmp"]


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ("/dev/sda1 100 40 60 40% /", ((100, 60),)),
        ("server:/a folder/with spaces 100 40 60 40% /mnt/b c", ((100, 60),)),
        ("/dev/full 100 105 -5 105% /", ((100, 0),)),
        ("tmpfs 0 0 0 - /tmp", ((0, 0),)),
        ("/dev/a 100 40 60 40% /\n/dev/b 9 4 5 4% /b", ((100, 60), (9, 5))),
        ("/dev/a 100 40 60 40% /\ndf: /x: Input/output error", ()),
        ("", ()),
    ],
)
def test_rows(rows: str, found: tuple[tuple[int, int], ...]) -> None:
    assert parse(f"{HEAD}{rows}\n" if rows else HEAD) == found


@given(st.text(max_size=200))
def test_any_answer(text: str) -> None:
    assert all(min(room) >= 0 for room in parse(text))


@given(st.integers(0, 10**15), st.integers(-(10**9), 10**15))
def test_any_numbers(size: int, free: int) -> None:
    assert parse(f"{HEAD}/dev/x {size} 1 {free} 1% /mnt\n") == ((size, max(0, free)),)
