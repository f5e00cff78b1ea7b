"""AMD's driver: loaded, with its part for computing, open to jobs. CHECKS is all of AMD's."""

from __future__ import annotations

from dataclasses import replace

from dshpc_setup import remedies
from dshpc_setup.diagnose import amd_cards
from dshpc_setup.diagnose.amd_cards import disagreements, told_by
from dshpc_setup.diagnose.common import named, none_of, of_vendor
from dshpc_setup.diagnose.kernel_log import lines
from dshpc_setup.diagnose.model import (
    Check,
    CheckInput,
    Verdict,
    fault,
    fine,
    not_here,
    note,
    warning,
)
from dshpc_setup.errors import Fix, configure
from dshpc_setup.facts import Evidence, HostFacts, UnusedGpu
from dshpc_setup.passthrough.findings import AMD_GROUP, NO_KFD, TITLES

NOT_LOADED = "DSH-AM-084"

_KFD_BUILT = Fix(
    "See whether the kernel was built with it",
    'grep HSA_AMD= "/boot/config-$(uname -r)"',
    step="look",
)
_USUAL_KERNEL = Fix("Where that is not set, install the distribution's usual kernel")
_OTHER_KERNEL = r"\bamd\w+: (?:version magic '|disagrees about version of symbol|Unknown symbol )"


def _kfd(known: CheckInput) -> Verdict:
    """The compute driver's own device, and cards that it lacks though amdgpu has them."""
    blacklisted = _blacklist(known)
    if blacklisted is not None and _not_loaded(known):
        return _blacklisted(known, blacklisted)
    lacking = [item for item in disagreements(known, NO_KFD) if item.code != "not-loaded"]
    node = [item for item in known.facts.gpus.disagreements if item.about == "/dev/kfd"]
    if not lacking and not node:
        return fine() if of_vendor(known, "amd") else none_of(known, "amd")
    look = Fix("See what KFD says", "sudo dmesg | grep -i kfd", step="look")
    if node:
        return fault(
            "The kernel lists AMD's GPUs, and there is no device node /dev/kfd: udev has not made it.",
            *told_by(lacking or node),
            fix=(look, *remedies.amd_driver(known.facts)),
        )
    told = warning if of_vendor(known, "amd") else fault
    at = lacking[0].about
    if lacking[0].code == "no-kfd":
        return told(
            f"The driver amdgpu holds the AMD card at {at}, and the kernel has no KFD, its part for "
            "computing: no program can compute on the card.",
            *told_by(lacking),
            fix=(look, _KFD_BUILT, _USUAL_KERNEL),
        )
    passed_over = told(
        f"KFD, the part of AMD's driver for computing, does not list the card at {at}: no program can "
        "compute on it.",
        *told_by(lacking),
        fix=(look, *remedies.reboot(known.facts)),
    )
    return replace(passed_over, title="KFD does not list an AMD card")


def _blacklist(known: CheckInput) -> Evidence | None:
    """Where the machine forbids the driver, as its `source`, and by which line, as its `detail`."""
    return next((item for item in known.facts.evidence if item.probe == "amd-blacklist"), None)


def _blacklisted(known: CheckInput, by: Evidence) -> Verdict:
    place, line = by.source, by.detail or ""
    told = warning if known.facts.gpus.devices else fault
    verdict = told(
        f"AMD's driver is kept from loading: {place} has `{line}`.",
        *(f"{card.pci_bus_id}: {card.reason}" for card in _not_loaded(known)),
        fix=_unlock(known.facts, place, line),
    )
    return replace(verdict, title="AMD's driver amdgpu is blacklisted")


def _unlock(facts: HostFacts, place: str, line: str) -> tuple[Fix, ...]:
    """Without what forbids the driver; what is in the initial RAM disk was copied into it."""
    if place == "/proc/cmdline":
        out = Fix(f"Take {line} out of the kernel's command line, in the boot loader's settings")
        return (out, *remedies.reboot(facts))
    rebuild = {
        "deb": "sudo update-initramfs -u",
        "rpm": "sudo dracut --force",
        "suse": "sudo dracut --force",
        "arch": "sudo mkinitcpio -P",
    }.get(remedies.family(facts.platform) or "")
    return (
        Fix(f"Take the line `{line}` out of {place}", f"sudoedit {place}"),
        Fix("Load AMD's driver", "sudo modprobe amdgpu"),
        *([Fix("Have the next start do so too", rebuild)] if rebuild else []),
    )


def _loaded(known: CheckInput) -> Verdict:
    cards = _not_loaded(known)
    if not cards or _blacklist(known) is not None:
        return fine() if of_vendor(known, "amd") else none_of(known, "amd")
    told = warning if known.facts.gpus.devices else fault
    refused = lines(known.observed.kernel, _OTHER_KERNEL, 3)
    why = "the kernel refused its module" if refused else "nothing that was read forbids it"
    return told(
        f"The AMD card at {cards[0].pci_bus_id} has no driver: amdgpu is not loaded, and {why}.",
        *(f"{card.pci_bus_id}: {card.reason}" for card in cards),
        *refused,
        fix=(
            *remedies.amd_driver(known.facts),
            Fix("Where there is no such module, install the kernel's own, or AMD's driver package"),
        ),
    )


def _not_loaded(known: CheckInput) -> list[UnusedGpu]:
    return [
        item
        for item in known.facts.gpus.unused
        if item.vendor == "amd" and item.code == "not-loaded"
    ]


def _groups(known: CheckInput) -> Verdict:
    """Whether the container's user is in the groups of the nodes; the engine itself opens all as root."""
    gpus = of_vendor(known, "amd")
    wanted = {group for gpu in gpus for group in gpu.group_ids if group}
    if not gpus or known.facts.gpus.simulated:
        return none_of(known, "amd")
    read = f"groups of the nodes: {', '.join(map(str, sorted(wanted))) or 'root alone'}"
    written = known.observed.written_gpus or ()
    by_node = any(word.startswith("/dev/kfd") for word in written)
    lacking = sorted(group for group in wanted if f"group {group}" not in written)
    if by_node and lacking and not known.facts.engine.rootless:
        return fault(
            "docker-compose.yml hands the nodes over, and not their groups: a job's user may not "
            "open them, and ROCm sees no GPU.",
            read,
            f"docker-compose.yml: {', '.join(written)}",
            fix=(configure("Write it again"),
                 *remedies.amd_groups(known.facts)[:1]),
        )  # fmt: skip
    denied = [
        item.detail or item.source
        for item in known.facts.evidence
        if item.probe == "kfd-device" and item.state == "denied"
    ]
    if not denied:
        return fine(read)
    if known.facts.engine.rootless:
        return fault(
            "This user may not open /dev/kfd, and a rootless engine opens it as this user.",
            read, *denied, fix=remedies.amd_groups(known.facts)[1:],
        )  # fmt: skip
    return note(
        "This user may not open /dev/kfd: jobs may, as the engine opens it as root and "
        "hands over the groups, but programs outside the cluster see no AMD GPU.",
        read, *denied, fix=remedies.amd_groups(known.facts)[1:],
        title="This user may not open AMD's device nodes",
    )  # fmt: skip


def _wsl(known: CheckInput) -> Verdict:
    if known.facts.platform.kind != "wsl2":
        return not_here("this is no WSL")
    gpus = known.facts.gpus
    shown = any(item.probe == "wsl" and item.state == "present" for item in known.facts.evidence)
    if not of_vendor(known, "amd") and (gpus.state != "absent" or not shown):
        return not_here("Windows shows no GPU of AMD's")
    return note(
        "WSL has no /dev/kfd: a Radeon of the Windows computer is reached through /dev/dxg by ROCm "
        "for WSL (librocdxg). ROCm before 7.13 looks there only with HSA_ENABLE_DXG_DETECTION=1.",
        *map(named, of_vendor(known, "amd")),
        fix=(
            Fix(
                "Where there is one, see whether ROCm finds it",
                "HSA_ENABLE_DXG_DETECTION=1 rocminfo",
            ),
        ),
    )


CHECKS: tuple[Check, ...] = (
    Check(NOT_LOADED, "driver", "AMD's driver is loaded", "AMD's driver amdgpu is not loaded",
          _loaded, because=(amd_cards.NO_FIRMWARE,)),
    Check(NO_KFD, "driver", "/dev/kfd is there", TITLES[NO_KFD], _kfd,
          because=(amd_cards.ATOMICS,)),
    Check(AMD_GROUP, "driver", "AMD's device nodes are open to jobs", TITLES[AMD_GROUP], _groups),
    Check("DSH-AM-043", "driver", "ROCm needs nothing of WSL", "ROCm on WSL", _wsl),
    *amd_cards.CHECKS,
)  # fmt: skip
