"""GPUs, sizes and times in words: what a job needs, what a cluster has, until when it is held."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from dshpc_setup.jobs.availability import Availability
from dshpc_setup.jobs.offer import Offer, OfferedGpu
from dshpc_setup.methods.model import Resources
from dshpc_setup.terminal.sanitize import counted, plain

_DAY_S = 24 * 3600


@dataclass(frozen=True)
class Clock:
    """The caller's: seconds of the epoch, and how far his clock is ahead of UTC."""

    now: float
    utc_offset_s: int = 0

    def until(self, at: float) -> str:
        """ "14:05" today, else "Tue 14:05", and the date from a week on."""
        here = time.gmtime(at + self.utc_offset_s)
        days = int((at + self.utc_offset_s) // _DAY_S - (self.now + self.utc_offset_s) // _DAY_S)
        form = "%H:%M" if days == 0 else "%a %H:%M" if 0 < days < 7 else "%Y-%m-%d %H:%M"
        return time.strftime(form, here)


def need(wanted: Resources, *, of_one_kind: bool = False) -> str:
    """ "2 GPUs with 40 GB", "1 GPU named h100 with compute capability 8.0 and CUDA 12.4"; with
    `of_one_kind` also that several must be alike."""
    count = wanted.gpus
    alike = count > 1 and of_one_kind
    named = f" named {shown(wanted.gpu_type)}" if wanted.gpu_type else ""
    features = [
        *([asked_size(wanted.gpu_memory_mb)] if wanted.gpu_memory_mb else []),
        *(
            [f"compute capability {wanted.min_compute_capability}"]
            if wanted.min_compute_capability
            else []
        ),
        *([f"CUDA {wanted.cuda}"] if wanted.cuda else []),
    ]
    with_all = f" with {listed(features)}" if features else ""
    plain = counted(count, "GPU")
    if named or with_all:
        return f"{plain}{named}{with_all}{', all of one kind' if alike else ''}"
    return f"{plain}{' of one kind' if alike else ''}"


def have(offer: Offer, room: Availability | None, clock: Clock | None) -> str:
    """ "1x h100 (80 GB) free and 1 busy until 14:05, and 1x t4 (16 GB)"; "no GPU"."""
    return states(offer.gpus, room, clock) if offer.gpus else "no GPU"


def states(gpus: Sequence[OfferedGpu], room: Availability | None, clock: Clock | None) -> str:
    """GPUs of one model or several, one at least."""
    models: dict[tuple[str, str], list[OfferedGpu]] = {}
    for gpu in gpus:
        models.setdefault((gpu.model, memory(gpu)), []).append(gpu)
    words = [_state(same, room, clock) for same in models.values()]
    before = ", and " if any(" busy" in text for text in words) else " and "
    return before.join(filter(None, (", ".join(words[:-1]), words[-1])))


def _state(gpus: Sequence[OfferedGpu], room: Availability | None, clock: Clock | None) -> str:
    """GPUs of one model: "1x h100 (80 GB) free and 1 busy until 14:05"; "2x ..." where none is held."""
    what = model(gpus[0])
    ends = _ends(gpus, room)
    free = len(gpus) - len(ends)
    if not ends:
        return f"{len(gpus)}x {what}"
    till = _first_until(ends, clock)
    if free <= 0:
        return f"{len(gpus)}x {what}, busy{till}"
    return f"{free}x {what} free and {len(ends)} busy{till}"


def _ends(gpus: Sequence[OfferedGpu], room: Availability | None) -> list[float | None]:
    """When those that are held become free, the first one first."""
    if room is None:
        return []
    types = dict.fromkeys(gpu.slurm_type for gpu in gpus)
    found = [end for name in types for end in room.held.get(name, ())]
    found.sort(key=lambda end: (end is None, end))
    return found[: len(gpus)]


def _first_until(ends: Sequence[float | None], clock: Clock | None) -> str:
    """Until when the first of them is held: " until 14:05", ", the first until 14:05" where others are
    held for longer; "" where that is not known."""
    first = until(ends[:1], clock)
    return f", the first{first}" if first and len(set(ends)) > 1 else first


def until(ends: Sequence[float | None], clock: Clock | None) -> str:
    """Until when all of them are held; "" where a job among them has no end."""
    if clock is None:
        return ""
    known = [end for end in ends if end is not None]
    return f" until {clock.until(max(known))}" if len(known) == len(ends) else ""


def memory(gpu: OfferedGpu) -> str:
    """ "80 GB", as the card is sold; "" where it is not known."""
    if gpu.sold_gb:
        return f"{gpu.sold_gb} GB"
    return size(gpu.memory_mib) if gpu.memory_mib else ""


def model(gpu: OfferedGpu) -> str:
    """ "h100 (80 GB)"."""
    size_of = memory(gpu)
    return f"{gpu.model} ({size_of})" if size_of else gpu.model


def asked_size(mib: int) -> str:
    """As people meant it: "40 GB" of 40000, too, of which `size` makes 39.1."""
    return f"{mib // 1000} GB" if mib and mib % 1000 == 0 and mib % 1024 else size(mib)


def size(mib: int) -> str:
    """ "40 GB", "1.5 GB", "512 MB"; GB mean GiB, as in the options."""
    if mib < 1024:
        return f"{mib} MB"
    return f"{round(mib / 1024, 1):g} GB"


def minutes(count: int) -> str:
    """ "90 minutes", "2 hours", "3 days"."""
    for unit, name in ((24 * 60, "day"), (60, "hour")):
        if count and count % unit == 0:
            return counted(count // unit, name)
    return counted(count, "minute")


def listed(items: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def shown(text: str | None) -> str:
    """What a person wrote, short and without signs that move a terminal's cursor."""
    return plain(text or "")[:60]
