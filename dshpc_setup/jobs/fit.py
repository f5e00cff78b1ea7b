"""Which GPUs a job gets of what a cluster offers, or why it can never run there. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dshpc_setup import gpu_vendors
from dshpc_setup.jobs import gpu_words
from dshpc_setup.jobs.availability import Availability
from dshpc_setup.jobs.gpu_words import Clock
from dshpc_setup.jobs.offer import Offer, OfferedGpu
from dshpc_setup.methods.model import Resources
from dshpc_setup.methods.times import minutes
from dshpc_setup.terminal.sanitize import counted


@dataclass(frozen=True)
class Kind:
    """GPUs which a job may get any of: those of one Slurm type, or of one model, or all there are."""

    types: tuple[str, ...]
    gpus: tuple[OfferedGpu, ...]

    @property
    def first(self) -> OfferedGpu:
        return self.gpus[0]


@dataclass(frozen=True)
class Fit:
    """What a job asks Slurm for, and gets in time. `gres` are words of --gres.

    `kind` is None for a job without GPUs; `free` is how many of its kind are, None where nobody asked.
    `notes` say where less is asked for than the method would take.
    """

    gres: tuple[str, ...] = ()
    kind: Kind | None = None
    gpus: int = 0
    free: int | None = None
    cpus_per_task: int | None = None
    memory_mib: int | None = None
    notes: tuple[str, ...] = ()
    targeted: bool = False  # just the GPUs of `kind`, each by a type of its own
    node: str | None = None  # the one that it must run on, of several
    without: tuple[str, ...] = ()  # nodes where its workspace is not


@dataclass(frozen=True)
class Refusal:
    """Why it can never run here: one clause each, such as "it needs 8 CPUs, this cluster has 2"."""

    whys: tuple[str, ...]


def fit(
    wanted: Resources,
    offer: Offer,
    room: Availability | None,
    partition: str | None = None,
    clock: Clock | None = None,
) -> Fit | Refusal:
    """What satisfies all of `wanted`: of several kinds of GPUs the smallest that is free, else the
    smallest. `room` None: what is free is not known. `clock` says until when others are held.
    """
    whys = [*limits(wanted, offer, partition)]
    found: Fit | Refusal = Fit()
    if wanted.shards:
        found = _shards(wanted, offer)
    elif wanted.gpus and wanted.optional_gpus != "never":
        found = _gpus(wanted, offer, room, clock)
    if isinstance(found, Refusal):
        if wanted.optional_gpus == "auto":
            found = Fit(notes=(f"It runs without a GPU: {found.whys[0]}.",))
        else:
            whys += found.whys
    if whys or isinstance(found, Refusal):
        return Refusal(tuple(whys))
    return replace(sized(found, wanted, offer), without=offer.without_work)


def needs_room(wanted: Resources, offer: Offer) -> bool:
    """Whether what is free makes a difference: only then it has to be asked for."""
    if not wanted.gpus or wanted.shards or wanted.optional_gpus == "never":
        return False
    able = _able(wanted, offer)
    return len(able) > 1 or any(_named_one_by_one(kind, offer) for kind in able)


def _gpus(
    wanted: Resources, offer: Offer, room: Availability | None, clock: Clock | None
) -> Fit | Refusal:
    able = _able(wanted, offer)
    mixed = None if able else _of_several_models(wanted, offer)
    if mixed is not None and len(offer.gpus) >= wanted.gpus:
        note = f"Its GPUs are of different models: {gpu_words.have(offer, None, None)}."
        free = _free(mixed, room)
        return Fit((_item("", wanted.gpus),), mixed, wanted.gpus, free, notes=(note,))
    if not able:
        enough = sum(suits(gpu, wanted, offer) for gpu in offer.gpus) >= wanted.gpus
        need = gpu_words.need(wanted, of_one_kind=enough)
        cuda = f" and CUDA {offer.cuda or 'of a version that is not known'}"
        cuda = (
            cuda
            if wanted.cuda and any(gpu_vendors.has_cuda(gpu.vendor) for gpu in offer.gpus)
            else ""
        )
        has = gpu_words.have(offer, room, clock)
        return Refusal((f"it needs {need}, {offer.holder} has {has}{cuda}",))

    def order(kind: Kind) -> tuple[bool, bool, float, tuple[int, ...]]:
        free = _free(kind, room)
        least = min((gpu.memory_mib or 0 for gpu in kind.gpus), default=0)
        compute = _version(kind.first.compute)
        is_busy = free is not None and free < wanted.gpus
        return (_work_alone(kind, wanted), is_busy, least or float("inf"), compute)

    kind = min(able, key=order)
    gres = _gres(kind, wanted.gpus, offer, room)
    alone = "These are MIG instances: one program can use one of them only."
    notes = (alone,) if _work_alone(kind, wanted) else ()
    return Fit(gres, kind, wanted.gpus, _free(kind, room), notes=notes)


def _work_alone(kind: Kind, wanted: Resources) -> bool:
    """Whether several are wanted, and CUDA shows a program no more than one of these (NVIDIA's MIG user
    guide, "CUDA device enumeration")."""
    return wanted.gpus > 1 and kind.first.is_part and gpu_vendors.has_cuda(kind.first.vendor)


def _able(wanted: Resources, offer: Offer) -> list[Kind]:
    """The kinds that have as many as it needs."""
    return [kind for kind in _kinds(wanted, offer) if len(kind.gpus) >= wanted.gpus]


def _of_several_models(wanted: Resources, offer: Offer) -> Kind | None:
    """All GPUs, where a job does with any of them and one program can use them together: whole cards
    of one vendor."""
    vendors = {gpu.vendor for gpu in offer.gpus}
    parts = any(gpu.is_part for gpu in offer.gpus)
    if wanted.gpu_type is not None or len(vendors) != 1 or parts:
        return None
    if len({gpu.model for gpu in offer.gpus}) == 1:
        return None
    if not all(suits(gpu, wanted, offer) for gpu in offer.gpus):
        return None
    return Kind(tuple(dict.fromkeys(gpu.slurm_type for gpu in offer.gpus)), offer.gpus)


def _kinds(wanted: Resources, offer: Offer) -> list[Kind]:
    """The kinds of GPUs each of which would do."""
    by_type: dict[str, list[OfferedGpu]] = {}
    for gpu in offer.gpus:
        by_type.setdefault(gpu.slurm_type, []).append(gpu)
    by_model: dict[tuple[str, str], list[str]] = {}
    for slurm_type, gpus in by_type.items():
        if all(suits(gpu, wanted, offer) for gpu in gpus):
            models = {gpu.model for gpu in gpus}
            # Which of a type's GPUs a job gets is Slurm's affair: a type of two models is a kind
            key = ("", models.pop()) if len(models) == 1 else (slurm_type, "")
            by_model.setdefault(key, []).append(slurm_type)
    return [
        Kind(tuple(types), tuple(gpu for name in types for gpu in by_type[name]))
        for types in by_model.values()
    ]


def suits(gpu: OfferedGpu, wanted: Resources, offer: Offer) -> bool:
    """Whether this GPU is what one asks for; what is not known of it does not do."""
    return (
        (wanted.gpu_type is None or gpu.slurm_type in types_of(wanted.gpu_type, offer))
        and (wanted.gpu_memory_mb is None or has_memory(gpu, wanted.gpu_memory_mb))
        and (
            wanted.min_compute_capability is None
            or _version(gpu.compute) >= _version(wanted.min_compute_capability) > ()
        )
        and (
            wanted.cuda is None
            or (
                _version(offer.cuda) >= _version(wanted.cuda) > ()
                and gpu_vendors.has_cuda(gpu.vendor)
            )
        )
    )


def has_memory(gpu: OfferedGpu, least_mib: int) -> bool:
    """Whole gigabytes are what cards are sold by: one of 16 GB reports 15360 MiB, and does for 16 GB,
    be they written as 16384 or as 16000."""
    gigabyte = next((size for size in (1024, 1000) if least_mib % size == 0), 0)
    return max(gpu.memory_mib or 0, (gpu.sold_gb or 0) * gigabyte) >= least_mib


def types_of(said: str, offer: Offer) -> frozenset[str]:
    """The Slurm types that a word of people's means: a type, a vendor, a model, a MIG profile."""
    word = said.lower()
    own = {gpu.slurm_type for gpu in offer.gpus if gpu.slurm_type.lower() == word}
    if own:
        return frozenset(own)
    meant = (types for name, types in offer.aliases.items() if name.lower() == word)
    same = {gpu.slurm_type for gpu in offer.gpus if word in (gpu.model.lower(), gpu.vendor)}
    return frozenset(same.union(*meant))


def _version(text: str | None) -> tuple[int, ...]:
    """ "12.4" -> (12, 4); () for what is none, which is less than each."""
    if text is None or not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})*", text):
        return ()
    return tuple(int(part) for part in text.split("."))


def _free(kind: Kind, room: Availability | None) -> int | None:
    if room is None:
        return None
    return max(len(kind.gpus) - sum(room.used(name) for name in kind.types), 0)


def _named_one_by_one(kind: Kind, offer: Offer) -> bool:
    """GPUs of one model with a type each, beside others: Slurm must be told which ones."""
    return len(kind.types) > 1 and len(kind.gpus) < len(offer.gpus)


def _gres(kind: Kind, count: int, offer: Offer, room: Availability | None) -> tuple[str, ...]:
    if len(kind.types) == 1:
        return (_item(kind.types[0], count),)
    if not _named_one_by_one(kind, offer):
        return (_item("", count),)
    soonest = sorted(kind.gpus, key=lambda gpu: 0.0 if room is None else room.until(gpu.slurm_type))
    return _items(gpu.slurm_type for gpu in soonest[:count])


def _items(types: Iterable[str]) -> tuple[str, ...]:
    counts: dict[str, int] = {}
    for name in types:
        counts[name] = counts.get(name, 0) + 1
    return tuple(_item(name, count) for name, count in counts.items())


def _item(slurm_type: str, count: int) -> str:
    return f"gpu:{slurm_type}:{count}" if slurm_type else f"gpu:{count}"


def _shards(wanted: Resources, offer: Offer) -> Fit | Refusal:
    """Shares of a GPU: they have no type, so each GPU has to do."""
    if wanted.gpus:
        return Refusal(("it asks for whole GPUs and for shards, and Slurm gives one of both",))
    if wanted.exclusive:
        return Refusal(("it asks for shards and for the node alone, and Slurm gives one of both",))
    shards = counted(wanted.shards, "shard")
    if not offer.shards or not offer.gpus:
        return Refusal(
            (f"it needs {shards} of a GPU, and no GPU of this cluster is shared (see gpu_sharing)",)
        )
    each = offer.shards // len(offer.gpus)
    if wanted.shards > each:
        return Refusal((f"it needs {shards}, and a GPU of this cluster has {each}",))
    if not all(suits(gpu, wanted, offer) for gpu in offer.gpus):
        need = gpu_words.need(replace(wanted, gpus=1))
        return Refusal(
            (f"it needs shards of {need}, and shards of this cluster may be of any of its GPUs",)
        )
    return Fit((f"shard:{wanted.shards}",))


def limits(wanted: Resources, offer: Offer, partition: str | None) -> Iterator[str]:
    """CPUs, memory, nodes and time: more than there is."""
    nodes = wanted.nodes or 1
    if nodes > offer.nodes:
        yield f"it needs {nodes} nodes, this cluster has {offer.nodes}"
    tasks = -(-(wanted.tasks or 1) // nodes)  # of one node
    cpus = (wanted.cpus or 1) * tasks
    if cpus > offer.cpus:
        of = f" ({tasks} tasks with {wanted.cpus or 1} each)" if tasks > 1 else ""
        yield f"it needs {cpus} CPUs{of}, {offer.holder} has {offer.cpus}"
    least = wanted.min_memory_mb if wanted.min_memory_mb is not None else wanted.memory_mb
    if least is not None and least > offer.memory_mib:
        yield (
            f"it needs {gpu_words.asked_size(least)} of memory, {offer.holder} has "
            f"{gpu_words.size(offer.memory_mib)} for jobs"
        )
    yield from _time(wanted, offer.partitions, partition)


def _time(
    wanted: Resources, partitions: Sequence[tuple[str, str]], partition: str | None
) -> Iterator[str]:
    names = [name for name, _ in partitions]
    if partition is not None and partition not in names:
        yield f"there is no partition {partition}, only {', '.join(names)}"
        return
    chosen = partition or (names[0] if names else "")
    longest = minutes(dict(partitions).get(chosen, ""))
    if wanted.time_limit is not None and longest is not None and wanted.time_limit > longest:
        yield (
            f"it needs {gpu_words.minutes(wanted.time_limit)}, and the partition {chosen} gives "
            f"{gpu_words.minutes(longest)} at most"
        )


def sized(found: Fit, wanted: Resources, offer: Offer) -> Fit:
    """With CPUs and memory; what is not said stays Slurm's default."""
    cpus = wanted.cpus
    if cpus == 0:
        cpus = max(offer.cpus // (wanted.tasks or 1), 1)
    memory = wanted.memory_mb if wanted.memory_mb is not None else wanted.min_memory_mb
    notes = found.notes
    if memory is not None and memory > offer.memory_mib:
        notes += (
            f"It gets {gpu_words.size(offer.memory_mib)} of memory, which is all that there is, and "
            f"not {gpu_words.asked_size(memory)}.",
        )
        memory = offer.memory_mib
    if wanted.exclusive:
        # Slurm itself lets others onto a node that has more GPUs than CPUs: OverSubscribe=FORCE
        memory = offer.memory_mib
        notes += ("It has the node to itself: it waits until no other job runs there, and gets all of "
                  "its CPUs, memory and GPUs.",)  # fmt: skip
    return replace(found, cpus_per_task=cpus, memory_mib=memory, notes=notes)
