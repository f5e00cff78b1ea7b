"""NVIDIA's driver: is it there, loaded, of one version, and does it answer? CHECKS is all of NVIDIA's."""

from __future__ import annotations

from dshpc_setup import remedies
from dshpc_setup.diagnose import (
    nvidia_cards,
    nvidia_containers,
    nvidia_health,
    nvidia_kernel,
    nvidia_starts,
    nvidia_switches,
)
from dshpc_setup.diagnose.kernel_log import lines
from dshpc_setup.diagnose.model import Check, CheckInput, Verdict, fault, fine, note, warning
from dshpc_setup.diagnose.nvidia_evidence import (
    answer,
    by_test,
    cards,
    driver_loaded,
    elsewhere,
    evidence,
    in_container,
    in_wsl,
    nvml_code,
    on_board,
    on_nvidia,
    said,
    silent,
    titled,
)
from dshpc_setup.errors import Fix
from dshpc_setup.facts import Gpus, UnusedGpu
from dshpc_setup.facts.nvidia_driver import OLDEST_DRIVER, too_old
from dshpc_setup.passthrough import findings
from dshpc_setup.problems import (
    DRIVER_TOO_OLD,
    LOST,
    NOUVEAU,
    RESET,
    UNREADABLE,
    VERSIONS_DIFFER,
)
from dshpc_setup.remedies import Fixes

COUNT_CUT_SHORT = "DSH-NV-083"

_NOUVEAU = ("nouveau", "nova_core", "nova-core")
_NOT_LOADED, _NO_LIBRARY, _BLOCKED, _UNKNOWN = 9, 12, 17, 999
# Of NVML's error numbers those that other checks tell of
_TOLD_ELSEWHERE = (4, _NOT_LOADED, _NO_LIBRARY, 15, 16, _BLOCKED, 18)
_REBUILD = {
    "deb": "sudo update-initramfs -u",
    "rpm": "sudo dracut --force",
    "suse": "sudo dracut --force",
    "arch": "sudo mkinitcpio -P",
}


@on_nvidia
def _versions_differ(known: CheckInput) -> Verdict:
    """Whether module, library and tool are of one version."""
    told = [item for item in known.facts.gpus.disagreements if item.finding == VERSIONS_DIFFER]
    if not told:
        return by_test(known, VERSIONS_DIFFER) or fine(*_versions(known.facts.gpus))
    layers = tuple(f"{layer.source}: {layer.says}" for item in told for layer in item.layers)
    cause = (
        "The driver's files were updated while its old kernel module stayed loaded: driver/library "
        "version mismatch."
    )
    verdict = warning if cards(known) else fault
    return verdict(cause, *layers, fix=remedies.reload_driver(known.facts))


@on_nvidia
def _nouveau(known: CheckInput) -> Verdict:
    """Whether the open driver of the Linux kernel holds a card."""
    held = [gpu for gpu in _unused(known) if gpu.driver in _NOUVEAU]
    if not held:
        return fine()
    words = tuple(f"{gpu.pci_bus_id}: bound to {gpu.driver}" for gpu in held)
    if cards(known):
        beside = note(
            "A card that nouveau holds is left to the screen: jobs do not get it.", *words
        )
        return titled("nouveau holds a card beside NVIDIA's driver", beside)
    return fault(
        "The card is held by nouveau, the Linux kernel's own driver, which cannot run CUDA: NVIDIA's "
        "driver is needed in its place.",
        *words,
        *lines(known.observed.kernel, r"NVRM: The NVIDIA probe routine was not called|nouveau", 3),
        fix=_without_nouveau(known),
    )


def _without_nouveau(known: CheckInput) -> Fixes:
    """The distributions' driver packages keep nouveau away by themselves; else a file does."""
    facts = known.facts
    system = remedies.family(facts.platform)
    install = remedies.install_driver(facts) if nvml_code(known) == _NO_LIBRARY else ()
    if system == "nixos":
        text = 'Put boot.blacklistedKernelModules = [ "nouveau" ]; into configuration.nix'
        return (*install, Fix(text, "sudo nixos-rebuild boot"), *remedies.reboot(facts))
    keep_away = Fix(
        "Where nouveau still comes first, keep it from loading"
        if install
        else "Keep nouveau from loading",
        r"printf 'blacklist nouveau\noptions nouveau modeset=0\n' | "
        "sudo tee /etc/modprobe.d/blacklist-nouveau.conf",
    )
    again = Fix(
        "Rebuild the boot image, so that it holds for the next start", _REBUILD.get(system or "")
    )
    return (*install, keep_away, again, *remedies.reboot(facts))


@on_nvidia
def _library(known: CheckInput) -> Verdict:
    """Whether NVIDIA's management library is where programs find it."""
    found = answer(known)
    if found is None or found.code != _NO_LIBRARY or on_board(known) or in_wsl(known):
        return by_test(known, findings.NO_LIBRARY) or fine()
    if cards(known):
        text = "NVML is not where programs look for libraries; the GPUs were read with nvidia-smi."
        beside = note(text, *said(found), fix=(Fix("Let the loader find it", "sudo ldconfig"),))
        return titled("NVML is not where programs look for it", beside)
    if known.facts.gpus.state != "error":
        return fine()  # nobody wants it: each card is a virtual machine's, or none was handed over
    fix = (
        remedies.driver_capabilities(known.facts)
        if in_container(known)
        else remedies.driver_libraries(known.facts)
    )
    return fault("libnvidia-ml.so.1, through which programs ask the driver, is not installed.",
                 *said(found), fix=fix)  # fmt: skip


@on_nvidia
def _loaded(known: CheckInput) -> Verdict:
    """Whether a kernel driver of NVIDIA's runs the cards."""
    facts, told = known.facts, evidence(known, "nvidia-module", "jetson")
    if in_wsl(known):
        return by_test(known, findings.DRIVER_NOT_LOADED) or fine()
    if on_board(known):
        return _nvgpu(known)
    idle = [gpu for gpu in _unused(known) if gpu.driver is None]
    words = tuple(f"{gpu.pci_bus_id}: {gpu.reason}" for gpu in idle)
    if cards(known):
        beside = note("No kernel driver holds it: jobs do not get it.", *words)
        loose = titled("An NVIDIA card has no driver", beside) if idle else None
        return by_test(known, findings.DRIVER_NOT_LOADED) or loose or fine(*said(told))
    said_so = nvml_code(known) == _NOT_LOADED
    unloaded = said_so if in_container(known) else not driver_loaded(known)
    if facts.gpus.state != "error" or not unloaded:
        return by_test(known, findings.DRIVER_NOT_LOADED) or fine(*said(told))
    cause = (
        "There is an NVIDIA card, and the kernel has not loaded NVIDIA's driver (nvidia-smi fails)."
    )
    return fault(cause, *said(told), *words, *said(answer(known)), fix=remedies.load_driver(facts))


def _nvgpu(known: CheckInput) -> Verdict:
    """A Jetson's GPU has its driver in NVIDIA's own kernel."""
    gpus = known.facts.gpus
    if gpus.state != "error" or gpus.devices or "not-started" in gpus.causes:
        return fine(*said(evidence(known, "jetson")))
    return fault(
        "This is a Jetson, and its GPU's driver nvgpu is not loaded: it comes with the kernel of "
        "NVIDIA's Jetson Linux.",
        *said(evidence(known, "jetson")),
        fix=(Fix("Load it; where it is not found, start the kernel of Jetson Linux",
                 "sudo modprobe nvgpu"),),
    )  # fmt: skip


@on_nvidia
def _answers(known: CheckInput) -> Verdict:
    """Whether the driver answers within its time."""
    unanswered = silent(known)
    hung = lines(known.observed.kernel, r"task \S*nvidia\S* blocked for more than", 3)
    if not unanswered:
        return by_test(known, findings.DRIVER_HANGS) or fine()
    cause = (
        "The driver was asked and gave no answer: a GPU or its driver is stuck. nvidia-smi hangs then "
        "too, and must not be tried again and again."
    )
    words = tuple(text for item in unanswered for text in said(item))
    verdict = warning if cards(known) else fault
    return verdict(cause, *words, *hung, fix=remedies.hung_driver(known.facts))


def _driver_age(known: CheckInput) -> Verdict:
    """Whether the driver is new enough for containers."""
    versions = _versions(known.facts.gpus)
    old = [version for version in versions if too_old(version)]
    if not old:
        return elsewhere(known) or fine(*versions)
    return warning(
        f"Today's container tools and CUDA images want driver {OLDEST_DRIVER} or newer.",
        *(f"driver {version}" for version in old),
        fix=(
            *remedies.newer_driver(known.facts),
            Fix("A GPU that no newer driver supports cannot run today's CUDA images"),
        ),
    )


@on_nvidia
def _driver_error(known: CheckInput) -> Verdict:
    """Whether the driver answers with an error that no other check tells of."""
    found = answer(known)
    if found is None or found.state != "error":
        return by_test(known, findings.DRIVER_ERROR) or fine()
    if found.code == _NOT_LOADED and driver_loaded(known) and not in_container(known):
        cause = "NVIDIA's driver is loaded, and its library and tools cannot reach it."
        fix = (*remedies.make_nodes(known.facts), *remedies.hung_driver(known.facts)[:1])
        return fault(cause, *said(found), *lines(known.observed.kernel, r"NVRM", 3), fix=fix)
    if found.code in _TOLD_ELSEWHERE:
        return by_test(known, findings.DRIVER_ERROR) or fine()
    if found.code == _UNKNOWN and in_container(known):
        return fine()  # the container's nodes were closed: DSH-NV-013 says so
    log = lines(known.observed.kernel, r"NVRM|nvgpu", 3)
    words = (*said(found), *log)
    if cards(known):
        cause = "NVIDIA's library crashed or failed while it listed the GPUs."
        return warning(cause, *words, fix=remedies.hung_driver(known.facts))
    if on_board(known):
        cause = "The Jetson's GPU did not start."
        look = Fix("See what the kernel says of it", "sudo dmesg | grep -i nvgpu", step="look")
        return fault(cause, *words, fix=(look, Fix("Switch the board off and on again")))
    cause = "NVIDIA's library is there and the driver is loaded, and asking for the GPUs fails."
    return fault(cause, *words, fix=remedies.hung_driver(known.facts))


@on_nvidia
def _count(known: CheckInput) -> Verdict:
    """Whether all GPUs were told of."""
    gpus = known.facts.gpus
    if gpus.complete:
        return fine(f"{len(cards(known))} of NVIDIA's")
    told = (f"{layer.source}: {layer.says}" for item in gpus.disagreements for layer in item.layers
            if item.code == "count")  # fmt: skip
    missing = (f"{gpu.pci_bus_id}: {gpu.reason}" for gpu in _unused(known))
    return (warning if cards(known) else fault)(
        "The driver stopped answering before it had reported all GPUs: the rest are unknown, "
        "and jobs do not get them.",
        *told,
        *missing,
        fix=remedies.hung_driver(known.facts),
    )


def _unused(known: CheckInput) -> tuple[UnusedGpu, ...]:
    return tuple(gpu for gpu in known.facts.gpus.unused if gpu.vendor == "nvidia")


def _versions(gpus: Gpus) -> tuple[str, ...]:
    """The NVIDIA drivers' versions; other vendors' are numbered otherwise."""
    told = [gpu.driver_version for gpu in gpus.devices if gpu.vendor == "nvidia"]
    if not gpus.devices and gpus.driver_version and gpus.driver_version[:3].isdigit():
        told.append(gpus.driver_version)
    return tuple(dict.fromkeys(version for version in told if version))


_TITLES = findings.TITLES
_LOADING = (
    NOUVEAU,
    nvidia_kernel.UNSIGNED,
    nvidia_kernel.WRONG_MODULES,
    nvidia_kernel.GPU_TOO_OLD,
    nvidia_starts.OTHER_KERNEL,
    nvidia_starts.HELD_BY_ANOTHER,
    nvidia_starts.NO_POWER,
    nvidia_starts.NO_ADDRESSES,
)

CHECKS: tuple[Check, ...] = (
    *nvidia_health.CHECKS,
    Check(NOUVEAU, "driver", "No other driver holds the NVIDIA card",
          "nouveau holds the NVIDIA card", _nouveau),
    Check(findings.DRIVER_NOT_LOADED, "driver", "The NVIDIA driver is loaded",
          _TITLES[findings.DRIVER_NOT_LOADED], _loaded, because=_LOADING),
    Check(findings.NO_LIBRARY, "driver", "The NVIDIA driver's libraries are installed",
          _TITLES[findings.NO_LIBRARY], _library,
          because=(*_LOADING, findings.DRIVER_NOT_LOADED)),
    Check(VERSIONS_DIFFER, "driver", "The NVIDIA driver and its library are of one version",
          _TITLES[VERSIONS_DIFFER], _versions_differ),
    Check(findings.DRIVER_HANGS, "driver", "The NVIDIA driver answers",
          _TITLES[findings.DRIVER_HANGS], _answers, because=(LOST, nvidia_kernel.XIDS)),
    Check(findings.DRIVER_ERROR, "driver", "The NVIDIA driver answers without an error",
          _TITLES[findings.DRIVER_ERROR], _driver_error,
          because=(LOST, RESET, findings.DRIVER_HANGS, nvidia_kernel.WRONG_MODULES,
                   nvidia_kernel.XIDS)),
    Check(COUNT_CUT_SHORT, "driver", "The driver reported every NVIDIA GPU",
          "Not every NVIDIA GPU is known: the driver stopped on the way", _count,
          because=(LOST, RESET, findings.DRIVER_HANGS, findings.DRIVER_ERROR, UNREADABLE)),
    Check(DRIVER_TOO_OLD, "driver", "The NVIDIA driver is new enough",
          "The NVIDIA driver is too old", _driver_age),
    *nvidia_kernel.CHECKS,
    *nvidia_switches.CHECKS,
    *nvidia_starts.CHECKS,
    *nvidia_cards.CHECKS,
    *nvidia_containers.CHECKS,
)  # fmt: skip
