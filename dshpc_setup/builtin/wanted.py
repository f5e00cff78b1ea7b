"""A container as values: what is wanted, and what is written down of one that runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dshpc_setup import codec
from dshpc_setup.builtin.processes import Process
from dshpc_setup.builtin.rootfs import Rootfs
from dshpc_setup.documents import foreign
from dshpc_setup.files import atomic, owned

WANTED_SCHEMA = "dshpc.builtin-wanted/1"
RECORD_SCHEMA = "dshpc.builtin/1"
RIGHTS = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
"""What jobs need as root and as a user, and nothing else: as docker-compose.yml has it."""


@dataclass(frozen=True)
class Mount:
    """A folder or a file of the machine in the container, with what is mounted below it."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Device:
    """A device node of the machine under a path of the container's; simulated GPUs are other names of
    /dev/null."""

    source: str
    target: str


@dataclass(frozen=True)
class Wanted:
    """A container to start. `run` is its own folder: its records, its log, and what it writes outside its
    mounts, which is gone at the next start. `log_bytes` is how long its log gets; there are two of them.
    """

    name: str
    rootfs: Rootfs
    run: str
    argv: tuple[str, ...]
    host_name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    tmpfs: tuple[str, ...] = ("/run", "/tmp")
    devices: tuple[Device, ...] = ()
    capabilities: tuple[str, ...] = RIGHTS
    shm_mib: int = 1024
    log_bytes: int = 4 << 20
    restart: bool = False  # whether it is started again where it ends by itself


Storage = Literal["overlay", "memory", "copy"]
"""What the container writes on: a layer over the root filesystem, on disk or in memory; or a copy of it."""
Step = Literal[
    "ids", "namespaces", "storage", "root", "proc", "sys", "dev", "mount", "files", "program"
]
State = Literal["starting", "running", "restarting", "exited", "failed"]
"""`restarting`: it has ended by itself, and its supervisor will start it again."""
ALIVE = ("starting", "running", "restarting")
"""The states of a container whose supervisor is there."""


@dataclass(frozen=True)
class Failure:
    """At which step a container did not come up, the kernel's number, and what it was about."""

    step: Step
    number: int
    place: str


@dataclass(frozen=True)
class Record:
    """What the supervisor writes down: `code` is the exit code of the container, 128 and the signal where
    one ended it. What enters later has its `environment` and `capabilities`, too."""

    name: str
    state: State
    supervisor: Process
    init: Process | None = None
    storage: Storage | None = None
    code: int | None = None
    failure: Failure | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = RIGHTS
    restarts: int = 0  # since somebody started it


def read_wanted(run: Path) -> Wanted:
    """Raises OSError and ValueError."""
    told = foreign.value(owned.read_text(run / "wanted.json"))
    return codec.from_json(Wanted, told, WANTED_SCHEMA)


def write_wanted(wanted: Wanted) -> None:
    """In the run folder, in one step; DshpcError."""
    text = json.dumps(codec.to_json(wanted, WANTED_SCHEMA), indent=1)
    atomic.write_atomic(Path(wanted.run) / "wanted.json", text + "\n", 0o600)


def read_record(run: Path) -> Record | None:
    """None where there is none, or none that can be read: a container that nobody knows does not run."""
    try:
        return codec.from_json(
            Record, foreign.value(owned.read_text(run / "run.json")), RECORD_SCHEMA
        )
    except (OSError, ValueError):
        return None


def write_record(run: Path, record: Record) -> None:
    """In one step; DshpcError."""
    text = json.dumps(codec.to_json(record, RECORD_SCHEMA), indent=1)
    atomic.write_atomic(run / "run.json", text + "\n", 0o600)
