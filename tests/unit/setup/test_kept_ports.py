"""On which ports the built-in engine starts a cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.builtin import ports
from dshpc_setup.machine.listeners import Listener
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings
from dshpc_setup.setup import kept_ports


@dataclass
class Machine:
    env: dict[str, str] = field(default_factory=dict)


def project(folder: Path, **runtime: str) -> Project:
    if runtime:
        (folder / ".dshpc").mkdir()
        told = {"container": "c-slurm", "prefix": "c", "work": str(folder / "work"), **runtime}
        (folder / ".dshpc/runtime.json").write_text(json.dumps(told))
    return Project(folder)


@pytest.fixture
def all_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "keep", partial(ports.keep, free=lambda _: True))


@pytest.mark.usefixtures("all_free")
def test_ports_are_a_clusters_own(tmp_path: Path) -> None:
    machine: Any = Machine(env={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    one = project(tmp_path)
    first = kept_ports.choose(machine, one, Settings(prefix="a"), "builtin")
    assert kept_ports.choose(machine, one, Settings(prefix="a"), "builtin") == first
    second = kept_ports.choose(machine, one, Settings(prefix="b"), "builtin")
    assert not set(first.split(",")) & set(second.split(","))
    kept = json.loads(ports.registry(machine.env).read_text())["clusters"]
    assert kept.keys() == {f"{tmp_path}:a", f"{tmp_path}:b"}


@pytest.mark.usefixtures("all_free")
def test_ports_that_the_folder_remembers_come_back(tmp_path: Path) -> None:
    machine: Any = Machine(env={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    settings = Settings(prefix="c", slurm_ports=(31234, 31235, 31236))
    assert (
        kept_ports.choose(machine, project(tmp_path, prefix="c"), settings, "builtin")
        == "31234,31235,31236"
    )


@pytest.mark.usefixtures("all_free")
def test_a_port_that_another_program_has_is_chosen_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine: Any = Machine(env={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    settings = Settings(prefix="c", slurm_ports=(31234, 31235, 31236))
    mine = project(tmp_path, prefix="c")
    assert kept_ports.choose(machine, mine, settings, "builtin") == "31234,31235,31236"
    listens = Listener(31235, 0, 7)
    monkeypatch.setattr(ports, "listeners", lambda: [listens])
    monkeypatch.setattr(ports, "keep", partial(ports.keep, free=lambda port: port != listens.port))
    first, second, third = kept_ports.choose(machine, mine, settings, "builtin").split(",")
    assert (first, third) == ("31234", "31236")
    assert second not in ("31234", "31235", "31236")
