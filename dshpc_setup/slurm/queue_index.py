"""Which jobs slurmctld knows, in some bytes each: what of a long queue is asked for in full.

`squeue --json` has 5 to 8 kB a job, and no more than 64 MiB of an answer are read (machine/commands.py):
12,000 held jobs of one user would end the lists of all. So a long queue is asked for in parts, and of one
that is shown everybody has a share.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

MOST = 1_000  # jobs of one answer: 8 MB, and most of a second
COLUMNS = "%A %F %K %T %U %u"
_ROW = re.compile(
    r"(?m)^([0-9]{1,10}) ([0-9]{1,10}) (\S+) ([A-Z_]+) ([0-9]{1,10}) (\S+)$", re.ASCII
)
# Of these there are no more than the machine can run
_ACTIVE = frozenset("RUNNING SUSPENDED STOPPED COMPLETING CONFIGURING SIGNALING STAGE_OUT".split())


@dataclass(frozen=True)
class Entry:
    """`number` is that of an array as a whole; `task` is None for a job that is none, and for the tasks of
    an array that wait together (`is_group`)."""

    own: int
    number: int
    task: int | None
    is_group: bool
    state: str
    uid: int
    user: str


def parse(text: str) -> tuple[Entry, ...]:
    """Lines that are none of squeue's are left out."""
    return tuple(
        Entry(
            int(own),
            int(number),
            int(task) if task.isdecimal() else None,
            not task.isdecimal() and task != "N/A",
            state,
            int(uid),
            user,
        )
        for own, number, task, state, uid, user in _ROW.findall(text)
    )


def choose(entries: Sequence[Entry], uid: int, most: int = MOST) -> tuple[Entry, ...]:
    """Those that are shown: what runs, up to a half of them this user's own, and of the others' queues equal
    shares; of each the first in squeue's order."""
    running = [each for each in entries if each.state in _ACTIVE][:most]
    rest = [each for each in entries if each.state not in _ACTIVE]
    own = [each for each in rest if each.uid == uid][: (most - len(running) + 1) // 2]
    taken = {*running, *own}
    others = [each for each in _in_turns(rest) if each not in taken]
    return (*running, *own, *others[: most - len(running) - len(own)])


def _in_turns(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The first one of each user, then the second ones, and so on."""
    queues: dict[int, list[Entry]] = {}
    for each in entries:
        queues.setdefault(each.uid, []).append(each)
    for row in zip_longest(*queues.values()):
        yield from (each for each in row if each is not None)


def left_out(entries: Sequence[Entry], chosen: Sequence[Entry]) -> Mapping[str, int]:
    """User -> how many jobs are not shown; the most first."""
    taken = set(chosen)
    return dict(Counter(each.user for each in entries if each not in taken).most_common())


def in_parts(entries: Sequence[Entry], most: int = MOST) -> Iterator[tuple[str, ...]]:
    """Options of squeue that ask for exactly these, in calls that each are answered with no more.

    The number of an array stands for all of its tasks (squeue.c, 24.11), so each that has begun is asked for
    by its own, and those that wait together by the state that the others have left.
    """
    words = [
        f"{each.number}_{each.task}" if each.task is not None else str(each.own)
        for each in entries
        if not each.is_group
    ]
    groups = [str(each.number) for each in entries if each.is_group]
    for names, state in ((words, "all"), (groups, "PENDING")):
        for at in range(0, len(names), most):
            yield ("-t", state, "-j", ",".join(names[at : at + most]))
