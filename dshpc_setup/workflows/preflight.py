"""Before a workflow is submitted: its jobs read, what can never run, what is unchanged."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.jobs import availability, choosing, node_choice
from dshpc_setup.jobs import request as requests
from dshpc_setup.jobs.fit import Refusal, fit
from dshpc_setup.jobs.gpu_words import Clock
from dshpc_setup.jobs.offer import Offer
from dshpc_setup.jobs.request import Request
from dshpc_setup.machine import Machine
from dshpc_setup.workflows.model import Need
from dshpc_setup.workflows.request_building import WorkflowRequest
from dshpc_setup.workflows.standing import Standing
from dshpc_setup.workflows.state import Ran, State


@dataclass(frozen=True)
class Wanted:
    """A job as asked for; `copied`: the copies of inputs that its request names are there."""

    name: str
    method: str | None
    needs: tuple[Need, ...]
    request: Request
    copied: bool = True


def wanted(asked: WorkflowRequest) -> list[Wanted]:
    """The jobs; raises DshpcError (usage) where they cannot be read."""
    try:
        return [
            Wanted(
                str(each["name"]),
                each["method"],
                tuple(Need(job, ending) for job, ending in each["needs"]),
                requests.from_json(each["request"]),
                each.get("copied") is not False,
            )
            for each in asked.jobs
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise usage_error("The workflow's jobs cannot be read.", str(error)) from None


def check_fits(machine: Machine, jobs: Sequence[Wanted], has: Offer) -> None:
    """Raises DshpcError where one of them can never run here: on no node of the cluster. `has`: the own
    node's."""
    said: list[str] = []
    for job in jobs:
        asked = job.request
        try:
            there = node_choice.chosen(machine, asked, node_choice.all_of(has, asked=asked))
        except DshpcError as error:
            said.append(f"{job.name}: {error.brief} {error.details}")
            continue
        found = fit(asked.resources, there, None, asked.partition)
        if isinstance(found, Refusal):
            now = availability.ask(machine, there)
            clock = Clock(time.time(), asked.utc_offset_s)
            found = fit(asked.resources, there, now, asked.partition, clock)
        if isinstance(found, Refusal):
            said += [f"{job.name}: {why}" for why in found.whys]
    if said:
        raise DshpcError(
            f"The workflow cannot run here: {said[0]}{'' if len(said) == 1 else ', and more'}.",
            "\n".join([*said, "Nothing was submitted."]),
            (
                "See what there is: dshpc gpus, dshpc status",
                choosing.less(*(job.request for job in jobs)),
            ),
        )


def refuse_running(name: str, before: Sequence[Standing]) -> None:
    """Raises DshpcError where a job of the last run is not over."""
    going = [each for each in before if not each.is_over]
    if going:
        raise DshpcError(
            f"The workflow {name} is not over yet.",
            ", ".join(f"{each.name} (job {each.job_id}) is {each.words}" for each in going),
            (f"See how it is: dshpc workflow status {name}",
             f"End it first: dshpc workflow cancel {name}"),
        )  # fmt: skip


def unchanged(
    jobs: Sequence[Wanted], last: State | None, before: Sequence[Standing], here: Sequence[str]
) -> dict[str, Ran]:
    """The jobs that need not run again: the same fingerprint, ended well, the workspace is there, and
    so for all that they require. `here` are the workspaces that are there.

    One that was not needed, and is not again, makes nobody run that waited for its end alone.
    """
    kinds = {each.name: each.kind for each in before}
    found: dict[str, Ran] = {}
    settled: set[str] = set()
    for job in jobs:
        ran = last.jobs.get(job.name) if last else None
        same = ran is not None and ran.fingerprint == job.request.fingerprint is not None
        if ran is None or not same or not all(need.job in settled for need in job.needs):
            continue
        if kinds.get(job.name) == "good" and ran.workspace in here:
            found[job.name] = replace(ran, needs=job.needs, reused=True)
        if job.name in found or kinds.get(job.name) == "not_needed":
            settled.add(job.name)
    return found
