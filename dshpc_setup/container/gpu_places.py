"""Which GPU stands at which place of slurmd's list: what the task prolog translates by.

Slurm counts a node's GPUs in the order of slurmd's own list and hands these places out in
CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and ZE_AFFINITY_MASK, or for vendors that it does not know in
SLURM_STEP_GPUS alone. In the list types stand together; CUDA, ROCm and Level Zero count the cards of their
own vendor as they lie in the machine. A small table says which is which (docs/decisions/0016-task-prolog.md).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dshpc_setup import gpu_vendors
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.facts import GpuDevice, MigInstance
from dshpc_setup.files.storage import cannot_write, replace_text
from dshpc_setup.gpu_vendors import Descriptor
from dshpc_setup.machine import Machine
from dshpc_setup.plan.model import ClusterPlan, Isolation
from dshpc_setup.problems import LOST, RESET, UNREADABLE
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.gpus import SlurmGpu
from dshpc_setup.slurm.paths import Paths

_LIST_S = 30.0  # slurmd waits 19 s for a device file that is missing
_NOT_COUNTED = frozenset((LOST, RESET, UNREADABLE))  # by CUDA: the cards behind them move up


@dataclass(frozen=True)
class _Named:
    """How programs call a GPU; `number` is None for a MIG instance, which has none."""

    vendor: str
    number: int | None
    uuid: str | None


def table(
    listed: Sequence[SlurmGpu], gpus: Sequence[GpuDevice], isolation: Isolation = "default"
) -> str:
    """The table for slurmd's list; "" where there is no GPU that a task could see.

    A line for each vendor, `vendor NAME BY` and its variables, and behind it one for each of its GPUs, as
    the vendor counts them: `gpu PLACE VENDOR NUMBER UUID`, with `-` for what there is not. BY is `uuid`
    where numbers do not do: they name no MIG instance, and CUDA does not count a card that it cannot open.
    `places slurm`: no variable but Slurm's own says the places.
    """
    vendors = sorted({gpu.vendor for gpu in gpus})
    if not vendors:
        return ""
    rows: dict[str, list[tuple[bool, int, int, str]]] = {vendor: [] for vendor in vendors}
    for place, gpu in enumerate(listed):
        if (named := _find(gpu, gpus)) is not None:
            number = "-" if named.number is None else named.number
            text = f"gpu {place} {named.vendor} {number} {_plain(named.uuid)}"
            key = (named.number is None, named.number or 0, place)
            rows[named.vendor].append((*key, text))
    flags = {gpu_vendors.of(vendor).slurm.env_flag for vendor in vendors if rows[vendor]}
    lines = ["places slurm"] if flags == {None} else []
    lines.append(f"tier {isolation}")
    for vendor in vendors:
        own = [gpu for gpu in gpus if gpu.vendor == vendor]
        lines.append(_variables(gpu_vendors.of(vendor), own, alone=len(vendors) == 1))
        # A vendor of which jobs get no GPU at all is hidden from every task
        lines += [row[3] for row in sorted(rows[vendor])] or [f"gpu - {vendor} - -"]
    return "".join(f"{line}\n" for line in lines)


def _variables(vendor: Descriptor, own: Sequence[GpuDevice], *, alone: bool) -> str:
    """What the prolog is to set: `Variables` of gpu_vendors, one word for each; `?` is "where it is set"."""
    it = vendor.variables
    by_uuid = any(gpu.mig_mode == "enabled" or _NOT_COUNTED & set(gpu.problems) for gpu in own)
    ranks = (*(() if alone else it.ranks_beside_others), *(f"?{each}" for each in it.ranks_if_set))
    words = (
        *("uuid" if by_uuid else "number", it.visible, it.none, it.uuids, it.uuids_none),
        *("=".join(it.order or ()), ",".join(ranks)),
    )
    return " ".join(("vendor", vendor.name, *(word or "-" for word in words)))


def _plain(uuid: str | None) -> str:
    """For a table that a shell reads: one word."""
    return uuid if uuid and re.fullmatch(r"[A-Za-z0-9/-]{2,80}", uuid) else "-"


def _find(gpu: SlurmGpu, gpus: Sequence[GpuDevice]) -> _Named | None:
    """What programs call it; None where it is none of these devices."""
    found = device_of(gpu, gpus)
    if found is None:
        return None
    device, part = found
    if part is not None:
        return _Named(device.vendor, None, part.uuid)
    return _Named(device.vendor, _number(device, gpus), device.uuid)


def device_of(
    gpu: SlurmGpu, gpus: Sequence[GpuDevice]
) -> tuple[GpuDevice, MigInstance | None] | None:
    """The card, and the instance of it, that Slurm means; None where it is none of these devices."""
    files = set(gpu.files)
    for device in gpus:
        for part in device.mig:
            if part.uuid and part.uuid == gpu.uuid:
                return device, part
            if part.device_files and set(part.device_files) == files:
                return device, part
    for device in gpus:
        same = device.uuid is not None and device.uuid == gpu.uuid
        if same or _is_link_to(device, gpu.files) or _is_alone_with(device, files, gpus):
            return device, None
    return None


def _is_alone_with(device: GpuDevice, files: set[str], gpus: Sequence[GpuDevice]) -> bool:
    """Whether one of these files is this device's and no other's (/dev/kfd is each AMD card's)."""
    others = {file for other in gpus if other is not device for file in other.device_files}
    return bool(files & (set(device.device_files) - others)) and device.mig_mode != "enabled"


def _is_link_to(device: GpuDevice, files: Sequence[str]) -> bool:
    """Whether it is named by a link of the plan's: the end of its name is the GPU's number."""
    from dshpc_setup.plan.devices import LINKS

    names = {f"{LINKS}/{file.rpartition('/')[2]}{device.index}" for file in device.device_files}
    return len(files) == 1 and files[0] in names


def _number(device: GpuDevice, gpus: Sequence[GpuDevice]) -> int:
    """The place among its vendor's, as programs count them.

    CUDA (with CUDA_DEVICE_ORDER=PCI_BUS_ID) and Level Zero count by PCI address, ROCm in the order of
    the kernel's topology, which is the order of the facts.
    """
    own = [gpu for gpu in gpus if gpu.vendor == device.vendor]
    if gpu_vendors.of(device.vendor).numbered_by == "address" and all(
        gpu.pci_bus_id for gpu in own
    ):
        own.sort(key=lambda gpu: gpu.pci_bus_id or "")
    return next(number for number, gpu in enumerate(own) if gpu is device)


def as_planned(plan: ClusterPlan) -> tuple[SlurmGpu, ...]:
    """slurmd's list where all lines are of one type: they stay in their order."""
    return tuple(SlurmGpu(line.slurm_type, line.files, line.uuid) for line in plan.gres)


def needed(gpus: Sequence[GpuDevice], plan: ClusterPlan, *, own_gres: bool) -> bool:
    """Whether places and numbers can differ: only then slurmd is asked, which takes some 25 ms."""
    if own_gres:
        return bool(gpus)
    if not plan.gres:
        return False
    kinds = {(line.vendor, line.slurm_type) for line in plan.gres}
    cut = any(device.mig_mode == "enabled" for device in gpus)
    if len(kinds) > 1 or len({gpu.vendor for gpu in gpus}) > 1 or cut or plan.device_links:
        return True
    by_index = {device.index: device for device in gpus}
    numbers = [
        _number(by_index[line.index], gpus) if line.index in by_index else None
        for line in plan.gres
    ]
    return numbers != list(range(len(numbers)))


def write(
    machine: Machine,
    ask: str,
    paths: Paths,
    node: str,
    gpus: Sequence[GpuDevice],
    plan: ClusterPlan,
    *,
    own_gres: bool,
) -> tuple[SlurmGpu, ...]:
    """Leave the table for the task prolog; slurmd is asked for its list where that is needed, with
    the slurm.conf `ask`. The result is that list.

    `gpus` are all that are visible here, used or not: programs count those too. `own_gres`: gres.conf
    is the user's. Raises DshpcError where slurmd does not list its GPUs or the table cannot be kept:
    jobs would get the wrong ones.
    """
    if needed(gpus, plan, own_gres=own_gres):
        told = Slurm(machine).gpus(ask, node, deadline_s=_LIST_S)
        if told.value is None:
            said = told.asked
            raise DshpcError(
                "slurmd does not list its GPUs, so it is not known which one a job gets.",
                said.text or f"slurmd -G ended with {said.code} ({said.state}).",
                (Fix("Correct what it says, or see", "dshpc doctor", step="look"),),
            )
        listed = told.value
    else:
        listed = as_planned(plan)
    text = table(listed, gpus, plan.isolation)
    if text:
        replace_text(path(paths), text, sync=False)
        return tuple(listed)
    try:
        os.unlink(path(paths))
    except FileNotFoundError:
        pass
    except OSError as error:
        raise cannot_write(path(paths), error) from None
    return tuple(listed)


def path(paths: Paths) -> str:
    """Where the task prolog looks for the table."""
    return f"{paths.run}/gpu-places"
