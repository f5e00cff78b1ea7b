"""What lies in workspaces: what was asked for, the job's number, how it ended.

The files belong to users: they are data, of any shape. What cannot be read is not known.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dshpc_setup.documents import foreign
from dshpc_setup.jobs import results, safe_open, workspace
from dshpc_setup.jobs.limits import (
    MOST_BYTES,
    MOST_REQUEST_BYTES,
    MOST_RESULTS,
    MOST_TASKS,
    MOST_USERS,
    MOST_WORKSPACES,
    Limits,
)
from dshpc_setup.jobs.workspace import (
    JOB,
    JOBS,
    LOG,
    OWN,
    REQUEST,
    RESULT,
    Workspace,
    of_task,
)


@dataclass(frozen=True)
class Record:
    """A workspace; `job` is job.json, {} where the submission has not come to its end."""

    place: Workspace
    job: Mapping[str, Any]
    request: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits, compare=False, repr=False)

    @property
    def folder(self) -> str:
        return self.place.path

    @property
    def number(self) -> int | None:
        text = str(self.job.get("job_id", ""))
        return int(text) if _is_number(text) else None

    @property
    def task_count(self) -> int:
        """Of an array, how many tasks it was submitted with; 0 for a job that is none."""
        count = self.job.get("tasks")
        return count if isinstance(count, int) and 0 < count <= MOST_TASKS else 0

    def result(self, task: int | None) -> dict[str, Any] | None:
        """How it ended, by its launcher; None while it runs, and where it was killed."""
        name = of_task(RESULT, task)
        return results.checked(read(self.place, name, self.limits)) or None

    def tasks(self) -> list[int]:
        """Of an array, the tasks that have ended."""
        stem, ending = os.path.splitext(RESULT)
        try:
            with self.place.own() as own:
                names = _names(own, MOST_RESULTS)
        except OSError:
            return []
        if len(names) > MOST_RESULTS:
            self.limits.meet("results", self.folder)
        numbers = (
            name[len(stem) + 1 : -len(ending)] for name in names if name.startswith(f"{stem}-")
        )
        return sorted({int(text) for text in numbers if _is_number(text)})[:MOST_RESULTS]

    def without_result(self) -> str:
        """Of an array, the tasks that have not ended: "3-9"; however many it was submitted with."""
        from dshpc_setup.probes import ranges

        return ranges.missing(self.task_count, self.tasks())

    def log(self, task: int | None) -> str:
        return f"{self.folder}/{of_task(LOG, task)}"


def _names(folder: int, most: int) -> list[str]:
    """What lies in an open folder, of which there may be millions: one more than so many at most."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in itertools.islice(entries, most + 1)]


def of_folder(
    work: str, folder: str, *, whole: bool = False, limits: Limits | None = None
) -> Record | None:
    """The workspace of that folder; None where it is none, or not ours to read.

    `whole`: with its request, which may hold a thousand sets of parameters.
    """
    place = workspace.of_path(work, folder)
    return None if place is None else of_place(place, whole=whole, limits=limits)


def of_place(
    place: Workspace, *, whole: bool = False, limits: Limits | None = None
) -> Record | None:
    """As `of_folder`."""
    limits = limits or Limits()
    if limits.is_late(place.path):
        return None
    job = read(place, JOB, limits)
    request = read(place, REQUEST, limits) if whole or not job else {}
    return Record(place, job, request, limits) if job or request else None


def newest_first(
    work: str, owner: int | None = None, limits: Limits | None = None
) -> Iterator[Record]:
    """The caller's own workspaces of a work folder; root's are everybody's. `owner`: that user's alone.

    The newest is what was submitted, or ended, last: what people do in their workspaces counts not.
    """
    limits = limits or Limits()
    uid = os.getuid() if owner is None else owner
    users = _users(work, limits) if owner is None and uid == 0 else [uid]
    found = [each for user in users for each in _of_user(work, user, limits)]
    for _, _, place in sorted(found, key=lambda each: each[:2], reverse=True):
        record = of_place(place, limits=limits)
        if record is not None:
            yield record


def _users(work: str, limits: Limits) -> list[int]:
    """Whose workspaces there are."""
    try:
        with safe_open.opened(f"{work}/{JOBS}") as at:
            names = _names(at, MOST_USERS)
    except OSError:
        return []
    if len(names) > MOST_USERS:
        limits.meet("users", f"{work}/{JOBS}")
    return [int(name) for name in names if _is_number(name)]


def _of_user(work: str, uid: int, limits: Limits) -> list[tuple[float, str, Workspace]]:
    """When each was submitted or ended, its name, its place."""
    found: list[tuple[float, str, Workspace]] = []
    folder = workspace.of_user(work, uid)
    try:
        with workspace.user_opened(work, uid) as at, os.scandir(at) as entries:
            for count, entry in enumerate(entries):
                if count >= MOST_WORKSPACES:
                    limits.meet("workspaces", folder)
                    break
                if limits.is_late(folder):
                    break
                place = workspace.of_path(work, f"{folder}/{entry.name}")
                with contextlib.suppress(OSError):  # removed just now, or no workspace
                    if place is not None:
                        with safe_open.opened(entry.name, at) as here:
                            seen = os.stat(OWN, dir_fd=here, follow_symlinks=False)
                        found.append((seen.st_mtime, entry.name, place))
    except OSError:
        return []
    return found


def find(work: str, number: int, limits: Limits | None = None) -> Record | None:
    """The newest workspace of that job: numbers begin anew where a cluster was destroyed."""
    found = newest_first(work, limits=limits)
    return next((record for record in found if record.number == number), None)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10


def read(place: Workspace, name: str, limits: Limits | None = None) -> dict[str, Any]:
    """A JSON object of its folder `.job`; {} where there is none, none that can be read, or a larger one."""
    try:
        with place.own() as own:
            return read_at(name, own, place.uid, limits, folder=f"{place.path}/{OWN}")
    except OSError:
        return {}


def read_at(
    name: str, at: int, uid: int, limits: Limits | None = None, *, folder: str = ""
) -> dict[str, Any]:
    """A JSON object of that user's; {} where there is none, or none that can be read, or a larger one.

    What is no number of JSON (NaN, Infinity, 1e999) is None in it, as what is not known.
    """
    is_request = name == REQUEST
    most = MOST_REQUEST_BYTES if is_request else MOST_BYTES
    try:
        with open(safe_open.file(name, at, uid), "rb") as file:
            text = file.read(most + 1)
        if len(text) > most:
            if limits:
                limits.meet("request-bytes" if is_request else "bytes", f"{folder}/{name}")
            return {}
        value = foreign.value(text, parse_constant=lambda _: None, parse_float=_finite)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None
