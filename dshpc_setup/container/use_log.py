"""Slurm's log of ended jobs, read from where the last reader of it has come."""

from __future__ import annotations

import os
from collections.abc import Collection

from dshpc_setup.slurm import completion_log
from dshpc_setup.slurm.completion_log import Ended
from dshpc_setup.usage import live

_MOST_BYTES = 32 << 20


class EndedJobs:
    """`log` is None where the user has it kept otherwise; the place is kept in `folder`, the ledger's.

    `is_first`: what is read now may have been taken already, by a reader that could not say so.
    """

    def __init__(self, log: str | None, folder: str) -> None:
        self._log, self._folder = log, folder
        self._offset, self._last_line = 0, b""
        self._next = (0, b"")
        self._given: dict[Ended, str] = {}
        self._late: list[str] = []  # lines of jobs that were given and not taken
        self.is_first = True

    def has_more(self) -> bool:
        try:
            has_grown = self._log is not None and os.stat(self._log).st_size != self._offset
        except OSError:
            return False
        return has_grown or bool(self._late)

    def new_jobs(self) -> list[Ended]:
        """Those that nobody has taken; `done` says that they are. Raises OSError."""
        new = [line.decode("utf-8", "replace") for line in self._new_lines()]
        lines = [*self._late, *new]
        self._given = {job: line for line in lines if (job := completion_log.parse(line))}
        return list(self._given)

    def done(self, late: Collection[Ended] = ()) -> None:
        """What new_jobs last gave is taken, but for those that are to be given again."""
        (self._offset, self._last_line), self.is_first = self._next, False
        self._late = [line for job, line in self._given.items() if job in late]
        live.save_place(self._folder, self._offset, self._last_line, self._late)

    def _new_lines(self) -> list[bytes]:
        """Whole lines behind the last one that was read; all of a log that is another by now."""
        assert self._log is not None
        if self.is_first:
            self._offset, self._last_line, self._late = live.load_place(self._folder)
        with open(self._log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = self._offset - len(self._last_line)
            file.seek(max(0, begin))
            if (
                begin < 0
                or size < self._offset
                or file.read(len(self._last_line)) != self._last_line
            ):
                self.is_first, self._offset = True, 0
            file.seek(self._offset)
            data = file.read(_MOST_BYTES)
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.split(b"\n")[:-1]
        self._next = (self._offset + len(whole), lines[-1] + b"\n" if lines else self._last_line)
        return lines
