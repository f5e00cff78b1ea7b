"""A benchmark that was killed leaves containers of fixed names: the next run is not stopped by them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.integration.cluster import PREFIX, ROOT, Cluster, docker, run
from tests.integration.leftovers import remember

BENCHMARKS = ROOT / "benchmarks"


def test_a_leftover_container_is_in_nobodys_way(standard: Cluster) -> None:
    image = standard.inspect()["Image"]
    names = [f"{PREFIX}bench-{name}" for name in ("start", "least")]
    for name in names:
        remember(name)
        docker(
            "create", "--name", name, "--volume", f"{name}-state:/x", "--entrypoint", "true", image
        )
    program = str(BENCHMARKS / "start.py")
    argv = [
        sys.executable,
        program,
        "--image",
        image,
        "--prefix",
        f"{PREFIX}bench",
        "--rounds",
        "1",
    ]
    done = run(argv)
    assert "ratio " in done.stdout, done.stderr  # 1 is for the time that it took here
    left = docker("ps", "--all", "--format", "{{.Names}}") + docker("volume", "ls", "--quiet")
    assert not re.search(rf"^{PREFIX}bench", left, re.M)


@pytest.mark.parametrize(
    "path",
    [path for path in BENCHMARKS.glob("*.py") if "seconds_to(" in path.read_text()],
    ids=lambda path: path.name,
)
def test_each_that_starts_containers_removes_them_first(path: Path) -> None:
    assert "with removed(" in path.read_text()
