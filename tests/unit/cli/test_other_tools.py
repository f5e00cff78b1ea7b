"""Options that people know from other tools are refused with what to use here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup import cli
from dshpc_setup.cli import other_tools
from dshpc_setup.errors import DshpcError, Exit


@pytest.mark.parametrize("option", ["--runtime", "--container", "--volume"])
@pytest.mark.parametrize("command", [["run"], ["method", "run", "train"], ["method", "check", "a"]])
def test_of_our_own_commands(
    command: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tail = ["--", "hostname"] if command == ["run"] else []
    for words in ([f"{option}=a"], [option, "a"]):
        assert cli.run([*command, *words, *tail], "dshpc") == Exit.USAGE
        said = capsys.readouterr().err
        named = " ".join(command[: 1 if command == ["run"] else 2])
        assert said.startswith(f"dshpc: dshpc {named} does not take {option}.")
        assert "What to do:" in said
        assert ("--work DIR" if option == "--volume" else "dshpc run --image") in said


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("srun", ["--container-id=x", "hostname"]),
        ("srun", ["-n", "2", "--gres", "gpu:1", "--volume", "/a:/b", "hostname"]),
        ("srun", ["--pty", "--exclusive", "-lu", "--runtime=nvidia", "bash"]),
        ("salloc", ["--no-shell", "--container-image", "x"]),
        ("sbatch", ["--parsable", "--image", "x", "job.sh"]),
        ("sbatch", ["-W", "--mount=type=bind", "job.sh"]),
    ],
)
def test_of_slurms_commands(
    command: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DshpcError, match=f"dshpc {command} does not take --") as caught:
        other_tools.check(command, words)
    assert caught.value.exit_code == Exit.USAGE
    assert cli.run([command, *words], "dshpc") in (Exit.USAGE, Exit.ERROR)
    assert "does not take --" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("srun", ["podman", "run", "--volume", "/a:/b"]),
        ("srun", ["--pty", "podman", "--runtime", "x"]),
        ("srun", ["-n2", "-u", "--label", "--gres=gpu:1", "a", "--container=x"]),
        ("srun", ["-W", "0", "a", "--container=x"]),  # its -W takes a number
        ("sbatch", ["job.sh", "--runtime=x"]),
        ("srun", ["--", "--volume"]),
        ("salloc", ["--gpus", "1", "docker", "--volume=a"]),
        ("srun", ["--comment", "--volume", "a"]),
        ("srun", ["--contiguous", "--mem=1", "a"]),
        ("srun", ["--container=/bundle", "a"]),
    ],
)
def test_what_the_program_takes_is_its_own(command: str, words: list[str]) -> None:
    other_tools.check(command, words)


_SCRIPT = """#!/bin/sh
# my job

#SBATCH --gres=gpu:1 {0}
echo begun
#SBATCH {1}
"""


@pytest.mark.parametrize(
    "option",
    ["--container-image=/x", '--comment="a b" --container-name /x', "--volume=/a:/b", "--image x"],
)
def test_of_a_script(
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text(_SCRIPT.format(option, ""))
    assert cli.run(["sbatch", "--parsable", "-n", "1", "job.sh", "a"], "dshpc") == Exit.USAGE
    said = capsys.readouterr().err
    assert said.startswith("dshpc: dshpc sbatch does not take --")
    assert "Line 4 of job.sh" in said
    assert "What to do:" in said
    with pytest.raises(DshpcError):
        other_tools.check("sbatch", ["--", "job.sh"])


@pytest.mark.parametrize(
    "option", ["# --image=/x", "--job-name=a'b", '--comment "--image', "--container=/x"]
)
def test_what_sbatch_does_not_read_of_a_script_is_no_option(option: str, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(_SCRIPT.format(option, "--image=/x"))
    other_tools.check("sbatch", [str(tmp_path / "job.sh")])
    other_tools.check("srun", [str(tmp_path / "job.sh")])
    os.mkfifo(tmp_path / "pipe")
    other_tools.check("sbatch", [str(tmp_path / "pipe")])


def test_another_unknown_option_is_told_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["run", "--voluminous", "--", "a"], "dshpc") == Exit.USAGE
    assert "No such option" in capsys.readouterr().err
