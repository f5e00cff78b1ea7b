"""Machines with less time, fewer calls, or without an engine in between: each another one's `run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from dshpc_setup.checkup import batched
from dshpc_setup.cluster import status as cluster_status
from dshpc_setup.engine.containers import Container
from dshpc_setup.engine_client import DOCKER
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.machine.changed import Changed
from dshpc_setup.slurm.paths import Paths

# The same words and, but for which one, the same exit code, without a Python for them: this start's
# report alone, see container/status.py
READ_REPORT = f"""read -r first </proc/1/stat; set -- ${{first##*) }}
grep -q "^ \\"container_began\\": \\"${{20}}\\"" {Paths().status} && cat {Paths().status} &&
grep -q '^ "ready": true' {Paths().status}"""
_INSTEAD: Mapping[tuple[str, ...], Sequence[str]] = {
    ("dshpc-node", "status"): ("sh", "-c", READ_REPORT)
}


def with_deadline(machine: Machine, most_s: float) -> Machine:
    """No command takes longer: what asks one after the other has time for the next."""

    def run(argv: Sequence[str], *, deadline_s: float, **more: Any) -> CommandResult:
        return machine.run(argv, deadline_s=min(deadline_s, most_s), **more)

    return cast("Machine", Changed(machine, run))


def inspecting_once(machine: Machine, early: CommandResult | None = None) -> Machine:
    """What the engine said of a container, `early` as well, is not asked again: all is one look at it."""
    told = {} if early is None else {tuple(early.argv): early}

    def run(argv: Sequence[str], **more: Any) -> CommandResult:
        if not DOCKER.is_inspect(argv):
            return machine.run(argv, **more)
        asked = told.get(tuple(argv)) or machine.run(argv, **more)
        return told.setdefault(tuple(argv), asked)

    return cast("Machine", Changed(machine, run))


def at_once(machine: Machine, found: Container, most_s: float) -> Machine:
    """What the status asks of a running container is asked there in one call."""
    if found.status != "running":
        return machine

    def ask(run: batched.Run) -> None:
        cluster_status.ask(cast("Machine", Changed(machine, run)), "", found.name)

    run = batched.asked_together(machine.run, found.name, ask, most_s, instead=_INSTEAD)
    return cast("Machine", Changed(machine, run))


def unwrapped(machine: Machine) -> Machine:
    """A program that is to be run in the container is run here: we are in that container."""

    def run(argv: Sequence[str], **more: Any) -> CommandResult:
        within = DOCKER.within(argv)
        return machine.run(argv if within is None else within[1], **more)

    return cast("Machine", Changed(machine, run))
