from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.jobs import (
    call,
    clock,
    request,
    safe_open,
    submit,
    unacknowledged,
    workspace_folders,
)
from dshpc_setup.jobs.no_wait import TakenBack
from dshpc_setup.jobs.offer import Offer
from dshpc_setup.jobs.request import Request
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.methods.model import Resources
from tests.unit.jobs.offers import offer
from tests.unit.jobs.test_targets import by_index

HERE = f"jobs/{os.getuid()}"  # the folder of the workspaces of who runs the tests


class Slurm(LocalMachine):
    """Answers sbatch and squeue."""

    def __init__(self, code: int = 0, says: str = "17\n", state: str = "present") -> None:
        super().__init__()
        self.code, self.says, self.state = code, says, state
        self.asked: list[tuple[str, ...]] = []
        self.scripts: list[object] = []
        self.environments: list[object] = []

    def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
        self.asked.append(tuple(argv))
        self.scripts.append(more.get("stdin"))
        self.environments.append(more.get("env"))
        if argv[0] == "squeue":
            return CommandResult(tuple(argv), "present", 0, '{"jobs": []}', "", 1)
        err = "sbatch: error: no\n" if self.code else ""
        return CommandResult(tuple(argv), self.state, self.code, self.says, err, 1)  # type: ignore[arg-type]


def asked(work: Path, **more: Any) -> Request:
    return Request("command", "train", ("true",), str(work), **{"cwd": str(work), **more})


def tree(work: Path) -> list[str]:
    return sorted(str(path.relative_to(work)) for path in work.rglob("*"))


def test_a_job_gets_its_workspace_and_one_sbatch_call(tmp_path: Path) -> None:
    slurm = Slurm()
    wanted = asked(tmp_path, resources=Resources(gpus=1), parameters=({"x": "a'\n$(id)"},))
    answer = submit.submit(slurm, wanted, offer("h100"))
    assert answer["schema"] == request.SUBMITTED
    assert answer["job_id"] == "17"
    assert answer["gpus"]["type"] == "h100"
    assert slurm.asked == [tuple(answer["sbatch"])]  # one kind of GPU: nobody asks what is free
    assert slurm.scripts == [call.SCRIPT]
    own = Path(answer["workspace"]) / ".job"
    assert request.from_json(json.loads((own / "request.json").read_text())) == wanted
    assert (own / "request.json").stat().st_mode & 0o777 == 0o600
    assert (own / "job.json").stat().st_mode & 0o777 == 0o600
    assert {path.stat().st_mode & 0o777 for path in (own, own.parent, own.parent.parent)} == {0o700}
    job = json.loads((own / "job.json").read_text())
    assert (job["schema"], job["job_id"], job["name"]) == ("dshpc.job/1", "17", "train")


@pytest.mark.parametrize(("zone", "told"), [("Asia/Tokyo", {"TZ": "Asia/Tokyo"}), ("", {})])
def test_the_jobs_clock_is_the_callers(
    zone: str, told: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(clock.ZONE, zone)
    slurm = Slurm()
    submit.submit(slurm, asked(tmp_path), offer())
    assert slurm.environments == [told]


def test_a_dry_run_leaves_nothing(tmp_path: Path) -> None:
    slurm = Slurm()
    answer = submit.submit(slurm, asked(tmp_path, dry_run=True), offer())
    assert answer["job_id"] is None
    assert answer["sbatch"][0] == "sbatch"
    assert slurm.asked == []
    assert tree(tmp_path) == []


def test_what_can_never_run_is_refused_before_anything_is_queued(tmp_path: Path) -> None:
    slurm = Slurm()
    with pytest.raises(
        DshpcError, match=r"train cannot run here: it needs 2 GPUs.*1x h100"
    ) as told:
        submit.submit(slurm, asked(tmp_path, resources=Resources(gpus=2)), offer("h100"))
    assert told.value.exit_code == 2
    assert [argv[0] for argv in slurm.asked] == ["squeue"]
    assert tree(tmp_path) == []


def test_where_sbatch_refuses_the_workspace_goes_again(tmp_path: Path) -> None:
    with pytest.raises(DshpcError, match="did not take") as told:
        submit.submit(Slurm(1, ""), asked(tmp_path), offer())
    assert "sbatch: error: no" in told.value.details
    assert tree(tmp_path) == ["jobs", HERE]


def test_copies_of_inputs_move_into_the_workspace(tmp_path: Path) -> None:
    incoming = tmp_path / HERE / ".incoming-1"
    incoming.mkdir(parents=True)
    (incoming / "data").write_text("x")
    wanted = asked(
        tmp_path,
        inputs=(f"{incoming}/data", f"{tmp_path}/there"),
        incoming=str(incoming),
        parameters=({"file": f"{incoming}/data", "text": "data", "n": 3},),
    )
    folder = submit.submit(Slurm(), wanted, offer())["workspace"]
    told = json.loads(Path(folder, ".job/request.json").read_text())
    assert told["inputs"] == [f"{folder}/inputs/data", f"{tmp_path}/there"]
    assert told["parameters"] == [{"file": f"{folder}/inputs/data", "text": "data", "n": 3}]
    assert Path(folder, "inputs/data").read_text() == "x"
    assert not incoming.exists()


def test_more_jobs_than_slurm_knows(tmp_path: Path) -> None:
    class Full(Slurm):
        def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
            err = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"
            return replace(super().run(argv, **more), stdout="", stderr=err)

    with pytest.raises(DshpcError, match="as many jobs as it may") as caught:
        submit.submit(Full(code=1), asked(tmp_path), offer())
    assert any("config set job_limit" in step for step in caught.value.resolution)
    assert tree(tmp_path / HERE) == []


def test_an_array_as_large_as_slurm_takes_and_one_more(tmp_path: Path) -> None:
    has = replace(offer(), max_array=3)
    many = asked(tmp_path, is_array=True, parameters=({}, {}, {}))
    assert "--array=0-2" in submit.submit(Slurm(), many, has)["sbatch"]
    with pytest.raises(DshpcError, match="4 parameter sets is too large"):
        submit.submit(Slurm(), replace(many, parameters=({},) * 4), has)


def test_a_work_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(DshpcError, match="cannot be made"):
        submit.submit(Slurm(), asked(tmp_path / "missing"), offer())


@pytest.mark.parametrize(
    ("uid", "said"),
    [
        (4242, "for all users: mkdir -p {work}/jobs; chmod 1777 {work}/jobs"),
        (0, "Submit as a user who may write in {work}, without sudo."),
    ],
)
def test_why_a_workspace_cannot_be_made(
    uid: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getuid", lambda: uid)
    error = workspace_folders.not_made(
        f"{tmp_path}/jobs/x", str(tmp_path), PermissionError(errno.EACCES, "Permission denied")
    )
    assert error.resolution[0].endswith(said.format(work=tmp_path))
    assert ("root_squash" in error.details) is (uid == 0)


def test_the_check_says_where_or_why_not(tmp_path: Path) -> None:
    yes = submit.check(Slurm(), asked(tmp_path, resources=Resources(gpus=1)), offer("t4", "h100"))
    assert (yes["schema"], yes["exit_code"], yes["can_run"]) == ("dshpc.method-check/1", 0, True)
    assert yes["where"] == "on 1 GPU t4 (16 GB) of node, GPU free now"
    for shards, told in ((1, "on 1 shard of a GPU of node"), (3, "on 3 shards of a GPU of node")):
        wanted = asked(tmp_path, resources=Resources(shards=shards))
        assert submit.check(Slurm(), wanted, offer("h100", shards=4))["where"] == told
    no = submit.check(Slurm(), asked(tmp_path, resources=Resources(cpus=9)), offer())
    assert (no["exit_code"], no["can_run"], no["where"]) == (2, False, None)
    assert no["whys"] == ["it needs 9 CPUs, this cluster has 8"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "dshpc.job-request/1"}', "nonsense"])
def test_what_is_no_request_is_an_error_in_json(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert submit.main([]) == 64
    assert json.loads(capsys.readouterr().out)["schema"] == "dshpc.error/1"


def test_the_callers_slurm_variables_do_not_reach_sbatch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import io

    for name in ("SBATCH_GRES", "SLURM_JOB_ID", "KEPT"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    submit.main([])
    kept: Mapping[str, str] = os.environ
    assert [name for name in ("SBATCH_GRES", "SLURM_JOB_ID", "KEPT") if name in kept] == ["KEPT"]
    assert capsys.readouterr().out


class Busy(Slurm):
    """GPU 0 is ada's; jobs are numbered, and wait where `waits`."""

    def __init__(self, *, waits: bool = False, refused_from: int = 99) -> None:
        super().__init__()
        self.waits, self.refused_from = waits, refused_from

    def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
        done = super().run(argv, **more)
        words = [words[0] for words in self.asked]
        if argv[0] == "sbatch":
            if words.count("sbatch") >= self.refused_from:
                return replace(done, code=1, stdout="", stderr="no")
            return replace(done, stdout=f"{16 + words.count('sbatch')}\n")
        if list(argv[:2]) == ["squeue", "--json"]:
            job = {"job_id": 9, "user_name": "ada", "gres_detail": ["gpu:gpu0:1(IDX:0)"]}
            return replace(done, stdout=json.dumps({"jobs": [job]}))
        if argv[0] == "squeue":
            said = "CANCELLED|None|" if "scancel" in words else "PENDING|Resources|"
            return replace(done, stdout=said if self.waits else "RUNNING|None|")
        return done


def named(work: Path, *words: tuple[str, ...], **more: Any) -> Request:
    return asked(work, targets=words, node="node", **more)


def test_one_job_for_each_target(tmp_path: Path) -> None:
    incoming = tmp_path / HERE / ".incoming-1"
    incoming.mkdir(parents=True)
    (incoming / "data").write_text("x")
    wanted = named(
        tmp_path, ("0",), ("1", "2"), ("2",),
        inputs=(f"{incoming}/data",), incoming=str(incoming),
    )  # fmt: skip
    slurm = Busy()
    told = submit.submit(slurm, wanted, by_index("h100", "h100", "t4"))
    jobs = told["jobs"]
    assert [job["job_id"] for job in jobs] == ["17", "18", "19"]
    assert told["job_id"] == "17"
    assert [job["gpus"]["which"] for job in jobs] == [["0"], ["1", "2"], ["2"]]
    assert jobs[1]["gpus"]["type"] == "h100, t4"
    assert "--gres=gpu:gpu1:1,gpu:gpu2:1" in jobs[1]["sbatch"]
    assert jobs[0]["notes"] == ["It waits for its GPU: GPU 0 is taken by job 9 of ada."]
    assert jobs[1]["notes"] == []
    for job, targets in zip(jobs, wanted.targets, strict=True):
        kept = json.loads(Path(job["workspace"], ".job/request.json").read_text())
        assert kept["targets"] == [list(targets)]
        assert Path(job["workspace"], "inputs/data").read_text() == "x"
    assert not incoming.exists()


def test_a_target_that_is_wrong_keeps_all_from_being_submitted(tmp_path: Path) -> None:
    slurm = Busy()
    for wanted in (
        named(tmp_path, ("1",), ("7",)),
        replace(named(tmp_path, ("1",)), node="other"),
        named(tmp_path, ("1",), ("2",), resources=Resources(gpu_memory_mb=40960)),
    ):
        with pytest.raises(DshpcError):
            submit.submit(slurm, wanted, by_index("h100", "h100", "t4"))
    assert "sbatch" not in [argv[0] for argv in slurm.asked]
    assert tree(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((("0",),), "GPU 0 is taken by job 9 of ada"),
        ((("1",), ("0", "1")), "GPU 0 is taken"),
        ((("1",), ("1",)), "several targets name one GPU"),
    ],
)
def test_without_waiting_a_taken_gpu_is_refused(
    tmp_path: Path, words: tuple[tuple[str, ...], ...], why: str
) -> None:
    slurm = Busy()
    with pytest.raises(DshpcError, match=f"cannot begin at once: .*{why}") as told:
        submit.submit(slurm, named(tmp_path, *words, if_busy="refuse"), by_index("h100", "h100"))
    assert told.value.exit_code == 2
    assert [argv[0] for argv in slurm.asked] == ["squeue"]
    assert tree(tmp_path) == []


def test_without_waiting_a_free_gpu_is_given(tmp_path: Path) -> None:
    wanted = named(tmp_path, ("1",), if_busy="refuse")
    assert submit.submit(Busy(), wanted, by_index("h100", "h100"))["job_id"] == "17"


def test_without_waiting_any_job_that_does_not_begin_is_taken_back(tmp_path: Path) -> None:
    slurm = Busy(waits=True)
    with pytest.raises(DshpcError, match=r"lets it wait \(Resources\)") as told:
        submit.submit(slurm, asked(tmp_path, if_busy="refuse"), offer())
    assert "Job 17 was taken back" in told.value.details
    assert slurm.asked[2][0] == "scancel"
    assert tree(tmp_path) == ["jobs", HERE]


def test_jobs_that_were_submitted_before_a_refusal_are_named(tmp_path: Path) -> None:
    slurm = Busy(refused_from=2)
    with pytest.raises(DshpcError, match="did not take") as told:
        submit.submit(slurm, named(tmp_path, ("0",), ("1",)), by_index("h100", "h100"))
    assert "queued or running: job 17." in told.value.details


class Says(Slurm):
    """sbatch ends with these words on stderr."""

    def __init__(self, err: str, code: int = 1, state: str = "present") -> None:
        super().__init__(code, "", state)
        self.err = err

    def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
        return replace(super().run(argv, **more), stderr=self.err)


LOST = [
    *(
        (f"sbatch: error: Batch job submission failed: {words}\n", 1, "present")
        for words in (
            "Socket timed out on send/recv operation",
            "Zero Bytes were transmitted or received",
            "Message receive failure",
            "Unable to contact slurm controller (receive failure)",
        )
    ),
    ("", -9, "present"),
    ("a warning", 0, "present"),
    ("", 1, "error"),
    ("", 1, "timeout"),
]


class Lost(Says):
    """sbatch names no job, and the queue is asked."""

    queue: str | None = ""  # {folder} is the workspace's; None: no answer

    def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
        if argv[0] != "squeue":
            self.during(argv)
            return super().run(argv, **more)
        self.asked.append(tuple(argv))
        if self.queue is None:
            return CommandResult(tuple(argv), "present", 1, "", "slurm_load_jobs error", 1)
        called = [word for each in self.asked if each[0] == "sbatch" for word in each]
        folder = next((word[8:] for word in called if word.startswith("--chdir=")), "")
        text = self.queue.replace("{folder}", folder)
        return CommandResult(tuple(argv), "present", 0, text, "", 1)

    def during(self, argv: Sequence[str]) -> None:
        """What happens while sbatch runs."""


HELD = "8 /x\n17 {folder}\n"


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unacknowledged, "_LOOK_S", 0.0)
    monkeypatch.setattr(unacknowledged, "_PAUSE_S", 0.0)


@pytest.mark.parametrize(("words", "code", "state"), LOST)
def test_a_job_whose_answer_is_lost_is_found_in_the_queue(
    words: str, code: int, state: str, tmp_path: Path
) -> None:
    slurm = Lost(words, code, state)
    slurm.queue = HELD
    answer = submit.submit(slurm, asked(tmp_path), offer())
    assert answer["job_id"] == "17"
    assert "The job was found in the queue." in answer["notes"][0]
    assert [argv[0] for argv in slurm.asked] == ["sbatch", "squeue"]  # and no second sbatch
    job = Path(answer["workspace"], ".job/job.json")
    assert json.loads(job.read_text())["job_id"] == "17"


@pytest.mark.parametrize("queue", ['{"jobs": []}', None, "no JSON"])
@pytest.mark.parametrize(("words", "code", "state"), LOST)
def test_one_that_is_not_in_the_queue_never_runs(
    words: str, code: int, state: str, queue: str | None, tmp_path: Path
) -> None:
    slurm = Lost(words, code, state)
    slurm.queue = queue
    with pytest.raises(DshpcError, match="The job was not submitted: sbatch") as told:
        submit.submit(slurm, asked(tmp_path), offer())
    assert told.value.exit_code == 3
    assert "runs nothing" in told.value.details
    assert tree(tmp_path) == ["jobs", HERE]
    assert len([argv for argv in slurm.asked if argv[0] == "sbatch"]) == 1


def test_one_that_has_begun_is_left_alone(tmp_path: Path) -> None:
    class Begun(Lost):
        def during(self, argv: Sequence[str]) -> None:
            (own,) = tmp_path.glob("jobs/*/*/.job")
            (own / "params.json").write_text("{}")

    slurm = Begun("", -9)
    slurm.queue = None
    with pytest.raises(DshpcError, match="has started, and its ID is not known") as told:
        submit.submit(slurm, asked(tmp_path), offer())
    assert told.value.resolution[0] == "Find it: dshpc job list"
    (own,) = tmp_path.glob("jobs/*/*/.job")
    assert sorted(path.name for path in own.iterdir()) == ["params.json", "request.json"]


def interrupted(slurm: Slurm, wanted: Request, has: Offer) -> DshpcError:
    with pytest.raises(DshpcError) as told:
        submit._or_taken_back(slurm, wanted, has)
    assert told.value.exit_code == Exit.INTERRUPTED
    return told.value


class Signalled(Lost):
    """A signal comes while sbatch runs, before it has said anything."""

    number: int = signal.SIGTERM

    def during(self, argv: Sequence[str]) -> None:
        if argv[0] == "sbatch":
            self.asked.append(tuple(argv))
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("is_queued", [True, False])
def test_a_signal_in_sbatch_leaves_nothing_queued(
    number: int, is_queued: bool, tmp_path: Path
) -> None:
    class Interrupted(Signalled):
        def during(self, argv: Sequence[str]) -> None:
            super().during(argv)
            if argv[0] == "scancel":
                self.code = 0
                os.kill(os.getpid(), number)  # a second one disturbs nothing

    before = signal.getsignal(number)
    slurm = Interrupted("")
    slurm.number = number
    slurm.queue = HELD if is_queued else None
    error = interrupted(slurm, asked(tmp_path), offer())
    assert ("Cancelled again: job 17." if is_queued else "Nothing was submitted.") in error.brief
    assert (("scancel", "17") in slurm.asked) is is_queued
    assert tree(tmp_path) == ["jobs", HERE]
    assert signal.getsignal(number) == before


def test_one_that_slurm_takes_a_moment_later_does_not_stay_in_the_queue(tmp_path: Path) -> None:
    class Late(Signalled):
        def during(self, argv: Sequence[str]) -> None:
            super().during(argv)
            if argv[0] == "scancel":
                self.code = 0

        def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
            done = super().run(argv, **more)
            if argv[0] == "squeue":
                self.queue = HELD
            return done

    slurm = Late("")
    error = interrupted(slurm, asked(tmp_path), offer())
    assert "Cancelled again: job 17." in error.brief
    assert slurm.asked[-1] == ("scancel", "17")
    assert tree(tmp_path) == ["jobs", HERE]


def test_a_signal_between_two_targets_takes_both_back(tmp_path: Path) -> None:
    class Second(Lost):
        def during(self, argv: Sequence[str]) -> None:
            if argv[0] == "sbatch" and any(each[0] == "sbatch" for each in self.asked):
                os.kill(os.getpid(), signal.SIGTERM)

    slurm = Second("", code=0)
    slurm.says = "17\n"
    error = interrupted(slurm, named(tmp_path, ("0",), ("1",)), by_index("h100", "h100"))
    assert "Cancelled again: job 17." in error.brief
    assert ("scancel", "17") in slurm.asked


def test_what_cannot_be_cancelled_is_named(tmp_path: Path) -> None:
    slurm = Signalled("no")
    slurm.queue = HELD
    error = interrupted(slurm, asked(tmp_path), offer())
    assert "not all could be taken back: job 17." in error.brief
    assert "dshpc job list" in error.resolution[0]


@pytest.mark.parametrize(
    "words",
    [
        "Unable to contact slurm controller (connect failure)",
        "Invalid partition name specified",
        "Socket path too long",
    ],
)
def test_a_sure_refusal_leaves_no_workspace(words: str, tmp_path: Path) -> None:
    with pytest.raises(DshpcError, match="did not take") as told:
        submit.submit(Says(f"sbatch: error: {words}\n"), asked(tmp_path), offer())
    assert told.value.exit_code == 2
    assert tree(tmp_path) == ["jobs", HERE]


def test_a_workspace_that_cannot_be_filled_goes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(name: str, text: str, at: int) -> None:
        os.close(safe_open.new_file(name, at))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(safe_open, "replace", full)
    with pytest.raises(DshpcError, match="cannot be made: No space left"):
        submit.submit(Slurm(), asked(tmp_path), offer())
    assert tree(tmp_path) == ["jobs", HERE]


def test_a_folder_of_somebody_else_with_the_workspaces_name_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dshpc_setup.jobs.workspace.new_name", lambda _: "train-1")
    (tmp_path / HERE / "train-1").mkdir(parents=True)
    (tmp_path / HERE / "train-1/kept").write_text("")
    with pytest.raises(DshpcError, match="cannot be made: File exists"):
        submit.submit(Slurm(), asked(tmp_path), offer())
    assert tree(tmp_path) == ["jobs", HERE, f"{HERE}/train-1", f"{HERE}/train-1/kept"]


def test_what_an_array_wrote_before_it_was_taken_back_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = TakenBack("Resources", begun=2)
    monkeypatch.setattr("dshpc_setup.jobs.no_wait.begun_or_taken_back", lambda *_: taken)
    many = asked(tmp_path, is_array=True, parameters=({},) * 3, if_busy="refuse")
    with pytest.raises(DshpcError, match=r"lets all but 2 of its tasks wait \(Resources\)") as told:
        submit.submit(Slurm(), many, offer())
    (folder,) = (tmp_path / HERE).iterdir()
    assert "Job 17 was taken back" in told.value.details
    assert str(folder) in told.value.details


def test_a_command_that_does_not_run_where_it_was_typed_is_told(tmp_path: Path) -> None:
    (note,) = submit.submit(Slurm(), asked(tmp_path, cwd=None), offer())["notes"]
    assert "it runs in its workspace" in note
    assert submit.submit(Slurm(), asked(tmp_path, cwd="/lab/a"), offer())["notes"] == []
    assert submit.submit(Slurm(), asked(tmp_path, cwd=None, workflow="w/a"), offer())["notes"] == []


@pytest.mark.parametrize(
    ("sinfo", "note"),
    [
        ("node|gpu:t4:1|gpu:0|drained|low disk\n", "The node is drained: low disk. Jobs wait"),
        ("node|gpu:t4:1|gpu:0|down*|none\n", "The node is down. Jobs wait"),
        ("node|gpu:t4:1|gpu:0|idle*|none\n", "The node is not ready (idle*). Jobs wait"),
        ("node|gpu:t4:1|gpu:0|mixed|none\n", None),
        ("other|gpu:t4:1|gpu:0|drained|none\n", None),
        ("", None),
    ],
)
def test_the_check_says_where_the_node_takes_no_jobs(
    sinfo: str, note: str | None, tmp_path: Path
) -> None:
    class Node(Slurm):
        def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
            done = super().run(argv, **more)
            return replace(done, stdout=sinfo) if argv[0] == "sinfo" else done

    wanted = asked(tmp_path, resources=Resources(gpus=1))
    told = submit.check(Node(), wanted, offer("t4"))
    assert told["can_run"]
    assert ("free now" in told["where"]) == (note is None)
    assert [text.startswith(note or "?") for text in told["notes"]] == [True] * (note is not None)


def test_several_jobs_have_copies_of_a_method_of_their_own(tmp_path: Path) -> None:
    """Its folders, too."""
    tool = tmp_path / "user" / ".incoming-1" / ".method" / "lib" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("x")
    tool.chmod(0o755)
    with (
        safe_open.opened(str(tmp_path / "user")) as user,
        safe_open.opened(str(tmp_path)) as made,
    ):
        submit._copy(".incoming-1", user, made)
    copied = tmp_path / "inputs" / ".method" / "lib" / "tool"
    assert (copied.read_text(), copied.stat().st_mode & 0o777) == ("x", 0o700)
    assert tool.exists()
