"""What the pages show and do, as values: the functions behind the commands, and nothing else.

Jobs are known in the container: it is asked as the calling user, by the very calls of `dshpc job`. Each
question has a deadline; each raises DshpcError where there is no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dshpc_setup import settings
from dshpc_setup.cluster.config_diff import Differences
from dshpc_setup.cluster.gpu_jobs import ClusterGpus
from dshpc_setup.cluster.gpus import GpusNow
from dshpc_setup.cluster.nodes import NodeNow
from dshpc_setup.dashboard.terminals import Program
from dshpc_setup.diagnose.report import Report
from dshpc_setup.jobs.request_building import CommandLine
from dshpc_setup.jobs.view import View
from dshpc_setup.join.giving import Made
from dshpc_setup.join.tokens import Given
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.pseudo_terminal import Size
from dshpc_setup.methods.model import Method
from dshpc_setup.methods.store import Entry
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.repair import Outcome, Repair
from dshpc_setup.settings.overruled import Overruled
from dshpc_setup.setup.report import Report as SetupReport
from dshpc_setup.terminal.reporter import Reporter
from dshpc_setup.usage.sums import Sum

Agrees = Callable[[Repair], bool]


class Inside(Protocol):
    """Runs a program in the cluster's container, as the calling user."""

    def __call__(
        self,
        words: Sequence[str],
        *,
        deadline_s: float,
        stdin: str | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> CommandResult: ...


@dataclass(frozen=True)
class Jobs:
    """A `dshpc.jobs/1`: the jobs as values, and as the object that it is."""

    views: tuple[View, ...] = ()
    notes: tuple[str, ...] = ()
    told: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class JobReport:
    """A `dshpc.job-report/1`: the job, or the tasks of an array, and what it was made from."""

    views: tuple[View, ...]
    request: dict[str, Any] | None
    sbatch: tuple[str, ...] | None
    notes: tuple[str, ...]
    told: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Joining:
    """The tokens by which machines join, the nodes where one was used, and what the join service says."""

    tokens: tuple[Given, ...] = ()
    nodes: tuple[NodeNow, ...] = ()
    log: str = ""


Told = Jobs | bool
"""The jobs, as they are now; whether the nodes are others than a moment ago."""


class Source(Protocol):
    """All that the pages ask for."""

    @property
    def work(self) -> str: ...
    @property
    def name(self) -> str:
        """The cluster's container."""
        ...

    def hardware(self) -> Iterator[GpusNow]:
        """A look at this machine's GPUs each time that one is asked for."""
        ...

    def holders(self, before: ClusterGpus | None) -> ClusterGpus | None:
        """Which jobs hold which of them; what stays as it was `before` is not asked again."""
        ...

    def other_gpus(self, before: Sequence[GpusNow]) -> tuple[GpusNow, ...]:
        """Those of the cluster's other nodes; what stays as it was `before` is not asked again."""
        ...

    def watch_jobs(self, say: Callable[[Told], None]) -> None:
        """For a minute, what is told; ends with what `say` raises."""
        ...

    def status(self) -> ClusterStatus: ...
    def doctor(self) -> Report: ...
    def jobs(self, *, older: bool = False) -> Jobs: ...
    def job(self, job: str) -> JobReport: ...
    def cancel(self, job: str) -> str:
        """What became of it, in the words of `dshpc job cancel`."""
        ...

    def requeue(self, job: str) -> None: ...
    def methods(self) -> tuple[Entry, ...]: ...
    def method(self, name: str) -> Method: ...
    def submit(self, asked: CommandLine) -> dict[str, Any]:
        """A `dshpc.job-submitted/1`; with `dry_run` of what would be."""
        ...

    def check(self, asked: CommandLine) -> dict[str, Any]:
        """A `dshpc.method-check/1`."""
        ...

    def settings(self) -> tuple[settings.Settings, tuple[Overruled, ...]]: ...

    def in_force(self) -> dict[str, str]: ...
    def differences(self) -> Differences: ...
    def tried(self, name: str, value: str) -> SetupReport:
        """What `configure-environment` would do with another value of a setting; nothing is changed."""
        ...

    def node_log(self, node: str) -> str:
        """The last lines of what its container has printed."""
        ...

    def usage(self) -> tuple[Sum, ...]:
        """Of all jobs that have ended."""
        ...

    def workflows(self) -> dict[str, Any]:
        """A `dshpc.workflow-list/1`."""
        ...

    def workflow(self, name: str) -> dict[str, Any]:
        """A `dshpc.workflow/1`."""
        ...

    def cancel_workflow(self, name: str) -> None: ...
    def terminal(self, words: Sequence[str], size: Size) -> Program:
        """One of `dshpc`'s commands on a terminal of its own; OSError where it cannot begin."""
        ...

    def notebook(self, words: Sequence[str]) -> str:
        """The address that this `dshpc lab` prints, once it is there."""
        ...

    def joining(self) -> Joining: ...
    def give_token(self, ttl: str, *, once: bool) -> Made:
        """As `dshpc node token` does."""
        ...

    def revoke_tokens(self) -> None: ...
    def fixes(self) -> Outcome:
        """What doctor would fix, as its dry run has it."""
        ...

    def fix(self, agrees: Agrees, reporter: Reporter) -> Outcome:
        """Do the repairs that are agreed to, and look again."""
        ...
