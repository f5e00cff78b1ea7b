"""When slurmctld was found to have ended in another way than by an order: killed, or its container was.

services/slurmctld/run appends the time (seconds of the epoch) as it starts the next one.
"""

from __future__ import annotations

import os
import time

from dshpc_setup.files.storage import read_text, replace_text
from dshpc_setup.slurm.places import Places

_LOG = "slurmctld.unclean"
_TOLD_S = 24 * 3600
_MOST_BYTES = 64 << 10


def found_at(places: Places, now: float | None = None) -> list[int]:
    """Of the last day, the oldest first."""
    since = (time.time() if now is None else now) - _TOLD_S
    words = (read_text(f"{places.state}/{_LOG}") or "").split()
    return [int(word) for word in words[-1000:] if word.isdecimal() and int(word) >= since]


def trim(places: Places) -> None:
    """Before slurmctld runs: of a log that has grown, the last day is kept."""
    path = f"{places.state}/{_LOG}"
    if os.path.exists(path) and os.path.getsize(path) > _MOST_BYTES:
        replace_text(path, "".join(f"{when}\n" for when in found_at(places)))
