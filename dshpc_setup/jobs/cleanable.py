"""Which of a user's workspaces are of jobs that have ended, as far as that is proven, and long enough ago.

A workspace stays where its job, or a task of it, may still run or begin; where a job that has not ended
works in it or was given a path in it; and where nothing says that its job has ended: it may be one of
another cluster with the same work folder, or of one that was destroyed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.jobs import records, workspace
from dshpc_setup.jobs.limits import Limits
from dshpc_setup.jobs.reader import JobReader
from dshpc_setup.jobs.records import Record
from dshpc_setup.slurm import completion_log
from dshpc_setup.slurm.job_states import SlurmJob

Kept = Literal["going", "needed", "younger", "unknown"]
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SETTLE_S = 60.0  # after its end a job's launcher and Slurm may still write
_BEGUN_S = 3600.0  # a submission that has not come to its end may be under way


@dataclass(frozen=True)
class Workspace:
    """One that can go; `ended` is when its job ended, or was submitted, at the latest."""

    name: str
    path: str
    job_id: int | None
    job_name: str
    ended: float


@dataclass(frozen=True)
class Found:
    """What can go, the oldest first, and why each of the others stays."""

    workspaces: tuple[Workspace, ...]
    kept: dict[str, Kept] = field(default_factory=dict)  # name -> why


@dataclass(frozen=True)
class Wanted:
    """`lost`: also those of which nothing says that their job has ended."""

    older_than_s: float
    lost: bool = False


def find(look: JobReader, wanted: Wanted, now: float | None = None) -> Found:
    """Of the calling user's workspaces alone, root's too. Raises DshpcError where Slurm, or a queued job's
    request, does not say enough."""
    now = time.time() if now is None else now
    uid = os.getuid()
    look.limits.begin()
    own = list(records.newest_first(look.work, uid, look.limits))
    seen = _Seen(look, uid)
    can_go: list[Workspace] = []
    kept: dict[str, Kept] = {}
    for record in own:
        name = record.place.name
        at = seen.ended(record)
        if not _NAME.fullmatch(name):  # no submission has made it
            kept[name] = "unknown"
        elif name in seen.going or record.number in seen.numbers:
            kept[name] = "going"
        elif name in seen.needed:
            kept[name] = "needed"
        elif not (seen.has_ended(record) or (wanted.lost and now - at > _BEGUN_S)):
            kept[name] = "unknown"
        elif now - at < max(wanted.older_than_s, _SETTLE_S):
            kept[name] = "younger"
        else:
            title = str(record.job.get("name") or record.request.get("name") or "")
            can_go.append(Workspace(name, record.folder, record.number, title, at))
    return Found(tuple(sorted(can_go, key=lambda each: each.ended)), kept)


class _Seen:
    """What Slurm and its log say: the names of workspaces that jobs use, and when others ended."""

    def __init__(self, look: JobReader, uid: int) -> None:
        self._top = f"{workspace.of_user(look.work, uid)}/"
        known = look.known()
        going = [job for job in known if not job.has_ended]
        self.numbers = {job.number for job in going if job.uid in (uid, None)}
        self.going = {name for job in going for name in self._names(_places(job))}
        self.needed = {name for text in _given(look, going, uid) for name in self._names([text])}
        # Of both it is known that they were this cluster's, which has nothing of them that goes on
        self._ended = {job.folder: job.ended or 0.0 for job in known if job.uid in (uid, None)}
        for past in completion_log.newest_first(look.log):
            if past.uid == uid:
                before = self._ended.get(past.folder, 0.0)
                self._ended[past.folder] = max(before, past.ended or 0.0)

    def _names(self, texts: Sequence[str]) -> Iterator[str]:
        """The workspaces that these texts name, or a path in them; a text may hold several."""
        for text in texts:
            for found in re.finditer(rf"{re.escape(self._top)}({_NAME.pattern})", text):
                yield found[1]

    def has_ended(self, record: Record) -> bool:
        if record.folder in self._ended:
            return True
        if record.task_count:
            return len(record.tasks()) >= record.task_count
        return record.number is not None and record.result(None) is not None

    def ended(self, record: Record) -> float:
        """The latest sign of it: its launcher's, which writes in `.job`, or Slurm's."""
        at = self._ended.get(record.folder, 0.0)
        try:
            with record.place.own() as own:
                return max(at, os.fstat(own).st_mtime)
        except OSError:
            return time.time()


def _places(job: SlurmJob) -> list[str]:
    return [f"{job.folder}/", job.log]


def _given(look: JobReader, going: Sequence[SlurmJob], uid: int) -> Iterator[str]:
    """Every text of what jobs of this user were asked with that have not ended: results of others that they
    need, inputs, parameters, words of their commands."""
    limits = Limits()
    limits.begin()
    for folder in dict.fromkeys(job.folder for job in going if job.uid in (uid, None)):
        record = records.of_folder(look.work, folder, whole=True, limits=limits)
        if record is not None and record.place.uid == uid:
            yield from _texts(record.request)
    if met := limits.lines():
        raise DshpcError(
            "It is not known which workspaces jobs that wait still need.",
            "\n".join(met),
            ("Wait until fewer jobs are queued, then again.",),
            Exit.INCOMPLETE,
        )


def _texts(value: Any) -> Iterator[str]:
    """All texts of a JSON value."""
    rest = [value]
    while rest:
        each = rest.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            rest += [*each, *each.values()]
        elif isinstance(each, list):
            rest += each


def counted(kept: dict[str, Kept]) -> dict[str, int]:
    """How many stay, by why."""
    whys: tuple[Kept, ...] = ("going", "needed", "younger", "unknown")
    return {why: list(kept.values()).count(why) for why in whys}
