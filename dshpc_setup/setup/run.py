"""What one run of configure-environment was asked for, and what it knows so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dshpc_setup import engine_door
from dshpc_setup.cluster.stopping import MayStop
from dshpc_setup.machine import Machine
from dshpc_setup.machine.longer_deadlines import patient
from dshpc_setup.project.folder import Project
from dshpc_setup.render import stanza
from dshpc_setup.setup import engine_choice
from dshpc_setup.setup.joining import Joining
from dshpc_setup.setup.report import Report, StepReporter
from dshpc_setup.setup.steps import Steps


@dataclass(frozen=True)
class Options:
    """How far to go, and what may be asked."""

    flags: Mapping[str, str | None] = field(default_factory=dict)
    settings_file: Path | None = None
    dry_run: bool = False
    build: bool = True
    renew: bool = False  # the image, with the packages of today
    start: bool = True
    take_over: bool = False
    may_stop: MayStop = field(default_factory=MayStop)  # running jobs
    interactive: bool = False
    greeting: str = ""  # the first line on screen
    env: Mapping[str, str] | None = None  # where settings may stand; None: the machine's own
    image_file: Path | None = None  # the image is in it, and is not made here
    replayed: str | None = None  # the folder of a recorded machine: nothing of it can be started
    joining: Joining | None = None  # the cluster elsewhere of which this machine becomes a node


@dataclass
class Run:
    """Filled by the stages, one after another; `report` is true at every moment."""

    given: Machine  # what is asked with a time of its own: the probes
    project: Project
    options: Options
    reporter: StepReporter
    engine: engine_choice.Kind = "docker"  # what starts the container
    is_written: bool = False
    has_image_of_file: bool = False  # Docker's is not built here
    inputs: str = ""  # of what was rendered
    memory_mib: int | None = None  # of the node, in it
    replaced: list[str | None] = field(default_factory=list)  # ids of images no longer to be used
    ready: Mapping[str, Any] = field(
        default_factory=dict
    )  # a container's word on its start, once it is over
    workers: tuple[stanza.Worker, ...] = ()

    def __post_init__(self) -> None:
        self.machine = patient(self.given)
        self.steps = Steps(self.reporter, self.given.clock)
        self.was_there = bool(self.project.manifest) if self.options.replayed is None else False
        self.flags = dict(self.options.flags)
        if self.options.joining is not None:
            self.joins(self.options.joining)

    def joins(self, joining: Joining) -> None:
        """As it says now."""
        self.flags.update(joining.flags)
        self.project.joining = joining.note

    @property
    def report(self) -> Report:
        return self.steps.report

    @property
    def makes_whole_image(self) -> bool:
        """Whether the image is made, or came, as a whole: with no base image, and not by Docker's build."""
        return self.engine != "docker" or self.has_image_of_file

    def through(self, kind: engine_choice.Kind) -> None:
        """From here on the machine is seen through that engine."""
        self.engine = kind
        self.given = engine_door.through(self.given, kind, self.project.runtime().get("cache"))
        self.machine = patient(self.given)
