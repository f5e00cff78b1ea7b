"""`--target NODE[::0,2]`: particular GPUs of the node, by index or UUID. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.jobs import gpu_words
from dshpc_setup.jobs.fit import Fit, Kind, Refusal, limits, sized, suits
from dshpc_setup.jobs.gpu_words import Clock
from dshpc_setup.jobs.offer import Offer, OfferedGpu
from dshpc_setup.jobs.room import Room
from dshpc_setup.methods.model import Resources

_FORM = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,62})(?:::(.+))?", re.ASCII)
_GPU = re.compile(r"[0-9A-Za-z][0-9A-Za-z./-]{0,79}", re.ASCII)
_INDEX = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)


def parse(texts: Sequence[str]) -> tuple[str | None, tuple[tuple[str, ...], ...]]:
    """(node, the GPUs of each target, () for one that names none); (None, ()) without a target.

    Raises DshpcError (usage) for what is none, and for several nodes.
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
    if len(set(nodes)) > 1:
        raise usage_error(
            f"--target names several nodes: {gpu_words.listed(list(dict.fromkeys(nodes)))}.",
            "This cluster has one.",
            "Name that: dshpc status",
        )
    return (nodes[0] if nodes else None), tuple(found)


def check_node(node: str | None, offer: Offer) -> None:
    """Raises DshpcError (usage) where the cluster has no such node."""
    if node is not None and node != offer.node:
        raise usage_error(
            f"This cluster has no node {gpu_words.shown(node)}.",
            f"Its node is {offer.node}.",
            f"Name that: --target {offer.node}",
        )


def chosen(words: Sequence[str], offer: Offer) -> tuple[OfferedGpu, ...]:
    """The GPUs of one target; raises DshpcError where one is not there, or cannot be asked for."""
    if not offer.gpus:
        raise usage_error(
            f"--target names GPUs, and {offer.node} has none.", "", "Leave the GPUs out."
        )
    if offer.gres_type != "index":
        raise DshpcError(
            "Particular GPUs cannot be asked for here: Slurm knows them by their model alone.",
            "The setting gres_type is model; with index, each GPU has a name of its own, and models' "
            "names go on working where all GPUs are of one.",
            ("Change it: configure-environment --gres-type index",
             "Or take any GPU: --gpus 1, and --gpu-type for a certain kind."),
        )  # fmt: skip
    found: list[OfferedGpu] = []
    for word in words:
        gpu = _named(word, offer)
        if gpu in found:
            raise usage_error(f"--target names GPU {number(gpu)} twice.", "", "Name each GPU once.")
        found.append(gpu)
    return tuple(found)


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
    room: Room | None,
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
    types = tuple(gpu.slurm_type for gpu in gpus)
    free = None if room is None else sum(not room.used(kind) for kind in types)
    gres = tuple(f"gpu:{kind}:1" for kind in types)
    found = Fit(gres, Kind(types, tuple(gpus)), len(gpus), free, targeted=True)
    return sized(found, wanted, offer)


def taken(gpus: Sequence[OfferedGpu], room: Room | None, clock: Clock) -> str:
    """ "GPU 0 is taken by job 12 of alice until 14:05", of each that is; "" where none is."""
    told = []
    for gpu in gpus:
        if room is None or not room.used(gpu.slurm_type):
            continue
        holders = room.holders.get(gpu.slurm_type, ())
        by = f" by {gpu_words.listed(list(dict.fromkeys(holders)))}" if holders else ""
        until = gpu_words.until(room.held[gpu.slurm_type], clock)
        told.append(f"GPU {number(gpu)} is taken{by}{until}")
    return "; ".join(told)
