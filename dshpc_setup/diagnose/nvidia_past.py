"""What the kernel's log says of NVIDIA's cards and is over by now, as the cards themselves show. Pure.

A log goes back to the machine's start, weeks or months. A card may have been reset since, or its driver
loaded anew, which older drivers do not write down; but a card that answers has not fallen off the bus, and
one that counts no uncorrected error since its start has met none since.

Sources: NVIDIA GPU Memory Error Management (what a reset ends, volatile counts), its Xid catalogue.
"""

from __future__ import annotations

from dshpc_setup.diagnose.kernel_log import Xid, lines, past, wanted, xids
from dshpc_setup.diagnose.kernel_messages import devices
from dshpc_setup.diagnose.model import CheckInput
from dshpc_setup.diagnose.nvidia_evidence import cards, silent
from dshpc_setup.facts import GpuDevice
from dshpc_setup.problems import LOST, RESET, UNREADABLE

_UNREACHED = (54, 79, 143)  # no power, off the bus, not started: such a card does not answer
_MEMORY = (48, 63, 64, 94, 95, 140, 171, 172)
_MOST = 50


def over(known: CheckInput) -> frozenset[Xid]:
    """The errors of cards that need no step any more; a card that the driver does not reach has none."""
    log = known.observed.kernel
    ended, open_ = past(log), {*wanted(log, "reset"), *wanted(log, "restart")}
    answering = {gpu.pci_bus_id: gpu for gpu in _answering(known) if gpu.pci_bus_id not in open_}
    return frozenset(
        item
        for item in xids(log)
        if (gpu := answering.get(item.address)) is not None
        and (item in ended or _shows(gpu, item.number))
    )


def still_said(known: CheckInput, pattern: str, most: int) -> tuple[str, ...]:
    """The newest messages that hold the pattern, without those of cards that run by now."""
    running = running_at(known)
    found = lines(known.observed.kernel, pattern, _MOST)
    return tuple(line for line in found if not devices(line) or devices(line) - running)[-most:]


def running_at(known: CheckInput) -> frozenset[str]:
    """Where the cards are that the driver reaches, as `devices` has addresses."""
    return frozenset(
        address
        for gpu in _answering(known)
        if gpu.pci_bus_id
        for address in devices(gpu.pci_bus_id)
    )


def _answering(known: CheckInput) -> list[GpuDevice]:
    if silent(known):
        return []  # what was told before the driver hung is no sign of health
    lost = {LOST, RESET, UNREADABLE}
    return [gpu for gpu in cards(known) if not lost & set(gpu.problems)]


def _shows(gpu: GpuDevice, number: int) -> bool:
    """Whether the card as it is now cannot have such an error open."""
    if number in _UNREACHED:
        return True
    health = gpu.health
    if number not in _MEMORY or health is None or health.volatile_dram is None:
        return False
    waits = health.remap_pending or health.retirement_pending
    broken = health.remap_failed or health.sram_over_threshold
    return not (health.volatile_dram or health.volatile_sram or waits or broken)
