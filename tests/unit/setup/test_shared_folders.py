"""Homes and mounts, looked at before anything is made: the machine is a folder of the test's."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Cpu, Engine, Gpus, HostFacts, Memory, Platform
from dshpc_setup.files import anchored
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings, load
from dshpc_setup.setup import shared_folders
from tests.unit.engine.fake import Answer, FakeMachine

FACTS = HostFacts(
    Platform("linux"), Cpu(2), Memory(8000, 8000), Gpus("absent"), Engine("present", kind="engine")
)


def why(project: Path, *folders: Path) -> str:
    settings = replace(
        load(flags={"mounts": "/data"}), mounts=tuple(str(folder) for folder in folders)
    )
    with pytest.raises(DshpcError) as caught:
        shared_folders.need_mounts(project, settings)
    assert caught.value.exit_code == Exit.USAGE
    assert "--mounts" in caught.value.details
    return caught.value.brief


def test_a_folder_that_cannot_be_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, own, file = tmp_path / "data", tmp_path / "lab/.dshpc/engine", tmp_path / "file"
    for folder in (data, own, tmp_path / "lab/config"):
        folder.mkdir(parents=True)
    file.write_text("")
    project = tmp_path / "lab"
    for name, target in (("etc", "/etc"), ("nowhere", "/no/where"), ("own", own), ("good", data)):
        (tmp_path / name).symlink_to(target)
    os.mknod(tmp_path / "docker.sock", stat.S_IFSOCK | 0o600)
    assert "is not there" in why(project, tmp_path / "gone")
    assert "is no folder" in why(project, data, file)
    assert "is a socket" in why(project, tmp_path / "docker.sock")
    assert "leads nowhere" in why(project, tmp_path / "nowhere")
    assert "leads to /etc" in why(project, tmp_path / "etc")
    for mine in (own, own.parent, tmp_path / "own", project / "config"):
        assert "keeps its keys" in why(project, mine)
    good = replace(Settings(), mounts=(f"{data}:ro", str(tmp_path / "good"), str(project)))
    shared_folders.need_mounts(project, good)
    monkeypatch.setattr("dshpc_setup.project.trust.ours", lambda: (4711,))
    assert "another user's" in why(project, tmp_path / "good")


def test_root_is_told_beforehand_of_a_link_that_the_builtin_engine_does_not_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    monkeypatch.setattr(anchored, "_is_needed", lambda: True)
    monkeypatch.setattr(anchored, "_is_roots", lambda *_: False)
    settings = load(flags={"mounts": f"{tmp_path}/link:ro"})
    shared_folders.need_followed(settings, FACTS)  # Docker follows it
    plain = replace(Settings(), mounts=(str(tmp_path / "data"),))
    shared_folders.need_followed(plain, engine(kind="builtin"))
    with pytest.raises(DshpcError, match="root follows none") as caught:
        shared_folders.need_followed(settings, engine(kind="builtin"))
    assert caught.value.exit_code == Exit.USAGE


def homes(
    project: Path, settings: Settings = Settings(), facts: HostFacts = FACTS, home: str = "/root"
) -> tuple[str, ...]:
    uid = 0 if home == "/root" else 1000
    entry = f"ada:x:{uid}:{uid}::{home}:/bin/sh\n"
    machine = FakeMachine(uid=uid, commands={"getent passwd": Answer(entry)})
    return shared_folders.with_homes(machine, Project(project), settings, facts).homes


def engine(**values: object) -> HostFacts:
    return replace(FACTS, engine=replace(FACTS.engine, **values))  # type: ignore[arg-type]


def test_a_new_cluster_sees_homes_where_users_are_the_same(tmp_path: Path) -> None:
    above = tmp_path / "users"
    (above / "ada").mkdir(parents=True)
    usual = ("/home",) if os.path.isdir("/home") else ()
    assert homes(tmp_path) == usual
    assert homes(tmp_path, home=str(above / "ada")) == (*usual, str(above))
    assert homes(tmp_path, home="/ada") == usual  # its parent is the system's
    assert homes(tmp_path, load(flags={"home": "kept"})) == ()
    labelled = replace(FACTS, platform=Platform("linux", selinux="enforcing"))
    assert homes(tmp_path, facts=labelled) == ()
    assert homes(tmp_path, load(flags={"home": "host"}), labelled) == usual
    for other in (
        engine(rootless=True),
        engine(kind="desktop"),
        engine(kind="remote"),
        engine(security_options=("name=userns",)),
    ):
        assert homes(tmp_path, facts=other) == ()
        with pytest.raises(DshpcError, match="home = host") as caught:
            homes(tmp_path, load(flags={"home": "host"}), other)
        assert "dshpc config set home kept" in " ".join(caught.value.resolution)


def test_where_there_are_no_homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dshpc_setup.setup.shared_folders._USUAL", str(tmp_path / "none"))
    assert homes(tmp_path) == ()
    with pytest.raises(DshpcError, match="cannot be kept"):
        homes(tmp_path, load(flags={"home": "host"}))


def test_one_that_is_there_keeps_what_it_has(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.prepare()
    (tmp_path / "config").mkdir()
    project.write_json("config/manifest.json", {"files": {".env": "1"}})
    assert homes(tmp_path) == ()
    project.write_json(".dshpc/runtime.json", {"homes": ["/users"]})
    assert homes(tmp_path)[0] == "/users"
    assert homes(tmp_path, load(flags={"home": "kept"})) == ()
    assert homes(tmp_path, facts=engine(rootless=True)) == ()
