"""How much is read of what lies in users' folders: nobody's files make somebody else wait.

What a limit leaves out is said once the answer is there, with the limit and the folder that met it first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

MOST_BYTES = 1 << 20  # of a file that a launcher or a submission writes; they have some kB
MOST_REQUEST_BYTES = 16 << 20  # with a thousand sets of parameters
MOST_TASKS = 4_000_001  # Slurm's largest MaxArraySize
MOST_RESULTS = 100_000  # of one array
MOST_WORKSPACES = 100_000  # of one user
MOST_USERS = 10_000
MOST_S = 5.0  # for all of them, in one answer

_WORDS = {
    "bytes": f"a file larger than {MOST_BYTES >> 20} MiB",
    "request-bytes": f"a request larger than {MOST_REQUEST_BYTES >> 20} MiB",
    "results": f"results of an array with more than {MOST_RESULTS} of them",
    "workspaces": f"workspaces, of which there are more than {MOST_WORKSPACES}",
    "users": f"workspaces of users, of whom there are more than {MOST_USERS}",
    "time": f"what could not be read within {MOST_S:.0f} seconds",
}


@dataclass
class Limits:
    """Those of one answer: which were met, and how long it may still read."""

    clock: Callable[[], float] = time.monotonic
    _met: dict[str, list[str]] = field(default_factory=dict)
    _until: float | None = None

    def begin(self) -> None:
        """From now on time counts."""
        self._until = self.clock() + MOST_S

    def is_late(self, where: str) -> bool:
        """Whether no more is read; what would have been is noted."""
        late = self._until is not None and self.clock() > self._until
        if late:
            self.meet("time", where)
        return late

    def meet(self, limit: str, where: str) -> None:
        """Note that something of that folder or file was left out."""
        self._met.setdefault(limit, []).append(where)

    def lines(self) -> list[str]:
        """One for each limit that was met."""
        from dshpc_setup.terminal.sanitize import plain

        found = []
        for limit, places in self._met.items():
            more = f" and {len(places) - 1} more" if len(places) > 1 else ""
            found.append(f"Not read: {_WORDS[limit]}, in {plain(places[0])[:200]}{more}.")
        return found
