from __future__ import annotations

import json
import os
import pwd
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import engine_client
from dshpc_setup.cli import exec as exec_command
from dshpc_setup.cli import exec_caller, exec_stdin, exec_zone
from dshpc_setup.cli.exec_session import Session
from dshpc_setup.project.folder import find_project
from dshpc_setup.terminal.commands import EXEC_COMMANDS
from tests.unit.engine.fake import Answer, FakeMachine

RUNTIME = {"container": "c", "work": "/w", "docker": "docker", "prefix": "p"}
ALL, NONE, OUT_PIPED = (True, True, True), (False, False, False), (True, False, True)


# Which commands get stdin


@pytest.mark.parametrize(
    "arguments",
    [
        ["job.sh"],
        ["--wrap=hostname"],
        ["--wrap", "hostname"],
        ["--wra=x"],
        ["-N", "1", "job.sh", "argument"],
        ["-N1", "-Hv", "-Jname", "job.sh"],
        ["--gres=gpu:1", "--time", "5", "--hold", "job.sh"],
        ["--parsable", "job.sh"],
        ["-k", "job.sh"],
        ["-Wp", "debug", "job.sh"],
        ["--", "job.sh"],
        ["--exclusive", "job.sh"],
    ],
)
def test_sbatch_with_a_script(arguments: list[str]) -> None:
    assert exec_stdin.sbatch_has_script(arguments)
    assert exec_stdin.mode("sbatch", arguments, NONE) == exec_stdin.NONE
    assert exec_stdin.mode("sbatch", arguments, ALL) == exec_stdin.NONE


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-N", "1"],
        ["--time", "5"],
        ["-vN", "2"],
        ["-J", "name", "--hold", "--output", "x.txt"],
        ["--gres=gpu:1", "--parsable"],
        ["--"],
    ],
)
def test_sbatch_that_reads_its_script(arguments: list[str]) -> None:
    assert not exec_stdin.sbatch_has_script(arguments)
    assert exec_stdin.mode("sbatch", arguments, NONE) == exec_stdin.DIRECT


@given(st.lists(st.text(max_size=6)))
def test_any_command_line_of_sbatch_can_be_read(arguments: list[str]) -> None:
    alone = exec_stdin.sbatch_has_script(["--hold", *arguments])
    assert alone == exec_stdin.sbatch_has_script(arguments)


@pytest.mark.parametrize(
    ("command", "arguments", "terminals", "wanted"),
    [
        ("srun", ["hostname"], ALL, exec_stdin.TTY),
        ("srun", ["hostname"], NONE, exec_stdin.DIRECT),
        ("srun", ["hostname"], OUT_PIPED, exec_stdin.PUMP),
        ("exec", ["cat"], (False, True, True), exec_stdin.DIRECT),
        ("shell", [], (True, True, False), exec_stdin.PUMP),
        ("squeue", ["-l"], ALL, exec_stdin.NONE),
        ("sinfo", [], NONE, exec_stdin.NONE),
        ("scancel", ["12"], ALL, exec_stdin.NONE),
        ("scancel", ["-i", "12"], ALL, exec_stdin.TTY),
        ("scancel", ["--interactive", "12"], ALL, exec_stdin.TTY),
        ("scontrol", [], ALL, exec_stdin.TTY),
        ("scontrol", ["-a"], ALL, exec_stdin.TTY),
        ("scontrol", ["show", "node"], ALL, exec_stdin.NONE),
    ],
)
def test_streams(
    command: str, arguments: list[str], terminals: tuple[bool, bool, bool], wanted: str
) -> None:
    assert exec_stdin.mode(command, arguments, terminals) == wanted


# The docker command line


def client(
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    arguments: list[str],
    environ: dict[str, str],
    terminals: tuple[bool, bool, bool] = NONE,
    here: str = "/w/sub",
) -> list[str]:
    monkeypatch.setattr(os, "isatty", lambda fd: terminals[fd])
    monkeypatch.setattr(os, "getcwd", lambda: here)
    call = exec_command.Call(command, arguments, RUNTIME)
    call.token = "t"
    return call.client((1000, 100, r"DOM\user"), environ)


@pytest.fixture(autouse=True)
def _umask() -> object:
    before = os.umask(0o027)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def localtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where /etc/localtime would be: there is none."""
    monkeypatch.setattr(exec_zone, "LOCALTIME", str(tmp_path / "localtime"))
    return tmp_path / "localtime"


BEHIND = ["/usr/local/lib/dshpc/as-user", "t", "1000", "100", r"DOM\user", "--"]


def test_the_whole_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert client(monkeypatch, "srun", ["-n", "1", "a b"], {}) == [
        *("docker", "exec", "-i", "-e", "DSHPC_WAIT_S=60", "-e", "DSHPC_UMASK=027"),
        *("-w", "/w/sub", "c", *BEHIND, "srun", "-n", "1", "a b"),
    ]


def test_what_speaks_to_people_knows_their_clock_and_how_we_are_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.localtime", lambda: SimpleNamespace(tm_gmtoff=-18000))
    monkeypatch.setattr(os, "getcwd", lambda: "/w/sub")
    found = exec_caller.for_people({"DSHPC_COMMAND": "/w/dshpc"})
    assert found == ["DSHPC_UTC_OFFSET_S=-18000", "DSHPC_COMMAND", "DSHPC_HERE=/w/sub"]
    on_path = {"DSHPC_COMMAND": "/w/dshpc", "DSHPC_ON_PATH": "yes"}
    assert exec_caller.for_people(on_path) == [*found, "DSHPC_ON_PATH"]
    monkeypatch.setattr(os, "getcwd", lambda: "/w/\udcff")
    offset = ["DSHPC_UTC_OFFSET_S=-18000"]
    assert exec_caller.for_people({"DSHPC_COMMAND": "/w/dshpc"}) == offset
    assert exec_caller.for_people({}) == offset
    call = exec_command.Call(exec_command.NODE, ["job", "list"], RUNTIME)
    call.more = found
    argv = call.client((0, 0, "root"), {})
    assert [argv[at + 1] for at, word in enumerate(argv) if word == "-e"][:3] == found


@pytest.mark.parametrize(
    ("link", "wanted"),
    [
        ("/usr/share/zoneinfo/Europe/Berlin", ["TZ=Europe/Berlin"]),
        ("/var/db/timezone/zoneinfo/America/Argentina/Ushuaia", ["TZ=America/Argentina/Ushuaia"]),
        ("/usr/share/zoneinfo/posix/Asia/Tokyo", ["TZ=Asia/Tokyo"]),
        ("/usr/share/zoneinfo/Etc/UTC", []),
        ("/usr/share/elsewhere", []),
    ],
)
def test_the_zone_of_the_machine(link: str, wanted: list[str], localtime: Path) -> None:
    localtime.symlink_to(link)
    assert exec_zone.variables({}) == wanted


@pytest.mark.parametrize(
    ("tz", "wanted"),
    [
        ("Asia/Kolkata", ["TZ=Asia/Kolkata"]),
        (":Asia/Kolkata", ["TZ=Asia/Kolkata"]),
        ("CET-1CEST,M3.5.0,M10.5.0/3", ["TZ=CET-1CEST,M3.5.0,M10.5.0/3"]),
        ("/usr/share/zoneinfo/Asia/Tokyo", ["TZ=Asia/Tokyo"]),
        *((none, []) for none in ("", ":", "UTC", "Etc/UTC", "/nowhere", "a\nb", "\udcff")),
    ],
)
def test_the_zone_that_the_caller_names(tz: str, wanted: list[str], localtime: Path) -> None:
    localtime.symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    assert exec_zone.variables({"TZ": tz}) == wanted


def test_the_zone_goes_along_with_commands_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    berlin = {"TZ": "Europe/Berlin"}
    for command, arguments in (("squeue", []), ("exec", ["date"]), ("shell", [])):
        assert "TZ=Europe/Berlin" in client(monkeypatch, command, arguments, berlin)
    argv = client(monkeypatch, exec_command.NODE, ["job", "submit"], berlin)
    assert (argv.count("DSHPC_TZ=Europe/Berlin"), argv.count("TZ=Europe/Berlin")) == (1, 0)
    argv = client(monkeypatch, "squeue", [], {**berlin, "DSHPC_PASS_ENV": "TZ"})
    assert argv.index("TZ=Europe/Berlin") < argv.index("TZ"), "the last one counts"


def test_a_submission_says_where_its_workspace_will_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    for words, said in (
        (["job", "submit"], True),
        (["job", "workflow"], True),
        (["job", "list"], False),
    ):
        argv = client(monkeypatch, exec_command.NODE, words, {})
        assert ("DSHPC_WORK=/w" in argv) is said
    assert "DSHPC_WORK=/w" not in client(monkeypatch, "srun", ["job", "submit"], {})


def test_exec_does_not_wait_for_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    assert client(monkeypatch, "exec", ["ls"], {}) == [
        *("docker", "exec", "-i", "-e", "DSHPC_UMASK=027", "-w", "/w/sub", "c", *BEHIND, "ls")
    ]


def test_the_containers_root_is_asked_for_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    call = exec_command.Call("exec", ["scontrol"], RUNTIME, as_root=True)
    call.token = "t"
    line = call.client((1000, 100, "ada"), {})
    assert line[-7:] == [engine_client.AS_USER, "t", "0", "0", "root", "--", "scontrol"]


@pytest.mark.parametrize("rest", [["id"], ["--root", "--", "id"], ["--", "id"]])
def test_a_shell_takes_no_command(rest: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert exec_command.main(["shell", *rest]) == 64
    assert "dshpc exec runs one.\nUsage: dshpc exec" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "ran", "as_root"),
    [
        (["exec", "--root", "--", "id", "--root"], ["id", "--root"], True),
        (["exec", "--root", "id"], ["id"], True),
        (["exec", "--", "--root"], ["--root"], False),
        (["exec", "id", "--root"], ["id", "--root"], False),
        (["shell", "--root"], ["bash", "-l"], True),
        (["srun", "--root"], ["srun", "--root"], False),
    ],
)
def test_root_is_meant_before_the_command_alone(
    arguments: list[str], ran: list[str], as_root: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[exec_command.Call] = []
    monkeypatch.setattr(exec_command, "runtime", lambda _: RUNTIME)

    def run(call: exec_command.Call) -> int:
        calls.append(call)
        return 0

    monkeypatch.setattr(exec_command, "run", run)
    assert exec_command.main(arguments) == 0
    assert [(call.argv, call.as_root) for call in calls] == [(ran, as_root)]


def test_a_shell_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = client(monkeypatch, "shell", [], {"TERM": "xterm"}, ALL, "/elsewhere")
    assert argv[:6] == ["docker", "exec", "-i", "-t", "-e", "TERM"]
    assert argv[argv.index("-w") + 1] == "/w"
    assert argv[-2:] == ["bash", "-l"]
    assert "TERM" not in client(monkeypatch, "shell", [], {"TERM": "xterm-kitty"}, ALL)


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        ((80, 24), ["DSHPC_TERMINAL_SIZE=24 80"]),
        ((0, 0), []),  # a serial line, or expect: it has none
        (OSError("gone"), []),
    ],
)
def test_a_terminal_has_its_size_from_the_start(
    size: tuple[int, int] | OSError, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def get_terminal_size(fd: int) -> os.terminal_size:
        if isinstance(size, OSError):
            raise size
        return os.terminal_size(size)

    monkeypatch.setattr(os, "get_terminal_size", get_terminal_size)
    argv = client(monkeypatch, "srun", ["--pty", "vi"], {}, ALL)
    assert [part for part in argv if part.startswith("DSHPC_TERMINAL_SIZE")] == wanted
    argv = client(monkeypatch, "srun", ["hostname"], {}, (True, True, False))
    assert not any(part.startswith("DSHPC_TERMINAL_SIZE") for part in argv)


def test_a_command_without_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "-i" not in client(monkeypatch, "squeue", [], {})


def test_only_listed_variables_go_along() -> None:
    environ = {"SLURM_A": "1", "SBATCH_B": "2", "C": "3"}
    assert exec_caller.passed(environ) == []
    environ["DSHPC_PASS_ENV"] = "C, SBATCH_*,missing,"
    assert exec_caller.passed(environ) == ["C", "SBATCH_B"]


# Where and as whom


@pytest.mark.parametrize(
    ("work", "here", "wanted"),
    [
        ("/w", "/w", "/w"),
        ("/w", "/w/a/b", "/w/a/b"),
        ("/w", "/wx", None),
        ("/w", "/", None),
        ("/w/", "/w/a", "/w/a"),
        ("/w", None, None),
    ],
)
def test_the_folder_inside(work: str, here: str | None, wanted: str | None) -> None:
    assert exec_caller.inside(work, here) == wanted


def test_a_work_folder_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real/sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    here = os.path.realpath(tmp_path / "real/sub")
    assert exec_caller.inside(f"{tmp_path}/link", here) == f"{tmp_path}/link/sub"


def entry(uid: int) -> pwd.struct_passwd:
    if uid > 2000:
        raise KeyError(uid)
    return pwd.struct_passwd((f"name{uid}", "x", uid, uid + 1, "", "/", "/bin/sh"))


@pytest.mark.parametrize(
    ("euid", "environ", "wanted"),
    [
        (0, {}, (0, 7, "name0")),
        (1000, {}, (1000, 7, "name1000")),
        (0, {"SUDO_UID": "1000", "SUDO_GID": "50"}, (1000, 50, "name1000")),
        (0, {"SUDO_UID": "1000"}, (1000, 1001, "name1000")),
        (0, {"SUDO_UID": "0"}, (0, 7, "name0")),
        (0, {"SUDO_UID": "x"}, (0, 7, "name0")),
        (1000, {"SUDO_UID": "5", "SUDO_GID": "5"}, (1000, 7, "name1000")),
        (3000, {}, (3000, 7, "user3000")),
        (0, {"SUDO_UID": "3000"}, (3000, 3000, "user3000")),
    ],
)
def test_the_calling_user(
    monkeypatch: pytest.MonkeyPatch,
    euid: int,
    environ: dict[str, str],
    wanted: tuple[int, int, str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    monkeypatch.setattr(os, "getegid", lambda: 7)
    monkeypatch.setattr(pwd, "getpwuid", entry)
    assert exec_caller.calling_user(environ) == wanted


# Before anything is started


def test_every_command_of_the_fast_path_is_known() -> None:
    for command in EXEC_COMMANDS:
        assert exec_stdin.mode(command, ["x"], NONE) in (exec_stdin.NONE, exec_stdin.DIRECT)


@pytest.mark.parametrize("arguments", [["exec"], ["exec", "--"], ["exec", "--root"]])
def test_exec_of_nothing_is_wrong_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exec_command.main(arguments) == 64
    assert "Usage" in capsys.readouterr().err


@pytest.mark.parametrize("text", [None, "{", "[]", '{"container": "c"}'])
def test_a_folder_that_was_never_set_up(
    text: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / ".dshpc").mkdir()
    if text is not None:
        (tmp_path / ".dshpc/runtime.json").write_text(text)
    monkeypatch.setenv("DSHPC_DIR", str(tmp_path))
    assert exec_command.main(["srun", "true"]) == 2
    assert "configure-environment" in capsys.readouterr().err


@pytest.mark.parametrize("at", ["a/b/c", "a", ".", "other"])
@pytest.mark.parametrize("named", [None, "other"])
def test_the_same_project_is_found_as_elsewhere(
    at: str, named: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a/b/c", "other"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("a", "other"):
        (tmp_path / folder / ".dshpc").mkdir()
        runtime = {**RUNTIME, "container": folder}
        (tmp_path / folder / ".dshpc/runtime.json").write_text(json.dumps(runtime))
    monkeypatch.chdir(tmp_path / at)
    env = {"DSHPC_DIR": str(tmp_path / named)} if named else {}
    project = find_project(Path.cwd(), env)
    if project is None:
        from dshpc_setup.errors import DshpcError

        with pytest.raises(DshpcError, match="no cluster"):
            exec_command.runtime(env)
    else:
        assert exec_command.runtime(env) == project.runtime()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(
    ("label", "mounted", "code"),
    [("{folder}", "/w", 0), ("/another", "/w", 2), (None, "/w", 2), ("{folder}", "/etc", 2)],
)
def test_what_another_users_folder_says_is_compared_with_the_engine(
    label: str | None,
    mounted: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its program never counts; it is asked of the engine before anything is run there."""
    (tmp_path / ".dshpc").mkdir()
    runtime = {**RUNTIME, "docker": "/tmp/program"}
    (tmp_path / ".dshpc/runtime.json").write_text(json.dumps(runtime))
    for path in (tmp_path, tmp_path / ".dshpc", tmp_path / ".dshpc/runtime.json"):
        os.chown(path, 4321, 4321)
    monkeypatch.chdir(tmp_path)
    for name in ("DSHPC_DIR", "SUDO_UID"):
        monkeypatch.delenv(name, raising=False)
    labels = {} if label is None else {"org.dshpc.project": label.format(folder=tmp_path)}
    described = {
        **DESCRIBED,
        "Config": {"Image": "i", "Labels": labels},
        "Mounts": [{"Destination": mounted, "Source": mounted}],
    }
    machine = FakeMachine(commands={"docker inspect": Answer(json.dumps([described]))})
    monkeypatch.setattr("dshpc_setup.machine.local.LocalMachine", lambda: machine)
    ran: list[list[str]] = []

    def session(self: Session) -> tuple[int, int]:
        ran.append(self._client)
        return 0, 0

    monkeypatch.setattr(Session, "run", session)
    assert exec_command.main(["srun", "true"]) == code
    assert [client[0] for client in ran] == ["docker"] * (code == 0)
    assert ("what it says is not believed" in capsys.readouterr().err) is (code == 2)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_folder_that_is_not_used_is_told_to_people(
    terminal: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    planted = tmp_path / "work/7"
    for folder in (tmp_path, planted):
        (folder / ".dshpc").mkdir(parents=True)
        own = {**RUNTIME, "work": str(tmp_path / "work"), "container": f"c{folder.name}"}
        (folder / ".dshpc/runtime.json").write_text(json.dumps(own))
    monkeypatch.chdir(planted)
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    monkeypatch.setattr(os, "isatty", lambda fd: terminal and fd == 2)
    assert exec_command.runtime({})["container"] == f"c{tmp_path.name}"
    said = capsys.readouterr().err
    expected = f"dshpc: {planted}/.dshpc is ignored. It lies in the work folder"
    assert said.startswith(expected) if terminal else said == ""


# What is said around the command


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("command", ["srun", "sbatch"])
def test_outside_of_the_work_folder_one_line_says_so(
    command: str,
    terminal: bool,
    code: int,
    inside: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / ".dshpc").mkdir()
    runtime = {**RUNTIME, "work": str(tmp_path / "work")}
    (tmp_path / ".dshpc/runtime.json").write_text(json.dumps(runtime))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work" if inside else tmp_path)
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    monkeypatch.setattr(os, "isatty", lambda fd: terminal and fd == 2)
    before: list[str] = []

    def session(self: Session) -> tuple[int, int]:
        before.append(capsys.readouterr().err)
        return code, 0

    monkeypatch.setattr(Session, "run", session)
    running = FakeMachine(
        commands={
            "docker inspect": Answer(json.dumps([DESCRIBED])),
            "docker exec c scontrol": Answer(code=1),
        }
    )
    monkeypatch.setattr("dshpc_setup.machine.local.LocalMachine", lambda: running)
    assert exec_command.main([command, "true"]) == code
    said = ["not in the work folder" in text for text in (*before, capsys.readouterr().err)]
    if inside:
        assert said == [False, False]
    else:
        before_it = terminal or command == "sbatch"  # its stderr is not the job's
        assert said == [before_it, bool(code) and not before_it]


@pytest.mark.parametrize(
    ("command", "phase", "folder", "restart"),
    [
        ("srun", "failed", False, True),
        ("srun", "starting: key", False, False),
        ("srun", "ready", True, False),
        ("exec", "failed", True, False),
    ],
)
def test_a_command_that_was_never_begun_ran_nowhere(
    command: str,
    phase: str,
    folder: bool,
    restart: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / ".dshpc").mkdir()
    (tmp_path / ".dshpc/runtime.json").write_text(json.dumps(RUNTIME))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    monkeypatch.delenv("DSHPC_COMMAND", raising=False)
    monkeypatch.setattr(os, "isatty", lambda _: False)
    monkeypatch.setattr(Session, "run", lambda _: (2, 0))
    running = FakeMachine(
        commands={
            "docker inspect": Answer(json.dumps([DESCRIBED])),
            "docker exec c cat": Answer(f"{phase}\n"),
            "docker exec c stat": Answer(code=1),
        }
    )
    monkeypatch.setattr("dshpc_setup.machine.local.LocalMachine", lambda: running)
    assert exec_command.main([command, "true"]) == 2
    said = capsys.readouterr().err
    assert ("not in the work folder: commands run in /w" in said) is folder
    assert ("dshpc restart" in said) is restart


@pytest.mark.parametrize(
    ("now", "note", "said"),
    [
        (None, 100.0, "the cluster was stopped by dshpc down at"),
        (None, -100.0, "the cluster was stopped while this ran"),
        ("exited", -100.0, "the cluster was stopped while this ran"),
        ("later", 100.0, "the cluster was restarted by dshpc down at"),
        ("running", -100.0, None),
    ],
)
def test_a_command_that_ended_with_its_container_says_why(
    now: str | None,
    note: float,
    said: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / ".dshpc").mkdir()
    (tmp_path / ".dshpc/runtime.json").write_text(json.dumps(RUNTIME))
    told = {"at": time.time() + note, "command": "dshpc down"}
    (tmp_path / ".dshpc/stopped.json").write_text(json.dumps(told))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    monkeypatch.setattr(Session, "run", lambda _: (137, 0))
    started = "2999-01-01T00:00:00Z" if now == "later" else "2026-01-01T00:00:00Z"
    runs = now != "exited"
    state = {"Running": runs, "Status": "running" if runs else "exited", "ExitCode": 0,
             "StartedAt": started}  # fmt: skip
    answer = Answer(json.dumps([{**DESCRIBED, "State": state}]))
    if now is None:
        answer = Answer("[]", 1, "Error: No such container: c")
    fake = FakeMachine(commands={"docker inspect": answer})
    monkeypatch.setattr("dshpc_setup.machine.local.LocalMachine", lambda: fake)
    assert exec_command.main(["srun", "sleep", "60"]) == 137
    err = capsys.readouterr().err
    assert (said in err) if said is not None else ("the cluster was" not in err)


DESCRIBED = {
    "Id": "1",
    "Name": "/c",
    "Image": "sha256:1",
    "Created": "2026-01-01T00:00:00Z",
    "State": {"Running": True, "Status": "running", "ExitCode": 0, "StartedAt": "2026"},
    "Config": {"Image": "c:none", "Labels": {}},
}


@pytest.mark.parametrize("is_there", [True, False])
def test_what_the_engine_said_is_shown_where_no_other_reason_is_known(
    is_there: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / ".dshpc").mkdir()
    (tmp_path / ".dshpc/runtime.json").write_text(json.dumps(RUNTIME))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    monkeypatch.setattr(Session, "run", lambda _: (1, 0))
    monkeypatch.setattr(Session, "said", b"Error response from daemon: it is so\n")
    there, gone = Answer(json.dumps([DESCRIBED])), Answer("[]", 1, "Error: No such container: c")
    fake = FakeMachine(commands={"docker inspect": there if is_there else gone})
    monkeypatch.setattr("dshpc_setup.machine.local.LocalMachine", lambda: fake)
    assert exec_command.main(["exec", "true"]) == (1 if is_there else 2)
    err = capfd.readouterr().err
    assert ("Error response from daemon: it is so\n" in err) is is_there
    assert ("Start it" in err) is not is_there


def test_a_folder_that_was_removed_under_us_is_named_as_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert exec_command.main(["squeue"]) == 2
    assert "The folder that you are in was removed." in capsys.readouterr().err


@pytest.mark.parametrize("ended", [(141, 13), (141, 0)])
def test_a_closed_pipe_ends_what_runs_inside(
    ended: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker's client dies of SIGPIPE; Podman's ends with its code, and leaves the command running too."""
    (tmp_path / ".dshpc").mkdir()
    (tmp_path / ".dshpc/runtime.json").write_text(json.dumps(RUNTIME))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    monkeypatch.setattr(Session, "run", lambda _: ended)
    told: list[int] = []
    monkeypatch.setattr(Session, "abandon", lambda _, by: told.append(by))
    assert exec_command.main(["srun", "yes"]) == 141
    assert told == [13]
