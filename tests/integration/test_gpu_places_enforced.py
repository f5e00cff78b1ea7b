"""Where a job can open its own GPUs alone, programs count these from 0: by what can be opened."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import as_root
from tests.integration.conftest import docker
from tests.integration.test_container import Node, image

__all__ = ["image"]

pytestmark = pytest.mark.timeout(300)

# "No such device" is of a node that may be opened and has no driver; else it is "not permitted"
LOOK = (
    "a=; for n in 0 1 2; do r=$( (exec 3<>/dev/nvidia$n) 2>&1 ); "
    'case "$r" in *"No such device"*) a="$a$n";; esac; done; echo "$a:$CUDA_VISIBLE_DEVICES"'
)


@pytest.fixture(scope="module")
def node(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """An H100, a T4 and an H100 with numbers of NVIDIA's, for which there is no driver here."""
    if " nvidia" in Path("/proc/devices").read_text():
        pytest.fail("a driver has the numbers of the made-up GPUs: this wants a machine without")
    folder = tmp_path_factory.mktemp("nodes")
    devices = []
    for number in range(3):
        path = f"{folder}/gpu{number}"
        subprocess.run(as_root("mknod", "-m", "666", path, "c", "195", str(number)), check=True)
        devices.append(f"--device={path}:/dev/nvidia{number}")
    confined = "name=apparmor" in docker("info", "--format", "{{.SecurityOptions}}")
    found = Node(image, tmp_path_factory.mktemp("config"))
    found.run(
        *("--cap-add", "SYS_ADMIN", "--env", "DSHPC_ISOLATION=enforced"),
        *(["--security-opt", "apparmor=unconfined"] if confined else []),
        *devices,
        devices=0,
        simulate="h100+t4+h100",
    )
    try:
        assert found.wait()["ready"], found.log()
        yield found
    finally:
        found.remove()


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        (["--gres=gpu:t4:1"], ["1:0"]),
        (["--gres=gpu:h100:2"], ["02:0,1"]),
        (["--gres=gpu:h100:1,gpu:t4:1"], ["01:0,1"]),
        (["-n2", "--gpus-per-task=h100:1"], ["0:0", "2:0"]),
        (["-n2", "--gres=gpu:h100:1,gpu:t4:1", "--gpu-bind=map_gpu:1,0"], ["0:0", "1:0"]),
        (["--gres=none"], [":"]),
    ],
)
def test_what_can_be_opened_is_counted_from_0(
    node: Node, options: list[str], seen: list[str]
) -> None:
    text = node.exec("srun", "-D", "/", "--mem=50", *options, "bash", "-c", LOOK)
    assert sorted(text.splitlines()) == seen


@pytest.mark.parametrize(
    ("options", "cards"),
    [(["--gres=gpu:t4:1"], [1]), (["--gres=gpu:h100:2"], [0, 2]), (["--gres=none"], [])],
)
def test_uuids_name_the_cards_that_can_be_opened(
    node: Node, options: list[str], cards: list[int]
) -> None:
    offered = json.loads(node.exec("cat", "/run/dshpc/offer.json"))["gpus"]
    uuids = {gpu["index"]: gpu["uuid"] for gpu in offered}
    said = node.exec(
        *("srun", "-D", "/", "--mem=50", *options),
        *("bash", "-c", 'echo "${NVIDIA_VISIBLE_DEVICES-not set}"'),
    )
    assert said.strip() == (",".join(uuids[card] for card in cards) or "void")


def test_in_batch_too(node: Node) -> None:
    script = f"{LOOK}; srun --mem=50 bash -c '{LOOK}'"
    node.exec(
        *("sbatch", "--wait", "-D", "/tmp", "-o", "/tmp/look", "--mem=100", "--gres=gpu:t4:1"),
        *("--wrap", f"exec bash <<'END'\n{script}\nEND"),
    )
    assert node.exec("cat", "/tmp/look").splitlines() == ["1:0", "1:0"]
