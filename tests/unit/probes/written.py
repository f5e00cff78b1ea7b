"""A recorded machine of a few lines, for the tests of one probe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dshpc_setup.machine.recorded import RecordedMachine


def written(
    folder: Path,
    tree: str = "",
    *,
    commands: list[dict[str, Any]] | None = None,
    docker: Mapping[str, Any] | None = None,
    **about: Any,
) -> RecordedMachine:
    """`tree` is root.txtar, `docker` docker.json; `about` goes into machine.yaml."""
    told = {"format": 1, "system": "Linux", "release": "6.8.0-60-generic", "machine": "x86_64"}
    # JSON is YAML as well.
    (folder / "machine.yaml").write_text(json.dumps({**told, "uid": 1000, **about}))
    (folder / "root.txtar").write_text(tree)
    (folder / "commands.yaml").write_text(json.dumps(commands or []))
    if docker is not None:
        (folder / "docker.json").write_text(json.dumps(docker))
    return RecordedMachine(folder)
