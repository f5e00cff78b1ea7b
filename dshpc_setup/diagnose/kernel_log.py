"""What the kernel's log says of NVIDIA's cards, in values. Pure.

Source: NVIDIA's Xid catalogue (docs: Xid Errors, "Analyzing Xid Errors with the Xid Catalog") for what
the numbers mean and what is to be done first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from dshpc_setup.observed import KernelLog

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<address>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?"
    r"(?: [^)]{0,60})?\): (?P<number>\d{1,4})\b",
    re.IGNORECASE | re.ASCII,
)

Remedy = Literal["reset", "restart", "watch", "replace", "driver"]


@dataclass(frozen=True)
class Xid:
    """An error that NVIDIA's driver wrote down."""

    number: int
    address: str  # as GpuDevice.pci_bus_id: 0000:41:00.0
    line: str


@dataclass(frozen=True)
class Meaning:
    """Of an Xid that is about a card: a few words, and what kind of step comes first."""

    words: str
    remedy: Remedy


CARD: dict[int, Meaning] = {
    48: Meaning("a memory error that ECC could not correct", "reset"),
    63: Meaning("memory is to be replaced by spare memory, which a reset does", "reset"),
    64: Meaning("bad memory could not be replaced by spare memory", "replace"),
    74: Meaning("an NVLink connection failed", "reset"),
    79: Meaning("the GPU has fallen off the bus", "restart"),
    92: Meaning("many memory errors, which ECC corrected", "watch"),
    94: Meaning("a memory error that ended one program (contained)", "reset"),
    95: Meaning("a memory error that may have harmed every program (uncontained)", "reset"),
    119: Meaning("the GPU's own processor (GSP) did not answer the driver", "driver"),
    120: Meaning("the GPU's own processor (GSP) failed", "driver"),
}
"""Faults of a card, or of what it is plugged into."""

PROGRAM: dict[int, str] = {
    13: "a program made the graphics engine fail",
    31: "a program used memory that is not its own",
    43: "a program was stopped by an error of its own",
    45: "a program's work was cleaned up after an earlier error",
}
"""Mostly faults of a program."""

RECOVERY = 154
"""Says which step the driver itself wants: "GPU recovery action changed from 0x0 (None) to ...". """

# nvmlDeviceGpuRecoveryAction_t: drivers word a number differently, "GPU Reset Required" and "PF FLR"
_STEP = re.compile(r"\bto 0x(?P<step>[0-9a-f]{1,8})\b", re.IGNORECASE)
_STEPS: dict[int, Literal["reset", "restart"]] = {1: "reset", 2: "restart", 4: "reset"}


def xids(log: KernelLog) -> tuple[Xid, ...]:
    """Oldest first. Those of NVSwitches (SXid) are none."""
    found = ((line, _XID.search(line)) for line in log.lines)
    return tuple(
        Xid(int(match["number"]), _address(match["address"]), line)
        for line, match in found
        if match
    )


def wanted(log: KernelLog, step: Literal["reset", "restart"]) -> dict[str, str]:
    """The cards for which the driver itself wants this step, each with the line that says so.

    A later line of a card takes the place of an earlier one.
    """
    newest = {item.address: item.line for item in xids(log) if item.number == RECOVERY}
    return {address: line for address, line in newest.items() if _step_of(line) == step}


def _step_of(line: str) -> Literal["reset", "restart"] | None:
    told = _STEP.search(line)
    return None if told is None else _STEPS.get(int(told["step"], 16))


def _address(text: str) -> str:
    """ "0000:41:00" or "00000000:41:00" as sysfs has it; the function of a GPU is 0."""
    domain, rest = text.lower().split(":", 1)
    return f"{domain[-4:]}:{rest}.0"


def lines(log: KernelLog, pattern: str, most: int = 5) -> tuple[str, ...]:
    """The newest lines that hold the pattern, any case."""
    found = [line for line in log.lines if re.search(pattern, line, re.IGNORECASE)]
    return tuple(found[-most:])


def why_unread(log: KernelLog) -> str | None:
    """Why nothing is known of the log; None where it was read."""
    words = {
        None: "The kernel's log was not read.",
        "denied": "This user may not read the kernel's log: run `sudo dshpc doctor`, or look at "
        "`sudo dmesg`. Members of the group systemd-journal may read it in the journal.",
        "absent": "There is no kernel log to read here: this is a container, or dmesg is missing.",
        "timeout": "The kernel's log could not be read in time.",
        "unsupported": "This system has no kernel log that can be read.",
        "error": "The kernel's log could not be read.",
    }
    return None if log.state == "present" else words[log.state]
