"""A repair as a value, and what has to be known of the machine to plan one."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

from dshpc_setup.engine.daemon import Starter
from dshpc_setup.errors import RepairKind
from dshpc_setup.slurm.paths import Paths

PATHS = Paths("")  # in the container

Kind = RepairKind

ORDER: tuple[Kind, ...] = (
    "load-uvm",  # a CDI specification names the node that it makes
    "start-engine",
    "register-runtime",
    "enable-cdi",
    "write-cdi",
    "restart-engine",  # what was registered is in force from then on
    "restrict-env",
    "start-cluster",
    "restrict-key",
    "start-daemon",
    "restart-cluster",
    "resume-node",
    "reconfigure",
    "render",  # tests the GPUs in containers again
)
"""What others depend on comes first."""

OF_THE_ENGINE: tuple[Kind, ...] = ("start-engine", "restart-engine")
NEED_THE_ENGINE: tuple[Kind, ...] = ORDER[ORDER.index("start-cluster") :]

Argv = tuple[str, ...]


@dataclass(frozen=True)
class Repair:
    """One thing that is done to fix findings.

    `commands` are run as they stand, through sudo where `root`; a repair that is a command of our own
    is done by calling it. `about` tells repairs of one kind apart. Each file of `changes` is copied
    before, where it is there. `after`: keys of repairs that must have been done.
    """

    kind: Kind
    does: str  # "Register the runtime nvidia with Docker"
    commands: tuple[Argv, ...]
    about: str = ""
    root: bool = False
    changes: tuple[str, ...] = ()
    stops: Literal["nothing", "containers", "cluster"] = "nothing"  # what ends where it is done
    loss: str = ""  # the same in words: "1 container stops (a), and with it 2 running jobs"
    fixes: tuple[str, ...] = ()  # ids of findings
    after: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.about}" if self.about else self.kind

    @property
    def question(self) -> str:
        loss = f" {self.loss[:1].upper()}{self.loss[1:]}." if self.loss else ""
        return f"{self.does}?{loss}"

    def shown(self) -> tuple[str, ...]:
        """The commands as lines to paste."""
        sudo = "sudo " if self.root else ""
        return tuple(sudo + shlex.join(command) for command in self.commands)


@dataclass(frozen=True)
class Refusal:
    """Why there are none. `by_reconfigure`: a reconfigure does what was asked for."""

    why: str
    by_reconfigure: bool = False


Made = tuple[Repair, ...] | Refusal


@dataclass(frozen=True)
class NodeOutOfService:
    """A node that takes no jobs. `own`: Slurm or dshpc took it out, no person did."""

    name: str
    states: tuple[str, ...]
    reason: str
    who: str
    own: bool


@dataclass(frozen=True)
class Host:
    """What repairs depend on beside what doctor knows."""

    uid: int
    home: str | None = None
    starter: Starter = "systemd"
    engine_installed: bool = False
    folder: str | None = None  # of a project in which a cluster was set up
    container: str | None = None
    other_features: tuple[str, ...] = ()  # of daemon.json, beside cdi
    nodes: tuple[NodeOutOfService, ...] = ()


@dataclass(frozen=True)
class Plan:
    """`not_safe`: a fault without a repair, or without one for its last steps -> why, "" if not known."""

    repairs: tuple[Repair, ...]
    not_safe: dict[str, str]
