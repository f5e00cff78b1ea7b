"""The launcher's own part: variables, files, words; it is run for real in tests/integration/test_jobs.py."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dshpc_setup.jobs import launch, rights, safe_open
from dshpc_setup.jobs import own_workspace as workspace
from dshpc_setup.jobs.own_workspace import OwnWorkspace
from dshpc_setup.jobs.request import Request
from dshpc_setup.jobs.workspace import user_opened
from dshpc_setup.methods.model import Resources


def request(**changes: Any) -> dict[str, Any]:
    value = Request("command", "x", ("python3", "a b.py"), "/lab", **changes).to_json()
    found = json.loads(json.dumps(value))
    assert isinstance(found, dict)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".job").mkdir()
    return tmp_path


def at(folder: Path) -> OwnWorkspace:
    """That workspace as the launcher has it, which goes on to stand where it stood."""
    return OwnWorkspace(
        str(folder), safe_open.folder(str(folder)), safe_open.folder(str(folder / ".job"))
    )


def test_a_job_is_told_its_places(folder: Path) -> None:
    found = launch.prepared(at(folder), request(parameters=({"n": 1, "s": "ü"},)), None)
    params = folder / ".job" / "params.json"
    assert found == {
        "JOB_WORKSPACE": str(folder),
        "PARAMS_FILE": str(params),
        "INPUT_FILES": "[]",
    }
    assert json.loads(params.read_text(encoding="utf-8")) == {"n": 1, "s": "ü"}
    assert params.stat().st_mode & 0o777 == 0o600  # a parameter may be a secret


def test_inputs_the_method_and_results_of_others(folder: Path) -> None:
    asked = request(inputs=("/a b", "/c"), method_dir="/m", requires={"prepare": "/lab/jobs/p"})
    found = launch.prepared(at(folder), asked, None)
    assert found["INPUT_FILE"] == "/a b"
    assert json.loads(found["INPUT_FILES"]) == ["/a b", "/c"]
    assert found["METHOD_DIR"] == "/m"
    assert json.loads(Path(found["REQUIRES_FILE"]).read_text()) == {"prepare": "/lab/jobs/p"}


def test_each_task_of_an_array_has_its_own(folder: Path) -> None:
    asked = request(parameters=({"n": 0}, {"n": 1}), is_array=True)
    found = launch.prepared(at(folder), asked, 1)
    assert found["JOB_WORKSPACE"] == f"{folder}/task-1"
    assert (folder / "task-1").is_dir()
    assert json.loads((folder / ".job" / "params-1.json").read_text()) == {"n": 1}
    assert not (folder / ".job" / "params-0.json").exists()


def test_a_methods_variables_do_not_replace_ours(folder: Path) -> None:
    env = {"OMP_NUM_THREADS": "4", "JOB_WORKSPACE": "/elsewhere"}
    found = launch.prepared(at(folder), request(resources=Resources(env=env)), None)
    assert found["OMP_NUM_THREADS"] == "4"
    assert found["JOB_WORKSPACE"] == str(folder)


VALUES = st.dictionaries(st.text(max_size=8), st.text(max_size=30) | st.integers() | st.booleans())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(parameters=VALUES)
def test_parameters_are_data(folder: Path, parameters: dict[str, Any]) -> None:
    launch.prepared(at(folder), {**request(), "parameters": [parameters]}, None)
    text = (folder / ".job" / "params.json").read_text(encoding="utf-8")
    assert json.loads(text) == parameters


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (Resources(), ["python3", "a b.py"]),
        (Resources(tasks=1, nodes=1), ["python3", "a b.py"]),
        (Resources(tasks=2), ["srun", "--", "python3", "a b.py"]),
        (Resources(nodes=2), ["srun", "--", "python3", "a b.py"]),
    ],
)
def test_several_tasks_go_through_srun(resources: Resources, expected: list[str]) -> None:
    environ = {"SLURM_CPUS_PER_TASK": "3"}
    assert launch.words(request(resources=resources), environ) == expected
    assert environ.get("SRUN_CPUS_PER_TASK") == ("3" if expected[0] == "srun" else None)


def test_a_request_without_a_program_is_refused() -> None:
    with pytest.raises(ValueError, match="no program"):
        launch.words({**request(), "argv": []}, {})


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("os.environ", os.environ.copy())
    return folder


@pytest.mark.parametrize(
    "wrong", ["[]", "{", '{"argv": [], "resources": {}}', '{"argv": ["x"], "resources": 1}']
)
def test_a_request_that_is_damaged_is_no_crash(
    here: Path, wrong: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (here / ".job" / "request.json").write_text(wrong)
    assert launch.main() == launch.NOT_FOUND
    assert "does not say what to run" in capfd.readouterr().err


def test_a_folder_of_somebody_else_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    workspace.opened(str(here))
    (here / ".job" / "request.json").write_text(json.dumps(request()))
    other = os.getuid() + 1
    monkeypatch.setattr("os.getuid", lambda: other)
    # What that one makes here is of that one
    monkeypatch.setattr(safe_open, "given_owner", lambda _: other)
    with pytest.raises(safe_open.NotTheirsError):
        workspace.opened(str(here))
    assert launch.main() == launch.NOT_FOUND
    assert "no workspace of this user's" in capfd.readouterr().err


def test_where_all_files_are_given_to_another_the_workspace_is_ours(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = os.getuid()
    monkeypatch.setattr("os.getuid", lambda: owner + 1)  # what we make is of `owner` all the same
    at = workspace.opened(str(here))
    assert safe_open.others_given(at.folder) == owner
    assert sorted(path.name for path in here.iterdir()) == [".job"]
    monkeypatch.setattr(safe_open, "given_owner", lambda _: None)  # we may not write there
    with pytest.raises(safe_open.NotTheirsError):
        workspace.opened(str(here))


def test_where_all_users_are_one_id_files_are_whoevers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that takes its owner's jobs alone: in its container the owner's folder is root's."""
    (tmp_path / "jobs" / "1101").mkdir(parents=True)
    with pytest.raises(safe_open.NotTheirsError), user_opened(str(tmp_path), 1101):
        pass
    monkeypatch.setattr(rights, "is_one_id", lambda: True)
    with user_opened(str(tmp_path), 1101) as folder:
        assert os.fstat(folder).st_ino == (tmp_path / "jobs" / "1101").stat().st_ino
    monkeypatch.setattr("os.getuid", lambda: 7)  # another than whose all files are
    monkeypatch.setattr(safe_open, "given_owner", lambda _: None)
    with pytest.raises(safe_open.NotTheirsError), user_opened(str(tmp_path), 1101):
        pass


def test_a_workspace_in_a_folder_of_somebody_else_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who owns that could have put another workspace of ours in its place."""
    fstat, above = os.fstat, os.stat("..").st_ino

    def told(handle: int) -> os.stat_result:
        found = fstat(handle)
        theirs = [*found[:4], found.st_uid + 1, *found[5:]]
        return os.stat_result(theirs) if found.st_ino == above else found

    monkeypatch.setattr("os.fstat", told)
    with pytest.raises(safe_open.NotTheirsError):
        workspace.opened(str(here))


def test_a_link_to_a_folder_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / ".job").symlink_to(tmp_path / "own")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotADirectoryError):
        workspace.opened(str(tmp_path))


def test_a_request_that_is_a_link_is_not_read(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (here / "elsewhere").write_text(json.dumps(request()))
    (here / ".job" / "request.json").symlink_to(here / "elsewhere")
    assert launch.main() == launch.NOT_FOUND
    assert "does not say what to run" in capfd.readouterr().err


def test_a_job_that_was_taken_back_as_it_began_does_not_run(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (here / ".job" / "request.json").write_text(json.dumps(request()))
    prepared = launch.prepared

    def taken_away(*words: Any) -> dict[str, str]:
        (here / ".job").rename(here / "aside")
        return prepared(*words)

    monkeypatch.setattr(launch, "prepared", taken_away)
    assert launch.main() == launch.NOT_FOUND
    assert "taken back" in capfd.readouterr().err
    assert (here / "aside/params.json").exists()  # by which the submission sees that it had begun


def test_the_log_is_read_by_its_user_alone(here: Path) -> None:
    log = here / "output.log"
    kept = os.dup(1)
    try:
        for mode, of_log in ((0o700, 0o600), (0o750, 0o640)):
            here.chmod(mode)
            log.write_text("")
            log.chmod(0o644)
            handle = os.open(log, os.O_WRONLY)
            os.dup2(handle, 1)
            os.close(handle)
            workspace.keep_log_private(workspace.opened(str(here)))
            assert log.stat().st_mode & 0o777 == of_log
    finally:
        os.dup2(kept, 1)
        os.close(kept)


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


@pytest.mark.parametrize(
    ("told", "status", "said"),
    [
        ([], 1 << 8, "gpu"),
        (["SIGUSR1"], 1 << 8, "gpu"),
        (["SIGTERM"], 1 << 8, None),
        (["SIGUSR1", "SIGTERM"], 15, None),
        ([], 0, None),
    ],
)
def test_one_that_was_told_to_stop_is_not_judged(
    folder: Path, told: list[str], status: int, said: str | None
) -> None:
    run = launch._Run(at(folder), None, ["x"])
    (folder / "output.log").write_text(OOM)
    run.told = told
    run._end(status, 2048, 5.0)
    result = json.loads((folder / ".job" / "result.json").read_text())
    assert result["out_of_memory"] == said
    assert result["told_to_stop"] == (told[0] if told else None)


def test_a_signal_that_has_no_name(folder: Path) -> None:
    run = launch._Run(at(folder), None, ["x"])
    assert run._end(40, 2048, 5.0) == 168
    assert json.loads((folder / ".job" / "result.json").read_text())["signal"] == "signal 40"


def test_a_signal_that_comes_as_the_job_has_just_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = launch._Run(at(folder), None, ["x"])
    run.child = 2**22 + 1
    asked: list[int] = []

    def gone(pid: int, _: int) -> None:
        asked.append(pid)
        raise ProcessLookupError

    monkeypatch.setattr("os.kill", gone)
    monkeypatch.setattr("signal.setitimer", lambda *_: None)
    run._forward(signal.SIGTERM, None)
    assert asked == []  # it may have been told already
    run._deliver()
    assert (run.told, asked) == (["SIGTERM"], [2**22 + 1])


@pytest.mark.parametrize(
    ("heard", "handed"),
    [
        (None, [signal.SIGTERM, signal.SIGUSR1]),  # it was told alone
        (signal.SIGTERM, [signal.SIGUSR1]),
        (signal.SIGKILL, [signal.SIGTERM, signal.SIGUSR1]),
    ],
)
def test_what_all_were_told_is_not_handed_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, heard: int | None, handed: list[int]
) -> None:
    run = launch._Run(at(folder), None, ["x"])
    run.child = 77
    given: list[int] = []
    monkeypatch.setattr(run.witness, "heard", lambda: heard)
    monkeypatch.setattr("os.kill", lambda _, number: given.append(number))
    monkeypatch.setattr("signal.setitimer", lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        run._forward(number, None)
    run._deliver()
    run._deliver()
    assert (given, run.told) == (handed, ["SIGTERM", "SIGUSR1"])


def test_a_run_that_the_stop_of_the_container_cut_short_has_no_result(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = launch._Run(at(folder), None, ["x"])
    monkeypatch.setattr(launch, "JOBS_TOLD", str(folder / "stopping"))
    (folder / "stopping").mkdir()
    assert run._end(15, 2048, 5.0) == 143
    assert not (folder / ".job" / "result.json").exists()
    (folder / "stopping").rmdir()
    run._end(15, 2048, 5.0)
    assert (folder / ".job" / "result.json").exists()


def test_the_result_of_an_earlier_run_is_kept(folder: Path) -> None:
    own = folder / ".job"
    launch.keep_before(at(folder), None)
    assert list(own.iterdir()) == []
    (own / "result.json").write_text("1")
    (own / "result-7.json").write_text("7")
    launch.keep_before(at(folder), None)
    launch.keep_before(at(folder), 7)
    assert {path.name: path.read_text() for path in own.iterdir()} == {
        "result.before.json": "1",
        "result.before-7.json": "7",
    }


def test_a_file_is_replaced_whole_or_not_at_all(folder: Path) -> None:
    path = folder / ".job" / "x.json"
    launch.write_json("x.json", {"a": 1}, at(folder).own)
    path.with_name("x.json.dshpc-tmp").symlink_to("x.json")  # left behind, or laid there
    launch.write_json("x.json", {"a": 1}, at(folder).own)
    with pytest.raises(OSError, match="No such file"):
        launch.write_json("missing/x.json", {}, at(folder).own)
    assert json.loads(path.read_text()) == {"a": 1}
    assert [item.name for item in path.parent.iterdir() if "tmp" in item.name] == []


@pytest.fixture
def started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where the words are run, which are not."""
    found: list[str] = []

    def run(_: object) -> int:
        found.append(os.getcwd())
        return 0

    monkeypatch.setattr(launch._Run, "run", run)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.chdir(folder)
    return found


def test_a_job_runs_in_its_folder_else_in_its_workspace(folder: Path, started: list[str]) -> None:
    other = folder / "a b"
    other.mkdir()
    for cwd in (str(other), None):
        launch.write_json("request.json", request(cwd=cwd), at(folder).own)
        os.chdir(folder)
        assert launch.main() == 0
        assert os.environ["JOB_WORKSPACE"] == str(folder)
    assert started == [str(other), str(folder)]


def test_a_folder_that_is_gone_is_told(
    folder: Path, started: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    launch.write_json("request.json", request(cwd=f"{folder}/gone"), at(folder).own)
    assert launch.main() == 126
    assert started == []
    assert "gone, in which it was to run, cannot be entered" in capfd.readouterr().err
    result = json.loads((folder / ".job/result.json").read_text())
    assert "cannot be entered" in result["not_started"]


def test_what_it_says_can_fail_on_a_full_disk_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """sys.stderr would keep it, and fail again as the interpreter ends: exit code 120."""
    monkeypatch.setattr("sys.stderr", None)
    kept, full = os.dup(2), os.open("/dev/full", os.O_WRONLY)
    reads, writes = os.pipe()
    try:
        os.dup2(full, 2)
        launch._say("it is full")
        os.dup2(writes, 2)
        launch._say("größer \udcff")
    finally:
        os.dup2(kept, 2)
        for each in (kept, full, writes):
            os.close(each)
    with open(reads, "rb") as pipe:
        assert pipe.read().decode() == "dshpc: größer ?\n"


@pytest.mark.parametrize(
    ("word", "package"), [("Rscript", "r-base-core"), ("ffmpeg", "PACKAGE"), ("R", "r-base-core")]
)
def test_a_command_that_the_image_lacks(folder: Path, word: str, package: str) -> None:
    why, code = launch._Run(at(folder), None, [word])._why(FileNotFoundError(2, "x"))
    assert code == 127
    assert why.startswith(f"{word}: there is no such command in the cluster's container.")
    assert why.endswith(f"dshpc env add --apt {package}")


@pytest.mark.parametrize("word", ["echo hi", "./a.sh x | cat"])
def test_a_line_for_a_shell_is_no_missing_package(folder: Path, word: str) -> None:
    why, code = launch._Run(at(folder), None, [word])._why(FileNotFoundError(2, "x"))
    assert code == 127
    assert why.startswith(f"{word}: there is no command with these spaces in its name.")
    assert "apt" not in why


@pytest.mark.parametrize("word", ["./gone.py", "sub/../gone.py", "{here}/gone.py"])
def test_a_file_that_is_not_there_is_no_missing_package(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    word = word.format(here=tmp_path)
    why, code = launch._Run(at(folder), None, [word])._why(FileNotFoundError(2, "x"))
    assert code == 127
    assert why.startswith(
        f"{word}: there is no file {tmp_path}/gone.py in the cluster's container."
    )
    assert "apt" not in why


def test_a_file_of_this_folder_needs_its_slash(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("#!/usr/bin/python3\n")
    why, _ = launch._Run(at(folder), None, ["train.py"])._why(FileNotFoundError(2, "x"))
    assert why.endswith(f"lies in the folder {tmp_path}: ./train.py")
    (tmp_path / "train.py").write_text("#!/no/such\n")
    why, _ = launch._Run(at(folder), None, ["./train.py"])._why(FileNotFoundError(2, "x"))
    assert "its first line names is not there" in why
