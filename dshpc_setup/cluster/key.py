"""What `dshpc key rotate` does on the host: the container changes its key and tells what it did."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from dshpc_setup.cluster import targets
from dshpc_setup.documents import foreign
from dshpc_setup.engine import containers
from dshpc_setup.errors import DshpcError, Exit, told_error, words_of
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.nodes import FORMER_KEY
from dshpc_setup.slurm.paths import FROM_HOST
from dshpc_setup.terminal.reporter import Reporter
from dshpc_setup.terminal.sanitize import listed

SCHEMA = "dshpc.key/1"
STEP_SCHEMA = "dshpc.key-step/1"
_STEPS = {
    "known": "1 of 3: slurmctld and slurmd learn the new key",
    "in-use": "2 of 3: they sign with it",
    "retired": "3 of 3: the former key gets its end",
    "slurmctld": "slurmctld has not taken it up: restarting it",
    "slurmd": "slurmd has not taken it up: restarting it",
}
_ASK_S = 20.0
_ROTATE_S = 240.0  # a second where all goes well; each of three steps may restart both daemons


@dataclass(frozen=True)
class Rotated:
    """`key` is the name of the new key, which is no secret; `former_until` the end of the former.

    `waiting`: ids of the jobs of srun and salloc that were queued as the change began.
    """

    container: str
    key: str
    former_until: datetime
    ms: float
    waiting: tuple[str, ...] = ()
    away: tuple[str, ...] = ()  # nodes that were not up
    cut_off: tuple[str, ...] = ()  # nodes on other machines, which have the former key

    def to_json(self) -> dict[str, Any]:
        """The `dshpc.key/1` object."""
        return {
            "schema": SCHEMA,
            "exit_code": int(Exit.OK),
            "container": self.container,
            "key": self.key,
            "former_until": self.former_until.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "ms": self.ms,
            "waiting": list(self.waiting),
            **({"away": list(self.away)} if self.away else {}),
            **({"cut_off": list(self.cut_off)} if self.cut_off else {}),
        }

    def without(self, nodes: tuple[str, ...]) -> Rotated:
        """Of nodes that are told otherwise nothing is said twice."""
        return replace(self, away=tuple(each for each in self.away if each not in nodes))

    def describe(self) -> str:
        until = self.former_until.astimezone().strftime("%H:%M:%S")
        said = (
            "The cluster has a new key. Running jobs are not affected; the former key is refused after "
            f"{until}."
        )
        if self.cut_off:
            said += (
                f"\nOn other machines: {listed(self.cut_off)}. Jobs there continue, and no new one starts "
                "until the machine has joined again. Make a token here: dshpc node token\nThen type on each, "
                "where its dshpc is: ./configure-environment --yes --no-build --join TOKEN"
            )
        if self.away:
            said += f"\nNot up: {listed(self.away)}. It reads the new key as it is started: dshpc node list"
        if not self.waiting:
            return said
        return (
            f"{said}\nsrun or salloc waited in the queue meanwhile (jobs {', '.join(self.waiting)}). "
            "Where squeue shows such a job running and its srun still waits two minutes later, Slurm's "
            "answer was lost: end that srun and start it again."
        )


def rotate(
    machine: Machine, project: Project, reporter: Reporter, reached: Collection[str] = ()
) -> Rotated:
    """A new key for the running cluster; raises DshpcError where it did not get it.

    `reached`: nodes on other machines that the caller will have join anew.
    """
    cluster = targets.target(project)
    with project.lock(files=False):
        found = targets.ours(machine, cluster)
        if found is None or found.status != "running":
            raise DshpcError(
                "The key was not changed: the cluster does not run.",
                f"The container {cluster.container} is {found.status if found else 'not there'}.",
                ("Start it: dshpc up", "Then: dshpc key rotate"),
            )
        far = _far(machine, cluster)
        unreached = tuple(node for node in far if node not in reached)
        if unreached and not reporter.ask(_question(unreached), by_yes=True):
            raise DshpcError(
                "The key was not changed.",
                f"Nodes on other machines would be cut off: {listed(unreached)}.",
                ("To do it anyway: dshpc key rotate --yes",),
            )
        reporter.note(f"Changing the key of {cluster.container}:")
        with _taken_out(Slurm(machine, cluster.container, checked=True), far):
            done = containers.exec_in(
                machine,
                cluster.container,
                ["env", FROM_HOST, "dshpc-node", "rotate-key"],
                deadline_s=_ROTATE_S,
                on_line=lambda text: _show(text, reporter),
            )
            rotated = told(done, cluster.container)
        return replace(rotated, cut_off=far).without(far)


@contextlib.contextmanager
def _taken_out(slurm: Slurm, nodes: tuple[str, ...]) -> Iterator[None]:
    """No job begins there, as a node that has the former key does not understand what would start it; what
    runs goes on. Each is taken back as it joins anew (container/joining.py), all where the block fails."""
    known = (slurm.nodes(deadline_s=_ASK_S).value or ()) if nodes else ()
    out = [each.name for each in known if each.name in nodes and not each.drained]
    for node in out:
        slurm.drain(node, FORMER_KEY, deadline_s=_ASK_S)
    try:
        yield
    except BaseException:
        for node in out:
            slurm.undrain(node, deadline_s=_ASK_S)
        raise


def _far(machine: Machine, cluster: targets.Target) -> tuple[str, ...]:
    """Nodes on other machines: the key reaches none of them, as Slurm's traffic is not encrypted."""
    settings = cluster.project.read_settings(machine.env).settings
    if not settings.listens:
        return ()
    done = containers.exec_in(
        machine, cluster.container, ["dshpc-node", "collect-offers"], deadline_s=_ASK_S
    )
    return tuple(done.stdout.split())


def _question(far: tuple[str, ...]) -> str:
    return (
        f"The new key does not reach other machines: {listed(far)} must join again. Until then jobs that run "
        "there continue and no new one starts. After some minutes Slurm takes them for down, and queues "
        "their jobs again. Change it?"
    )


def _show(line: str, reporter: Reporter) -> None:
    step = _step(line)
    if step is not None and step in _STEPS:
        reporter.note(f"  {_STEPS[step]} ...")


def _step(line: str) -> str | None:
    """Which step a line of `dshpc-node rotate-key` tells of; None for all other lines."""
    try:
        value = foreign.value(line) if line.startswith("{") else None
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("schema") != STEP_SCHEMA:
        return None
    return str(value.get("step"))


def _error(line: str) -> DshpcError | None:
    """The error that a line is (schema dshpc.error/1)."""
    try:
        value = foreign.value(line) if line.startswith("{") else None
    except ValueError:
        return None
    found = value.get("error") if isinstance(value, dict) else None
    return told_error(found) if isinstance(found, dict) else None


def told(done: CommandResult, container: str) -> Rotated:
    """What `dshpc-node rotate-key` said; its error where it failed."""
    both = f"{done.stdout}\n{done.stderr}".splitlines()  # a stream that is shown is one of both
    lines = [line for line in both if _step(line) is None]
    if done.state == "timeout":
        raise DshpcError(
            f"The key was not changed within {_ROTATE_S:.0f} s.",
            "The cluster may still be at it; until it has ended, the former key is accepted.",
            ("See the cluster's state: dshpc status", "Then start over: dshpc key rotate"),
            Exit.INCOMPLETE,
        )
    if done.code == Exit.USAGE:
        raise DshpcError(
            "The key was not changed: the cluster's image is too old to do that.",
            done.text.partition("\n")[0],
            ("Rebuild it: configure-environment", "Then: dshpc key rotate"),
        )
    if not done.ok:
        error = next(filter(None, map(_error, lines)), None)
        if error is None:
            brief = f"dshpc-node rotate-key ended with {done.code} ({done.state})."
            error = DshpcError(brief, "\n".join(lines).strip())
        raise replace(
            error,
            steps=(*error.steps, "See what the cluster says: dshpc logs"),
            exit_code=Exit.INCOMPLETE if done.code == Exit.INCOMPLETE else Exit.ERROR,
        )
    answer = [line for line in lines if line.startswith("{")]
    return _parsed("\n".join(answer[-1:] or lines), container)


def _parsed(text: str, container: str) -> Rotated:
    try:
        said = foreign.value(text)
        until = datetime.fromisoformat(str(said["former_until"]).replace("Z", "+00:00"))
        waiting = tuple(str(job) for job in said.get("waiting", ()))  # not of older images
        away = tuple(str(node) for node in said.get("away", ()))
        return Rotated(container, str(said["key"]), until, float(said["ms"]), waiting, away)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise DshpcError(
            "It is not known whether the key was changed: the cluster's answer cannot be read.",
            f"{words_of(error)}\n{text[:200]}",
            ("Change it again: dshpc key rotate",),
            Exit.INCOMPLETE,
        ) from None
