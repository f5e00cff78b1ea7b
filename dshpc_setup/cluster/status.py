"""`dshpc status`: what the container, its start report and the controller say, in one value."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dshpc_setup.cluster import unclean_ends
from dshpc_setup.engine import containers, start_report
from dshpc_setup.errors import DshpcError, Fix, told_error
from dshpc_setup.jobs import clock
from dshpc_setup.machine import Machine
from dshpc_setup.machine.no_answer import in_words
from dshpc_setup.observed import idle
from dshpc_setup.observed.cluster_status import (
    TIERS,
    Accounting,
    ClusterStatus,
    Drift,
    Rest,
    Tier,
)
from dshpc_setup.observed.drift import GpuDrift
from dshpc_setup.slurm import associations, blocked_jobs
from dshpc_setup.slurm.answers import number
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.nodes import TAKEN_OUT, Node
from dshpc_setup.terminal.sanitize import counted, plain

_ASK_S = 30.0
_ACCOUNTING: dict[Accounting, str] = {
    "up": "on",
    "away": "does not answer: jobs continue, and slurmctld keeps the records. What helps: dshpc doctor",
}


def ask(machine: Machine, project: str, container: str) -> ClusterStatus:
    """The status; raises DshpcError only where engine or container give no answer."""
    found = containers.inspect(machine, container)
    if found is None:
        return ClusterStatus(project, container, "missing")
    base = ClusterStatus(
        project,
        container,
        found.status,
        health=found.health,
        image=found.image,
        started=_to_the_second(found.started),
        image_gpu_type=found.labels.get("org.dshpc.gpu-type"),
    )
    if found.status != "running":
        return base
    report = start_report.ask(machine, container)
    told = replace(base, **from_report(report, base.image_gpu_type))
    if not report.get("ready"):
        return told
    has_accounting = isinstance(report.get("accounting"), dict)
    now = replace(told, **from_controller(machine, container, accounting=has_accounting))
    usable = (node.name for node in now.nodes if node.usable)
    return replace(now, notes=start_report.notes(report, usable))


def _to_the_second(time: str | None) -> str | None:
    """The engine's RFC 3339 time without its nanoseconds."""
    return None if time is None else re.sub(r"\.\d+", "", time)


def from_report(report: dict[str, Any], built_for: str | None) -> dict[str, Any]:
    failure, kept = report.get("failure"), report.get("kept_last_good")
    simulated = report.get("simulated")
    return {
        "phase": _text(report.get("phase")),
        "failure": failure if isinstance(failure, dict) else None,
        "kept_last_good": kept if isinstance(kept, dict) else None,
        "simulated": simulated if isinstance(simulated, bool) else None,
        "image_gpu_type": _text(report.get("image_gpu_type")) or built_for,
        "changes": tuple(map(str, _list(report.get("changes")))),
        "drift": tuple(
            _drift(item) for item in _list(report.get("drift")) if isinstance(item, dict)
        ),
        "reconfigured": _to_the_second(_text(report.get("reconfigured"))),
        "files": _files(report),
        "config_sha256": _strings(report.get("config_sha256")),
        "notes": start_report.notes(report, ()),
        "unclean_ends": unclean_ends.read(report),
        "idle_gpus": idle.read(report),
        "interrupted": unclean_ends.read_jobs(report.get("interrupted")),
        "rest": _rest(report.get("rest")),
    }


def _rest(value: object) -> Rest | None:
    if not isinstance(value, dict) or not isinstance(socket := value.get("socket"), str):
        return None
    return Rest(socket, _text(value.get("address")), _text(value.get("version")))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _drift(item: dict[str, Any]) -> Drift:
    what, was, now, done = (str(item.get(key) or "") for key in ("what", "was", "is", "done"))
    return Drift(what, was, now, done, _gpu_drift(item.get("gpus")))


def _gpu_drift(value: object) -> GpuDrift | None:
    """None for what is none, and in the report of an earlier version."""
    if not isinstance(value, dict):
        return None
    before, now = number(value.get("before")), number(value.get("now"))
    if before is None or now is None:
        return None
    return GpuDrift(str(value.get("type")), before, now, tuple(map(str, _list(value.get("gone")))))


def _strings(value: object) -> dict[str, str] | None:
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else None


def _files(report: dict[str, Any]) -> dict[str, str | None] | None:
    """Whose each file in force is; where the last good ones were kept, that is not known."""
    from dshpc_setup.render.configuration import (
        CONFIG_FILES,  # and with it all of the plan, for three names
    )

    own = report.get("customized")
    if not isinstance(own, dict) or not report.get("ready"):
        return None
    if isinstance(report.get("kept_last_good"), dict):
        return dict.fromkeys(CONFIG_FILES)
    return {name: str(own.get(name, "rendered")) for name in CONFIG_FILES}


def from_controller(
    machine: Machine, container: str, *, accounting: bool = False
) -> dict[str, Any]:
    """`accounting`: whether it is on, and so to be asked, too."""
    slurm = Slurm(machine, container, checked=True)
    nodes = slurm.nodes(deadline_s=_ASK_S)
    if nodes.value is None:
        asked = nodes.asked
        late = in_words(asked, "sinfo") if asked.state == "timeout" else ""
        return {"problem": late or asked.text or f"sinfo: {asked.state}"}
    config = slurm.config(deadline_s=_ASK_S).value
    queue = slurm.pending(deadline_s=_ASK_S).value
    return {
        "pending": None if queue is None else blocked_jobs.judge(queue),
        "nodes": nodes.value,
        "isolation": "unknown" if config is None else isolation(config),
        "accounting": _accounting(slurm) if accounting else None,
    }


def _accounting(slurm: Slurm) -> Accounting:
    return "up" if associations.database(slurm, deadline_s=_ASK_S).value else "away"


def isolation(config: Mapping[str, str]) -> Tier:
    """Devices are constrained by task/cgroup alone."""
    task = config.get("TaskPlugin")
    if task is None:
        return "unknown"
    constrained = config.get("ConstrainDevices", "").lower().startswith("yes")
    return "enforced" if constrained and "task/cgroup" in task else "default"


def lines(status: ClusterStatus) -> list[str]:
    """The same for people."""
    if status.state == "missing":
        return [
            f"The cluster is down: there is no container {status.container}. Start it: dshpc up"
        ]
    if status.state != "running":
        return [f"The cluster is not running: {status.container} {containers.how(status.state)}."
                " Start it: dshpc up"]  # fmt: skip
    since = clock.of_text(status.started or "-")
    said = [f"Container  {status.container}: running{_health(status)}, since {since}"]
    said.append(
        f"Image      {status.image}, built for GPU type {status.image_gpu_type or 'unknown'}"
    )
    if status.simulated:
        said.append("GPUs       SIMULATED: made up, no job computes on them")
    said.append(f"Start      {status.phase or 'not started yet'}")
    if status.failure is not None:
        error = told_error(status.failure)
        said += _failure_lines("Failed", replace(error, steps=after_failure(error.fixes)))
    if status.kept_last_good is not None:
        said += _failure_lines("Kept", told_error(status.kept_last_good))
    if status.refused is not None:
        said.append("Refused    by the last configure-environment, which changed nothing:")
        said += _failure_lines("", told_error(status.refused))
    for node in status.nodes:
        said.append(f"Node       {node.name}: {node.state}, {_gres(node)}")
        if node.reason and not node.usable:  # Slurm keeps it when the node is taken back
            said.append(f"           because: {node.reason}")
    if status.problem:
        said.append(f"Controller does not answer: {status.problem}")
        said.append("           - Restart it, queued jobs stay: dshpc restart")
    if status.nodes:
        said.append(f"Isolation  {status.isolation}: {TIERS[status.isolation]}")
    said += _services_lines(status)
    said += _files_line(status)
    said += _drift_lines(status)
    said += unclean_ends.lines(status.unclean_ends)
    said += _pending_lines(status)
    said += [f"Idle GPU   {plain(idle.line(each))}" for each in status.idle_gpus]
    said += [f"Note       {text}" for text in status.notes]
    return said + [text for node in status.nodes for text in _back(node)]


def _health(status: ClusterStatus) -> str:
    """Docker looks every ten seconds only: its "starting" says nothing that the next lines do not, and what
    it found before the container was paused, or slurmctld killed, is over where Slurm answers now."""
    if status.health in (None, "starting"):
        return ""
    if status.health == "unhealthy" and status.ready and status.problem is None:
        return " (unhealthy when Docker last looked; Slurm answers now)"
    return f" ({status.health})"


def after_failure(steps: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """What to do after a start that failed: nothing starts it again by itself."""
    if any(step.does is not None for step in steps):
        return steps
    again = Fix("Then start it again" if steps else "Start it again", "dshpc restart", step="after")
    return (*steps, again)


def _back(node: Node) -> list[str]:
    """What takes the node back: an order of Slurm's administrator, and docker's root is one."""
    if node.usable:
        return []
    if node.plain_state not in TAKEN_OUT:
        return ["Why it takes no jobs, and what helps: dshpc doctor"]
    if node.stopped:
        return [f"Its container was stopped. To start it: dshpc node resume {node.name}"]
    order = f"scontrol update {shlex.quote(f'NodeName={node.name}')} State=RESUME"
    again = f"To use node {node.name} again: dshpc exec --root -- {order}"
    if node.failed_program != "Prolog":
        return [again]
    # Taken back as it is, the next job drains it again
    return [
        "A Prolog failed. Which one, and what helps: dshpc doctor",
        f"When it is fixed: {again}",
    ]


def _services_lines(status: ClusterStatus) -> list[str]:
    """What a setting has asked for beside slurmctld and slurmd."""
    said = []
    if status.accounting is not None:
        said.append(f"Accounting {_ACCOUNTING[status.accounting]}")
    if status.rest is not None:
        where = f"http://{status.rest.address}" if status.rest.address else status.rest.socket
        said.append(f"REST API   {where}, {status.rest.version or 'version unknown'}")
    return said


_WHOSE = {"rendered": "rendered", "custom": "yours (marked)", "edited": "yours (edited by hand)"}


def _files_line(status: ClusterStatus) -> list[str]:
    if status.files is None:
        return []
    if status.kept_last_good is not None:
        return ["Files      the last good ones: see above what is wrong with the newer ones"]
    told = (f"{name} {_WHOSE.get(str(owner), owner)}" for name, owner in status.files.items())
    return [f"Files      {', '.join(told)}"]


def _drift_lines(status: ClusterStatus) -> list[str]:
    """One block: what is different, what it was and is, what was done."""
    since = "since the last start"
    if status.reconfigured:
        since += f", at {status.reconfigured} by reconfigure"
    if not status.drift:
        return [f"Changed    {text}" for text in status.changes]
    said = [f"Changed    {since}:"]
    for item in status.drift:
        said.append(f"           {item.what}: was {item.was}, is {item.now}")
        if item.done:
            said.append(f"             done: {item.done}")
    return said


def _pending_lines(status: ClusterStatus) -> list[str]:
    pending = status.pending or ()
    parts = (
        ("is held", "are held", blocked_jobs.held(pending)),
        ("cannot run", "cannot run", blocked_jobs.not_held(pending)),
    )
    said = []
    for one, many, jobs in parts:
        if jobs:
            head = f"{counted(len(jobs), 'queued job')} {one if len(jobs) == 1 else many}:"
            said += [
                f"Queue      {head}",
                *(f"           {text}" for text in blocked_jobs.lines(jobs)),
            ]
    return said


def _failure_lines(title: str, error: DshpcError) -> list[str]:
    said = [f"{title:<10} {error.brief}"]
    said += [f"           {line}" for line in error.details.splitlines()]
    return said + [f"           - {step}" for step in error.resolution]


def _gres(node: Node) -> str:
    if not node.gres_total:
        return "no GPU"
    return ", ".join(
        f"{name} {node.gres_in_use.get(name, 0)} of {count} in use"
        for name, count in node.gres_total.items()
    )
