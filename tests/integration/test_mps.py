"""MPS on a real cluster, with a stand-in for the driver's control daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, docker, made, wait_until
from tests.integration.engines import Engine

pytestmark = pytest.mark.engines("docker", why="not tried elsewhere")

PROGRAM = "nvidia-cuda-mps-control"
LISTENS = """#!/bin/sh
[ "$*" = -f ] || exit 64
: >"$CUDA_MPS_PIPE_DIRECTORY/control"
echo "$CUDA_DEVICE_ORDER" >"$CUDA_MPS_LOG_DIRECTORY/order"
exec sleep 100000
"""
ENDS = "#!/bin/sh\necho no GPU here >&2\nexit 1\n"
NOT_ENFORCED = "percentages of gres/mps are not enforced"


@pytest.fixture(scope="module")
def shared(engine: Engine, standard: Cluster) -> Iterator[Cluster]:
    with made("mps", engine=engine) as cluster:
        cluster.configure("--simulate", "h100:1", "--gpu-sharing", "mps").good()
        yield cluster


def with_program(cluster: Cluster, tmp_path: Path, text: str) -> None:
    """Restart the container with this in place of NVIDIA's."""
    file = tmp_path / PROGRAM
    file.write_text(text)
    file.chmod(0o755)
    docker("cp", str(file), f"{cluster.container}:/usr/local/bin/{PROGRAM}")
    docker("restart", cluster.container)
    cluster.said("dshpc-node", "wait", "--timeout", "60")


def notes(cluster: Cluster) -> str:
    return cluster.said("cat", "/run/dshpc/status.json")


def variables(cluster: Cluster, gres: str) -> dict[str, str]:
    text = cluster.said("srun", f"--gres={gres}", "env")
    pairs = (line.partition("=") for line in text.splitlines() if line.startswith("CUDA_"))
    return {name: value for name, _, value in pairs}


def test_without_the_daemon_it_is_said(shared: Cluster) -> None:
    assert f"{PROGRAM} is not in this container" in notes(shared)
    found = variables(shared, "mps:25")
    assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert "CUDA_MPS_PIPE_DIRECTORY" not in found


def test_with_the_daemon_jobs_find_it(shared: Cluster, tmp_path: Path) -> None:
    with_program(shared, tmp_path, LISTENS)
    assert NOT_ENFORCED not in notes(shared)
    assert shared.said("cat", "/run/dshpc/mps/log/order") == "PCI_BUS_ID"
    found = variables(shared, "mps:25")
    assert found["CUDA_MPS_PIPE_DIRECTORY"] == "/run/dshpc/mps/pipe"
    assert found["CUDA_VISIBLE_DEVICES"] == "0"
    assert "CUDA_MPS_PIPE_DIRECTORY" not in variables(shared, "gpu:1")


def test_a_daemon_that_ends_is_started_again(shared: Cluster, tmp_path: Path) -> None:
    with_program(shared, tmp_path, LISTENS)
    ask = ("s6-svstat", "-o", "pid", "/run/dshpc/services/mps")
    first = shared.said(*ask)
    assert int(first) > 1
    shared.said("kill", "-9", first)
    wait_until(lambda: shared.said(*ask) not in (first, "-1"), "another daemon", 30)


def test_the_daemon_outlives_jobs_that_save_as_the_container_stops(shared: Cluster) -> None:
    there = "cp /run/dshpc/mps/log/order there; exit"
    script = f"trap 'sleep 1; [ ! -e /run/dshpc/mps/pipe/control ] || {there}' TERM; touch begun; "
    shared.submit("--gres=mps:25", "--no-requeue", script=f"{script} while :; do sleep 0.1; done")
    wait_until((shared.work / "begun").exists, "it runs")
    docker("restart", shared.container)
    assert (shared.work / "there").exists()
    shared.said("dshpc-node", "wait", "--timeout", "60")


def test_a_daemon_that_does_not_come_up_is_said(shared: Cluster, tmp_path: Path) -> None:
    with_program(shared, tmp_path, ENDS)
    assert "is not up, it ended at once" in notes(shared)
    assert variables(shared, "mps:25")["CUDA_VISIBLE_DEVICES"] == "0"
