"""One run of a job whose workspace is carried: what goes along, and where what comes back is written.

`carrying.py` makes it on the controller's machine; `far_step.py` uses it, for each node.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from dshpc_setup.files import tree
from dshpc_setup.files.streams import write_all
from dshpc_setup.jobs import carried, luggage, parcels, safe_open
from dshpc_setup.jobs.workspace import LOG, Workspace, of_task


class Cargo:
    """`at` is the workspace, open; `run` is JOB-RESTARTS, `task` that of an array."""

    def __init__(
        self, place: Workspace, at: int, run: str, task: int | None, request: Mapping[str, Any]
    ) -> None:
        self.place, self.at, self.run, self.task, self.request = place, at, run, task, request
        self.job, _, restarts = run.partition("-")
        self.restarts = int(restarts or 0)
        self.log = of_task(LOG, task)
        self.pieces = luggage.pieces(request, place.path)
        self.kept = luggage.kept(request)
        self.refused = words_of(luggage.refused(request, place.path))

    def request_there(self) -> dict[str, Any]:
        return luggage.moved(self.request, self.pieces, self.place.path)

    def own_entries(self) -> Iterator[tuple[str, tree.Entry]]:
        """What lies in the workspace and goes along."""
        for entry in tree.entries(self.at, luggage.MOST):
            if not (carried.stays(entry.path) or parcels.is_part(entry.name)):
                yield entry.path, entry

    def open_log(self) -> int:
        """To append to it, made where there is none; raises OSError."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        mode = os.fstat(self.at).st_mode & 0o040 | 0o600
        handle = os.open(self.log, flags, mode, dir_fd=self.at)
        safe_open.check_owner(os.fstat(handle), self.place.uid, self.at, self.log)
        return handle

    def write_log(self, block: bytes) -> None:
        handle = self.open_log()
        try:
            write_all(handle, block)
        finally:
            os.close(handle)

    def log_size(self) -> int:
        try:
            return os.stat(self.log, dir_fd=self.at, follow_symlinks=False).st_size
        except OSError:
            return 0


def words_of(found: luggage.Refused | None) -> str:
    """Why a job whose turn it is cannot be carried, for its log."""
    if found is None:
        return ""
    return (
        f"it cannot be carried to this node, which has not the work folder: {found.details or found.code}. "
        "Make it smaller, or keep it on nodes that have the folder: dshpc node list"
    )
