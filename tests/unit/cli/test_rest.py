"""`dshpc rest token`: one line, or why there is none; the token is in no error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dshpc_setup import cli
from dshpc_setup.cli import exec as execution
from dshpc_setup.cli import exec_trouble, rest
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import CommandResult

TOKEN = "eyJ.eyJ.c2ln"
ON = "AuthAltTypes            = auth/jwt\n"
OFF = "AuthAltTypes            = (null)\n"


def done(stdout: str = "", code: int = 0, stderr: str = "") -> CommandResult:
    return CommandResult(("docker",), "present", code, stdout, stderr, 1.0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the cluster answers to `scontrol token`, and to `scontrol show config`; what it was asked."""
    given: dict[str, Any] = {
        "token": done(f"SLURM_JWT={TOKEN}\n"),
        "show": done(ON),
        "argv": [],
        "down": False,
    }

    def answer(call: execution.Call) -> CommandResult:
        given["argv"].append(tuple(call.argv))
        found = given[call.argv[1]]
        assert isinstance(found, CommandResult)
        return found

    def explain(call: execution.Call, code: int, *, folder_said: bool) -> None:
        assert (call.container, code, folder_said) == ("p-slurm", 1, True)
        if given["down"]:
            raise DshpcError("The cluster is not running.")

    monkeypatch.setattr(rest, "_asked", answer)
    monkeypatch.setattr(exec_trouble, "explain", explain)
    monkeypatch.setattr(execution, "runtime", lambda _: {"container": "p-slurm", "work": "/w"})
    return given


def test_the_token_and_nothing_else(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["rest", "token"], "dshpc") == 0
    assert capsys.readouterr().out == f"{TOKEN}\n"
    assert asked["argv"] == [("scontrol", "token", "lifespan=1800")]
    assert cli.run(["rest", "token", "--lifespan", "12h", "--json"], "dshpc") == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {
        "schema": "dshpc.rest-token/1", "exit_code": 0, "token": TOKEN, "seconds": 43200,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "0m", "5", "5x", "-5m", "3651d", "1e3s", "99999999d"])
def test_a_lifespan_that_is_none_asks_nobody(
    text: str, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["rest", "token", "--lifespan", text], "dshpc") == 64
    assert "30m" in capsys.readouterr().err
    assert asked["argv"] == []


@pytest.mark.parametrize(
    ("token", "show", "words"),
    [
        (done("", 1, "scontrol: error: Authentication error"), done(OFF), "dshpc config set rest"),
        (done("", 1, "scontrol: error: refused"), done(ON), "refused"),
        (done("", 1, "no container"), done("", 1, "no container"), "no container"),
        (done(f"SLURM_JWT={TOKEN} and more\n"), done(ON), "no token"),
        (done("", 1), CommandResult(("docker",), "timeout", None, "", "late", 30.0), "late"),
    ],
)
def test_why_there_is_none(
    token: CommandResult,
    show: CommandResult,
    words: str,
    asked: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked.update(token=token, show=show)
    assert cli.run(["rest", "token"], "dshpc") == 2
    said = capsys.readouterr()
    assert words in said.err
    assert TOKEN not in said.out + said.err


def test_a_cluster_that_is_down_is_named(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    asked.update(token=done("", 1), show=done("", 1), down=True)
    assert cli.run(["rest", "token"], "dshpc") == 2
    assert capsys.readouterr().err == "dshpc: The cluster is not running.\n"
