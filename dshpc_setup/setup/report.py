"""What a run of configure-environment did: the steps on screen and the object of `--json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dshpc_setup.apply.apply import Change
from dshpc_setup.cluster.verify import Cluster
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.terminal.reporter import Reporter

SCHEMA = "dshpc.configure/1"
StepName = Literal["probe", "base", "passthrough", "plan", "render", "build", "start", "verify"]
STEPS: tuple[StepName, ...] = (
    "probe",
    "base",
    "passthrough",
    "plan",
    "render",
    "build",
    "start",
    "verify",
)


@dataclass(frozen=True)
class Step:
    name: StepName
    state: Literal["ok", "skipped", "failed"]
    ms: float
    detail: str | None = None


class StepReporter(Reporter, Protocol):
    """A Reporter that also shows the steps as they come and go."""

    def begin(self, name: StepName) -> None: ...
    def end(self, step: Step) -> None: ...


@dataclass
class Report:
    """Filled in as the run goes on, so that an interrupted run has one too."""

    steps: list[Step] = field(default_factory=list)
    changes: tuple[Change, ...] = ()
    cluster: Cluster = field(default_factory=lambda: Cluster(False))
    simulated: bool = False
    notes: list[str] = field(default_factory=list)
    error: DshpcError | None = None

    @property
    def exit_code(self) -> int:
        return int(self.error.exit_code) if self.error else int(Exit.OK)

    def to_json(self) -> dict[str, Any]:
        """The `dshpc.configure/1` object."""
        return {
            "schema": SCHEMA,
            "exit_code": self.exit_code,
            "simulated": self.simulated,
            "files": [{"path": item.path, "action": item.action} for item in self.changes],
            "steps": [
                {"name": item.name, "state": item.state, "ms": item.ms, "detail": item.detail}
                for item in self.steps
            ],
            "cluster": self.cluster.to_json(),
            "notes": list(self.notes),
            "error": self.error.to_json() if self.error else None,
        }
