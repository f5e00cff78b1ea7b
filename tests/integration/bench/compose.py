"""The compose tools that a stanza has to work with: version 1, and two of version 2."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_PLUGIN = "usr/libexec/docker/cli-plugins/docker-compose"


@dataclass(frozen=True)
class ComposeTool:
    """`argv` starts the tool; it looks for the engine in DOCKER_HOST as the client does."""

    argv: tuple[str, ...]
    version: str

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor: (2, 30)."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)

    def client(self, folder: Path) -> dict[str, str]:
        """Variables under which this tool is the one that is found; `folder` is made for it."""
        plugins = folder / "cli-plugins"
        plugins.mkdir(parents=True)
        if self.release[0] > 1:
            (plugins / "docker-compose").symlink_to(self.argv[0])
        return {"DOCKER_CONFIG": str(folder)}


def of_root(root: Path) -> ComposeTool:
    """Version 2 from a root file system; it runs on this machine as it is."""
    return _tool((str(root / _PLUGIN),))


def of_machine() -> ComposeTool:
    """Version 1, which only the machine's own packages can bring."""
    if shutil.which("docker-compose") is None:
        pytest.fail("docker-compose 1.29 is needed: this machine has not its package")
    return _tool(("docker-compose",))


def _tool(argv: tuple[str, ...]) -> ComposeTool:
    done = subprocess.run(
        [*argv, "version", "--short"], capture_output=True, text=True, timeout=60, check=True
    )
    return ComposeTool(argv, done.stdout.strip().lstrip("v"))
