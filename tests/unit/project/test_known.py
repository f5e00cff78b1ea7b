"""Which cluster commands mean where they are typed in none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError
from dshpc_setup.project import known, refusals


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    tmp_path.chmod(0o755)
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def project(folder: Path, **runtime: object) -> str:
    (folder / ".dshpc").mkdir(parents=True)
    found = {"container": "c", "prefix": "c", "work": str(folder / "work"), **runtime}
    (folder / ".dshpc/runtime.json").write_text(json.dumps(found))
    return str(folder)


def meant(here: Path, env: dict[str, str]) -> str | None:
    place = known.elsewhere(os.path.realpath(here), env)
    return None if place is None else place.folder


def test_the_order(tmp_path: Path, env: dict[str, str]) -> None:
    data, home = tmp_path / "data", tmp_path / "home"
    (data / "inner/x").mkdir(parents=True)
    home.mkdir()
    a = project(tmp_path / "a", work=str(data), homes=[str(home)])
    b = project(tmp_path / "b", homes=[str(home)], mounts=[str(home / "deep")])
    c = project(tmp_path / "c")
    assert meant(data, env) is None
    for folder in (a, b):
        known.remember(folder, env)
    assert known.clusters(env) == [b, a]
    assert meant(data / "inner/x", env) == a
    assert meant(tmp_path / "data2", env) is None
    assert meant(home, env) == b  # set up last
    assert meant(home / "deep", env) == b
    known.remember(a, env)
    assert meant(home, env) == a
    (home / "deep").mkdir()
    assert meant(home / "deep", env) == b  # the innermost

    known.choose(c, env)
    assert (meant(home, env), meant(tmp_path, env)) == (c, c)
    assert meant(data, env) == a  # its own work folder
    known.choose(None, env)
    known.choose(None, env)
    assert (meant(home, env), meant(tmp_path, env)) == (a, None)
    assert meant(tmp_path, {**env, "DSHPC_DEFAULT_DIR": c}) == c


def test_one_that_is_gone_is_forgotten_and_never_meant(tmp_path: Path, env: dict[str, str]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    a = project(tmp_path / "a", work=str(data))
    known.remember(a, env)
    (tmp_path / "a/.dshpc/runtime.json").unlink()
    assert meant(data, env) is None
    (tmp_path / "a/.dshpc").rmdir()
    b = project(tmp_path / "b")
    known.remember(b, env)
    assert known.clusters(env) == [b]


def test_a_cluster_that_was_removed_is_meant_nowhere(tmp_path: Path, env: dict[str, str]) -> None:
    home = tmp_path / "home"
    home.mkdir()
    a, b = (project(tmp_path / name, homes=[str(home)]) for name in "ab")
    for folder in (a, b):
        known.remember(folder, env)
    known.forget(b, env)
    assert (meant(home, env), known.clusters(env)) == (a, [a])
    known.forget(b, env)
    known.again(a, env)
    known.again(b, env)
    assert known.clusters(env) == [b, a]
    known.again(a, env)
    assert known.clusters(env) == [b, a]
    for folder in (a, b):
        known.forget(folder, env)
    assert (meant(home, env), known.clusters(env)) == (None, [])


def test_a_folder_that_others_can_write_is_not_meant(tmp_path: Path, env: dict[str, str]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    a = project(tmp_path / "a", work=str(data))
    known.remember(a, env)
    (tmp_path / "a").chmod(0o777)
    assert meant(data, env) is None


def test_without_a_home_nothing_is_remembered(tmp_path: Path) -> None:
    assert known.clusters({}) == []
    assert known.chosen({"HOME": "/"}) is None
    with pytest.raises(DshpcError, match="HOME is not set"):
        known.choose(str(tmp_path), {})


@given(st.binary(max_size=200))
def test_whatever_stands_in_the_files(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    folder = tmp_path_factory.mktemp("state")
    (folder / "dshpc").mkdir()
    for name in ("use", "clusters"):
        (folder / "dshpc" / name).write_bytes(text)
    env = {"XDG_STATE_HOME": str(folder)}
    assert all(each.startswith("/") for each in known.clusters(env))
    known.elsewhere("/", env)


def test_where_there_is_none_those_are_named_that_can_be_chosen(
    tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own clusters, else that of the checkout whose launcher was typed."""
    for name, value in {**env, "DSHPC_COMMAND": f"{tmp_path}/co/dshpc"}.items():
        monkeypatch.setenv(name, value)

    def told() -> list[str]:
        steps = refusals.no_project("/tmp", ()).resolution
        return [step.partition(": ")[2] for step in steps if "dshpc use" in step]

    assert told() == ["dshpc use DIR"]
    there = project(tmp_path / "co")
    assert told() == [f"dshpc use {there}"]
    a = project(tmp_path / "a b")
    known.remember(a, env)
    known.remember(str(tmp_path / "gone"), env)
    assert told() == [f"dshpc use '{a}'"]
