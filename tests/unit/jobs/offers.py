"""Clusters for the tests of submissions."""

from __future__ import annotations

from dshpc_setup.jobs.offer import Offer, OfferedGpu

_KINDS = {
    "h100": ("NVIDIA H100 80GB HBM3", "nvidia", 81559, "9.0", 80),
    "t4": ("Tesla T4", "nvidia", 15360, "7.5", 16),
    "1g.10gb": ("NVIDIA H100 80GB HBM3", "nvidia", 9728, "9.0", 10),
    "mi300x": ("AMD Instinct MI300X", "amd", 196592, None, 192),
}


def gpus(*models: str, slurm_types: tuple[str, ...] = ()) -> tuple[OfferedGpu, ...]:
    found = []
    for index, model in enumerate(models):
        name, vendor, memory, compute, sold = _KINDS[model]
        kind = slurm_types[index] if slurm_types else model
        part = model.startswith("1g")
        found.append(
            OfferedGpu(index, f"U-{index}", kind, model, name, vendor, memory, compute, part, sold)
        )
    return tuple(found)


def offer(*models: str, slurm_types: tuple[str, ...] = (), shards: int = 0) -> Offer:
    cards = gpus(*models, slurm_types=slurm_types)
    vendors = dict.fromkeys(gpu.vendor for gpu in cards)
    return Offer(
        node="node",
        cpus=8,
        memory_mib=32000,
        gpus=cards,
        aliases={
            vendor: tuple(dict.fromkeys(gpu.slurm_type for gpu in cards if gpu.vendor == vendor))
            for vendor in vendors
        },
        shards=shards,
        cuda="12.4" if "nvidia" in vendors else None,
        partitions=(("debug", "INFINITE"), ("short", "1:00:00")),
    )
