"""What a job takes along to a node that has not the work folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.jobs import luggage
from dshpc_setup.jobs.luggage import Piece


@pytest.fixture
def request_(tmp_path: Path) -> dict[str, Any]:
    """Submitted in a folder of the work folder, with an input, a result and a parameter beside it."""
    for name in ("proj", "data", "jobs/0/first", "jobs/0/me/inputs", "methods/train"):
        (tmp_path / name).mkdir(parents=True)
    for name in (
        "proj/x.py",
        "data/in.csv",
        "data/more.csv",
        "methods/train/run.py",
        "jobs/0/me/inputs/own",
    ):
        (tmp_path / name).write_text("12345")
    return {
        "argv": ["python3", f"{tmp_path}/methods/train/run.py", "x.py"],
        "cwd": f"{tmp_path}/proj",
        "method_dir": f"{tmp_path}/methods/train",
        "inputs": [f"{tmp_path}/data/in.csv", f"{tmp_path}/jobs/0/me/inputs/own"],
        "requires": {"first": f"{tmp_path}/jobs/0/first"},
        "parameters": [{"table": f"{tmp_path}/data/more.csv", "n": 3, "word": "/dev/shm"}],
        "name": f"{tmp_path}/proj",
    }


def test_each_thing_that_lies_elsewhere_has_a_place(
    request_: dict[str, Any], tmp_path: Path
) -> None:
    own = f"{tmp_path}/jobs/0/me"
    found = luggage.pieces(request_, own)
    assert found == (
        Piece(f"{tmp_path}/proj", "here"),
        Piece(f"{tmp_path}/methods/train", ".method"),
        Piece(f"{tmp_path}/jobs/0/first", "requires/first"),
        Piece(f"{tmp_path}/data/in.csv", "inputs/1-in.csv"),
        Piece(f"{tmp_path}/data/more.csv", "inputs/5-more.csv"),
    )
    there = luggage.moved(request_, found, own)
    assert there["argv"] == ["python3", f"{own}/.method/run.py", "x.py"]
    assert (there["cwd"], there["method_dir"]) == (f"{own}/here", f"{own}/.method")
    assert there["inputs"] == [f"{own}/inputs/1-in.csv", f"{own}/inputs/own"]
    assert there["requires"] == {"first": f"{own}/requires/first"}
    assert there["parameters"] == [
        {"table": f"{own}/inputs/5-more.csv", "n": 3, "word": "/dev/shm"}
    ]
    assert there["name"] == request_["name"]


def test_an_input_in_the_folder_goes_along_once(request_: dict[str, Any], tmp_path: Path) -> None:
    request_["inputs"] = [f"{tmp_path}/jobs/0/first/result.csv"]
    (tmp_path / "jobs/0/first/result.csv").write_text("1")
    places = [each.place for each in luggage.pieces(request_, f"{tmp_path}/jobs/0/me")]
    assert places == ["here", ".method", "requires/first", "inputs/4-more.csv"]


def test_methods_of_the_image_stay(request_: dict[str, Any], tmp_path: Path) -> None:
    request_["method_dir"] = "/usr/local/share/dshpc/methods/vector-add"
    assert ".method" not in {
        each.place for each in luggage.pieces(request_, f"{tmp_path}/jobs/0/me")
    }


def test_what_cannot_be_carried_is_told(
    request_: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = str(tmp_path / "jobs/0/me")
    assert luggage.refused(request_, own) is None
    gone = luggage.refused({**request_, "inputs": [f"{tmp_path}/gone"]}, own)
    assert gone == luggage.Refused("unreadable", f"{tmp_path}/gone: No such file or directory")
    monkeypatch.setattr(luggage, "MOST_HERE", 3)
    for name in "abc":
        (tmp_path / "proj" / name).write_text("")
    found = luggage.refused(request_, own)
    assert found is not None
    assert (found.code, found.details.startswith(f"{tmp_path}/proj: there are more than 3")) == (
        "large",
        True,
    )


def test_sizes_have_a_limit_each(
    request_: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = str(tmp_path / "jobs/0/me")
    with open(tmp_path / "proj/large", "wb") as file:
        os.truncate(file.fileno(), 101 << 20)
    found = luggage.refused(request_, own)
    assert found == luggage.Refused("large", f"{tmp_path}/proj: 101 MiB, 100 MiB at most")
    monkeypatch.setattr(luggage, "MOST_HERE_BYTES", 1 << 40)
    monkeypatch.setattr(luggage, "MOST_BYTES", 100 << 20)
    found = luggage.refused(request_, own)
    assert found == luggage.Refused("large", "workspace and inputs: 101 MiB, 100 MiB at most")


def test_workspaces_do_not_go_along_with_the_work_folder(tmp_path: Path) -> None:
    (tmp_path / f"jobs/{os.getuid()}/x").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / "x.py").write_text("")
    assert [place for place, _ in Piece(str(tmp_path), "here").entries()] == ["here", "here/x.py"]


def test_environment_and_image_have_the_same_path_there(
    request_: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / f"jobs/{os.getuid()}"
    request_ |= {
        "work": str(tmp_path),
        "environment": f"{own}/.envs/ab12",
        "image": f"{own}/.images/cd34",
    }
    environment, image = luggage.kept(request_)
    assert environment == Piece(f"{own}/.envs/ab12", ".envs/ab12")
    assert image.place == ".images/cd34"
    there = luggage.moved(request_, luggage.pieces(request_, f"{own}/me"), f"{own}/me")
    assert (there["environment"], there["image"]) == (environment.source, image.source)
    assert luggage.refused(request_, None) is None  # not made yet, in a dry run
    (own / ".envs/ab12/bin").mkdir(parents=True)
    (own / ".envs/ab12/bin/python").write_text("12345")
    assert [place for place, _ in environment.entries()] == [
        ".envs/ab12", ".envs/ab12/bin", ".envs/ab12/bin/python",
    ]  # fmt: skip
    assert luggage.refused(request_, None) is None
    monkeypatch.setattr(luggage, "MOST_KEPT_BYTES", 4)
    found = luggage.refused(request_, None)
    assert found == luggage.Refused("large", f"{own}/.envs/ab12: 0 MiB, 0 MiB at most")


@pytest.mark.parametrize(
    "path", ["/etc", "{own}/.envs/../x", "{own}/.envs/ab/x", "{own}/.ssh/ab", 7, None]
)
def test_nothing_else_is_kept(tmp_path: Path, path: object) -> None:
    own = tmp_path / f"jobs/{os.getuid()}"
    named = path.format(own=own) if isinstance(path, str) else path
    assert luggage.kept({"work": str(tmp_path), "environment": named}) == ()
