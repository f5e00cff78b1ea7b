"""Questions to a running cluster: is it ready, what does its node offer, does a job run."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import CommandResult, Machine

READY_S = 120.0
JOB_S = 60.0


@dataclass(frozen=True)
class Node:
    name: str
    gres: str  # "gpu:h100:2", "" without
    state: str  # "idle", "mixed", "drained", ...


@dataclass(frozen=True)
class Cluster:
    ready: bool
    nodes: tuple[Node, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def wait_ready(machine: Machine, container: str, deadline_s: float = READY_S) -> dict[str, Any]:
    """The container's start report once it is ready.

    Raises DshpcError with the container's own words where the start failed or takes too long.
    """
    result = machine.run(
        ["docker", "exec", container, "dshpc-node", "wait", "--timeout", str(int(deadline_s))],
        deadline_s=deadline_s + 15,
    )
    report = _object(result.stdout)
    if result.ok and report.get("ready"):
        return report
    raise _not_ready(container, result, report, deadline_s)


def _not_ready(
    container: str, result: CommandResult, report: dict[str, Any], deadline_s: float
) -> DshpcError:
    failure = report.get("failure")
    if isinstance(failure, dict):
        return DshpcError(
            str(failure.get("brief", "Slurm did not start.")),
            str(failure.get("details", "")),
            tuple(str(step) for step in failure.get("resolution", ()))
            or (f"Look at the log: docker logs {container}",),
        )
    if result.state == "timeout" or result.code == Exit.INCOMPLETE:
        return DshpcError(
            f"Slurm was not ready within {deadline_s:.0f} s.",
            f"Last step: {report.get('phase', 'unknown')}.",
            (f"Look at the log: docker logs {container}",),
            Exit.INCOMPLETE,
        )
    return DshpcError(
        f"The container {container} could not be asked whether Slurm is ready.",
        result.text,
        (f"Look at the log: docker logs {container}",),
    )


def own_files(machine: Machine, container: str) -> dict[str, str] | None:
    """The files of config/ that the running container uses as the user made them, with digests.

    None where the container gives no such answer.
    """
    result = machine.run(["docker", "exec", container, "dshpc-node", "status"], deadline_s=30.0)
    report = _object(result.stdout)
    digests, owners = report.get("config_sha256"), report.get("customized")
    if not isinstance(digests, dict) or not isinstance(owners, dict):
        return None
    return {name: str(digests.get(name)) for name in owners}


def ask_cluster(machine: Machine, container: str) -> Cluster:
    """The nodes as the controller knows them."""
    result = machine.run(
        ["docker", "exec", container, "sinfo", "--noheader", "--Node", "--format", "%N|%G|%T"],
        deadline_s=30.0,
    )
    if not result.ok:
        raise DshpcError(
            "Slurm's controller does not answer.",
            result.text,
            (f"Look at the log: docker logs {container}",),
        )
    nodes = parse_nodes(result.stdout)
    ready = bool(nodes) and all(node.state in ("idle", "mixed", "allocated") for node in nodes)
    return Cluster(ready, nodes)


def parse_nodes(text: str) -> tuple[Node, ...]:
    """`sinfo --format "%N|%G|%T"`; a node in two partitions is listed once."""
    nodes: dict[str, Node] = {}
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) != 3 or not parts[0]:
            continue
        gres = re.sub(r"\(S:[^)]*\)", "", parts[1])
        nodes[parts[0]] = Node(
            parts[0], "" if gres == "(null)" else gres, parts[2].rstrip("*~#!%$@^-")
        )
    return tuple(nodes.values())


def run_first_job(machine: Machine, container: str, gpu: bool) -> str:
    """One real `srun`, with a GPU where there is one; what it saw, in one sentence."""
    request = ["--gres=gpu:1"] if gpu else []
    command = [
        "sh",
        "-c",
        'echo "${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-$ZE_AFFINITY_MASK}}"',
    ]
    shown = " ".join(["srun", *request]) + " "
    result = machine.run(
        ["docker", "exec", container, "srun", "--immediate=30", *request, *command],
        deadline_s=JOB_S,
    )
    if result.state == "timeout" or "Unable to allocate resources" in result.stderr:
        return f"{shown}was not tried to its end: the GPUs are busy with other jobs"
    if not result.ok:
        raise DshpcError(
            f"The test job failed: {shown}",
            result.text,
            (f"Look at the log: docker logs {container}",),
        )
    seen = result.stdout.strip()
    if gpu and not seen:
        raise DshpcError(
            "The test job got a GPU from Slurm but no variable that names it.",
            f"{shown}set neither CUDA_VISIBLE_DEVICES nor ROCR_VISIBLE_DEVICES.",
            (f"Look at the log: docker logs {container}",),
        )
    return f"{shown}passed, GPU {seen}" if gpu else f"{shown}passed"


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
