"""What a job has used, found by its number: read as far back as it takes, once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from dshpc_setup.usage import ledger
from dshpc_setup.usage.records import JobUse

_SAME_S = 2.0  # two ends of one number that are nearer are one


@dataclass
class Uses:
    """Of all users for root, else of who asks."""

    folder: str = ledger.FOLDER
    _found: dict[int, list[JobUse]] = field(default_factory=dict)
    _rest: Iterator[JobUse] | None = None

    def find(self, own: int, ended: float | None) -> JobUse | None:
        """The last run of that job that ended then; None where nothing is written down of it."""
        if (known := self._of(own, ended)) is not None:
            return known
        if self._rest is None:
            uid = os.geteuid()
            self._rest = ledger.newest_first(None if uid == 0 else uid, self.folder)
        for job in self._rest:
            self._found.setdefault(job.own, []).append(job)
            if job.own == own and (known := self._of(own, ended)) is not None:
                return known
            out_of_turn = job.state in ("REQUEUED", "UNKNOWN")  # written long after their ends
            if ended is not None and not out_of_turn and job.ended < ended - 3600:
                break  # they are written in the order of their ends, or nearly so
        return None

    def _of(self, own: int, ended: float | None) -> JobUse | None:
        for job in self._found.get(own, ()):
            if job.state != "REQUEUED" and (ended is None or abs(job.ended - ended) <= _SAME_S):
                return job
        return None
