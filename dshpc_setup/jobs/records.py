"""What lies in workspaces: what was asked for, the job's number, how it ended.

The files belong to users: they are data, of any shape. What cannot be read is not known.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dshpc_setup.jobs import results
from dshpc_setup.jobs.workspace import (
    JOB,
    JOBS,
    LOG,
    OWN,
    REQUEST,
    RESULT,
    given_owner,
    of_task,
)
from dshpc_setup.methods.depth import is_deeper

_MOST_BYTES = 8 << 20
_MOST_TASKS = 4_000_001  # Slurm's largest MaxArraySize
_MOST_DEPTH = 64  # ours are at five; what is printed again must not be as deep as Python's stack


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

    @property
    def task_count(self) -> int:
        """Of an array, how many tasks it was submitted with; 0 for a job that is none."""
        count = self.job.get("tasks")
        return count if isinstance(count, int) and 0 < count <= _MOST_TASKS else 0

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


def newest_first(work: str, owner: int | None = None) -> Iterator[Record]:
    """The caller's own workspaces of a work folder; root's are everybody's. `owner`: that user's alone.

    The newest is what was submitted, or ended, last: what people do in their workspaces counts not.
    """
    folders: list[tuple[float, str, int]] = []
    try:
        with os.scandir(f"{work}/{JOBS}") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # removed just now, or no workspace
                    seen = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(seen.st_mode):
                        when = os.stat(f"{entry.path}/{OWN}").st_mtime
                        folders.append((when, entry.path, seen.st_uid))
    except OSError:
        return
    uid = os.getuid() if owner is None else owner
    owners = {each for _, _, each in folders}
    if uid == os.getuid() != 0 and len(owners) == 1 and uid not in owners:
        # All are of one other user: that user's alone, or the file system gives all to that one
        given = given_owner(f"{work}/{JOBS}")
        uid = uid if given is None else given
    whole = owner is None and uid == 0
    found = [(when, path) for when, path, each in folders if whole or uid == each]
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
    """A JSON object; {} where there is none, or none that can be read.

    What is no number of JSON (NaN, Infinity, 1e999) is None in it, as what is not known.
    """
    try:
        # A pipe in a user's folder must not hold us up
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return {}
            text = file.read(_MOST_BYTES)
        value = json.loads(text, parse_constant=lambda _: None, parse_float=_finite)
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) and not is_deeper(value, _MOST_DEPTH) else {}


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None
