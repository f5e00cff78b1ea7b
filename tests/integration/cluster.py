"""Whole clusters on the real engine, made by the real command line and removed to the last trace.

The fixtures `standard`, `fresh` and `start_configure` are registered by conftest.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.leftovers import remember

ROOT = Path(__file__).parents[2]
FILES = (
    "config/slurm.conf",
    "config/gres.conf",
    "config/cgroup.conf",
    "docker-compose.yml",
    ".env",
)
STEPS = ("probe", "base", "passthrough", "plan", "render", "build", "start", "verify")
PREFIX = os.environ.get("DSHPC_TEST_PREFIX", "dshpc-test-")  # see tests/conftest.py
CACHE = f"{PREFIX}cache"
# Of the terminal's session (sudo remembers by it), and not in what its Ctrl-C ends.
OWN_GROUP: dict[str, Any] = (
    {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
)

# As the entry points of the package, without a need to have it installed.
_PROGRAM = """
import sys
from dshpc_setup import cli
program = sys.argv.pop(1)
first = ["configure"] if program == "configure-environment" else []
sys.exit(cli.run([*first, *sys.argv[1:]], program))
"""

# The same as another user. All is imported before, for that user may not be able to read it.
_AS_USER = """
import contextlib, fcntl, grp, io, json, os, pwd, signal, sys
from dshpc_setup import cli
from dshpc_setup.cli import exec, exec_session, exec_stdin, exec_trouble
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    refused = cli.run(["configure", "--json", "--yes", "--dir", "/", "--prefix", "-"], "dshpc")
assert refused == 64, refused
program, uid, gid, groups = sys.argv.pop(1), *(sys.argv.pop(1) for _ in range(3))
os.environ["HOME"] = "/"
os.setgroups([int(group) for group in groups.split(",")])
os.setgid(int(gid))
os.setuid(int(uid))
first = ["configure"] if program == "configure-environment" else []
sys.exit(cli.run([*first, *sys.argv[1:]], program))
"""


@dataclass(frozen=True)
class Outcome:
    code: int
    stdout: str
    stderr: str

    @property
    def report(self) -> dict[str, Any]:
        """The one JSON object that all of stdout is."""
        value = json.loads(self.stdout)
        assert isinstance(value, dict), self.stdout
        return value

    @property
    def actions(self) -> dict[str, str]:
        return {item["path"]: item["action"] for item in self.report["files"]}

    @property
    def steps(self) -> dict[str, dict[str, Any]]:
        return {item["name"]: item for item in self.report["steps"]}

    def good(self) -> Outcome:
        assert self.code == 0, f"exit code {self.code}\n{self.stdout}\n{self.stderr}"
        return self


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """This one's, without settings of whoever runs the tests."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("DSHPC_", "COMPOSE_", "SUDO_"))
    }
    return {**kept, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **(changes or {})}


def command(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", _PROGRAM, program, *arguments]


def run(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 400,
) -> Outcome:
    with subprocess.Popen(
        argv,
        cwd=cwd or "/",
        env=environment(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **OWN_GROUP,
    ) as child:
        try:
            stdout, stderr = child.communicate(timeout=timeout_s)
        except (
            BaseException
        ):  # Ctrl-C: nothing of it may go on while the fixtures remove what it made
            end_group(child)
            raise
    return Outcome(child.returncode, stdout, stderr)


def end_group(child: subprocess.Popen[str]) -> None:
    """With all that it has started; politely first."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(10)
            if number == signal.SIGINT:
                time.sleep(0.2)  # what it has started hears of it at the same time


def docker(*arguments: str) -> str:
    """A docker command that has to succeed: its standard output."""
    return run(["docker", *arguments]).good().stdout


def as_user(uid: int, program: str, *arguments: str, cwd: Path) -> Outcome:
    """A command line of an ordinary user who may use Docker; only root can become one."""
    group = Path("/var/run/docker.sock").stat().st_gid
    argv = [sys.executable, "-c", _AS_USER, program, str(uid), str(uid), str(group), *arguments]
    return run(as_root(*argv), cwd=cwd)


def as_root(*argv: str) -> list[str]:
    return list(argv) if os.geteuid() == 0 else ["sudo", "-n", *argv]


@dataclass(frozen=True)
class Cluster:
    """One prefix and one project folder."""

    prefix: str
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    first: Outcome | None = None  # of the run that made it

    @property
    def container(self) -> str:
        return f"{self.prefix}-slurm"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def configure(self, *arguments: str, env: Mapping[str, str] | None = None) -> Outcome:
        """`configure-environment --yes --json` here; the prefix is a flag each time."""
        whole = ["--yes", "--json", "--dir", str(self.folder), "--prefix", self.prefix, *arguments]
        return run(command("configure-environment", *whole), env={**self.env, **(env or {})})

    def dshpc(self, *arguments: str, cwd: Path | None = None) -> Outcome:
        """`dshpc ...`, run in the project folder."""
        return run(command("dshpc", *arguments), cwd=cwd or self.folder, env=self.env)

    def exec(self, *argv: str, timeout_s: float = 120) -> Outcome:
        return run(["docker", "exec", self.container, *argv], timeout_s=timeout_s)

    def said(self, *argv: str) -> str:
        """What a command in the container that has to succeed prints."""
        return self.exec(*argv).good().stdout.strip()

    def inspect(self) -> dict[str, Any]:
        (value,) = json.loads(docker("inspect", "--type", "container", self.container))
        assert isinstance(value, dict)
        return value

    def exists(self) -> bool:
        return run(["docker", "inspect", "--type", "container", self.container]).code == 0

    @property
    def started_at(self) -> str:
        return str(self.inspect()["State"]["StartedAt"])

    def node(self) -> tuple[str, str]:
        """Gres and state of its one node, once slurmd has said that the jobs which ended have left it."""
        until = time.monotonic() + 60
        while True:
            gres, state = self.said("sinfo", "-h", "-N", "-o", "%G|%T").split("|")
            if not (state == "completing" or state.endswith("+")) or time.monotonic() > until:
                return gres.split("(S:")[0], state

    def texts(self) -> dict[str, str | None]:
        """The rendered files, None for one that is not there."""
        return {
            name: path.read_text() if (path := self.folder / name).exists() else None
            for name in FILES
        }

    def leftovers(self) -> list[str]:
        """Temporary files of a write that did not end."""
        return [str(path) for path in self.folder.rglob("*.dshpc-tmp")]

    def submit(self, *arguments: str, script: str) -> str:
        """The id of a job; its output goes to work/JOBID."""
        out = str(self.work / "%j")
        argv = ["sbatch", "--parsable", "-D", str(self.work), "-o", out, *arguments]
        return self.said(*argv, "--wrap", script)

    def output(self, job: str) -> str:
        path = self.work / job
        return path.read_text() if path.exists() else ""

    def job_state(self, job: str) -> tuple[str, str]:
        """State and reason of a job, as `scontrol show job` has them."""
        text = self.said("scontrol", "show", "job", job)
        words = dict(word.split("=", 1) for word in text.split() if "=" in word)
        return words["JobState"], words["Reason"]

    def remove(self) -> None:
        """Whatever of it is there, from a run that crashed too."""
        _quietly("rm", "-f", "-v", self.container)
        _quietly("network", "rm", f"{self.prefix}_default")
        volumes = (f"{self.prefix}-{part}" for part in ("state", "key", "home"))
        _quietly("volume", "rm", "-f", *volumes)
        listed = docker("images", "--format", "{{.Repository}}:{{.Tag}}", self.container)
        for tag in listed.split():
            # a build of the same kind finds its layers again; `standard` removes these at the end
            _quietly("tag", tag, f"{CACHE}:{tag.rpartition(':')[2]}")
            _quietly("rmi", "-f", tag)


def _quietly(*arguments: str) -> None:
    """For what may be missing; `assert_removed` looks at the result."""
    run(["docker", *arguments], timeout_s=120)


def assert_removed(cluster: Cluster) -> None:
    for kind in (["ps", "-a"], ["volume", "ls"], ["network", "ls"]):
        listed = docker(*kind, "-q", "--filter", f"name={cluster.prefix}")
        assert listed == "", (kind, docker(*kind))
    assert docker("images", "-q", cluster.container) == ""


def new_folder(name: str) -> Path:
    """An empty folder; those of the same name that a crashed run has left are removed."""
    for old in Path(tempfile.gettempdir()).glob(f"{PREFIX}{name}-*"):
        remove_folder(old)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{name}-"))
    folder.chmod(0o755)  # other users work here too
    return folder


def remove_folder(folder: Path) -> None:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for at in sorted(mounts, reverse=True):
        if at.startswith(f"{folder}/"):
            run(as_root("umount", "--lazy", at)).good()
    run(as_root("rm", "-rf", str(folder))).good()


@contextlib.contextmanager
def one_at_a_time(what: str) -> Iterator[None]:
    """What two workers must not do at once, such as making the base image."""
    with (Path(tempfile.gettempdir()) / f"dshpc-test-{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class made:  # noqa: N801 -- used as a function: `with made("x") as cluster`
    """A cluster with nothing of it on the machine yet, nor afterwards."""

    def __init__(self, name: str, env: Mapping[str, str] | None = None, sub: str = "") -> None:
        remember(f"{PREFIX}{name}")
        self._top = new_folder(name)
        self.cluster = Cluster(f"{PREFIX}{name}", self._top / sub if sub else self._top, env or {})

    def __enter__(self) -> Cluster:
        self.cluster.remove()
        return self.cluster

    def __exit__(self, *_: object) -> None:
        self.cluster.remove()
        remove_folder(self._top)
        assert_removed(self.cluster)


@pytest.fixture(scope="session")
def standard(engine: str) -> Iterator[Cluster]:
    """A cluster of two made-up H100 as the launcher makes it; tests leave it as it is.

    Its image is the cache of the others': it goes last.
    """
    with made("main") as cluster:
        argv = [
            str(ROOT / "configure-environment"),
            *("--yes", "--simulate", "h100:2", "--dir", str(cluster.folder)),
            *("--prefix", cluster.prefix, "--json"),
        ]
        with one_at_a_time("base"):
            first = run(argv, timeout_s=800).good()
        yield replace(cluster, first=first)
    for tag in docker("images", "--format", "{{.Repository}}:{{.Tag}}", CACHE).split():
        docker("rmi", "-f", tag)


@pytest.fixture
def fresh(engine: str, standard: Cluster) -> Iterator[Cluster]:
    """A prefix and a folder in which nothing has happened yet; the image's layers are cached."""
    with made("fresh") as cluster:
        yield cluster


class Started:
    """A `configure-environment --json` under way, in a process group of its own."""

    def __init__(self, cluster: Cluster, *arguments: str, env: Mapping[str, str] | None = None):
        self.seen = ""
        whole = ["--yes", "--json", "--dir", str(cluster.folder), "--prefix", cluster.prefix]
        self.child = subprocess.Popen(
            command("configure-environment", *whole, *arguments),
            cwd="/",
            env=environment({**cluster.env, **(env or {}), "PYTHONUNBUFFERED": "1"}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_line(self, word: str) -> None:
        """Until a line of stderr holds `word`."""
        assert self.child.stderr is not None
        for line in iter(self.child.stderr.readline, ""):
            self.seen += line
            if word in line:
                return
        pytest.fail(f"it ended before it said {word!r}:\n{self.seen}")

    def wait_until(self, true: Callable[[], bool], what: str, timeout_s: float) -> None:
        """As wait_until; where it is in vain, what the run has said is told."""
        until = time.monotonic() + timeout_s
        while not true():
            ended = self.child.poll()
            if ended is not None or time.monotonic() > until:
                if ended is None:
                    self.signal(signal.SIGINT)
                said = self.end()
                pytest.fail(f"{'it ended' if ended is not None else 'too late'}: {what}\n{said}")
            time.sleep(0.1)

    def signal(self, number: int) -> None:
        """As a terminal does: to the whole group."""
        os.killpg(self.child.pid, number)

    def end(self, timeout_s: float = 120) -> Outcome:
        stdout, stderr = self.child.communicate(timeout=timeout_s)
        return Outcome(self.child.returncode, stdout, self.seen + stderr)


@pytest.fixture
def start_configure() -> Iterator[Callable[..., Started]]:
    """Starts runs that a test may interrupt; none outlives the test."""
    runs: list[Started] = []

    def start(cluster: Cluster, *arguments: str, env: Mapping[str, str] | None = None) -> Started:
        runs.append(Started(cluster, *arguments, env=env))
        return runs[-1]

    yield start
    for item in runs:
        if item.child.poll() is None:
            item.signal(9)
        item.child.communicate()


def wait_until(true: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    until = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < until, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.1)


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Path -> mode, mtime and content of all that lies under `folder`."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_mode, status.st_mtime_ns, content)
    return found
