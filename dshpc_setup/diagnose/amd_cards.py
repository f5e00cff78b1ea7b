"""AMD's cards: their slots, partitions, resets, and whether ROCm knows them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dshpc_setup import remedies
from dshpc_setup.diagnose import kernel_log
from dshpc_setup.diagnose.common import USE_IT, by_choice, given_out, named, none_of, of_vendor
from dshpc_setup.diagnose.kernel_messages import devices
from dshpc_setup.diagnose.model import (
    Check,
    CheckInput,
    LogWords,
    Verdict,
    fault,
    fine,
    not_here,
    note,
    unknown,
    warning,
)
from dshpc_setup.errors import Fix, configure
from dshpc_setup.facts import Disagreement
from dshpc_setup.probes.amd import broken
from dshpc_setup.problems import PARTITIONS_MISSING, RAS_ASLEEP, RAS_BROKEN, in_words

ATOMICS = "DSH-AM-044"
NO_FIRMWARE = "DSH-AM-101"
RAS = RAS_BROKEN

# kfd_device.c: "skipped device 1002:7340, PCI rejects atomics 730<0"
_ATOMICS = re.compile(r"\bskipped device [0-9a-f]{4}:[0-9a-f]{4}, PCI rejects atomics")
# amdgpu_job.c: "ring gfx_0.0.0 timeout, signaled seq=..."; amdgpu_device.c: "GPU reset begin!",
# "GPU reset(1) failed", "GPU reset end with ret = -110"
_FAILED = re.compile(r"\bamdgpu\b.*\bGPU reset(?:\(\d+\) failed| end with ret = -)")
_FIXED = re.compile(r"\bamdgpu\b.*\bGPU reset\(\d+\) succeeded")
_RESET = re.compile(rf"{_FAILED.pattern}|\bamdgpu\b.*\b(?:ring \S+ timeout,|GPU reset begin\b)")
_END = re.compile(rf"{_FAILED.pattern}|{_FIXED.pattern}")
_STARTS = re.compile(broken.STARTS)
# drivers/base/firmware_loader: "Direct firmware load for amdgpu/arcturus_gpu_info.bin failed with error
# -2"; amdgpu: 'Failed to load gpu_info firmware "amdgpu/arcturus_gpu_info.bin"'
_FIRMWARE = re.compile(
    r"\bamdgpu\b.*(?:Direct firmware load for amdgpu/\S+ failed|Failed to (?:load|get) .*firmware \")",
    re.IGNORECASE,
)
# Files that a card does without: of its image processor and its screens, of trusted programs and virtual
# functions, of a second compute engine, and newer ones that the driver tries before the usual ones
_DISPENSABLE = re.compile(
    r"(?:isp_[\w.]+|\w+_(?:ta|cap|dmcub?|mec2|uni_mes|2))\.bin\b", re.IGNORECASE
)
_NO_START = re.compile(r"\bamdgpu\b.*\bFatal error during GPU init")
# amdgpu_ras.c, amdgpu_ras_eeprom.c; counts come with "no ..." where there are none
_UNCORRECTED = re.compile(
    r"\bamdgpu\b.*?(?<![\w.])(?P<count>[1-9]\d{0,18}) (?:new )?uncorrectable hardware errors detected",
    re.IGNORECASE,
)
_FATAL_RAS = re.compile(
    r"\bamdgpu\b.*(?:uncorrectable hardware error ?\(ERREVENT_ATHUB_INTERRUPT\) detected"
    rf"|{broken.BAD})",
    re.IGNORECASE,
)
_SHOWN = 5
# What ROCm's libraries have no code for; and Navi 2x, whose instructions are those of gfx1030
_DROPPED = re.compile(r"gfx[78]0[0-9]|gfx101[0-3]")
_LIKE_GFX1030 = re.compile(r"gfx103[1-6]")


def disagreements(known: CheckInput, finding: str) -> list[Disagreement]:
    """Those of one finding."""
    return [item for item in known.facts.gpus.disagreements if item.finding == finding]


def told_by(items: Iterable[Disagreement]) -> tuple[str, ...]:
    """What each source says, for a finding's evidence."""
    return tuple(
        f"{item.about}: {layer.source}: {layer.says}" for item in items for layer in item.layers
    )


def _partitions(known: CheckInput) -> Verdict:
    short = disagreements(known, PARTITIONS_MISSING)
    if not short:
        return fine() if of_vendor(known, "amd") else none_of(known, "amd")
    card, meaning = short[0].about, short[0].meaning
    modes = (gpu.partition_mode for gpu in of_vendor(known, "amd") if gpu.partition_of == card)
    mode = next(filter(None, modes), "MODE")
    again = f"echo {mode} | sudo tee /sys/bus/pci/devices/{card}/current_compute_partition"
    return warning(
        f"The card at {card} has fewer partitions than its mode makes: {meaning}.",
        *told_by(short),
        fix=(
            Fix(
                "See what the driver says of the one that is missing",
                "sudo dmesg | grep -i kfd",
                step="look",
            ),
            Fix("With no program on the card, set its mode again", again),
            configure("Then take all of them in", step="after"),
        ),
    )


def _atomics(known: CheckInput) -> Verdict:
    lines = _in_log(known, _ATOMICS)
    if isinstance(lines, Verdict):
        return lines
    if not lines:
        return fine("no refusal in the kernel's log")
    if _kfd_has_all(known):
        return fine("KFD has every AMD GPU that is for jobs")
    told = warning if of_vendor(known, "amd") else fault
    return told(
        "The slot of an AMD card does not do PCIe atomic operations, and KFD passed the card over: "
        "ROCm does not see it.",
        *lines[-_SHOWN:],
        fix=(
            Fix("Put the card into a slot that hangs on the processor, not on the chipset"),
            Fix("Update the mainboard's firmware, and look there for a setting of PCIe atomics"),
            Fix("In a virtual machine, have its bridge pass atomics on, or use the machine itself"),
        ),
    )


def _kfd_has_all(known: CheckInput) -> bool:
    """Whether a card that KFD passed over is none for jobs; its line has no address."""
    left = [
        item for item in known.facts.gpus.unused if item.vendor == "amd" and not by_choice(item)
    ]
    listed = any(item.probe == "kfd" and item.state == "present" for item in known.facts.evidence)
    return listed and not left


def _resets(known: CheckInput) -> Verdict:
    lines = _in_log(known, _RESET)
    ends = _in_log(known, _END)
    if isinstance(lines, Verdict) or isinstance(ends, Verdict):
        return lines if isinstance(lines, Verdict) else fine()
    if not lines:
        return fine("no reset in the kernel's log")
    last = {devices(line): line for line in ends}
    failed = any(_FAILED.search(line) for line in last.values())
    after = (
        "A reset failed: the card is of no use until the machine restarts."
        if failed
        else "What ran on it has lost its memory and must be started again."
    )
    return warning(
        f"AMD's driver reset a GPU that did not answer. {after}",
        *lines[-_SHOWN:],
        fix=(
            Fix("See what happened before", "sudo dmesg | grep -i amdgpu", step="look"),
            *(remedies.reboot(known.facts) if failed else ()),
            Fix("Where that comes back, update the kernel, the firmware package and ROCm"),
        ),
    )


def _firmware(known: CheckInput) -> Verdict:
    """Whether a card did not start because its firmware's files are missing."""
    told = _in_log(known, _FIRMWARE)
    stopped = _in_log(known, _NO_START)
    if isinstance(told, Verdict) or isinstance(stopped, Verdict):
        return told if isinstance(told, Verdict) else fine()
    needed = [line for line in told if not _DISPENSABLE.search(line)]
    running = {at for gpu in of_vendor(known, "amd") for at in devices(gpu.pci_bus_id or "")}
    failed = {at for line in (*needed, *stopped) for at in devices(line)} - running
    lines = [line for line in (*told, *stopped) if devices(line) & failed]
    if not any(_FIRMWARE.search(line) for line in lines):
        return fine("no card lacks its firmware")
    say = warning if of_vendor(known, "amd") else fault
    return say(
        "AMD's driver did not find the firmware of a card, the files that it gives the card to run: the "
        "card was not started.",
        *lines[-_SHOWN:],
        fix=remedies.amd_firmware(known.facts),
    )


def _ras(known: CheckInput) -> Verdict:
    """Errors of memory and of the chip that the card found itself (RAS) and could not correct."""
    own = [
        f"{named(gpu)}: {item.count} in {item.block}"
        for gpu in of_vendor(known, "amd")
        for item in (gpu.health.ras if gpu.health is not None else ())
    ]
    bad = [gpu for gpu in of_vendor(known, "amd") if RAS_BROKEN in gpu.problems]
    own += [f"{named(gpu)}: {in_words((RAS_BROKEN,))}" for gpu in bad]
    counted = _in_log(known, _UNCORRECTED)
    fatal = _in_log(known, _FATAL_RAS)
    if isinstance(counted, Verdict) or isinstance(fatal, Verdict):
        if not own:
            return counted if isinstance(counted, Verdict) else fine()
        counted, fatal = [], []
    counted = [*own, *(line for line in counted if not _unreadable_count(line))]
    if not counted and not fatal:
        return fine("no uncorrectable error is counted, and none is in the kernel's log")
    say = fault if fatal or bad else warning
    after = (
        f"The driver calls the card broken. {given_out(known, bad)}"
        if bad
        else "The card needs a restart of the machine, or a replacement."
        if fatal
        else "The program that used that memory has failed; the driver takes the memory out of use."
    )
    return say(
        f"An AMD GPU reported hardware errors that it could not correct (RAS). {after}",
        *dict.fromkeys((*counted[-_SHOWN:], *fatal[-_SHOWN:])),
        fix=(
            *(remedies.reboot(known.facts) if fatal and not bad else ()),
            Fix(
                "See the counts of each part of the GPU",
                "amd-smi metric --ecc --ecc-blocks",
                step="look",
            ),
            Fix("See the memory that was taken out of use", "amd-smi bad-pages", step="look"),
            Fix("Ask the seller for a replacement")
            if bad
            else Fix("Where errors come again on one GPU, ask the seller: the card may be failing"),
            *((USE_IT,) if bad else ()),
        ),
    )


def _unreadable_count(line: str) -> bool:
    found = _UNCORRECTED.search(line)
    return found is not None and int(found["count"]) % RAS_ASLEEP == 0


def _in_log(known: CheckInput, pattern: re.Pattern[str]) -> list[str] | Verdict:
    """Lines of the kernel's log; a verdict where there is nothing to look for, or nowhere to look.

    Those since each card's last start alone, and none of cards that no job gets by choice or by their
    kind: the display part of a processor is reset on many desktops.
    """
    left = [item for item in known.facts.gpus.unused if item.vendor == "amd"]
    if all(by_choice(item) for item in left) and not of_vendor(known, "amd"):
        return not_here("No AMD GPU is for jobs.") if left else none_of(known, "amd")
    unread = kernel_log.why_unread(known.observed.kernel)
    if unread is not None:
        return unknown(unread)
    aside = {at for item in left if by_choice(item) for at in devices(item.pci_bus_id or "")}
    found: list[str] = []
    for line in kernel_log.messages(known.observed.kernel):
        about = devices(line)
        if _STARTS.search(line):
            found = [before for before in found if not (about and devices(before) == about)]
        elif pattern.search(line) and not (about and about <= aside):
            found.append(line)
    return found


def _target(known: CheckInput) -> Verdict:
    """What ROCm's libraries have no code for: a program ends with hipErrorNoBinaryForGpu."""
    gpus = [gpu for gpu in of_vendor(known, "amd") if gpu.compute]
    if not gpus:
        return not_here("no AMD GPU tells its target")
    dropped = [gpu for gpu in gpus if _DROPPED.fullmatch(gpu.compute or "")]
    if dropped:
        return note(
            f"Today's ROCm libraries have no code for {dropped[0].compute}: programs end with "
            "hipErrorNoBinaryForGpu. What is built for that target runs.",
            *(f"{named(gpu)}: {gpu.compute}" for gpu in dropped),
        )
    like = [gpu for gpu in gpus if _LIKE_GFX1030.fullmatch(gpu.compute or "")]
    if like:
        step = Fix("In the job, before the program", "export HSA_OVERRIDE_GFX_VERSION=10.3.0")
        return note(
            f"ROCm's libraries may have no code for {like[0].compute}. Where a program ends with "
            "hipErrorNoBinaryForGpu, that for gfx1030 has the same instructions; AMD does not "
            "support it.",
            *(f"{named(gpu)}: {gpu.compute}" for gpu in like),
            fix=(step,),
            title="ROCm may not know the GPU",
        )
    return fine(*(f"{named(gpu)}: {gpu.compute}" for gpu in gpus))


_AT = r"(?=.*\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.)"  # which card
_UNREADABLE = rf"\b(?:{'|'.join(str(RAS_ASLEEP * times) for times in range(1, 17))}) "

CHECKS: tuple[Check, ...] = (
    Check(ATOMICS, "driver", "The slots do PCIe atomics", "PCI rejects atomics: ROCm skips the GPU",
          _atomics, in_log=(LogWords(_ATOMICS.pattern),)),
    Check("DSH-AM-041", "driver", "ROCm knows the GPU's target", "ROCm does not know the GPU",
          _target),
    Check(PARTITIONS_MISSING, "driver", "All partitions of the cards are there",
          "AMD partitions are missing", _partitions),
    Check("DSH-AM-085", "driver", "No AMD GPU was reset", "An AMD GPU was reset", _resets,
          because=(RAS,), in_log=(LogWords(_RESET.pattern),)),
    Check(NO_FIRMWARE, "driver", "Every AMD card has its firmware",
          "The firmware of an AMD GPU is missing", _firmware,
          in_log=(LogWords(rf"{_AT}.*{_FIRMWARE.pattern}", _DISPENSABLE.pattern),)),
    Check(RAS, "driver", "No AMD GPU reported an uncorrectable error",
          "An AMD GPU reported uncorrectable errors (RAS)", _ras,
          in_log=(LogWords(_UNCORRECTED.pattern, _UNREADABLE), LogWords(_FATAL_RAS.pattern))),
)  # fmt: skip
