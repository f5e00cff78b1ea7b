"""Environments of jobs: found by their content, held by who uses them, gone when nobody has for long."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dshpc_setup.environment import prefix
from dshpc_setup.environment.declared_folder import Declared
from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import environments, safe_open
from dshpc_setup.jobs.staging import Incoming

UID = os.getuid()


@pytest.fixture
def declaring(tmp_path: Path) -> str:
    folder = tmp_path / "declaring"
    folder.mkdir()
    (folder / "requirements.txt").write_text("six\n")
    return str(folder)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where each was made to be: uv is not run."""
    found: list[str] = []

    def make(_machine: object, _declared: Declared, into: Path, final: str, _say: object) -> None:
        (into / "tree" / "bin").mkdir(parents=True)
        found.append(final)

    monkeypatch.setattr(prefix, "make", make)
    return found


def incoming(tmp_path: Path, *, dry: bool = False) -> Incoming:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    return Incoming(str(work), dry=dry)


def test_it_is_made_once(tmp_path: Path, declaring: str, made: list[str]) -> None:
    first = environments.ready(declaring, incoming(tmp_path))
    assert os.path.isdir(f"{first}/bin")
    assert environments.ready(declaring, incoming(tmp_path)) == first
    assert made == [first]
    assert Path(first).parent == tmp_path / "work" / "jobs" / str(UID) / ".envs"
    assert os.listdir(os.path.dirname(first)) == [os.path.basename(first)]
    Path(declaring, "requirements.txt").write_text("six>1\n")
    assert environments.ready(declaring, incoming(tmp_path)) != first


def test_a_dry_run_makes_nothing(tmp_path: Path, declaring: str, made: list[str]) -> None:
    assert environments.ready(declaring, incoming(tmp_path, dry=True)).startswith(str(tmp_path))
    assert made == []
    assert os.listdir(tmp_path / "work") == []


def test_what_failed_leaves_nothing(
    tmp_path: Path, declaring: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prefix, "make", fail)
    with pytest.raises(DshpcError, match="No space left") as refused:
        environments.ready(declaring, incoming(tmp_path))
    assert "Make room" in refused.value.resolution[0]
    assert os.listdir(tmp_path / f"work/jobs/{UID}/.envs") == []


def test_those_that_nobody_uses_go_as_another_is_made(
    tmp_path: Path, declaring: str, made: list[str]
) -> None:
    long_ago = time.time() - environments.UNUSED_S - 10
    paths = []
    for number in range(3):
        Path(declaring, "requirements.txt").write_text(f"six=={number}\n")
        paths.append(environments.ready(declaring, incoming(tmp_path)))
    left, held, used = paths
    folder = os.path.dirname(left)
    os.mkdir(f"{folder}/.new-left")  # of one that was killed
    for path in (left, held):
        os.utime(path, (long_ago, long_ago))
    handle = environments.hold(held)  # by a job; that is a use, too
    os.utime(held, (long_ago, long_ago))
    try:
        Path(declaring, "requirements.txt").write_text("other\n")
        new = environments.ready(declaring, incoming(tmp_path))
        assert sorted(os.listdir(folder)) == sorted(map(os.path.basename, (held, used, new)))
    finally:
        os.close(handle)
    with safe_open.opened(folder) as at:
        environments.clean(at, time.time() - environments.UNUSED_S)
    assert sorted(os.listdir(folder)) == sorted(map(os.path.basename, (used, new)))
    assert len(made) == 4


def test_one_that_is_gone_cannot_be_held(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        environments.hold(str(tmp_path / "gone"))


def test_its_programs_come_first(tmp_path: Path) -> None:
    assert environments.variables(str(tmp_path), "/bin") == {}, "it is no venv"
    (tmp_path / "pyvenv.cfg").touch()
    found = environments.variables(str(tmp_path), "/usr/bin:/bin")
    assert found == {"VIRTUAL_ENV": str(tmp_path), "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}


def test_one_of_condas_is_activated(tmp_path: Path) -> None:
    folder = str(tmp_path)
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "pyvenv.cfg").touch()  # some of its packages have one
    found = environments.variables(folder, "/bin")
    assert (found["CONDA_PREFIX"], found["PATH"]) == (folder, f"{folder}/bin:/bin")
    assert "VIRTUAL_ENV" not in found
    assert environments.activated(folder, ["x", "y z"]) == ["x", "y z"]
    (tmp_path / "etc/conda/activate.d").mkdir(parents=True)
    shell, option, script, _, *words = environments.activated(folder, ["x", "y z"])
    assert (shell, option, words) == ("/bin/bash", "-c", ["x", "y z"])
    assert script.endswith('exec "$@"')


def test_who_cleans_as_one_is_begun_does_no_harm(
    tmp_path: Path, declaring: str, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a new folder and its lock it looks like what a killed run has left."""
    environments.ready(declaring, incoming(tmp_path))
    Path(declaring, "requirements.txt").write_text("other\n")
    plain = safe_open.new_folder
    cleaned: list[str] = []

    def new_folder(name: str, at: int, mode: int) -> int:
        handle = plain(name, at, mode)
        if len(cleaned) < 2:
            cleaned.append(name)
            environments.clean(at, time.time())
        return handle

    monkeypatch.setattr(safe_open, "new_folder", new_folder)
    assert os.path.isdir(environments.ready(declaring, incoming(tmp_path)))
    assert len(cleaned) == 2
