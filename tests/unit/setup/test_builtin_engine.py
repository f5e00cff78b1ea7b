"""When the built-in engine starts a cluster, and on which ports."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.builtin import ports, rights
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.machine import CommandResult, Reply
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings
from dshpc_setup.setup import builtin_engine


@dataclass
class Machine:
    """`engine`: the state of its answer; `sudo`: the exit code of sudo, None without one."""

    uid: int = 1000
    engine: Any = "absent"
    sudo: int | None = None
    env: dict[str, str] = field(default_factory=dict)

    def docker(self, _: float) -> Reply:
        return Reply(self.engine)

    def which(self, program: str) -> str | None:
        return "/usr/bin/sudo" if program == "sudo" and self.sudo is not None else None

    def run(self, argv: list[str], **_: Any) -> CommandResult:
        return CommandResult(tuple(argv), "present", self.sudo, "", "", 1.0)


def project(folder: Path, **runtime: str) -> Project:
    if runtime:
        (folder / ".dshpc").mkdir()
        told = {"container": "c-slurm", "prefix": "c", "work": str(folder / "work"), **runtime}
        (folder / ".dshpc/runtime.json").write_text(json.dumps(told))
    return Project(folder)


@pytest.mark.parametrize(
    ("machine", "able", "interactive", "wanted"),
    [
        (Machine(), True, False, True),
        (Machine(engine="denied"), True, True, True),
        (Machine(), False, False, False),
        (Machine(uid=0), True, False, False),
        (Machine(engine="present"), True, False, False),
        (Machine(engine="timeout"), True, False, False),
        (Machine(sudo=0), True, False, False),
        (Machine(sudo=1), True, False, True),
        (Machine(sudo=1), True, True, False),  # who may be asked for a password
    ],
)
def test_who_gets_it_unasked(
    machine: Machine,
    able: bool,
    interactive: bool,
    wanted: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = rights.Rights(Ids("single") if able else None)
    monkeypatch.setattr(rights, "find", lambda _: found)
    chosen = builtin_engine.is_wanted(
        machine,  # type: ignore[arg-type]
        project(tmp_path),
        Settings(),
        interactive=interactive,
    )
    assert chosen is wanted


@pytest.mark.parametrize(
    ("setting", "runtime", "wanted"),
    [
        ("builtin", {}, True),
        ("docker", {"engine": "builtin"}, False),
        ("auto", {"engine": "builtin"}, True),
        ("auto", {"prefix": "c"}, False),  # it is on Docker
    ],
)
def test_a_word_of_the_users_and_what_is_there_come_first(
    setting: str, runtime: dict[str, str], wanted: bool, tmp_path: Path
) -> None:
    of = project(tmp_path, **runtime)
    machine: Any = Machine()
    chosen = builtin_engine.is_wanted(machine, of, Settings(engine=setting), interactive=False)
    assert chosen is wanted


@pytest.fixture
def all_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "keep", partial(ports.keep, free=lambda _: True))


@pytest.mark.usefixtures("all_free")
def test_ports_are_a_clusters_own(tmp_path: Path) -> None:
    machine: Any = Machine(env={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    one = project(tmp_path)
    first = builtin_engine.kept_ports(machine, one, Settings(prefix="a"))
    assert builtin_engine.kept_ports(machine, one, Settings(prefix="a")) == first
    second = builtin_engine.kept_ports(machine, one, Settings(prefix="b"))
    assert not set(first.split(",")) & set(second.split(","))
    kept = json.loads(ports.registry(machine.env).read_text())["clusters"]
    assert kept.keys() == {f"{tmp_path}:a", f"{tmp_path}:b"}


@pytest.mark.usefixtures("all_free")
def test_ports_that_the_folder_remembers_come_back(tmp_path: Path) -> None:
    machine: Any = Machine(env={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    settings = Settings(prefix="c", slurm_ports=(31234, 31235))
    assert (
        builtin_engine.kept_ports(machine, project(tmp_path, prefix="c"), settings) == "31234,31235"
    )
