"""A workflow as what the host hands to the container: one object for all of its jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dshpc_setup import codec
from dshpc_setup.documents import foreign
from dshpc_setup.errors import usage_error
from dshpc_setup.jobs import method_parts
from dshpc_setup.jobs.request import Request
from dshpc_setup.jobs.staging import Incoming
from dshpc_setup.workflows.fingerprint import Prints
from dshpc_setup.workflows.model import Job, Workflow

SCHEMA = "dshpc.workflow-request/1"


@dataclass(frozen=True)
class WorkflowRequest:
    """What `dshpc-node job workflow` reads from stdin; `jobs` in the order of their submission."""

    verb: str  # run | status | cancel | list
    name: str
    work: str
    file: str = ""
    jobs: Sequence[Mapping[str, Any]] = field(default_factory=list)
    again: bool = False
    dry_run: bool = False
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        return codec.to_json(self, SCHEMA)


def from_json(text: str) -> WorkflowRequest:
    """Raises DshpcError (usage) for what is none."""
    try:
        return codec.from_json(WorkflowRequest, foreign.value(text), SCHEMA, unknown="refused")
    except ValueError as error:
        raise usage_error("The request cannot be read.", str(error)) from None


@dataclass(frozen=True)
class Where:
    """The project and its work folder; `owner` where we are root for somebody else."""

    project: str
    work: str
    owner: tuple[int, int] | None = None
    prepare: Callable[[], None] | None = None  # as of Incoming
    also: tuple[str, ...] = ()
    runtime: Mapping[str, Any] = field(default_factory=dict)
    foresee: Callable[[], object] | None = None


@dataclass(frozen=True)
class BuildOptions:
    """`again`: also what is unchanged. `dry`: nothing is submitted, and so nothing copied.

    `only` are the jobs whose inputs are copied (None: all). The others are said to have none: they
    are not to be submitted.
    """

    again: bool = False
    dry: bool = False
    only: Collection[str] | None = None

    def copies_for(self, job: str) -> bool:
        return not self.dry and (self.only is None or job in self.only)


def run(
    workflow: Workflow, prints: Prints, where: Where, how: BuildOptions
) -> tuple[WorkflowRequest, list[Incoming]]:
    """The object, and the copies of inputs that were made for it: what is left of them is the
    caller's to remove."""
    copies: list[Incoming] = []
    jobs: list[dict[str, Any]] = []
    try:
        for job in workflow.jobs:
            without = not how.copies_for(job.name)
            incoming = Incoming(
                where.work, where.owner, without, where.prepare, where.also, where.runtime
            )
            incoming.foresee = where.foresee
            copies.append(incoming)
            request = _request(job, where, incoming, prints.of[job.name])
            jobs.append({
                "name": job.name,
                "method": job.method.name if job.method else None,
                "needs": [[need.job, need.ending] for need in job.needs],
                "copied": not (without and needs_copies(incoming)),
                "request": {**request.to_json(), "workflow": f"{workflow.name}/{job.name}"},
            })  # fmt: skip
    except BaseException:
        remove(copies)
        raise
    asked = WorkflowRequest("run", workflow.name, where.work, str(workflow.file), jobs, how.again,
                  how.dry, list(prints.notes))  # fmt: skip
    return asked, copies


def needs_copies(incoming: Incoming) -> bool:
    """Whether some of its inputs lie outside the work folder."""
    return incoming.folder is not None


def submitted(answer: Mapping[str, Any]) -> set[str]:
    """The jobs that a run has submitted, or that a dry one would have."""
    return {str(job["name"]) for job in answer["jobs"] if job["action"] == "submitted"}


def remove(copies: Sequence[Incoming]) -> None:
    """Those that no workspace has taken."""
    for each in copies:
        each.remove()


def _request(job: Job, where: Where, incoming: Incoming, fingerprint: str | None) -> Request:
    method = job.method
    folder = method_parts.folder(method, where.project, incoming) if method else None
    return Request(
        kind="method" if method else "command",
        name=method.name if method else job.name,
        argv=method_parts.argv(method, folder) if method and folder else job.argv,
        work=where.work,
        resources=job.resources,
        parameters=(method_parts.with_files(method, job.parameters, incoming) if method else {},),
        inputs=tuple(incoming.take(path) for path in job.inputs),
        incoming=incoming.folder,
        method_dir=folder,
        environment=method_parts.environment(method, incoming) if method else None,
        image=method_parts.image(method, incoming) if method else None,
        fingerprint=fingerprint,
        utc_offset_s=time.localtime().tm_gmtoff,
    )
