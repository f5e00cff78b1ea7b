"""The errors that NVIDIA's drivers number: Xid of GPUs, SXid of NVSwitches; what each means, how grave it
is, and what is to be done first.

Sources of the figures: NVIDIA Xid Errors, "Analyzing Xid Errors with the Xid Catalog" (docs.nvidia.com/
deploy/xid-errors: resolution buckets, also of Xid 144 to 150), and its list for older GPUs; nverror.h of
NVIDIA/open-gpu-kernel-modules; Fabric Manager for NVIDIA NVSwitch Systems User Guide, appendix "NVLink
Errors" (non-fatal, fatal, always fatal and other notable SXid errors), and the names in its driver.
What both mark as unused is not here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["fatal", "fault", "program", "note"]
"""fatal: the device is of no use until the step is taken. fault: it works, and somebody has to act.
program: mostly a program's own. note: nothing to do."""

Remedy = Literal[
    "reset", "restart", "replace", "driver", "power", "update", "cooling", "cables", "none"
]


@dataclass(frozen=True)
class Meaning:
    """A few words, how grave it is, and what kind of step comes first."""

    words: str
    severity: Severity
    remedy: Remedy = "none"


def _each(numbers: Iterable[int], meaning: Meaning) -> dict[int, Meaning]:
    return dict.fromkeys(numbers, meaning)


_STOPPED = Meaning("an engine of the GPU stopped a program's work", "program")
_COPY = Meaning("a copy engine stopped a program's work", "program")
_VIDEO = Meaning("a video or image engine stopped a program's work", "program")
_DISPLAY = Meaning("an error of the display part", "note")
_SMOOTHING = Meaning("the hardware that smooths power changed its state", "note")

RECOVERY = 154
"""Says which step the driver itself wants: "GPU recovery action changed from 0x0 (None) to ...". """

NVLINK_5 = range(144, 151)
"""Whose lines say themselves whether they are fatal: "145, RLW_REMAP Fatal XC0 i0 Link 00 (...)"."""

XIDS: dict[int, Meaning] = {
    # -- the GPU is of no use until it was reset, restarted or fixed
    46: Meaning("the GPU stopped processing", "fatal", "reset"),
    48: Meaning("a memory error that ECC could not correct", "fatal", "reset"),
    54: Meaning("the card's extra power is not connected", "fatal", "power"),
    62: Meaning("a processor inside the GPU (PMU) halted", "fatal", "reset"),
    64: Meaning("bad memory could not be replaced by spare memory", "fatal", "replace"),
    79: Meaning("the GPU has fallen off the bus", "fatal", "restart"),
    95: Meaning("a memory error that may have harmed every program (uncontained)", "fatal", "reset"),
    109: Meaning("the GPU did not change from one program to another in time", "fatal", "reset"),
    110: Meaning("a security fault", "fatal", "reset"),
    119: Meaning("the GPU's own processor (GSP) did not answer the driver", "fatal", "driver"),
    120: Meaning("the GPU's own processor (GSP) failed", "fatal", "driver"),
    136: Meaning("an NVLink connection could not be trained", "fatal", "reset"),
    140: Meaning("a memory error that ECC could not correct", "fatal", "reset"),
    143: Meaning("the GPU could not be started", "fatal", "reset"),
    144: Meaning("an NVLink 5 error (SAW)", "fatal", "reset"),
    145: Meaning("an NVLink 5 error (RLW)", "fatal", "reset"),
    146: Meaning("an NVLink 5 error (TLW)", "fatal", "reset"),
    147: Meaning("an NVLink 5 error (TREX)", "fatal", "reset"),
    148: Meaning("an NVLink 5 error (NVLPW)", "fatal", "reset"),
    149: Meaning("an NVLink 5 error (NETIR): mostly a link that went down", "fatal", "reset"),
    150: Meaning("an NVLink 5 error (MSE)", "fatal", "reset"),
    151: Meaning("a key of confidential computing could not be changed", "fatal", "restart"),
    158: Meaning("the GPU did not answer in time", "fatal", "reset"),
    167: Meaning("the GPU did not answer over PCIe in time", "fatal", "reset"),
    169: Meaning("a processor inside the GPU (SEC2) halted", "fatal", "reset"),
    171: Meaning("an error of the GPU's memory (DRAM) that ECC could not correct", "fatal", "reset"),
    172: Meaning("an error inside the GPU's chip (SRAM) that ECC could not correct", "fatal", "reset"),
    # -- it works, and somebody has to act
    57: Meaning("the GPU's memory could not be set up", "fault", "reset"),
    58: Meaning("the connection to the GPU's memory is not stable", "fault", "reset"),
    **_each((59, 61), Meaning("a processor inside the GPU (PMU) stopped its work", "fault", "reset")),
    63: Meaning("memory is to be replaced by spare memory, which a reset does", "fault", "reset"),
    74: Meaning("an NVLink connection failed", "fault", "reset"),
    78: Meaning("a vGPU could not be started", "fault", "update"),
    92: Meaning("many memory errors, which ECC corrected", "fault"),
    94: Meaning("a memory error that ended one program (contained)", "fault", "reset"),
    155: Meaning("an NVLink connection was taken down", "fault", "reset"),
    156: Meaning("a part of the GPU is to be replaced by a spare one, which a reset does", "fault",
                 "reset"),
    157: Meaning("a bad part of the GPU could not be replaced by a spare one", "fault", "replace"),
    168: Meaning("bad memory where the GPU keeps its firmware, with ECC off", "fault", "replace"),
    # -- mostly a program's
    8: Meaning("the GPU stopped a program that did not end in time", "program"),
    **_each((11, 25, 32, 80), Meaning("a program sent commands that the GPU does not know", "program")),
    13: Meaning("a program made the graphics engine fail", "program"),
    31: Meaning("a program used memory that is not its own", "program"),
    43: Meaning("a program was stopped by an error of its own", "program"),
    45: Meaning("a program's work was cleaned up after an earlier error", "program"),
    69: Meaning("a program gave the graphics engine a wrong command", "program"),
    **_each((39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)), _COPY),
    **_each((60, 65, 68, 73, 82, 83, 84, 86, 88, 89, 96, 97, 98, *range(99, 106), 139, 142), _VIDEO),
    141: _STOPPED,
    # -- nothing to do
    **_each((37, 38, 44, 66, 67), Meaning("an error of the driver's firmware, which continued", "note")),
    **_each((56, *range(112, 119)), _DISPLAY),
    93: Meaning("the card's own storage (InfoROM) is worn by many writes", "note"),
    **_each((106, 107), Meaning("a test message of the machine's management", "note")),
    121: Meaning("an error of the link to the processor (C2C), which continued", "note"),
    137: Meaning("an access over NVLink was refused", "note"),
    **_each((152, 153), Meaning("an error of the deep learning accelerator (DLA)", "note")),
    159: Meaning("an error of the coherent link to the processor (CHI)", "note"),
    **_each((160, 161), Meaning("a channel of the GPU's memory was taken out of use", "note")),
    **_each(range(162, 166), _SMOOTHING),
    **_each((166, 170), Meaning("NVLink traffic that confidential computing does not allow", "note")),
}  # fmt: skip
"""Xid -> what it means. Of NVLINK_5 the line says whether it is fatal."""

# -- SXid --------------------------------------------------------------------------------------------

_UNITS: dict[int, str] = {
    10: "the switch's connection to the machine", 11: "a port's input", 12: "a port's output",
    13: "a port's table of requests", 14: "a port's table of requests", 15: "a port's routing",
    16: "a port", 17: "a link's control", 18: "a link's interface", 19: "a link's transaction layer",
    20: "a link's physical layer", 21: "the switch's crossbar", 22: "a link's controller (MINION)",
    23: "the switch's crossbar", 24: "a port's table of sources", 25: "a link's interface",
    26: "the switch's processor (SOE)", 27: "an optical module", 28: "an optical module's temperature",
    29: "a port's table of multicasts", 30: "a port's table of reductions",
}  # fmt: skip
"""The thousands of an SXid's number: which part of the NVSwitch reports."""

_CORRECTED = Meaning("memory errors, which ECC corrected", "note")
_STALLED = Meaning("a GPU's traffic over NVLink is stalled", "fault", "reset")

SXIDS: dict[int, Meaning] = {
    **_each((11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011, 19049, 19055, 19057, 19059, 19062,
             19065, 19068, 19071, 24001, 24002, 24003), _CORRECTED),
    **_each((10001, 10002), Meaning("the driver was refused a register of the switch", "note")),
    10003: Meaning("the switch interrupted for a reason that is not known", "fatal", "reset"),
    10004: Meaning("the switch is too hot", "fault", "cooling"),
    10005: Meaning("the switch has cooled down", "note"),
    11004: Meaning("a packet that the partitions of the fabric do not allow", "fault", "reset"),
    12028: _STALLED,
    19084: Meaning("a link's heartbeat stopped", "fault", "reset"),
    20001: Meaning("packets had to be sent again", "note"),
    **_each((20009, 20010, 20012), Meaning("a link has many bit errors", "fault", "cables")),
    22013: Meaning("a link's controller told of an event", "note"),
    **_each((28001, 28003, 28005), Meaning("an optical module is too hot", "fault", "cooling")),
    **_each((11001, 11009, 11013, 11018, 11019, 11020, 12001, 12002, 12022, 12024, 12025, 12026, 12027,
             12030, 12031, 12032, 14017, 15001, 15006, 15009, 15010, 15012, 15013, 19047, 19048, 19054,
             19056, 19058, 19060, 19061, 19063, 19064, 19066, 19067, 19069, 19070, 24004, 24005, 24006,
             24007), Meaning("an error of a port or a link", "fatal", "reset")),
    20034: Meaning("a link went down", "fatal", "reset"),
    22012: Meaning("a link's controller failed", "fatal", "reset"),
    12020: Meaning("packets came out of order", "fatal", "restart"),
    **_each((22003, 22011), Meaning("the processor of the links (MINION) halted", "fatal", "restart")),
    **_each(range(23001, 23018), Meaning("the switch's crossbar failed", "fatal", "restart")),
}  # fmt: skip
"""SXid -> what it means. The line says itself whether it is fatal here."""


def of_xid(number: int) -> Meaning:
    """What an Xid means; of a number that is not known, that NVIDIA's catalogue has it."""
    return XIDS.get(number) or Meaning("see the Xid catalogue of NVIDIA", "note")


def of_sxid(number: int) -> Meaning:
    """What an SXid means; of a number that is not known, which part of the switch reports it."""
    unit = _UNITS.get(number // 1000, "a part of the switch")
    return SXIDS.get(number) or Meaning(f"an error of {unit}", "note", "reset")
