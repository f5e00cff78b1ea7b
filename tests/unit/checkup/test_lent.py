"""Folders that jobs are lent: what doctor is told of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.checkup import lent
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.observed.model import LentFolder
from dshpc_setup.settings import Settings

HOST = replace(Settings(), toolkit="host")


def looked(runtime: dict[str, Any], settings: Settings = HOST) -> tuple[LentFolder, ...]:
    told: list[lent.Lent] = []
    lent.look(LocalMachine(), runtime, settings, told.append)
    assert all(each.state in ("unknown", "gone") for each in told[0].folders)
    return told[-1].folders


@pytest.fixture
def cuda(tmp_path: Path) -> Path:
    real = tmp_path / "cuda-12.4"
    (real / "bin").mkdir(parents=True)
    (real / "bin/nvcc").touch()
    (tmp_path / "alternative").symlink_to(real.name)
    (tmp_path / "cuda").symlink_to(tmp_path / "alternative")
    return real


def test_toolkits_and_folders(tmp_path: Path, cuda: Path) -> None:
    runtime = {
        "homes": [str(tmp_path)],
        "mounts": [f"{tmp_path}/data"],
        "toolkits": [f"cuda:{cuda}:{tmp_path}/cuda", f"cuda:{cuda}:{cuda}"],
    }

    def states() -> list[str]:
        return [each.state for each in looked(runtime)]

    assert states() == ["good", "gone", "good", "good"]
    (tmp_path / "alternative").unlink()
    (tmp_path / "alternative").symlink_to("cuda-13.0")
    assert states() == ["good", "gone", "replaced", "good"]
    (cuda / "bin/nvcc").unlink()
    assert states() == ["good", "gone", "empty", "empty"]
    cuda.joinpath("bin").rmdir()
    cuda.rmdir()
    assert states() == ["good", "gone", "gone", "gone"]


def test_asked_for_and_never_found() -> None:
    assert looked({"work": "/w"}) == (LentFolder("toolkit", "", "gone"),)
    assert looked({"work": "/w"}, Settings()) == ()
    assert looked({}) == (), "never set up"
