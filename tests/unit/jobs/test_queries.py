"""`dshpc-node job list|show|logs|cancel|follow` with a controller that is played."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import State
from dshpc_setup.jobs import allocated_gpus, command_words, follow, queries
from dshpc_setup.jobs.limits import Limits
from dshpc_setup.jobs.reader import JobReader
from dshpc_setup.jobs.view import View
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.node import job_verbs, main
from dshpc_setup.slurm import completion_log
from tests.unit.slurm.test_completion_log import line
from tests.unit.slurm.test_job_states import item, number

Answers = Callable[[Sequence[str]], tuple[int, str]]


class Played(LocalMachine):
    """A machine whose commands are answered by a function; `asked` are their words."""

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self.answers = answers
        self.argvs: list[tuple[str, ...]] = []

    def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        self.argvs.append(tuple(argv))
        code, text = self.answers(argv)
        state: State = "present"
        out, err = (text, "") if code == 0 else ("", text)
        return CommandResult(tuple(argv), state, code, out, err, 1.0)


def workspace(work: Path, name: str = "a") -> Path:
    """The workspace of that name, of the user who runs the tests."""
    return work / "jobs" / str(os.getuid()) / name


def queue(*items: dict[str, Any]) -> str:
    return json.dumps({"jobs": list(items)})


def over(state: str, code: int, **changes: Any) -> dict[str, Any]:
    told = {"return_code": number(code), "signal": {"id": number(None)}}
    return item(job_state=[state], exit_code=told, gres_detail=[], **changes)


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Answers], Played]:
    log = tmp_path / "jobs.log"
    log.write_text(line("old", "FAILED", 5, code="3:0").replace("2026-", "2020-") + "\n")
    monkeypatch.setattr(completion_log, "path", lambda: str(log))

    def start(answers: Answers) -> Played:
        machine = Played(answers)

        def look(words: command_words.Words) -> JobReader:
            return JobReader(machine, str(tmp_path), log=str(log), places=allocated_gpus.Places({}))

        monkeypatch.setattr(command_words, "look_at", look)
        return machine

    return start


def running(argv: Sequence[str]) -> tuple[int, str]:
    if argv[0] == "squeue" and "-j" in argv and "17" not in argv[-1].split(","):
        return 1, "slurm_load_jobs error: Invalid job id specified"
    if argv[0] == "squeue":
        return 0, queue(item())
    return 0, ""


def test_list(play: Callable[[Answers], Played], capsys: pytest.CaptureFixture[str]) -> None:
    machine = play(running)
    assert job_verbs.main(["list", "--json", "--work", "/w"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["schema"], [job["id"] for job in said["jobs"]]) == ("dshpc.jobs/1", ["17"])
    assert machine.argvs[1:] == [("squeue", "--json", "-a", "-t", "all")]
    assert job_verbs.main(["list", "--work", "/w"]) == 0
    assert "train" in capsys.readouterr().out


@pytest.mark.parametrize("alone", [True, False])
def test_where_all_users_are_one_a_job_is_that_users(
    alone: bool,
    play: Callable[[Answers], Played],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slurm knows that one as root there."""
    monkeypatch.setenv("USER", "ada")
    monkeypatch.setattr("dshpc_setup.jobs.rights.is_one_id", lambda: alone)
    play(lambda _: (0, queue(item(user_id=0, user_name="root"))))
    assert job_verbs.main(["list", "--work", "/w"]) == 0
    assert ("root" in capsys.readouterr().out) is not alone
    assert job_verbs.main(["show", "17", "--work", "/w"]) == 0
    assert f"Job 17 (train) of {'ada' if alone else 'root'}" in capsys.readouterr().out


def test_a_queue_that_is_too_long_for_one_answer_is_listed_in_part(
    play: Callable[[Answers], Played], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is never asked for whole, and what is left out is counted."""
    flood = [f"{number} {number} N/A PENDING 4 eve" for number in range(1000, 13_500)]
    index = "\n".join([*flood, f"17 17 N/A RUNNING {os.getuid()} ada", ""])

    def long(argv: Sequence[str]) -> tuple[int, str]:
        if "-o" in argv:
            return 0, index
        assert argv[0] != "squeue" or "-j" in argv
        asked = argv[-1].split(",")
        assert len(asked) <= 1000
        return 0, queue(*(item(job_id=number(int(each))) for each in asked))

    machine = play(long)
    assert job_verbs.main(["list", "--json", "--work", "/w"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["jobs"]) == 1000
    assert "17" in [job["id"] for job in said["jobs"]]
    assert said["left_out"] == {"eve": 11_501}
    assert said["notes"] == ["Not listed, as the queue is long: 11501 of eve. All: dshpc squeue"]
    assert len(machine.argvs) == 2
    # Who has to know all asks in parts
    assert len(command_words.look_at(command_words.parsed([])).known()) == 12_501


def test_what_a_slow_controller_takes_is_no_time_of_reading(
    play: Callable[[Answers], Played],
) -> None:
    clock = [0.0]

    def slow(argv: Sequence[str]) -> tuple[int, str]:
        clock[0] += 60
        return running(argv)

    play(slow)
    looked = command_words.look_at(command_words.parsed([]))
    looked.limits = Limits(clock=lambda: clock[0])
    assert looked.all(whole=True)
    assert looked.limits.lines() == []
    assert not looked.limits.is_late("here")


def test_all_tells_of_those_that_are_forgotten(
    play: Callable[[Answers], Played],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play(running)
    for uid, expected in ((1000, ["5", "17"]), (1001, ["17"]), (0, ["5", "17"])):
        monkeypatch.setattr("os.getuid", lambda uid=uid: uid)
        assert job_verbs.main(["list", "--all", "--json", "--work", "/w"]) == 0
        assert [job["id"] for job in json.loads(capsys.readouterr().out)["jobs"]] == expected


def test_show(play: Callable[[Answers], Played], capsys: pytest.CaptureFixture[str]) -> None:
    play(running)
    assert job_verbs.main(["show", "17", "--work", "/w"]) == 0
    assert capsys.readouterr().out.startswith("Job 17 (train) of me: running\n")
    assert job_verbs.main(["show", "5", "--work", "/w"]) == 0
    assert capsys.readouterr().out.startswith("Job 5 (old) of me: failed: exit code 3\n")


def test_the_log_of_another_users_job_is_called_theirs(
    play: Callable[[Answers], Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not forgotten: its workspace, in which the log lies, can be entered by that user alone."""
    plain = over("COMPLETED", 0, user_id=1000, standard_output="", current_working_directory="")
    play(lambda _: (0, queue(plain)))
    monkeypatch.setattr("os.getuid", lambda: 1001)
    with pytest.raises(DshpcError, match="the job belongs to me"):
        job_verbs.main(["logs", "17", "--work", "/w"])
    monkeypatch.setattr("os.getuid", lambda: 0)
    with pytest.raises(DshpcError, match="not known where"):
        job_verbs.main(["logs", "17", "--work", "/w"])


@pytest.mark.parametrize(("array", "name"), [("", "17"), ("ArrayJobId=17 ArrayTaskId=1 ", "17_1")])
def test_the_log_of_one_that_plain_sbatch_has_made_and_slurm_has_forgotten(
    array: str,
    name: str,
    tmp_path: Path,
    play: Callable[[Answers], Played],
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    play(lambda _: (1, "slurm_load_jobs error: Invalid job id specified"))
    past = line("a", number=18 if array else 17, array=array, folder=str(tmp_path), uid=os.getuid())
    (tmp_path / "jobs.log").write_text(f"{past}\n")
    words = ["logs", "17", *(["--task", "1"] if array else []), "--work", str(tmp_path)]
    with pytest.raises(DshpcError, match="not known where") as told:
        job_verbs.main(words)
    assert "its --output" in told.value.details
    log = tmp_path / f"slurm-{name}.out"
    log.write_text("printed\n")
    found = completion_log.parse(past)
    assert found is not None
    assert found.started is not None
    os.utime(log, (found.started - 9, found.started - 9))  # of another cluster's job of that number
    with pytest.raises(DshpcError, match="not known where"):
        job_verbs.main(words)
    os.utime(log, (found.started + 1, found.started + 1))
    assert job_verbs.main(words) == 0
    assert capfdbinary.readouterr().out.endswith(b"printed\n")
    assert job_verbs.main([*words, "-f"]) == 0
    assert b"printed" in capfdbinary.readouterr().out


def test_a_job_that_nobody_knows(
    play: Callable[[Answers], Played], capsys: pytest.CaptureFixture[str]
) -> None:
    play(running)
    with pytest.raises(DshpcError, match="There is no job 6"):
        job_verbs.main(["show", "6", "--json", "--work", "/w"])
    assert json.loads(capsys.readouterr().out)["schema"] == "dshpc.error/1"


def test_a_controller_that_does_not_answer(play: Callable[[Answers], Played]) -> None:
    play(lambda _: (1, "Unable to contact slurm controller"))
    with pytest.raises(DshpcError, match="does not answer") as caught:
        job_verbs.main(["list", "--work", "/w"])
    assert caught.value.exit_code == 3


def test_cancel(play: Callable[[Answers], Played], capsys: pytest.CaptureFixture[str]) -> None:
    machine = play(running)
    assert job_verbs.main(["cancel", "17", "5", "--work", "/w"]) == 0
    assert capsys.readouterr().out == (
        "Job 17: cancelled.\nJob 5 has ended already: failed: exit code 3.\n"
    )
    assert [argv for argv in machine.argvs if argv[0] == "scancel"] == [("scancel", "17")]
    assert job_verbs.main(["cancel", "17", "6", "--json", "--work", "/w"]) == 2
    said = json.loads(capsys.readouterr().out)
    assert [one["result"] for one in said["jobs"]] == ["cancelled", "there is no such job"]
    with pytest.raises(DshpcError, match="There is no job 6"):
        job_verbs.main(["cancel", "6", "--work", "/w"])


def test_a_job_of_another_user_is_not_cancelled(
    play: Callable[[Answers], Played], capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(argv: Sequence[str]) -> tuple[int, str]:
        return (1, "Access/permission denied") if argv[0] == "scancel" else running(argv)

    play(denied)
    assert job_verbs.main(["cancel", "17", "--work", "/w"]) == 2
    assert capsys.readouterr().out == "Job 17: permission denied: the job belongs to me.\n"


@given(st.text())
def test_only_numbers_reach_slurm(text: str) -> None:
    machine = Played(running)
    with contextlib.suppress(DshpcError):
        JobReader(machine, "/w", log=None, places=allocated_gpus.Places({})).one(text)
    for argv in machine.argvs:
        assert argv[-1].isascii()
        assert argv[-1].isdecimal()


def test_following_a_job_to_its_end(
    tmp_path: Path,
    play: Callable[[Answers], Played],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(follow, "_SOON_S", 0.0)
    monkeypatch.setattr(follow, "_WHY_S", 1e9)
    log = tmp_path / "out.log"
    states = ["PENDING", "PENDING", "away", "RUNNING", "RUNNING", "FAILED", "FAILED"]
    own = {"standard_output": str(log), "current_working_directory": str(tmp_path)}

    def answers(argv: Sequence[str]) -> tuple[int, str]:
        if argv[0] != "squeue":
            return 1, ""
        state = states.pop(0) if len(states) > 1 else states[0]
        if state == "away":
            return 1, "Unable to contact slurm controller (connect failure)"
        if state == "PENDING":
            waiting = {"state_reason": "Priority", "gres_detail": []}
            return 0, queue(item(job_state=["PENDING"], **waiting, **own))
        if state == "RUNNING":
            log.write_bytes(log.read_bytes() + b"more\n" if log.exists() else b"\xffone\n")
            return 0, queue(item(**own))
        return 0, queue(over("FAILED", 3, **own))

    play(answers)
    assert follow.main(["17", "--work", "/w"]) == 3
    said = capfd.readouterr()
    assert said.out.endswith("one\nmore\n")
    assert said.err.splitlines() == [
        "dshpc: job 17 is queued: other jobs are before it",
        "dshpc: the controller does not answer; waiting for it",
        "dshpc: job 17 is running on GPU 0; GPU 1",
        "dshpc: job 17: failed: exit code 3",
    ]


def test_following_as_the_cluster_is_stopped(
    tmp_path: Path,
    play: Callable[[Answers], Played],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controller is gone, and the job prints to its end, which is the container's."""
    log, stopping, now = tmp_path / "out.log", tmp_path / "stopping", [100.0]

    def tick(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 107.0:
            raise KeyboardInterrupt
        if not stopping.exists():
            stopping.mkdir()
        log.write_text(f"{log.read_text()}saving\n" if now[0] > 106.0 else "begun\n")

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", tick)
    monkeypatch.setattr(follow, "STOPPING", str(stopping))
    own = {"standard_output": str(log), "current_working_directory": str(tmp_path)}
    machine = play(lambda argv: (0, queue(item(**own))) if argv[0] == "squeue" else (1, ""))
    assert follow.main(["17", "--work", "/w"]) == 130
    said = capfd.readouterr()
    assert said.out.startswith("begun\nsaving\nsaving\n")
    assert said.err.splitlines()[:2] == [
        "dshpc: job 17 is running on GPU 0; GPU 1",
        "dshpc: the cluster is being stopped",
    ]
    assert len([argv for argv in machine.argvs if argv[0] == "squeue"]) == 1


def test_the_controller_may_go_away_as_the_job_ends(
    tmp_path: Path,
    play: Callable[[Answers], Played],
    capfd: pytest.CaptureFixture[str],
) -> None:
    answers = [(0, queue(over("FAILED", 3, current_working_directory=str(tmp_path))))]

    def once(argv: Sequence[str]) -> tuple[int, str]:
        return answers.pop() if argv[0] == "squeue" and answers else (1, "Unable to contact")

    play(once)
    assert follow.main(["17", "--work", "/w"]) == 3
    assert "dshpc: job 17: failed: exit code 3\n" in capfd.readouterr().err


def test_a_log_that_is_no_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "log")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "link"):
        log = follow._Log(str(path), "/w", os.getuid(), None)
        log.pump()
        log.pump()
        assert capfd.readouterr().err == f"dshpc: the log is not a file of the job's user: {path}\n"
    good = tmp_path / "log"
    good.write_text("one\n")
    follow._Log(str(good), "/w", os.getuid(), None).pump()
    assert capfd.readouterr() == ("one\n", "")


@pytest.mark.parametrize(
    ("resources", "row"),
    [
        ({"gpu_memory_mb": 8192}, "  GPU memory:      at least 8 GB each, as asked for"),
        ({"gpu_memory_mb": 40000}, "  GPU memory:      at least 40 GB each, as asked for"),
        ({"gpu_memory_mb": None}, None),
        ({"gpu_memory_mb": True}, None),
        ({"gpu_memory_mb": "\x1b[2J"}, None),
        (7, None),
    ],
)
def test_the_memory_of_a_gpu_that_was_asked_for(resources: object, row: str | None) -> None:
    one = View("1", 1, None, "x", None, "RUNNING")
    said = queries.lines(one, {"request": {"resources": resources}, "sbatch": None})
    assert [line for line in said if "GPU memory" in line] == ([row] if row else [])


def test_the_peak_is_of_one_process() -> None:
    one = View("1", 1, None, "x", None, "COMPLETED", max_rss_mib=99)
    assert "  Largest process: 99 MiB" in queries.lines(one, {"request": None, "sbatch": None})


def test_the_last_line_of_a_job_that_succeeds(
    play: Callable[[Answers], Played], capfd: pytest.CaptureFixture[str]
) -> None:
    play(lambda _: (0, queue(over("COMPLETED", 0, end_time=number(112)))))
    assert follow.main(["17", "--work", "/w"]) == 0
    assert capfd.readouterr().err.splitlines()[-1] == "dshpc: job 17: done, after 0:02"


def test_which_log_an_array_has_to_show(
    play: Callable[[Answers], Played], capfd: pytest.CaptureFixture[str]
) -> None:
    tasks = [
        over(state, code, array_job_id=number(17), array_task_id=number(task))
        for task, state, code in ((0, "COMPLETED", 0), (1, "FAILED", 3))
    ]
    play(lambda _: (0, queue(*tasks)))
    assert follow.main(["17", "--work", "/w"]) == 3
    assert capfd.readouterr().err.splitlines() == [
        "dshpc: job 17_1: failed: exit code 3",
        "dshpc: job 17 has ended: 1 of 2 tasks are done",
        "dshpc: what a task printed: dshpc job logs 17 --task 1",
    ]


@pytest.mark.parametrize(("tasks", "code"), [(2, 0), (4, 1), ("x", 0)])
def test_tasks_that_were_cancelled_before_they_began_are_not_done(
    tasks: object,
    code: int,
    play: Callable[[Answers], Played],
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    own = workspace(tmp_path) / ".job"
    own.mkdir(parents=True)
    (own / "job.json").write_text(json.dumps({"job_id": 17, "tasks": tasks}))
    left = [
        over(
            "COMPLETED", 0, array_job_id=number(17), array_task_id=number(task),
            current_working_directory=str(workspace(tmp_path)),
        )
        for task in (0, 3)
    ]  # fmt: skip
    play(lambda _: (0, queue(*left)))
    assert follow.main(["17", "--work", "/w"]) == code
    said = "2 of 4 tasks are done, 2 never began" if code else "2 of 2 tasks are done\n"
    assert said in capfd.readouterr().err
    assert follow.main(["17_3", "--work", "/w"]) == 0
    for task in (1, 2):  # forgotten by the controller, where no log of ended jobs is kept
        (own / f"result-{task}.json").write_text('{"exit_code": 0}')
    assert follow.main(["17", "--work", "/w"]) == 0


def test_an_array_that_was_cancelled_as_a_whole(
    play: Callable[[Answers], Played], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    all_three = over("CANCELLED", 0, array_job_id=number(17), array_task_string="0-2")
    play(lambda _: (0, queue(all_three)))
    (tmp_path / "jobs.log").write_text(line("train", "CANCELLED", 17) + "\n")
    assert follow.main(["17", "--work", "/w"]) == 1
    assert capfd.readouterr().err.splitlines() == [
        "dshpc: job 17_[0-2]: cancelled",
        "dshpc: job 17 has ended: 0 of 3 tasks are done",
    ]


def test_following_what_nobody_knows(play: Callable[[Answers], Played], tmp_path: Path) -> None:
    play(running)
    with pytest.raises(DshpcError, match="There is no job 6"):
        follow.main(["6", "--work", "/w"])
    for target in ("x", "../17", str(tmp_path)):
        with pytest.raises(DshpcError) as caught:
            follow.main([target, "--work", "/w"])
        assert caught.value.exit_code == 64


def test_words_that_are_not_expected() -> None:
    for rest in (["list", "--al"], ["show", "1", "2"], ["show"], ["cancel"], ["list", "-x"]):
        with pytest.raises(DshpcError) as caught:
            job_verbs.main(rest)
        assert caught.value.exit_code == 64


def an_array(folder: Path, tasks: int, ended_tasks: Sequence[int] = ()) -> dict[str, Any]:
    """The workspace of job 17, an array, and what squeue says of its place."""
    own = folder / ".job"
    own.mkdir(parents=True)
    (own / "job.json").write_text(json.dumps({"job_id": 17, "tasks": tasks}))
    for task in ended_tasks:
        (own / f"result-{task}.json").write_text(json.dumps({"exit_code": 0}))
    return {"array_job_id": number(17), "current_working_directory": str(folder), "nodes": ""}


def test_a_task_that_waits_with_others_is_shown_alone(
    tmp_path: Path, play: Callable[[Answers], Played], capsys: pytest.CaptureFixture[str]
) -> None:
    place = an_array(workspace(tmp_path), 10)
    (workspace(tmp_path) / ".job/request.json").write_text(
        json.dumps({"argv": ["x"], "parameters": [{"n": at} for at in range(10)]})
    )
    waiting = item(job_state=["PENDING"], state_reason="Priority", array_task_string="2-9",
                   gres_detail=[], **place)  # fmt: skip
    play(lambda argv: (0, queue(waiting) if argv[0] == "squeue" else ""))
    assert job_verbs.main(["show", "17_3", "--work", "/w"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Job 17_3 (train) of me: queued\n")
    assert "other jobs are before it" in said
    assert f"{workspace(tmp_path)}/output-3.log" in said
    assert '{"n": 3}' in said
    with pytest.raises(DshpcError, match=r"Job 17_3 has not started yet.*output-3\.log"):
        job_verbs.main(["logs", "17", "--task", "3", "--work", "/w"])
    with pytest.raises(DshpcError, match="an array, and none of its tasks has started"):
        job_verbs.main(["logs", "17", "--work", "/w"])


def test_a_task_that_left_no_trace_and_one_that_there_never_was(
    tmp_path: Path, play: Callable[[Answers], Played]
) -> None:
    place = an_array(workspace(tmp_path), 10)
    waiting = item(job_state=["PENDING"], array_task_string="2-8", gres_detail=[], **place)
    play(lambda argv: (0, queue(waiting) if argv[0] == "squeue" else ""))
    with pytest.raises(DshpcError, match="Nothing is known of task 9 of job 17") as told:
        job_verbs.main(["show", "17_9", "--work", "/w"])
    assert "cancelled while it is queued" in told.value.details
    with pytest.raises(DshpcError, match="Job 17 has no task 10") as told:
        job_verbs.main(["show", "17_10", "--work", "/w"])
    assert told.value.details == "Its tasks are 0 to 9."


def test_tasks_that_were_cancelled_in_the_queue_are_counted_once(
    tmp_path: Path, play: Callable[[Answers], Played], capsys: pytest.CaptureFixture[str]
) -> None:
    place = an_array(workspace(tmp_path), 10, (0, 1))
    never = line("train", "CANCELLED", 17, folder=str(workspace(tmp_path)), uid=os.getuid())
    log = tmp_path / "jobs.log"
    log.write_text(f"{log.read_text()}{never.replace('NodeList=lab', 'NodeList=(null)')}\n")
    done = [
        over("COMPLETED", 0, **{**place, "nodes": "lab", "array_task_id": number(task)})
        for task in (0, 1)
    ]
    rest = over("CANCELLED", 0, array_task_string="2-9", **place)
    play(lambda argv: (0, queue(*done, rest) if argv[0] == "squeue" else ""))
    assert follow.main(["17", "--work", "/w"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "dshpc: job 17_[2-9]: cancelled",
        "dshpc: job 17 has ended: 2 of 10 tasks are done",
        "dshpc: what a task printed: dshpc job logs 17 --task 0",
    ]
    # The controller has forgotten them
    play(lambda _: (0, queue()))
    assert job_verbs.main(["list", "--all", "--json", "--work", "/w"]) == 0
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    assert [job["id"] for job in jobs if job["number"] == 17] == ["17_[2-9]"]
    assert job_verbs.main(["show", "17", "--work", "/w"]) == 0
    assert "Began" not in capsys.readouterr().out


def test_tasks_that_failed_alike_are_told_in_one_line(
    tmp_path: Path, play: Callable[[Answers], Played], capsys: pytest.CaptureFixture[str]
) -> None:
    place = {**an_array(workspace(tmp_path), 50), "nodes": "lab"}
    tasks = [over("FAILED", 3, array_task_id=number(task), **place) for task in range(50)]
    play(lambda argv: (0, queue(*tasks) if argv[0] == "squeue" else ""))
    assert follow.main(["17", "--work", "/w"]) == 3
    assert capsys.readouterr().err.splitlines()[:2] == [
        "dshpc: job 17_[0-49]: failed: exit code 3",
        "dshpc: job 17 has ended: 0 of 50 tasks are done",
    ]


def test_whose_jobs_they_are_is_said_where_they_are_not_ones_own(
    play: Callable[[Answers], Played],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play(running)
    for me, said in (("me", False), ("you", True)):
        monkeypatch.setenv("USER", me)
        job_verbs.main(["list", "--work", "/w"])
        assert ("USER" in capsys.readouterr().out) == said


def test_an_error_about_jobs_looks_as_all_of_ours_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSHPC_COMMAND", "/p/dshpc")
    monkeypatch.setenv("DSHPC_HERE", "/p/work")
    assert main.main(["job", "show", "x y", "--work", "/w"]) == 64
    assert capsys.readouterr().err.splitlines() == [
        "dshpc: 'x y' is not a job ID.",
        "  A job ID is a number such as 17; a task of an array is 17_2.",
        "What to do:",
        "  - See the jobs: ../dshpc job list",
    ]


def test_ctrl_c_shows_nobody_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(main._OWN, "job", interrupt)
    assert main.main(["job", "list"]) == 130


@pytest.mark.parametrize("free", [0, 1])
def test_a_full_disk_is_said_of_a_job_that_failed(
    free: int,
    tmp_path: Path,
    play: Callable[[Answers], Played],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = workspace(tmp_path) / ".job"
    own.mkdir(parents=True)
    (own / "job.json").write_text(json.dumps({"job_id": 17}))
    failed = over("FAILED", 1, current_working_directory=str(workspace(tmp_path)))
    play(lambda argv: (0, queue(failed) if argv[0] == "squeue" else ""))
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(f_bavail=free))
    assert follow.main(["17", "--work", "/w"]) == 1
    assert (f"the disk of {tmp_path} is full" in capsys.readouterr().err) == (free == 0)


@pytest.mark.parametrize(("code", "state", "told"), [(75, "FAILED", True), (3, "FAILED", False)])
def test_the_exit_code_of_an_unknown_end_is_explained(code: int, state: str, told: bool) -> None:
    one = View("17", 17, None, "a", "me", state, exit_code=code)
    said = "\n".join(queries.lines(one, {"request": None, "sbatch": None}))
    assert f"Exit code:       {code}" in said
    assert ("when the cluster's container was killed" in said) is told


def test_why_a_job_waits_names_our_commands_as_they_are_typed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DSHPC_COMMAND", "/p/dshpc")
    monkeypatch.setenv("DSHPC_HERE", "/p")
    why = "let it go: dshpc scontrol release 7"
    waiting = View("7", 7, None, "x", "ada", "PENDING", why)
    (told,) = queries._as_called([waiting])
    assert told.reason == "let it go: ./dshpc scontrol release 7"


def test_a_job_of_which_nothing_was_carried_says_so() -> None:
    """Its node could not even make a place for it: there is no log."""
    one: Any = SimpleNamespace(is_over=True, nodes=("lab", "lab7"))
    made = {"request": {"carriers": ["lab7", "lab8"]}, "carried": {}}
    ((label, text),) = queries._carried(one, made)
    assert (label, text) == (
        "Carried",
        "nothing went to lab7 and back; the log of that machine says why: dshpc logs",
    )
    assert queries._carried(one, {**made, "request": {"carriers": 7}}) == []
    assert queries._carried(SimpleNamespace(is_over=False, nodes=one.nodes), made) == []  # type: ignore[arg-type]
