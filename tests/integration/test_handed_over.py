"""From `configure-environment` to a job on a GPU: the mechanism that was proven, on real engines.

The GPUs are the bench's made-up ones. What the compose file says, what the engine hands over, what the
container detects and what a job is given are the product's own. AMD's are not here: what a container
reads of them in /sys is the kernel's, and cannot be made up for it.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.bench import cdi, hardware
from tests.integration.bench.compose import ComposeTool
from tests.integration.bench.engines import Bench, Kind, OpenBench
from tests.integration.cluster import Standards
from tests.integration.conftest import docker
from tests.integration.engines import DOCKER

pytestmark = pytest.mark.engines(
    "docker", why="its image goes into rooms with engines of their own"
)

pytest_plugins = ("tests.integration.bench.fixtures",)

PREFIX = "dshpc-handed"
CONTAINER = f"{PREFIX}-slurm"


@dataclass(frozen=True)
class Case:
    """An engine and a compose tool, what is installed for the GPUs, and what is to come of it."""

    kind: Kind
    compose: str
    installed: frozenset[str]
    mechanism: str
    says: str  # in the compose file


CASES = {
    "20.10, --gpus, compose v1": Case(
        "host", "v1", frozenset({"hook"}), "device-request", 'driver: "nvidia"'
    ),
    "26.1, CDI, compose v1": Case(
        "trixie", "v1", frozenset({"cdi"}), "cdi", 'device_ids: ["nvidia.com/gpu=all"]'
    ),
    "26.1, CDI, compose 2.26": Case(
        "trixie", "v2", frozenset({"cdi"}), "cdi", 'device_ids: ["nvidia.com/gpu=all"]'
    ),
    "28.5, CDI, compose 2.40": Case(
        "newest", "newest", frozenset({"cdi"}), "cdi", '- "nvidia.com/gpu=all"'
    ),
    "28.5, --gpus, compose 2.40": Case(
        "newest", "newest", frozenset({"hook"}), "device-request", "gpus:"
    ),
    "28.5, runtime, compose 2.40": Case(
        "newest", "newest", frozenset({"runtime"}), "runtime", 'runtime: "nvidia"'
    ),
}


@pytest.fixture(scope="session")
def cluster_image(docker_engine: str, standards: Standards, bench_folder: Path) -> Path:
    """The image of a cluster, built on this machine's own engine, as a file."""
    archive = bench_folder / "cluster.tar"
    name = f"{CONTAINER}:nvidia"
    docker("tag", f"{standards(DOCKER).container}:nvidia", name)
    try:
        with archive.open("wb") as output:
            subprocess.run(["docker", "save", name], stdout=output, timeout=300, check=True)
    finally:
        docker("rmi", name)
    return archive


@dataclass(frozen=True)
class Place:
    """A machine with an engine, and the folder where a cluster is set up."""

    bench: Bench
    project: Path
    env: dict[str, str]

    def dshpc(self, *arguments: str) -> str:
        """A command that has to succeed: what it prints."""
        env = {**self.env, "DSHPC_DIR": str(self.project)}
        done = self.bench.dshpc(*arguments, deadline_s=240, env=env)
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def configure(self, *flags: str) -> str:
        self.project.mkdir()
        there = ["--dir", str(self.project), "--prefix", PREFIX]
        return self.dshpc("configure", "--yes", "--no-build", *there, *flags)

    def remove(self) -> None:
        self.bench.run(["docker", "rm", "--force", "--volumes", CONTAINER])
        volumes = (f"{PREFIX}-{part}" for part in ("state", "key", "home"))
        self.bench.run(["docker", "volume", "rm", "--force", *volumes])
        self.bench.run(["docker", "network", "rm", f"{PREFIX}_default"])


def place(bench: Bench, tool: ComposeTool, name: str) -> Place:
    """With that compose tool as the only one that the product finds, or version 1."""
    return Place(bench, bench.folder / name, tool.client(bench.folder / f"{name}-client"))


@pytest.fixture(scope="module")
def loaded(
    open_bench: OpenBench, built: hardware.Built, cluster_image: Path
) -> Iterator[Callable[[Kind], Bench]]:
    """A machine of each kind, with the cluster's image: opened when first asked for."""
    there: dict[Kind, Bench] = {}

    def of(kind: Kind) -> Bench:
        if kind not in there:
            there[kind] = stack.enter_context(open_bench(kind))
            hardware.add_nvidia(there[kind], built)
            there[kind].docker("load", "--input", str(cluster_image), deadline_s=300)
        return there[kind]

    with contextlib.ExitStack() as stack:
        yield of


def install(bench: Bench, what: frozenset[str]) -> None:
    hardware.remove_hook(bench)
    cdi.remove_spec(bench)
    bench.config.clear()
    if "cdi" in what:
        cdi.turn_on(bench)
        cdi.write_spec(bench, cdi.nvidia_spec())
    if "hook" in what:
        hardware.add_hook(bench)
    if "runtime" in what:
        hardware.add_runtime(bench)
    bench.restart()
    if "runtime" in what:
        hardware.add_hook(bench)  # for the runtime; the engine did not see it, so --gpus fails


@pytest.mark.parametrize("name", CASES)
def test_a_job_gets_the_gpu_that_the_engine_handed_over(
    loaded: Callable[[Kind], Bench], name: str, compose_tools: dict[str, ComposeTool]
) -> None:
    case = CASES[name]
    bench = loaded(case.kind)
    install(bench, case.installed)
    here = place(bench, compose_tools[case.compose], re.sub(r"\W+", "-", name))
    try:
        said = here.configure("--gpu", "nvidia")
        assert "srun --gres=gpu:1 passed, GPU 0; dshpc-handed idle gpu:h100:2" in said
        assert case.says in (here.project / "docker-compose.yml").read_text()
        listing = here.dshpc("srun", "--gres=gpu:h100:2", "nvidia-smi", "-L")
        assert re.findall(r"UUID: (GPU-[^)]+)", listing) == [card.uuid for card in hardware.CARDS]
        proof = (here.project / ".dshpc" / "passthrough.json").read_text()
        assert f'"mechanism": "{case.mechanism}"' in proof
    finally:
        here.remove()


def test_one_selected_gpu_is_the_only_one_in_the_cluster(
    loaded: Callable[[Kind], Bench], compose_tools: dict[str, ComposeTool]
) -> None:
    bench = loaded("newest")
    install(bench, frozenset({"cdi"}))
    here = place(bench, compose_tools["newest"], "selected")
    try:
        here.configure("--devices", "1")
        assert (
            f"nvidia.com/gpu={hardware.CARDS[1].uuid}"
            in (here.project / "docker-compose.yml").read_text()
        )
        assert here.dshpc("sinfo", "--noheader", "--format", "%G").strip().startswith("gpu:h100:1")
        nodes = here.dshpc("srun", "--gres=gpu:1", "sh", "-c", "ls /dev/nvidia[0-9]*")
        assert nodes.split() == ["/dev/nvidia1"]
    finally:
        here.remove()
