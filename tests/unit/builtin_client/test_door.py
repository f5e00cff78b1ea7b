"""The machine on which the built-in engine answers to `docker`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from dshpc_setup import engine_client
from dshpc_setup.builtin import cache, rootfs
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.builtin_client import door, store
from dshpc_setup.builtin_client.main import main
from dshpc_setup.machine import CommandResult, Machine


class Asked:
    """Notes what it is asked to run."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, ...]] = []
        self.env = dict(os.environ)

    def run(self, argv: list[str], **_: Any) -> CommandResult:
        self.lines.append(tuple(argv))
        return CommandResult(tuple(argv), "present", 0, "", "", 1.0)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An engine that has an image and a volume."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = store.Store(os.environ)
    made.put(
        "image", "lab:1", store.Image("lab:1", "ab" * 32, 7, "2026-01-01T00:00:00Z", {"a": "b"})
    )
    made.put("volume", "lab-key", store.Volume("lab-key", "/nowhere", Ids("single"), {"c": "d"}))
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("compose", "version", "--short"),
        ("buildx", "version"),
        ("version", "--format", "{{.Server.Arch}}"),
        ("context", "show"),
        ("ps", "-a", "--format", "{{.Names}}"),
        ("ps", "--unknown"),
        ("inspect", "--type", "container", "--", "gone"),
        ("inspect", "--type", "image", "lab:1"),
        ("inspect", "--type", "pigeon", "lab:1"),
        ("image", "inspect", "--format", "{{json .}}", "lab:1"),
        ("image", "ls", "--quiet", "--no-trunc", "lab"),
        ("images", "--filter", "label=a=b"),
        ("images", "--filter", "color=red"),
        ("volume", "ls", "-q", "--filter", "label=c"),
        ("volume", "inspect", "lab-key"),
        ("network", "ls"),
        ("logs", "--tail", "5", "gone"),
    ],
)
def test_a_question_takes_no_process_and_its_answer_is_as_the_client_says(
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
    assert machine.run(["docker", "stop", "x"], deadline_s=1.0).argv == ("docker", "stop", "x")
    machine.run(["env", "-u", "NAME", "docker", "logs", "--follow", "x"], deadline_s=1.0)
    machine.run(["podman", "ps"], deadline_s=1.0)
    client, enveloped, other = below.lines
    assert client[-2:] == ("stop", "x")
    assert client[0] != "docker"
    assert enveloped[:3] == ("env", "-u", "NAME")
    assert enveloped[-2:] == ("--follow", "x")
    assert other == ("podman", "ps")


def test_a_cluster_is_found_in_the_cache_that_it_was_made_in(
    home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = cache.place(os.environ)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("other")))
    below = Asked()
    runtime = {"engine": "builtin", "cache": kept}
    asks = ["docker", "volume", "ls", "-q"]
    assert door.through(cast("Machine", below)).run(asks, deadline_s=9.0).stdout == ""
    machine = door.through(cast("Machine", below), kept)
    assert machine.run(asks, deadline_s=9.0).stdout == "lab-key\n"
    assert rootfs.cache_folder(machine.env) == Path(kept) / "images"
    machine.run(["docker", "stop", "lab"], deadline_s=9.0)
    client = list(engine_client.of(runtime).program)
    assert client[-2:] == ["--cache", kept]
    assert below.lines == [(*client, "stop", "lab")]


def test_a_remembered_cache_that_is_gone_is_not_asked_for(home: Path) -> None:
    below = Asked()
    machine = door.through(cast("Machine", below), str(home / "gone"))
    assert machine.run(["docker", "volume", "ls", "-q"], deadline_s=9.0).stdout == "lab-key\n"
    assert machine.env == below.env
