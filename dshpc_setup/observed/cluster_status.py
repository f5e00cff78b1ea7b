"""What is known of a cluster: its container, its start, its nodes, and what waits in its queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from dshpc_setup.errors import Exit
from dshpc_setup.observed.drift import GpuDrift
from dshpc_setup.observed.idle import IdleGpu
from dshpc_setup.slurm import blocked_jobs
from dshpc_setup.slurm.blocked_jobs import Stuck
from dshpc_setup.slurm.nodes import Node

SCHEMA = "dshpc.status/1"

Tier = Literal["default", "enforced", "unknown"]
Accounting = Literal["up", "away"]

TIERS: dict[Tier, str] = {
    "default": "GPUs are given to jobs by environment variable; a job can reach the others",
    "enforced": "a job can open only the GPUs that it was given",
    "unknown": "the controller does not say",
}


@dataclass(frozen=True)
class Drift:
    """What is different since the last start that got ready, and what was made of it."""

    what: str
    was: str
    now: str
    done: str
    gpus: GpuDrift | None = None

    def to_json(self) -> dict[str, Any]:
        value = {"what": self.what, "was": self.was, "is": self.now, "done": self.done}
        return value if self.gpus is None else {**value, "gpus": asdict(self.gpus)}


@dataclass(frozen=True)
class UncleanEnd:
    """slurmctld, or its container, was killed: found at that time (RFC 3339). `jobs` has the ids of those
    that it met, by what became of them: "continued" where slurmctld alone was killed, else "requeued",
    "concluded" (their script had ended) and "ended"; None where nobody has noted them."""

    at: str
    jobs: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True)
class Rest:
    """Where slurmrestd listens: its socket in the container, and "127.0.0.1:6820" on the machine, if it
    does. `version` is the newest API that it has, "v0.0.42"; None: it did not say."""

    socket: str
    address: str | None
    version: str | None


@dataclass(frozen=True)
class ClusterStatus:
    """`phase` is the start's own word: "ready", "failed", "starting: STEP"; None if not asked."""

    project: str
    container: str
    state: str  # running | exited | paused | ... | missing
    health: str | None = None
    image: str | None = None
    started: str | None = None
    phase: str | None = None
    failure: dict[str, Any] | None = None
    nodes: tuple[Node, ...] = ()
    isolation: Tier = "unknown"
    image_gpu_type: str | None = None
    simulated: bool | None = None
    changes: tuple[str, ...] = ()  # since the last start
    drift: tuple[Drift, ...] = ()  # the same, taken apart
    reconfigured: str | None = None  # when it was last done without a start
    files: dict[str, str | None] | None = (
        None  # name -> rendered | custom | edited, None: not known
    )
    config_sha256: dict[str, str] | None = None  # of config/, as it was last read and tried
    pending: tuple[Stuck, ...] | None = None  # queued jobs that cannot run; None: not asked
    notes: tuple[str, ...] = ()
    compose_late: bool = False  # docker-compose.yml is not what the container was made from
    problem: str | None = None  # why the controller could not be asked
    kept_last_good: dict[str, Any] | None = None
    refused: dict[str, Any] | None = None  # why the last configure-environment put nothing in force
    idle_gpus: tuple[IdleGpu, ...] = ()  # that jobs hold and have not used for long
    unclean_ends: tuple[UncleanEnd, ...] = ()  # until an end in order, a day at most
    # {requeued, concluded, ended}: ids of the jobs that ran before the container's start
    interrupted: Mapping[str, tuple[str, ...]] | None = None
    accounting: Accounting | None = None  # None: off, or the controller does not answer
    rest: Rest | None = None  # Slurm's REST API; None: not on, or not up

    @property
    def ready(self) -> bool:
        return self.phase == "ready" and bool(self.nodes) and all(n.usable for n in self.nodes)

    @property
    def exit_code(self) -> int:
        if self.ready:
            return int(Exit.WARNING if self.kept_last_good else Exit.OK)
        starting = self.state == "running" and self.phase not in ("ready", "failed")
        return int(Exit.INCOMPLETE if starting else Exit.ERROR)

    @property
    def exit_code_of_change(self) -> int:
        """Of a command that was to put config/ in force: the last good files are no success there."""
        return int(Exit.ERROR) if self.ready and self.kept_last_good else self.exit_code

    def to_json(self) -> dict[str, Any]:
        """The `dshpc.status/1` object."""
        value = {item.name: getattr(self, item.name) for item in fields(self)}
        value["nodes"] = [node.to_json() for node in self.nodes]
        value["drift"] = [item.to_json() for item in self.drift]
        value["idle_gpus"] = [asdict(gpu) for gpu in self.idle_gpus]
        value["unclean_ends"] = [asdict(end) for end in self.unclean_ends]
        value["pending"] = None if self.pending is None else blocked_jobs.to_json(self.pending)
        value["rest"] = None if self.rest is None else asdict(self.rest)
        value["isolation"] = {"tier": self.isolation, "detail": TIERS[self.isolation]}
        return {"schema": SCHEMA, "exit_code": self.exit_code, "ready": self.ready, **value}
