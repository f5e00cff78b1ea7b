"""The queue after a start, and what jobs a change of the configuration would cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.container import job_survival, jobs, proof
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.proof import Proof
from dshpc_setup.container.run import Run
from dshpc_setup.container.status import Status
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import State
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.settings import Settings
from dshpc_setup.slurm import columns
from dshpc_setup.slurm.job_states import SlurmJob
from dshpc_setup.slurm.paths import Paths

NOW = datetime(2026, 1, 31, 12)  # noqa: DTZ001 -- Slurm names no zone
QUEUE = """12 |RUNNING |1 |1 |None |lab |0 |2026-01-31T11:00:00 |
13 |RUNNING |1 |0 |None |lab |0 |2026-01-31T11:00:00 |
14 |SUSPENDED |0 |1 |None |lab |0 |2026-01-31T11:00:00 |
15 |PENDING |1 |1 |BadConstraints | |0 |2026-01-31T11:00:00 |
16 |PENDING |1 |1 |JobHeldUser | |0 |2026-01-31T11:00:00 |
17 |PENDING |1 |1 |Resources | |0 |2026-01-31T11:00:00 |
18 |RUNNING |1 |1 |None |other |0 |2026-01-31T11:00:00 |
23 |PENDING |1 |1 |BeginTime | |1 |2026-01-31T12:02:01 |
28 |PENDING |1 |1 |None | |2 |2026-01-31T12:01:59 |
29 |PENDING |1 |1 |BeginTime | |1 |2026-02-01T08:00:00 |
30 |PENDING |1 |1 |Resources | |1 |2026-01-31T11:00:00 |
31 |PENDING |1 |1 |None | |1 |N/A |
24 |PENDING |1 |1 |BeginTime | |0 |2026-01-31T12:02:01 |
25 |COMPLETING |1 |1 |None |lab |1 |2026-01-31T11:00:00 |
26 |COMPLETING |0 |1 |None |lab |0 |2026-01-31T11:00:00 |
27 |COMPLETING |1 |0 |None |lab |0 |2026-01-31T11:00:00 |
a line that is none
3|RUNNING|1|1|None|lab|0|2026-01-31T11:00:00|one field too many|

"""
PROOFS = ["scancel", "--name=dshpc-proof", "--user=root"]


def test_a_queue_is_sorted_into_what_is_lost_and_what_is_stuck() -> None:
    assert jobs.sorted_queue(rows(QUEUE), "lab", NOW) == jobs.Queue(
        ("12",), ("13", "14"), ("15",), ("23", "28", "25")
    )


def rows(text: str) -> tuple[SlurmJob, ...]:
    found = columns.read(text, jobs._QUEUE)
    assert found is not None
    return found


def test_who_holds_gpus() -> None:
    text = (
        "1 | |gres/gpu:1 | | |\n2 | | | | |\n3 |gres/gpu:h100:2 | | | |\n4 | | | |gres/shard:1 |\n"
    )
    assert jobs.holders_of_gpus(Slurm(text)) == ("1", "3", "4")


@given(st.text(max_size=200))
def test_any_answer_of_squeue_is_read(text: str) -> None:
    queue = jobs.sorted_queue(rows(text), "lab", NOW)
    assert all((*queue.again, *queue.ended, *queue.stuck, *queue.delayed))
    assert all(jobs.holders_of_gpus(Slurm(text)))


class Slurm(LocalMachine):
    """Notes what it is asked, and answers every squeue alike."""

    def __init__(self, queue: str, code: int = 0) -> None:
        super().__init__()
        self.queue, self.code = queue, code
        self.orders: list[list[str]] = []

    def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        if argv[0] != "squeue":
            self.orders.append(list(argv))
        return CommandResult(tuple(argv), "present", self.code, self.queue, "", 1.0)


def test_after_a_start_lost_jobs_are_ended_and_stuck_ones_are_looked_at_again() -> None:
    machine = Slurm(QUEUE)
    tidied = jobs.tidy_queue(machine, "lab", fresh=True)
    assert machine.orders == [
        PROOFS,
        ["scontrol", "release", "15"],
        ["scontrol", "requeue", "12"],
        ["scancel", "13", "14"],
    ]
    assert tidied.again == ("12", "25")  # the delays of the others are long over
    assert tidied.notes == ()


def test_in_a_cluster_that_runs_only_stuck_jobs_and_old_proofs_are_touched() -> None:
    machine = Slurm(QUEUE)
    assert jobs.tidy_queue(machine, "lab", fresh=False) == jobs.Tidied()
    assert machine.orders == [PROOFS, ["scontrol", "release", "15"]]


@pytest.mark.parametrize(
    ("words", "notes"),
    [
        ("Requested partition configuration not available now for job 15", 0),
        ("Access/permission denied", 1),
    ],
)
def test_a_release_that_is_refused_is_said(words: str, notes: int) -> None:
    class Refuses(Slurm):
        def run(self, argv: Sequence[str], **options: Any) -> CommandResult:
            if list(argv[:2]) == ["scontrol", "release"]:
                return CommandResult(tuple(argv), "present", 1, "", words, 1.0)
            return super().run(argv, **options)

    assert len(jobs.tidy_queue(Refuses(QUEUE), "lab", fresh=False).notes) == notes


def test_a_queue_that_nobody_tells_is_said() -> None:
    (note,) = jobs.tidy_queue(Slurm("", code=1), "lab", fresh=True).notes
    assert note.startswith("The queue could not be looked at")


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("RUNNING|None|1000|train", True),
        ("RUNNING|None|1000|dshpc-proof", True),
        ("RUNNING|None|0|dshpc-proof", False),
        ("PENDING|Resources|1000|train", True),
        ("PENDING|None|1000|a\nb", True),
        ("PENDING|None|1000|a|b", True),
        ("PENDING|JobHeldUser|1000|train", False),
        ("PENDING|launch_failed_requeued_held|1000|train", False),
        ("PENDING|BadConstraints|1000|train", False),
        ("", False),
    ],
)
def test_which_jobs_can_hold_the_node(line: str, holds: bool) -> None:
    cells = line.split("|", 3) if line else []
    text = "".join(f"{cell}\x1f" for cell in cells)
    assert jobs.others_hold_the_node(Slurm(f"{text}\n")) is holds


def test_a_name_that_hides_where_a_row_ends_counts_as_a_job_of_somebody() -> None:
    assert jobs.others_hold_the_node(Slurm("RUNNING\x1fNone\x1f0\x1fdshpc\x1f-proof\x1f\n"))


class Completing(Slurm):
    """Some jobs of the queue complete for as long as they are asked for `times` times."""

    def __init__(self, times: int) -> None:
        super().__init__("12 |\n")
        self.times = times

    def run(self, argv: Sequence[str], **how: Any) -> CommandResult:
        if argv[0] == "squeue":
            self.times -= 1
            self.queue = "12 |\n" if self.times >= 0 else "99 |\n"
        return super().run(argv, **how)


def test_jobs_that_were_queued_again_begin_once_they_have_completed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    machine = Completing(2)
    jobs.let_begin(machine, ("12", "13"), 1000.0)
    assert machine.orders == [["scontrol", "update", "jobid=12,13", "starttime=now"]]
    assert machine.times == -1
    assert slept[0] > 1.0  # in another second than they ended


@pytest.mark.parametrize(
    ("lines", "contested"),
    [
        ("12|RUNNING|1|1|None|lab|0|N/A|\n15|PENDING|1|1|Resources||0|N/A|\n", True),
        ("12|RUNNING|1|1|None|lab|0|N/A|\n15|PENDING|0|1|Priority||0|N/A|\n", True),
        ("12|RUNNING|1|1|None|lab|0|N/A|\n15|PENDING|1|1|JobHeldUser||0|N/A|\n", False),
        ("12|RUNNING|1|1|None|lab|0|N/A|\n", False),
        ("15|PENDING|1|1|Resources||0|N/A|\n", False),
        ("12|RUNNING|1|0|None|lab|0|N/A|\n15|PENDING|1|1|Resources||0|N/A|\n", False),
    ],
)
def test_interrupted_jobs_are_contested_by_who_waits_for_what_they_had(
    lines: str, contested: bool
) -> None:
    machine = Slurm(lines)
    assert jobs.interrupted_wait_beside_others(machine, "lab") is contested
    assert machine.orders == []
    assert not jobs.interrupted_wait_beside_others(Slurm(lines, code=1), "lab")


def test_who_was_interrupted_comes_before_later_ones_and_keeps_a_nice_of_his_own() -> None:
    machine = Slurm("12 |0 |\n13 |100 |\n14 |0 |\n")
    jobs.put_in_front(machine, ("12", "13", "14"))
    assert machine.orders == [["scontrol", "update", "jobid=12,14", "nice=-10"]]
    nobody = Slurm("")
    jobs.put_in_front(nobody, ())
    assert nobody.orders == []


def test_where_no_job_was_queued_again_nobody_is_asked() -> None:
    machine = Slurm(QUEUE)
    jobs.let_begin(machine, (), 0.0)
    assert machine.orders == []


class Full(Slurm):
    """Jobs of people hold the node, so that the proof's srun is killed at its deadline."""

    state: State = "timeout"

    def run(self, argv: Sequence[str], **how: Any) -> CommandResult:
        said = "NodeName=lab State=ALLOCATED SlurmdStartTime=9999-01-01T00:00:00 "
        done = super().run(argv, **how)
        if argv[0] == "srun":
            return replace(done, state=self.state, code=None if self.state == "timeout" else 0)
        if argv[0] == "squeue":
            others = "RUNNING\x1fNone\x1f7\x1ftrain\x1f\n"
            queue = "12 |RUNNING |1 |1 |None |lab |0 |N/A|\n"
            text = others if "Name" in argv[-1] else queue
            return replace(done, stdout=text)
        return replace(done, stdout=said) if argv[1:3] == ["-o", "show"] else done


def prove(machine: Slurm) -> tuple[Proof, list[list[str]]]:
    paths = Paths("/nowhere")
    status = Status(paths, say=lambda _: None, live=False)
    run = Run(machine, paths, status, Settings(), (0, 0), restored=True)
    found = proof.prove(
        run, Candidate({"slurm.conf": "NodeName=lab\n"}, {}, {}), "lab", fresh=False
    )
    return found, [argv for argv in machine.orders if argv[0] in ("srun", "scancel")]


class Prologue(Slurm):
    """A Prolog that fails: srun hears of it before slurmctld, which drains the node then."""

    state, asked, resumed = "IDLE", 0, False

    def run(self, argv: Sequence[str], **how: Any) -> CommandResult:
        done = super().run(argv, **how)
        if argv[0] == "srun":
            self.asked = 1
            return replace(
                done, code=1, stderr="srun: error: Task launch failed: Job prolog failed"
            )
        if argv[:2] == ["scontrol", "update"]:
            self.state, self.resumed = "IDLE", True
        if argv[1:3] != ["-o", "show"]:
            return done
        if self.asked:
            self.asked += 1
        if self.asked == 4:
            self.state = "IDLE+DRAIN"
        why = "Reason=Prolog error [slurm@2026-01-31T12:00:00]" if "DRAIN" in self.state else ""
        said = f"NodeName=lab State={self.state} SlurmdStartTime=9999-01-01T00:00:00 {why}"
        return replace(done, stdout=said)


def test_a_prolog_that_fails_before_the_first_job_is_named_and_going_back_takes_the_node_back() -> (
    None
):
    machine = Prologue("")
    status = Status(Paths("/nowhere"), say=lambda _: None, live=False)
    run = Run(machine, Paths("/nowhere"), status, Settings(), (0, 0), restored=True)
    new = Candidate({"slurm.conf": "NodeName=lab\nProlog=/p.sh\n"}, {"slurm.conf": "custom"}, {})
    with pytest.raises(DshpcError, match=r"The Prolog /p\.sh failed"):
        proof.prove(run, new, "lab", fresh=False)
    assert not machine.resumed, "the next job would fail at it as well"
    proof.reconcile(run, "lab", fresh=False)
    assert machine.resumed


def test_a_proof_whose_srun_was_killed_is_cancelled() -> None:
    found, (_, srun, scancel) = prove(Full(""))
    assert found.summary == "none: jobs from before hold the node"
    assert "--time=1" in srun
    assert f"--job-name={jobs.PROOF}" in srun
    assert scancel == ["scancel", "--name=dshpc-proof", "--user=root"]


def test_a_proof_that_passed_is_left_alone_and_older_ones_are_not() -> None:
    machine = Full("")
    machine.state = "present"
    found, orders = prove(machine)
    assert found.summary.startswith("srun true passed")
    assert [argv[0] for argv in orders] == ["scancel", "srun"]


def change(machine: LocalMachine, old: str, new: str) -> DshpcError | None:
    paths = Paths("/nowhere")
    run = Run(machine, paths, Status(paths), Settings(), (0, 0))
    texts = [
        {"slurm.conf": f"NodeName=lab CPUs=1 {text.partition(';')[0]}\n{text.partition(';')[2]}"}
        for text in (old, new)
    ]
    before, after = (Candidate(each, {}, {}) for each in texts)
    try:
        job_survival.ensure(run, before, after, "lab")
    except DshpcError as error:
        return error
    return None


HOLDS = "7 |gres/gpu:1 | | | |\n8 | | | | |\n"


@pytest.mark.parametrize(
    ("queue", "old", "new", "words"),
    [
        (HOLDS, "Gres=gpu:h100:2", "Gres=gpu:h100:1", "jobs hold GPUs: 7."),
        (HOLDS, "Gres=gpu:h100:2", "", "from gpu:h100:2 to none"),
        ("8 | | | | |\n", "Gres=gpu:h100:2", "Gres=gpu:h100:1", None),
        (HOLDS, "Gres=gpu:h100:2", "Gres=gpu:h100:2;SchedulerType=x", None),
        ("8 |\n", "", ";SlurmctldPort=7000", "SlurmctldPort changes from 6817 to 7000"),
        ("", "", ";SlurmctldPort=7000", None),
        ("8 |\n", "", ";SlurmctldPort=6817", None),
    ],
)
def test_a_change_that_jobs_would_not_outlive_is_refused(
    queue: str, old: str, new: str, words: str | None
) -> None:
    error = change(Slurm(queue), old, new)
    assert (error is not None) is (words is not None)
    if error is not None and words is not None:
        assert words in error.brief
        assert any("scancel" in step for step in error.resolution)


def test_where_nobody_knows_who_runs_nothing_is_changed() -> None:
    error = change(Slurm("", code=1), "Gres=gpu:h100:2", "")
    assert error is not None
    assert "does not say which jobs run" in error.brief


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("7 |0 |\n8 |1 |\n", ("7",)),  # 8 is sbatch's
        ("12|0|\n9|0|\n", ("12", "9")),
        ("", ()),
        ("slurm_load_jobs error: ...\n|0|\n5\n", ()),
    ],
)
def test_whose_srun_waits_in_the_queue(text: str, ids: tuple[str, ...]) -> None:
    assert jobs.waiting_clients(Slurm(text)) == ids


@given(st.text(alphabet="0123456789| \nx", max_size=80))
def test_any_queue_is_read_for_who_waits(text: str) -> None:
    assert all(job.isdecimal() for job in jobs.waiting_clients(Slurm(text)))
