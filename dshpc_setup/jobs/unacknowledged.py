"""A job whose sbatch gave no answer: found in the queue by its workspace, or kept from ever running.

slurmctld carries out a request that has arrived also when nobody waits for its answer any more, and a
minute later, too. A job without its workspace runs nothing: its launcher finds no request there.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.jobs import gpu_words, records, removal, safe_open, workspace
from dshpc_setup.jobs.workspace import OWN, PARAMS, Workspace
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.client import Slurm

_LOOK_S = 20.0  # for a controller that is away for a moment
_ASK_S = 12.0  # Slurm's own patience is 10 s
_PAUSE_S = 1.0
_CANCEL_S = 15.0
_BEGUN = os.path.splitext(PARAMS)[0]  # what the launcher writes before anything else


def find(machine: Machine, folder: str, look_s: float) -> str | None:
    """The number of the job whose workspace that is; None where Slurm has none, or does not answer."""
    until = time.monotonic() + look_s
    while True:
        # A line a job: of whole jobs no more than some thousand can be read
        known = Slurm(machine).own_folders(deadline_s=_ASK_S).value
        if known is not None:
            return next((number for number, place in known if place == folder), None)
        if time.monotonic() >= until:
            return None
        time.sleep(_PAUSE_S)


def withdraw(place: Workspace) -> bool:
    """Take the workspace away, so that its job never runs; False where that has begun."""
    aside = f"{OWN}-withdrawn"
    try:
        with place.opened() as at, contextlib.suppress(FileNotFoundError):
            # In one step: the launcher finds all of it, or nothing
            os.rename(OWN, aside, src_dir_fd=at, dst_dir_fd=at)
            with safe_open.opened(aside, at) as own:
                begun = any(name.startswith(_BEGUN) for name in os.listdir(own))
            if begun:
                os.rename(aside, OWN, src_dir_fd=at, dst_dir_fd=at)
                return False
    except FileNotFoundError:  # not made to its end, or gone
        pass
    except OSError:
        return False
    remove(place)
    return True


def remove(place: Workspace) -> None:
    """As far as it goes."""
    with (
        contextlib.suppress(OSError),
        workspace.user_opened(place.work, place.uid) as at,
    ):
        removal.discard(place.name, at)


def settled(machine: Machine, place: Workspace, why: DshpcError) -> str:
    """The job's number, where it is queued; raises DshpcError where it is not, and never will be.

    `why` says how the answer was lost.
    """
    number = find(machine, place.path, _LOOK_S)
    if number is not None:
        return number
    if withdraw(place):
        raise DshpcError(
            f"The job was not submitted: {why.brief}",
            f"{why.details}\nIts workspace is removed: should Slurm accept it later, it "
            "ends at once and runs nothing.",
            ("See what is wrong: dshpc doctor", "Then submit it again."),
            Exit.INCOMPLETE,
        )
    raise DshpcError(
        f"The job has started, and its ID is not known: {why.brief}",
        f"{why.details}\nIts workspace is {place.path}.",
        ("Find it: dshpc job list", "See what is wrong: dshpc doctor"),
        Exit.INCOMPLETE,
    )


def taken_back(machine: Machine, places: Sequence[Workspace]) -> DshpcError:
    """What an interrupted submission has left is ended, or kept from running: what is to be said."""
    cancelled, left, late = [], [], []
    for place in places:
        record = records.of_place(place)
        number = str(record.number) if record is not None and record.number else None
        number = number or find(machine, place.path, 0.0)
        if number is None:
            if withdraw(place):
                late.append(place.path)
            else:
                left.append(f"the job in {place.path}")
        elif _cancel(machine, number):
            cancelled.append(number)
            withdraw(place)  # what it has written stays
        else:
            left.append(f"job {number}")
    if late:  # one that runs nothing would wait for its turn all the same
        time.sleep(_PAUSE_S)
    for folder in late:
        number = find(machine, folder, 0.0)
        if number is not None and _cancel(machine, number):
            cancelled.append(number)
    said = "Nothing was submitted."
    if cancelled:
        said = f"Cancelled again: job {gpu_words.listed(cancelled)}."
    if left:
        return DshpcError(
            f"Interrupted, and not all could be taken back: {gpu_words.listed(left)}.",
            said if cancelled else "",
            ("See what runs: dshpc job list",),
            Exit.INTERRUPTED,
        )
    return DshpcError(f"Interrupted. {said}", "", (), Exit.INTERRUPTED)


def _cancel(machine: Machine, number: str) -> bool:
    return Slurm(machine).cancel(number, deadline_s=_CANCEL_S).ok
