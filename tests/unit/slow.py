"""A fresh Debian on which each program takes its time, on a clock of its own: no test waits for it.

A program that takes longer than its deadline is killed by it and has done nothing, as on a real
machine. What is installed, built and started is remembered, so that a run can go from the first
question to the first job.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dshpc_setup.facts import State
from dshpc_setup.machine import CommandResult, Ended, Reply, Say
from tests.unit.engine.fake import Answer, FakeMachine, apt_lists

PLUGIN = "/usr/libexec/docker/cli-plugins/docker-compose"
PACKAGES = ("docker.io", "docker-cli", "docker-compose", "docker-buildx", "ca-certificates")
NODE = "dshpc|gpu:h100:2(S:0)|gpu:h100:0(IDX:N/A)|idle|none\n"
_FILES = {
    "/etc/os-release": 'ID=debian\nVERSION_ID="13"\n',
    "/proc/meminfo": "MemTotal:       16000000 kB\n",
    "/proc/cpuinfo": "".join(f"processor\t: {number}\n\n" for number in range(8)),
    "/sys/devices/system/cpu/online": "0-7\n",
    "/proc/sys/kernel/hostname": "fresh\n",
}
_INFO = {"Name": "fresh", "KernelVersion": "6.1.0", "Architecture": "x86_64", "OSType": "linux",
         "NCPU": 8, "MemTotal": 16_000_000 << 10, "DockerRootDir": "/var/lib/docker"}  # fmt: skip


@dataclass
class SlowMachine(FakeMachine):
    """`delays`: the word that names a program or a plugin of docker's -> its seconds; "" for all."""

    delays: Mapping[str, float] = field(default_factory=dict)
    installed: bool = False
    image: dict[str, str] | None = None
    ready: bool = False
    killed: list[tuple[str, ...]] = field(default_factory=list)
    _side: dict[threading.Thread, float] = field(default_factory=dict)
    _asked_at: float = 0.0

    def __post_init__(self) -> None:
        self.env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        self.programs |= {"apt-get", "apt-config"}
        self.files |= _FILES
        self.files["/proc/77/stat"] = "77 (dockerd) S 1"

    def run(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        stdin: bytes | str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> CommandResult:
        command = tuple(argv)
        self.ran.append(command)
        took = self._delay(command)
        self._pass(min(took, deadline_s))
        if took >= deadline_s:
            self.killed.append(command)
            return CommandResult(command, "timeout", None, "", "", deadline_s * 1000)
        given = self._answer(command)
        for text in given.stdout.splitlines() if on_line else ():
            assert on_line is not None
            on_line(text)
        code = given.code if given.state == "present" else None
        return CommandResult(command, given.state, code, given.stdout, given.stderr, took * 1000)

    def _delay(self, command: tuple[str, ...]) -> float:
        if command[0] == "sleep":
            return float(command[1])
        words = {word.rpartition("/")[2] for word in command}
        return max((s for name, s in self.delays.items() if not name or name in words), default=0)

    def _pass(self, seconds: float) -> None:
        """Beside each other where threads ask, else one after the other."""
        me = threading.current_thread()  # its number may be given again
        if threading.current_thread() is threading.main_thread():
            self.now = self.clock() + seconds
        else:
            self._side[me] = self._side.get(me, self._asked_at) + seconds

    def clock(self) -> float:
        if threading.current_thread() is threading.main_thread():
            self.now = max(self.now, *self._side.values(), self.now)
            self._side.clear()
            return self.now
        return self._side.get(threading.current_thread(), self._asked_at)

    def apart(
        self,
        questions: Mapping[str, Callable[[Say], None]],
        *,
        deadline_s: float,
        meanwhile: Callable[[], object] | None = None,
        on_item: Callable[[Any], object] | None = None,
    ) -> Mapping[str, Ended]:
        """Each from the same moment on; who comes late has said nothing."""
        began, last, found = self.clock(), 0.0, {}
        for name, question in questions.items():
            # A question's threads begin with it, whenever the machine's own lets them run
            self.now = self._asked_at = began
            items: list[object] = []
            question(items.append)
            took = self.clock() - began
            late = took > deadline_s
            detail = f"no answer within {deadline_s:g} s"
            found[name] = (
                Ended("timeout", (), detail, deadline_s * 1000)
                if late
                else Ended("present", tuple(items), None, took * 1000)
            )
            last = max(last, min(took, deadline_s))
        self.now = began + last
        if meanwhile is not None:
            meanwhile()
        return found

    def docker(self, deadline_s: float) -> Reply:
        host = "unix:///var/run/docker.sock"
        if not self.installed:
            value = {"host": host, "context": "default"}
            return Reply("absent", value, host, "No such file or directory", 2)
        version = {"Version": "26.1.5", "ApiVersion": "1.45"}
        full = {"version": version, "info": _INFO, "host": host, "context": "default"}
        return Reply("present", full, host)

    def nvml(self, deadline_s: float) -> Reply:
        return Reply("absent", None, "NVML", "there is no such library", 12)

    def amdsmi(self, deadline_s: float) -> Reply:
        return Reply("absent", None, "amdsmi", "there is no such library")

    def disk_mib(self, path: str) -> int | None:
        return 100_000

    # -- what the programs do ------------------------------------------------------------------

    def _answer(self, command: tuple[str, ...]) -> Answer:
        line = " ".join(command).replace("/usr/bin/", "")
        for pattern, does in self._world.items():
            if re.match(pattern, line):
                return does(command) if callable(does) else does
        raise AssertionError(f"nobody told this machine about: {line}")

    @property
    def _world(self) -> dict[str, Answer | Callable[[tuple[str, ...]], Answer]]:
        there: State = "present" if self.installed else "absent"
        return {
            r"sleep": Answer(),
            r"getent passwd": Answer("root:x:0:0:root:/root:/bin/bash\n"),
            r"apt-config": Answer(),
            r"apt-cache policy": apt_lists(*PACKAGES),
            r"env LC_ALL=C .*apt-get .* install": self._install,
            r"env LC_ALL=C .*apt-get .* update": Answer(),
            r"docker version": Answer("26.1.5\n", state=there),
            r"docker compose version": Answer("2.26.1-4\n", state=there),
            r"docker-compose version": Answer("2.26.1-4\n", state=there),
            r"docker buildx version": Answer(
                "github.com/docker/buildx v0.13.1 7884\n", state=there
            ),
            r"docker info": Answer(
                json.dumps({"Plugins": [{"Name": "compose", "Version": "2.26.1-4"}]}) + "\n"
            ),
            r"docker context show": Answer("default\n"),
            r"docker inspect": self._inspect,
            r"docker image inspect": self._image,
            r"docker ps -a": Answer(),
            r"docker volume ls": Answer(),
            r"docker pull": self._pull,
            r"docker buildx build": self._build,
            r"docker compose .*config -q": Answer(),
            r"docker compose .*up -d": self._up,
            r"docker exec \S+ dshpc-node homes kept": Answer(""),
            r"docker exec \S+ dshpc-node wait": Answer('{"ready": true, "notes": []}\n'),
            r"docker exec \S+ sinfo": Answer(NODE),
            r"docker exec \S+ srun": Answer("dshpc-gpu=0\n"),
        }

    def _install(self, command: tuple[str, ...]) -> Answer:
        self.installed = True
        self.programs |= {"docker", "docker-compose", "dockerd"}
        names = ("docker-compose", "docker-buildx")
        self.files |= {f"/usr/libexec/docker/cli-plugins/{name}": "" for name in names}
        self.files |= {
            f"/var/lib/dpkg/info/{name}.list": f"/usr/libexec/docker/cli-plugins/{name}\n"
            for name in names
        }
        self.files["/var/lib/dpkg/status"] = "\n".join(
            f"Package: {name}\nStatus: install ok installed\nVersion: {version}\n"
            for name, version in zip(names, ("2.26.1-4", "0.13.1+ds1-3"), strict=True)
        )
        return Answer()

    def _inspect(self, command: tuple[str, ...]) -> Answer:
        return Answer("[]\n", code=1, stderr=f"Error: No such object: {command[-1]}\n")

    def _image(self, command: tuple[str, ...]) -> Answer:
        base = '{"Id": "sha256:base", "Architecture": "amd64", "Size": 1, "Config": {}}'
        if "debian" in command[-1] and self._pulled:
            return Answer(base)
        if command[-1].startswith("dshpc-slurm") and self.image is not None:
            config = {"Labels": self.image}
            image = {"Id": "sha256:ours", "Architecture": "amd64", "Size": 1, "Config": config}
            return Answer(json.dumps(image))
        return Answer(code=1, stderr="Error: No such image")

    _pulled = False

    def _pull(self, command: tuple[str, ...]) -> Answer:
        self._pulled = True
        return Answer("done\n")

    def _build(self, command: tuple[str, ...]) -> Answer:
        (told,) = (word for word in command if word.startswith("DSHPC_BUILD="))
        self.image = {"org.dshpc.build": told.partition("=")[2]}
        return Answer("#1 done\n")

    def _up(self, command: tuple[str, ...]) -> Answer:
        self.ready = True
        return Answer("Started\n")
