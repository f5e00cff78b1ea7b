"""Made-up GPUs of a bench machine: what NVML says of them, their device nodes, the driver's files."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dshpc_setup.machine.tree import parse_tree
from tests.integration.bench.engines import Bench

STANDINS = Path(__file__).parents[2] / "standins"
MACHINES = Path(__file__).parents[2] / "machines"
DRIVER = "550.163.01"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
DESCRIPTION = "/etc/dshpc-standin/nvml.txt"
FAULTS = "/etc/dshpc-standin/hook"
HANG = "/etc/dshpc-standin/hang"

# Minor numbers of the memory devices that anyone may open: a node is told from another by its number.
_ZERO, _FULL, _NULL, _RANDOM, _URANDOM = 5, 7, 3, 8, 9
NVIDIA_NODES = {
    "/dev/nvidiactl": _NULL,
    "/dev/nvidia-uvm": _RANDOM,
    "/dev/nvidia0": _ZERO,
    "/dev/nvidia1": _FULL,
}
AMD_NODES = {
    "/dev/kfd": _URANDOM,
    "/dev/dri/renderD128": _ZERO,
    "/dev/dri/renderD129": _FULL,
    "/dev/dri/renderD130": _NULL,
    "/dev/dri/renderD131": _RANDOM,
}
AMD_MACHINE = "mi210x4-xgmi"  # of tests/machines: what /sys tells of these nodes


@dataclass(frozen=True)
class Card:
    minor: int
    uuid: str
    bus: str
    name: str = "NVIDIA H100 80GB HBM3"

    @property
    def node(self) -> str:
        return f"/dev/nvidia{self.minor}"

    def line(self) -> str:
        return (
            f"gpu minor={self.minor} bus={self.bus} memory=81559 compute=9.0 cpus=0-1 mig=0 "
            f"persistence=1 compute_mode=0 ecc=1 virtualization=0 uuid={self.uuid} name={self.name}"
        )


CARDS = (
    Card(0, "GPU-5a2b6c30-0001-4c1e-9d5a-000000000001", "00000000:1a:00"),
    Card(1, "GPU-5a2b6c30-0002-4c1e-9d5a-000000000002", "00000000:3b:00"),
)


def nvml_text(cards: Sequence[Card] = CARDS, more: str = "", driver: str = DRIVER) -> str:
    """The description of a machine with these cards; those without a node are not seen."""
    lines = [f"driver {driver}", "cuda 12040", "nodes", *(card.line() for card in cards), more]
    return "\n".join(line for line in lines if line) + "\n"


@dataclass(frozen=True)
class Built:
    """The compiled stand-ins."""

    nvml: bytes
    cuda: bytes
    smi: bytes


def build(folder: Path) -> Built:
    """Compile the stand-ins; the folder is for the compiler alone."""
    shared = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra"]
    nvidia = STANDINS / "nvidia"
    jobs = {
        "nvml": [*shared, "-Wl,-soname,libnvidia-ml.so.1", str(STANDINS / "nvml" / "nvml.c")],
        "cuda": [*shared, "-Wl,-soname,libcuda.so.1", str(nvidia / "libcuda.c")],
        "smi": ["-O1", "-Wall", "-Wextra", str(nvidia / "nvidia-smi.c"), "-ldl"],
    }
    for name, options in jobs.items():
        argv = ["cc", "-o", str(folder / name), *options]
        subprocess.run(argv, check=True, timeout=120)
    return Built(*((folder / name).read_bytes() for name in ("nvml", "cuda", "smi")))


def add_nodes(
    bench: Bench, nodes: dict[str, int], mode: int = 0o666, group: int | None = None
) -> None:
    """Device nodes on the machine, which any process there may open as far as the mode says."""
    for path, minor in nodes.items():
        target = bench.outer.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        os.mknod(target, stat.S_IFCHR | mode, os.makedev(1, minor))
        target.chmod(mode)
        if group is not None:
            os.chown(target, 0, group)


def remove_nodes(bench: Bench, nodes: Sequence[str]) -> None:
    for path in nodes:
        bench.outer.path(path).unlink(missing_ok=True)


def add_library(bench: Bench, name: str, content: bytes, version: str = DRIVER) -> None:
    """A library of the driver under its real file name, with the link that programs load."""
    bench.put(f"{LIBRARIES}/{name}.so.{version}", content, 0o755)
    for room in bench.rooms:
        link = room.path(f"{LIBRARIES}/{name}.so.1")
        link.unlink(missing_ok=True)
        link.symlink_to(f"{name}.so.{version}")


def remove_library(bench: Bench, name: str, version: str = DRIVER) -> None:
    bench.remove(f"{LIBRARIES}/{name}.so.{version}")
    bench.remove(f"{LIBRARIES}/{name}.so.1")


def remove_other_drivers(bench: Bench) -> None:
    """Libraries of versions that the machine's own driver is not."""
    for room in bench.rooms:
        for name in ("libcuda", "libnvidia-ml"):
            for path in room.path(LIBRARIES).glob(f"{name}.so.*"):
                if path.name not in (f"{name}.so.1", f"{name}.so.{DRIVER}"):
                    path.unlink()


def add_nvidia(bench: Bench, built: Built, cards: Sequence[Card] = CARDS) -> None:
    """A machine with these cards and a working driver; no container toolkit."""
    add_nodes(bench, NVIDIA_NODES)
    bench.put(DESCRIPTION, nvml_text(cards))
    add_library(bench, "libnvidia-ml", built.nvml)
    add_library(bench, "libcuda", built.cuda)
    bench.put("/usr/bin/nvidia-smi", built.smi, 0o755)


def add_amd(bench: Bench, group: int = 109, mode: int = 0o660) -> None:
    """A machine with four AMD cards, whose nodes are for one group only."""
    add_nodes(bench, AMD_NODES, mode, group)
    tree = parse_tree((MACHINES / AMD_MACHINE / "root.txtar").read_text())
    for path, content in tree.texts.items():
        if path.startswith("/sys/"):
            bench.outer.put(path, content)
    for path, target in tree.links.items():
        if path.startswith("/sys/"):
            link = bench.outer.path(path)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)


def add_hook(bench: Bench) -> None:
    """The container toolkit's hook, which Docker looks for when it starts."""
    _install(bench, "nvidia-container-runtime-hook")


def remove_hook(bench: Bench) -> None:
    bench.remove("/usr/bin/nvidia-container-runtime-hook")


def add_runtime(bench: Bench) -> None:
    """The runtime's file, and its registration in the engine's configuration (read at its start)."""
    _install(bench, "nvidia-container-runtime")
    runtime = {"path": "nvidia-container-runtime", "args": []}
    bench.config.setdefault("runtimes", {})["nvidia"] = runtime


def break_hook(bench: Bench, **faults: str | int) -> None:
    """What the hook is to do wrong (see its head); nothing without a fault."""
    bench.put(
        FAULTS, "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in faults.items())
    )


def _install(bench: Bench, name: str) -> None:
    bench.put(f"/usr/bin/{name}", (STANDINS / "nvidia" / name).read_bytes(), 0o755)
