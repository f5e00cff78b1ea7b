"""Installed where nothing of a checkout is: by uvx, by pipx, and as a Debian package.

One container of Debian with an ordinary user. uvx brings Slurm up in it, on the built-in engine; pipx and
the Debian package then find that cluster, and change nothing of it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import hatchling.build
import pytest

from dshpc_setup import __version__
from dshpc_setup.image.base import BaseImage
from scripts import debian_package
from tests.integration.cluster import PREFIX, ROOT, docker
from tests.integration.engines import DOCKER
from tests.integration.leftovers import remember
from tests.integration.test_ci import UNCONFINED
from tests.integration.test_launchers import host_apt_settings, site_ca_bundle

HOME = "/home/ada"
PROJECT = f"{HOME}/project"
NOT_SLIM = ("-o", "DPkg::Options::=--path-include=/usr/share/man/man1/*")
pytestmark = [
    pytest.mark.engines("docker", why="a container in which nothing is installed"),
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and its Debian package, the latter hardly compressed."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("SOURCE_DATE_EPOCH", "1767225600")
        wheel = folder / hatchling.build.build_wheel(str(folder))
        architecture = debian_package.own_architecture()
        fetched = tmp_path_factory.mktemp("fetched")
        debian_package.fetch(wheel, architecture, fetched)
        deb = folder / f"dshpc_{__version__}_{architecture}.deb"
        debian_package.assemble(fetched, deb, level=0)
        again = fetched / deb.name
        before = os.umask(0o077)
        try:
            debian_package.assemble(fetched, again, level=0)
        finally:
            os.umask(before)
    assert deb.read_bytes() == again.read_bytes()
    folder.chmod(0o755)
    return folder


class Bare:
    """The container: `root` and `ada` run a script in it, and give what it prints."""

    def __init__(self, name: str) -> None:
        self.name = name

    def root(self, script: str) -> str:
        return self._said(script, "--user=root")

    def ada(self, script: str) -> str:
        path = f"PATH={HOME}/tools/bin:{HOME}/.local/bin:/usr/bin:/bin"
        return self._said(
            script, "--user=ada", f"--workdir={PROJECT}", f"--env=HOME={HOME}", f"--env={path}"
        )

    def _said(self, script: str, *options: str) -> str:
        argv = ("exec", *options, self.name, "sh", "-euc", script)
        return DOCKER.run(*argv, timeout_s=800).good().stdout.strip()


@pytest.fixture(scope="module")
def bare(
    built: Path, base_image: BaseImage, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bare]:
    name = f"{PREFIX}installed-{uuid.uuid4().hex[:8]}"
    settings = tmp_path_factory.mktemp("apt") / "99site"
    settings.write_text(f"Acquire::Retries 3;\n{host_apt_settings()}")
    passed = ("http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL")
    options = [f"--env={key}={os.environ[key]}" for key in passed if key in os.environ]
    options += [f"--security-opt={option}" for option in UNCONFINED]
    if (bundle := site_ca_bundle()) is not None:
        options += ["--env=SSL_CERT_FILE=/site/ca.crt", f"--volume={bundle}:/site/ca.crt:ro"]
    remember(name)
    docker(
        "run", "--detach", "--init", "--name", name, *options, f"--volume={built}:/built:ro",
        f"--volume={settings}:/etc/apt/apt.conf.d/99site:ro", base_image.ref, "sleep", "3000",
    )  # fmt: skip
    try:
        made = Bare(name)
        made.root(
            "apt-get -qq update; apt-get -qq -y --no-install-recommends install python3-venv >/dev/null;"
            f"useradd --create-home --uid 1000 --shell /bin/bash ada; su ada -c 'mkdir {PROJECT}'"
        )
        yield made
    finally:
        docker("rm", "--force", name)


def test_uvx_ends_with_slurm_up_and_pipx_goes_on(bare: Bare) -> None:
    wheel = f"/built/dshpc_setup-{__version__}-py3-none-any.whl"
    bare.ada(
        f"python3 -m venv {HOME}/tools; pip install --quiet --disable-pip-version-check uv pipx"
    )
    said = bare.ada(
        f"uvx --quiet --from {wheel} configure-environment --yes --engine builtin --simulate h100:2"
    )
    assert "Slurm is up: node dshpc is idle, gpu:h100:2 (SIMULATED)" in said
    bare.ada(f"pipx install --quiet {wheel}")
    assert bare.ada("command -v dshpc") == f"{HOME}/.local/bin/dshpc"
    assert bare.ada("dshpc srun --gres=gpu:1 printenv CUDA_VISIBLE_DEVICES") == "0"


def test_the_debian_package_in_a_fresh_debian(bare: Bare) -> None:
    """Found by their plain names, with man pages; it sees the cluster that another installation made."""
    options = " ".join(NOT_SLIM)
    bare.root(
        f"apt-get -qq -y --no-install-recommends {options} install /built/*.deb >/dev/null 2>&1"
    )
    at_home = "export PATH=/usr/bin:/bin;"
    assert bare.ada(f"{at_home} dshpc --version") == f"dshpc {__version__}"
    assert "Set up Slurm on this machine" in bare.ada(f"{at_home} configure-environment --help")
    assert bare.ada(f"{at_home} zcat /usr/share/man/man1/dshpc-job.1.gz").startswith(".TH")
    assert "dshpc" in bare.ada(f"{at_home} cat /usr/share/bash-completion/completions/dshpc")
    assert "uv " in bare.ada("/usr/lib/dshpc/bin/uv --version")
    job = "dshpc srun --gres=gpu:2 printenv CUDA_VISIBLE_DEVICES"
    assert bare.ada(f"{at_home} {job}") == "0,1"
    again = bare.ada(f"{at_home} configure-environment --yes")
    assert "Slurm is up" in again
    assert "not changed" in again or "unchanged" in again
    assert bare.ada(f"{at_home} dshpc doctor --only files --json").startswith("{")


def test_it_is_removed_as_a_whole(bare: Bare) -> None:
    bare.ada("dshpc destroy --yes --stop-jobs")
    bare.root("apt-get -qq -y purge dshpc >/dev/null 2>&1")
    assert bare.root("ls -d /usr/lib/dshpc /usr/bin/dshpc 2>/dev/null || true") == ""
