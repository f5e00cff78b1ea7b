"""slurmctld, slurmd and the node: up, no longer drained where that was our doing, and proven."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass

from dshpc_setup.container import jobs, network
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.plan.model import OWNERS
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.nodes import Node
from dshpc_setup.slurm.paths import Paths

# What ends by itself is seen at once: these are for machines that are slow
_SUPERVISOR_S = 30.0
_UP_S = 40.0
_REGISTERED_S = 40.0
_DOUBTFUL_S = 5.0
_DRAINED_S = 2.0
PROOF_S = 40.0  # seen: 13 s on an emulated processor with a load beside it
SHORT_PROOF_S = 3.0  # where jobs of people may hold the node
_ASK_S = 20.0


def bring_up(machine: Machine, paths: Paths, service: str, port: int) -> bool:
    """Start a service and wait until it listens; False where it ended or never did."""
    order_up(machine, paths, service)
    return network.wait_listening(port, _UP_S, lambda: has_ended(paths, service))


def order_up(machine: Machine, paths: Paths, service: str) -> None:
    """Tell the supervisor to start a service, and forget that it ever ended."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{paths.run}/{service}.ended")
    _control(machine, paths, service, "-U")  # also for a supervisor that takes over from this one


def has_ended(paths: Paths, service: str) -> bool:
    """Whether it has ended since it was brought up (s6 has started it again since then)."""
    return os.path.exists(f"{paths.run}/{service}.ended")


def take_down(machine: Machine, paths: Paths, service: str) -> None:
    _control(machine, paths, service, "-D")


def restart(machine: Machine, paths: Paths, service: str, port: int) -> bool:
    """End a service and start it again; False where it does not listen then."""
    take_down(machine, paths, service)
    machine.run(["s6-svwait", "-D", "-t", "5000", f"{paths.services}/{service}"], deadline_s=_ASK_S)
    return bring_up(machine, paths, service, port)


def _control(machine: Machine, paths: Paths, service: str, order: str) -> None:
    until = time.monotonic() + _SUPERVISOR_S
    while True:
        result = machine.run(["s6-svc", order, f"{paths.services}/{service}"], deadline_s=_ASK_S)
        if result.ok:
            return
        if time.monotonic() >= until:
            raise DshpcError(
                f"The supervisor does not take orders for {service}.",
                result.text,
                (
                    Fix(
                        "Start the container with its own entrypoint, then see",
                        "dshpc logs",
                    ),
                ),
            )
        time.sleep(0.005)  # s6-svscan starts beside us


def show_node(machine: Machine, node: str) -> Node | None:
    return Slurm(machine).node(node, deadline_s=_ASK_S)


def wait_registered(machine: Machine, node: str, since: float) -> Node:
    """The node once a slurmd that began at `since` (seconds of the epoch) has registered.

    Until then slurmctld shows what it has saved. A node that was invalid may stay so; a clock that was
    set meanwhile costs some seconds.
    """
    began = time.monotonic()
    after = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))
    while True:
        found = show_node(machine, node)
        took = time.monotonic() - began
        if found is not None and found.registered:
            sound = found.started >= after and "INVALID_REG" not in found.states
            if sound or took >= _DOUBTFUL_S:
                return found
        if found is not None and "INVALID_REG" in found.states and took >= _DOUBTFUL_S:
            return found
        if took >= _REGISTERED_S:
            raise DshpcError(
                f"Node {node} did not register with the controller within {_REGISTERED_S:.0f} s.",
                f"Its state is {'+'.join(found.states) if found else 'not known to slurmctld'}.",
                (Fix("See what slurmd says", "dshpc logs", step="look"),),
            )
        time.sleep(0.02)


HELD = "dshpc:interrupted-jobs-first"
"""The reason of a node that is taken out until the jobs that a stop interrupted have begun."""


def hold(machine: Machine, node: str) -> bool:
    """Take the node out until `let_go`; False where it is out already, or cannot be.

    A start that is killed meanwhile leaves it so, by a reason of ours: the next one takes it back.
    """
    found = show_node(machine, node)
    if found is None or found.unwell:
        return found is not None and found.own_doing and found.reason == HELD
    return Slurm(machine).drain(node, HELD, deadline_s=_ASK_S).ok


def wait_responding(machine: Machine, node: str) -> Node | None:
    """The node once slurmctld takes it for responding, which it asks anew of one that is resumed."""
    until = time.monotonic() + _DOUBTFUL_S
    while True:
        found = show_node(machine, node)
        if (found is not None and found.registered) or time.monotonic() >= until:
            return found
        time.sleep(0.02)


@dataclass(frozen=True)
class TakenBack:
    """`note` is a sentence about what was done or left."""

    resumed: bool
    note: str


def take_back(machine: Machine, node: str, found: Node, *, fresh: bool) -> TakenBack | None:
    """Resume a node that was drained by our own doing; None where it was not drained.

    `fresh`: the container has just started, which no process of a job outlives, and the job that proves
    the start tells whether a Prolog still fails.
    """
    if "DRAIN" not in found.states and "DOWN" not in found.states:
        return None
    over = fresh and (found.processes_left or found.prolog_failed)
    if not found.own_doing and not over:
        who = "slurmstepd" if found.processes_left else f"a person ({found.who})"
        who = "Slurm" if found.by_slurm else who
        return TakenBack(
            False,
            f"Node {node} was set to {'+'.join(found.states)} by {who} and is left "
            f"so: {found.why}. To take it back: dshpc exec --root -- scontrol update "
            f"nodename={node} state=resume",
        )
    result = Slurm(machine).resume(node, deadline_s=_ASK_S)
    if not result.ok:
        raise DshpcError(
            f"Node {node} is {'+'.join(found.states)} and cannot be resumed.",
            result.text,
            (Fix("See", "dshpc logs", step="look"),),
        )
    return TakenBack(
        True, f"Node {node} was {'+'.join(found.states)} ({found.reason or 'no reason'}): resumed."
    )


def after_job(machine: Machine, node: str, *, failed: bool) -> Node | None:
    """The node after a job; where that failed, once Slurm has drained the node or will not for it.

    slurmd tells srun of a Prolog that failed before it tells slurmctld (_rpc_launch_tasks in req.c, 24.11).
    """
    until = time.monotonic() + (_DRAINED_S if failed else 0.0)
    while True:
        found = show_node(machine, node)
        if (found is not None and found.unwell) or time.monotonic() >= until:
            return found
        time.sleep(0.02)


def prove(
    machine: Machine, node: str, with_gpu: bool, deadline_s: float, *, owned: bool = False
) -> CommandResult:
    """One real job, with a GPU where the node has one. `owned`: it takes the jobs of its owner alone.

    Where its srun is killed, the job itself ends within its time limit of a minute at the latest.
    """
    more = [
        *(["--gres=gpu:1"] if with_gpu else []),
        *([f"--partition={OWNERS}"] if owned else []),
    ]
    return machine.run(
        ["srun", "--quiet", f"--job-name={jobs.PROOF}", "--time=1", f"--nodelist={node}", "-n1"]
        + [*more, "true"],
        deadline_s=deadline_s,
        cwd="/",
    )


def proof_error(result: CommandResult, node: str, found: Node | None) -> DshpcError:
    """Why the first job did not run."""
    state = (
        f"Node {node} is {'+'.join(found.states).lower()}" if found else f"Node {node} is unknown"
    )
    reason = f": {found.reason}." if found and found.reason else "."
    how = (
        f"did not start within {result.ms / 1000:.0f} s"
        if result.state == "timeout"
        else f"ended with exit code {result.code}"
    )
    return DshpcError(
        f"The first job (srun true) {how}. {state}{reason}",
        "\n".join([" ".join(result.argv), result.text]).strip(),
        (Fix("See what the daemons say", "dshpc logs", step="look"),),
    )
