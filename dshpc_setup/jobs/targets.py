"""`--target NODE[::0,2]`: particular GPUs of the node, by index or UUID. Pure.

Slurm knows GPUs by their type. With `gres_type: index` each has one of its own; else a target is one that
Slurm can give where it names all GPUs of a type.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.jobs import gpu_words
from dshpc_setup.jobs.availability import Availability
from dshpc_setup.jobs.fit import Fit, Kind, Refusal, limits, sized, suits
from dshpc_setup.jobs.gpu_words import Clock
from dshpc_setup.jobs.offer import Offer, OfferedGpu
from dshpc_setup.methods.model import Resources

THIS_NODE = "localhost"  # as other tools call the one node; its own name does as well
_FORM = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,62})(?:::(.+))?", re.ASCII)
_GPU = re.compile(r"[0-9A-Za-z][0-9A-Za-z./-]{0,79}", re.ASCII)
_INDEX = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)


def parse(texts: Sequence[str]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The node of each target, and its GPUs, () for one that names none.

    Raises DshpcError (usage) for what is none.
    """
    nodes: list[str] = []
    found = []
    for text in texts:
        match = _FORM.fullmatch(text)
        words = tuple((match[2] or "").split(",")) if match and match[2] else ()
        if match is None or not all(_GPU.fullmatch(word) for word in words):
            raise usage_error(
                f"--target {gpu_words.shown(text)!r} is no target.",
                "A target is the node, and the GPUs by index or UUID: NODE::0,2 or NODE::GPU-1f3a",
                "The node's name: dshpc status. Its GPUs: dshpc gpus",
            )
        nodes.append(match[1])
        found.append(words)
    return tuple(nodes), tuple(found)


def check_node(node: str | None, offer: Offer) -> None:
    """Raises DshpcError (usage) where the cluster has no such node."""
    if node not in (None, THIS_NODE, offer.node):
        raise usage_error(
            f"This cluster has no node {gpu_words.shown(node or '')}.",
            f"Its node is {offer.node}.",
            f"Name that: --target {offer.node}",
        )


def chosen(words: Sequence[str], offer: Offer) -> tuple[OfferedGpu, ...]:
    """The GPUs of one target; raises DshpcError where one is not there, or cannot be asked for."""
    if not offer.gpus:
        raise usage_error(
            f"--target names GPUs, and {offer.node} has none.", "", "Leave the GPUs out."
        )
    found: list[OfferedGpu] = []
    for word in words:
        gpu = _named(word, offer)
        if gpu in found:
            raise usage_error(f"--target names GPU {number(gpu)} twice.", "", "Name each GPU once.")
        found.append(gpu)
    for slurm_type in dict.fromkeys(gpu.slurm_type for gpu in found):
        same = [gpu for gpu in offer.gpus if gpu.slurm_type == slurm_type]
        if not all(gpu in found for gpu in same):
            raise _any_of(same, [gpu for gpu in found if gpu in same], offer)
    return tuple(found)


def _any_of(same: Sequence[OfferedGpu], wanted: Sequence[OfferedGpu], offer: Offer) -> DshpcError:
    """Slurm would give any of the same type."""
    count = len(wanted)
    plural = "s" if count != 1 else ""
    numbers = gpu_words.listed([number(gpu) for gpu in same])
    kind = same[0].slurm_type
    return DshpcError(
        f"GPU{plural} {gpu_words.listed([number(gpu) for gpu in wanted])} of {offer.node} cannot be "
        f"requested by index: Slurm knows GPUs {numbers} as {kind}, and gives any of them.",
        "With the setting gres_type: index each GPU has a type of its own (gpu0, gpu1). --gpus and "
        "--gpu-type still work; in Slurm's own commands a model's name does where all GPUs are of "
        "one model.",
        (
            "Give each GPU a type of its own: configure-environment --gres-type index",
            f"Or take any: --gpus {count} --gpu-type {kind}",
        ),
    )


def number(gpu: OfferedGpu) -> str:
    """ "0", and "0.1" for a card's second MIG instance, as its type says."""
    found = re.fullmatch(rf"\D*({_INDEX.pattern})", gpu.slurm_type, re.ASCII)
    own = found is not None and found[1].partition(".")[0] == str(gpu.index)
    return found[1] if found is not None and own else str(gpu.index)


def _named(word: str, offer: Offer) -> OfferedGpu:
    if _INDEX.fullmatch(word):
        same = [gpu for gpu in offer.gpus if number(gpu) == word]
    else:
        uuids = {gpu.uuid.lower(): gpu for gpu in offer.gpus if gpu.uuid}
        exact = uuids.get(word.lower())
        same = [gpu for uuid, gpu in uuids.items() if uuid.startswith(word.lower())]
        same = [exact] if exact is not None else same
    if len(same) == 1:
        return same[0]
    told = "\n".join(_described(gpu) for gpu in same or offer.gpus)
    if same:
        raise usage_error(
            f"--target {gpu_words.shown(word)}: several GPUs of {offer.node} begin so.",
            f"They are:\n{told}",
            "Write more of the UUID, or the index.",
        )
    raise usage_error(
        f"--target {gpu_words.shown(word)}: {offer.node} has no such GPU.",
        f"It has:\n{told}",
        "Name one of these, by its index or UUID.",
    )


def _described(gpu: OfferedGpu) -> str:
    return f"{number(gpu)} ({', '.join(filter(None, (gpu.model, gpu.uuid)))})"


def fit(
    wanted: Resources,
    offer: Offer,
    gpus: Sequence[OfferedGpu],
    room: Availability | None,
    partition: str | None = None,
) -> Fit | Refusal:
    """A job on just these GPUs, or why it cannot be there: how many it gets is what the target says."""
    whys = [*limits(wanted, offer, partition)]
    if wanted.shards:
        whys.append("it asks for shards, which may be of any GPU, and names particular ones")
    need = gpu_words.need(replace(wanted, gpus=1))
    for gpu in gpus:
        if not suits(gpu, wanted, offer):
            size = gpu_words.memory(gpu)
            what = f"{gpu.model} ({size})" if size else gpu.model
            whys.append(f"it needs {need}, and GPU {number(gpu)} is {what}")
    if whys:
        return Refusal(tuple(whys))
    counts = Counter(gpu.slurm_type for gpu in gpus)  # all that there are of each type
    types = tuple(counts)
    free = (
        None if room is None else sum(counts[it] - min(counts[it], room.used(it)) for it in counts)
    )
    gres = tuple(f"gpu:{kind}:{count}" for kind, count in counts.items())
    found = Fit(gres, Kind(types, tuple(gpus)), len(gpus), free, targeted=True)
    return sized(found, wanted, offer)


def taken(gpus: Sequence[OfferedGpu], room: Availability | None, clock: Clock) -> str:
    """ "GPU 0 is taken by job 12 of alice until 14:05", of each type that is; "" where none is."""
    told = []
    for slurm_type in dict.fromkeys(gpu.slurm_type for gpu in gpus):
        used = 0 if room is None else room.used(slurm_type)
        if room is None or not used:
            continue
        holders = room.holders.get(slurm_type, ())
        by = f" by {gpu_words.listed(list(dict.fromkeys(holders)))}" if holders else ""
        until = gpu_words.until(room.held[slurm_type], clock)
        same = [number(gpu) for gpu in gpus if gpu.slurm_type == slurm_type]
        told.append(f"{_taken_of(same, used)} taken{by}{until}")
    return "; ".join(told)


def _taken_of(numbers: Sequence[str], used: int) -> str:
    """ "GPU 0 is", "GPUs 0 and 1 are", "1 of the GPUs 0 and 1 is": which of a type is not known."""
    if len(numbers) == 1:
        return f"GPU {numbers[0]} is"
    if used >= len(numbers):
        return f"GPUs {gpu_words.listed(list(numbers))} are"
    return f"{used} of the GPUs {gpu_words.listed(list(numbers))} {'is' if used == 1 else 'are'}"
