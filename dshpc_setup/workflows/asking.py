"""A workflow as what the host hands to the container: one object for all of its jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dshpc_setup.errors import usage_error
from dshpc_setup.jobs import asking as of_jobs
from dshpc_setup.jobs.incoming import Incoming
from dshpc_setup.jobs.request import Request
from dshpc_setup.methods.model import Value
from dshpc_setup.workflows.fingerprint import Prints
from dshpc_setup.workflows.model import Job, Workflow

SCHEMA = "dshpc.workflow-request/1"


@dataclass(frozen=True)
class Asked:
    """What `dshpc-node job workflow` reads from stdin; `jobs` in the order of their submission."""

    verb: str  # run | status | cancel
    name: str
    work: str
    file: str = ""
    jobs: Sequence[Mapping[str, Any]] = field(default_factory=list)
    again: bool = False
    dry_run: bool = False
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **self.__dict__}


def from_json(text: str) -> Asked:
    """Raises DshpcError (usage) for what is none."""
    try:
        value = json.loads(text)
        if value.pop("schema") != SCHEMA:
            raise ValueError(f"not a {SCHEMA} object")
        return Asked(**value)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise usage_error("What shall be done cannot be read.", str(error)) from None


@dataclass(frozen=True)
class Where:
    """The project and its work folder; `owner` where we are root for somebody else."""

    project: str
    work: str
    owner: tuple[int, int] | None = None


def run(
    workflow: Workflow, prints: Prints, where: Where, *, again: bool, dry: bool
) -> tuple[Asked, list[Incoming]]:
    """The object, and the copies of inputs that were made for it: what is left of them is the
    caller's to remove."""
    copies: list[Incoming] = []
    jobs: list[dict[str, Any]] = []
    try:
        for job in workflow.jobs:
            incoming = Incoming(where.work, where.owner, dry=dry)
            copies.append(incoming)
            request = _request(job, where, incoming, prints.of[job.name])
            jobs.append({
                "name": job.name,
                "method": job.method.name if job.method else None,
                "needs": [[need.job, need.ending] for need in job.needs],
                "request": {**request.to_json(), "workflow": f"{workflow.name}/{job.name}"},
            })  # fmt: skip
    except BaseException:
        remove(copies)
        raise
    asked = Asked("run", workflow.name, where.work, str(workflow.file), jobs, again, dry,
                  list(prints.notes))  # fmt: skip
    return asked, copies


def remove(copies: Sequence[Incoming]) -> None:
    """Those that no workspace has taken."""
    for each in copies:
        each.remove()


def _request(job: Job, where: Where, incoming: Incoming, fingerprint: str | None) -> Request:
    method = job.method
    folder = of_jobs.method_dir(method, where.project) if method else None
    argv = (*method.command, f"{folder}/{method.script_path}") if method else job.argv
    files = {each.name for each in method.parameters if each.type == "file"} if method else set()
    parameters: dict[str, Value] = {
        name: incoming.take(value) if name in files and isinstance(value, str) else value
        for name, value in job.parameters.items()
    }
    inputs = tuple(incoming.take(path) for path in job.inputs)
    return Request(
        kind="method" if method else "command",
        name=method.name if method else job.name,
        argv=argv,
        work=where.work,
        resources=job.resources,
        parameters=(parameters,),
        inputs=inputs,
        incoming=incoming.folder,
        method_dir=folder,
        fingerprint=fingerprint,
        utc_offset_s=time.localtime().tm_gmtoff,
    )
