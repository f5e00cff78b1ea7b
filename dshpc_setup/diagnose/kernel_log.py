"""What the kernel's log says of NVIDIA's cards and switches, in values. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from dshpc_setup.diagnose.kernel_messages import joined
from dshpc_setup.diagnose.xid_catalogue import NVLINK_5, RECOVERY, Severity, of_sxid, of_xid
from dshpc_setup.observed.model import KernelLog

_ADDRESS = r"\((?:PCI:)?(?P<address>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?"
XID = rf"NVRM: Xid {_ADDRESS}(?: [^)]{{0,60}})?\): "
SXID = rf"nvidia-nvswitch\d{{1,3}}: SXid {_ADDRESS}\): "
"""What stands before the number."""
_XID = re.compile(rf"{XID}(?P<number>\d{{1,4}})\b", re.IGNORECASE | re.ASCII)
# "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"; the lines of the same
# error with its severity and its data come beside it
_SXID = re.compile(
    rf"{SXID}(?P<number>\d{{4,6}}), (?P<fatal>Fatal|Non-fatal)\b",
    re.IGNORECASE | re.ASCII,
)
_NONFATAL = re.compile(r"\bNon-?fatal\b", re.IGNORECASE)


@dataclass(frozen=True)
class Xid:
    """An error that NVIDIA's driver wrote down: of a GPU (Xid) or of an NVSwitch (SXid)."""

    number: int
    address: str  # as GpuDevice.pci_bus_id: 0000:41:00.0
    line: str
    severity: Severity
    words: str
    remedy: str


# nvmlDeviceGpuRecoveryAction_t: drivers word a number differently, "GPU Reset Required" and "PF FLR"
_STEP = re.compile(r"\bto 0x(?P<step>[0-9a-f]{1,8})\b", re.IGNORECASE)
_STEPS: dict[int, Literal["reset", "restart"]] = {
    1: "reset", 2: "restart", 4: "reset", 6: "reset", 7: "restart",
}  # fmt: skip
# nv.c: "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.124.06 ...", also of the open modules. The
# driver starts every card and switch anew then: what it wrote before is of an earlier start.
_LOADS = re.compile(r"NVRM: loading NVIDIA UNIX\b")


@lru_cache(maxsize=8)
def _messages(lines: tuple[str, ...]) -> tuple[str, ...]:
    return joined(lines)


def messages(log: KernelLog) -> tuple[str, ...]:
    """Its messages, oldest first; those of several lines are joined, also in reports of older versions."""
    return _messages(log.lines)


def xids(log: KernelLog) -> tuple[Xid, ...]:
    """Oldest first. Those of NVSwitches (SXid) are none."""
    found = ((line, _XID.search(line)) for line in messages(log))
    return tuple(_xid(line, match) for line, match in found if match)


def _xid(line: str, match: re.Match[str]) -> Xid:
    number = int(match["number"])
    means = of_xid(number)
    # NVLink 5 says in each line how grave it is; a line that does not is taken as it is catalogued
    harmless = number in NVLINK_5 and _NONFATAL.search(line) is not None
    severity: Severity = "note" if harmless else means.severity
    return Xid(number, _address(match["address"]), line, severity, means.words, means.remedy)


def sxids(log: KernelLog) -> tuple[Xid, ...]:
    """Of NVSwitches, oldest first."""
    found = ((line, _SXID.search(line)) for line in messages(log))
    return tuple(_sxid(line, match) for line, match in found if match)


def _sxid(line: str, match: re.Match[str]) -> Xid:
    number, fatal = int(match["number"]), match["fatal"].lower() == "fatal"
    means = of_sxid(number)
    severity: Severity = "fatal" if fatal else means.severity
    if severity == "fatal" and not fatal:
        severity = "fault"
    return Xid(number, _address(match["address"]), line, severity, means.words, means.remedy)


def past(log: KernelLog) -> frozenset[Xid]:
    """Errors of cards and switches that are over, by the driver's own words: it was loaded anew since, or
    said of the card that it wants no step any more (Xid 154, None).
    """
    over: set[Xid] = set()
    open_: dict[str, list[Xid]] = {}
    for line in messages(log):
        if _LOADS.match(line):
            over.update(item for items in open_.values() for item in items)
            open_.clear()
        item = _error(line)
        if item is None:
            continue
        over.discard(item)  # it came again
        told = _STEP.search(line) if item.number == RECOVERY else None
        if told is not None and int(told["step"], 16) == 0:
            over.update(open_.pop(item.address, ()))
        else:
            open_.setdefault(item.address, []).append(item)
    return frozenset(over)


def _error(line: str) -> Xid | None:
    if match := _XID.search(line):
        return _xid(line, match)
    match = _SXID.search(line)
    return _sxid(line, match) if match else None


def wanted(log: KernelLog, step: Literal["reset", "restart"]) -> dict[str, str]:
    """The cards for which the driver itself wants this step, each with the line that says so.

    A later line of a card takes the place of an earlier one, and nothing is wanted of a driver that was
    loaded anew.
    """
    over = past(log)
    newest = {
        item.address: item.line
        for item in xids(log)
        if item.number == RECOVERY and item not in over
    }
    return {address: line for address, line in newest.items() if _step_of(line) == step}


def _step_of(line: str) -> Literal["reset", "restart"] | None:
    told = _STEP.search(line)
    return None if told is None else _STEPS.get(int(told["step"], 16))


def _address(text: str) -> str:
    """ "0000:41:00" or "00000000:41:00" as sysfs has it; the function of a GPU is 0."""
    domain, rest = text.lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}.0"


def lines(log: KernelLog, pattern: str, most: int = 5) -> tuple[str, ...]:
    """The newest messages that hold the pattern, any case."""
    found = [line for line in messages(log) if re.search(pattern, line, re.IGNORECASE)]
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
