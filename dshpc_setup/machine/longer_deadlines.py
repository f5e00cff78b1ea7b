"""A machine whose questions get the time that a busy machine takes to answer.

The deadlines of single questions are made for those who wait at a terminal. A run that installs and
builds for minutes loses nothing by waiting for an answer that decides how it goes on, and all of its
work by giving up on one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.machine.changed import Changed

LEAST_S = 120.0
"""An emulated processor with a load beside it was seen to take 20 s for what takes 0.05 s elsewhere."""


def patient(machine: Machine) -> Machine:
    """The machine, on which no question is given up before `LEAST_S`.

    A command whose lines are listened to is no question but work: it keeps the deadline made for it.
    """
    if isinstance(machine, _Patient):
        return machine

    def run(
        argv: Sequence[str],
        *,
        deadline_s: float,
        on_line: Callable[[str], None] | None = None,
        **more: Any,
    ) -> CommandResult:
        least_s = deadline_s if on_line is not None else max(deadline_s, LEAST_S)
        return machine.run(argv, deadline_s=least_s, on_line=on_line, **more)

    return cast("Machine", _Patient(machine, run))


class _Patient(Changed):
    pass
