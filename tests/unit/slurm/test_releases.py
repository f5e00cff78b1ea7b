"""Each release of Slurm: its table, and its own answers read by the client.

A new release is a line in ROWS, beside its table and the answers that
`python -m tests.integration.slurms.answers SUITE` records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup import slurm_releases
from dshpc_setup.cluster import stopping
from dshpc_setup.cluster.status import isolation
from dshpc_setup.container import jobs as container_jobs
from dshpc_setup.jobs import availability
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.slurm import blocked_jobs
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.gpus import SlurmGpu
from dshpc_setup.slurm_releases import v24_11, v26_05
from dshpc_setup.slurm_releases.model import Release
from tests.unit.engine.fake import Answer, FakeMachine

ANSWERS = Path(__file__).parent / "answers"
ROWS: Mapping[str, Release] = {"24.11": v24_11.RELEASE, "26.05": v26_05.RELEASE}

_S = 1.0


class Recorded(LocalMachine):
    """Answers what a real cluster of that release was asked, by the same words."""

    def __init__(self, release: str, state: str = "busy") -> None:
        super().__init__()
        said = json.loads((ANSWERS / f"{release}.json").read_text())[state]
        self.said: dict[tuple[str, ...], dict[str, Any]] = {
            tuple(each["argv"]): each for each in said
        }

    def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        each = self.said[tuple(argv)]
        words = tuple(argv)
        return CommandResult(words, "present", each["code"], each["stdout"], each["stderr"], 1.0)


@pytest.mark.parametrize(
    ("controller", "node", "why"),
    [
        ("24.11.5", "24.11.9", None),
        ("24.11.5", "23.02.7", None),
        ("24.11.5", "22.05.8", "older"),
        ("24.11.5", "25.05.1", "newer"),
        ("26.05.5", "24.11.5", None),
        ("26.05.5", "24.05.1", "older"),
        ("26.05.5", "26.11.0", "newer"),
        ("?", "24.11.5", None),
    ],
)
def test_which_slurmd_a_slurmctld_takes(controller: str, node: str, why: str | None) -> None:
    """tests/integration/test_newer_slurm.py has real ones."""
    assert slurm_releases.unfit(controller, node) == why


def slurm(release: str, state: str = "busy") -> Slurm:
    return Slurm(Recorded(release, state))


def told(release: str, *argv: str) -> str:
    return slurm(release).run(*argv, deadline_s=_S).text


RELEASES = pytest.mark.parametrize("release", ROWS)


def test_each_release_has_a_row() -> None:
    """A release needs a table in RELEASES, a row in ROWS and a file in answers/ (CONTRIBUTING)."""
    assert tuple(ROWS.values()) == slurm_releases.RELEASES, "ROWS has to list what RELEASES does"
    assert [each.name for each in slurm_releases.RELEASES] == list(ROWS)
    assert sorted(each.version for each in slurm_releases.RELEASES) == [
        each.version for each in slurm_releases.RELEASES
    ]
    assert {path.stem for path in ANSWERS.iterdir()} == set(ROWS), (
        "answers/ has a file for each row"
    )


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("24.11.5", "24.11"),
        ("24.11.5-4+deb13u1", "24.11"),
        ("24.12.0", "24.11"),  # no release is called so
        ("26.05.5", "26.05"),
        ("99.11.0", max(ROWS)),
        ("23.02.7", "24.11"),
        (None, "24.11"),
        ("unknown", "24.11"),
    ],
)
def test_a_version_has_the_table_of_the_nearest_release_that_is_not_newer(
    version: str | None, release: str
) -> None:
    assert slurm_releases.of(version) is ROWS[release]


@RELEASES
def test_its_own_name(release: str) -> None:
    version = told(release, "slurmctld", "-V").split()[1]
    assert slurm_releases.of(version) is ROWS[release]
    node = slurm(release).node("dshpc", deadline_s=_S)
    config = slurm(release).config(deadline_s=_S).value
    assert node is not None
    assert config is not None
    assert node.version == config["SLURM_VERSION"] == version


@RELEASES
def test_all_jobs(release: str) -> None:
    found = slurm(release).jobs(deadline_s=_S).value
    assert found is not None
    by_name = {job.name: job for job in found}
    assert {name: job.state for name, job in by_name.items()} == {
        "fails": "FAILED",
        "runs": "RUNNING",
        "a|b 'c'": "PENDING",
        "tasks": "PENDING",
        "held": "PENDING",
        "never": "PENDING",
        "later": "PENDING",
    }
    runs, tasks, failed = by_name["runs"], by_name["tasks"], by_name["fails"]
    assert (runs.id, runs.user, runs.uid, runs.gres) == ("2", "root", 0, "gpu:a100:2(IDX:0-1)")
    assert (tasks.id, tasks.number, tasks.task) == ("4_[0-3%1]", 4, None)
    assert (failed.exit_code, failed.signal, failed.has_ended) == (3, None, True)
    assert by_name["held"].reason == "JobHeldUser"
    assert by_name["never"].reason == "DependencyNeverSatisfied"


@RELEASES
def test_a_job_that_it_does_not_know(release: str) -> None:
    answer = slurm(release).jobs(99999, deadline_s=_S)
    assert (answer.asked.ok, answer.value) == (False, ())


@RELEASES
def test_who_holds_gpus_and_until_when(release: str) -> None:
    holders = slurm(release).holders(deadline_s=_S).value
    assert holders is not None
    (runs,) = (each for each in holders if each.held)
    assert (runs.job_id, runs.on("dshpc"), runs.nodes) == ("2", "gpu:a100:2(IDX:0-1)", ("dshpc",))
    assert availability.of(holders).held == {"a100": (None, None)}, "it has no time limit"


@RELEASES
def test_the_queue_in_columns(release: str) -> None:
    rows = slurm(release).rows(container_jobs._QUEUE, container_jobs._QUEUED, deadline_s=_S).value
    assert rows is not None
    by_id = {job.id: job for job in rows}
    assert by_id.keys() == {"2", "3", "4", "5", "6", "7"}
    assert (by_id["2"].state, by_id["2"].nodes) == ("RUNNING", ("dshpc",))
    assert all(job.batch and job.requeue and job.restarts == 0 for job in rows)
    assert {by_id[job].reason for job in ("3", "5", "6")} >= {"JobHeldUser"}
    running = slurm(release).rows(stopping._COLUMNS, "R,S,CF", deadline_s=_S).value
    assert running is not None
    assert [(job.id, job.user, job.name) for job in running] == [("2", "root", "runs")]
    tasks = slurm(release).rows("ArrayTaskID State", "all", each_task=True, deadline_s=_S).value
    assert [job.task for job in tasks or () if job.task is not None] == [0, 1, 2, 3]
    assert len(tasks or ()) == 10
    named = slurm(release).rows("State Reason UserID Name", everyone=False, deadline_s=_S).value
    assert "a|b 'c'" in {job.name for job in named or ()}
    asked = slurm(release).rows(
        "JobID tres-per-job tres-per-node tres-per-socket tres-per-task",
        container_jobs._RUNNING,
        everyone=False,
        deadline_s=_S,
    )
    assert [job.id for job in asked.value or () if "gres" in job.asked] == ["2"]
    partitions = slurm(release).rows("JobID Partition", deadline_s=_S).value
    assert {job.partition for job in partitions or ()} == {"debug"}


@RELEASES
def test_what_cannot_run_and_why(release: str) -> None:
    queue = slurm(release).pending(deadline_s=_S).value
    assert queue is not None
    assert queue.partitions == {"debug": "up"}
    (node,) = queue.nodes
    assert (node.status.gres_total, node.cpus) == ({"gpu:a100": 2}, 64)
    found = {job.name: job for job in blocked_jobs.judge(queue)}
    assert found.keys() == {"held", "never"}
    assert found["held"].hold == "person"
    assert found["never"].why.startswith("what it waits for can no longer happen: afterok:1")


@RELEASES
def test_a_node_and_who_took_it_out(release: str) -> None:
    nodes = slurm(release).nodes(deadline_s=_S).value
    assert nodes is not None
    (node,) = nodes
    assert (node.usable, node.gres, node.gres_in_use) == (True, "gpu:a100:2", {"gpu:a100": 2})
    line = slurm(release).node("dshpc", deadline_s=_S)
    assert line is not None
    assert (line.usable, line.gpus, line.started[:3]) == (True, 2, "202")
    taken = slurm(release, "drained")
    (row,) = taken.nodes(deadline_s=_S).value or ()
    assert (row.state, row.reason, row.usable) == ("draining", "dshpc: a|b", False)
    drained = taken.node("dshpc", deadline_s=_S)
    assert drained is not None
    assert (drained.drained, drained.who, drained.own_doing) == (True, "root", True)


@RELEASES
def test_the_controller_and_its_configuration(release: str) -> None:
    answer = slurm(release).ping(deadline_s=_S)
    assert answer.ok
    assert slurm_releases.says("controller_up").search(answer.stdout)
    config = slurm(release).config(deadline_s=_S).value
    assert config is not None
    assert isolation(config) == "default"
    defaults = ROWS[release].defaults
    assert int(config["SlurmctldPort"]) == defaults.controller_port
    assert int(config["SlurmdPort"]) == defaults.node_port


@RELEASES
def test_the_gpus_as_slurmd_counts_them(release: str) -> None:
    conf = "/etc/slurm/slurm.conf"
    assert slurm(release).gpus(conf, "dshpc", deadline_s=_S).value == (
        SlurmGpu("a100", ("/dev/nvidia0",)),
        SlurmGpu("a100", ("/dev/nvidia1",)),
    )


@RELEASES
def test_a_job_that_must_wait_is_told_from_one_that_fails(release: str) -> None:
    waits = told(release, "srun", "--immediate=1", "--gres=gpu:2", "true")
    assert slurm_releases.says("must_wait").search(waits)
    refused = told(release, "sbatch", "--gres=gpu:9", "/job.sh")
    assert not slurm_releases.says("answer_lost").search(refused)
    assert not slurm_releases.says("full").search(refused)


# Without their arguments in 24.11's help; "--mem >= ..." explains another one
_HELP_IS_WRONG = {"container", "container-id", "mem", "quiet"}


@RELEASES
@pytest.mark.parametrize("program", ["sbatch", "srun"])
def test_its_options_without_an_argument(release: str, program: str) -> None:
    shown = re.findall(r"(?m)^ +(?:-\w, )?--([a-z-]+)(?:\s|$)", told(release, program, "--help"))
    options = ROWS[release].options
    known = options.sbatch | (options.srun if program == "srun" else frozenset())
    assert len(shown) > 15
    assert set(shown) - known - _HELP_IS_WRONG == set(), "they belong into the release's Options"


def test_a_third_release_is_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    says = v26_05.RELEASE.says._replace(no_such_job=r"nobody knows a job \d+", full=r"no room")
    third = v26_05.RELEASE._replace(version=(27, 11), says=says)
    monkeypatch.setattr(slurm_releases, "RELEASES", (*slurm_releases.RELEASES, third))
    slurm_releases.says.cache_clear()
    try:
        machine = FakeMachine(commands={"squeue": Answer(code=1, stderr="nobody knows a job 7")})
        assert Slurm(machine).jobs(7, deadline_s=_S).value == ()
        assert slurm_releases.says("full").search("sbatch: error: no room")
        assert slurm("24.11").jobs(99999, deadline_s=_S).value == (), "the others are still known"
        assert slurm_releases.of("27.11.1") is third
    finally:
        slurm_releases.says.cache_clear()
