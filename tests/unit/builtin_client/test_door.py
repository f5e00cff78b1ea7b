"""The machine on which the built-in engine answers to `docker`."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dshpc_setup.builtin_client import door
from dshpc_setup.builtin_client.main import main
from dshpc_setup.machine import CommandResult, Machine


class Asked:
    """Notes what it is asked to run."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, ...]] = []

    def run(self, argv: list[str], **_: Any) -> CommandResult:
        self.lines.append(tuple(argv))
        return CommandResult(tuple(argv), "present", 0, "", "", 1.0)


@pytest.mark.parametrize("words", [("compose", "version", "--short"), ("buildx", "version")])
def test_what_detection_asks_takes_no_process_and_is_as_the_client_says(
    words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    below = Asked()
    machine = door.through(cast("Machine", below))
    result = machine.run(["docker", *words], deadline_s=1.0)
    assert below.lines == []
    code = main(list(words))
    said = capfd.readouterr()
    assert (result.argv, result.state) == (("docker", *words), "present")
    assert (result.stdout, result.stderr) == (said.out, said.err)
    assert (result.code == 0) == (code == 0)


def test_other_words_go_to_the_client_and_other_programs_to_the_machine() -> None:
    below = Asked()
    machine = door.through(cast("Machine", below))
    assert machine.run(["docker", "ps"], deadline_s=1.0).argv == ("docker", "ps")
    machine.run(["env", "-u", "NAME", "docker", "inspect", "x"], deadline_s=1.0)
    machine.run(["podman", "ps"], deadline_s=1.0)
    client, enveloped, other = below.lines
    assert client[-1] == "ps"
    assert client[0] != "docker"
    assert enveloped[:3] == ("env", "-u", "NAME")
    assert enveloped[-2:] == ("inspect", "x")
    assert other == ("podman", "ps")
