"""Slurm's saved queue: can slurmctld read it, and what to take where it cannot.

`job_state` and `job_state.old` are slurmctld's own; `.kept` and `.kept.old` are copies that durable.c
makes, a minute apart. slurmctld begins with an empty queue, and with number 1, where the first two are
empty, and ends where one is garbage (load_all_job_state in job_mgr.c, 24.11).
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import time
from dataclasses import dataclass
from typing import Literal

from dshpc_setup.container.state_volume import saved_in
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.files.storage import cannot_write, read_text, replace_bytes
from dshpc_setup.slurm import completion_log
from dshpc_setup.slurm.places import Places

SET_ASIDE = "/var/lib/dshpc/state/damaged"
_NAMES = ("job_state", "job_state.old", "job_state.kept", "job_state.kept.old")
_VERSION = b"PROTOCOL_VERSION\0"
_HEADER = struct.Struct(f">I{len(_VERSION)}sHQI")
_REST = struct.Struct(">Q")  # when backfill last ran
_PROTOCOL_24_11 = 42 << 8
_SCRIPT = re.compile(r"job\.([0-9]{1,10})")

Choice = Literal["restore", "give-up"]


@dataclass(frozen=True)
class Saved:
    """The header of a state file; `next_job` is the number that the next job gets."""

    name: str
    protocol: int
    written: int
    next_job: int
    size: int


def read(path: str) -> Saved | None:
    """None where slurmctld could not read it, or would take it for an empty queue."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEADER.size + _REST.size)
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return None
    if len(head) < _HEADER.size + _REST.size:
        return None
    length, version, protocol, written, next_job = _HEADER.unpack_from(head)
    if (length, version) != (len(_VERSION), _VERSION):
        return None
    return Saved(os.path.basename(path), protocol, written, next_job, size)


def check(places: Places, slurm_conf: str) -> None:
    """Raises DshpcError where jobs were saved and slurmctld could read nothing of them.

    `slurm_conf`: the text that is in force.
    """
    folder = saved_in(places, slurm_conf)
    if read(f"{folder}/{_NAMES[0]}") is not None:
        return
    if read(f"{folder}/{_NAMES[1]}") and not os.path.lexists(f"{folder}/{_NAMES[0]}"):
        return  # killed between two of its steps: slurmctld takes .old, which is whole
    if _was_used(places, folder):
        raise _lost(folder)


def _was_used(places: Places, folder: str) -> bool:
    """Whether there have been jobs: a first start has none."""
    there = any(os.path.lexists(f"{folder}/{name}") for name in _NAMES)
    return there or bool(_scripts(folder)) or _last_ended(places) > 0


def _scripts(top: str) -> dict[int, str]:
    """Number -> folder of each batch job whose script and environment lie in the volume."""
    found: dict[int, str] = {}
    for digit in range(10):
        try:
            names = os.listdir(f"{top}/hash.{digit}")
        except OSError:
            continue
        for name in names:
            match = _SCRIPT.fullmatch(name)
            if match is not None:
                found[int(match[1])] = f"{top}/hash.{digit}/{name}"
    return found


def _last_ended(places: Places) -> int:
    """The highest number in the log of ended jobs."""
    text = read_text(places.at(completion_log.LOG)) or ""
    return max(map(int, re.findall(r"(?:^|\n)JobId=([0-9]{1,10}) ", text)), default=0)


def _kept(folder: str) -> Saved | None:
    """The newest that can be read."""
    found = (read(f"{folder}/{name}") for name in _NAMES[1:])
    return max((each for each in found if each), key=lambda each: each.written, default=None)


def _lost(folder: str) -> DshpcError:
    numbers = sorted(_scripts(folder))
    kept = _kept(folder)
    known = f"Scripts of {len(numbers)} jobs are there: {_listed(numbers)}." if numbers else ""
    steps = []
    if kept is not None:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(kept.written))
        steps.append(
            Fix(
                f"Take the copy of {when}; jobs of later are given up, and what ended later runs again",
                "docker exec CONTAINER dshpc-node saved-state restore",
            )
        )
    steps.append(
        Fix(
            "Begin with an empty queue; job numbers go on, and scripts are kept in the state volume",
            "docker exec CONTAINER dshpc-node saved-state give-up",
        )
    )
    return DshpcError(
        "Slurm's saved queue cannot be read: its file is empty or damaged.",
        "\n".join(filter(None, (f"{folder}/job_state", known, "Nothing was changed."))),
        (*steps, Fix("Then start the cluster", "dshpc restart", step="after")),
    )


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:20])) + (", ..." if len(numbers) > 20 else "")


def repair(places: Places, choice: Choice, slurm_conf: str, slurm: tuple[int, int]) -> str:
    """Do what was chosen, while slurmctld is down; what was done, in a sentence.

    The files that cannot be read are set aside, never removed. Raises DshpcError.
    """
    folder = saved_in(places, slurm_conf)
    kept = _kept(folder)
    if read(f"{folder}/{_NAMES[0]}") is not None:
        raise DshpcError("Slurm's saved queue can be read: nothing is to be repaired.", "", ())
    if choice == "restore" and kept is None:
        raise DshpcError("There is no copy of Slurm's saved queue that can be read.", "", ())
    numbers = _scripts(folder)
    highest = max((*numbers, _last_ended(places), kept.next_job - 1 if kept else 0, 0))
    aside = places.at(f"{SET_ASIDE}/{time.strftime('%Y%m%dT%H%M%S')}")
    try:
        os.makedirs(aside, mode=0o700)
        if choice == "restore" and kept is not None:
            with open(f"{folder}/{kept.name}", "rb") as file:
                content = with_next(file.read(), highest + 1)
        else:
            content = empty(highest + 1)
            for path in numbers.values():
                shutil.copytree(path, f"{aside}/{os.path.basename(path)}")
        for name in _NAMES[:2]:
            if os.path.lexists(f"{folder}/{name}"):
                shutil.move(f"{folder}/{name}", f"{aside}/{name}")
    except OSError as error:
        raise cannot_write(aside, error) from None
    replace_bytes(f"{folder}/{_NAMES[0]}", content, 0o600, slurm)
    return f"Done. The next job gets number {highest + 1} or a later one; set aside in {aside}."


def with_next(content: bytes, next_job: int) -> bytes:
    """That state, with no lower number for the next job."""
    length, version, protocol, written, number = _HEADER.unpack_from(content)
    head = _HEADER.pack(length, version, protocol, written, max(number, next_job))
    return head + content[_HEADER.size :]


def empty(next_job: int) -> bytes:
    """A state without jobs."""
    now = int(time.time())
    return _HEADER.pack(len(_VERSION), _VERSION, _PROTOCOL_24_11, now, next_job) + _REST.pack(0)
