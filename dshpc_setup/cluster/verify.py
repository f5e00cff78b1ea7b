"""Questions to a running cluster: is it ready, what does its node offer, does a job run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dshpc_setup import gpu_vendors, slurm_releases
from dshpc_setup.cluster.stopping import running_jobs
from dshpc_setup.container.jobs import PROOF
from dshpc_setup.engine import start_report
from dshpc_setup.engine_client import DOCKER
from dshpc_setup.errors import DshpcError, Exit, Fix, told_error
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.machine.no_answer import answered, in_words
from dshpc_setup.plan.model import OWNERS
from dshpc_setup.slurm import nodes as slurm_nodes
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.terminal.sanitize import listed

READY_S = 300.0  # a start that fails says so at once: this is for machines that are slow
_WAY_S = 60.0  # for the way into the container and out of it
JOB_S = 60.0
_ASK_S = 20.0
_NODES_S = 30.0
PATIENCE_S = 10  # how long the test job waits for other jobs
LONGER_S = 60  # and where there are none, but the node has not taken it yet
LEFT_S = 10.0  # for so long a node is asked again that a job which has ended is still leaving
_TASK_PROLOG = slurm_releases.says("task_prolog_failed")
_TAKES_JOBS = ("idle", "mixed", "allocated", "completing", "planned")
_MARK = "dshpc-gpu="  # a TaskProlog may print more, and into the same stdout


@dataclass(frozen=True)
class Node:
    name: str
    gres: str  # "gpu:h100:2", "" without
    state: str  # "idle", "mixed", "drained", ...


@dataclass(frozen=True)
class Cluster:
    ready: bool
    nodes: tuple[Node, ...] = ()

    @property
    def usable(self) -> tuple[str, ...]:
        """Names of the nodes where jobs can run, as far as the whole of them says."""
        return tuple(node.name for node in self.nodes) if self.ready else ()

    def describe(self) -> str:
        """ "dshpc idle gpu:h100:2", a node after the other."""
        return ", ".join(f"{node.name} {node.state} {node.gres or 'no GPU'}" for node in self.nodes)

    def of_machine(self, node: str) -> tuple[Cluster, tuple[Node, ...]]:
        """The one node of this machine, and those of others, which may be off without a fault here.

        As it is where none has that name: a slurm.conf of the user's may give another.
        """
        own = tuple(each for each in self.nodes if each.name == node)
        if not own:
            return self, ()
        others = tuple(each for each in self.nodes if each.name != node)
        return Cluster(self.ready or own[0].state in _TAKES_JOBS, own), others

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def of_others(nodes: Sequence[Node]) -> list[str]:
    """What is to be said of nodes on other machines: those that take no jobs."""
    return [
        f"Node {node.name}, on another machine, takes no jobs: it is {node.state}."
        for node in nodes
        if node.state not in _TAKES_JOBS
    ]


def wait_ready(machine: Machine, container: str, deadline_s: float = READY_S) -> dict[str, Any]:
    """The container's start report once it is ready.

    Raises DshpcError with the container's own words where the start failed or takes too long.
    """
    result = machine.run(
        DOCKER.run_in(container, "dshpc-node", "wait", "--timeout", str(int(deadline_s))),
        deadline_s=deadline_s + _WAY_S,
    )
    report = start_report.parse(result.stdout)
    if result.ok and report.get("ready"):
        return report
    raise _not_ready(container, result, report, deadline_s)


def _not_ready(
    container: str, result: CommandResult, report: dict[str, Any], deadline_s: float
) -> DshpcError:
    failure = report.get("failure")
    if isinstance(failure, dict):
        error = told_error(failure)
        log = Fix("Look at the log", "dshpc logs", step="look")
        return replace(
            error, brief=error.brief or "Slurm did not start.", steps=error.steps or (log,)
        )
    if result.state == "timeout" or result.code == Exit.INCOMPLETE:
        return DshpcError(
            f"Slurm was not ready within {deadline_s:.0f} s.",
            f"Last step: {report.get('phase', 'unknown')}.",
            ("Look at the log: dshpc logs",),
            Exit.INCOMPLETE,
        )
    return DshpcError(
        f"The container {container} could not be asked whether Slurm is ready.",
        result.text,
        ("Look at the log: dshpc logs",),
    )


def own_files(report: Mapping[str, Any]) -> dict[str, str] | None:
    """The files of config/ that a container found to be the user's own, with digests, by its start report.

    None where it is not ready: its start failed, goes on, or could not be asked. Pure.
    """
    digests, owners = report.get("config_sha256"), report.get("customized")
    if report.get("ready") is not True:
        return None
    if not isinstance(digests, dict) or not isinstance(owners, dict):
        return None
    return {name: str(digests.get(name)) for name in owners}


def controller_answers(machine: Machine, container: str) -> bool:
    """Whether slurmctld answers in the running container; raises where that is not known in time.

    scontrol itself says within seconds that a controller is silent: where it does not, it is slow.
    """
    asked = Slurm(machine, container).ping(deadline_s=_ASK_S)
    return answered(asked, "whether Slurm's controller runs").ok


def ask_cluster(machine: Machine, container: str) -> Cluster:
    """The nodes as the controller knows them, once the start's own first job has left them."""
    until = machine.clock() + LEFT_S
    slurm = Slurm(machine, container, checked=True)
    told = slurm.nodes(deadline_s=_NODES_S)
    while _leaving(told.value) and machine.clock() < until:
        told = slurm.nodes(deadline_s=_NODES_S)
    nodes = told.value
    if not answered(told.asked, "how the nodes are").ok or nodes is None:
        raise DshpcError(
            "Slurm's controller does not answer.",
            told.asked.text,
            ("Look at the log: dshpc logs",),
        )
    return Cluster(
        bool(nodes) and all(node.usable for node in nodes),
        tuple(Node(node.name, node.gres, node.plain_state) for node in nodes),
    )


def _leaving(found: tuple[slurm_nodes.Node, ...] | None) -> bool:
    return any(node.plain_state == "completing" for node in found or ())


def refuse_last_good(status: Mapping[str, Any]) -> None:
    """Raises DshpcError where the container refused what config/ holds and runs an older one."""
    kept = status.get("kept_last_good")
    if isinstance(kept, dict):
        error = told_error(kept)
        raise replace(
            error,
            brief=f"Your configuration is not in force: {error.brief or 'it was refused'}",
            details=f"{error.details}\nSlurm runs with the last good configuration.".strip(),
        )


def judge_nodes(cluster: Cluster, planned: Mapping[str, str], *, own_files: bool) -> None:
    """Raises DshpcError where a node takes no jobs, or has not the GPUs that were planned for it.

    `planned` is node -> GRES, the controller's own first. With files of the user's own, the GPUs and the
    names are what those say.
    """
    first = cluster.nodes[0].name if cluster.nodes else "NAME"
    out = [node.name for node in cluster.nodes if node.state not in _TAKES_JOBS]
    if not cluster.ready:
        which = "its node is" if len(cluster.nodes) < 2 else "not every node is"
        how = "not ready for jobs" if len(cluster.nodes) < 2 else "ready for jobs"
        raise DshpcError(
            f"Slurm runs, but {which} {how}: {cluster.describe()}.",
            "",
            (
                "See why: dshpc scontrol show node",
                f"If somebody drained it: dshpc exec --root -- scontrol update "
                f"nodename={(out or [first])[0]} state=resume",
                "Look at the log: dshpc logs",
            ),
        )
    have = {node.name: node.gres for node in cluster.nodes}
    missing = tuple(name for name in planned if name not in have)
    if missing and len(planned) > 1:
        raise DshpcError(
            f"Slurm runs without {listed(missing)}, which did not register.",
            f"There are: {cluster.describe()}.",
            (f"See why: dshpc logs --node {missing[0]}",),
        )
    if len(planned) == 1:  # a slurm.conf of the user's may give the node another name
        have = dict.fromkeys(planned, ",".join(filter(None, have.values())))
    for name, gres in planned.items():
        if not slurm_nodes.same_gres(have[name], gres) and not own_files:
            which = "The node" if len(planned) == 1 else f"Node {name}"
            raise DshpcError(
                f"{which} has {have[name] or 'no GPU'}, but {gres or 'no GPU'} was planned.",
                "The container sees other GPUs than this machine does.",
                ("See what it says: dshpc status", "And its log: dshpc logs"),
            )


def run_first_job(
    machine: Machine, container: str, gpu: bool, node: str | None = None, *, owned: bool = False
) -> str:
    """One real `srun`, with a GPU where there is one; what it saw, in one sentence. `node`: there. `owned`:
    it takes the jobs of its owner alone, which the controller may not know yet.

    Raises DshpcError where it fails, but not where other jobs hold all there is.
    """
    request = [*(["-w", node] if node else []), *(["--gres=gpu:1"] if gpu else [])]
    request += [f"--partition={OWNERS}"] if owned else []
    variables = [each.variables.visible for each in gpu_vendors.all_of_them()]
    command = ["sh", "-c", f'echo "{_MARK}{_first_of(variables)}"']
    shown = " ".join(["srun", *request])

    def run(patience_s: int) -> CommandResult:
        words = ["srun", f"--job-name={PROOF}", f"--immediate={patience_s}", *request, *command]
        deadline_s = JOB_S + patience_s - PATIENCE_S
        return machine.run(DOCKER.run_in(container, *words), deadline_s=deadline_s)

    result = run(PATIENCE_S)
    if not result.ok:
        waited = slurm_releases.says("must_wait").search(result.stderr) is not None
        jobs = running_jobs(machine, container) if waited else ()
        if jobs:
            return f"{shown} had to wait: {len(jobs)} job(s) hold what there is"
        if waited:  # nobody holds anything: the node is slow to take it
            result = run(LONGER_S)
    if result.state == "timeout":
        raise DshpcError(
            f"The test job did not end in time: {shown}",
            result.text or in_words(result),
            ("Look at the log: dshpc logs", "Then run this again."),
            Exit.INCOMPLETE,
        )
    if not result.ok and (found := _TASK_PROLOG.search(result.text)):
        raise DshpcError(
            "The test job failed, and so does each other: the TaskProlog of slurm.conf ended with exit "
            f"code {found[1]}.",
            f"{shown}\n{result.text}",
            (
                Fix(
                    "See its line",
                    "dshpc exec grep -i taskprolog /etc/slurm/slurm.conf",
                    step="look",
                ),
                Fix(
                    "Correct that program, then run this again. What else helps",
                    "dshpc explain DSH-SL-052",
                ),
            ),
        )
    if not result.ok:
        raise DshpcError(
            f"The test job failed: {shown}",
            result.text or f"It ended with {result.code} and said nothing.",
            ("Look at the log: dshpc logs",),
        )
    seen = _seen(result.stdout)
    if gpu and not seen:
        raise DshpcError(
            "The test job got a GPU from Slurm but no variable that names it.",
            f"{shown} set none of {', '.join(variables)}.",
            ("Look at the log: dshpc logs",),
        )
    return f"{shown} passed, GPU {seen}" if gpu else f"{shown} passed"


def _first_of(variables: Sequence[str]) -> str:
    """For a shell: the first of them that says something."""
    *others, text = (f"${name}" for name in variables)
    for name in reversed(others):
        text = f"${{{name[1:]}:-{text}}}"
    return text


def _seen(stdout: str) -> str:
    """What the job itself printed, in all that came of its stdout; "" for a GPU that was not named."""
    said = [line.partition(_MARK)[2].strip() for line in stdout.splitlines() if _MARK in line]
    return said[-1] if said else ""
