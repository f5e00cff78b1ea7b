"""The help of `dshpc-node`: every command, by what it does."""

from __future__ import annotations

import re

import pytest

from dshpc_setup.node import main

VERBS = frozenset(
    "Answer Carry Certify Check Detect Find Let Make Print Replace Show Start Take Try Wait Watch "
    "Write".split()
)


def test_help_names_every_command_and_begins_with_a_verb(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.main(["--help"]) == 0
    rows = re.findall(r"(?m)^  (\S.*?)  +([A-Z][a-z]+)\b", capsys.readouterr().out)
    assert {usage.split(" ")[0] for usage, _ in rows} == main.COMMANDS
    assert {verb for _, verb in rows} == VERBS


def test_a_command_that_there_is_not_gets_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["statsu"]) == 64
    assert "There is no command 'statsu'.\nusage: dshpc-node" in capsys.readouterr().err


def test_what_takes_root_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(_: list[str]) -> int:
        raise PermissionError(13, "Permission denied", "/var/lib/dshpc/key/slurm.key")

    monkeypatch.setattr(main, "_command", lambda _: denied)
    monkeypatch.setattr("dshpc_setup.node.main.os.geteuid", lambda: 1000)
    assert main.main(["rotate-key"]) == 2
    said = capsys.readouterr().err
    assert "slurm.key: Permission denied." in said
    assert "dshpc exec --root -- dshpc-node rotate-key" in said


@pytest.mark.parametrize("name", sorted(main.COMMANDS))
def test_each_command_is_a_function_of_its_module(name: str) -> None:
    assert callable(main._command(name))
