from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dshpc_setup.cluster import verify
from dshpc_setup.cluster.verify import Cluster, Node
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import CommandResult
from tests.unit.cluster.running import TWO


class Answers:
    def __init__(
        self, code: int | None, stdout: str = "", stderr: str = "", state: Any = "present"
    ):
        self.result = CommandResult((), state, code, stdout, stderr, 1.0)
        self.argv: list[str] = []
        self.now = 0.0

    def run(self, argv: list[str], *, deadline_s: float, **_: Any) -> CommandResult:
        self.argv = argv
        self.now += 1.0
        return self.result

    def clock(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("state", "ready"),
    [
        ("idle", True),
        ("mixed-", True),
        ("allocated+", True),
        ("completing", True),
        ("drained", False),
        ("idle*", False),
    ],
)
def test_which_states_take_jobs(state: str, ready: bool) -> None:
    cluster = verify.ask_cluster(Answers(0, node_line(state)), "c")  # type: ignore[arg-type]
    assert cluster.ready is ready
    assert cluster.nodes == (Node("a", "gpu:h100:2", state.rstrip("*-+")),)


def node_line(state: str) -> str:
    return f"a|gpu:h100:2(S:0)|gpu:h100:0(IDX:N/A)|{state}|none\n"


class Completing(Answers):
    """The job that has ended leaves the node at the third question."""

    def run(self, argv: list[str], *, deadline_s: float, **_: Any) -> CommandResult:
        self.result = replace(
            self.result, stdout=node_line("completing" if self.now < 2 else "idle")
        )
        return super().run(argv, deadline_s=deadline_s)


def test_a_node_that_the_first_job_is_leaving_is_asked_for_again() -> None:
    machine = Completing(0)
    assert verify.ask_cluster(machine, "c").nodes[0].state == "idle"  # type: ignore[arg-type]
    assert machine.now == 3
    stays = Answers(0, node_line("completing"))
    assert verify.ask_cluster(stays, "c").nodes[0].state == "completing"  # type: ignore[arg-type]
    assert verify.LEFT_S <= stays.now <= verify.LEFT_S + 1
    busy = Answers(0, node_line("mixed"))
    verify.ask_cluster(busy, "c")  # type: ignore[arg-type]
    assert busy.now == 1, "jobs of others are not waited for"


def test_a_controller_without_nodes_is_not_ready_and_a_silent_one_an_error() -> None:
    assert not verify.ask_cluster(Answers(0, ""), "c").ready  # type: ignore[arg-type]
    with pytest.raises(DshpcError, match="does not answer"):
        verify.ask_cluster(Answers(1, "", "slurm_load_partitions: error"), "c")  # type: ignore[arg-type]


def test_a_failed_start_speaks_in_the_containers_own_words() -> None:
    failure = {"brief": "No key.", "details": "slurm.key is empty", "resolution": ["Remove it."]}
    machine = Answers(2, json.dumps({"ready": False, "failure": failure}))
    with pytest.raises(DshpcError) as caught:
        verify.wait_ready(machine, "c")  # type: ignore[arg-type]
    assert caught.value == DshpcError("No key.", "slurm.key is empty", ("Remove it.",))


def test_a_start_that_takes_too_long_is_incomplete() -> None:
    machine = Answers(3, json.dumps({"ready": False, "phase": "slurmd"}))
    with pytest.raises(DshpcError) as caught:
        verify.wait_ready(machine, "c", 1)  # type: ignore[arg-type]
    assert caught.value.exit_code == Exit.INCOMPLETE
    assert "slurmd" in caught.value.details


@pytest.mark.parametrize(
    "stdout", ["hello\ndshpc-gpu=0\n", "no end of the linedshpc-gpu=0\nbye\n", "7\n\ndshpc-gpu=0"]
)
def test_what_a_task_prolog_prints_is_not_the_gpu(stdout: str) -> None:
    machine = Answers(0, stdout)
    assert verify.run_first_job(machine, "c", gpu=True).endswith("passed, GPU 0")  # type: ignore[arg-type]
    with pytest.raises(DshpcError, match="no variable"):
        verify.run_first_job(Answers(0, "hello\ndshpc-gpu=\n"), "c", gpu=True)  # type: ignore[arg-type]


def test_the_first_job() -> None:
    machine = Answers(0, "dshpc-gpu=0\n")
    assert verify.run_first_job(machine, "c", gpu=True) == "srun --gres=gpu:1 passed, GPU 0"  # type: ignore[arg-type]
    assert "--gres=gpu:1" in machine.argv
    assert "--job-name=dshpc-proof" in machine.argv, "no job list is to have it"
    assert verify.run_first_job(Answers(0, "dshpc-gpu=\n"), "c", gpu=False) == "srun passed"  # type: ignore[arg-type]
    with pytest.raises(DshpcError, match="no variable"):
        verify.run_first_job(Answers(0, "\n"), "c", gpu=True)  # type: ignore[arg-type]
    with pytest.raises(DshpcError, match="test job failed"):
        verify.run_first_job(Answers(1, "", "srun: error"), "c", gpu=True)  # type: ignore[arg-type]


def test_a_task_prolog_that_failed_the_first_job_is_named() -> None:
    said = "slurmstepd: error: TaskProlog failed status=3\nsrun: error: lab: task 0: Exited with exit code 3"
    with pytest.raises(DshpcError, match=r"TaskProlog of slurm\.conf ended with exit code 3"):
        verify.run_first_job(Answers(3, "", said), "c", gpu=False)  # type: ignore[arg-type]


class Busy:
    """srun cannot be served; squeue lists the running jobs."""

    def __init__(self, jobs: str) -> None:
        self.jobs = jobs

    def run(self, argv: list[str], *, deadline_s: float, **_: Any) -> CommandResult:
        if "squeue" in argv:
            return CommandResult((), "present", 0, self.jobs, "", 1.0)
        text = "srun: error: Unable to allocate resources: Requested nodes are busy"
        return CommandResult((), "present", 1, "", text, 1.0)


def test_gpus_that_other_jobs_hold_are_no_failure_but_an_idle_refusal_is() -> None:
    assert "2 job(s) hold" in verify.run_first_job(Busy(TWO), "c", gpu=True)  # type: ignore[arg-type]
    with pytest.raises(DshpcError, match="test job failed"):
        verify.run_first_job(Busy(""), "c", gpu=True)  # type: ignore[arg-type]


def test_the_users_files_in_force_are_known_only_of_a_ready_container() -> None:
    report = {
        "ready": True,
        "customized": {"slurm.conf": "edited"},
        "config_sha256": {"slurm.conf": "a"},
    }
    assert verify.own_files(report) == {"slurm.conf": "a"}
    report["ready"] = False
    assert verify.own_files(report) is None
    assert verify.own_files({}) is None


def test_a_configuration_that_was_refused_is_an_error() -> None:
    verify.refuse_last_good({"kept_last_good": None})
    with pytest.raises(DshpcError, match="not in force: line 3"):
        verify.refuse_last_good({"kept_last_good": {"brief": "line 3", "resolution": ["Fix."]}})


def test_the_node_must_have_what_was_planned_unless_the_user_says_otherwise() -> None:
    cluster = Cluster(True, (Node("a", "gpu:h100:1", "idle"),))
    verify.judge_nodes(cluster, {"a": "gpu:h100:1"}, own_files=False)
    verify.judge_nodes(cluster, {"a": "gpu:h100:2"}, own_files=True)
    with pytest.raises(DshpcError, match="gpu:h100:2 was planned"):
        verify.judge_nodes(cluster, {"a": "gpu:h100:2"}, own_files=False)
    with pytest.raises(DshpcError, match="a drained"):
        verify.judge_nodes(Cluster(False, (Node("a", "", "drained"),)), {"a": ""}, own_files=True)


def test_each_of_several_nodes_must_be_there_and_have_what_was_planned_for_it() -> None:
    cluster = Cluster(True, (Node("a", "gpu:h100:2", "idle"), Node("a-2", "", "idle")))
    verify.judge_nodes(cluster, {"a": "gpu:h100:2", "a-2": ""}, own_files=False)
    with pytest.raises(DshpcError, match="Node a-2 has no GPU, but gpu:t4:1 was planned"):
        verify.judge_nodes(cluster, {"a": "gpu:h100:2", "a-2": "gpu:t4:1"}, own_files=False)
    with pytest.raises(DshpcError, match="runs without a-3"):
        verify.judge_nodes(cluster, {"a": "gpu:h100:2", "a-2": "", "a-3": ""}, own_files=False)
    down = Cluster(False, (Node("a", "", "idle"), Node("a-2", "", "down")))
    with pytest.raises(DshpcError, match="not every node is ready") as told:
        verify.judge_nodes(down, {"a": "", "a-2": ""}, own_files=False)
    assert "nodename=a-2 state=resume" in str(told.value.resolution)


def test_jobs_run_nowhere_while_the_cluster_is_not_ready() -> None:
    nodes = (Node("lab", "", "idle"), Node("lab2", "gpu:t4:1", "idle"))
    assert Cluster(True, nodes).usable == ("lab", "lab2")
    assert Cluster(False, nodes).usable == ()
