"""What a job that takes too much leaves standing, in the default tier: its daemons, and the machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.conftest import docker
from tests.integration.test_container import AS_USER, HEALTH, Node, image, until

__all__ = ["image"]

pytestmark = [
    pytest.mark.engines("docker", why="limits take control groups"),
    pytest.mark.timeout(300),
]

ADA = (AS_USER, "ada", "4242", "4242", "ada", "--")
DAEMONS = "cat /run/dshpc/slurm*.ended 2>/dev/null; pgrep -x 'slurmctld|slurmd'"
# Files outlive the processes that wrote them; with what the last of these takes there is no room
FILL = "head -c 250M /dev/zero >/dev/shm/fill && python3 -c 'len(bytearray(900 << 20))'"


@pytest.fixture(scope="module")
def node(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    found = Node(image, tmp_path_factory.mktemp("config"))
    limits = (
        "--memory",
        "500m",
        "--memory-swap",
        "500m",
        "--shm-size",
        "1g",
        "--pids-limit",
        "300",
    )
    found.run(*limits, devices=0, simulate="none")
    assert found.wait()["ready"], found.log()
    yield found
    found.remove()


def test_the_daemons_are_the_last_to_go(node: Node) -> None:
    """The kernel took slurmctld, the largest process beside those that are small by themselves."""
    before = node.exec("sh", "-c", DAEMONS)
    for _ in range(3):
        done = node.try_exec(*ADA, "srun", "-D", "/", "sh", "-c", FILL)
        assert done.returncode != 0
        assert "Killed" in done.stderr
        # Its files are gone with it, else the next one could not even begin
        until(lambda: node.exec("ls", "/dev/shm") == "")
    eat = "len(bytearray(900 << 20))"
    assert node.try_exec("srun", "-D", "/", "python3", "-c", eat).returncode == 137
    assert node.exec("sh", "-c", DAEMONS) == before
    until(lambda: node.exec(HEALTH) == "Node node is idle.")
    assert "in shared memory (/dev/shm): removed." in node.log()


def test_a_batch_script_that_the_kernel_ended_for_memory_says_so(node: Node) -> None:
    """In the words of `dshpc run`; Slurm says no more than 137 here."""
    for program, words in (("len(bytearray(900 << 20))", "out of memory"), ("exit(137)", "failed")):
        job = node.try_exec(
            *ADA, "sbatch", "--parsable", "--wait", "-D", "/", "-o", "/dev/null", "--wrap",
            f"python3 -c '{program}'",
        ).stdout.strip()  # fmt: skip
        listed = node.exec(*ADA, "dshpc-node", "job", "list", "--work", "/")
        (row,) = (line for line in listed.splitlines() if line.split()[0] == job)
        assert f" {words} " in row
        said = node.exec(*ADA, "dshpc-node", "job", "show", job, "--work", "/")
        assert ("failed: out of memory, " in said) is (words == "out of memory")
        assert "137" in said or "SIGKILL" in said


def test_what_is_still_wanted_in_shared_memory_is_kept(node: Node) -> None:
    # Until the jobs of the tests before are forgotten, what she makes may be one of theirs
    until(lambda: node.exec("ls", "/run/dshpc/shared-memory") == "")
    node.exec(*ADA, "touch", "/dev/shm/before")
    bob = (AS_USER, "bob", "4343", "4343", "bob", "--")  # he has no job
    node.exec(*bob, "touch", "/dev/shm/of-bob")
    node.exec(
        *ADA, "sbatch", "-D", "/", "-J", "other", "-o", "/dev/null", "--wrap",
        "until [ -e /tmp/go ]; do sleep 0.1; done",
    )  # fmt: skip
    node.exec(*ADA, "srun", "-D", "/", "touch", "/dev/shm/of a job")
    node.exec("sleep", "10")  # longer than it takes to look for what is left
    kept = node.exec("ls", "/dev/shm").splitlines()
    node.exec("touch", "/tmp/go")
    assert kept == ["before", "of a job", "of-bob"]
    until(lambda: node.exec("ls", "/dev/shm").splitlines() == ["before", "of-bob"])
    node.exec("sh", "-c", "rm /dev/shm/*")


# Six processes with 60,000 mappings each of a file with a long name: 120 MB of /proc/PID/maps
MAPS = """
import ctypes, os, time
name = "/dev/shm/" + "m" * 240
at = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
os.truncate(name, 4096)
for _ in range(5):
    if os.fork() == 0:
        break
call = ctypes.CDLL(None).mmap
call.restype = ctypes.c_void_p
call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
for _ in range(60_000):
    call(None, 4096, 1, 1, at, 0)
os.close(at)
open(f"/tmp/mapped-{os.getpid()}", "w").close()
time.sleep(300)
"""


def test_what_a_users_processes_map_fills_no_memory_of_who_looks(node: Node) -> None:
    node.exec("s6-svc", "-d", "/run/dshpc/services/tidy")
    node.exec("s6-svwait", "-d", "/run/dshpc/services/tidy")
    try:
        node.exec(*ADA, "srun", "-D", "/", "touch", "/dev/shm/left")
        docker("exec", "--detach", node.name, *ADA, "python3", "-c", MAPS)
        until(lambda: len(node.exec("sh", "-c", "ls /tmp/mapped-* 2>/dev/null || :").split()) == 6)
        look = "ulimit -v 200000; exec /usr/local/lib/dshpc/shared-memory"
        until(lambda: node.exec("squeue", "-h") == "")
        assert "left 1 in shared memory" in node.exec("sh", "-c", look)
        assert node.exec("ls", "/dev/shm") == "m" * 240  # somebody has it mapped
    finally:
        node.exec(
            "sh", "-c", "for at in /tmp/mapped-*; do kill ${at##*-}; rm $at; done; rm /dev/shm/m*"
        )
        node.exec("s6-svc", "-u", "/run/dshpc/services/tidy")


def test_tasks_are_ended_before_sessions_and_those_before_daemons(node: Node) -> None:
    mine = ("cat", "/proc/self/oom_score_adj")
    for who in ((), ADA):
        assert node.exec(*who, "srun", "-D", "/", *mine) == "500"
    assert node.exec(*ADA, *mine) == "250"
    for daemon in ("slurmctld", "slurmd", "s6-svscan"):
        assert node.exec("sh", "-c", f"cat /proc/$(pgrep -xo {daemon})/oom_score_adj") == "0"


def test_a_task_that_cannot_be_noted_begins(node: Node) -> None:
    """It is no worse off for that, and has its place."""
    node.exec("mv", "/run/dshpc/shared-memory", "/run/dshpc/aside")
    try:
        done = node.try_exec("srun", "-D", "/", "cat", "/proc/self/oom_score_adj")
        assert done.stdout.strip() == "500"
        assert "task-place: /run/dshpc/shared-memory/0.0." in done.stderr
    finally:
        node.exec("mv", "/run/dshpc/aside", "/run/dshpc/shared-memory")


def test_what_is_noted_of_tasks_does_not_grow(node: Node) -> None:
    """While something lies in shared memory that stays, one record of a user is kept."""
    node.exec(
        "sh", "-c", "touch /dev/shm/stays; exec setsid tail -f /dev/shm/stays >/dev/null 2>&1 &"
    )
    try:
        for _ in range(5):
            node.exec(*ADA, "srun", "-D", "/", "true")
        until(lambda: len(node.exec("ls", "/run/dshpc/shared-memory").splitlines()) <= 2)
        node.exec(*ADA, "srun", "-D", "/", "touch", "/dev/shm/of a job")
        until(lambda: node.exec("ls", "/dev/shm").splitlines() == ["stays"])
    finally:
        node.exec("sh", "-c", "pkill -xf 'tail -f /dev/shm/stays'; rm -f /dev/shm/*")
    until(lambda: node.exec("ls", "/run/dshpc/shared-memory") == "")


def test_a_job_that_forks_without_an_end_meets_the_limit(node: Node) -> None:
    script = "for i in $(seq 500); do sleep 5 & done; wait"
    done = node.try_exec(*ADA, "srun", "-D", "/", "bash", "-c", script)
    assert "Resource temporarily unavailable" in done.stderr or "Cannot fork" in done.stderr
    until(lambda: node.exec(HEALTH) == "Node node is idle.")
    seen = node.exec("dshpc-node", "observe")
    assert '"pids_limit": 300' in seen
    assert '"pids_refused": 0' not in seen


def test_no_user_holds_a_lock_or_reads_a_pipe_of_the_daemons(node: Node) -> None:
    node.exec(*ADA, "true")  # makes her known, under users.lock
    for file in ("users.lock", "slurmctld.log"):
        done = node.try_exec(*ADA, "sh", "-c", f"exec 3</run/dshpc/{file}")
        assert "Permission denied" in done.stderr, file
    modes = node.exec("find", "/run/dshpc", "-name", "*.lock", "-perm", "/077")
    assert modes == ""


BOB = (AS_USER, "bob", "4343", "4343", "bob", "--")
# A process of its user that is no child of the job traces it, and never takes note of its end
TRACED = """
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
me, seize = os.getpid(), 0x4206
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("traced" if libc.ptrace(seize, me, None, None) == 0 else "refused", flush=True)
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""


def _job_of_ada(node: Node, name: str, program: str, says: str) -> str:
    """A batch job of hers that has said a word."""
    log = f"/tmp/{name}.log"
    submit = f"printf '#!/usr/bin/python3\\n%s' \"$0\" | sbatch --parsable -D / -o {log}"
    job = node.exec(*ADA, "sh", "-c", submit, program).strip()
    until(lambda: node.exec("sh", "-c", f"cat {log} 2>/dev/null || true").strip() == says)
    return job


def test_a_job_whose_task_is_traced_stops_nobody_else(node: Node) -> None:
    """It stayed for ever, no other job began, and a minute later the node was drained."""
    job = _job_of_ada(node, "traced", TRACED, "traced")
    node.exec(*ADA, "scancel", job)
    assert node.try_exec(*BOB, "timeout", "45", "srun", "-D", "/", "true").returncode == 0
    assert node.exec("squeue", "-h", "-j", job, "-t", "all", "-o", "%T").strip() == "CANCELLED"
    assert "kept a job from ending by tracing it" in node.log()


def test_a_user_writes_nothing_that_the_daemons_read(node: Node) -> None:
    """A pipe that task prologs asked by could be kept full, and tasks waited."""
    node.exec(*ADA, "true")
    kinds = ("-type", "p", "-o", "-type", "f", "-o", "-type", "d", "-o", "-type", "s")
    found = node.try_exec(*ADA, "find", "/run/dshpc", "(", *kinds, ")", "-writable")
    assert found.stdout == ""
