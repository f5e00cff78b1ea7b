"""WSL 2 from NVIDIA's side: Windows has the driver, and lends its libraries and one device node."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dshpc_setup.facts.nvidia_driver import WSL_DEVICE, WSL_FOLDER
from dshpc_setup.machine import Machine
from dshpc_setup.probes.platform import kind_of
from dshpc_setup.probes.trace import Trace

_LENT = ("libdxcore.so", "libcuda.so.1", "libnvidia-ml.so.1", "nvidia-smi")
_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_DPKG = "/var/lib/dpkg/info"
# Packages of the Linux driver; the CUDA toolkit's own are welcome in WSL.
_PACKAGE = (
    r"((?:nvidia-driver|nvidia-utils|nvidia-dkms|nvidia-kernel|libnvidia-compute|libnvidia-ml|"
    r"libcuda)(?:-[a-z]{1,20})?-?\d{0,4}(?:-[a-z]{1,20})?)(?::[a-z0-9]{1,10})?\.list"
)


@dataclass(frozen=True)
class Wsl:
    """What WSL 2 lends, and what of a Linux driver lies in its way."""

    dxg: bool
    lent: tuple[str, ...]  # names in WSL_FOLDER
    files: tuple[str, ...] = ()  # of a Linux driver
    packages: tuple[str, ...] = ()

    @property
    def intruders(self) -> tuple[str, ...]:
        """What there is of a Linux driver, in words."""
        return (*self.files, *(f"package {name}" for name in self.packages))

    @property
    def missing(self) -> str:
        """Why there is no GPU at all, where there is no /dev/dxg."""
        cause = (
            "Windows' NVIDIA driver is there, but WSL is too old or was started without GPU support"
            if "libcuda.so.1" in self.lent
            else "Windows has no NVIDIA GPU or no driver for it, or WSL is too old"
        )
        return (
            f"WSL 2 shows no {WSL_DEVICE}: {cause}; install or update the driver in Windows, then "
            "run `wsl --update` and `wsl --shutdown` there"
        )


def look_at(
    look: Trace, cached: tuple[str, ...], folders: tuple[str, ...], *, container: bool
) -> Wsl | None:
    """None where this is no WSL 2. `cached`: the loader's own paths of NVIDIA's libraries.

    `folders` are the loader's default ones. What is in a container was put there by its engine.
    """
    machine = look.machine
    dxg, lent = machine.exists(WSL_DEVICE), machine.listdir(WSL_FOLDER)
    if kind_of(machine.system[1], dxg and bool(lent)) != "wsl2":
        return None
    return Wsl(
        dxg=dxg,
        lent=tuple(name for name in _LENT if name in lent),
        files=() if container else _files(machine, cached, folders),
        packages=() if container else _packages(machine),
    )


def _packages(machine: Machine) -> tuple[str, ...]:
    listed = (re.fullmatch(_PACKAGE, name) for name in machine.listdir(_DPKG))
    return tuple(dict.fromkeys(match[1] for match in listed if match))


def _files(machine: Machine, cached: tuple[str, ...], folders: tuple[str, ...]) -> tuple[str, ...]:
    beside = (f"{folder}/{name}" for folder in folders for name in _LIBRARIES)
    paths = [*cached, *(path for path in beside if machine.exists(path))]
    if machine.exists("/usr/bin/nvidia-smi"):
        paths.append("/usr/bin/nvidia-smi")
    found = [path for path in paths if not _is_lent(machine, path)]
    if machine.exists("/sys/module/nvidia"):
        found.append("/sys/module/nvidia")
    # /lib is a link to /usr/lib on most: one file is named once.
    return tuple(dict.fromkeys(item for item in found if f"/usr{item}" not in found))


def _is_lent(machine: Machine, path: str) -> bool:
    """Windows' own, a link to it, or no driver at all (CUDA's stubs and compat libraries)."""
    target = machine.readlink(path) or ""
    return (
        path.startswith("/usr/lib/wsl/")
        or target.startswith("/usr/lib/wsl/")
        or "/stubs/" in path
        or "/compat/" in path
    )
