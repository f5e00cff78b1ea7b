"""When slurmctld was found to have ended in another way than by an order: killed, or its container was.

services/slurmctld/run appends the time (seconds of the epoch) as it starts the next one, where the mark
is still there that services/slurmctld/finish removes after an end in order. It is news until the
container has been stopped in order and started again, and for a day at most: its jobs have long been
queued again or ended by then.

Which jobs it met stands beside that, in lines `TIME WORD ID ID ...`: the container's start writes those that
it has queued again, concluded and found ended; services/slurmctld/register, where slurmctld alone was
killed, those that ran and continue.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dshpc_setup.files.storage import read_text, replace_text
from dshpc_setup.slurm.paths import Paths

_LOG = "slurmctld.unclean"
_JOBS = "slurmctld.unclean.jobs"
_MARK = "slurmctld.runs"  # there from a start of slurmctld to its end in order
_WORDS = ("continued", "requeued", "concluded", "ended")
_TOLD_S = 24 * 3600
_MOST_BYTES = 64 << 10
_MOST_JOBS_BYTES = 1 << 20  # services/slurmctld/register has it, too


def found_at(paths: Paths, now: float | None = None) -> list[int]:
    """Of the last day, and since the last start after an end in order; the oldest first."""
    since = (time.time() if now is None else now) - _TOLD_S
    words = (read_text(f"{paths.state}/{_LOG}") or "").split()
    return [int(word) for word in words[-1000:] if word.isdecimal() and int(word) >= since]


def told(paths: Paths, now: float | None = None) -> list[dict[str, Any]]:
    """The same as `{"at": seconds, "jobs": {word: ids}}`; "jobs" is null where nobody has noted them."""
    jobs: dict[int, dict[str, list[str]]] = {}
    for line in (read_text(f"{paths.state}/{_JOBS}") or "").split("\n")[:-1]:  # a whole one ends
        at, word, *ids = [*line.split(), "", ""]
        if at.isdecimal() and word in _WORDS:
            jobs.setdefault(int(at), {})[word] = [each for each in ids if each]
    return [{"at": at, "jobs": jobs.get(at)} for at in found_at(paths, now)]


def note_jobs(paths: Paths, jobs: Mapping[str, Sequence[str]]) -> None:
    """What became of the jobs of the end that was found last; nothing after one in order."""
    ends = found_at(paths)
    path = f"{paths.state}/{_JOBS}"
    if not ends:
        return
    lines = (" ".join((str(ends[-1]), word, *ids)) for word, ids in jobs.items())
    with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))  # a full disk has its own message


def trim(paths: Paths) -> None:
    """Before slurmctld runs: after an end in order nothing is kept, of a log that has grown the last day."""
    path, jobs = f"{paths.state}/{_LOG}", f"{paths.state}/{_JOBS}"
    if not os.path.lexists(f"{paths.state}/{_MARK}"):
        for each in (path, jobs):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(each)
        return
    if os.path.exists(path) and os.path.getsize(path) > _MOST_BYTES:
        replace_text(path, "".join(f"{when}\n" for when in found_at(paths)))
    if os.path.exists(jobs) and os.path.getsize(jobs) > _MOST_JOBS_BYTES:
        kept = (read_text(jobs) or "")[-_MOST_JOBS_BYTES // 2 :]
        replace_text(jobs, kept.partition("\n")[2])
