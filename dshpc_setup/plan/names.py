"""Names that people may say for the GPUs of a node, and what all of its GPUs have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import GpuDevice
from dshpc_setup.plan.model import GresLine

# Sizes that cards are sold by, in GB; drivers report somewhat less (15360 MiB of a T4's 16 GB)
_SOLD = (
    *(1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 144),
    *(180, 192, 256, 288),
)
_MORE = 0.05  # GB by which a driver's number may exceed what is sold: it is rounded
_MOST_MISSING = 0.10  # of the size that is sold: ECC takes a sixteenth, the driver some more


def aliases(devices: Sequence[GpuDevice], gres: Sequence[GresLine]) -> dict[str, tuple[str, ...]]:
    """What people may say -> the types of this node that it means, the best one first.

    The vendor's name stands for each of its types: whole cards before MIG instances, then the type
    of which there are most. The full model name, as NVML and `slurmd -C` spell it, stands for one.
    """
    whole = {device.slurm_type for device in devices if device.mig_mode != "enabled"}
    counts: dict[tuple[str, str], int] = {}
    for line in gres:
        key = (line.vendor, line.slurm_type)
        counts[key] = counts.get(key, 0) + 1
    names: dict[str, tuple[str, ...]] = {}
    for vendor in dict.fromkeys(line.vendor for line in gres):
        own = [kind for of, kind in counts if of == vendor]
        own.sort(key=lambda kind: (kind not in whole, -counts[vendor, kind]))
        names[vendor] = tuple(own)
    models: dict[str, set[str]] = {}
    for device in devices:
        if device.name and device.mig_mode != "enabled":
            models.setdefault(model_name(device.name), set()).add(device.slurm_type)
    for model, meant in models.items():
        if model and len(meant) == 1 and model not in names:
            names[model] = tuple(meant)
    known = {line.slurm_type for line in gres}
    return {said: meant for said, meant in names.items() if said not in known}


def for_any(
    said: Mapping[str, tuple[str, ...]], models: Sequence[GresLine], typed: Sequence[GresLine]
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Where each GPU has a type of its own: (names that mean any of them, ambiguous ones -> types).

    `said` are the aliases of `models`, the lines by model; `typed` are the same lines as they are
    called now. Any GPU will do for a name where all are of one model. Where they are not, Slurm has
    no word for "one of these": the name is ambiguous.
    """
    own = {line.slurm_type for line in typed}
    meant = {line.slurm_type: (line.slurm_type,) for line in models} | dict(said)
    names = {name: kinds for name, kinds in meant.items() if name not in own}
    if len({(line.vendor, line.slurm_type) for line in models}) == 1:
        return dict.fromkeys(names, ("",)), {}
    return {}, {
        name: tuple(
            now.slurm_type
            for was, now in zip(models, typed, strict=True)
            if was.slurm_type in kinds
        )
        for name, kinds in names.items()
    }


def model_name(name: str) -> str:
    """ "NVIDIA H100 80GB HBM3" -> "nvidia_h100_80gb_hbm3", as `slurmd -C` spells it."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def features(devices: Sequence[GpuDevice], gres: Sequence[GresLine]) -> tuple[str, ...]:
    """For --constraint: vendor, model, memory, compute capability - where all GPUs share it.

    A constraint chooses nodes and not GPUs: on a node with an 80 GB card and a small one, one that
    said `gpumem80g` could be given the small one. So a feature that is not true of each is left out,
    and so is one that is not known of each.
    """
    if not gres:
        return ()
    by_index = {device.index: device for device in devices}
    owners = [by_index[line.index] for line in gres]
    found = [
        _common([device.vendor for device in owners]),
        _common([device.slurm_type for device in owners]),
        _common([_memory_of(by_index[line.index], line) for line in gres]),
        _common([_compute_feature(device) for device in owners]),
    ]
    told = (name for name in found if name and re.fullmatch(r"[a-z0-9][a-z0-9_.]*", name))
    return tuple(name for name in dict.fromkeys(told) if name != "gpu")  # a type of no known model


def _common(values: Sequence[str | None]) -> str | None:
    return values[0] if len(set(values)) == 1 else None


def _memory_of(device: GpuDevice, line: GresLine) -> str | None:
    """Of what a job gets by this line; a MIG instance's stands in its profile: "1g.10gb"."""
    if device.mig_mode != "enabled":
        return _memory_feature(device.memory_mib)
    profile = re.search(r"\.([1-9][0-9]{0,3})gb", line.slurm_type)
    return f"gpumem{profile[1]}g" if profile else None


def _memory_feature(memory_mib: int | None) -> str | None:
    """ "gpumem80g": the size that the card is sold by, else GiB rounded down."""
    if not memory_mib:
        return None
    size = sold_gb(memory_mib) or memory_mib // 1024
    return f"gpumem{size}g" if size >= 1 else None


def sold_gb(memory_mib: int) -> int | None:
    """The size that a card of that memory is sold by: 81559 -> 80; None where it is like none."""
    gib = memory_mib / 1024
    sold = next((size for size in _SOLD if gib <= size + _MORE), None)
    return sold if sold is not None and gib >= sold * (1 - _MOST_MISSING) else None


def _compute_feature(device: GpuDevice) -> str | None:
    """ "cc9.0" for NVIDIA; AMD's name of the target, "gfx942", as it is."""
    if not device.compute:
        return None
    return f"{gpu_vendors.of(device.vendor).slurm.compute_prefix}{device.compute.lower()}"
