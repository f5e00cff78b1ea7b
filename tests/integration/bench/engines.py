"""Real engines in a room: started, asked, ended, each with a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.integration.bench.room import Room, inner_room, room

# The distribution's own, Debian trixie's, the newest that Debian has, and trixie's Podman.
Kind = Literal["host", "trixie", "newest", "podman"]
KINDS: tuple[Kind, ...] = ("host", "trixie", "newest", "podman")

_CHECKOUT = Path(__file__).parents[3]
_DSHPC = "import sys; from dshpc_setup.cli import run; sys.exit(run(sys.argv[1:], 'dshpc'))"
_UP_S = 120.0
_DOWN_S = 30.0
_DOCKER_SOCKET = "/run/docker.sock"
_PODMAN_SOCKET = "/run/podman/podman.sock"

_ENDED = "the script has ended"

_CGROUPS = Path("/sys/fs/cgroup")
_PODMAN_CGROUP = "libpod_parent"

_PODMAN_FILES = {
    "/etc/containers/containers.conf": (
        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        '[containers]\nlog_driver = "k8s-file"\n'
    ),
    "/etc/containers/policy.json": '{"default": [{"type": "insecureAcceptAnything"}]}\n',
    "/etc/containers/registries.conf": 'short-name-mode = "permissive"\n',
}


@dataclass
class Bench:
    """One made-up machine: `outer` is the room that people work in, `inner` the engine's own."""

    kind: Kind
    folder: Path
    outer: Room
    inner: Room
    daemon: subprocess.Popen[bytes] | None = None
    config: dict[str, Any] = field(default_factory=dict)  # daemon.json, read at the next start
    image: str = ""  # the base image, where it was loaded

    @property
    def rooms(self) -> tuple[Room, ...]:
        """The places where an installed file has to be: one, or the machine and the engine's root."""
        return (self.outer,) if self.outer is self.inner else (self.outer, self.inner)

    @property
    def env(self) -> dict[str, str]:
        """What a command in the room is started with."""
        env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.folder / "home"),
            "LC_ALL": "C.UTF-8",
        }
        if self.kind == "podman":  # Docker listens where every client looks
            env["DOCKER_HOST"] = f"unix://{_PODMAN_SOCKET}"
        return env

    @property
    def cgroup(self) -> str:
        """The control group above all of this engine's containers; Podman's has one name alone."""
        return _PODMAN_CGROUP if self.kind == "podman" else f"dshpc-bench-{self.folder.name}"

    @property
    def log(self) -> Path:
        return self.folder / "engine.log"

    def put(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        """A file on the machine, and where the engine looks for it."""
        for each in self.rooms:
            each.put(path, content, mode)

    def remove(self, path: str) -> None:
        for each in self.rooms:
            each.path(path).unlink(missing_ok=True)

    def run(
        self, argv: Sequence[str], deadline_s: float = 60, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return self.outer.run(argv, {**self.env, **(env or {})}, deadline_s)

    def docker(self, *arguments: str, deadline_s: float = 60) -> str:
        """A docker command that has to succeed: its standard output."""
        done = self.run(["docker", *arguments], deadline_s)
        assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def container(
        self, *flags: str, script: str = "true", deadline_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """A short-lived container of the base image, as a person starts one.

        A busy engine can lose what one printed that ended at once: one of which nothing at all came, not
        that its script has ended either, is started again.
        """
        argv = ["docker", "run", "--rm", "--network", "none", *flags, self.image]
        watched = f"trap 'echo {_ENDED} >&2' EXIT\n{script}"
        done = self.run([*argv, "sh", "-c", watched], deadline_s)
        for _ in range(2):
            if "--detach" in flags or done.stdout or done.stderr:
                break
            done = self.run([*argv, "sh", "-c", watched], deadline_s)
        done.stderr = done.stderr.replace(f"{_ENDED}\n", "")
        return done

    def dshpc(
        self, *arguments: str, deadline_s: float = 120, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The product's own command, run on the machine."""
        argv = [sys.executable, "-c", _DSHPC, *arguments]
        return self.run(argv, deadline_s, {"PYTHONPATH": str(_CHECKOUT), **(env or {})})

    def left_behind(self) -> list[str]:
        """Names of test containers that are still there."""
        label = "label=org.dshpc.test=1"
        shown = self.docker("ps", "--all", "--filter", label, "--format", "{{.Names}}")
        return shown.split()

    def start(self) -> None:
        """The daemon, answering when this returns."""
        assert self.daemon is None
        self.daemon = self.inner.start(self._argv(), self.env, self.log)
        until = time.monotonic() + _UP_S
        while not self._answers():
            said = self.log.read_text(errors="replace")[-3000:]
            assert self.daemon.poll() is None, f"the engine ended: {said}"
            assert time.monotonic() < until, f"the engine does not answer: {said}"
            time.sleep(0.1)

    def _answers(self) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.run(["docker", "version"], 20).returncode == 0
        return False

    def stop(self) -> None:
        """The daemon and its containers, ended."""
        if self.daemon is None:
            return
        if self.daemon.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired, AssertionError):
                names = self.docker("ps", "--all", "--quiet", deadline_s=20).split()
                if names:
                    self.docker("rm", "--force", *names, deadline_s=_DOWN_S)
            # nsenter passes no signal on: the daemon is asked by its own process id
            self.outer.run(["sh", "-c", self._ask_to_end()], self.env, _DOWN_S)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.daemon.wait(_DOWN_S)
        if self.daemon.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.daemon.pid, 9)
            self.daemon.wait(_DOWN_S)
        self.daemon = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def _argv(self) -> list[str]:
        if self.kind == "podman":
            for path, text in _PODMAN_FILES.items():
                self.inner.put(path, text)
            graph, run = self.folder / "podman", "/run/containers/storage"
            self.inner.put(
                "/etc/containers/storage.conf",
                f'[storage]\ndriver = "overlay"\ngraphroot = "{graph}"\nrunroot = "{run}"\n',
            )
            self.outer.path("/run/podman").mkdir(exist_ok=True)
            service = ["podman", "system", "service", "--time=0", f"unix://{_PODMAN_SOCKET}"]
            return ["sh", "-c", 'echo $$ > /run/bench-daemon.pid; exec "$@"', "sh", *service]
        self.inner.put("/etc/docker/daemon.json", json.dumps(self.config))
        return [
            "dockerd",
            f"--host=unix://{_DOCKER_SOCKET}",
            f"--data-root={self.folder / 'data'}",
            "--exec-root=/run/docker",
            "--pidfile=/run/bench-daemon.pid",
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
            "--exec-opt=native.cgroupdriver=cgroupfs",
            f"--cgroup-parent=/{self.cgroup}",
        ]

    @staticmethod
    def _ask_to_end() -> str:
        return "kill -TERM $(cat /run/bench-daemon.pid)"


OpenBench = Callable[[Kind], contextlib.AbstractContextManager[Bench]]
"""Opens a machine with an engine of that kind: started, with the base image."""


@contextlib.contextmanager
def bench(kind: Kind, folder: Path, root: Path | None) -> Iterator[Bench]:
    """A machine with an engine of that kind, not started yet; `root`: the engine's own file system."""
    (folder / "home").mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        here = {*_CGROUPS.glob(_PODMAN_CGROUP), *_CGROUPS.glob(f"*/{_PODMAN_CGROUP}")}
        outer = stack.enter_context(room(folder))
        inner = outer
        if root is not None:
            inner = stack.enter_context(inner_room(outer, root, folder))
        made = Bench(kind, folder, outer, inner)
        try:
            yield made
        finally:
            made.stop()
    for path in {*_CGROUPS.glob(made.cgroup), *_CGROUPS.glob(f"*/{made.cgroup}")} - here:
        _remove_cgroup(path)


def _remove_cgroup(path: Path) -> None:
    """An empty control group with all below it; the kernel keeps one that has processes."""
    for folder, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
