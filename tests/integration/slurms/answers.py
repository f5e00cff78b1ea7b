"""Slurm's own answers to all that the product asks, of a queue that has something of everything.

    python -m tests.integration.slurms.answers trixie

writes them into tests/unit/slurm/answers/RELEASE.json, where the unit tests read them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dshpc_setup.cluster import stopping
from dshpc_setup.container import jobs
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.slurm.client import Slurm
from tests.integration.slurms import cluster
from tests.integration.slurms.cases import Case, cases
from tests.integration.slurms.hardware import add_nodes
from tests.integration.slurms.room import NamedRoom, slurm_room
from tests.integration.slurms.roots import SlurmRoot

FOLDER = Path(__file__).parents[2] / "unit/slurm/answers"
MACHINE = "a100x2"
_JOB = "#!/bin/sh\nexec sleep 600\n"
_ENDS_S, _ASK_S = 30.0, 60.0
Said = dict[str, Any]
# One of each kind, in this order: what they are is told by their names
_SUBMITTED: Mapping[str, tuple[str, ...]] = {
    "runs": ("--gres=gpu:2", "-n1"),
    "a|b 'c'": ("--gres=gpu:1", "-n1", "--time=5"),
    "tasks": ("--array=0-3%1", "--gres=gpu:1", "-n1"),
    "held": ("--hold", "-n1"),
    "never": ("--dependency=afterok:1", "-n1"),
    "later": ("--begin=now+1day", "-n1"),
}


def record(root: SlurmRoot, folder: Path) -> dict[str, list[Said]]:
    """State of the cluster -> what it answered: one of two GPUs, with jobs of every kind."""
    case = cases()[MACHINE]
    assert isinstance(case, Case)
    place = folder / "room"
    place.mkdir(parents=True)
    node = case.plan.node
    with slurm_room(root, node, place) as room:
        add_nodes(room, case.plan)
        cluster.configure(room, root, cluster.believed(case.texts))
        room.put("/job.sh", _JOB, 0o755)
        log = folder / "slurmctld.log"
        with cluster.daemon_in(room, ("slurmctld", "-D"), log) as controller:
            assert cluster.wait_for_controller(controller, log) is None
            with cluster.daemon_in(
                room, ("slurmd", "-D", "-N", node), folder / "slurmd.log"
            ) as slurmd:
                _, stopped = cluster.wait_for_node(room, node, slurmd)
                assert stopped is None, (stopped, (folder / "slurmd.log").read_text()[-2000:])
                _submit(room)
                return _asked(room, node)


def _submit(room: NamedRoom) -> None:
    ended = ("sbatch", "--parsable", "--job-name=fails", "--wrap=exit 3", "--output=/dev/null")
    assert cluster.run_in(room, ended).code == 0
    until = time.monotonic() + _ENDS_S
    while " FAILED" not in cluster.run_in(room, ("squeue", "-h", "-t", "all", "-o", "%i %T")).text:
        assert time.monotonic() < until
        time.sleep(0.1)
    for name, options in _SUBMITTED.items():
        argv = ("sbatch", "--parsable", "--output=/tmp/%j.log", f"--job-name={name}", *options)
        done = cluster.run_in(room, (*argv, "/job.sh"))
        assert done.code == 0, done.said
    until = time.monotonic() + _ENDS_S
    while "RUNNING" not in cluster.run_in(room, ("squeue", "-h", "-o", "%T")).text:
        assert time.monotonic() < until
        time.sleep(0.1)
    time.sleep(2)  # until the reasons of the others are said


def _asked(room: NamedRoom, node: str) -> dict[str, list[Said]]:
    """What the client asks of a busy cluster, and of one whose node is drained; and a release's refusals."""
    busy = _Keeps(room)
    slurm = Slurm(busy)
    ask_all(slurm, node)
    for argv in (
        ("slurmctld", "-V"),
        ("srun", "--immediate=1", "--gres=gpu:2", "true"),
        ("sbatch", "--gres=gpu:9", "/job.sh"),
        ("sbatch", "--help"),
        ("srun", "--help"),
    ):
        slurm.run(*argv, deadline_s=_ASK_S)
    slurm.drain(node, "dshpc: a|b", deadline_s=_ASK_S)
    drained = _Keeps(room)
    Slurm(drained).nodes(deadline_s=_ASK_S)
    Slurm(drained).node(node, deadline_s=_ASK_S)
    return {"busy": busy.said, "drained": drained.said}


def ask_all(slurm: Slurm, node: str) -> None:
    """Each question that the product has, as it asks it."""
    slurm.jobs(deadline_s=_ASK_S)
    slurm.jobs(99999, deadline_s=_ASK_S)
    slurm.holders(deadline_s=_ASK_S)
    slurm.rows(jobs._QUEUE, jobs._QUEUED, deadline_s=_ASK_S)
    slurm.rows("JobID State BatchFlag RestartCnt UserID", deadline_s=_ASK_S)
    slurm.rows("JobID Nice", deadline_s=_ASK_S)
    slurm.rows(stopping._COLUMNS, "R,S,CF", deadline_s=_ASK_S)
    slurm.rows("JobID tres-per-job tres-per-node tres-per-socket tres-per-task",
               jobs._RUNNING, everyone=False, deadline_s=_ASK_S)  # fmt: skip
    slurm.rows("ArrayTaskID State", "all", each_task=True, deadline_s=_ASK_S)
    slurm.rows("State Reason UserID Name", everyone=False, deadline_s=_ASK_S)
    slurm.rows("JobID Partition", deadline_s=_ASK_S)
    slurm.pending(deadline_s=_ASK_S)
    slurm.nodes(deadline_s=_ASK_S)
    slurm.node(node, deadline_s=_ASK_S)
    slurm.config(deadline_s=_ASK_S)
    slurm.ping(deadline_s=_ASK_S)
    slurm.gpus("/etc/slurm/slurm.conf", node, deadline_s=_ASK_S)


class _Keeps(LocalMachine):
    """Runs what it is asked in a room, and keeps the answers."""

    def __init__(self, room: NamedRoom) -> None:
        super().__init__()
        self.room, self.said = room, list[Said]()

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **_: Any
    ) -> CommandResult:
        found = cluster.run_in(self.room, tuple(argv), more=env or {})
        text = found.text
        if "--json" in argv and found.code == 0:
            text = json.dumps(json.loads(text), separators=(",", ":"))  # the same, and shorter
        self.said.append(
            {"argv": list(argv), "code": found.code, "stdout": text, "stderr": found.errors}
        )
        return CommandResult(tuple(argv), "present", found.code, found.text, found.errors, 1.0)


def write(answers: Mapping[str, list[Said]], release: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{release}.json").write_text(f"{json.dumps(answers, indent=1)}\n")


def main(suites: Sequence[str]) -> None:
    from dshpc_setup.engine.site import gather_site
    from dshpc_setup.image.base import ensure_base
    from dshpc_setup.probes import gather
    from dshpc_setup.settings import Settings
    from dshpc_setup.terminal.reporter import Silent
    from tests.integration.slurms.roots import slurm_root

    machine = LocalMachine()
    base = ensure_base(machine, gather(machine), Settings(), Silent(answer=True))
    for suite in suites:
        with (
            tempfile.TemporaryDirectory() as folder,
            slurm_root(suite, base, gather_site(machine), Path(folder) / "root") as root,
        ):
            release = ".".join(root.version.split(".")[:2])
            write(record(root, Path(folder)), release)


if __name__ == "__main__":
    main(sys.argv[1:])
