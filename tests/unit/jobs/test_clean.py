"""`dshpc-node job clean`: what may go, what stays and why, and that nothing else is touched."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.jobs import (
    allocated_gpus,
    clean,
    cleanable,
    command_words,
    folder_lock,
    removal,
    workspace,
)
from dshpc_setup.jobs.clean import Request
from dshpc_setup.jobs.reader import JobReader
from dshpc_setup.jobs.staging import Incoming
from dshpc_setup.node import job_verbs
from tests.unit.jobs.test_queries import Played, over, queue
from tests.unit.slurm.test_completion_log import line
from tests.unit.slurm.test_job_states import item

UID = os.getuid()
DAY = 86400.0


class Folder:
    """A work folder, with what Slurm says of its jobs."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.jobs: list[dict[str, Any]] = []
        self.log = work / "jobs.log"
        self.log.write_text("")
        self.code = 0

    def workspace(
        self, name: str, number: int | None, *, days: float = 60, result: bool = True, **more: Any
    ) -> Path:
        place = self.work / "jobs" / str(UID) / name
        own = place / ".job"
        own.mkdir(parents=True)
        request = more.pop("request", {"name": name})
        (own / "request.json").write_text(json.dumps(request))
        if number is not None:
            (own / "job.json").write_text(json.dumps({"job_id": number, "name": name, **more}))
        if result:
            (own / "result.json").write_text('{"exit_code": 0}')
        (place / "output.log").write_text("x" * 5000)
        then = time.time() - days * DAY
        os.utime(own, (then, then))
        return place

    def names(self) -> list[str]:
        return sorted(os.listdir(self.work / "jobs" / str(UID)))

    def look(self) -> JobReader:
        def said(_: Sequence[str]) -> tuple[int, str]:
            return self.code, queue(*self.jobs) if self.code == 0 else "Unable to contact"

        return JobReader(
            Played(said), str(self.work), log=str(self.log), places=allocated_gpus.Places({})
        )


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    folder = Folder(tmp_path)
    monkeypatch.setattr(command_words, "look_at", lambda _: folder.look())
    monkeypatch.delenv(clean.AFTER, raising=False)
    return folder


def asked(work: Folder, **more: Any) -> dict[str, Any]:
    return clean.answer(Request(str(work.work), **more))


def names(answer: dict[str, Any]) -> list[str]:
    return [each["name"] for each in answer["workspaces"]]


def test_the_oldest_first_with_their_size_and_why_others_stay(work: Folder) -> None:
    work.workspace("new", 3, days=5)
    work.workspace("old", 1, days=90)
    work.workspace("older", 2, days=100)
    running = work.workspace("run", 4, days=200)
    work.jobs = [item(job_id=4, current_working_directory=str(running))]
    told = asked(work)
    assert names(told) == ["older", "old"]
    assert told["kept"] == {"going": 1, "needed": 0, "younger": 1, "unknown": 0}
    assert (told["older_than"], told["exit_code"]) == ("30d", 0)
    first = told["workspaces"][0]
    assert (first["job_id"], first["job_name"]) == ("2", "older")
    assert first["bytes"] >= 5000
    assert work.names() == ["new", "old", "older", "run"]


def test_age_is_the_commands_then_the_settings(
    work: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.workspace("a", 1, days=5)
    assert names(asked(work)) == []
    monkeypatch.setenv(clean.AFTER, "4d")
    assert names(asked(work)) == ["a"]
    assert names(asked(work, older_than="6d")) == []
    assert names(asked(work, older_than="0")) == ["a"]


@pytest.mark.parametrize("days", [0.0, 50 / DAY])
def test_what_ended_just_now_is_still_written_to(work: Folder, days: float) -> None:
    work.workspace("a", 1, days=days)
    assert asked(work, older_than="0")["kept"]["younger"] == 1


@pytest.mark.parametrize(
    "state", ["PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUE_HOLD"]
)
def test_a_job_that_goes_on_keeps_its_workspace(work: Folder, state: str) -> None:
    place = work.workspace("a", 1)
    work.jobs = [item(job_id=1, job_state=[state], current_working_directory=str(place))]
    assert asked(work)["kept"]["going"] == 1


def test_one_task_that_goes_on_keeps_the_array(work: Folder) -> None:
    place = work.workspace("a", 1, tasks=2, result=False)
    (place / ".job" / "result-0.json").write_text("{}")
    os.utime(place / ".job", (1, 1))
    array = {"array_job_id": {"set": True, "infinite": False, "number": 1}}
    task = {"array_task_id": {"set": True, "infinite": False, "number": 1}}
    work.jobs = [item(job_id=9, current_working_directory=str(place), **array, **task)]
    assert asked(work)["kept"]["going"] == 1
    work.jobs = []
    assert asked(work)["kept"]["unknown"] == 1
    (place / ".job" / "result-1.json").write_text("{}")
    os.utime(place / ".job", (1, 1))
    assert names(asked(work)) == ["a"]


def test_a_plain_job_that_works_or_writes_in_a_workspace_keeps_it(work: Folder) -> None:
    cwd, log = work.workspace("a", 1), work.workspace("b", 2)
    work.jobs = [
        item(job_id=7, user_id=UID + 1, current_working_directory=f"{cwd}/deep/in"),
        item(job_id=8, user_id=UID + 1, standard_output=f"{log}/%j.out"),
    ]
    assert asked(work)["kept"]["going"] == 2


@pytest.mark.parametrize(
    "request_",
    [
        {"requires": {"train": "PATH"}},
        {"inputs": ["PATH/model.bin"]},
        {"parameters": [{}, {"model": "--from=PATH/model.bin"}]},
        {"argv": ["sh", "-c", "cat 'PATH/x' PATH/y"]},
    ],
)
def test_what_a_queued_job_was_given_stays(work: Folder, request_: dict[str, Any]) -> None:
    needed = work.workspace("needed", 1)
    work.workspace("needed-not", 2)
    text = json.dumps(request_).replace("PATH", str(needed))
    place = work.workspace("waits", 3, result=False, request=json.loads(text))
    work.jobs = [item(job_id=3, job_state=["PENDING"], current_working_directory=str(place))]
    told = asked(work)
    assert names(told) == ["needed-not"]
    assert told["kept"]["needed"] == 1


def test_of_which_nothing_says_that_it_has_ended(work: Folder) -> None:
    """It may be another cluster's, which runs it."""
    work.workspace("here", 1, result=False)
    work.workspace("elsewhere", 2, result=False)
    work.workspace("never-submitted", None, result=False)
    here = str(work.work / "jobs" / str(UID) / "here")
    work.log.write_text(
        line("here", "CANCELLED", 1, folder=here, uid=UID).replace("2026-", "2020-")
    )
    told = asked(work)
    assert names(told) == ["here"]
    assert told["kept"]["unknown"] == 2
    assert set(names(asked(work, lost=True))) == {"here", "elsewhere", "never-submitted"}


def test_another_users_line_in_the_log_proves_nothing(work: Folder) -> None:
    place = work.workspace("a", 1, result=False)
    work.log.write_text(line("a", "COMPLETED", 1, folder=str(place), uid=UID + 1))
    assert asked(work)["kept"]["unknown"] == 1


def test_a_submission_that_is_under_way_is_not_lost(work: Folder) -> None:
    work.workspace("a", None, days=0.03, result=False)
    assert names(asked(work, lost=True, older_than="0")) == []


def test_where_slurm_is_silent_nothing_can_go(work: Folder) -> None:
    work.workspace("a", 1)
    work.code = 1
    with pytest.raises(DshpcError, match="does not answer") as caught:
        asked(work)
    assert caught.value.exit_code == Exit.INCOMPLETE


def test_removed_is_what_was_agreed_to(work: Folder) -> None:
    for number, name in enumerate(("a", "b", "c")):
        work.workspace(name, number + 1)
    told = asked(work, remove=("a", "b"))
    assert (sorted(told["removed"]), told["failed"], told["exit_code"]) == (["a", "b"], [], 0)
    assert work.names() == ["c"]
    assert asked(work, remove=("a", "c", "never"))["removed"] == ["c"]


def test_nothing_is_removed_where_one_is_used_by_now(work: Folder) -> None:
    work.workspace("a", 1)
    place = work.workspace("b", 2)
    work.jobs = [item(job_id=2, current_working_directory=str(place))]
    with pytest.raises(DshpcError, match="Nothing was removed") as caught:
        asked(work, remove=("a", "b"))
    assert "b" in caught.value.details
    assert work.names() == ["a", "b"]


def test_other_users_workspaces_are_never_looked_at(
    work: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.workspace("mine", 1)
    other = work.work / "jobs" / "4711" / "theirs"
    (other / ".job").mkdir(parents=True)
    (other / ".job" / "job.json").write_text('{"job_id": 2}')
    (other / ".job" / "result.json").write_text("{}")
    os.utime(other / ".job", (1, 1))
    assert names(asked(work)) == ["mine"]
    asked(work, remove=("mine", "theirs", "../4711/theirs"))
    assert other.is_dir()


def test_no_link_is_followed(work: Folder, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / ".job").mkdir(parents=True)
    (outside / ".job" / "job.json").write_text('{"job_id": 5}')
    (outside / "data").write_text("x")
    place = work.workspace("a", 1)
    (place / "to-folder").symlink_to(outside)
    (place / "to-file").symlink_to(outside / "data")
    (place.parent / "link").symlink_to(outside)
    assert names(asked(work, lost=True)) == ["a"]
    assert asked(work, remove=("a", "link"))["removed"] == ["a"]
    assert (outside / "data").read_text() == "x"
    assert work.names() == ["link"]


def test_what_jobs_leave_can_all_be_removed(work: Folder) -> None:
    place = work.workspace("a", 1)
    deep = os.open(place, os.O_RDONLY)
    for _ in range(3000):  # deeper than a path may be long, and than a program may call itself
        os.mkdir("deeper", dir_fd=deep)
        before, deep = deep, os.open("deeper", os.O_RDONLY, dir_fd=deep)
        os.close(before)
    os.close(deep)
    (place / "closed" / "in").mkdir(parents=True)
    (place / "closed" / "in" / "file").touch()
    (place / "closed" / "in").chmod(0o500)
    (place / "closed").chmod(0)
    os.mkfifo(place / "pipe")
    place.chmod(0o500)
    (place / ".job").chmod(0o500)
    told = asked(work, remove=("a",))
    assert (told["removed"], told["failed"]) == (["a"], [])
    assert work.names() == []


def test_what_cannot_be_removed_is_told_and_tried_again(
    work: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.workspace("a", 1)
    work.workspace("b", 2)
    real = os.unlink

    def unlink(name: str, **more: Any) -> None:
        if name == "output.log":
            raise PermissionError(1, "Operation not permitted", name)
        real(name, **more)

    with monkeypatch.context() as patched:
        patched.setattr("os.unlink", unlink)
        told = asked(work, remove=("a", "b"))
    assert (told["removed"], told["exit_code"]) == ([], Exit.WARNING)
    assert {each["why"] for each in told["failed"]} == {"Operation not permitted"}
    assert names(asked(work)) == ["a", "b"], "they are workspaces still"
    assert sorted(asked(work, remove=("a", "b"))["removed"]) == ["a", "b"]


def test_in_its_time_and_the_rest_later(work: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(("a", "b", "c")):
        work.workspace(name, number + 1, days=100 - number)
    monkeypatch.setattr(clean, "_REMOVE_S", -1.0)
    assert asked(work, remove=("a", "b", "c"))["removed"] == ["a"]
    assert work.names() == ["b", "c"]


def test_a_size_that_took_too_long_is_not_known(work: Folder) -> None:
    place = work.workspace("a", 1)
    at = os.open(place.parent, os.O_RDONLY)
    try:
        assert removal.size("a", at, time.monotonic() - 1) is None
        known = removal.size("a", at, time.monotonic() + 60)
        os.link(place / "output.log", place / "again")
        assert known is not None
        assert removal.size("a", at, time.monotonic() + 60) == known
        assert removal.size("none", at, time.monotonic() + 60) in (0, None)
    finally:
        os.close(at)


@pytest.mark.parametrize("age", ["", "1", "1y", "-1d", "1.5d", "d"])
def test_what_is_no_age(work: Folder, age: str) -> None:
    with pytest.raises(DshpcError) as caught:
        asked(work, older_than=age)
    assert caught.value.exit_code == Exit.USAGE


def test_on_stdin_and_stdout(
    work: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work.workspace("a", 1)
    text = json.dumps(Request(str(work.work)).to_json())
    for given, code, schema in (
        (text, 0, clean.ANSWERED),
        (text.replace("null", "7", 1), Exit.USAGE, "dshpc.error/1"),
        ("{}", Exit.USAGE, "dshpc.error/1"),
        ("[", Exit.USAGE, "dshpc.error/1"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        assert job_verbs.main(["clean"]) == code
        said = json.loads(capsys.readouterr().out)
        assert (said["schema"], said["exit_code"]) == (schema, code)


def test_nothing_at_all(work: Folder) -> None:
    told = asked(work)
    assert (told["workspaces"], cleanable.counted({})) == ([], told["kept"])


def test_known_to_slurm_as_ended(work: Folder) -> None:
    place = work.workspace("a", 1, result=False)
    work.jobs = [over("CANCELLED", 0, job_id=1, current_working_directory=str(place))]
    assert names(asked(work)) == ["a"]


# What interrupted submissions have left

UPLOAD, ASIDE = ".incoming-0123456789ab", ".not-of-7-0123456789ab"


def left(work: Folder) -> tuple[Path, Path]:
    """Copies of inputs that no job came for, and a folder that was put aside."""
    jobs = work.work / "jobs"
    upload, aside = jobs / str(UID) / UPLOAD, jobs / ASIDE
    for folder in (upload, aside / "inner"):
        folder.mkdir(parents=True)
    (upload / "data.csv").write_text("x" * 9000)
    (aside / "inner" / "file").write_text("x")
    return upload, aside


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """The clock goes on: no program can set when a name was given to a folder."""
    now = time.time()
    monkeypatch.setattr("dshpc_setup.jobs.leftovers.time.time", lambda: now + seconds)


def test_leftovers_of_interrupted_submissions_go(
    work: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload, aside = left(work)
    (work.work / "jobs" / str(UID) / ".workflows").mkdir()
    (work.work / "jobs" / str(UID) / ".incoming-mine").mkdir()
    assert asked(work)["leftovers"] == []
    later(monkeypatch, 31 * DAY)
    told = asked(work)["leftovers"]
    assert {(each["name"], each["kind"]) for each in told} == {
        (UPLOAD, "upload"),
        (ASIDE, "put-aside"),
    }
    assert next(each for each in told if each["name"] == UPLOAD)["bytes"] >= 9000
    done = asked(work, remove=(UPLOAD,))
    assert (done["removed"], done["failed"], upload.exists()) == ([UPLOAD], [], False)
    assert aside.exists(), "it was not agreed to"
    assert asked(work, remove=(ASIDE, UPLOAD))["removed"] == [ASIDE]
    assert work.names() == [".incoming-mine", ".workflows"]


def test_a_leftover_that_may_be_under_way_stays(
    work: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload, _ = left(work)
    later(monkeypatch, 3000)
    assert asked(work, older_than="0")["leftovers"] == []
    later(monkeypatch, 4000)
    assert len(asked(work, older_than="0")["leftovers"]) == 2
    here = os.open(upload, os.O_RDONLY)
    folder_lock.hold(here)
    told = asked(work, older_than="0")["leftovers"]
    assert [each["name"] for each in told] == [ASIDE], "a submission holds the other"
    assert asked(work, older_than="0", remove=(UPLOAD,))["removed"] == []
    os.close(here)
    assert asked(work, older_than="0", remove=(UPLOAD,))["removed"] == [UPLOAD]


def test_a_link_is_removed_and_what_it_leads_to_is_not(
    work: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = work.workspace("precious", 1, days=0)
    link = work.work / "jobs" / str(UID) / UPLOAD
    link.symlink_to(precious)
    later(monkeypatch, 31 * DAY)
    asked(work, remove=(UPLOAD,))
    assert (precious / "output.log").exists()
    assert not link.is_symlink()


def test_copies_are_held_by_their_submission(tmp_path: Path) -> None:
    source = tmp_path / "data.csv"
    source.write_text("x")
    work = tmp_path / "work"
    (work / "jobs").mkdir(parents=True)
    incoming = Incoming(str(work))
    incoming.take(str(source))
    name = os.path.basename(incoming.folder or "")
    with (
        workspace.user_opened(str(work), UID) as user,
        pytest.raises(BlockingIOError),
        folder_lock.alone(name, user),
    ):
        pass
    incoming.remove()
    assert list((work / "jobs" / str(UID)).iterdir()) == []
