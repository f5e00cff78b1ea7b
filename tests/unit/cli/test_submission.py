"""The quick reader of submissions against typer, and how answers and refusals are shown."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import cli
from dshpc_setup.cli import app, exec_caller, exec_trouble, job_request, submission, submitting
from dshpc_setup.cli import exec as execution
from dshpc_setup.cli.job_request import UnansweredError
from dshpc_setup.cli.submission import Line, parsed
from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs.request import Request
from dshpc_setup.jobs.request_building import CommandLine
from dshpc_setup.machine import CommandResult
from dshpc_setup.workflows import request_building as workflow_asking
from tests.unit.methods.made import folder

_WORD = st.sampled_from(
    ["method", "run", "check", "train", "--json", "--wait", "--dry-run", "-p", "a=1", "--param",
     "--input", "f", "--gpus", "1", "--gpus=2", "--gpu-type", "h100", "--gpu-memory=8GB", "--cpus",
     "--time", "2h", "--memory", "--shards", "--partition", "--array", "--name", "--dir", "d", "--",
     "--target", "n::0,2", "--target=n", "--no-wait",
     "-", "", "--help", "-x", "--gpu", "--cores", "4", "--max-cpu", "--max-cpu=250", "--max-memory",
     "2G", "--upload", "-t", "n"],
)  # fmt: skip


def as_typer_reads(arguments: list[str]) -> Line | None:
    """What the declared commands hand on; None where they refuse the line."""
    seen: list[Line] = []

    def catch(line: Line) -> int:
        seen.append(line)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submitting, "carry_out", catch)
        code = app.run(arguments, "dshpc")
    return seen[0] if code == 0 and seen else None


@given(
    st.sampled_from([["run"], ["method", "run"], ["method", "check"]]), st.lists(_WORD, max_size=6)
)
def test_the_quick_reader_agrees_with_typer_or_declines(first: list[str], rest: list[str]) -> None:
    mine = parsed([*first, *rest])
    if mine is not None:
        assert as_typer_reads([*first, *rest]) == mine


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("run --gpu 2 -- prog", "run --gpus 2 -- prog"),
        (
            "run --gpu=2 --cores=4 --max-memory 16384 prog",
            "run --gpus 2 --cpus 4 --memory 16384 prog",
        ),
        ("run --max-cpu 400 prog", "run --cpus 4 prog"),
        ("method run train --max-cpu=250% --upload f", "method run train --cpus 3 --input f"),
        ("run -t lab::0,2 -t lab::1 prog", "run --target lab::0,2 --target lab::1 prog"),
    ],
)
def test_what_others_call_it(theirs: str, ours: str) -> None:
    assert parsed(theirs.split()) == parsed(ours.split())
    assert as_typer_reads(theirs.split()) == as_typer_reads(ours.split()) == parsed(ours.split())


@pytest.mark.parametrize("wrong", ["--max-cpu x", "--max-cpu 0", "--max-cpu 100 --cpus 1"])
def test_a_percentage_that_is_none(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["run", *wrong.split(), "--", "prog"], "dshpc") == 64
    assert "--max-cpu" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("run --json -- prog", True),
        ("run --json prog --json", True),
        ("run -- prog --json", False),
        ("run prog --json", False),
        ("run --gpus 1 prog --json", False),
        ("run --no-such -- prog --json", False),
        ("run --no-such --json", True),
        ("run --json", True),
        ("method run prog --json", True),
        ("method run prog", False),
    ],
)
def test_a_word_of_the_jobs_command_asks_us_for_nothing(line: str, wanted: bool) -> None:
    assert cli.wants_json(line.split()) is wanted


def test_a_refusal_is_no_output_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no cluster here, and so an error to tell."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    assert cli.run(["run", "--", "prog", "--json"], "dshpc") == 2
    assert capsys.readouterr().out == ""
    assert cli.run(["run", "--json", "--", "prog"], "dshpc") == 2
    assert json.loads(capsys.readouterr().out)["schema"] == "dshpc.error/1"


ANSWER = {
    "schema": "dshpc.job-submitted/1", "exit_code": 0, "job_id": "17", "workspace": "/w/jobs/a",
    "sbatch": ["sbatch", "--chdir=/my work"], "gpus": {"type": "h100", "count": 2}, "notes": ["Note."],
}  # fmt: skip


def shown(line: Line, capsys: pytest.CaptureFixture[str], **more: Any) -> tuple[str, str]:
    submission._show({**ANSWER, **more}, Request("command", "a\x1b[2J", ("x",), "/w"), line)
    told = capsys.readouterr()
    return told.out, told.err


def test_what_to_type_next_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = shown(Line("run", CommandLine()), capsys)
    assert out.splitlines()[0] == "Job 17 is submitted: a?[2J, 2 GPUs h100."
    for words in ("/w/jobs/a", "job show 17", "job logs 17", "Note."):
        assert words in out
    assert err == ""


def test_an_arrays_logs_are_its_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    array = Request("method", "a", ("x",), "/w", parameters=({}, {}), is_array=True)
    for wait in (False, True):
        submission._show(ANSWER, array, Line("method run", CommandLine(), wait=wait))
        told = capsys.readouterr()
        assert "job logs 17 --task 0" in (told.err if wait else told.out)


def test_with_wait_stdout_is_the_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = shown(Line("run", CommandLine(), wait=True), capsys)
    assert out == ""
    assert "Job 17" in err


def test_a_dry_run_prints_a_call_that_can_be_copied(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = shown(Line("run", CommandLine(dry_run=True)), capsys, job_id=None)
    assert out == "sbatch '--chdir=/my work'\n"
    assert "Nothing was submitted" in err


def test_an_error_inside_is_the_same_error_here() -> None:
    error = DshpcError("What.", "Why.", ("Do.",), 3)
    text = json.dumps({"schema": "dshpc.error/1", "exit_code": 3, "error": error.to_json()})
    with pytest.raises(DshpcError) as told:
        job_request._answer(f"dshpc: still starting\n{text}\n")
    assert told.value == error
    assert job_request._answer("dshpc: no answer\n{half\n[]\n") is None
    assert job_request._answer(json.dumps(ANSWER)) == ANSWER


@pytest.mark.parametrize("line", [Line("run", CommandLine(), wait=True, json=True),
                                  Line("run", CommandLine(dry_run=True), wait=True)])  # fmt: skip
def test_what_excludes_each_other(line: Line) -> None:
    with pytest.raises(DshpcError, match="exclude each other") as told:
        submission.carry_out(line)
    assert told.value.exit_code == 64
    assert replace(line, wait=False) != line


def test_each_job_of_several_targets_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    gpus = {"type": "h100", "count": 2, "which": ["0", "2"]}
    job = {**ANSWER, "gpus": gpus}
    jobs = [job, {**job, "job_id": "18", "gpus": {**gpus, "count": 1, "which": ["1"]}}]
    out, _ = shown(Line("run", CommandLine(targets=("n::0,2", "n::1"))), capsys, jobs=jobs)
    assert "Job 17 is submitted: a?[2J, GPUs 0, 2 (h100)." in out
    assert "Job 18 is submitted: a?[2J, GPU 1 (h100)." in out
    assert "dshpc job logs 18" in out
    out, err = shown(Line("run", CommandLine(dry_run=True)), capsys, jobs=jobs, job_id=None)
    assert out == "sbatch '--chdir=/my work'\n" * 2
    assert err.count("Note.") == 1


def test_waiting_for_several_targets_is_refused() -> None:
    with pytest.raises(DshpcError, match="several --target exclude"):
        submission.carry_out(Line("run", CommandLine(targets=("n::0", "n::1")), wait=True))


class Docker:
    """Answers `docker exec` as told, and keeps what it was asked."""

    def __init__(self, state: str, out: str = "", code: int | None = None) -> None:
        self.state, self.out, self.code = state, out, code
        self.calls: list[tuple[list[str], float]] = []

    def run(self, argv: list[str], *, deadline_s: float, **more: Any) -> CommandResult:
        self.calls.append((list(argv), deadline_s))
        return CommandResult(tuple(argv), self.state, self.code, self.out, "", 1)  # type: ignore[arg-type]


RUNTIME = {"docker": "docker", "container": "c", "work": "/w"}


def docker(monkeypatch: pytest.MonkeyPatch, *answer: Any) -> Docker:
    found = Docker(*answer)
    monkeypatch.setattr("dshpc_setup.machine.local.LocalMachine", lambda: found)
    return found


def test_a_cluster_that_does_not_answer_may_have_submitted_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = docker(monkeypatch, "timeout")
    asked = Request("command", "a", ("x",), "/w", incoming="/w/jobs/.incoming-1")
    with pytest.raises(UnansweredError, match="did not answer within 260 s") as told:
        job_request.ask(RUNTIME, "submit", asked)
    assert told.value.exit_code == 3
    assert told.value.resolution[0] == "It may have been submitted: dshpc job list"
    assert "/w/jobs/.incoming-1" in told.value.details
    (_, deadline), (stopped, _) = found.calls
    assert deadline == 260
    assert stopped[-1] == "TERM"
    assert "--signal" in stopped


def test_all_copies_that_a_workflow_may_leave_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    docker(monkeypatch, "timeout")
    jobs = [
        {"copied": number != 2, "request": {"incoming": f"/w/jobs/.incoming-{number}"}}
        for number in (1, 2, 3)
    ]
    with pytest.raises(UnansweredError) as told:
        job_request.ask(
            RUNTIME, "workflow", workflow_asking.WorkflowRequest("run", "w", "/w", jobs=jobs)
        )
    lines = told.value.details.splitlines()
    assert [line.rpartition("-")[2] for line in lines] == ["1.", "3."]


def test_what_submits_nothing_is_not_said_to_be_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    docker(monkeypatch, "timeout")
    asked = Request("command", "a", ("x",), "/w")
    asks: list[tuple[str, job_request.Handed]] = [
        ("check", asked),
        ("submit", replace(asked, dry_run=True)),
        ("workflow", workflow_asking.WorkflowRequest("status", "w", "/w")),
    ]
    for verb, each in asks:
        with pytest.raises(DshpcError, match="did not answer") as told:
            job_request.ask(RUNTIME, verb, each)
        assert not isinstance(told.value, UnansweredError)
        assert told.value.resolution == ("See its state: dshpc status",)


@pytest.mark.parametrize(("code", "unsure"), [(-9, True), (1, True), (137, True), (127, False)])
def test_a_client_that_ends_without_an_answer_may_have_submitted_it(
    code: int, unsure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker(monkeypatch, "present", "", code)
    monkeypatch.setattr(exec_trouble, "explain", lambda *_, **__: None)
    with pytest.raises(DshpcError) as told:
        job_request.ask(RUNTIME, "submit", Request("command", "a", ("x",), "/w"))
    assert isinstance(told.value, UnansweredError) is unsure
    assert ("It may have been submitted: dshpc job list" in told.value.resolution) is unsure


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Error response from daemon: No such container: p-slurm", False),
        ("Error: No such container: p-slurm", False),
        ("dshpc: it waits for the cluster", True),
    ],
)
def test_the_engines_own_words_are_kept_for_the_error(
    text: str, shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    job_request._heard(text, said)
    assert said == [text]
    assert (capsys.readouterr().err == f"{text}\n") is shown


@pytest.mark.parametrize("answers", [True, False])
def test_ctrl_c_is_handed_on_and_the_answer_is_waited_for(
    answers: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = DshpcError("Interrupted. Cancelled again: job 17.", exit_code=130)

    class Interrupted(Docker):
        def run(self, argv: list[str], *, deadline_s: float, **more: Any) -> CommandResult:
            if "--signal" not in argv:
                os.kill(os.getpid(), signal.SIGINT)
            return super().run(argv, deadline_s=deadline_s, **more)

    said = json.dumps(refused.to_object()) + "\n" if answers else ""
    found = Interrupted("present", said, 143)
    monkeypatch.setattr("dshpc_setup.machine.local.LocalMachine", lambda: found)
    before = signal.getsignal(signal.SIGINT)
    asked = Request("command", "a", ("x",), "/w")
    with pytest.raises(DshpcError if answers else KeyboardInterrupt) as told:
        job_request.ask(RUNTIME, "submit", asked)
    if answers:
        assert told.value == refused
    (stopped, _), (called, _) = found.calls
    assert (stopped[-1], called[1]) == ("TERM", "exec")
    assert "stopping the submission" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) == before


def test_a_signal_finds_nothing_half_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hands it on runs a command in the midst of whatever was interrupted."""
    name = "dshpc_setup.machine.commands"
    loaded: list[bool] = []

    class Looks(Docker):
        def run(self, argv: list[str], *, deadline_s: float, **more: Any) -> CommandResult:
            loaded.append(name in sys.modules)
            return super().run(argv, deadline_s=deadline_s, **more)

    answer = json.dumps(ANSWER) + "\n"
    found = Looks("present", answer, 0)
    monkeypatch.setattr("dshpc_setup.machine.local.LocalMachine", lambda: found)
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr("dshpc_setup.machine.commands", raising=False)
    job_request.ask(RUNTIME, "submit", Request("command", "a", ("x",), "/w"))
    assert loaded == [True]


def test_a_second_ctrl_c_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(Docker):
        def run(self, argv: list[str], *, deadline_s: float, **more: Any) -> CommandResult:
            for _ in range(0 if "--signal" in argv else 2):
                os.kill(os.getpid(), signal.SIGINT)
            return super().run(argv, deadline_s=deadline_s, **more)

    monkeypatch.setattr("dshpc_setup.machine.local.LocalMachine", lambda: Twice("present", "", 0))
    with pytest.raises(UnansweredError, match="Interrupted before") as told:
        job_request.ask(RUNTIME, "submit", Request("command", "a", ("x",), "/w"))
    assert told.value.resolution[0] == "It may have been submitted: dshpc job list"


def test_each_sbatch_call_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = docker(monkeypatch, "present", json.dumps(ANSWER) + "\n", 0)
    asked = Request("command", "a", ("x",), "/w", targets=(("0",), ("1",), ("2",)))
    workflow = workflow_asking.WorkflowRequest("run", "w", "/w", jobs=[{}, {}])
    job_request.ask(RUNTIME, "submit", asked)
    job_request.ask(RUNTIME, "workflow", workflow)
    assert [deadline for _, deadline in found.calls] == [80 + 3 * 180, 80 + 2 * 180]


def test_an_answer_that_came_in_time_counts_even_where_the_client_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = docker(monkeypatch, "timeout", json.dumps(ANSWER) + "\n")
    assert job_request.ask(RUNTIME, "submit", Request("command", "a", ("x",), "/w")) == ANSWER
    assert len(found.calls) == 1


@pytest.mark.parametrize(
    ("error", "stays"), [(UnansweredError("What."), True), (DshpcError("What."), False)]
)
def test_copies_stay_where_a_submission_may_still_read_them(
    error: DshpcError, stays: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "data").write_text("x")

    def refuse(*_: Any) -> Any:
        raise error

    runtime = {**RUNTIME, "work": str(tmp_path / "work")}
    monkeypatch.setattr(submission, "ask", refuse)
    monkeypatch.setattr(execution, "runtime", lambda _: runtime)
    monkeypatch.setattr(execution, "project_folder", lambda _: str(tmp_path))
    monkeypatch.setattr(exec_caller, "calling_user", lambda _: (os.geteuid(), 0, "u"))
    line = Line("run", CommandLine(command=("true",), inputs=(str(tmp_path / "data"),)))
    with pytest.raises(DshpcError):
        submission.carry_out(line)
    assert len(list((tmp_path / "work/jobs").glob("*/.incoming-*"))) == stays


def test_a_check_says_what_the_cluster_cannot_know(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "work").mkdir()
    folder(tmp_path / "methods", "prepare")
    folder(tmp_path / "methods", "train", requires=["prepare"])
    runtime = {**RUNTIME, "work": str(tmp_path / "work")}
    monkeypatch.setattr(execution, "runtime", lambda _: runtime)
    monkeypatch.setattr(execution, "project_folder", lambda _: str(tmp_path))
    answer = {
        "exit_code": 0,
        "can_run": True,
        "where": "on the CPU",
        "notes": ["Note."],
        "whys": [],
    }
    monkeypatch.setattr(submission, "ask", lambda *_: {**answer, "name": "train"})
    assert submission.carry_out(Line("method check", CommandLine("train"))) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Yes, train can run here: on the CPU.",
        "Note.",
        "It needs the result of the method prepare, of which no run has ended well yet. "
        "Run that first: dshpc method run prepare --wait",
    ]
    assert submission.carry_out(Line("method check", CommandLine("prepare"), json=True)) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == ["Note."]


@pytest.mark.parametrize(("told", "code"), [(True, 143), (False, 143), (True, 0)])
def test_a_jobs_own_exit_code_is_no_interruption(
    told: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that its time limit ended has 143, as has who was told to end by TERM."""

    def run(call: execution.Call) -> int:
        call.told_to_end = told
        return code

    monkeypatch.setattr(execution, "run", run)
    answer = {"workspace": "/w/jobs/1/a", "job_id": 7}
    assert submission._follow(RUNTIME, answer) == code
    assert ("No longer followed" in capsys.readouterr().err) == (told and code != 0)
