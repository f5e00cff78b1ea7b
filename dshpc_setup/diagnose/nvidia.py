"""Rules about NVIDIA's driver."""

from __future__ import annotations

from dataclasses import replace

from dshpc_setup import remedies
from dshpc_setup.diagnose import Finding, Known
from dshpc_setup.facts import Gpus
from dshpc_setup.fixes import Fix
from dshpc_setup.probes.nvidia.layers import OLDEST_DRIVER, TOO_OLD, too_old
from dshpc_setup.probes.nvidia.wsl import LINUX_DRIVER_INSIDE


def driver_in_wsl(known: Known) -> Finding:
    """Whether a Linux driver was installed inside WSL, where Windows' alone works."""
    found = Finding(
        LINUX_DRIVER_INSIDE, "driver", "ok", "No Linux driver of NVIDIA's lies inside WSL"
    )
    contradictions = (
        item for item in known.facts.gpus.disagreements if item.finding == LINUX_DRIVER_INSIDE
    )
    contradiction = next(contradictions, None)
    if contradiction is None:
        return found
    return replace(
        found,
        state="warn",
        evidence=tuple(f"{layer.source}: {layer.says}" for layer in contradiction.layers),
        cause="WSL uses the driver of Windows. A Linux driver inside hides its libraries.",
        fix=(
            Fix(
                "Remove the Linux driver's packages (on Debian and Ubuntu); the CUDA toolkit may stay",
                "sudo apt-get remove --purge '^nvidia-.*' '^libnvidia-.*'",
            ),
            Fix("Then restart WSL, in PowerShell", "wsl --shutdown"),
        ),
    )


def driver_age(known: Known) -> Finding:
    """Whether the driver is new enough for containers."""
    found = Finding(TOO_OLD, "driver", "ok", "The NVIDIA driver is new enough")
    versions = _versions(known.facts.gpus)
    old = [version for version in versions if too_old(version)]
    if not old:
        return replace(found, evidence=versions)
    return replace(
        found,
        state="warn",
        evidence=tuple(f"driver {version}" for version in old),
        cause=f"Today's container tools and CUDA images want driver {OLDEST_DRIVER} or newer.",
        fix=(
            *remedies.newer_driver(known.facts),
            Fix("A GPU that no newer driver supports cannot run today's CUDA images"),
        ),
    )


def _versions(gpus: Gpus) -> tuple[str, ...]:
    """The NVIDIA drivers' versions; other vendors' are numbered otherwise."""
    told = [gpu.driver_version for gpu in gpus.devices if gpu.vendor == "nvidia"]
    if not gpus.devices and gpus.driver_version and gpus.driver_version[:3].isdigit():
        told.append(gpus.driver_version)
    return tuple(dict.fromkeys(version for version in told if version))
