"""The kernel's log: which lines are kept, and what it means where it cannot be read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from dshpc_setup.checkup import kernel
from dshpc_setup.diagnose.kernel_messages import MOST_LETTERS
from dshpc_setup.facts import Platform
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.observed.model import KernelLog
from dshpc_setup.probes.kernel_text import JOURNAL

MACHINE = Path(__file__).parents[2] / "machines/workstation-rtx4090"

KEPT = (
    "NVRM: Xid (PCI:0000:41:00): 79, pid=1, name=python, GPU has fallen off the bus.",
    "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
    "Loading of unsigned module is rejected",
    "Loading of module with unavailable key is rejected",
    "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
    "nouveau 0000:01:00.0: NVIDIA AD102 (192000a1)",
    "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!",
    "kfd kfd: amdgpu: skipped device 1002:67df, PCI rejects atomics 730<0",
    "INFO: task nvidia-smi:4711 blocked for more than 120 seconds.",
    "i915 0000:00:02.0: [drm] GPU HANG: ecode 12:1:85dffffb, in python [4711]",
    "xe 0000:03:00.0: [drm] GPU HANG: ecode 12:1:85dffffb",
)
LEFT = (
    "docker0: port 1(veth9d22e55) entered disabled state",
    "Loading of firmware is slow",
    "INFO: task python:4711 blocked for more than 120 seconds.",
    "i915 0000:00:02.0: [drm] Finished loading DMC firmware",
    "usb 1-1: new device of somebody",
)
STAMPS = ("", "[27634.522699] ", "[    0.000000] ", "[    4.501000][    T1] ", "<6>[    4.5010] ")


@pytest.mark.parametrize("stamp", STAMPS)
def test_lines_about_gpus_without_their_times(stamp: str) -> None:
    text = "\n".join(stamp + line for pair in zip(KEPT, LEFT * 3, strict=False) for line in pair)
    assert kernel.parse(text + "\n") == KEPT


def test_a_message_of_two_lines() -> None:
    text = (
        "[    5.5] NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:2c58)\n"
        "               NVRM: installed in this system requires use of the NVIDIA open kernel modules.\n"
    )
    assert kernel.parse(text) == (
        "NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:2c58) installed in this system requires use of "
        "the NVIDIA open kernel modules.",
    )


def test_the_same_words_of_two_cards_stay_with_each() -> None:
    """Line by line the second card's took the first one's away."""
    one = "NVRM: The NVIDIA GPU 0000:{}:00.0 (PCI ID: 10de:1db5)"
    rest = (
        "NVRM: installed in this system is not supported by open\nNVRM: nvidia.ko because of it.\n"
    )
    text = "".join(f"{one.format(bus)}\n{rest}" for bus in ("3b", "af"))
    assert [("supported by open nvidia.ko" in line) for line in kernel.parse(text)] == [True, True]


def test_the_newest_are_kept_and_each_text_once() -> None:
    text = "\n".join(f"[    {at}.0] NVRM: Xid number {at // 2}" for at in range(1000))
    found = kernel.parse(text)
    assert len(found) == kernel.MOST_LINES
    assert (found[0], found[-1]) == ("NVRM: Xid number 300", "NVRM: Xid number 499")


def test_what_comes_again_stands_where_it_came_last() -> None:
    wish = "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1"
    over = "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 to 0x0 (None)"
    lines = (f"[  {at}.0] {line}" for at, line in enumerate((wish, over, wish)))
    assert kernel.parse("\n".join(lines)) == (over, wish)


@given(
    st.text()
    | st.lists(st.sampled_from((*KEPT, *LEFT, "\x1b[31mNVRM\x00", "NVRM " * 200))).map("\n".join)
)
@example("NVRM: " + "x" * 100_000)
@example("[" * 5000 + "NVRM")
def test_what_is_kept_fits_a_screen_and_stays_the_same(text: str) -> None:
    found = kernel.parse(text)
    assert len(found) <= kernel.MOST_LINES
    assert len(set(found)) == len(found)
    for line in found:
        assert 0 < len(line) <= MOST_LETTERS
        assert line.isprintable()
    assert set(kernel.parse("\n".join(found))) <= set(found)


class Fake(RecordedMachine):
    """A machine whose dmesg ends as it is told to."""

    def __init__(
        self, state: Any, code: int | None = 0, stdout: str = "", stderr: str = ""
    ) -> None:
        super().__init__(MACHINE)
        self.result = CommandResult(("dmesg",), state, code, stdout, stderr, 1.0)
        self.asked: list[tuple[str, ...]] = []

    def run(self, argv: Any, *, deadline_s: float, **kwargs: Any) -> CommandResult:
        assert deadline_s == kernel.DEADLINE_S == 3.0
        self.asked.append(tuple(argv))
        return self.result

    def which(self, program: str) -> str | None:
        return f"/usr/bin/{program}"


LINUX = Platform("linux")


def test_the_log_of_this_machine() -> None:
    machine = Fake("present", 0, f"[    1.000000] {KEPT[0]}\n[    2.000000] {LEFT[0]}\n")
    assert kernel.read_log(machine, LINUX) == KernelLog("present", KEPT[:1])
    assert machine.asked == [("dmesg",)]
    assert kernel.read_log(Fake("present"), Platform("wsl2")) == KernelLog("present")


@pytest.mark.parametrize(
    ("machine", "state"),
    [
        (
            Fake("present", 1, "", "dmesg: read kernel buffer failed: Operation not permitted"),
            "denied",
        ),
        (Fake("present", 1, "", "dmesg: klogctl: Operation not permitted"), "denied"),
        (Fake("present", 1, "", "dmesg: /dev/kmsg: Permission denied"), "denied"),
        (Fake("present", 1, KEPT[0], "dmesg: unknown option"), "error"),
        (Fake("absent", None), "absent"),
        (Fake("timeout", None, KEPT[0]), "timeout"),
        (Fake("denied", None), "denied"),
    ],
)
def test_a_log_that_cannot_be_read(machine: Fake, state: str) -> None:
    assert kernel.read_log(machine, LINUX) == KernelLog(state)  # type: ignore[arg-type]
    asked = [argv[0] for argv in machine.asked]
    assert asked == (["dmesg", "journalctl"] if state == "denied" else ["dmesg"])


HINT = (
    "Hint: You are currently not seeing messages from other users and the system.\n"
    "      Users in groups 'adm', 'systemd-journal' can see all messages.\n"
)
REFUSED = {"argv": ["dmesg"], "code": 1, "stdout": "",
           "stderr": "dmesg: read kernel buffer failed: Operation not permitted\n"}  # fmt: skip


def journal(code: int, stdout: str, stderr: str = "") -> dict[str, Any]:
    return {"argv": list(JOURNAL), "code": code, "stdout": stdout, "stderr": stderr}


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., RecordedMachine]:
    """A recorded machine on which these commands answer, and no others."""

    def made(*commands: dict[str, Any]) -> RecordedMachine:
        folder = tmp_path / "machine"
        shutil.copytree(MACHINE, folder, ignore=shutil.ignore_patterns("observed", "expected"))
        (folder / "commands.yaml").write_text(yaml.safe_dump(list(commands)))
        about = yaml.safe_load((folder / "machine.yaml").read_text())
        names = {item["argv"][0] for item in commands}
        about["programs"] = {
            name: f"/usr/bin/{name}" if name in names else None for name in ("dmesg", "journalctl")
        }
        (folder / "machine.yaml").write_text(yaml.safe_dump(about))
        return RecordedMachine(folder)

    return made


def test_where_dmesg_is_for_root_alone_the_journal_is_read(
    recorded: Callable[..., RecordedMachine],
) -> None:
    machine = recorded(REFUSED, journal(0, f"{LEFT[0]}\n{KEPT[0]}\n{KEPT[1]}\n"))
    assert kernel.read_log(machine, LINUX) == KernelLog("present", KEPT[:2])


@pytest.mark.parametrize(
    "answer",
    [
        None,
        journal(1, "", "No journal files were opened due to insufficient permissions.\n"),
        journal(0, "-- No entries --\n", HINT),
        journal(0, f"{KEPT[0]}\n", HINT),
        journal(0, "-- No entries --\n"),
        journal(0, ""),
        journal(1, KEPT[0], "Failed to open journal"),
    ],
)
def test_a_journal_that_does_not_tell_either(
    answer: dict[str, Any] | None, recorded: Callable[..., RecordedMachine]
) -> None:
    machine = recorded(REFUSED, *([answer] if answer else []))
    assert kernel.read_log(machine, LINUX) == KernelLog("denied")


def test_a_journal_without_a_word_of_gpus_is_read_all_the_same(
    recorded: Callable[..., RecordedMachine],
) -> None:
    machine = recorded(REFUSED, journal(0, f"{LEFT[0]}\n"))
    assert kernel.read_log(machine, LINUX) == KernelLog("present")


@pytest.mark.parametrize(
    "platform", [Platform("linux", in_container=True), Platform("macos"), Platform("wsl1")]
)
def test_where_the_kernel_is_not_ours_nothing_is_asked(platform: Platform) -> None:
    machine = Fake("present", 0, KEPT[0])
    assert kernel.read_log(machine, platform) == KernelLog("absent")
    assert machine.asked == []
