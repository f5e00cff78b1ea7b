"""What the tests on the real engine share. Where there is no engine they fail: none is skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dshpc_setup.engine.site import APT_FILE, SiteFiles, gather_site
from dshpc_setup.facts import Cpu, Engine, Gpus, HostFacts, Memory, Platform
from dshpc_setup.image.base import BaseImage, ensure_base
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Silent
from tests.integration.cluster import fresh, one_at_a_time, standard, start_configure
from tests.integration.leftovers import remove_leftovers

__all__ = ["fresh", "standard", "start_configure"]


@pytest.hookimpl(trylast=True)  # after the fixtures' own ends
def pytest_sessionfinish(session: pytest.Session) -> None:
    if left := remove_leftovers():
        print(f"\nLeft by tests, and removed: {', '.join(left)}")


def docker(*arguments: str, timeout_s: float = 300) -> str:
    """A docker command that has to succeed: its standard output."""
    done = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def engine() -> str:
    """The engine's version; the run fails where no engine answers."""
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
def image_facts(engine: str) -> HostFacts:
    """As much of this host as making images looks at."""
    release = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if line
    )
    return HostFacts(
        Platform("linux", os_id=release["ID"].strip('"'), arch=os.uname().machine),
        Cpu(os.cpu_count() or 1),
        Memory(1024, 1024),
        Gpus("absent"),
        Engine(
            "present",
            server_version=engine,
            kind="engine",
            arch=docker("info", "--format", "{{.Architecture}}").strip(),
        ),
    )


@pytest.fixture(scope="session")
def base_image(local_machine: LocalMachine, image_facts: HostFacts) -> BaseImage:
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
