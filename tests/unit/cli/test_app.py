"""The command line itself: help, wrong usage, exit codes, one JSON object whatever happens."""

from __future__ import annotations

import errno
import inspect
import io
import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from dshpc_setup import cli
from dshpc_setup.cli import app, looking, passed_on, running
from dshpc_setup.cli import exec as exec_command
from dshpc_setup.cli.console import ConsoleReporter
from dshpc_setup.errors import DshpcError
from dshpc_setup.project.folder import Project
from dshpc_setup.setup.report import Report
from dshpc_setup.terminal import command_names
from dshpc_setup.terminal.commands import COMMANDS, EXEC_COMMANDS

NO_RUNTIME = SimpleNamespace(runtime=dict)  # a project that nothing is known of


pytestmark = pytest.mark.usefixtures("nowhere")


def fails(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("dshpc_setup.cluster.operations.status", fail)
    monkeypatch.setattr(looking, "needed_project", lambda *_: NO_RUNTIME)


# Help


def test_the_usage_names_arguments_as_the_man_pages_do(capsys: pytest.CaptureFixture[str]) -> None:
    for words, usage in (
        (["job", "cancel"], "dshpc job cancel [OPTIONS] ID...\n"),
        (["run"], "dshpc run [OPTIONS] -- COMMAND [ARGUMENT]...\n"),
        (["job", "show"], "dshpc job show [OPTIONS] ID\n"),
    ):
        assert cli.run(words, "dshpc") == 64
        assert f"Usage: {usage}" in capsys.readouterr().err


def test_the_help_names_real_commands_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(passed_on.PASSED_ON) == EXEC_COMMANDS
    known = {each.name or each.callback.__name__ for each in app.app.registered_commands
             if each.callback} | {each.name for each in app.app.registered_groups}  # fmt: skip
    assert known == EXEC_COMMANDS | COMMANDS
    assert cli.run(["--help"], "dshpc") == 0
    assert "--version" in capsys.readouterr().out


@pytest.mark.parametrize("command", [[], ["configure"], ["status"], ["logs"], ["config", "set"]])
def test_a_switch_takes_no_bool(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*command, "--help"], "dshpc") == 0
    out = capsys.readouterr().out
    assert "--help" in out
    assert "bool" not in out.lower()
    assert not re.search(r"<(?:str|path|list)\b", out)


def test_what_only_shows_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def noted(*_: Any, **options: Any) -> Report:
        given.update(options)
        return Report()

    monkeypatch.setattr("dshpc_setup.cli.configure_line.configure_here", noted)
    for words, dry in ([], False), (["--diff"], True), (["--dry-run"], True):
        cli.run(["configure", "--json", *words], "configure-environment")
        assert given["dry_run"] is dry


def test_the_version_of_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["configure", "--help"], "configure-environment") == 0
    assert "--version" in capsys.readouterr().out
    lines = []
    for arguments in (["--version"], ["configure", "--version"], ["configure", "--yes", "-V"]):
        assert cli.run(arguments, "configure-environment") == 0
        lines.append(capsys.readouterr().out)
    assert len(set(lines)) == 1
    assert lines[0].startswith("dshpc ")


def test_a_passed_on_command_behind_our_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def run(arguments: list[str]) -> int:
        seen.append(arguments)
        return 7

    monkeypatch.setattr(exec_command, "main", run)
    assert cli.run(["--", "srun", "--gres=gpu:1", "-n", "1", "sh", "-c", "x"], "dshpc") == 7
    assert seen == [["srun", "--gres=gpu:1", "-n", "1", "sh", "-c", "x"]]


def _commands(group: Any, *words: str) -> Iterator[tuple[str, Any]]:
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from _commands(each, *words, name)
        else:
            yield " ".join((*words, name)), each


def test_every_command_that_may_ask_takes_yes() -> None:
    """One whose questions have another answer takes it too, and says what that is."""
    asks, takes = set(), set()
    for name, command in _commands(typer.main.get_command(app.app)):
        options = {option for each in command.params for option in each.opts}
        code = inspect.unwrap(command.callback).__code__
        if "reporter" in code.co_names or "--stop-jobs" in options:
            asks.add(name)
        if {"--yes", "-y"} <= options:
            takes.add(name)
    assert {"down", "key rotate", "up", "env lock"} <= asks
    assert asks - takes == {"node add"}  # whatever is asked there, ssh asks


# What goes wrong


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--bogus"],
        ["statsu"],
        ["logs", "--tail", "x"],
        ["config", "set"],
        ["status", "--dir", "/nonexistent"],
        ["doctor", "--dir", "/nonexistent"],
        ["config", "show", "--dir", "/nonexistent"],
    ],
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments, "dshpc") == 64
    plain = capsys.readouterr()
    assert plain.out == ""
    assert plain.err


@pytest.mark.parametrize(
    "arguments", [["status", "--json", "--bogus"], ["doctor", "--json", "--dir", "/nonexistent"]]
)
def test_wrong_usage_as_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments, "dshpc") == 64
    value = json.loads(capsys.readouterr().out)
    assert (value["schema"], value["exit_code"]) == ("dshpc.error/1", 64)
    assert value["error"]["brief"]


@pytest.mark.parametrize(
    ("option", "near"), [("--frob", None), ("--wach", "--watch"), ("--jsno", "--json")]
)
def test_only_a_near_option_is_suggested(
    option: str, near: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["gpus", option], "dshpc") == 64
    said = capsys.readouterr().err
    assert f"No such option: {option}" in said
    assert near in said if near else "Possible" not in said


def test_a_defect_of_ours_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fails(monkeypatch, ZeroDivisionError("by nothing"))
    assert cli.run(["status"], "dshpc") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "a defect of dsHPC setup itself: ZeroDivisionError: by nothing" in err
    assert "report" in err
    assert "Traceback" not in err
    monkeypatch.setenv("DSHPC_DEBUG", "1")
    assert cli.run(["status"], "dshpc") == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_defect_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fails(monkeypatch, ZeroDivisionError("by nothing"))
    assert cli.run(["status", "--json"], "dshpc") == 2
    value = json.loads(capsys.readouterr().out)
    assert value["error"]["details"] == "ZeroDivisionError: by nothing"


def test_a_defect_behind_the_answer_adds_no_second_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer_and_fail(now: object, json_output: bool) -> None:
        cli.print_json({"answer": 1})
        raise ZeroDivisionError

    monkeypatch.setattr("dshpc_setup.cluster.operations.status", lambda *_: None)
    monkeypatch.setattr(looking, "needed_project", lambda *_: NO_RUNTIME)
    monkeypatch.setattr(looking, "show_status", answer_and_fail)
    assert cli.run(["status", "--json"], "dshpc") == 2
    assert json.loads(capsys.readouterr().out) == {"answer": 1}


def test_a_defect_on_the_way_to_slurm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(environ: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(exec_command, "runtime", fail)
    assert cli.run(["srun", "--json", "true"], "dshpc") == 2
    out, err = capsys.readouterr()
    assert (out, "defect" in err) == ("", True), "its stdout is the job's"


def test_errors_of_the_product_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fails(monkeypatch, DshpcError("It is so.", steps=("dshpc up",)))
    monkeypatch.setenv("DSHPC_COMMAND", "/opt/setup/dshpc")
    assert cli.run(["status", "--json"], "dshpc") == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["resolution"] == ["dshpc up"]
    assert "/opt/setup/dshpc up" in err


# Interrupts


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signals_end_a_command_as_ctrl_c_does(
    number: int,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cleared_up = []

    def act(*_: Any, **_more: Any) -> None:
        try:
            signal.raise_signal(number)
        finally:
            if number != signal.SIGINT:
                signal.raise_signal(number)  # a second one must not disturb the clearing up
            cleared_up.append(True)

    monkeypatch.setattr("dshpc_setup.cluster.operations.restart", act)
    monkeypatch.setattr(running, "needed_project", lambda *_: NO_RUNTIME)
    before = signal.getsignal(number)
    assert cli.run(["restart", "--json"], "dshpc") == code
    assert cleared_up == [True]
    assert signal.getsignal(number) == before
    out, err = capsys.readouterr()
    assert "interrupted" in err
    assert json.loads(out)["exit_code"] == code


def test_a_signal_that_the_caller_ignores_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    monkeypatch.setattr(
        "dshpc_setup.cluster.operations.down",
        lambda *_, **_more: signal.raise_signal(signal.SIGHUP),
    )
    monkeypatch.setattr(running, "needed_project", lambda *_: NO_RUNTIME)
    try:
        assert cli.run(["down"], "dshpc") == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


# How our own commands are called


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("dshpc up", "/opt/s/dshpc up"),
        ("Start it: dshpc up", "Start it: /opt/s/dshpc up"),
        ("dshpc srun --gres=gpu:1 x", "/opt/s/dshpc srun --gres=gpu:1 x"),
        ("cd /p && configure-environment", "cd /p && /opt/s/configure-environment"),
        ("`dshpc detect`, then", "`/opt/s/dshpc detect`, then"),
        ("docker rm -f dshpc-slurm", "docker rm -f dshpc-slurm"),
        ("the prefix dshpc is taken", "the prefix dshpc is taken"),
        ("./configure-environment", "./configure-environment"),
        ("/usr/bin/dshpc up", "/usr/bin/dshpc up"),
    ],
)
def test_advice_names_what_can_be_called(
    text: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command_names.as_called(text) == text
    monkeypatch.setenv("DSHPC_COMMAND", "/opt/s/dshpc")
    assert command_names.as_called(text) == wanted


def test_a_launcher_nearby_is_named_briefly_unless_one_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSHPC_COMMAND", f"{tmp_path}/dshpc")
    assert command_names.as_called("dshpc up") == "./dshpc up"
    assert command_names.as_called("cd /p && dshpc up") == f"cd /p && {tmp_path}/dshpc up"
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert command_names.as_called("configure-environment") == "../configure-environment"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSHPC_COMMAND", f"{tmp_path}/a b/dshpc")
    assert command_names.dshpc_command() == "'a b/dshpc'"


def test_a_launcher_beside_our_folder_is_named_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From /tmp, /var/x/dshpc is not told of as ../var/x/dshpc."""
    monkeypatch.setenv("DSHPC_COMMAND", f"{tmp_path}/a b/dshpc")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert command_names.dshpc_command() == f"'{tmp_path}/a b/dshpc'"
    monkeypatch.setenv("DSHPC_COMMAND", "/var/x/dshpc")
    for here in ("/tmp", "/"):
        monkeypatch.setenv("DSHPC_HERE", here)
        assert command_names.as_called("dshpc up") == "/var/x/dshpc up"


def test_who_typed_a_command_of_the_path_is_told_to_type_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DSHPC_COMMAND", "/opt/s/dshpc")
    monkeypatch.setenv("DSHPC_ON_PATH", "yes")
    assert command_names.as_called("dshpc up") == "dshpc up"
    assert command_names.as_called("cd /p && dshpc up") == "cd /p && dshpc up"
    assert command_names.as_called("configure-environment --yes") == "dshpc configure --yes"
    # sudo's PATH is another one
    assert command_names.as_called("`sudo dshpc doctor`") == "`sudo /opt/s/dshpc doctor`"
    assert command_names.as_called("as root: sudo dshpc ...") == "as root: sudo /opt/s/dshpc ..."


def test_in_the_container_a_launcher_is_named_as_from_the_callers_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DSHPC_COMMAND", "/home/ada/p/dshpc")
    monkeypatch.setenv("DSHPC_HERE", "/home/ada/p/work")
    assert command_names.as_called("dshpc up") == "../dshpc up"


def test_in_a_folder_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("DSHPC_COMMAND", "/opt/s/dshpc")
    assert command_names.as_called("dshpc up") == "/opt/s/dshpc up"
    assert cli.run(["status"], "dshpc") == 64
    assert "was removed" in capsys.readouterr().err


# config set and unset


def test_a_settings_file_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dshpc.yaml").write_bytes(b"prefix: \xff\n")
    assert cli.run(["config", "set", "gpu", "amd"], "dshpc") == 64
    assert "Cannot read" in capsys.readouterr().err
    assert (tmp_path / "dshpc.yaml").read_bytes() == b"prefix: \xff\n"
    (tmp_path / "dshpc.yaml").unlink()
    (tmp_path / "dshpc.yaml").mkdir()
    assert cli.run(["config", "set", "gpu", "amd"], "dshpc") == 64
    assert "Cannot read" in capsys.readouterr().err


def test_unset_of_what_stands_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".dshpc").mkdir()
    path = tmp_path / "dshpc.yaml"
    path.write_text("# mine\ngpu: amd\n# work\nwork: x\n")
    assert cli.run(["config", "unset", "gpu", "partition"], "dshpc") == 64
    assert "partition is not set here" in capsys.readouterr().err
    assert "gpu: amd" in path.read_text(), "all of them or none"
    Project(tmp_path).write_json(".dshpc/remembered.json", {"gpu": "none"})
    assert cli.run(["config", "unset", "gpu"], "dshpc") == 0
    assert (Project(tmp_path).remembered, "gpu: amd" in path.read_text()) == ({}, True)
    assert cli.run(["config", "unset", "gpu"], "dshpc") == 0
    assert path.read_text() == "# mine\n# work\nwork: x\n"
    capsys.readouterr()


def test_a_wrong_value_is_told_by_what_was_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["config", "set", "reserve_mib", "abc"], "dshpc") == 64
    said = capsys.readouterr().err
    assert said.startswith("dshpc: reserve_mib = 'abc' ")
    assert "--reserve-mib" not in said
    assert cli.run(["config", "set", "reserve_mib", "512"], "dshpc") == 0


def test_a_file_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_text("")
    assert cli.run(["status", "--dir", f"{tmp_path}/x"], "dshpc") == 64
    assert "that is a file" in capsys.readouterr().err
    assert cli.run(["status", "--dir", f"{tmp_path}/y"], "dshpc") == 64
    assert "there is no such folder" in capsys.readouterr().err


class Stream(io.StringIO):
    """Takes all that is written, and fails when it has to be got rid of."""

    def __init__(self, error: OSError | None) -> None:
        super().__init__()
        self.error = error

    def flush(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (None, 0, ""),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "No space left on device"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, ""),
    ],
)
@pytest.mark.parametrize("arguments", [["--version"], ["config", "show"]])
def test_what_cannot_be_printed_in_the_end(
    arguments: list[str],
    error: OSError | None,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdout", Stream(error))
    assert cli.run(arguments, "dshpc") == code
    assert capsys.readouterr().err == (
        f"dshpc: What was found could not be printed.\n  [Errno 28] {said}\n" if said else ""
    )


def test_an_error_whose_reader_has_gone_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", Stream(BrokenPipeError(errno.EPIPE, "Broken pipe")))
    assert cli.run(["run", "--wait", "--json", "--", "true"], "dshpc") == 141
    assert "defect" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "answer", "times", "silent"),
    [
        ("y\n", True, 1, False),
        (" YES \n", True, 1, False),
        ("\n", False, 1, False),
        ("n\n", False, 1, False),
        ("maybe\ny\n", True, 2, False),
        ("a\nb\nno\n", False, 3, False),
        ("a\nb\nc\ny\n", False, 3, True),
        ("", False, 1, True),
        ("maybe\n", False, 2, True),
    ],
)
def test_questions(
    lines: str,
    answer: bool,
    times: int,
    silent: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    reporter = ConsoleReporter(to_stderr=True, yes=False, interactive=True)
    assert reporter.ask("Do it?") is answer
    said = capsys.readouterr().err
    assert said.count("Do it? [y/N]") == times
    assert ("No answer" in said) is silent


# Help


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        *(("job", verb) for verb in ("list", "show", "logs", "cancel")),
        *(("method", verb) for verb in ("list", "show", "validate", "init", "schema", "run")),
        ("method", "check"),
        *(("workflow", verb) for verb in ("run", "status", "cancel", "validate")),
        *(("env", verb) for verb in ("add", "remove", "lock", "show", "schema")),
    ],
)
def test_help_shows_a_line_to_type(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*words, "--help"], "dshpc") == 0
    said = capsys.readouterr().out.partition("For example:")[2].split("\n")
    lines = [line.strip() for line in said if line.strip()]
    assert lines
    assert all(line.startswith(f"dshpc {' '.join(words)}") for line in lines)
