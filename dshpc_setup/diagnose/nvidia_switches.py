"""What the kernel's log says of NVSwitches, which join the GPUs of a machine.

Source: Fabric Manager for NVIDIA NVSwitch Systems User Guide, appendix "NVLink Errors".
"""

from __future__ import annotations

from dshpc_setup import remedies
from dshpc_setup.diagnose.kernel_log import SXID, Xid, past, sxids
from dshpc_setup.diagnose.model import (
    Check,
    CheckInput,
    LogWords,
    Verdict,
    fault,
    fine,
    note,
    warning,
)
from dshpc_setup.diagnose.nvidia_evidence import silent, titled, with_log
from dshpc_setup.diagnose.xid_catalogue import SXIDS as CATALOGUED
from dshpc_setup.errors import Fix
from dshpc_setup.remedies import Fixes

SXIDS = "DSH-NV-101"

_SHOWN = 5


@with_log
def _switches(known: CheckInput) -> Verdict:
    """Errors that the driver of the NVSwitches wrote down since the machine started."""
    log = known.observed.kernel
    found = [item for item in sxids(log) if item not in past(log)]
    grave = [item for item in found if item.severity == "fatal"]
    hard = grave or [item for item in found if item.severity == "fault"]
    words = tuple(item.line for item in (hard or found)[-_SHOWN:])
    if hard:
        say, what = (fault, "a fatal error") if grave else (warning, "errors")
        cause = f"The driver reported {what} of an NVSwitch, which joins the GPUs. {_worded(hard)}."
        return say(cause, *words, fix=_after_switch(known, hard))
    if not found:
        return fine()
    told = f"An NVSwitch reported events that need no action. {_worded(found)}."
    return titled("An NVSwitch reported events (SXid)", note(told, *words))


def _after_switch(known: CheckInput, items: list[Xid]) -> Fixes:
    kinds = {item.remedy for item in items}
    steps: list[Fix] = []
    if "restart" in kinds or silent(known):
        steps += remedies.reboot(known.facts)
    elif "reset" in kinds:
        steps += remedies.reset_fabric(known.facts)
    if "cooling" in kinds:
        steps.append(
            Fix(
                "See to the machine's cooling: fans, filters, the air that it is given", step="look"
            )
        )
    if "cables" in kinds:
        steps.append(Fix("Have the link's cables and connectors seen to"))
    steps.append(
        Fix("See which NVLink connections are down", "nvidia-smi nvlink --status", step="look")
    )
    steps.append(Fix("Where it comes again at one switch or link, ask the seller"))
    return tuple(dict.fromkeys(steps))


def _worded(items: list[Xid]) -> str:
    return "; ".join(dict.fromkeys(f"SXid {item.number}: {item.words}" for item in items))


_GRAVE = sorted(
    number for number, each in CATALOGUED.items() if each.severity in ("fatal", "fault")
)

CHECKS: tuple[Check, ...] = (
    Check(SXIDS, "driver", "The kernel's log holds no error of an NVSwitch",
          "The kernel's log holds SXid errors of an NVSwitch", _switches,
          in_log=(LogWords(rf"{SXID}\d{{4,6}}, Fatal\b"),
                  LogWords(rf"{SXID}(?:{'|'.join(map(str, _GRAVE))}), Non-fatal\b"))),
)  # fmt: skip
