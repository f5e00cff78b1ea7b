"""Slurm's saved queue: can slurmctld read it, and what to take where it cannot.

`job_state` and `job_state.old` are slurmctld's own; `.kept` and `.kept.old` are copies that durable.c
makes, a minute apart. slurmctld begins with an empty queue, and with number 1, where the first two are
empty, and ends where one is garbage (load_all_job_state in job_mgr.c, 24.11). A beginning that is right
says little of the rest: where slurmctld has ended, and before a copy is taken, slurmctld itself is asked
(state_trial.py).
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import time
from dataclasses import dataclass
from typing import Literal

from dshpc_setup.container import restored
from dshpc_setup.container.state_trial import Refuses
from dshpc_setup.container.state_volume import saved_in
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.files.storage import cannot_write, read_text, replace_bytes
from dshpc_setup.slurm import completion_log
from dshpc_setup.slurm.paths import Paths

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


def check(paths: Paths, slurm_conf: str, refuses: Refuses) -> None:
    """Raises DshpcError where jobs were saved and slurmctld would read nothing of them, as far as the
    beginning tells.

    `slurm_conf`: the text that is in force.
    """
    folder = saved_in(paths, slurm_conf)
    if read(f"{folder}/{_NAMES[0]}") is not None:
        return
    if read(f"{folder}/{_NAMES[1]}") and not os.path.lexists(f"{folder}/{_NAMES[0]}"):
        return  # killed between two of its steps: slurmctld takes .old, which is whole
    if _was_used(paths, folder):
        raise _lost(folder, refuses)


def check_whole(paths: Paths, slurm_conf: str, refuses: Refuses) -> None:
    """As `check`, by slurmctld's own word, which takes a second or two: where it has ended."""
    check(paths, slurm_conf, refuses)
    folder = saved_in(paths, slurm_conf)
    name = next((name for name in _NAMES[:2] if os.path.lexists(f"{folder}/{name}")), None)
    if name is not None and refuses(f"{folder}/{name}"):
        raise _lost(folder, refuses)


def _was_used(paths: Paths, folder: str) -> bool:
    """Whether there have been jobs: a first start has none."""
    there = any(os.path.lexists(f"{folder}/{name}") for name in _NAMES)
    return there or bool(_scripts(folder)) or _last_ended(paths) > 0


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


def _last_ended(paths: Paths) -> int:
    """The highest number in the log of ended jobs."""
    text = read_text(paths.at(completion_log.LOG)) or ""
    return max(map(int, re.findall(r"(?:^|\n)JobId=([0-9]{1,10}) ", text)), default=0)


def _kept(folder: str, refuses: Refuses) -> Saved | None:
    """The newest that slurmctld can read."""
    found = [each for name in _NAMES[1:] if (each := read(f"{folder}/{name}"))]
    found.sort(key=lambda each: each.written, reverse=True)
    return next((each for each in found if not refuses(f"{folder}/{each.name}")), None)


def _lost(folder: str, refuses: Refuses) -> DshpcError:
    numbers = sorted(_scripts(folder))
    kept = _kept(folder, refuses)
    known = f"Scripts of {len(numbers)} jobs are there: {_listed(numbers)}." if numbers else ""
    steps = []
    if kept is not None:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(kept.written))
        steps.append(
            Fix(
                f"Take the copy of {when}; of jobs of later the scripts are kept, and they are named",
                "dshpc exec --root -- dshpc-node saved-state restore",
            )
        )
    steps.append(
        Fix(
            "Start with an empty queue; job IDs continue, and scripts are kept in the state volume",
            "dshpc exec --root -- dshpc-node saved-state give-up",
        )
    )
    return DshpcError(
        "Slurm's saved queue cannot be read: its file is empty or damaged.",
        "\n".join(filter(None, (f"{folder}/job_state", known, "Nothing was changed."))),
        (*steps, Fix("Then start the cluster", "dshpc restart", step="after", does="restart")),
    )


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:20])) + (", ..." if len(numbers) > 20 else "")


def repair(
    paths: Paths, choice: Choice, slurm_conf: str, slurm: tuple[int, int], refuses: Refuses
) -> str:
    """Do what was chosen, while slurmctld is down; what was done, in lines.

    The files that cannot be read are set aside, never removed, and the scripts of jobs that are in no
    queue any more with them: slurmctld removes these as it starts. Raises DshpcError.
    """
    folder = saved_in(paths, slurm_conf)
    now = f"{folder}/{_NAMES[0]}"
    if read(now) is not None and not refuses(now):
        raise DshpcError("Slurm's saved queue can be read: nothing is to be repaired.", "", ())
    kept = _kept(folder, refuses)
    if choice == "restore" and kept is None:
        raise DshpcError("There is no copy of Slurm's saved queue that can be read.", "", ())
    numbers = _scripts(folder)
    highest = max((*numbers, _last_ended(paths), kept.next_job - 1 if kept else 0, 0))
    inside = f"{SET_ASIDE}/{time.strftime('%Y%m%dT%H%M%S')}"
    aside = paths.at(inside)
    content, known = empty(highest + 1), 0
    try:
        os.makedirs(aside, mode=0o700)
        if choice == "restore" and kept is not None:
            with open(f"{folder}/{kept.name}", "rb") as file:
                content = with_next(file.read(), highest + 1)
            known = kept.next_job  # the copy holds each job of a lower number that had not ended
            restored.remember(paths, kept.written)
        given_up = sorted(number for number in numbers if number >= known)
        for number in given_up:
            shutil.copytree(numbers[number], f"{aside}/job.{number}")
        for name in _NAMES[:2]:
            if os.path.lexists(f"{folder}/{name}"):
                shutil.move(f"{folder}/{name}", f"{aside}/{name}")
    except OSError as error:
        raise cannot_write(aside, error) from None
    replace_bytes(f"{folder}/{_NAMES[0]}", content, 0o600, slurm)
    done = f"Done. The next job gets number {highest + 1} or a later one; set aside in {inside}."
    return f"{done}\n{_named(given_up, inside)}" if given_up else done


def _named(numbers: list[int], aside: str) -> str:
    """What became of the jobs that are in no queue any more, and how they are submitted again."""
    return (
        f"Jobs that are not in the queue any more: {_listed(numbers)}. Their scripts are kept. Submit "
        "one again as its user, from its folder, with the options that it had on its command line:\n"
        f"  dshpc exec --root -- cat {aside}/job.{numbers[0]}/script | dshpc sbatch\n"
        "  (a job of dshpc run, method run or workflow run: the same command again)"
    )


def with_next(content: bytes, next_job: int) -> bytes:
    """That state, with no lower number for the next job."""
    length, version, protocol, written, number = _HEADER.unpack_from(content)
    head = _HEADER.pack(length, version, protocol, written, max(number, next_job))
    return head + content[_HEADER.size :]


def empty(next_job: int) -> bytes:
    """A state without jobs."""
    now = int(time.time())
    return _HEADER.pack(len(_VERSION), _VERSION, _PROTOCOL_24_11, now, next_job) + _REST.pack(0)
