"""What lies in workspaces: what was asked for, the job's number, how it ended.

The files belong to users: they are data, of any shape. What cannot be read is not known.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dshpc_setup.jobs import results
from dshpc_setup.jobs.workspace import JOB, JOBS, LOG, OWN, REQUEST, RESULT, of_task

_MOST_BYTES = 8 << 20


@dataclass(frozen=True)
class Record:
    """A workspace; `job` is job.json, {} where the submission has not come to its end."""

    folder: str
    job: Mapping[str, Any]
    request: Mapping[str, Any] = field(default_factory=dict)

    @property
    def number(self) -> int | None:
        text = str(self.job.get("job_id", ""))
        return int(text) if _is_number(text) else None

    def result(self, task: int | None) -> dict[str, Any] | None:
        """How it ended, by its launcher; None while it runs, and where it was killed."""
        return results.checked(read(f"{self.folder}/{OWN}/{of_task(RESULT, task)}")) or None

    def tasks(self) -> list[int]:
        """Of an array, the tasks that have ended."""
        stem, ending = os.path.splitext(RESULT)
        try:
            names = os.listdir(f"{self.folder}/{OWN}")
        except OSError:
            return []
        numbers = (
            name[len(stem) + 1 : -len(ending)] for name in names if name.startswith(f"{stem}-")
        )
        return sorted(int(text) for text in numbers if _is_number(text))

    def log(self, task: int | None) -> str:
        return f"{self.folder}/{of_task(LOG, task)}"


def of_folder(folder: str, *, whole: bool = False) -> Record | None:
    """The workspace of that folder; None where it is none, or not ours to read.

    `whole`: with its request, which may hold a thousand sets of parameters.
    """
    if not os.path.isdir(f"{folder}/{OWN}"):
        return None
    job = read(f"{folder}/{OWN}/{JOB}")
    request = read(f"{folder}/{OWN}/{REQUEST}") if whole or not job else {}
    return Record(folder, job, request) if job or request else None


def newest_first(work: str) -> Iterator[Record]:
    """The caller's own workspaces of a work folder; root's are everybody's."""
    uid = os.getuid()
    found = []
    try:
        with os.scandir(f"{work}/{JOBS}") as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # removed just now
                    seen = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(seen.st_mode) and uid in (0, seen.st_uid):
                        found.append((seen.st_mtime, entry.path))
    except OSError:
        return
    for _, path in sorted(found, reverse=True):
        record = of_folder(path)
        if record is not None:
            yield record


def find(work: str, number: int) -> Record | None:
    """The newest workspace of that job: numbers begin anew where a cluster was destroyed."""
    return next((record for record in newest_first(work) if record.number == number), None)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10


def read(path: str) -> dict[str, Any]:
    """A JSON object; {} where there is none, or none that can be read."""
    try:
        # A pipe in a user's folder must not hold us up
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return {}
            value = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
