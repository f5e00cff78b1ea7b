"""One run: the daemons of a cluster started on rendered texts, and all that they said and did."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dshpc_setup.container import gpu_places
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.slurm import gpus as slurm_gpus
from tests.integration.slurms.asks import Ask, asks
from tests.integration.slurms.cases import Case
from tests.integration.slurms.hardware import add_nodes
from tests.integration.slurms.room import NamedRoom, slurm_room
from tests.integration.slurms.roots import SlurmRoot

_UP_S = 90.0
_ANSWER_S = 90.0  # longer than slurmd waits for a device file that is not there
_JOB_S = 120.0
_CLEARED_S = 5.0
_OURS = Path(__file__).parents[3] / "container/rootfs/usr/local/lib/dshpc"  # slurm.conf names some
_RUNNING = "Running as primary controller"
_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_NO_ANSWER = 124

# All that is not as it was rendered: the recorded machines have up to 256 CPUs, and this one has not
# as many. Without it slurmd would refuse the node as smaller than it is said to be.
_OURS_ALONE, _FOREIGN = "\nSlurmdParameters=", "\nSlurmdParameters=config_overrides,"
_PROCESSOR = "/processor"


@dataclass(frozen=True)
class Answer:
    code: int
    text: str  # standard output
    errors: str

    @property
    def said(self) -> str:
        return f"{self.text}\n{self.errors}"


@dataclass(frozen=True)
class Outcome:
    """`stopped` says why no job was tried, where none was."""

    accepted: Answer  # of slurmd -G
    controller_log: str = ""
    node_log: str = ""
    node: str = ""  # scontrol -o show node
    answers: Mapping[Ask, Answer] = field(default_factory=dict)
    stopped: str | None = None


Runs = Callable[[str, str], Outcome]
"""(suite, name of a case) -> what happened there."""


def run(
    root: SlurmRoot,
    case: Case,
    folder: Path,
    processor: Mapping[str, str] | None = None,
    questions: Sequence[Ask] | None = None,
) -> Outcome:
    """Start both daemons on a case's texts, ask for all that its plan promises, and end them.

    `processor`: the files by which slurmd counts the CPUs, instead of this machine's; it then believes
    them and not what the texts say. `questions`: what is asked in place of the plan's promises.
    """
    plan, place = case.plan, folder / "room"
    own = {"HWLOC_FSROOT": _PROCESSOR, "HWLOC_COMPONENTS": "linux,stop"} if processor else {}
    place.mkdir(parents=True)
    with slurm_room(root, plan.node, place) as room:
        add_nodes(room, plan)
        configure(room, root, case.texts if processor else believed(case.texts))
        for path, text in (processor or {}).items():
            room.put(f"{_PROCESSOR}/{path}", text)
        accepted = run_in(room, ("slurmd", "-G", "-N", plan.node))
        told = gpu_places.needed(case.gpus, plan, own_gres=False)
        listed = slurm_gpus.parse(accepted.said) if told else gpu_places.as_planned(plan)
        table = gpu_places.table(listed, case.gpus, plan.isolation)
        if table:
            room.put("/run/dshpc/gpu-places", table)  # where the product's task prolog looks
        logs = folder / "slurmctld.log", folder / "slurmd.log"
        with daemon_in(room, ("slurmctld", "-D"), logs[0]) as controller:
            stopped = wait_for_controller(controller, logs[0])
            if stopped:
                return Outcome(accepted, logs[0].read_text(), stopped=stopped)
            with daemon_in(room, ("slurmd", "-D", "-N", plan.node), logs[1], own) as daemon:
                node, stopped = wait_for_node(room, plan.node, daemon)
                answers = {} if stopped else dict(_answers(room, plan, questions))
                said = [log.read_text() for log in logs]
    return Outcome(accepted, said[0], said[1], node, answers, stopped)


def believed(texts: Mapping[str, str]) -> Mapping[str, str]:
    """The texts with which slurmd takes the recorded machine's CPUs and memory for this one's."""
    text = texts["slurm.conf"]
    assert text.count(_OURS_ALONE) == 1
    return {**texts, "slurm.conf": text.replace(_OURS_ALONE, _FOREIGN)}


def configure(room: NamedRoom, root: SlurmRoot, texts: Mapping[str, str]) -> None:
    """/etc/slurm, the key and the folders, as the product's own container has them."""
    for name, text in texts.items():
        room.put(f"/etc/slurm/{name}", text)
    for file in _OURS.glob("*"):
        if file.is_file():
            room.put(f"/usr/local/lib/dshpc/{file.name}", file.read_bytes(), 0o755)
    room.put("/etc/slurm/slurm.key", os.urandom(1024), 0o600)
    os.chown(room.path("/etc/slurm/slurm.key"), *root.owner)
    state = "/var/lib/dshpc/state"
    nobody_else = {
        "/run/slurmctld": 0o755,
        f"{state}/slurmctld": 0o700,
        f"{state}/jobcomp": 0o755,
    }
    for path in ("/run/slurm", "/var/spool/slurmd", *nobody_else):
        room.path(path).mkdir(parents=True, exist_ok=True)
        room.path(path).chmod(nobody_else.get(path, 0o755))
    for path in nobody_else:
        os.chown(room.path(path), *root.owner)


@contextlib.contextmanager
def daemon_in(
    room: NamedRoom, argv: tuple[str, ...], log: Path, more: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon in the foreground; it ends with its room at the latest, and is reaped here."""
    child = room.start(argv, {**_ENV, **(more or {})}, log)
    try:
        yield child
    finally:
        # nsenter passes no signal on, but the daemon is its child, with a process group of its own
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, 9)
        child.wait(_UP_S)


def wait_for_controller(controller: subprocess.Popen[bytes], log: Path) -> str | None:
    """None once it serves; slurmd that comes earlier loses a whole second."""
    until = time.monotonic() + _UP_S
    while _RUNNING not in log.read_text():
        if controller.poll() is not None:
            return f"slurmctld ended with {controller.returncode}"
        if time.monotonic() > until:
            return f"slurmctld did not say {_RUNNING!r} in {_UP_S:.0f} s"
        time.sleep(0.002)
    return None


def wait_for_node(
    room: NamedRoom, name: str, daemon: subprocess.Popen[bytes]
) -> tuple[str, str | None]:
    """The node once it has registered, and why it is not idle where it is not."""
    until = time.monotonic() + _UP_S
    while True:
        found = run_in(room, ("scontrol", "-o", "show", "node", name)).text
        state = found.partition(" State=")[2].split(" ")[0]
        if state == "IDLE":
            return found, None
        if "INVALID_REG" in state or "DRAIN" in state:
            return found, f"the node is {state}"
        if daemon.poll() is not None:
            return found, f"slurmd ended with {daemon.returncode}"
        if time.monotonic() > until:
            return found, f"the node is {state or 'unknown'} after {_UP_S:.0f} s"
        time.sleep(0.005)


def _answers(
    room: NamedRoom, plan: ClusterPlan, questions: Sequence[Ask] | None
) -> Iterator[tuple[Ask, Answer]]:
    """What each of them got, up to the first that gets no answer: it may hold the GPUs."""
    for ask in asks(plan) if questions is None else questions:
        answer = run_in(room, ask.argv, _JOB_S)
        yield ask, answer
        if answer.code == _NO_ANSWER:
            return
        if not ask.refused:
            _wait_for_idle(room, plan.node)


def _wait_for_idle(room: NamedRoom, name: str) -> None:
    """A job that comes before the one before it is cleared away waits a second for its turn."""
    until = time.monotonic() + _CLEARED_S
    while time.monotonic() < until:
        if " State=IDLE " in run_in(room, ("scontrol", "-o", "show", "node", name)).text:
            return
        time.sleep(0.005)


def run_in(
    room: NamedRoom,
    argv: tuple[str, ...],
    deadline_s: float = _ANSWER_S,
    more: Mapping[str, str] | None = None,
) -> Answer:
    try:
        done = room.run(argv, {**_ENV, **(more or {})}, deadline_s)
    except subprocess.TimeoutExpired:
        return Answer(_NO_ANSWER, "", f"no answer within {deadline_s:.0f} s")
    return Answer(done.returncode, done.stdout, done.stderr)
