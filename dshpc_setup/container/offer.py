"""What this container's cluster offers to jobs, of the configuration that is put in force.

What Slurm will hand out counts: a gres.conf and a slurm.conf of the user's own say that, and what was
detected says what those GPUs are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dshpc_setup import gpu_vendors
from dshpc_setup.container import hardware_fit
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.gpu_places import device_of
from dshpc_setup.files.storage import replace_text
from dshpc_setup.jobs.offer import FILE, Offer, OfferedGpu
from dshpc_setup.plan.model import OWNERS
from dshpc_setup.plan.names import model_name, sold_gb
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.gpus import SlurmGpu
from dshpc_setup.slurm.paths import Paths
from dshpc_setup.slurm_releases import SHIPPED

if TYPE_CHECKING:
    from dshpc_setup.container.look import Seen

_PLAIN = re.compile(r"[\w.+-]+", re.ASCII)  # what may stand in an option as it is


def write(paths: Paths, offer: Offer) -> None:
    """Leave it for the submissions of all users."""
    replace_text(paths.at(FILE), json.dumps(offer.to_json()) + "\n", sync=False)


def offer(candidate: Candidate, seen: Seen, node: str, listed: Sequence[SlurmGpu]) -> Offer:
    """The offer of a configuration; `listed` are the node's GPUs as slurmd has them."""
    text = candidate.texts["slurm.conf"]
    entry = slurm_conf.node(text, node)
    values = entry.values if entry else {}
    counts = slurm_conf.gres_counts(values.get("gres", ""))
    gpus = tuple(_in_force(tuple(_gpus(listed, seen)), counts))
    longest = slurm_conf.last(text, "MaxArraySize") or ""
    return Offer(
        node=node,
        cpus=hardware_fit.node_cpus(values) or 1,
        memory_mib=max(_mib(values, "realmemory") - _mib(values, "memspeclimit"), 1),
        gpus=gpus,
        aliases=_aliases(gpus),
        shards=(counts or {}).get("shard", 0),
        cuda=seen.facts.gpus.cuda_version,
        partitions=_partitions(text),
        gres_type=seen.plan.gres_type if _each_its_own(gpus) else "model",
        isolation=seen.plan.isolation,
        simulated=seen.facts.gpus.simulated,
        own_work=seen.plan.own_work,
        carried_work=seen.plan.carried_work,
        owner=seen.plan.owner,
        processor=seen.facts.platform.arch or "",
        max_array=int(longest)
        if re.fullmatch(r"[0-9]{1,7}", longest)
        else SHIPPED.defaults.array_size,
    )


def _gpus(listed: Sequence[SlurmGpu], seen: Seen) -> Iterator[OfferedGpu]:
    devices = seen.facts.gpus.devices
    for place, gpu in enumerate(listed):
        kind = gpu.slurm_type or ""
        if kind and not _PLAIN.fullmatch(kind):
            continue
        found = device_of(gpu, devices)
        if found is None:  # of a gres.conf of the user's, with a file that no card has
            vendor = seen.plan.vendor
            yield OfferedGpu(
                place, gpu.uuid, kind, kind or "gpu", kind or "gpu", vendor, None, None
            )
            continue
        device, part = found
        memory = part.memory_mib if part else device.memory_mib
        yield OfferedGpu(
            index=device.index,
            uuid=part.uuid if part else device.uuid,
            slurm_type=kind,
            model=part.profile if part else device.slurm_type,
            name=device.name or device.slurm_type,
            vendor=device.vendor,
            memory_mib=memory,
            compute=device.compute if gpu_vendors.has_cuda(device.vendor) else None,
            is_part=part is not None or device.partition_of is not None,
            sold_gb=_sold(part.profile if part else None, memory),
        )


def _each_its_own(gpus: Sequence[OfferedGpu]) -> bool:
    """Whether each GPU has a type of its own, which the user's own files may undo."""
    return len({gpu.slurm_type for gpu in gpus}) == len(gpus)


def _sold(profile: str | None, memory_mib: int | None) -> int | None:
    """Of a MIG instance what its profile says: "1g.10gb" reports somewhat less."""
    if profile is not None:
        found = re.search(r"\.([0-9]{1,4})gb", profile)
        return int(found[1]) if found else None
    return sold_gb(memory_mib) if memory_mib else None


def _in_force(gpus: Sequence[OfferedGpu], counts: Mapping[str, int] | None) -> Iterator[OfferedGpu]:
    """No more of each type than Gres= of the node has; all of them where it cannot be read."""
    left = dict(counts or {})
    for gpu in gpus:
        key = f"gpu:{gpu.slurm_type}" if f"gpu:{gpu.slurm_type}" in left else "gpu"
        if counts is None or left.get(key, 0) > 0:
            left[key] = left.get(key, 0) - 1
            yield gpu


def _aliases(gpus: Sequence[OfferedGpu]) -> dict[str, tuple[str, ...]]:
    """Vendors and full model names, as names.aliases has them, for the types in force."""
    types = dict.fromkeys(gpu.slurm_type for gpu in gpus)
    counts = {kind: sum(gpu.slurm_type == kind for gpu in gpus) for kind in types}
    parts = {gpu.slurm_type for gpu in gpus if gpu.is_part}
    names: dict[str, tuple[str, ...]] = {}
    for gpu in gpus:
        said = [gpu.vendor, gpu.model, *([] if gpu.is_part else [model_name(gpu.name)])]
        for name in said:
            if name and name not in types:
                names[name] = tuple(dict.fromkeys((*names.get(name, ()), gpu.slurm_type)))
    return {
        name: tuple(sorted(meant, key=lambda kind: (kind in parts, -counts[kind])))
        for name, meant in names.items()
    }


def _partitions(text: str) -> tuple[tuple[str, str], ...]:
    """Name and MaxTime of each, the default one first."""
    found: list[tuple[bool, str, str]] = []
    default = "INFINITE"
    for entry in slurm_conf.entries(text):
        name = entry.values.get("partitionname")
        if name is None:
            continue
        longest = entry.values.get("maxtime", default).upper()
        if name.upper() == "DEFAULT":
            default = longest
            continue
        if name == OWNERS:  # job_submit.lua chooses it
            continue
        chosen = entry.values.get("default", "no").lower() in ("yes", "true")
        found.append((not chosen, name, longest))
    found.sort(key=lambda item: item[0])
    return tuple((name, longest) for _, name, longest in found)


def _mib(values: Mapping[str, str], key: str) -> int:
    return slurm_conf.number(values.get(key)) or 0
