"""Which engine a machine gets that becomes a node: the one of here where its user may use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.adding import adding, host
from dshpc_setup.adding.adding import Wanted
from dshpc_setup.adding.image import Carried
from dshpc_setup.adding.look import Found
from dshpc_setup.project.folder import Project


@pytest.mark.parametrize(
    ("here", "told", "words", "engine"),
    [
        ("docker", {"uid": "0"}, (), "docker"),
        ("docker", {"sudo": "yes"}, (), "docker"),
        ("docker", {"docker": "yes"}, (), "docker"),
        ("docker", {"podman": "yes"}, (), "podman"),
        ("docker", {}, (), "builtin"),
        ("podman", {"docker": "yes"}, (), "docker"),
        ("podman", {"podman": "yes", "docker": "yes"}, (), "podman"),
        ("builtin", {"docker": "yes", "uid": "0"}, (), "builtin"),
        ("docker", {"uid": "0"}, ("--engine", "builtin"), "builtin"),
        ("builtin", {"joined": "yes"}, (), "docker"),
        ("docker", {"joined": "yes", "engine": "podman"}, (), "podman"),
    ],
)
def test_the_engine(
    tmp_path: Path, here: str, told: dict[str, str], words: tuple[str, ...], engine: str
) -> None:
    (tmp_path / ".dshpc").mkdir()
    runtime = {"container": "lab-slurm", "prefix": "lab", "work": "/work", "engine": here}
    (tmp_path / ".dshpc/runtime.json").write_text(json.dumps(runtime))
    nothing: Any = None
    wanted = Wanted(host.read("lab7", "x"), words=words)
    run = adding._Run(
        nothing, Project(tmp_path), wanted, nothing, nothing, Found({"uid": "1000"} | told), nothing,
        Carried(),
    )  # fmt: skip
    assert run.engine == engine
