"""`dshpc-node job watch`: the list of jobs, and again whenever it is another: one call for a minute's looks.

A `dshpc.jobs/1` object a line, NODES where only the nodes are others, and an empty line for each look that
saw no change. To ask slurmctld whether anything has changed takes little beside a call from the host.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.jobs import command_words, queries
from dshpc_setup.jobs.command_words import parsed, put
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.slurm.client import Slurm

WHOLE_S = 60.0  # then it ends: whoever called it may be gone
_TICK_S = 1.2
_NODES_EACH = 4  # looks of which one is at the nodes, too
_SHARE = 10
QUEUE, NODES = "queue", "nodes"
_ASK_S = 10.0


def main(rest: Sequence[str]) -> int:
    """Ends after a minute, where nobody hears it, or raises DshpcError where slurmctld does not answer."""
    words = parsed(rest)

    def listed() -> str:
        return json.dumps(queries.listed(command_words.look_at(words), whole=False))

    slurm = Slurm(LocalMachine())
    looks = Looks(
        lambda: _said(slurm.queue_text(deadline_s=_ASK_S)),
        lambda: _said(slurm.nodes_text(deadline_s=_ASK_S)),
    )
    until = time.monotonic() + WHOLE_S
    try:
        while (began := time.monotonic()) < until:
            told = looks.look()
            put(f"{listed() if told == QUEUE else told}\n".encode())
            # Of ten thousand jobs the list takes seconds: it is not made again and again
            time.sleep(max(_TICK_S, _SHARE * (time.monotonic() - began)))
    except BrokenPipeError:
        return 141
    return 0


class Looks:
    """What has changed since the look before: QUEUE, NODES or nothing ("")."""

    def __init__(self, queue: Callable[[], str], nodes: Callable[[], str]) -> None:
        self._queue, self._nodes = queue, nodes
        self._count = 0
        self._before: tuple[str, str] | None = None

    def look(self) -> str:
        before = self._before
        is_time = before is None or self._count % _NODES_EACH == 0
        self._count += 1
        now = self._queue(), self._nodes() if before is None or is_time else before[1]
        self._before = now
        if before is None or now[0] != before[0]:
            return QUEUE
        return NODES if now[1] != before[1] else ""


def _said(asked: CommandResult) -> str:
    if not asked.ok:
        raise DshpcError("Slurm's controller does not answer.", asked.text, (), Exit.INCOMPLETE)
    return asked.stdout
