"""Fixtures of the bench; a test module has them by `pytest_plugins`, so that each is made once."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.image.base import BaseImage
from tests.integration.bench import compose, hardware, roots
from tests.integration.bench.engines import Bench, Kind, OpenBench, bench
from tests.integration.bench.park import Park


@pytest.fixture(scope="session")
def bench_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Room on the disk for the data of engines; empty again at the end."""
    folder = tmp_path_factory.mktemp("bench")
    yield folder
    _clear(folder)


@pytest.fixture(scope="session")
def trixie_root(base_image: BaseImage, site: SiteFiles, bench_folder: Path) -> Iterator[Path]:
    """Debian trixie with its Docker (CDI on request), its Podman and its compose."""
    packages = ("docker.io", "docker-cli", "docker-compose", "podman")
    with roots.root_with(packages, "trixie", base_image, site, bench_folder) as root:
        yield root


@pytest.fixture(scope="session")
def newest_root(base_image: BaseImage, site: SiteFiles, bench_folder: Path) -> Iterator[Path]:
    """The newest Docker and compose that Debian has: CDI without asking, devices told of."""
    packages = ("docker.io", "docker-cli", "docker-compose")
    with roots.root_with(packages, "sid", base_image, site, bench_folder) as root:
        yield root


@pytest.fixture(scope="session")
def image_archive(base_image: BaseImage, bench_folder: Path) -> Path:
    """The base image as a file, for engines that have no image yet."""
    archive = bench_folder / "base.tar"
    with archive.open("wb") as output:
        subprocess.run(["docker", "save", base_image.ref], stdout=output, timeout=300, check=True)
    return archive


@pytest.fixture(scope="session")
def built(bench_folder: Path) -> hardware.Built:
    """The compiled stand-ins."""
    folder = bench_folder / "built"
    folder.mkdir()
    return hardware.build(folder)


@pytest.fixture(scope="session")
def open_bench(
    bench_folder: Path, base_image: BaseImage, image_archive: Path, request: pytest.FixtureRequest
) -> OpenBench:
    """Opens a machine with an engine of the kind asked for: started, the base image in its store."""

    @contextlib.contextmanager
    def opened(kind: Kind) -> Iterator[Bench]:
        root = None
        if kind != "host":
            name = "newest_root" if kind == "newest" else "trixie_root"
            root = request.getfixturevalue(name)
        folder = bench_folder / f"{kind}-{os.urandom(3).hex()}"
        folder.mkdir()
        try:
            with bench(kind, folder, root) as made:
                made.start()
                made.docker("load", "--input", str(image_archive), deadline_s=300)
                made.image = base_image.ref
                yield made
        finally:
            _clear(folder)

    return opened


@pytest.fixture(scope="module")
def park(open_bench: OpenBench, built: hardware.Built) -> Iterator[Park]:
    """The machines of a test module, each opened once."""
    with contextlib.ExitStack() as stack:
        yield Park(stack, open_bench, built)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Kind:
    """The engine that a test is about; each test says which, by indirect parameters."""
    found: Kind = request.param
    return found


@pytest.fixture
def bare(park: Park, kind: Kind) -> Bench:
    """A machine with two GPUs and a driver, and an engine that knows nothing of them."""
    return park.bare(kind)


@pytest.fixture
def whole(park: Park, kind: Kind) -> Bench:
    """A machine with the toolkit, the runtime and a CDI specification, all in force."""
    return park.whole(kind)


@pytest.fixture
def broken(park: Park, kind: Kind) -> Iterator[Bench]:
    """A whole machine for a fault, without it again afterwards."""
    yield park.whole(kind)
    park.fix(kind)


@pytest.fixture(scope="session")
def compose_tools(trixie_root: Path, newest_root: Path) -> dict[str, compose.ComposeTool]:
    """By name: "v1" (1.29), "v2" (trixie's, before 2.30) and "newest" (which knows `gpus:`)."""
    return {
        "v1": compose.of_machine(),
        "v2": compose.of_root(trixie_root),
        "newest": compose.of_root(newest_root),
    }


def _clear(folder: Path) -> None:
    subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], timeout=180, check=True)
