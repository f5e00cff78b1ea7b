"""What a submission gets, in the words of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dshpc_setup.jobs import gpu_words
from dshpc_setup.jobs.availability import Availability
from dshpc_setup.jobs.fit import Fit
from dshpc_setup.jobs.gpu_words import Clock
from dshpc_setup.jobs.offer import Offer
from dshpc_setup.jobs.request import Request

_MOST_NAMED = 8  # nodes


def gpus(found: Fit) -> dict[str, Any] | None:
    """`gpus` of the answer; `which` where they are particular ones."""
    if found.kind is None:
        return None
    kind, first = found.kind, found.kind.first
    models = dict.fromkeys(gpu.model for gpu in kind.gpus)
    told = {
        "type": first.slurm_type if len(kind.types) == 1 else ", ".join(models),
        "name": ", ".join(dict.fromkeys(gpu.name for gpu in kind.gpus)),
        "vendor": ", ".join(dict.fromkeys(gpu.vendor for gpu in kind.gpus)),
        "count": found.gpus,
        "memory_mib": min(gpu.memory_mib or 0 for gpu in kind.gpus) or None,
        "free": found.free,
    }
    if not found.targeted:
        return told
    from dshpc_setup.jobs import targets

    return {**told, "type": ", ".join(models), "which": [targets.number(gpu) for gpu in kind.gpus]}


def notes(found: Fit, has: Offer, now: Availability | None, clock: Clock) -> list[str]:
    """What one should know that is no refusal."""
    told = list(found.notes)
    if held := busy(found, now, clock):
        told.append(f"It waits for {'them' if found.gpus > 1 else 'its GPU'}: {held}."
                     if found.targeted else f"It waits for GPUs: {held}.")  # fmt: skip
    if found.gres and has.simulated:
        told.append("The GPUs are SIMULATED: made up, no job computes on them.")
    return told


def busy(found: Fit, now: Availability | None, clock: Clock) -> str:
    """Why its GPUs are not free now, "" where they are: "1x h100 (80 GB), busy until 14:05"."""
    if found.kind is None or found.free is None or found.free >= found.gpus:
        return ""
    if not found.targeted:
        return gpu_words.states(found.kind.gpus, now, clock)
    from dshpc_setup.jobs import targets

    return targets.taken(found.kind.gpus, now, clock)


def free_nodes(found: Fit, nodes: Sequence[str]) -> list[str]:
    """ "2 nodes have 4x h100 (80 GB) free now: lab, lab-3.", of a cluster with several nodes."""
    if found.kind is None:
        return []
    count = len(nodes)
    models = list(dict.fromkeys(gpu_words.model(gpu) for gpu in found.kind.gpus))
    what = f"{found.gpus}x {gpu_words.listed(models)}"
    if not nodes:
        return [f"No node has {what} free now."]
    more = f" and {count - _MOST_NAMED} more" if count > _MOST_NAMED else ""
    named = ", ".join(nodes[:_MOST_NAMED])
    return [f"{count} node{' has' if count == 1 else 's have'} {what} free now: {named}{more}."]


def place(asked: Request) -> list[str]:
    """That a command does not run where it was typed."""
    if asked.kind != "command" or asked.workflow is not None or asked.cwd is not None:
        return []
    return [
        "Jobs do not see the folder that it was submitted from: it runs in its workspace. To have that "
        "folder seen: the setting mounts."
    ]


def where(
    found: Fit, has: Offer, now: Availability | None, clock: Clock, *, takes_jobs: bool = True
) -> str:
    """ "on 1 GPU h100 (80 GB) of node, GPU free now", "on the CPU"; where the node takes no jobs,
    nothing is said of when."""
    if found.kind is None:
        return f"on {_shards(found.gres[0])} of {has.node}" if found.gres else "on the CPU"
    plural = "s" if found.gpus != 1 else ""
    models = list(dict.fromkeys(gpu_words.model(gpu) for gpu in found.kind.gpus))
    there = f"on {found.gpus} GPU{plural} {gpu_words.listed(models)} of {has.node}"
    if found.free is None or not takes_jobs:
        return there
    if found.free >= found.gpus:
        return f"{there}, GPU{plural} free now"
    return f"{there}, later: {gpu_words.states(found.kind.gpus, now, clock)}"


def _shards(gres: str) -> str:
    """ "2 shards of a GPU" of "shard:2"."""
    count = gres.partition(":")[2]
    return f"{count} shard{'' if count == '1' else 's'} of a GPU"
