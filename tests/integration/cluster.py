"""Whole clusters on the real engine, made by the real command line and removed to the last trace.

The fixtures `standard`, `fresh` and `start_configure` are registered by conftest.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import OWN_GROUP, ROOT, Outcome, end_group, environment, run
from tests.integration.engines import BUILTIN, DOCKER, Engine
from tests.integration.leftovers import forget_ports, kept_ports, processes_of, remember

__all__ = ["OWN_GROUP", "ROOT", "Outcome", "end_group", "environment", "run"]

FILES = (
    "config/slurm.conf",
    "config/gres.conf",
    "config/cgroup.conf",
    "docker-compose.yml",
    ".env",
)
LIVE = "config/live.json"  # settings that are read anew, written with them
STEPS = ("probe", "base", "passthrough", "plan", "render", "build", "start", "verify")
# Of this line (tests/conftest.py), and of this process of pytest-xdist
PREFIX = os.environ.get("DSHPC_TEST_PREFIX", "dshpc-test-") + "".join(
    f"{worker}-" for worker in [os.environ.get("PYTEST_XDIST_WORKER", "")] if worker
)
CACHE = f"{PREFIX}cache"

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
if "dashboard" in sys.argv:
    from dshpc_setup.cli import dashboard
    from dshpc_setup.dashboard import serve
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


def command(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", _PROGRAM, program, *arguments]


def docker(*arguments: str) -> str:
    """A docker command that has to succeed: its standard output. For what is about Docker."""
    return DOCKER.said(*arguments)


def as_user(
    uid: int, program: str, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None
) -> Outcome:
    """A command line of an ordinary user who may use Docker; only root can become one."""
    return run(as_user_argv(uid, program, *arguments), cwd=cwd, env=env)


def as_user_argv(uid: int, program: str, *arguments: str) -> list[str]:
    group = Path("/var/run/docker.sock").stat().st_gid
    ids = (str(uid), str(uid), str(group))
    return as_root(sys.executable, "-c", _AS_USER, program, *ids, *arguments)


def as_root(*argv: str) -> list[str]:
    return list(argv) if os.geteuid() == 0 else ["sudo", "-n", *argv]


@dataclass(frozen=True)
class Cluster:
    """One prefix and one project folder."""

    prefix: str
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    first: Outcome | None = None  # of the run that made it
    engine: Engine = DOCKER

    @property
    def container(self) -> str:
        return f"{self.prefix}-slurm"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def configure(self, *arguments: str, env: Mapping[str, str] | None = None) -> Outcome:
        """`configure-environment --yes --json` here; the prefix is a flag each time."""
        argv = command("configure-environment", *self.own_flags, *arguments)
        return run(argv, env={**self.env, **(env or {})})

    @property
    def own_flags(self) -> tuple[str, ...]:
        """By which `configure-environment` makes this cluster, and says what it did."""
        whole = ("--yes", "--json", "--dir", str(self.folder), "--prefix", self.prefix)
        return (*whole, *self.engine.chosen)

    def dshpc(self, *arguments: str, cwd: Path | None = None) -> Outcome:
        """`dshpc ...`, run in the project folder."""
        return run(command("dshpc", *arguments), cwd=cwd or self.folder, env=self.env)

    def exec(self, *argv: str, timeout_s: float = 120, given: str | None = None) -> Outcome:
        """A command in the container; `given`: what it reads."""
        return run(self.within(*argv, stdin=given is not None), timeout_s=timeout_s, given=given)

    def within(self, *argv: str, stdin: bool = False) -> list[str]:
        """The command line that runs a command in the container."""
        return self.engine.client.run_in(self.container, *argv, stdin=stdin)

    def said(self, *argv: str) -> str:
        """What a command in the container that has to succeed prints."""
        return self.exec(*argv).good().stdout.strip()

    def inspect(self) -> dict[str, Any]:
        (value,) = json.loads(self.engine.said("inspect", "--type", "container", self.container))
        assert isinstance(value, dict)
        return value

    def exists(self) -> bool:
        return self.engine.run("inspect", "--type", "container", self.container).code == 0

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
            for name in (*FILES, LIVE)
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

    def completed(self, job: str, seconds: float = 60) -> None:
        wait_until(lambda: self.job_state(job)[0] == "COMPLETED", f"job {job} has ended", seconds)

    @property
    def partition(self) -> str:
        """The default one."""
        return self.said("sinfo", "-h", "-o", "%P").rstrip("*")

    def empty_queue(self) -> None:
        """Of root's jobs; what ran has ended behind it."""
        self.said("scancel", "--user=root")
        wait_until(lambda: not self.said("squeue", "-h", "-a"), "the queue is empty")

    def remove(self) -> None:
        """Whatever of it is there, from a run that crashed too."""
        quietly = self.engine.run  # what may be missing; `assert_removed` looks at the result
        others = (
            it for it in self.engine.names("container") if it.startswith(f"{self.container}-")
        )
        quietly("rm", "-f", "-v", self.container, *others)
        quietly("network", "rm", f"{self.prefix}_default")
        quietly(
            "volume", "rm", "-f", *(f"{self.prefix}-{part}" for part in ("state", "key", "home"))
        )
        forget_ports(self.engine, self.prefix)
        for name in self.engine.names("image"):
            ref, _, tag = name.partition(":")
            if ref == self.container:
                # a build of the same kind finds it again; `remove_leftovers` removes these at the end
                quietly("tag", name, f"{CACHE}:{tag}")
                quietly("rmi", "-f", name)


def assert_removed(cluster: Cluster) -> None:
    for kind in ("container", "volume", "network", "image"):
        left = [name for name in cluster.engine.names(kind) if cluster.prefix in name]
        assert left == [], kind
    if cluster.engine == BUILTIN:
        assert kept_ports(cluster.prefix) == []
    # Those that serve it end with its folder, which they look for every few seconds
    wait_until(
        lambda: not processes_of(cluster.folder),
        "nothing of it runs",
        20,
        lambda: processes_of(cluster.folder),
    )


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
def users_of_this_machine(*names: str, groups: str = "", ranges: bool = True) -> Iterator[None]:
    """With homes and groups of their own, and in the `groups`. What a cut run left of them goes first.
    `ranges`: of subordinate ids, where this machine gives its users some."""
    none = ("-K", "SUB_UID_COUNT=0", "-K", "SUB_GID_COUNT=0")
    more = (*(("--groups", groups) if groups else ()), *(() if ranges else none))
    try:
        for name in names:
            _remove_user(name)
            run(as_root("useradd", "--create-home", "--user-group", *more, name)).good()
        yield
    finally:
        for name in names:
            _remove_user(name)


def _remove_user(name: str) -> None:
    run(as_root("pkill", "-KILL", "-u", name))  # where a test has failed in between
    run(as_root("userdel", "--remove", name))


@contextlib.contextmanager
def one_at_a_time(what: str) -> Iterator[None]:
    """What two workers must not do at once, such as making the base image."""
    with (Path(tempfile.gettempdir()) / f"dshpc-test-{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class made:  # noqa: N801 -- used as a function: `with made("x") as cluster`
    """A cluster with nothing of it on the machine yet, nor afterwards."""

    def __init__(
        self,
        name: str,
        env: Mapping[str, str] | None = None,
        sub: str = "",
        *,
        engine: Engine = DOCKER,
    ) -> None:
        remember(f"{PREFIX}{name}", engine)
        self._top = new_folder(name)
        folder = self._top / sub if sub else self._top
        self.cluster = Cluster(f"{PREFIX}{name}", folder, env or {}, engine=engine)

    def __enter__(self) -> Cluster:
        self.cluster.remove()
        return self.cluster

    def __exit__(self, *_: object) -> None:
        self.cluster.remove()
        remove_folder(self._top)
        assert_removed(self.cluster)


Standards = Callable[[Engine], Cluster]


@pytest.fixture(scope="session")
def standards() -> Iterator[Standards]:
    """The standard cluster of each engine, made when it is asked for first; tests leave it as it is.

    Its image is the cache of the others': it goes last.
    """
    with contextlib.ExitStack() as stack:

        @functools.cache
        def of(engine: Engine) -> Cluster:
            # A name each: one of the same name that is there would be taken for a crashed run's
            name = "main" if engine == DOCKER else f"main{engine.name}"
            cluster = stack.enter_context(made(name, engine=engine))
            argv = [str(ROOT / "configure-environment"), *cluster.own_flags]
            with one_at_a_time("base"):
                first = run([*argv, "--simulate", "h100:2"], timeout_s=800).good()
            return replace(cluster, first=first)

        yield of


@pytest.fixture(scope="module")
def standard(engine: Engine, standards: Standards) -> Cluster:
    """A cluster of two made-up H100 as the launcher makes it, on the engine of this file."""
    return standards(engine)


@pytest.fixture
def fresh(engine: Engine, standard: Cluster) -> Iterator[Cluster]:
    """A prefix and a folder in which nothing has happened yet; the image's layers are cached."""
    with made("fresh", engine=engine) as cluster:
        yield cluster


class Started:
    """A `configure-environment --json` under way, in a process group of its own."""

    def __init__(self, cluster: Cluster, *arguments: str, env: Mapping[str, str] | None = None):
        self.seen = ""
        self.child = subprocess.Popen(
            command("configure-environment", *cluster.own_flags, *arguments),
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


def wait_until(
    true: Callable[[], bool],
    what: str,
    timeout_s: float = 60,
    seen: Callable[[], object] = lambda: "",
) -> None:
    """Asks less often the longer it takes: most of what is asked starts a program in a container.

    `seen`: what a failure shows beside it.
    """
    began = time.monotonic()
    while not true():
        waited = time.monotonic() - began
        assert waited < timeout_s, f"not within {timeout_s:.0f} s: {what}\n{seen()}"
        time.sleep(min(0.5, max(0.1, waited / 10)))


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Path -> mode, mtime and content of all that lies under `folder`."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_mode, status.st_mtime_ns, content)
    return found
