"""Docker really installed and started, in a container that has nothing but Debian and python3.

The container stands for a bare machine without an init system: the product's own code runs in it,
from a read-only mount of this checkout. With SYS_ADMIN and NET_ADMIN a second dockerd runs there,
in its own network; the engine of this host is only asked for the container.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import textwrap
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.engine import compose, containers
from dshpc_setup.engine.images import inspect
from dshpc_setup.engine.site import APT_FILE, SiteFiles
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Compose
from dshpc_setup.image.base import BaseImage
from dshpc_setup.machine.local import LocalMachine

PACKAGE = Path(__file__).parents[2] / "dshpc_setup"

# Facts by hand: the probes need the Docker SDK, which a machine with only python3 has not.
ENSURE = """
    import json, sys
    sys.path.insert(0, "/opt")
    from dshpc_setup.engine import daemon
    from dshpc_setup.engine.install import ensure_engine
    from dshpc_setup.errors import DshpcError
    from dshpc_setup.facts import Cpu, Engine, Gpus, HostFacts, Memory, Platform
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.terminal.reporter import Silent

    machine = LocalMachine()
    engine = Engine("denied" if daemon.answers(machine) == "denied" else "absent")
    platform = Platform("linux", os_id="debian", os_version="13")
    facts = HostFacts(platform, Cpu(1), Memory(1, 1), Gpus("absent"), engine)
    yes, interactive = "--yes" in sys.argv, "--interactive" in sys.argv
    try:
        outcome = ensure_engine(machine, facts, Silent(yes), interactive=interactive)
        said = {"installed": outcome.installed, "started": outcome.started}
    except DshpcError as error:
        said = error.to_json()
    print(json.dumps(said))
"""

# A terminal whose user types a password when asked for one.
TERMINAL = """
    import os, pty, sys
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(sys.argv[1], sys.argv[1:])
    seen, typed = b"", False
    while True:
        try:
            block = os.read(terminal, 4096)
        except OSError:
            break
        seen += block
        if b"password for fred" in seen and not typed:
            typed = True
            os.write(terminal, b"secret\\n")
    sys.stdout.write(seen.decode())
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@dataclass(frozen=True)
class BareMachine:
    name: str

    def run(self, *command: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", "exec", self.name, *command],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def shell(self, line: str) -> str:
        done = self.run("sh", "-euc", line)
        assert done.returncode == 0, f"{line}: {done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def ensure(self, *options: str, user: str = "root") -> dict[str, Any]:
        """What the product did or said, run by `user` without a terminal."""
        argv = ["runuser", "-u", user, "--", "python3", "-B", "/opt/ensure.py", *options]
        return self._said(self.run(*argv))

    def ensure_at_a_terminal(self, user: str) -> dict[str, Any]:
        argv = ["runuser", "-u", user, "--", "python3", "-B", "/opt/ensure.py", "--yes"]
        return self._said(self.run("python3", "/opt/terminal.py", *argv, "--interactive"))

    @staticmethod
    def _said(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
        lines = done.stdout.strip().splitlines()
        assert done.returncode == 0, done.stdout + done.stderr
        assert lines, done.stderr
        said: dict[str, Any] = json.loads(lines[-1])
        return said

    def dockerd(self) -> int:
        return int(self.shell("cat /run/docker.pid"))

    def stop_dockerd(self) -> None:
        pid = self.dockerd()
        self.shell(f"kill {pid}")
        until = time.monotonic() + 90
        while self.run("test", "-e", f"/proc/{pid}").returncode == 0:
            assert time.monotonic() < until, "dockerd does not end"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def bare(
    base_image: BaseImage, site: SiteFiles, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BareMachine]:
    if site.uses_loopback():
        # The host's network would reach that proxy, and let the second dockerd loose on it.
        pytest.skip("the proxy of this machine listens on its loopback only")
    folder = tmp_path_factory.mktemp("bare")
    (folder / "apt.conf").write_text(site.apt_conf)
    (folder / "ca.pem").write_text(site.ca_pem)
    (folder / "ensure.py").write_text(textwrap.dedent(ENSURE))
    (folder / "terminal.py").write_text(textwrap.dedent(TERMINAL))
    name = f"dshpc-test-bare-{uuid.uuid4().hex[:8]}"
    proxies = [part for key in site.proxy_env() for part in ("--env", key)]
    subprocess.run(
        [
            "docker", "run", "--detach", "--init", "--name", name, *proxies,
            "--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN",
            "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined",
            "--volume", "/var/lib/docker",
            "--volume", f"{PACKAGE}:/opt/dshpc_setup:ro",
            "--volume", f"{folder}:{Path(APT_FILE).parent}:ro",
            base_image.ref, "sleep", "1800",
        ],
        capture_output=True, timeout=180, check=True, env={**os.environ, **site.proxy_env()},
    )  # fmt: skip
    machine = BareMachine(name)
    try:
        site_folder = Path(APT_FILE).parent
        machine.shell(f"cp {APT_FILE} /etc/apt/apt.conf.d/99site")
        machine.shell("echo 'Acquire::Retries 3;' >/etc/apt/apt.conf.d/99retries")
        machine.shell(f"cp {site_folder}/ensure.py {site_folder}/terminal.py /opt")
        machine.shell("apt-get -qq update && apt-get -qq install -y --no-install-recommends "
                      "python3 sudo >/dev/null 2>&1")  # fmt: skip
        machine.shell("useradd -m fred && echo fred:secret | chpasswd && useradd -m nobody2")
        machine.shell("usermod -aG sudo fred && rm -rf /var/lib/apt/lists/*")
        yield machine
    finally:
        subprocess.run(
            ["docker", "rm", "--force", "--volumes", name],
            capture_output=True,
            timeout=180,
            check=True,
        )


@pytest.fixture(scope="module")
def installed(bare: BareMachine) -> dict[str, Any]:
    """What the installation said; every test below may count on an engine having been there."""
    assert bare.run("sh", "-c", "command -v docker || command -v dockerd").returncode != 0
    return bare.ensure("--yes")


def test_a_no_changes_nothing_and_leaves_the_list(bare: BareMachine) -> None:
    said = bare.ensure()
    assert said["brief"] == "Docker is not installed"
    assert any("apt-get" in step for step in said["resolution"])
    assert bare.run("sh", "-c", "command -v docker || command -v dockerd").returncode != 0


def test_without_root_the_list_is_told(bare: BareMachine) -> None:
    for user in ("nobody2", "fred"):  # not allowed sudo; allowed, but only with a password
        said = bare.ensure("--yes", user=user)
        assert said["brief"] == "This step needs root"
        assert said["exit_code"] == 2


def test_the_packages_are_installed_and_the_engine_answers(
    bare: BareMachine, installed: dict[str, Any]
) -> None:
    assert installed["installed"][0] == "docker.io"
    assert "docker-compose" in installed["installed"]
    assert installed["started"] is True
    assert bare.shell("docker version --format '{{.Server.Version}}'")
    assert bare.shell("docker compose version --short").startswith("2.")


def test_the_engine_outlives_who_started_it(bare: BareMachine, installed: dict[str, Any]) -> None:
    pid = bare.dockerd()
    # pid, name, state, parent, group, session: a leader of its own session
    stat = bare.shell(f"cat /proc/{pid}/stat").rpartition(")")[2].split()
    assert int(stat[3]) == pid
    assert bare.shell("docker info --format '{{.ID}}'")


def test_again_nothing_is_installed_and_no_second_engine_started(
    bare: BareMachine, installed: dict[str, Any]
) -> None:
    before = bare.dockerd()
    assert bare.ensure("--yes") == {"installed": [], "started": True}
    assert bare.dockerd() == before


def test_a_user_outside_the_group_is_told_exactly(
    bare: BareMachine, installed: dict[str, Any]
) -> None:
    said = bare.ensure("--yes", user="fred")
    assert "fred may not use it" in said["brief"]
    assert said["resolution"][0] == "sudo usermod -aG docker fred"


def test_an_engine_that_dies_says_why(bare: BareMachine, installed: dict[str, Any]) -> None:
    bare.stop_dockerd()
    bare.shell("mkdir -p /etc/docker && echo '{\"debug\": tru}' > /etc/docker/daemon.json")
    try:
        said = bare.ensure("--yes")
        assert "configuration file is broken" in said["brief"]
        assert "daemon.json" in said["details"]
    finally:
        bare.shell("rm /etc/docker/daemon.json")
    assert bare.ensure("--yes") == {"installed": [], "started": True}


def test_at_a_terminal_sudo_asks_for_the_password_and_the_engine_stays(
    bare: BareMachine, installed: dict[str, Any]
) -> None:
    bare.stop_dockerd()
    said = bare.ensure_at_a_terminal("fred")
    assert "fred may not use it" in said["brief"]  # started, and fred is still not in the group
    assert bare.shell("docker version --format '{{.Server.Version}}'")


@pytest.mark.parametrize("major", [1, 2])
def test_compose_and_containers_on_this_engine(
    major: int,
    base_image: BaseImage,
    local_machine: LocalMachine,
    v2_plugins: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if major == 1:
        if shutil.which("docker-compose") is None:
            pytest.skip("docker-compose is not installed: this machine has version 2 only")
        tool = Compose("1.29.2", ("docker-compose",))
    else:
        tool = Compose("2.26.1", ("docker", "compose"))
        for key, value in v2_plugins.items():
            monkeypatch.setenv(key, value)
    monkeypatch.setenv("COMPOSE_FILE", "/elsewhere.yml")
    monkeypatch.setenv("COMPOSE_PROJECT_NAME", "elsewhere")
    monkeypatch.setenv("DSHPC_WORD", "from the shell")
    name = f"dshpc-test-{uuid.uuid4().hex[:8]}"
    (tmp_path / ".env").write_text("DSHPC_WORD=from the file\n")
    (tmp_path / compose.FILE).write_text(
        f'version: "3"\nservices:\n  one:\n    image: {base_image.ref}\n'
        f"    container_name: {name}\n    init: true\n    command: sleep 600\n"
        "    labels: {word: '${DSHPC_WORD}'}\n    volumes: ['data:/data']\n"
        f"volumes:\n  data:\n    labels: {{owner: {name}}}\n"
    )
    assert containers.inspect(local_machine, name) is None
    lines: list[str] = []
    try:
        compose.up(local_machine, tool, tmp_path, name, on_line=lines.append)
        assert any(name in line for line in lines)
        found = containers.inspect(local_machine, name)
        assert found is not None
        assert found.running
        image = inspect(local_machine, base_image.ref)
        assert image is not None
        assert found.image_id == image.id
        assert found.labels["word"] == "from the file"
        assert found.labels["com.docker.compose.project"] == name
        argv = ["sh", "-c", "cat; echo $0 >&2; exit 7", "two words"]
        done = containers.exec_in(local_machine, name, argv, deadline_s=30, stdin="in")
        assert (done.code, done.stdout, done.stderr) == (7, "in", "two words\n")
        containers.restart(local_machine, name)
        again = containers.inspect(local_machine, name)
        assert again is not None
        assert again.id == found.id
        assert again.started != found.started
        assert len(containers.volumes(local_machine, f"owner={name}")) == 1
    finally:
        compose.down(local_machine, tool, tmp_path, name)
        for volume in containers.volumes(local_machine, f"owner={name}"):
            assert containers.remove_volume(local_machine, volume)
    assert containers.inspect(local_machine, name) is None
    assert containers.remove(local_machine, name) is False
    with pytest.raises(DshpcError, match="Nothing can be run"):
        containers.exec_in(local_machine, name, ["true"], deadline_s=30)
