"""When slurmctld was found to have ended in another way than by an order: killed, or its container was.

services/slurmctld/run appends the time (seconds of the epoch) as it starts the next one, where the mark
is still there that services/slurmctld/finish removes after an end in order. It is news until the
container has been stopped in order and started again, and for a day at most: its jobs have long been
queued again or ended by then.
"""

from __future__ import annotations

import contextlib
import os
import time

from dshpc_setup.files.storage import read_text, replace_text
from dshpc_setup.slurm.places import Places

_LOG = "slurmctld.unclean"
_MARK = "slurmctld.runs"  # there from a start of slurmctld to its end in order
_TOLD_S = 24 * 3600
_MOST_BYTES = 64 << 10


def found_at(places: Places, now: float | None = None) -> list[int]:
    """Of the last day, and since the last start after an end in order; the oldest first."""
    since = (time.time() if now is None else now) - _TOLD_S
    words = (read_text(f"{places.state}/{_LOG}") or "").split()
    return [int(word) for word in words[-1000:] if word.isdecimal() and int(word) >= since]


def trim(places: Places) -> None:
    """Before slurmctld runs: after an end in order nothing is kept, of a log that has grown the last day."""
    path = f"{places.state}/{_LOG}"
    if not os.path.lexists(f"{places.state}/{_MARK}"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    elif os.path.exists(path) and os.path.getsize(path) > _MOST_BYTES:
        replace_text(path, "".join(f"{when}\n" for when in found_at(places)))
