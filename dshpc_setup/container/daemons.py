"""slurmctld, slurmd and the node: up, no longer drained where that was our doing, and proven."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass

from dshpc_setup.container import network
from dshpc_setup.container.places import Places
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import CommandResult, Machine

_SUPERVISOR_S = 5.0
_UP_S = 20.0
_REGISTERED_S = 20.0
PROOF_S = 20.0
SHORT_PROOF_S = 3.0  # where jobs of people may hold the node
_ASK_S = 5.0

# Reasons that slurmctld or this program gives, never a person (slurmctld's node_mgr.c, 24.11)
_OWN_REASONS = (
    r"dshpc:|gres/\w+ count (?:reported lower|too low)|Low (?:RealMemory|TmpDisk|CPUs|socket\*core)"
    r"|Not responding|Node unexpectedly rebooted|gres/gpu|Duplicate|Kill task failed|Reboot ASAP"
)


@dataclass(frozen=True)
class Node:
    """What `scontrol show node` says: states in capitals ("IDLE", "DRAIN", ...), reason or ""."""

    states: tuple[str, ...]
    reason: str = ""
    gres: str = ""

    @property
    def registered(self) -> bool:
        return "UNKNOWN" not in self.states and "NOT_RESPONDING" not in self.states

    @property
    def usable(self) -> bool:
        return self.registered and not self.unwell

    @property
    def unwell(self) -> tuple[str, ...]:
        bad = ("DRAIN", "DOWN", "INVALID_REG", "FAIL", "FUTURE", "INVAL")
        return tuple(state for state in self.states if state in bad)

    @property
    def own_doing(self) -> bool:
        return not self.reason or re.search(_OWN_REASONS, self.reason, re.IGNORECASE) is not None


def parse_node(text: str) -> Node | None:
    """One line of `scontrol -o show node`; None where it holds no state."""
    state = re.search(r"(?:^|\s)State=(\S+)", text)
    if state is None:
        return None
    reason = re.search(r"\sReason=(.*?)(?:\s\[[^\]]*\])?\s*$", text)
    gres = re.search(r"\sGres=(\S+)", text)
    states = tuple(item.rstrip("*~#!%$@^-") for item in state[1].upper().split("+"))
    if state[1].endswith("*"):
        states = (*states, "NOT_RESPONDING")
    return Node(
        states,
        reason[1].strip() if reason else "",
        gres[1] if gres and gres[1] != "(null)" else "",
    )


def bring_up(machine: Machine, places: Places, service: str, port: int) -> bool:
    """Start a service and wait until it listens; False where it ended or never did."""
    ended = f"{places.run}/{service}.ended"
    if os.path.exists(ended):
        os.unlink(ended)
    _control(machine, places, service, "-u")
    return network.wait_listening(port, _UP_S, lambda: has_ended(places, service))


def has_ended(places: Places, service: str) -> bool:
    """Whether it has ended since it was brought up (s6 has started it again since then)."""
    return os.path.exists(f"{places.run}/{service}.ended")


def take_down(machine: Machine, places: Places, service: str) -> None:
    _control(machine, places, service, "-d")


def _control(machine: Machine, places: Places, service: str, order: str) -> None:
    until = time.monotonic() + _SUPERVISOR_S
    while True:
        result = machine.run(["s6-svc", order, f"{places.services}/{service}"], deadline_s=_ASK_S)
        if result.ok:
            return
        if time.monotonic() >= until:
            raise DshpcError(
                f"The supervisor does not take orders for {service}.",
                result.text,
                ("Start the container with its own entrypoint, then see: docker logs CONTAINER",),
            )
        time.sleep(0.005)  # s6-svscan starts beside us


def show_node(machine: Machine, node: str) -> Node | None:
    result = machine.run(["scontrol", "-o", "show", "node", node], deadline_s=_ASK_S)
    return parse_node(result.stdout) if result.ok else None


def wait_registered(machine: Machine, node: str) -> Node:
    """The node once slurmd has registered with slurmctld."""
    until = time.monotonic() + _REGISTERED_S
    while True:
        found = show_node(machine, node)
        if found is not None and (found.registered or "INVALID_REG" in found.states):
            return found
        if time.monotonic() >= until:
            raise DshpcError(
                f"Node {node} did not register with the controller within {_REGISTERED_S:.0f} s.",
                f"Its state is {'+'.join(found.states) if found else 'not known to slurmctld'}.",
                ("See what slurmd says: docker logs CONTAINER",),
            )
        time.sleep(0.02)


def reconcile(machine: Machine, node: str, found: Node) -> str | None:
    """Resume a node that was drained by our own doing; a sentence about what was done or left."""
    if "DRAIN" not in found.states and "DOWN" not in found.states:
        return None
    if not found.own_doing:
        return (
            f"Node {node} was set to {'+'.join(found.states)} by a person and is left so: "
            f"{found.reason}. To take it back: scontrol update nodename={node} state=resume"
        )
    result = machine.run(
        ["scontrol", "update", f"nodename={node}", "state=resume"], deadline_s=_ASK_S
    )
    if not result.ok:
        raise DshpcError(
            f"Node {node} is {'+'.join(found.states)} and cannot be resumed.",
            result.text,
            ("See: docker logs CONTAINER",),
        )
    return f"Node {node} was {'+'.join(found.states)} ({found.reason or 'no reason'}): resumed."


def end_lost_jobs(machine: Machine, node: str) -> str | None:
    """End or queue again the jobs that ran when the container stopped; a sentence where there were.

    Nothing of them is left, but slurmctld restores them as running: it gives up a batch job only at a
    registration of the node that comes 20 s after the job's start, and one of srun or salloc never
    (seen with 24.11.5). Until then they hold their CPUs and GPUs.
    """
    result = machine.run(
        ["squeue", "-h", "-w", node, "-t", "RUNNING,SUSPENDED,STOPPED"]
        + ["-O", "JobID:|,BatchFlag:|,Requeue:|"],
        deadline_s=_ASK_S,
    )
    again, ended = lost_jobs(result.stdout)
    for argv in (["scontrol", "requeue", ",".join(again)], ["scancel", *ended]):
        if argv[-1] not in ("", "scancel"):
            done = machine.run(argv, deadline_s=_ASK_S)
            if not done.ok:
                return (
                    f"Jobs of before the start could not be cleared ({' '.join(argv)}): {done.text}"
                )
    if not again and not ended:
        return None
    return (
        "Jobs that ran when the container stopped: "
        f"{len(again)} queued again, {len(ended)} ended (not to be requeued, or not by sbatch)."
    )


def lost_jobs(text: str) -> tuple[list[str], list[str]]:
    """(to be queued again, to be ended) of lines `id|batch flag|requeue flag|`."""
    again: list[str] = []
    ended: list[str] = []
    for line in text.splitlines():
        job, batch, requeue, *_ = [*line.replace(" ", "").split("|"), "", "", ""]
        if job:
            (again if batch == "1" and requeue == "1" else ended).append(job)
    return again, ended


def prove(machine: Machine, node: str, with_gpu: bool, deadline_s: float) -> CommandResult:
    """One real job, with a GPU where the node has one."""
    gres = ["--gres=gpu:1"] if with_gpu else []
    return machine.run(
        ["srun", "--quiet", "--job-name=dshpc-proof", f"--nodelist={node}", "-n1", *gres, "true"],
        deadline_s=deadline_s,
        cwd="/",
    )


def others_hold_the_node(machine: Machine) -> bool:
    """Whether jobs of people run or wait, so that the proof had to wait for them."""
    result = machine.run(
        ["squeue", "-h", "-t", "RUNNING,PENDING,COMPLETING,SUSPENDED", "-o", "%j"],
        deadline_s=_ASK_S,
    )
    return result.ok and any(name != "dshpc-proof" for name in result.stdout.split("\n") if name)


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
        ("See what the daemons say: docker logs CONTAINER",),
    )
