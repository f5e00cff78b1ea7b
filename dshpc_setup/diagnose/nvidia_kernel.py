"""What the kernel's log says of NVIDIA's driver: refused, of the wrong kind, too new; errors of cards.

Sources of the texts: Linux kernel/module/signing.c; NVIDIA's driver (NVRM: ...), as in
NVIDIA/open-gpu-kernel-modules, and its Xid catalogue.
"""

from __future__ import annotations

import re
from collections import Counter

from dshpc_setup import remedies
from dshpc_setup.diagnose.common import named
from dshpc_setup.diagnose.kernel_log import XID, Xid, lines, wanted, xids
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
from dshpc_setup.diagnose.nvidia_evidence import (
    cards,
    driver_loaded,
    evidence,
    nvml_code,
    silent,
    titled,
    with_log,
)
from dshpc_setup.diagnose.nvidia_past import over, still_said
from dshpc_setup.diagnose.xid_catalogue import NVLINK_5, RECOVERY
from dshpc_setup.diagnose.xid_catalogue import XIDS as XIDS_CATALOGUED
from dshpc_setup.errors import Fix
from dshpc_setup.problems import LOST
from dshpc_setup.remedies import Fixes
from dshpc_setup.remedies.driver import DRIVER_GUIDE
from dshpc_setup.terminal.sanitize import often

UNSIGNED = "DSH-NV-004"
WRONG_MODULES = "DSH-NV-005"
XIDS = "DSH-NV-081"
GPU_TOO_OLD = "DSH-NV-084"

# A module that was let in leaves "module verification failed ... tainting kernel": no refusal.
_REFUSED = (
    r"Loading of .{0,60}module.{0,60} is rejected|unsigned module loading is restricted"
    r"|Key was rejected by service"
)
_WANTS_OPEN = r"requires use of the NVIDIA open kernel modules"
# Over two lines: "NVRM: installed in this system is not supported by open", "NVRM: nvidia.ko because ..."
_WANTS_PROPRIETARY = r"not supported by open nvidia\.ko"
_LEGACY = r"supported through the NVIDIA (?P<series>\d{2,3})\.\S{1,4} Legacy drivers"
_IGNORED = r"NVIDIA driver will ignore this GPU"
_KEYS = {
    "ubuntu": "/var/lib/shim-signed/mok/MOK.der",
    "debian": "/var/lib/dkms/mok.pub",
    "fedora": "/etc/pki/akmods/certs/public_key.der",
}
_NO_LIBRARY = 12  # NVML's
_BY_RESET = ("reset", "replace", "driver")  # a reset is their first step
_SHOWN = 5


@with_log
def _signed(known: CheckInput) -> Verdict:
    """Whether the kernel refused the driver for want of a signature."""
    refused = lines(known.observed.kernel, _REFUSED)
    if not refused or driver_loaded(known) or cards(known):
        return fine()
    if nvml_code(known) == _NO_LIBRARY:
        return fine()  # NVIDIA's driver is not installed: the module is another's
    return fault(
        "The kernel takes signed modules only, as with Secure Boot, and refused one that has no key it "
        'knows: mostly NVIDIA\'s ("Key was rejected by service").',
        *refused,
        fix=_sign(known),
    )


def _sign(known: CheckInput) -> Fixes:
    """Enrol the key with which the distribution signed the module."""
    key = _KEYS.get(known.facts.platform.os_id or "")
    text = "Enrol the key that signed the driver's module; you choose a password for the next step"
    enrol = (
        Fix(text, f"sudo mokutil --import {key}")
        if key
        else Fix(
            f"{text}: sudo mokutil --import KEY, as your distribution's guide to Secure Boot says"
        )
    )
    return (
        Fix("See whether Secure Boot is on", "mokutil --sb-state", step="look"),
        enrol,
        Fix("Restart the machine, and choose Enroll MOK on the blue screen", "sudo reboot"),
        Fix("Or switch Secure Boot off in the machine's firmware setup", step="alternative"),
    )


@with_log
def _flavour(known: CheckInput) -> Verdict:
    """Whether the driver's kernel modules are of the kind that the GPU needs: open or proprietary."""
    module = evidence(known, "nvidia-module")
    kind = module.module if module is not None else None
    words = (module.detail or "") if module is not None else ""
    wants_open = still_said(known, _WANTS_OPEN, 2)
    wants_other = still_said(known, _WANTS_PROPRIETARY, 2)
    say = warning if cards(known) else fault
    if wants_open and kind != "nvidia-open":
        cause = (
            "This GPU needs NVIDIA's open kernel modules, and the proprietary ones are installed."
        )
        return say(cause, *_with_about(known, wants_open), fix=_open_modules(known))
    if wants_other and kind != "nvidia-proprietary":
        cause = (
            "NVIDIA's open kernel modules are installed, and this GPU is too old for them: it has no GSP "
            "(they need Turing or newer)."
        )
        fix = remedies.proprietary_modules(known.facts, _series(known))
        return say(cause, *_with_about(known, wants_other), fix=fix)
    return fine(*filter(None, (words,)))


def _series(known: CheckInput) -> int | None:
    """The driver's: of what answers, else of what the kernel loaded, which a refused card ends with."""
    loading = lines(known.observed.kernel, r"NVRM: loading NVIDIA UNIX", 1)
    told = (known.facts.gpus.driver_version, *loading)
    found = (re.search(r"(?<![\d.])(\d{3})\.\d{1,3}\b", text or "", re.ASCII) for text in told)
    return next((int(match[1]) for match in found if match), None)


def _with_about(known: CheckInput, told: tuple[str, ...]) -> tuple[str, ...]:
    """The lines, and those that name the card; a line may do both."""
    about = lines(known.observed.kernel, r"NVRM: The NVIDIA GPU |RmInitAdapter failed", 2)
    return tuple(dict.fromkeys((*told, *about)))


def _open_modules(known: CheckInput) -> Fixes:
    """The packages with the open modules; Ubuntu's have the driver's series in their names."""
    platform, text = known.facts.platform, "Install the driver with the open kernel modules"
    series = re.match(r"\d{3}", known.facts.gpus.driver_version or "", re.ASCII)
    command = None
    if platform.os_id == "ubuntu" and series:
        command = f"sudo apt-get install -y nvidia-driver-{series[0]}-open"
    elif platform.os_id == "debian":
        command = "sudo apt-get install -y nvidia-open-kernel-dkms"
    elif remedies.family(platform) == "arch":
        command = "sudo pacman -S --needed nvidia-open nvidia-utils"
    elif remedies.family(platform) == "nixos":
        text, command = (
            "Put hardware.nvidia.open = true; into configuration.nix",
            "sudo nixos-rebuild boot",
        )
    install = Fix(text, command) if command else Fix(f"{text}: {DRIVER_GUIDE}")
    return (install, *remedies.reboot(known.facts))


@with_log
def _supported(known: CheckInput) -> Verdict:
    """Whether the driver has left this GPU to an older series of drivers."""
    told = still_said(known, _LEGACY, 2)
    told = told or still_said(known, _IGNORED, 2)
    if not told:
        return fine()
    series = next((match["series"] for line in told if (match := re.search(_LEGACY, line))), None)
    which = f"the series {series}" if series else "an older series"
    if cards(known):
        return warning(
            f"The installed driver no longer knows this GPU, which needs {which}: jobs do not get it.",
            *told,
            fix=(Fix("Leave it unused, or take it out: a machine has one NVIDIA driver at a time, and "
                     "the older one may not know the GPUs that work now"),),
        )  # fmt: skip
    fix = Fix(f"Install NVIDIA's driver of {which}, the last one for this GPU: {DRIVER_GUIDE}")
    if known.facts.platform.os_id == "ubuntu":
        fix = Fix(
            f"Install the driver of {which}, which Ubuntu chooses", "sudo ubuntu-drivers install"
        )
    return fault(
        f"The installed driver no longer knows this GPU, which needs {which}.",
        *told,
        fix=(fix, Fix("Such a GPU cannot run today's CUDA images")),
    )


@with_log
def _xids(known: CheckInput) -> Verdict:
    """Errors that the driver wrote down since the machine started: of cards, else of programs."""
    log = known.observed.kernel
    found, gone = xids(log), over(known)
    grave = [item for item in found if item.severity in ("fatal", "fault")]
    hard = [item for item in grave if item not in gone]
    restart = wanted(log, "restart")
    asking = [item for item in found if item.line == restart.get(item.address)]
    if hard:
        fatal = any(item.severity == "fatal" for item in hard)
        say, what = (fault, "a fatal error") if fatal else (warning, "errors")
        cause = f"The driver reported {what} of a GPU since the machine started. {_worded(hard)}."
        both = [item for item in found if item in hard or item in asking]
        return say(cause, *_told(known, both), fix=_after(known, hard))
    if asking:
        cause = "The driver reported an error of a GPU, and wants the machine to be restarted."
        theirs = [item for item in found if item.address in restart]
        return warning(cause, *_told(known, theirs), fix=remedies.reboot(known.facts))
    if grave:
        cause = (
            "The driver reported errors of a GPU that are over by now: it was reset since, or restarted. "
            f"{_worded(grave)}."
        )
        again = Fix("Where it comes again on one GPU, ask the seller: the card may be failing")
        return titled(
            "A GPU had errors and works again (Xid)",
            note(cause, *_told(known, grave), fix=(again,)),
        )
    soft = [item for item in found if item.number != RECOVERY]
    if not soft:
        return fine()
    counts = Counter((item.number, item.words) for item in soft)
    words = "; ".join(f"Xid {number} ({_times(n)}): {says}" for (number, says), n in counts.items())
    if all(item.severity == "program" for item in soft):
        cause = f"The driver reported errors that are mostly a program's. {words}."
        return titled("Programs failed on a GPU (Xid)", note(cause, *_told(known, soft)))
    return note(
        f"The driver reported errors since the machine started. {words}.", *_told(known, soft)
    )


def _worded(items: list[Xid]) -> str:
    return "; ".join(dict.fromkeys(f"Xid {item.number}: {item.words}" for item in items))


def _times(count: int) -> str:
    return often(count)


def _told(known: CheckInput, items: list[Xid]) -> tuple[str, ...]:
    """Which cards, then the newest lines as they stand in the log."""
    by_address = {gpu.pci_bus_id: named(gpu) for gpu in cards(known)}
    addresses = dict.fromkeys(item.address for item in items)
    whose = tuple(by_address.get(address, address) for address in addresses)
    return (*whose, *(item.line for item in items[-_SHOWN:]))


def _after(known: CheckInput, items: list[Xid]) -> Fixes:
    """Steps for these errors, the mildest that is enough for all of them.

    A driver that wants a restart is not asked for a reset, and one that hangs is asked for nothing.
    """
    numbers = {item.number for item in items}
    kinds = {item.remedy for item in items}
    steps: list[Fix] = []
    by_reset = [item for item in items if item.remedy in _BY_RESET]
    hangs = bool(silent(known))
    restart = hangs or bool(wanted(known.observed.kernel, "restart"))
    if "power" in kinds:
        steps += remedies.power_cables(known.facts)
    if by_reset and not restart:
        steps += remedies.reset_gpu(known.facts, [item.address for item in by_reset])
    if restart or "restart" in kinds:
        steps += remedies.reboot(known.facts)
    if numbers & {74, *NVLINK_5} and not hangs:
        steps.append(
            Fix("See which NVLink connections are down", "nvidia-smi nvlink --status", step="look")
        )
    if not hangs and ("replace" in kinds or {48, 63, 92, 94, 95, 171, 172} & numbers):
        steps.append(
            Fix(
                "See the memory errors of each GPU",
                "nvidia-smi -q -d ECC,ROW_REMAPPER",
                step="look",
            )
        )
    if kinds & {"driver", "update"}:
        steps.append(Fix("Where it comes again, try a newer driver of NVIDIA's"))
    steps.append(
        Fix("Where an error comes again on one GPU, ask the seller: the card may be failing")
    )
    return tuple(dict.fromkeys(steps))


_GRAVE = sorted(
    number for number, each in XIDS_CATALOGUED.items() if each.severity in ("fatal", "fault")
)
_GRAVE_XIDS = (
    LogWords(rf"{XID}(?:{'|'.join(map(str, sorted({*_GRAVE} - {*NVLINK_5})))})\b"),
    LogWords(rf"{XID}(?:{'|'.join(map(str, NVLINK_5))})\b", unless=r"\bNon-?fatal\b"),
    LogWords(rf"{XID}{RECOVERY}\b.*\bto 0x[27]\b"),
)

CHECKS: tuple[Check, ...] = (
    Check(UNSIGNED, "driver", "The kernel takes the NVIDIA driver's module",
          "The NVIDIA driver's module is not signed (Secure Boot)", _signed,
          in_log=(LogWords(_REFUSED),)),
    Check(WRONG_MODULES, "driver", "The NVIDIA kernel modules are of the kind that the GPU needs",
          "The GPU needs the other kind of NVIDIA kernel modules (open or proprietary)", _flavour,
          in_log=(LogWords(_WANTS_OPEN), LogWords(_WANTS_PROPRIETARY))),
    Check(GPU_TOO_OLD, "driver", "The NVIDIA driver supports the GPU",
          "The NVIDIA driver no longer supports the GPU", _supported,
          in_log=(LogWords(_LEGACY), LogWords(_IGNORED))),
    Check(XIDS, "driver", "The kernel's log holds no error of an NVIDIA GPU",
          "The kernel's log holds Xid errors of a GPU", _xids, because=(LOST,),
          in_log=_GRAVE_XIDS),
)  # fmt: skip
