"""Faults of the container on the real engine: it says what is wrong, loses nothing, and does not loop."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster, as_root, docker, made, run, wait_until
from tests.integration.saved import SAVED
from tests.integration.soak.hardware import Hardware
from tests.integration.soak.node import (
    HEALTH,
    INIT,
    Node,
    build_image,
    checksums,
    compile_shared,
    gres_of,
)
from tests.unit.edits import edited

pytestmark = [
    pytest.mark.engines("docker", why="containers are made by Docker's flags"),
    pytest.mark.timeout(900),
]
HERE = Path(__file__).parent / "soak"
TWO, ONE = Hardware("h100:2"), Hardware("h100:1")
BACK_S = 5.0  # until a killed daemon answers again


@pytest.fixture(scope="module")
def node(standard: Cluster) -> Iterator[Node]:
    with made("faults") as cluster:
        yield Node(cluster, build_image(cluster))


@pytest.fixture(autouse=True)
def _fresh(node: Node) -> Iterator[None]:
    """Each test begins with nothing of the one before but the image."""
    yield
    names = (f"{node.cluster.prefix}-state", f"{node.cluster.prefix}-key")
    docker("rm", "--force", "--volumes", node.name)
    docker("volume", "rm", "--force", *names)


def held_job(node: Node) -> str:
    return node.said("sbatch", "--parsable", "--hold", "-o", "/dev/null", "--wrap", "true")


def right(node: Node, hardware: Hardware, job: str = "") -> dict[str, Any]:
    """Ready, with the GPUs of the machine, and the held job is there and runs when it is let go."""
    status = node.ready()
    assert gres_of(status["gres"]) == hardware.gres
    assert node.said("srun", "--gres=gpu:1", "printenv", "CUDA_VISIBLE_DEVICES") == "0"
    find = "find /var/lib/dshpc /etc /run /config -ignore_readdir_race -name '*.dshpc-tmp'"
    # The service `use` may be writing what it keeps
    wait_until(lambda: node.shell(find) == "", "no file is half written", 20)
    if job:
        assert node.states()[job][0] == "PENDING"
        node.said("scontrol", "release", job)
        wait_until(lambda: node.states()[job][0] == "COMPLETED", "the held job runs")
    wait_until(lambda: node.exec(HEALTH).code == 0, "it is healthy")
    node.stays()
    return status


# --- kill -9 of the start


def kill_start(node: Node, hardware: Hardware, when: str) -> str:
    """A new container whose start is killed; the step at which that was."""
    node.run(
        hardware,
        "--volume", f"{HERE}:/hook:ro",
        entrypoint=("python3", "/hook/kill_start.py", when, INIT),
    )  # fmt: skip
    wait_until(lambda: node.exec("cat", "/killed").code == 0, f"killed at {when}", 90)
    return node.said("cat", "/killed")


def the_next_start_is_right(node: Node, hardware: Hardware, when: str) -> str:
    """Kill a start on another machine than before, look, start again, look."""
    node.run(TWO)
    node.ready()
    job = held_job(node)
    before = checksums(node)
    node.remove()
    at = kill_start(node, hardware, when)
    if at != "ready" and not at.startswith("too late"):
        node.stays()
        health = node.exec(HEALTH)
        # it says what to do next, and not for ever that it is starting
        assert (health.code, "restart the container" in health.stdout) == (1, True), (at, health)
    assert checksums(node) == before, at
    node.restart()
    right(node, hardware, job)
    return at


def steps_of(node: Node) -> list[str]:
    node.run(TWO)
    steps = [step["name"] for step in node.ready()["steps"]]
    node.remove()
    return steps


def test_a_start_killed_at_any_step(node: Node, full: bool) -> None:
    steps = steps_of(node)
    assert len(steps) > 10
    chosen = steps if full else random.Random(1).sample(steps, 5)
    for step in chosen:
        at = the_next_start_is_right(node, ONE, step)
        print(f"killed for {step!r}: {at}")
        node.remove()


def test_a_start_killed_at_random_moments(node: Node, full: bool) -> None:
    rounds, seed = (40, random.SystemRandom().randrange(10**6)) if full else (3, 1)
    print(f"seed {seed}")
    choose = random.Random(seed)
    for _ in range(rounds):
        after = f"{choose.uniform(0.0, 1.2):.3f}"
        print(f"killed after {after} s: {the_next_start_is_right(node, ONE, after)}")
        node.remove()


def test_a_power_cut_right_after_a_start_is_no_hindrance_to_the_next(node: Node) -> None:
    """slurmctld has then saved the first job of the start itself as one that waits or runs."""
    for hardware in (TWO, ONE, Hardware("t4:2"), Hardware(), TWO, Hardware("l40s:4")):
        node.run(hardware)
        node.ready()
        left = node.said("squeue", "-h", "-n", "dshpc-proof", "-o", "%i %T %r")
        assert left == "", node.log()
        docker("kill", node.name)
        docker("rm", node.name)
    node.run(TWO)
    right(node, TWO)


# --- kill -9 of the daemons


@pytest.mark.parametrize("victims", [("slurmctld",), ("slurmd",), ("slurmctld", "slurmd")])
def test_jobs_end_well_after_daemons_were_killed(node: Node, victims: tuple[str, ...]) -> None:
    node.run(TWO)
    node.ready()
    work, out = node.cluster.work, node.cluster.work / "out"
    go = work / f"go-{'-'.join(victims)}"
    script = f"until [ -e {go} ]; do sleep 0.1; done; echo batch done >{out}"
    job = node.said(
        "sbatch", "--parsable", "--mem=16", "--gres=gpu:1", "-o", "/dev/null", "--wrap", script
    )
    command = ["srun", "--mem=16", "--gres=gpu:1", "sh", "-c"]
    script = f"until [ -e {go} ]; do sleep 0.1; done; echo srun done; exit 3"
    with subprocess.Popen(
        ["docker", "exec", node.name, *command, script], stdout=subprocess.PIPE, text=True
    ) as client:
        try:
            wait_until(lambda: _running(node) == 2, "both run")
            node.shell(SAVED)
            for _ in range(2):
                for service, took in _kill(node, victims).items():
                    print(f"{service} is back after {took:.2f} s")
                    assert took < BACK_S
            assert _running(node) == 2
        finally:
            go.touch()
        said, _ = client.communicate(timeout=60)
        assert (client.returncode, said) == (3, "srun done\n")
    wait_until(lambda: node.states()[job][0] == "COMPLETED", "the batch job ends", 60)
    assert out.read_text() == "batch done\n"
    wait_until(lambda: node.cluster.node()[1] == "idle", "idle")
    node.stays()


def _running(node: Node) -> int:
    return len(node.said("squeue", "-h", "-t", "RUNNING", "-o", "%i").split())


# Measured in the container: to ask by `docker exec` takes up to seconds each time on a busy machine
_KILL = """
import json, subprocess, sys, time

def said(*argv):
    done = subprocess.run(argv, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None

def pid(service):
    return said("s6-svstat", "-o", "pid", "/run/dshpc/services/" + service)

before = {service: pid(service) for service in sys.argv[1:]}
began, took = time.monotonic(), {}
subprocess.run(["kill", "-9", *before.values()], check=True)
while set(took) != set(before) and time.monotonic() - began < 30:
    for service in set(before) - set(took):
        if pid(service) not in (before[service], "-1", None) and said("scontrol", "ping") is not None:
            took[service] = time.monotonic() - began
print(json.dumps(took))
"""


def _kill(node: Node, victims: tuple[str, ...]) -> dict[str, float]:
    """Seconds until each is up under another process id and slurmctld answers."""
    took: dict[str, float] = json.loads(node.said("python3", "-c", _KILL, *victims))
    assert set(took) == set(victims), (took, node.log())
    return took


@pytest.mark.parametrize("service", ["slurmctld", "slurmd"])
def test_a_killed_supervisor_of_a_daemon_is_replaced(node: Node, service: str) -> None:
    node.run(TWO)
    node.ready()
    go = node.cluster.work / f"go-supervisor-{service}"
    script = f"until [ -e {go} ]; do sleep 0.1; done"
    argv = ("sbatch", "--parsable", "--mem=16", "-o", "/dev/null", "--wrap", script)
    job = node.said(*argv)
    wait_until(lambda: _running(node) == 1, "it runs")
    node.shell(SAVED)
    node.shell(r'kill -9 "$(pgrep -f "s6-supervise $1\$")"', service)
    began = time.monotonic()
    # the new supervisor has the daemon in its hands, and does not start one after the other in vain
    wait_until(lambda: node.pid(service) > 0 and _one(node, service), "one, supervised")
    wait_until(lambda: node.exec("scontrol", "ping").code == 0, "slurmctld answers")
    go.touch()
    wait_until(lambda: node.states()[job][0] == "COMPLETED", "the job ends", 60)
    node.said("srun", "--mem=16", "--gres=gpu:1", "true")
    steady = node.pid(service)
    time.sleep(3)
    assert node.pid(service) == steady, node.log()
    print(f"{service} is right again after {time.monotonic() - began - 3:.1f} s")
    node.restart()
    right(node, TWO)


def _one(node: Node, service: str) -> bool:
    return node.exec("pgrep", "-x", service).stdout.split() == [str(node.pid(service))]


# --- the volumes


@contextmanager
def state_of(node: Node, size: str) -> Iterator[Path]:
    """A state volume of that size, a folder of the host."""
    folder = node.cluster.folder / "small"
    folder.mkdir(exist_ok=True)
    run(as_root("mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "none", str(folder))).good()
    node.volumes = {"state": str(folder)}
    try:
        yield folder
    finally:
        node.volumes = {}
        docker("rm", "--force", node.name)
        run(as_root("umount", "--lazy", str(folder))).good()


def fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass


def test_a_full_state_volume_is_said_and_loses_nothing(node: Node) -> None:
    with state_of(node, "4m") as folder:
        node.run(TWO)
        node.ready()
        job = held_job(node)
        before = checksums(node)
        node.remove()
        fill(folder)
        node.run(ONE)
        status = node.wait()
        node.stays()
        words = f"{status['failure']} {status['notes']}"
        assert "No space left on device" in words or "full" in words, (words, node.log())
        assert checksums(node) == before
        (folder / "filler").unlink()
        node.restart()
        right(node, ONE, job)


def test_a_state_volume_that_fills_up_while_jobs_run(node: Node) -> None:
    with state_of(node, "4m") as folder:
        node.run(TWO)
        node.ready()
        job = held_job(node)
        node.shell(SAVED)
        fill(folder)
        node.exec("srun", "--mem=16", "true", timeout_s=60)
        node.stays()
        (folder / "filler").unlink()
        wait_until(lambda: node.exec("srun", "--mem=16", "true").code == 0, "jobs run again", 60)
        node.restart()
        right(node, TWO, job)


def test_a_read_only_state_volume_is_said(node: Node) -> None:
    node.run(TWO)
    node.ready()
    job = held_job(node)
    before = checksums(node)
    node.remove()
    node.state_mode = "ro"
    node.run(TWO)
    node.state_mode = "rw"
    brief = node.failed()["failure"]["brief"]
    assert "/var/lib/dshpc/state" in brief
    assert "ead-only" in brief
    assert checksums(node) == before
    node.remove()
    node.run(TWO)
    right(node, TWO, job)


def test_a_state_volume_of_another_cluster_is_said(node: Node) -> None:
    node.run(TWO)
    node.ready()
    job = held_job(node)
    before = checksums(node)
    node.remove()
    node.run(TWO, node="another")
    failure = node.failed()["failure"]
    words = str(failure)
    assert node.cluster.prefix in words, failure
    assert "another" in words
    assert checksums(node) == before
    node.remove()
    node.run(TWO)
    right(node, TWO, job)


# --- the key

_KEY = "/var/lib/dshpc/key"
# what is done to it -> whether that is put right at the start; else a word of what is said
_BAD_KEYS = {
    "mode": ('chmod 644 "$1"', None),
    "group": ('chmod 660 "$1"', None),
    "length": ('head -c 7 "$1" >k && cat k >"$1" && rm k', "bytes"),
    "empty": (': >"$1"', "bytes"),
    "folder": ('mv "$1" kept && mkdir "$1" && touch "$1/mine"', "not a plain file"),
    "link": ('mv "$1" kept && ln -s kept "$1"', "not a plain file"),
    "dangling": ('mv "$1" kept && ln -s nowhere "$1"', "not a plain file"),
}


@pytest.mark.parametrize("name", _BAD_KEYS)
def test_a_key_that_is_not_safe_is_said_and_left(node: Node, name: str) -> None:
    script, word = _BAD_KEYS[name]
    node.run(TWO)
    node.ready()
    job = held_job(node)
    (key,) = [
        path for path in node.shell(f"ls {_KEY}").split() if path in ("slurm.key", "slurm.jwks")
    ]
    node.shell(f"cd {_KEY}; cp -a {key} /var/lib/dshpc/state/copy; {script}", key)
    before = checksums(node)
    node.restart()
    failure = node.failed()["failure"]
    assert _KEY in failure["brief"], failure
    assert word is None or word in failure["brief"], failure
    assert checksums(node) == before
    if name in ("folder", "link", "dangling"):
        assert node.exec("test", "-e", f"{_KEY}/kept").code == 0
    # put right as a person would, the same cluster goes on
    node.shell(f"cd {_KEY}; rm -rf {key}; cp -a /var/lib/dshpc/state/copy {key}; chmod 600 {key}")
    node.restart()
    right(node, TWO, job)


# --- the name


def test_a_host_name_that_cannot_be_made_to_resolve_is_said(node: Node, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    node.run(TWO, "--volume", f"{hosts}:/etc/hosts:ro")
    failure = node.failed()["failure"]
    assert "/etc/hosts" in failure["brief"]
    assert hosts.read_text() == "127.0.0.1 localhost\n"


# --- the clock


class Clock:
    """All programs of the container live this many seconds away from the host's time."""

    def __init__(self, folder: Path) -> None:
        self.library = compile_shared(HERE / "clock.c", folder)
        self._file = folder / "clock"
        self.options = (
            "--volume", f"{folder}:/clock", "--volume", f"{self.library}:/clock.so:ro",
            "--env", "LD_PRELOAD=/clock.so", "--env", "DSHPC_TEST_CLOCK=/clock/clock",
        )  # fmt: skip
        self.jump(0)

    def jump(self, seconds: int) -> None:
        if not self._file.exists():
            self._file.write_bytes(bytes(8))
        with self._file.open("r+b") as file:  # the same file: it is mapped
            file.write(struct.pack("=q", seconds))

    def is_right(self, node: Node, seconds: int) -> None:
        """The container's own word for it, so that a jump that does not happen is no pass."""
        now = int(node.said("date", "+%s"))
        assert abs(now - time.time() - seconds) < 30


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    tmp_path.chmod(0o755)
    return Clock(tmp_path)


JUMPS = (3600, 400 * 86400, -3600, -10 * 86400)


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_clock_that_jumps_between_starts(node: Node, clock: Clock, seconds: int) -> None:
    node.run(TWO, *clock.options)
    node.ready()
    job = held_job(node)
    node.remove()
    clock.jump(seconds)
    node.run(TWO, *clock.options)
    clock.is_right(node, seconds)
    right(node, TWO, job)


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_clock_that_jumps_while_jobs_run(node: Node, clock: Clock, seconds: int) -> None:
    node.run(TWO, *clock.options)
    node.ready()
    go, out = node.cluster.work / f"go{seconds}", node.cluster.work / f"out{seconds}"
    begun = node.cluster.work / f"begun{seconds}"
    script = f"touch {begun}; until [ -e {go} ]; do sleep 0.1; done; echo done >{out}"
    job = node.said("sbatch", "--parsable", "--mem=16", "-o", "/dev/null", "--wrap", script)
    wait_until(begun.exists, "it runs")
    clock.jump(seconds)
    clock.is_right(node, seconds)
    wait_until(lambda: node.exec("srun", "--mem=16", "true").code == 0, "another job runs", 60)
    assert node.states()[job][0] == "RUNNING", node.log()
    go.touch()
    wait_until(out.exists, "the job ends well", 60)
    wait_until(lambda: node.cluster.node()[1] == "idle", "idle", 60)
    wait_until(lambda: node.exec(HEALTH).code == 0, "it is healthy")
    node.stays()


# --- edits by hand


def test_random_edits_of_the_mounted_files_never_loop(node: Node, full: bool) -> None:
    """Each of them either works, or the container says what is wrong; and none is changed."""
    seed = random.SystemRandom().randrange(10**6) if full else 4
    rounds = 30 if full else 6
    print(f"seed {seed}")
    choose = random.Random(seed)
    folder = node.cluster.folder / "edited"
    folder.mkdir(exist_ok=True)
    originals = {
        path.name: path.read_bytes() for path in (node.cluster.folder / "config").iterdir()
    }
    node.config = folder
    try:
        for number in range(rounds):
            name = ("slurm.conf", "gres.conf", "cgroup.conf")[number % 3]
            files = {**originals, name: edited(originals[name], choose)}
            for path, content in files.items():
                (folder / path).write_bytes(content)
            print(f"{number}: {name}: {_words(node)}")
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
            docker("rm", "--force", node.name)
            if number % 2:  # the other ones have a last good configuration to fall back on
                docker("volume", "rm", f"{node.cluster.prefix}-state")
    finally:
        node.config = None


def _words(node: Node) -> str:
    """What the container makes of it."""
    node.run(TWO)
    status = node.wait()
    node.stays()
    assert status["ready"] or status["failure"]["resolution"], node.log()
    if not status["ready"]:
        assert "defect" not in status["failure"]["brief"], node.log()
        return str(status["failure"]["brief"])
    node.said("srun", "true")
    return f"ready, {status['customized']}"
