"""Intel's drivers and cards."""

from __future__ import annotations

import re

from dshpc_setup.diagnose import kernel_log
from dshpc_setup.diagnose.common import by_choice, none_of, of_vendor
from dshpc_setup.diagnose.kernel_messages import devices
from dshpc_setup.diagnose.model import (
    Check,
    CheckInput,
    LogWords,
    Verdict,
    fault,
    fine,
    unknown,
    warning,
)
from dshpc_setup.errors import Fix
from dshpc_setup.facts import UnusedGpu

# i915_gpu_error.c prints "GPU HANG: ecode 12:1:0020fffe, in NAME [PID]"; xe_guc_submit.c prints
# "GT0: Engine reset: engine_class=ccs, ..." and "Timedout job: seqno=..."
_HANG = re.compile(r"\bGPU HANG: ecode |\bxe\b.*(?:Engine reset: |Timedout job: )")
_SHOWN = 5


def told(known: CheckInput) -> set[str]:
    """Addresses of the cards of which `_driver` tells."""
    return {card.pci_bus_id for card in broken(known) if card.pci_bus_id}


def broken(known: CheckInput) -> tuple[UnusedGpu, ...]:
    """Intel's cards that jobs could use if their driver were well."""
    return tuple(
        item
        for item in known.facts.gpus.unused
        if item.vendor == "intel" and item.code in ("no-driver", "no-render-node")
    )


def _driver(known: CheckInput) -> Verdict:
    cards = broken(known)
    if not cards:
        return fine() if of_vendor(known, "intel") else none_of(known, "intel")
    told = fault if not known.facts.gpus.devices else warning
    first = cards[0]
    holds = f"the driver {first.driver} holds it" if first.driver else "no driver holds it"
    return told(
        f"The Intel card at {first.pci_bus_id} has no render node, so that no program can compute on "
        f"it: {holds}. Arc A and Data Center GPUs take i915 or xe, Arc B takes xe of a kernel newer "
        "than 6.11.",
        *(f"{card.pci_bus_id}: {card.reason}" for card in cards),
        fix=(
            Fix("Load the drivers", "sudo modprobe -a i915 xe"),
            Fix(
                "See what they say of the card; one that is too new for them is named there",
                "sudo dmesg | grep -iE 'i915|xe '",
                step="look",
            ),
            Fix("Where the kernel is older than the card, install a newer kernel", "uname -r"),
        ),
    )


def _hangs(known: CheckInput) -> Verdict:
    if not of_vendor(known, "intel") and not broken(known):
        return none_of(known, "intel")
    unread = kernel_log.why_unread(known.observed.kernel)
    if unread is not None:
        return unknown(unread)
    aside = {
        at
        for item in known.facts.gpus.unused
        if item.vendor == "intel" and by_choice(item)
        for at in devices(item.pci_bus_id or "")
    }
    lines = [
        line
        for line in kernel_log.messages(known.observed.kernel)
        if _HANG.search(line) and not (devices(line) and devices(line) <= aside)
    ]
    if not lines:
        return fine("no hang in the kernel's log")
    return warning(
        "The kernel reset an Intel GPU that hung. The program that ran on it was ended, and the "
        "card may hang again.",
        *lines[-_SHOWN:],
        fix=(
            Fix(
                "See which program it was",
                "sudo dmesg | grep -E 'GPU HANG|Engine reset|Timedout'",
                step="look",
            ),
            Fix("Where that comes back, update the kernel and Intel's compute runtime"),
        ),
    )


CHECKS: tuple[Check, ...] = (
    Check("DSH-GP-020", "driver", "Intel's driver has its cards", "Intel's GPU driver is missing",
          _driver),
    Check("DSH-GP-021", "driver", "No Intel GPU has hung", "An Intel GPU has hung", _hangs,
          in_log=(LogWords(_HANG.pattern),)),
)  # fmt: skip
