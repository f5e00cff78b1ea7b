"""Why a folder is not used as a project."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.project import refusals


@pytest.mark.parametrize(
    ("engine", "me", "told"),
    [
        ("builtin", 1001, True),
        ("builtin", 0, True),
        ("podman", 1001, True),
        ("podman", 0, False),
        ("docker", 1001, False),
        (None, 1001, False),
    ],
)
def test_whose_containers_nobody_else_sees(
    engine: str | None, me: int, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".dshpc").mkdir()
    own = os.geteuid()
    refusals.need_own_engine(str(tmp_path), {"engine": "builtin"})  # one's own
    monkeypatch.setattr("os.geteuid", lambda: me)
    of_another, stat = os.stat_result((0, 0, 0, 0, own + 7, 0, 0, 0, 0, 0)), os.stat

    def seen(path: Any, **more: Any) -> os.stat_result:
        return of_another if path == f"{tmp_path}/.dshpc" else stat(path, **more)

    monkeypatch.setattr("os.stat", seen)
    try:
        refusals.need_own_engine(str(tmp_path), {"engine": engine})
    except DshpcError as error:
        assert told
        assert "nobody else can use it" in error.brief
    else:
        assert not told


def test_a_variable_that_names_no_cluster_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    refusals.need_right_variable(str(tmp_path))
    for folder, said in ((tmp_path, "no cluster in"), (tmp_path / "gone", "no folder")):
        monkeypatch.setenv("DSHPC_DIR", str(folder))
        with pytest.raises(DshpcError, match=f"{said} .* DSHPC_DIR names"):
            refusals.need_right_variable(str(folder))
    refusals.need_right_variable(str(tmp_path))  # another one, by --dir
