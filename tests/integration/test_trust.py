"""Jobs lay a project of their own where people work: nothing of it runs on the host, as anybody.

The attack itself, as an ordinary user: a job writes `.dshpc/runtime.json`, which names a program, and a
compose file that mounts `/`, into folders where root then types the commands of the README.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.environment import uv
from dshpc_setup.environment.model import Requirement
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.project.trust import OWN
from tests.integration.cluster import Cluster, Outcome, as_user, command, docker, made, run
from tests.integration.engines import Engine

pytestmark = [
    pytest.mark.engines("docker", why="a folder's files name programs of Docker's"),
    pytest.mark.timeout(600),
]
MALLORY, ADA, BOB = 12_345, 42_520, 42_521

# What a job lays into a folder: $1 the container that it names, $2 what must never be there
_PLANT = r"""
set -eu
mkdir -p .dshpc config methods
cat > program <<END
#!/bin/sh
touch $2
exec docker "\$@"
END
chmod 755 program
printf '{"container": "%s", "prefix": "%s", "work": "%s", "docker": "%s"}\n' \
    "$1" mallory "$PWD" "$PWD/program" > .dshpc/runtime.json
cat > docker-compose.yml <<END
services:
  slurm:
    image: $3
    container_name: mallory-slurm
    entrypoint: ["touch", "/host$2"]
    volumes: ["/:/host"]
END
echo 'image: mallory' > dshpc.yaml
chmod -R go+w . 2>/dev/null || true
"""


@pytest.fixture(scope="module")
def cluster(engine: Engine) -> Iterator[Cluster]:
    with made("trust", engine=engine) as found:
        found.configure("--simulate", "h100:2").good()
        found.work.chmod(0o1777)
        yield found
        run(["docker", "rm", "-f", "mallory-slurm"])


@pytest.fixture
def marker(cluster: Cluster) -> Iterator[Path]:
    """What only a program on the host, or a container with `/`, could make."""
    path = cluster.folder / "ran-on-the-host"
    yield path
    assert not path.exists()
    assert docker("ps", "-aq", "--filter", "name=^mallory-slurm$") == ""


def plant(cluster: Cluster, where: str, marker: Path, container: str | None = None) -> Path:
    """As a job of an ordinary user, in a folder below the work folder; asserts that it is laid there."""
    folder = cluster.work / where
    image = cluster.inspect()["Config"]["Image"]
    words = ("plant", container or cluster.container, str(marker), image)
    script = f"mkdir -p {folder}; cd {folder}; {_PLANT}"
    as_user(MALLORY, "dshpc", "srun", "-Q", "sh", "-c", script, *words, cwd=cluster.work).good()
    planted = folder / OWN / "runtime.json"
    assert planted.stat().st_uid == MALLORY
    assert json.loads(planted.read_text())["docker"] == str(folder / "program")
    return folder


def root(cluster: Cluster, *arguments: str, cwd: Path) -> Outcome:
    return run(command("dshpc", *arguments), cwd=cwd, env=cluster.env)


@pytest.mark.parametrize(
    ("where", "container"),
    [("", None), ("", "mallory-slurm"), ("jobs-of-mallory/7", None), ("mine", "mallory-slurm")],
)
def test_what_a_job_laid_into_the_work_folder_is_not_used(
    cluster: Cluster, where: str, container: str | None, marker: Path
) -> None:
    folder = plant(cluster, where, marker, container)
    host = cluster.said("hostname")
    ran = root(cluster, "srun", "-Q", "hostname", cwd=folder).good()
    assert ran.stdout.strip() == host
    status = root(cluster, "status", "--json", cwd=folder).good().report
    assert (status["project"], status["container"]) == (str(cluster.folder), cluster.container)
    doctor = root(cluster, "doctor", "--json", cwd=folder)
    assert str(folder / OWN) not in doctor.stdout
    before = cluster.started_at
    root(cluster, "up", cwd=folder).good()
    assert cluster.started_at == before
    named = root(cluster, "up", "--dir", str(folder), cwd=folder)
    assert (named.code, "is not used as a project" in named.stderr) == (2, True), named.stderr


def test_no_python_of_ours_imports_what_lies_where_we_stand(
    cluster: Cluster, marker: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`cd work; ../dshpc env lock` has uv ask our Python, which imports nothing from there; and uv reads no
    settings from there."""
    folder = cluster.work / "modules"  # of its own: what the other tests start would import them
    script = f"""
        mkdir {folder} && cd {folder}
        for name in json platform sysconfig pip; do echo 'open("{marker}", "w")' >$name.py; done
        echo 'index-url = "http://127.0.0.1:9/simple"' >uv.toml
    """
    as_user(MALLORY, "dshpc", "srun", "-Q", "sh", "-c", script, cwd=cluster.work).good()
    monkeypatch.chdir(folder)
    machine = LocalMachine()
    found = uv.find(machine, "amd64", SiteFiles())
    assert 'name = "idna"' in uv.resolve(machine, found, [Requirement("idna")], folder)
    assert not marker.exists()


def test_a_folder_of_ones_own_job_is_not_used_either(cluster: Cluster, marker: Path) -> None:
    """The same user's: what the cluster's own work folder holds is never a project."""
    own = cluster.work / "ada"
    own.mkdir(exist_ok=True)
    os.chown(own, ADA, ADA)
    (own / OWN).mkdir(exist_ok=True)
    text = {"container": "elsewhere", "prefix": "elsewhere", "work": str(own)}
    (own / OWN / "runtime.json").write_text(json.dumps(text))
    for path in (own / OWN, own / OWN / "runtime.json"):
        os.chown(path, ADA, ADA)
    ran = as_user(ADA, "dshpc", "srun", "-Q", "id", "-u", cwd=own).good()
    assert ran.stdout.strip() == str(ADA)


@pytest.fixture
def adas(cluster: Cluster, marker: Path) -> Iterator[Cluster]:
    """The same cluster where the project belongs to an ordinary user, who wrote what a job would."""
    runtime = cluster.folder / OWN / "runtime.json"
    compose = cluster.folder / "docker-compose.yml"
    texts = {path: path.read_text() for path in (runtime, compose)}
    program = cluster.folder / "program"
    program.write_text(f'#!/bin/sh\ntouch {marker}\nexec docker "$@"\n')
    program.chmod(0o755)
    runtime.write_text(json.dumps({**json.loads(texts[runtime]), "docker": str(program)}))
    image = cluster.inspect()["Config"]["Image"]
    compose.write_text(
        f"services:\n  slurm:\n    image: {image}\n    container_name: mallory-slurm\n"
        f'    entrypoint: ["touch", "/host{marker}"]\n    volumes: ["/:/host"]\n'
    )
    for at, folders, files in os.walk(cluster.folder):
        for name in ("", *folders, *files):
            os.chown(os.path.join(at, name), ADA, ADA, follow_symlinks=False)
    cluster.work.chmod(0o1777)
    yield cluster
    for at, folders, files in os.walk(cluster.folder):
        for name in ("", *folders, *files):
            os.chown(os.path.join(at, name), 0, 0, follow_symlinks=False)
    for path, text in texts.items():
        path.write_text(text)
    cluster.dshpc("up").good()


def test_root_in_another_users_project_reads_names_and_runs_nothing_of_it(adas: Cluster) -> None:
    host = adas.said("hostname")
    for folder in (adas.folder, adas.work):
        assert root(adas, "srun", "-Q", "hostname", cwd=folder).good().stdout.strip() == host
        assert (
            root(adas, "status", "--json", cwd=folder).good().report["container"] == adas.container
        )
        found = root(adas, "doctor", "--json", cwd=folder).report
        assert found["schema"].startswith("dshpc.doctor")
    for argv in (
        ["up"],
        ["destroy", "--yes"],
        ["configure", "--yes"],
        ["config", "set", "gpu", "none"],
    ):
        refused = root(adas, *argv, cwd=adas.folder)
        assert refused.code == 2, (argv, refused)
        assert f"belongs to user {ADA}" in refused.stderr, (argv, refused)
        assert f"sudo -u '#{ADA}'" in refused.stderr
    assert adas.exists()
    assert (
        root(adas, "down", cwd=adas.folder).good().stdout
        == f"Stopped. Queued jobs are kept. Only user {ADA} can start it again.\n"
    )
    assert not adas.exists()
    assert docker("network", "ls", "-q", "--filter", f"name={adas.prefix}_default") == ""


def test_users_of_somebody_elses_cluster(adas: Cluster) -> None:
    ran = as_user(BOB, "dshpc", "srun", "-Q", "id", "-u", cwd=adas.work).good()
    assert ran.stdout.strip() == str(BOB)
    refused = as_user(BOB, "dshpc", "up", cwd=adas.folder)
    assert (refused.code, f"belongs to user {ADA}" in refused.stderr) == (2, True), refused


def test_what_another_users_folder_says_is_compared_with_the_engine(
    cluster: Cluster, engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It names a container that is there, of another folder."""
    with made("trust-bob", engine=engine) as other:
        (other.folder / OWN).mkdir()
        text = {"container": cluster.container, "prefix": cluster.prefix, "work": str(other.folder)}
        (other.folder / OWN / "runtime.json").write_text(json.dumps(text))
        for path in (other.folder, other.folder / OWN, other.folder / OWN / "runtime.json"):
            os.chown(path, BOB, BOB)
        for argv in (["srun", "true"], ["job", "list"], ["status"], ["down"]):
            refused = root(cluster, *argv, cwd=other.folder)
            assert (refused.code, cluster.container in refused.stderr) == (2, True), (argv, refused)
        assert cluster.exists()


def test_root_by_sudo_goes_on_as_who_called_it(cluster: Cluster) -> None:
    """`sudo ./configure-environment` makes files of the user's, which `sudo ./dshpc up` then uses."""
    for at, folders, files in os.walk(cluster.folder):
        for name in ("", *folders, *files):
            os.chown(os.path.join(at, name), ADA, ADA, follow_symlinks=False)
    env = {**cluster.env, "SUDO_UID": str(ADA), "SUDO_GID": str(ADA), "SUDO_USER": "ada"}
    try:
        run(command("dshpc", "up"), cwd=cluster.folder, env=env).good()
    finally:
        for at, folders, files in os.walk(cluster.folder):
            for name in ("", *folders, *files):
                os.chown(os.path.join(at, name), 0, 0, follow_symlinks=False)
        cluster.work.chmod(0o1777)
