"""Who is ended by a second `dshpc lab`: who has the file of the first open, and nobody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup.cli import job_server
from dshpc_setup.cli.job_request import Cluster
from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import environments
from dshpc_setup.jobs.request import Request
from dshpc_setup.jobs.request_building import CommandLine


def test_a_number_that_is_another_programs_by_now_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with job_server._State("lab", "/project") as state:
        assert state._is_open_in(os.getpid())
        assert not state._is_open_in(os.getppid())
        assert not state._is_open_in(1)
        assert not state._is_open_in(0)


def test_what_the_cluster_cannot_give_is_refused_before_packages_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(_: object, verb: str, request: Request) -> dict[str, object]:
        asked.append((verb, request.dry_run))
        raise DshpcError("There are not 9 GPUs.")

    def make(*_: object) -> None:
        raise AssertionError("made")

    monkeypatch.setattr(job_server, "ask", refuse)
    monkeypatch.setattr(environments, "_make", make)
    here = Cluster({"work": str(tmp_path), "container": "c"}, str(tmp_path), None)
    with pytest.raises(DshpcError, match="not 9"):
        job_server._request(job_server.Line(job_server.LAB, CommandLine(gpus="9")), here, "0" * 48)
    assert asked == [("submit", True)]


@pytest.mark.parametrize("name", ["work", "home", "elsewhere"])
def test_it_shows_the_folder_in_which_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Where jobs see it: in the work folder, a home or one of `mounts`."""
    for each in ("work", "home/project", "elsewhere"):
        (tmp_path / each).mkdir(parents=True)
    runtime = {"work": f"{tmp_path}/work", "homes": [f"{tmp_path}/home"], "container": "c"}
    here = Cluster(runtime, str(tmp_path), None)
    at = tmp_path / ("home/project" if name == "home" else name)
    monkeypatch.chdir(at)
    line = job_server.Line(job_server.LAB, CommandLine())
    request = job_server._built(line, here, "0" * 48, dry=True)
    seen = str(at if name != "elsewhere" else tmp_path / "work")
    assert request.cwd == seen
    assert f"--ServerApp.root_dir={seen}" in request.argv
    said = capsys.readouterr().err
    assert ("this folder is not in the work folder or homes" in said) == (name == "elsewhere")
