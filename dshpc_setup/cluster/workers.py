"""The workers of a cluster on this machine: planned, found and waited for.

Each is a container of the cluster's image (docs/decisions/0044-nodes-on-one-machine.md). What one of them
does never makes another one anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dshpc_setup import passthrough, probes
from dshpc_setup.apply.apply import read_text
from dshpc_setup.cluster import verify
from dshpc_setup.engine import compose as compose_tool
from dshpc_setup.engine import containers, start_report
from dshpc_setup.engine.containers import Container
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import HostFacts, Section
from dshpc_setup.machine import Machine, Say
from dshpc_setup.machine.overlay import simulated_device_files, with_simulated_gpus
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.project.folder import LABEL, Project
from dshpc_setup.render.labels import parts
from dshpc_setup.render.stanza import Worker
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Reporter
from dshpc_setup.terminal.sanitize import listed

_ASK_S = 20.0
_GPUS: tuple[Section, ...] = ("gpus",)


def planned(machine: Machine, facts: HostFacts, settings: Settings) -> tuple[Worker, ...]:
    """What each worker is to be; `facts` are of the first node, on this machine."""
    seen = {settings.simulate: facts.gpus}
    found = []
    for number in settings.worker_numbers:
        own = settings.of_worker(number)
        if own.simulate not in seen:
            simulated = with_simulated_gpus(machine, own.simulate)
            seen[own.simulate] = probes.gather(simulated, engine=False, only=_GPUS).gpus
        plan = plan_cluster(replace(facts, gpus=seen[own.simulate]), own)
        way = passthrough.without_test(plan, simulated_device_files(own.simulate))
        assert way is not None  # a worker has made-up GPUs or none
        found.append(Worker(own, plan, way))
    return tuple(found)


def with_image_of_all(plan: ClusterPlan, workers: Sequence[Worker]) -> ClusterPlan:
    """The plan of the first node, with an image that does for all of them."""
    kinds = {plan.gpu_type, *(each.plan.gpu_type for each in workers)} - {"none"}
    kind = "none" if not kinds else kinds.pop() if len(kinds) == 1 else "all"
    return replace(plan, gpu_type=kind)


def of_project(machine: Machine, project: Project, container: str) -> dict[str, Container]:
    """As `found`, of a project whose compose file has workers: else nobody is asked."""
    return found(machine, str(project.folder), container) if has_some(project) else {}


def has_some(project: Project) -> bool:
    """Whether the compose file has workers."""
    return count(project) > 0


def count(project: Project) -> int:
    """How many workers the compose file has; none in one that cannot be read."""
    try:
        text = read_text(project.folder / compose_tool.FILE) or ""
    except DshpcError:
        return 0
    return len(parts(text)[1])


def found(machine: Machine, folder: str, container: str) -> dict[str, Container]:
    """Node -> container of each worker of the cluster whose controller's container is `container`."""
    name = re.compile(rf"{re.escape(container)}-([0-9]+)")
    names = containers.containers(machine, f"{LABEL}={folder}")
    prefix = container.removesuffix("-slurm")
    there = ((name.fullmatch(each), each) for each in names)
    pairs = {
        f"{prefix}-{match[1]}": containers.inspect(machine, each) for match, each in there if match
    }
    ordered = sorted(pairs.items(), key=lambda pair: int(pair[0].rpartition("-")[2]))
    return {node: each for node, each in ordered if each is not None}


def wait_ready(
    machine: Machine, workers: Mapping[str, str], reporter: Reporter
) -> dict[str, dict[str, Any]]:
    """The start report of each; raises DshpcError, naming those that did not come up, once all ended."""
    reports, failed = {}, {}
    for node, container in workers.items():
        reporter.progress(f"waiting for node {node}")
        try:
            reports[node] = verify.wait_ready(machine, container)
            verify.refuse_last_good(reports[node])
        except DshpcError as error:
            failed[node] = error
    if failed:
        raise not_up(failed)
    return reports


def notes(machine: Machine, there: Mapping[str, Container]) -> list[str]:
    """What is to be known of those that take no jobs; asked beside each other, with one deadline."""

    def asking(container: str) -> Callable[[Say], None]:
        return lambda say: say(start_report.ask(machine, container))

    running = {node: each for node, each in there.items() if each.status == "running"}
    ended = machine.apart(
        {node: asking(each.name) for node, each in running.items()}, deadline_s=_ASK_S
    )
    said = [
        f"Node {node}: its container {containers.how(each.status)}. {_start_of(node, each)}"
        for node, each in there.items()
        if node not in running
    ]
    for node, end in ended.items():
        report = next((item for item in end.items if isinstance(item, dict)), None)
        if report is None:
            said.append(f"Node {node} gives no answer: dshpc logs --node {node}")
        elif not report.get("ready"):
            failure = report.get("failure")
            brief = failure.get("brief") if isinstance(failure, dict) else report.get("phase")
            said.append(f"Node {node} is not ready: {brief}. See: dshpc logs --node {node}")
    return said


def _start_of(node: str, container: Container) -> str:
    if container.status == "paused":
        return f"Its jobs continue with: docker unpause {container.name}"
    return f"Start it: dshpc node resume {node}"


def not_up(failed: Mapping[str, DshpcError]) -> DshpcError:
    first = next(iter(failed))
    incomplete = all(each.exit_code == Exit.INCOMPLETE for each in failed.values())
    names = f"Node {first} is" if len(failed) == 1 else f"Nodes {listed(tuple(failed))} are"
    return DshpcError(
        f"{names} not up: {failed[first].brief}",
        "\n".join(filter(None, (failed[first].details, "The other nodes take jobs."))),
        (
            f"See its log: dshpc logs --node {first}",
            *failed[first].steps,
        ),
        Exit.INCOMPLETE if incomplete else Exit.ERROR,
    )
