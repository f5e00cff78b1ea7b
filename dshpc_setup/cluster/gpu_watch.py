"""`dshpc gpus --watch`: one look after the other, and the last values while a driver hangs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from dshpc_setup.cluster.gpu_nodes import with_others
from dshpc_setup.cluster.gpus import GpusNow, look
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project

_LIST_AGAIN_S = 30.0  # cards and instances come and go seldom
_REST_S = 30.0  # a driver that hangs keeps each process that asks it: not one every interval


def watch(
    machine: Machine, project: Project | None, simulate: str, deadline_s: float
) -> Iterator[GpusNow]:
    """A look each time that one is asked for, in no more than the deadline."""
    good: GpusNow | None = None  # the last one that the hardware answered
    before: GpusNow | None = None
    listed_at = hung_at = -1e9
    while True:
        began = machine.clock()
        resting = before is not None and began - hung_at < _REST_S
        listing = good is None or good.readings.refused or began - listed_at > _LIST_AGAIN_S
        ask = partial(
            look,
            machine,
            project,
            simulate,
            deadline_s=deadline_s,
            listed=None if listing or good is None else good.gpus,
            cluster=before.cluster if before is not None else None,
            hardware=not resting,
        )
        others = before.others if before is not None else ()
        now = with_others(machine, project, ask, before=others, deadline_s=deadline_s)
        if resting or now.hung:
            hung_at = hung_at if resting else machine.clock()
            shown = good or (before if resting else now) or now
            now = _of_before(now, shown, aged=good is not None)
        else:
            good, listed_at = now, began if listing else listed_at
        before = now
        yield now


def _of_before(now: GpusNow, shown: GpusNow, *, aged: bool) -> GpusNow:
    """The cluster of now, the hardware of an earlier look; `aged`: the values are real, and old."""
    return replace(
        now,
        gpus=shown.gpus,
        readings=shown.readings,
        evidence=shown.evidence,
        no_answer=True,
        age_s=round(now.taken - shown.taken, 1) if aged else None,
    )
