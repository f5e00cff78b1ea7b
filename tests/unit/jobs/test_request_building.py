from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import request_building, safe_open, submit
from dshpc_setup.jobs.request_building import CommandLine
from dshpc_setup.jobs.sizes import mib
from dshpc_setup.jobs.staging import Incoming
from dshpc_setup.methods.model import Resources


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    method(tmp_path, "train", parameters=[{"name": "x", "type": "integer", "required": True}])
    return tmp_path


def method(project: Path, name: str, **more: Any) -> None:
    folder = project / "methods" / name
    folder.mkdir(parents=True)
    (folder / "run.py").write_text("print()\n")
    (folder / "method.json").write_text(
        json.dumps({"name": name, "command": "python3 -u", "script_path": "run.py", **more})
    )


def incoming(project: Path, *, dry: bool = False) -> Incoming:
    return Incoming(str(project / "work"), dry=dry)


def test_a_method_becomes_words_and_typed_values(project: Path) -> None:
    found = request_building.of_method(
        CommandLine("train", parameters=("x=3",), gpus="2", memory="16G", time="2h"),
        str(project),
        incoming(project),
    )
    folder = f"{project}/methods/train"
    assert found.argv == ("python3", "-u", f"{folder}/run.py")
    assert (found.method_dir, found.parameters, found.kind) == (folder, ({"x": 3},), "method")
    wanted = found.resources
    assert (wanted.gpus, wanted.memory_mb, wanted.time_limit) == (2, 16384, 120)


def own_method(folder: Path) -> Path:
    """Somebody's own, with more than one file."""
    method(folder, "mine")
    mine = folder / "methods" / "mine"
    (mine / "lib").mkdir()
    (mine / "lib" / "part.py").write_text("X = 1\n")
    (mine / "lib" / "tool").write_text("#!/bin/sh\n")
    (mine / "lib" / "tool").chmod(0o755)
    (mine / ".git").mkdir()
    (mine / ".git" / "HEAD").write_text("")
    return mine


def test_a_method_is_run_by_its_path(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = own_method(project / "work" / "ada")
    monkeypatch.chdir(mine.parent)
    for called in ("./mine", "mine/method.json", str(mine)):
        found = request_building.of_method(CommandLine(called), str(project), incoming(project))
        assert (found.name, found.method_dir, found.incoming) == ("mine", str(mine), None)
        assert found.argv[-1] == f"{mine}/run.py"
    train = request_building.of_method(
        CommandLine(f"{project}/methods/train", parameters=("x=1",)),
        str(project),
        incoming(project),
    )
    assert train.method_dir == f"{project}/methods/train"
    with pytest.raises(DshpcError, match=r"There is no method\.json in other"):
        request_building.of_method(CommandLine("./other"), str(project), incoming(project))


def test_a_method_from_elsewhere_is_copied_as_inputs_are(project: Path, tmp_path: Path) -> None:
    mine = own_method(tmp_path / "home")
    coming = incoming(project)
    (tmp_path / "a.csv").write_text("a\n")
    found = request_building.of_method(
        CommandLine(str(mine), inputs=(str(tmp_path / "a.csv"),)), str(project), coming
    )
    assert found.method_dir == f"{found.incoming}/.method"
    copied = Path(found.method_dir)
    there = {str(path.relative_to(copied)) for path in copied.rglob("*") if path.is_file()}
    assert there == {"method.json", "run.py", "lib/part.py", "lib/tool"}
    assert (copied / "lib" / "tool").stat().st_mode & 0o777 == 0o700
    inside = submit.moved_in(found, "/w/jobs/1/mine-1")
    assert inside.method_dir == "/w/jobs/1/mine-1/inputs/.method"
    assert inside.argv[-1] == "/w/jobs/1/mine-1/inputs/.method/run.py"
    assert inside.inputs == ("/w/jobs/1/mine-1/inputs/a.csv",)
    coming.remove()
    assert not copied.exists()


def test_a_method_that_is_too_large_is_not_copied(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = own_method(tmp_path / "home")
    monkeypatch.setattr("dshpc_setup.jobs.method_copy._MOST_ENTRIES", 4)
    with pytest.raises(DshpcError, match="too large to be copied"):
        request_building.of_method(CommandLine(str(mine)), str(project), incoming(project))
    assert not (project / "work" / "jobs").exists()


def test_a_check_copies_nothing(project: Path, tmp_path: Path) -> None:
    mine = own_method(tmp_path / "home")
    request_building.to_check(CommandLine(str(mine)), str(project), incoming(project, dry=True))
    assert not (project / "work" / "jobs").exists()


def test_wrong_parameters_are_usage_errors_that_say_all(project: Path) -> None:
    with pytest.raises(DshpcError) as told:
        request_building.of_method(
            CommandLine("train", parameters=("x=three", "y=1")), str(project), incoming(project)
        )
    assert told.value.exit_code == 64
    assert len(told.value.details.splitlines()) == 2


def test_a_table_makes_an_array(project: Path) -> None:
    table = project / "sets.csv"
    table.write_text("x\n1\n2\n")
    found = request_building.of_method(
        CommandLine("train", array=str(table)), str(project), incoming(project)
    )
    assert (found.is_array, found.parameters) == (True, ({"x": 1}, {"x": 2}))
    with pytest.raises(DshpcError, match="exclude each other"):
        request_building.of_method(
            CommandLine("train", array=str(table), parameters=("x=1",)),
            str(project),
            incoming(project),
        )
    with pytest.raises(DshpcError, match="cannot be read"):
        request_building.of_method(
            CommandLine("train", array="/missing"), str(project), incoming(project)
        )


def test_a_result_that_is_needed_is_the_newest_that_is_good(project: Path) -> None:
    method(project, "test", requires=["train"])
    with pytest.raises(DshpcError, match="needs the result of the method train"):
        request_building.of_method(CommandLine("test"), str(project), incoming(project))
    for number, code in enumerate((0, 0, 1)):
        own = project / f"work/jobs/{os.getuid()}/train-{number}/.job"
        own.mkdir(parents=True)
        (own / "job.json").write_text(
            json.dumps({"kind": "method", "name": "train", "job_id": "7"})
        )
        (own / "result.json").write_text(json.dumps({"exit_code": code}))
        os.utime(own, (number, number))
    # A file that somebody has put into an older one does not make that the newest
    os.utime(project / f"work/jobs/{os.getuid()}/train-0", (9e9, 9e9))
    found = request_building.of_method(CommandLine("test"), str(project), incoming(project))
    assert found.requires == {"train": str(project / f"work/jobs/{os.getuid()}/train-1")}


@pytest.mark.parametrize("told", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", None])
def test_a_program_that_was_told_to_stop_has_no_good_result(
    project: Path, told: str | None
) -> None:
    method(project, "test", requires=["train"])
    own = project / f"work/jobs/{os.getuid()}/train-1/.job"
    own.mkdir(parents=True)
    (own / "job.json").write_text(json.dumps({"kind": "method", "name": "train", "job_id": "7"}))
    (own / "result.json").write_text(json.dumps({"exit_code": 0, "told_to_stop": told}))
    if told in (None, "SIGUSR1"):  # a program may be told to save its state, and go on
        assert request_building.of_method(
            CommandLine("test"), str(project), incoming(project)
        ).requires
        return
    with pytest.raises(DshpcError, match="of which no run has ended well yet"):
        request_building.of_method(CommandLine("test"), str(project), incoming(project))


def test_another_users_result_is_not_taken(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method(project, "test", requires=["train"])
    own = project / f"work/jobs/{os.getuid()}/train-1/.job"
    own.mkdir(parents=True)
    (own / "job.json").write_text(json.dumps({"kind": "method", "name": "train", "job_id": "7"}))
    (own / "result.json").write_text(json.dumps({"exit_code": 0}))
    uid = os.getuid()
    for who, owner, good in (
        (uid, None, True), (0, (uid, 7), True), (uid + 1, None, False), (0, (uid + 1, 7), False),
    ):  # fmt: skip
        monkeypatch.setattr("os.getuid", lambda who=who: who)
        monkeypatch.setattr(safe_open, "given_owner", lambda _, who=who: who)
        asked = Incoming(str(project / "work"), owner)
        if good:
            assert request_building.of_method(CommandLine("test"), str(project), asked).requires
        else:
            with pytest.raises(DshpcError, match="no run has ended well yet"):
                request_building.of_method(CommandLine("test"), str(project), asked)


def test_a_result_of_a_method_that_is_not_there(project: Path) -> None:
    method(project, "test", requires=["trian"])
    with pytest.raises(DshpcError, match="There is no method") as told:
        request_building.of_method(CommandLine("test"), str(project), incoming(project))
    assert told.value.resolution[0] == "Did you mean train?"


def test_input_files_that_are_too_many(project: Path) -> None:
    method(project, "one", input_modes=["single_file"])
    inputs = tuple(str(project / name) for name in "ab")
    with pytest.raises(DshpcError) as told:
        request_building.of_method(
            CommandLine("one", inputs=inputs), str(project), incoming(project)
        )
    assert told.value.details == (
        "--input: one takes one file as input, and got 2 files. Give --input once."
    )


def test_parameters_and_inputs_are_refused_together(project: Path) -> None:
    need = [{"name": "x", "type": "integer", "required": True}]
    method(project, "both", input_modes=["single_file"], parameters=need)
    with pytest.raises(DshpcError, match="does not fit the method both") as told:
        request_building.of_method(CommandLine("both"), str(project), incoming(project))
    lines = told.value.details.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["-p", "--input"]


def test_a_check_says_which_results_are_still_needed(project: Path) -> None:
    method(project, "test", requires=["train", "nothing-such"])
    request, missing = request_building.to_check(
        CommandLine("test", gpus="2"), str(project), incoming(project)
    )
    assert (request.resources.gpus, request.name, request.requires) == (2, "test", {})
    assert missing[0] == (
        "It needs the result of the method train, of which no run has ended well yet. "
        "Run that first: dshpc method run train --wait"
    )
    assert missing[1].startswith('There is no method "nothing-such".')
    assert request_building.to_check(CommandLine("train"), str(project), incoming(project))[1] == []


def test_an_array_is_good_once_all_its_tasks_are(project: Path) -> None:
    method(project, "test", requires=["train"])
    own = project / f"work/jobs/{os.getuid()}/train-1/.job"
    own.mkdir(parents=True)
    told = {"kind": "method", "name": "train", "job_id": "7", "tasks": 2}
    (own / "job.json").write_text(json.dumps(told))
    for task, code in ((0, 0), (1, 1)):
        with pytest.raises(DshpcError, match="of which no run has ended well yet"):
            request_building.of_method(CommandLine("test"), str(project), incoming(project))
        (own / f"result-{task}.json").write_text(json.dumps({"exit_code": code}))
    with pytest.raises(DshpcError, match="of which no run has ended well yet"):
        request_building.of_method(CommandLine("test"), str(project), incoming(project))
    (own / "result-1.json").write_text(json.dumps({"exit_code": 0}))
    found = request_building.of_method(CommandLine("test"), str(project), incoming(project))
    assert found.requires == {"train": str(project / f"work/jobs/{os.getuid()}/train-1")}


@pytest.mark.parametrize(
    "asked",
    [
        CommandLine(gpus="-1"), CommandLine(gpus="1.5"), CommandLine(cpus="two"),
        CommandLine(gpu_memory="8XB"), CommandLine(memory="0"), CommandLine(time="soon"),
        CommandLine(time="0"),
    ],
)  # fmt: skip
def test_amounts_that_are_none(asked: CommandLine) -> None:
    with pytest.raises(DshpcError) as told:
        request_building.with_asked(Resources(), asked)
    assert told.value.exit_code == 64


def test_who_says_which_gpu_wants_one() -> None:
    assert request_building.with_asked(Resources(), CommandLine(gpu_memory="8GB")).gpus == 1
    assert request_building.with_asked(Resources(gpus=2), CommandLine(gpu_type="h100")).gpus == 2
    assert request_building.with_asked(Resources(gpus=2), CommandLine(gpus="0")).gpus == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GB", 8192), ("8g", 8192), ("8GiB", 8192), ("4096MB", 4096), ("4096M", 4096),
        ("4096", 4096), ("1T", 1048576), ("0", None), ("-1", None), ("1.5G", None), ("٣G", None),
        ("G", None), ("8KB", None), ("", None),
    ],
)  # fmt: skip
def test_sizes(text: str, size: int | None) -> None:
    assert mib(text) == size


def test_a_plain_command(project: Path) -> None:
    found = request_building.of_command(
        CommandLine(command=("/bin/echo", "$(id)")), incoming(project)
    )
    assert (found.kind, found.name, found.argv) == ("command", "echo", ("/bin/echo", "$(id)"))
    with pytest.raises(DshpcError, match="no command"):
        request_building.of_command(CommandLine(), incoming(project))
    with pytest.raises(DshpcError, match="not valid UTF-8"):
        request_building.of_command(CommandLine(command=("echo", "\udcff")), incoming(project))


def test_inputs_in_the_work_folder_stay_and_others_are_copied(project: Path) -> None:
    work = project / "work"
    (work / "a").write_text("a")
    for number in (1, 2):
        (project / str(number)).mkdir()
        (project / str(number) / "b").write_text(str(number))
    (work / "link").symlink_to(project / "1/b")
    taking = incoming(project)
    assert taking.take(str(work / "a")) == str(work / "a")
    assert taking.folder is None
    first, second = taking.take(str(project / "1/b")), taking.take(str(project / "2/b"))
    assert taking.take(str(work / "link")) == first  # one file, one copy
    assert (Path(first).read_text(), Path(second).read_text()) == ("1", "2")
    assert {Path(first).parent, Path(second).parent} == {Path(str(taking.folder))}
    assert Path(first).parent.parent == work / "jobs" / str(os.getuid())
    taking.remove()
    assert list((work / "jobs" / str(os.getuid())).iterdir()) == []


def test_a_dry_run_copies_nothing(project: Path) -> None:
    (project / "b").write_text("b")
    taking = incoming(project, dry=True)
    assert taking.take(str(project / "b")).endswith("/b")
    assert list((project / "work").iterdir()) == []


@pytest.mark.parametrize("name", ["missing", "methods"])
def test_what_is_no_file_is_refused(name: str, project: Path) -> None:
    with pytest.raises(DshpcError) as told:
        incoming(project).take(str(project / name))
    assert told.value.exit_code == 64


def test_targets_and_no_waiting(project: Path) -> None:
    asked = CommandLine(command=("true",), targets=("n::0,2", "n"), no_wait=True, gpus="2")
    found = request_building.of_command(asked, incoming(project))
    assert (found.node, found.targets, found.if_busy) == ("n", (("0", "2"), ()), "refuse")
    plain = request_building.of_command(CommandLine(command=("true",)), incoming(project))
    assert (plain.node, plain.targets, plain.if_busy) == (None, (), "wait")


def test_targets_on_several_nodes(project: Path) -> None:
    asked = CommandLine(command=("true",), targets=("n::0,2", "m"))
    found = request_building.of_command(asked, incoming(project))
    assert (found.node, found.target_nodes) == (None, ("n", "m"))
    with pytest.raises(DshpcError, match="--nodes and --target exclude each other"):
        request_building.of_command(replace(asked, nodes="2"), incoming(project))


@pytest.mark.parametrize("count", ["0", "x", "-1", "1.5", "\u0662"])
def test_what_is_no_number_of_nodes_is_refused(project: Path, count: str) -> None:
    with pytest.raises(DshpcError) as told:
        request_building.of_command(CommandLine(command=("true",), nodes=count), incoming(project))
    assert told.value.exit_code == 64
    two = request_building.of_command(CommandLine(command=("true",), nodes="2"), incoming(project))
    assert two.resources.nodes == 2


def test_a_count_that_contradicts_a_target_is_refused(project: Path) -> None:
    asked = CommandLine(command=("true",), targets=("n::0,2",), gpus="1")
    with pytest.raises(DshpcError, match="--gpus 1 and --target n::0,2 contradict"):
        request_building.of_command(asked, incoming(project))


def test_a_command_runs_where_it_was_typed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "work/a b").mkdir()
    (project / "work/a b/train.py").touch()
    asked = CommandLine(command=("python3", "train.py"))
    for folder in ("work/a b", "work"):
        monkeypatch.chdir(project / folder)
        assert request_building.of_command(asked, incoming(project)).cwd == f"{project}/{folder}"
    (project / "link").symlink_to(project / "work")
    monkeypatch.chdir(project / "work/a b")
    found = request_building.of_command(asked, Incoming(str(project / "link")))
    assert found.cwd == f"{project}/link/a b"  # the container has it by that name


def test_elsewhere_it_runs_in_its_workspace_and_cannot_have_files_from_there(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "work-of-others").mkdir()
    monkeypatch.chdir(project / "work-of-others")
    for name in ("train.py", "python3"):
        Path(name).touch()
    seen = request_building.of_command(
        CommandLine(command=("python3", "other.py", "a\0")), incoming(project)
    )
    assert seen.cwd is None
    for command in (("python3", "train.py"), ("./train.py",)):
        with pytest.raises(DshpcError, match="cannot see") as told:
            request_building.of_command(CommandLine(command=command), incoming(project))
        assert told.value.exit_code == 64


def test_gpus_that_are_asked_for_go_before_never() -> None:
    never = Resources(gpus=2, optional_gpus="never")
    assert request_building.with_asked(never, CommandLine(gpus="1")).optional_gpus == "always"
    assert (
        request_building.with_asked(never, CommandLine(gpu_type="h100")).optional_gpus == "always"
    )
    assert request_building.with_asked(never, CommandLine(gpus="0")).optional_gpus == "never"
    assert request_building.with_asked(never, CommandLine(cpus="1")).optional_gpus == "never"


def test_shards_of_a_certain_gpu_are_no_whole_one() -> None:
    found = request_building.with_asked(Resources(), CommandLine(shards="2", gpu_memory="8GB"))
    assert (found.gpus, found.shards, found.gpu_memory_mb) == (0, 2, 8192)
    assert (
        request_building.with_asked(Resources(), CommandLine(shards="0", gpu_memory="8GB")).gpus
        == 1
    )


def test_shards_take_the_place_of_whole_gpus_and_these_of_shards() -> None:
    found = request_building.with_asked(
        Resources(gpus=1, optional_gpus="auto"), CommandLine(shards="2")
    )
    assert (found.gpus, found.shards) == (0, 2)
    found = request_building.with_asked(Resources(shards=2), CommandLine(gpus="1"))
    assert (found.gpus, found.shards) == (1, 0)
    both = request_building.with_asked(Resources(), CommandLine(gpus="1", shards="1"))
    assert (both.gpus, both.shards) == (1, 1)  # refused later, with why
    assert request_building.with_asked(Resources(gpus=2), CommandLine(shards="0")).gpus == 2


def test_a_time_without_sense_is_refused() -> None:
    assert (
        request_building.with_asked(Resources(), CommandLine(time="3660d")).time_limit
        == 3660 * 1440
    )
    with pytest.raises(DshpcError, match="more than ten years"):
        request_building.with_asked(Resources(), CommandLine(time="3661d"))


def test_a_table_that_the_method_has_itself_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / "methods/train/sets.csv").write_text("n\n1\n")
    for name, steps in (
        ("sets.csv", (f"The method has one: --array {project}/methods/train/sets.csv",)),
        ("none.csv", ()),
    ):
        with pytest.raises(DshpcError, match="cannot be read: No such file") as told:
            request_building.of_method(
                CommandLine(name="train", array=name), str(project), Incoming(str(project))
            )
        assert told.value.resolution == steps


def test_what_is_asked_before_anything_is_made_has_the_size_of_the_job(project: Path) -> None:
    method(project, "big", resources={"gpus": 3}, image="nowhere.tar")
    found = request_building.foreseen(CommandLine("big", cpus="2"), str(project), "/w")
    assert (found.resources.gpus, found.resources.cpus, found.dry_run) == (3, 2, True)
    plain = CommandLine(command=("x",), image="nowhere.tar", gpus="4", no_wait=True)
    found = request_building.foreseen(plain, str(project), "/w")
    assert (found.resources.gpus, found.image, found.if_busy) == (4, None, "refuse")


def test_a_part_of_a_minute_is_told_once() -> None:
    for said, whole in (
        ("1s", "1 minute"),
        ("0:31", "1 minute"),
        ("90s", "2 minutes"),
        ("1:00:01", "61 minutes"),
    ):
        asked = CommandLine(time=said)
        first, other = request_building.noted({"notes": ["other"]}, asked)["notes"]
        assert first.startswith(f"--time {said} becomes {whole}: ")
        assert other == "other"
        jobs = request_building.noted({"jobs": [{"notes": []}, {"notes": []}]}, asked)["jobs"]
        assert [job["notes"] for job in jobs] == [[first], []]
    for whole_minutes in ("60s", "2h", "90", None):
        assert request_building.notes(CommandLine(time=whole_minutes)) == ()


@pytest.mark.parametrize("optional", ["auto", "always", "never"])
def test_who_asks_for_gpus_gets_them_or_is_refused(optional: Any) -> None:
    of_method = Resources(gpus=1, optional_gpus=optional)
    for asked in (CommandLine(gpus="3"), CommandLine(gpu_type="h100")):
        assert request_building.with_asked(of_method, asked).optional_gpus == "always"
    for asked in (CommandLine(), CommandLine(gpus="0"), CommandLine(cpus="2")):
        assert request_building.with_asked(of_method, asked).optional_gpus == optional
