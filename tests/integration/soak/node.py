"""A container of a cluster's image, run by hand: other hardware each time over the same volumes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.cluster import Cluster, Outcome, docker, run
from tests.integration.soak.hardware import Hardware

CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
HEALTH = "/usr/local/lib/dshpc/health"
INIT = "/usr/local/lib/dshpc/init"


@dataclass
class Node:
    """`cluster` gives the names: its prefix is the node, its volumes and config/ are used."""

    cluster: Cluster
    image: str
    volumes: Mapping[str, str] = field(default_factory=dict)  # in place of the cluster's own
    config: Path | None = None  # in place of the cluster's own
    state_mode: str = "rw"

    @property
    def name(self) -> str:
        return self.cluster.container

    def run(
        self, hardware: Hardware, *options: str, entrypoint: Sequence[str] = (), node: str = ""
    ) -> None:
        """Make the container anew; `entrypoint` runs in place of the image's."""
        program, *arguments = entrypoint or ("",)
        prefix = node or self.cluster.prefix
        state = self.volumes.get("state", f"{self.cluster.prefix}-state")
        key = self.volumes.get("key", f"{self.cluster.prefix}-key")
        config = self.config or self.cluster.folder / "config"
        self.cluster.work.mkdir(exist_ok=True)
        docker(
            "run", "--detach", "--name", self.name, "--hostname", prefix,
            "--restart", "unless-stopped",
            "--cap-drop", "ALL", *(f"--cap-add={each}" for each in CAPABILITIES),
            "--security-opt", "no-new-privileges",
            "--volume", f"{state}:/var/lib/dshpc/state:{self.state_mode}",
            "--volume", f"{key}:/var/lib/dshpc/key",
            "--volume", f"{config}:/config:ro",
            "--volume", f"{self.cluster.work}:{self.cluster.work}",
            "--env", f"DSHPC_PREFIX={prefix}", *hardware.options(),
            *(("--entrypoint", program) if program else ()), *options, self.image, *arguments,
        )  # fmt: skip

    def wait(self) -> dict[str, Any]:
        """The status, once it is ready or failed."""
        done = self.exec("dshpc-node", "wait", "--timeout", "90")
        assert done.stdout, f"{done.stderr}\n{self.log()}"
        status = done.report
        assert done.code == (0 if status["ready"] else 2), self.log()
        return status

    def ready(self) -> dict[str, Any]:
        status = self.wait()
        assert status["ready"], self.log()
        return status

    def failed(self) -> dict[str, Any]:
        """The status of a start that could not go on: the container stays, and is not well."""
        status = self.wait()
        assert (status["phase"], status["ready"]) == ("failed", False), self.log()
        assert status["failure"]["resolution"], status["failure"]
        assert status["failure"]["brief"] in self.log()
        self.stays()
        health = self.exec(HEALTH)
        assert health.code == 1, health
        assert "failed" in health.stdout
        return status

    def stays(self) -> None:
        """It runs, and was never started by the engine of its own accord."""
        found = self.cluster.inspect()
        assert (found["State"]["Running"], found["RestartCount"]) == (True, 0), self.log()
        assert "Traceback" not in self.log()

    def remove(self) -> None:
        """The container without its volumes; it is stopped as `docker compose down` does."""
        docker("stop", "--time", "15", self.name)
        docker("rm", self.name)

    def restart(self) -> None:
        docker("restart", "--time", "15", self.name)

    def exec(self, *argv: str, options: Sequence[str] = (), timeout_s: float = 120) -> Outcome:
        return run(["docker", "exec", *options, self.name, *argv], timeout_s=timeout_s)

    def said(self, *argv: str) -> str:
        return self.exec(*argv).good().stdout.strip()

    def shell(self, script: str, *arguments: str) -> str:
        """What a script that has to succeed prints."""
        return self.said("sh", "-euc", script, "sh", *arguments)

    def log(self) -> str:
        done = run(["docker", "logs", self.name])
        return done.stdout + done.stderr

    def pid(self, service: str) -> int:
        """Of the daemon; -1 where it is down."""
        found = self.exec("s6-svstat", "-o", "pid", f"/run/dshpc/services/{service}")
        return int(found.stdout) if found.code == 0 else -1

    def states(self) -> dict[str, tuple[str, str]]:
        """Job id -> state and reason, of all jobs that slurmctld knows."""
        lines = self.said("squeue", "-h", "-a", "-t", "all", "-o", "%i|%T|%r").splitlines()
        return {job: (state, reason) for job, state, reason in (line.split("|") for line in lines)}


def gres_of(text: str) -> dict[str, int]:
    """`gpu:h100:2(S:0),gpu:t4:1` as type -> count; "" and (null) as nothing."""
    found: dict[str, int] = {}
    for item in text.replace("(null)", "").split(","):
        if item.strip():
            name, kind, count = item.partition("(")[0].split(":")
            assert (name, kind in found) == ("gpu", False), text
            found[kind] = int(count)
    return found


# Everything that a person or a job would miss; what slurmctld and the start write down is not.
_SUMS = """
cd /var/lib/dshpc
find key state config /config -type f ! -name 'heartbeat*' ! -name '*.old' 2>/dev/null |
    grep -E '^(key|/config)|job\\.[0-9]+/|hash\\.[0-9]+' | sort | xargs -r sha256sum
"""


def checksums(node: Node) -> str:
    """Of the user's files, the key and the scripts of queued jobs, as the container has them."""
    return node.exec("sh", "-c", _SUMS).good().stdout


def build_image(cluster: Cluster) -> str:
    """The image as configure-environment makes it, with config/ beside it; nothing is started."""
    cluster.configure("--simulate", "h100:2", "--no-start").good()
    return f"{cluster.container}:nvidia"


def compile_shared(source: Path, folder: Path) -> Path:
    """A shared library of one C file."""
    library = folder / f"{source.stem}.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(library), str(source)]
    done = subprocess.run([*command, "-ldl"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return library
