"""Why NVIDIA's driver did not load, or did not start a card, as the kernel's log says.

Sources of the texts: nv-pci.c, nv.c and osinit.c of NVIDIA/open-gpu-kernel-modules (NVRM: ...); Linux
kernel/module/main.c ("version magic"), kernel/module/version.c ("disagrees about version of symbol").
"""

from __future__ import annotations

from dshpc_setup import remedies
from dshpc_setup.diagnose.kernel_log import lines
from dshpc_setup.diagnose.model import Check, CheckInput, LogWords, Verdict, fault, fine, warning
from dshpc_setup.diagnose.nvidia_evidence import cards, driver_loaded, with_log
from dshpc_setup.diagnose.nvidia_past import still_said
from dshpc_setup.errors import Fix
from dshpc_setup.facts import UnusedGpu
from dshpc_setup.problems import NOUVEAU

NO_ADDRESSES = "DSH-NV-102"
HELD_BY_ANOTHER = "DSH-NV-103"
OTHER_KERNEL = "DSH-NV-104"
NO_POWER = "DSH-NV-105"

_NO_ADDRESSES = r"\bBAR\d is 0M @ 0x0"
_NOT_CALLED = r"NVRM: The NVIDIA probe routine was not called"
_OTHER_KERNEL = (
    r"\bnvidia\w*: (?:version magic '.{1,200}' should be|disagrees about version of symbol"
    r"|Unknown symbol \w+ \(err -22\))"
)
_NO_POWER = r"does not have the necessary power cables|NVRM: Xid \(.{8,60}\): 54\b"
_BY_NOUVEAU = ("nouveau", "nova_core", "nova-core")
_WHO = Fix(
    "See which one: it stands before these lines",
    "sudo dmesg | grep -iE 'nouveau|nova|fb'",
    step="look",
)
_SHOWN = 3


@with_log
def _addresses(known: CheckInput) -> Verdict:
    """Whether the firmware gave each card addresses for its memory."""
    told = still_said(known, _NO_ADDRESSES, _SHOWN)
    if not told:
        return fine()
    say = warning if cards(known) else fault
    cause = (
        "The machine's firmware gave the GPU no addresses for its memory (BAR is 0M): the driver cannot "
        "reach it."
    )
    return say(cause, *told, fix=remedies.address_space(known.facts))


@with_log
def _held(known: CheckInput) -> Verdict:
    """Whether another driver had the card when NVIDIA's was loaded; nouveau has a finding of its own."""
    told = lines(known.observed.kernel, _NOT_CALLED, 1)
    own = _of_nvidia(known)
    holders = [gpu for gpu in own if gpu.driver is not None]
    by_choice = [gpu for gpu in holders if gpu.driver == "vfio-pci"]
    by_nouveau = any(gpu.driver in _BY_NOUVEAU for gpu in holders)
    if not told or cards(known) or by_nouveau or (own and len(by_choice) == len(own)):
        return fine()
    names = tuple(f"{gpu.pci_bus_id}: bound to {gpu.driver}" for gpu in holders)
    unload = tuple(
        Fix(
            f"Unload {driver}, with no program and no screen on the card",
            f"sudo modprobe -r {driver}",
        )
        for driver in dict.fromkeys(gpu.driver for gpu in holders)
    )
    return fault(
        "Another driver had the NVIDIA card when NVIDIA's was loaded, which then has none.",
        *names,
        *told,
        fix=(
            *(unload or (_WHO,)),
            Fix("Load NVIDIA's driver again", "sudo modprobe nvidia"),
            Fix("Keep the other one from loading: a line `blacklist NAME` in a file of /etc/modprobe.d"),
        ),
    )  # fmt: skip


def _of_nvidia(known: CheckInput) -> list[UnusedGpu]:
    return [gpu for gpu in known.facts.gpus.unused if gpu.vendor == "nvidia"]


@with_log
def _built(known: CheckInput) -> Verdict:
    """Whether the driver's module was built for the kernel that runs."""
    told = lines(known.observed.kernel, _OTHER_KERNEL, _SHOWN)
    if not told or driver_loaded(known) or cards(known):
        return fine()
    return fault(
        "NVIDIA's module was built for another kernel than the one that runs, and this one refuses it "
        '("Exec format error", "Invalid argument").',
        *told,
        fix=remedies.rebuild_module(known.facts),
    )


@with_log
def _power(known: CheckInput) -> Verdict:
    """Whether a card's own power connectors are in use."""
    told = still_said(known, _NO_POWER, _SHOWN)
    if not told:
        return fine()
    say = warning if cards(known) else fault
    return say(
        "The card's own power connectors are not connected, or not all of them: the driver does not "
        "start it.",
        *told,
        fix=remedies.power_cables(known.facts),
    )


CHECKS: tuple[Check, ...] = (
    Check(NO_ADDRESSES, "driver", "Every NVIDIA card has addresses for its memory",
          "The firmware gave the GPU no addresses (BAR is 0M)", _addresses,
          in_log=(LogWords(_NO_ADDRESSES),)),
    Check(HELD_BY_ANOTHER, "driver", "No other driver was before NVIDIA's",
          "Another driver had the card when NVIDIA's was loaded", _held, because=(NOUVEAU,),
          in_log=(LogWords(_NOT_CALLED),)),
    Check(OTHER_KERNEL, "driver", "The NVIDIA driver's module fits the kernel",
          "The NVIDIA driver's module was built for another kernel", _built,
          in_log=(LogWords(_OTHER_KERNEL),)),
    Check(NO_POWER, "driver", "Every NVIDIA card has its power cables",
          "The card's power cables are not connected", _power,
          in_log=(LogWords(_NO_POWER),)),
)  # fmt: skip
