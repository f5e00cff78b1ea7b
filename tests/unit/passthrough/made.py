"""Made machines, plans and endings for the tests of passthrough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dshpc_setup.facts import (
    CdiDevice,
    CdiSpec,
    Cpu,
    Engine,
    GpuDevice,
    Gpus,
    HostFacts,
    Memory,
    MigInstance,
    Platform,
    Toolkit,
)
from dshpc_setup.machine import CommandResult
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.settings import load

DRIVER = "550.163.01"


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-0000-0000-0000-000000000000"


def card(index: int, **more: Any) -> GpuDevice:
    values: dict[str, Any] = {
        "name": "NVIDIA H100",
        "uuid": uuid(index),
        "slurm_type": "h100",
        "device_files": (f"/dev/nvidia{index}",),
        "mig_mode": "disabled",
        "driver": "nvidia",
        "driver_version": DRIVER,
        "compute": "9.0",
        "group_ids": (0,),
    }
    return GpuDevice(index, "nvidia", **{**values, **more})


def amd(index: int, **more: Any) -> GpuDevice:
    values: dict[str, Any] = {
        "name": "AMD Instinct MI300X",
        "pci_bus_id": f"0000:{index:02x}:00.0",
        "slurm_type": "mi300x",
        "device_files": (f"/dev/dri/renderD{128 + index}",),
        "driver": "amdgpu",
        "group_ids": (993,),
    }
    return GpuDevice(index, "amd", **{**values, **more})


def intel(index: int, **more: Any) -> GpuDevice:
    values: dict[str, Any] = {
        "slurm_type": "max",
        "pci_bus_id": f"0000:{index:02x}:00.0",
        "device_files": (f"/dev/dri/renderD{128 + index}",),
        "group_ids": (109,),
    }
    return GpuDevice(index, "intel", **{**values, **more})


PARTS = tuple(
    MigInstance(
        "1g.10gb",
        f"MIG-{name}",
        9728,
        (
            "/dev/nvidia0",
            f"/dev/nvidia-caps/nvidia-cap{number}",
            f"/dev/nvidia-caps/nvidia-cap{number + 1}",
        ),
    )
    for name, number in (("a", 12), ("b", 21))
)
CUT = card(0, mig_mode="enabled", mig=PARTS)

ENGINE = Engine(
    "present", "28.5.2", "1.51", "engine", rootless=False, engine_id="id", host="unix:///s",
    cdi_folders=("/etc/cdi", "/var/run/cdi"), runtimes=("io.containerd.runc.v2", "runc"),
    toolkits=(Toolkit("nvidia", "present", "1.17.8", hook="/usr/bin/nvidia-container-runtime-hook"),),
)  # fmt: skip


def facts(*gpus: GpuDevice, engine: Engine = ENGINE, **more: Any) -> HostFacts:
    """A machine with these GPUs; `more` are other fields of HostFacts."""
    version = DRIVER if any(gpu.vendor == "nvidia" for gpu in gpus) else None
    found = Gpus("present", gpus, driver_version=version, cuda_version="12.4")
    values: dict[str, Any] = {
        "platform": Platform("linux", os_id="debian", os_version="13"),
        "cpu": Cpu(8, usable=8),
        "memory": Memory(16000, 16000),
        "gpus": found if gpus else Gpus("absent"),
        "engine": engine,
    }
    return HostFacts(**{**values, **more})


def on(found: HostFacts, **engine: Any) -> HostFacts:
    """The same machine with another engine."""
    return replace(found, engine=replace(found.engine, **engine))


def planned(found: HostFacts, **settings: str) -> ClusterPlan:
    return plan_cluster(found, load(flags=settings))


def spec(
    devices: Mapping[str, tuple[str, ...]],
    kind: str = "nvidia.com/gpu",
    path: str = "/etc/cdi/nvidia.yaml",
    **more: Any,
) -> CdiSpec:
    """A specification of names and the nodes that each brings."""
    listed = tuple(CdiDevice(f"{kind}={name}", nodes) for name, nodes in devices.items())
    values: dict[str, Any] = {
        "nodes": ("/dev/nvidiactl", "/dev/nvidia-uvm"),
        "driver_version": DRIVER,
    }
    return CdiSpec(path, "present", kind, listed, **{**values, **more})


def two_cards_spec(**more: Any) -> CdiSpec:
    """As nvidia-ctk writes it: by index, by UUID, and all; display nodes beside the card's own."""
    nodes = {
        index: (
            f"/dev/nvidia{index}",
            f"/dev/dri/card{index + 1}",
            f"/dev/dri/renderD{128 + index}",
        )
        for index in (0, 1)
    }
    devices = {str(index): files for index, files in nodes.items()}
    devices |= {uuid(index): files for index, files in nodes.items()}
    return spec({**devices, "all": (*nodes[0], *nodes[1])}, **more)


def told(item: CdiSpec) -> tuple[str, ...]:
    """The names of a specification, as an engine lists them."""
    return tuple(sorted(device.name for device in item.devices))


def ended(
    code: int | None, stdout: str = "", stderr: str = "", state: Any = "present"
) -> CommandResult:
    return CommandResult((), state, code, stdout, stderr, 1.0)


TIMEOUT = ended(None, state="timeout")


def inside(
    *nodes: str,
    libraries: tuple[str, ...] = (),
    uuids: tuple[str, ...] | None = None,
    more: str = "",
) -> str:
    """What the look says where these nodes open and these libraries load; `uuids` None: no tool."""
    said = ["user 1000 1000", *(f"visible {node}" for node in nodes)]
    said += [f"open {node} -" for node in nodes]
    said += [f"loaded {name} /usr/lib/{name[:-1]}{DRIVER}" for name in libraries]
    if uuids is not None:
        said += ["listing 0", *(f"says GPU 0: NVIDIA H100 (UUID: {name})" for name in uuids)]
    return "\n".join([*said, *([more] if more else []), "end"]) + "\n"


COMMON = ("/dev/nvidiactl", "/dev/nvidia-uvm")
LIBRARIES = ("libnvidia-ml.so.1", "libcuda.so.1")


def seen(*indexes: int, **more: Any) -> str:
    """All of these NVIDIA cards, as they should be seen."""
    nodes = [f"/dev/nvidia{index}" for index in indexes]
    values: dict[str, Any] = {
        "libraries": LIBRARIES,
        "uuids": tuple(uuid(index) for index in indexes),
    }
    return inside(*nodes, *COMMON, **{**values, **more})
