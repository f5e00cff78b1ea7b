"""Facts made of plain values, to be planned with."""

from __future__ import annotations

from dataclasses import replace

from dshpc_setup.facts import Cpu, Engine, GpuDevice, Gpus, HostFacts, Memory, Platform


def gpu(index: int, kind: str = "h100", name: str = "NVIDIA H100 80GB HBM3") -> GpuDevice:
    return GpuDevice(
        index,
        "nvidia",
        name,
        uuid=f"GPU-{index}",
        pci_bus_id=f"0000:{index:02x}:00.0",
        slurm_type=kind,
        device_files=(f"/dev/nvidia{index}",),
        mig_mode="disabled",
    )


def facts(*devices: GpuDevice, **changes: object) -> HostFacts:
    """Eight CPUs (four cores of two threads), 16000 MiB, and these GPUs."""
    gpus = Gpus("present", devices) if devices else Gpus("absent", detail="No GPU was found.")
    cpu = Cpu(8, 1, 4, 2, 8, socket_cpus=("0-7",))
    base = HostFacts(Platform("linux"), cpu, Memory(16000, 16000), gpus, Engine("present"))
    return replace(base, **changes)  # type: ignore[arg-type]


def two_sockets() -> Cpu:
    """32 CPUs: two sockets of eight cores, the second threads counted after all first ones."""
    return Cpu(32, 2, 8, 2, 32, socket_cpus=("0-7,16-23", "8-15,24-31"))
