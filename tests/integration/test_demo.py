"""`dshpc demo` on a real engine: to its end, and ended by Ctrl-C; nothing of it is left in either case."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, command, environment, run

pytestmark = [
    pytest.mark.engines("docker", why="it counts Docker's containers, volumes and images"),
    pytest.mark.timeout(900),
]


def _env(cluster: Cluster, folder: Path) -> dict[str, str]:
    """Another prefix than the standard cluster's, which stays."""
    return environment({"DSHPC_PREFIX": cluster.prefix, "TMPDIR": str(folder)})


def _left(cluster: Cluster) -> list[str]:
    """Containers, volumes and images of a tour."""
    found = []
    for kind in (["ps", "-a", "--format", "{{.Names}}"], ["volume", "ls", "-q"],
                 ["images", "--format", "{{.Repository}}"]):  # fmt: skip
        names = run(["docker", *kind]).good().stdout.split()
        found += [name for name in names if name.startswith(f"{cluster.prefix[:24]}-demo-")]
    return found


def test_to_its_end(standard: Cluster, tmp_path: Path) -> None:
    done = run(command("dshpc", "demo", "--yes"), cwd=tmp_path, env=_env(standard, tmp_path))
    assert done.code == 0, f"{done.stdout}\n{done.stderr}"
    assert "$ dshpc srun --gres=gpu:1 printenv CUDA_VISIBLE_DEVICES\n0\n" in done.stdout
    assert "cannot run here: it needs 5 GPUs" in done.stdout
    assert "so pi is about 3.137200" in done.stdout
    assert "gpu:h100 0 of 2 in use" in done.stdout
    assert _left(standard) == []
    assert list(tmp_path.glob("dshpc-demo-*")) == []


@pytest.mark.parametrize("word", ["$ configure-environment", "$ dshpc srun"])
def test_ctrl_c(standard: Cluster, tmp_path: Path, word: str) -> None:
    out = tmp_path / "out"
    with out.open("wb") as file:
        tour = subprocess.Popen(
            command("dshpc", "demo", "--yes"),
            cwd=tmp_path,
            env=_env(standard, tmp_path),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    until = time.monotonic() + 600
    while word not in out.read_text() and tour.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.5)
    os.killpg(tour.pid, signal.SIGINT)
    assert tour.wait(300) == 130, out.read_text()
    assert "Removing it:" in out.read_text()
    assert _left(standard) == []
    assert list(tmp_path.glob("dshpc-demo-*")) == []
