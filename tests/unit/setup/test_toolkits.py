"""Toolkits that jobs are lent: found where they lie, and nothing of the system with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings
from dshpc_setup.setup import toolkits


def made(path: Path, compiler: str = "bin/nvcc") -> Path:
    (path / compiler).parent.mkdir(parents=True)
    (path / compiler).touch()
    return path


def lent(tmp_path: Path, *named: Path, toolkit: str = "host") -> tuple[str, ...]:
    settings = replace(Settings(), toolkit=toolkit, cuda_paths=tuple(map(str, named)))
    return toolkits.with_toolkits(Project(tmp_path / "lab"), settings).toolkits


def test_the_newest_first_and_each_by_both_of_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = made(tmp_path / "cuda-9.2"), made(tmp_path / "cuda-12.4")
    rocm = made(tmp_path / "rocm-6.2", "bin/hipcc")
    (tmp_path / "cuda").symlink_to(new.name)
    (tmp_path / "cuda-empty").mkdir()
    usual = (f"{tmp_path}/cuda", f"{tmp_path}/cuda-*", f"{tmp_path}/rocm", f"{tmp_path}/rocm-*")
    monkeypatch.setattr(toolkits, "USUAL", usual)
    assert lent(tmp_path) == (
        f"cuda:{new}:{tmp_path}/cuda", f"cuda:{new}:{new}",
        f"cuda:{old}:{old}", f"rocm:{rocm}:{rocm}",
    )  # fmt: skip
    assert lent(tmp_path, toolkit="none") == ()
    monkeypatch.setattr(toolkits, "USUAL", (f"{tmp_path}/gone*",))
    with pytest.raises(DshpcError, match="there is none") as caught:
        lent(tmp_path)
    assert caught.value.exit_code == Exit.USAGE


def test_what_there_is_is_told_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, rocm = made(tmp_path / "cuda-12.4"), made(tmp_path / "rocm-6.2", "bin/hipcc")
    (tmp_path / "cuda").symlink_to(new.name)
    monkeypatch.setattr(toolkits, "USUAL", (f"{tmp_path}/cuda", f"{tmp_path}/*-*"))
    assert [each.to_json() for each in toolkits.here()] == [
        {"kind": "cuda", "path": f"{tmp_path}/cuda", "lies_in": str(new)},
        {"kind": "rocm", "path": str(rocm), "lies_in": str(rocm)},
    ]


def test_a_link_into_the_system_is_lent_where_its_end_is_a_toolkits_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/usr/local/cuda leads to /usr/local/cuda-12.4, which is below a folder of the system's."""
    real = made(tmp_path / "cuda-12.4")
    (tmp_path / "cuda").symlink_to(real.name)
    monkeypatch.setattr("dshpc_setup.setup.shared_folders.hides_the_system", lambda _: True)
    monkeypatch.setattr(toolkits, "USUAL", (f"{tmp_path}/cuda",))
    assert lent(tmp_path)[0] == f"cuda:{real}:{tmp_path}/cuda"


def test_what_is_named_and_cannot_be_lent(tmp_path: Path) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "system").symlink_to("/usr")
    for path, why in (
        (tmp_path / "cuda", "no bin/nvcc"),
        (tmp_path / "gone", "not there"),
        (tmp_path / "system", "the system's"),
        (made(tmp_path / "lab" / ".dshpc"), "keeps its keys"),
    ):
        with pytest.raises(DshpcError, match=why) as caught:
            lent(tmp_path, path)
        assert caught.value.exit_code == Exit.USAGE
    assert lent(tmp_path, made(tmp_path / "own")) == (f"cuda:{tmp_path}/own:{tmp_path}/own",)
