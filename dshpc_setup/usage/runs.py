"""What Slurm's plugin has noted of the runs of jobs (container/task_use.c), as values."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from dshpc_setup.usage.ledger import FOLDER

_NAME = re.compile(r"([0-9]{1,10})\.([0-9]{1,9})", re.ASCII)
_MOST_BYTES = 2 << 20
BATCH_STEP = 0xFFFFFFFB  # SLURM_BATCH_SCRIPT
ALLOCATION = "alloc"  # in place of a step: of one in which none has run, noted by the sampler


@dataclass(frozen=True)
class Run:
    """`places` in slurmd's list, of `uuids` those that are known; `seen` is when it was heard of last."""

    own: int
    run: int
    uid: int | None = None
    began: float | None = None
    seen: float | None = None
    places: tuple[int, ...] = ()
    uuids: tuple[str, ...] = ()
    is_batch: bool = False
    peak_kib: int | None = None
    cpu_s: float | None = None


def parse(own: int, run: int, text: str) -> Run:
    """A line that is cut off or of another shape is none."""
    uid: int | None = None
    times: list[float] = []
    places: dict[int, None] = {}
    uuids: dict[str, None] = {}
    peaks: list[int] = []
    cpu: dict[str, int] = {}
    is_batch = False
    for line in text.split("\n")[:-1]:
        word, _, rest = line.partition(" ")
        parts = rest.split(" ", 5)
        try:
            if word == "start":
                step, at, user, held, named = parts[:5]
                times.append(float(at))
                uid = int(user)
                is_batch = is_batch or step == str(BATCH_STEP)
                places.update((int(each), None) for each in held.split(",") if each != "-")
                uuids.update((each, None) for each in named.split(",") if each != "-")
            elif word == "end":
                step, at, _, kib, ms = parts
                times.append(float(at))
                peaks.append(int(kib))
                cpu[step] = max(cpu.get(step, 0), int(ms))
        except ValueError:
            continue
    return Run(
        own, run, uid,
        began=min(times, default=None), seen=max(times, default=None),
        places=tuple(places), uuids=tuple(uuids) if len(uuids) == len(places) else (),
        is_batch=is_batch,
        peak_kib=max(peaks, default=None),
        cpu_s=sum(cpu.values()) / 1000 if cpu else None,
    )  # fmt: skip


def path(own: int, run: int, folder: str = FOLDER) -> str:
    return f"{folder}/run/{own}.{run}"


def names(folder: str = FOLDER) -> set[tuple[int, int]]:
    """(job, how often it had been begun before) of all that are noted."""
    try:
        found = map(_NAME.fullmatch, os.listdir(f"{folder}/run"))
    except OSError:
        return set()
    return {(int(match[1]), int(match[2])) for match in found if match}


def read(own: int, run: int, folder: str = FOLDER) -> Run | None:
    try:
        with open(path(own, run, folder), encoding="utf-8", errors="replace") as file:
            return parse(own, run, file.read(_MOST_BYTES))
    except OSError:
        return None


def note_allocation(run: Run, folder: str = FOLDER) -> None:
    """Of one in which no step has run yet; raises OSError."""
    places = ",".join(map(str, run.places)) or "-"
    uuids = ",".join(run.uuids) or "-"
    line = f"start {ALLOCATION} {int(run.began or 0)} {run.uid or 0} {places} {uuids} -\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path(run.own, run.run, folder), flags, 0o600)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def forget(own: int, run: int, folder: str = FOLDER) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path(own, run, folder))


def of_job(own: int, known: Mapping[int, list[int]], folder: str = FOLDER) -> list[Run]:
    """All runs of a job that are noted, the last one behind; `known`: own number -> runs."""
    found = (read(own, run, folder) for run in sorted(known.get(own, ())))
    return [run for run in found if run is not None]
