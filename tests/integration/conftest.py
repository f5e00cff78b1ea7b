"""What the tests on the real engine share. Where there is no engine they fail: none is skipped."""

from __future__ import annotations

import faulthandler
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dshpc_setup import facts
from dshpc_setup.engine.site import APT_FILE, SiteFiles, gather_site
from dshpc_setup.image.base import BaseImage, ensure_base
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Silent
from tests.integration.cluster import (
    CACHE,
    docker,
    fresh,
    one_at_a_time,
    standard,
    standards,
    start_configure,
)
from tests.integration.engines import DOCKER, Engine, parametrize
from tests.integration.leftovers import remove_leftovers

__all__ = ["docker", "fresh", "standard", "standards", "start_configure"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc)


@pytest.hookimpl(trylast=True)  # after the fixtures' own ends
def pytest_sessionfinish(session: pytest.Session) -> None:
    if left := remove_leftovers(CACHE):
        print(f"\nLeft by tests, and removed: {', '.join(left)}")


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Engine:
    """The engine of this file's clusters, or of one test's, by its line (engines.py)."""
    chosen: Engine = request.param
    if chosen == DOCKER:
        request.getfixturevalue("docker_engine")
    return chosen


@pytest.fixture
def no_crash_dump() -> Iterator[None]:
    """pytest has every crash dumped to its own output, also one of a child that is meant to crash."""
    before = faulthandler.is_enabled()
    faulthandler.disable()
    yield
    if before:
        faulthandler.enable(sys.__stderr__ or sys.stderr)


@pytest.fixture(scope="session")
def docker_engine() -> str:
    """Docker's version; the run fails where no engine answers."""
    done = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"The integration tests need a Docker engine that answers: {done.stderr}")
    return done.stdout.strip()


@pytest.fixture(scope="session")
def local_machine() -> LocalMachine:
    return LocalMachine()


@pytest.fixture(scope="session")
def image_facts(docker_engine: str) -> facts.HostFacts:
    """As much of this host as making images looks at."""
    release = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if line
    )
    return facts.HostFacts(
        facts.Platform("linux", os_id=release["ID"].strip('"'), arch=os.uname().machine),
        facts.Cpu(os.cpu_count() or 1),
        facts.Memory(1024, 1024),
        facts.Gpus("absent"),
        facts.Engine(
            "present",
            server_version=docker_engine,
            kind="engine",
            arch=docker("info", "--format", "{{.Architecture}}").strip(),
        ),
    )


@pytest.fixture(scope="session")
def base_image(local_machine: LocalMachine, image_facts: facts.HostFacts) -> BaseImage:
    """The base image as the product gets it; one that is there from an earlier run is used."""
    with one_at_a_time("base"):
        return ensure_base(local_machine, image_facts, Settings(), Silent(answer=True))


@pytest.fixture(scope="session")
def site(local_machine: LocalMachine) -> SiteFiles:
    """What this machine itself needs to fetch packages."""
    return gather_site(local_machine)


@pytest.fixture(scope="session")
def v2_plugins(
    base_image: BaseImage, site: SiteFiles, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Environment under which `docker buildx` and `docker compose` (version 2) are there.

    They are Debian trixie's own packages, unpacked into a client configuration of its own.
    """
    folder = tmp_path_factory.mktemp("v2")
    site_folder = folder / "site"
    site_folder.mkdir()
    (site_folder / "apt.conf").write_text(site.apt_conf)
    (site_folder / "ca.pem").write_text(site.ca_pem)
    environment = [item for key in site.proxy_env() for item in ("--env", key)]
    script = """
        if [ -s "$0" ]; then export APT_CONFIG="$0"; fi
        cd /out
        set -- -qq -o APT::Sandbox::User=root -o Acquire::Retries=3
        apt-get "$@" update
        apt-get "$@" download docker-buildx docker-compose
        for package in *.deb; do dpkg -x "$package" unpacked; done
        cp -r unpacked/usr/libexec/docker/cli-plugins .
        chown -R "$(stat -c %u:%g /out)" /out
    """
    docker(
        "run", "--rm", "--name", f"dshpc-test-plugins-{os.getpid()}", *environment,
        "--network", "host" if site.uses_loopback() else "bridge",
        "--volume", f"{folder}:/out",
        "--volume", f"{site_folder}:{Path(APT_FILE).parent}:ro",
        base_image.ref, "sh", "-euc", script, APT_FILE,
    )  # fmt: skip
    yield {"DOCKER_CONFIG": str(folder)}
    shutil.rmtree(folder, ignore_errors=True)
