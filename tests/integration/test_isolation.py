"""The isolation tier `enforced` on the real engine: what jobs can really open, use and keep.

The GPUs are device nodes with numbers that no driver has: an open that is allowed ends with "No such
device or address", one that is refused with "Operation not permitted".
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dshpc_setup.cluster.status import isolation
from dshpc_setup.render import seccomp
from dshpc_setup.slurm.client import parse_config
from tests.integration.cluster import as_root, made
from tests.integration.conftest import docker
from tests.integration.saved import SAVED
from tests.integration.shown import Terminal, documented
from tests.integration.test_container import AS_USER, HEALTH, Node, image, until
from tests.integration.test_restarts import PROGRAM, SAVES, has
from tests.integration.test_ssh import Ssh

__all__ = ["image"]

pytestmark = [
    pytest.mark.engines("docker", why="tiers take control groups"),
    pytest.mark.timeout(300),
]

ALLOWED, REFUSED = "No such device or address", "Operation not permitted"
RIGHTS = ("--cap-add", "SYS_ADMIN", "--env", "DSHPC_ISOLATION=enforced")
LOOK = (
    'for n in 0 1; do (exec 3<>/dev/nvidia$n) 2>&1 | sed "s/.*: //"; done;'
    ' echo "gpus=$CUDA_VISIBLE_DEVICES"'
)
EAT = 'python3 -c "len(bytearray(300 << 20))"'
FILL = (
    "head -c 300M /dev/zero >/dev/shm/$SLURM_JOB_ID"  # charged to the job, and its process is small
)
ADA = (AS_USER, "ada", "4242", "4242", "ada", "--")
CPUS = "grep Cpus_allowed_list /proc/self/status | cut -f2"
TREES = Path("/sys/fs/cgroup")


class Enforced(Node):
    """A container with the rights of the tier, and nodes of distinct numbers."""

    nodes: Path

    def start(self, *options: str) -> None:
        profile = self.nodes / "seccomp.json"
        version = docker("info", "--format", "{{.CgroupVersion}}").strip()
        profile.write_text(seccomp.profile(int(version)))
        rights = (*RIGHTS, "--security-opt", f"seccomp={profile}", *_apparmor())
        limits = ("--pids-limit", "600", "--shm-size", "1g")
        self.run(*rights, *limits, *_devices(self.nodes), *options, devices=0)

    def look(self, *argv: str) -> list[str]:
        """What a job says that looks: node 0, node 1, the variable."""
        return self.exec(*argv, "bash", "-c", LOOK).splitlines()

    def restarted(self) -> None:
        assert self.restart()["ready"], self.log()


def _devices(folder: Path) -> list[str]:
    return [f"--device={folder}/gpu{number}:/dev/nvidia{number}" for number in (0, 1)]


def _apparmor() -> list[str]:
    options = docker("info", "--format", "{{.SecurityOptions}}")
    return ["--security-opt", "apparmor=unconfined"] if "name=apparmor" in options else []


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two character devices whose numbers NVIDIA's driver would have; there is none here."""
    taken = Path("/proc/devices").read_text()
    if " nvidia" in taken:
        pytest.fail(
            "a driver has the numbers of the made-up GPUs: these tests want a machine without"
        )
    folder = tmp_path_factory.mktemp("nodes")
    for number in (0, 1):
        node = f"{folder}/gpu{number}"
        subprocess.run(as_root("mknod", "-m", "666", node, "c", "195", str(number)), check=True)
    return folder


@pytest.fixture(scope="module")
def node(image: str, nodes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enforced]:
    found = Enforced(image, tmp_path_factory.mktemp("config"))
    found.nodes = nodes
    found.start()
    assert found.wait()["ready"], found.log()
    yield found
    found.remove()


@pytest.fixture
def fresh(image: str, nodes: Path, tmp_path: Path) -> Iterator[Enforced]:
    found = Enforced(image, tmp_path / "config")
    found.nodes = nodes
    yield found
    found.remove()


def groups(container: str) -> list[str]:
    """The control groups of a container that the host has."""
    return groups_of(docker("inspect", "--format", "{{.Id}}", container).strip())


def groups_of(number: str) -> list[str]:
    """os.walk passes over those of other containers that vanish meanwhile."""
    return [folder for folder, _, _ in os.walk(TREES) if number in folder]


@pytest.mark.parametrize("who", [(), (AS_USER, "t1", "4242", "4242", "ada", "--")])
@pytest.mark.parametrize(
    ("gres", "opened"),
    [
        ((), [REFUSED, REFUSED, "gpus="]),
        (("--gres=gpu:1",), [ALLOWED, REFUSED, "gpus=0"]),
        (("--gres=gpu:h100:2",), [ALLOWED, ALLOWED, "gpus=0,1"]),
    ],
)
def test_a_job_opens_its_own_gpus_alone(
    node: Enforced, who: tuple[str, ...], gres: tuple[str, ...], opened: list[str]
) -> None:
    assert node.look(*who, "srun", "-D", "/", *gres) == opened


def test_two_jobs_at_once_count_their_gpus_from_0(node: Enforced) -> None:
    meet = "touch /tmp/both/$$; until [ $(ls /tmp/both | wc -l) = 2 ]; do sleep 0.1; done"
    script = f"srun --gres=gpu:1 bash -c '{meet}; {LOOK}'"
    node.exec("mkdir", "-m", "777", "/tmp/both")
    said = node.exec("bash", "-c", f"{script} >/tmp/a & {script} >/tmp/b; wait; cat /tmp/a /tmp/b")
    lines = said.splitlines()
    assert sorted([lines[:3], lines[3:]]) == [
        [ALLOWED, REFUSED, "gpus=0"],
        [REFUSED, ALLOWED, "gpus=0"],
    ]


def test_batch_and_the_steps_inside(node: Enforced) -> None:
    steps = "; ".join(f"{each} bash -c '{LOOK}'" for each in ("", "srun", "srun --gres=none"))
    node.exec(
        "sbatch", "-W", "-D", "/", "-o", "/tmp/batch.out", "--gres=gpu:1", "--wrap", steps
    )  # fmt: skip
    lines = node.exec("cat", "/tmp/batch.out").split("\n")
    own = [ALLOWED, REFUSED, "gpus=0"]
    assert lines == [*own, *own, REFUSED, REFUSED, "gpus="]


def test_memory_beyond_the_jobs_is_not_to_be_had(node: Enforced) -> None:
    done = node.try_exec("srun", "--mem=60", "sh", "-c", EAT)
    assert done.returncode != 0
    assert "oom_kill event" in done.stderr
    node.exec("srun", "--mem=600", "sh", "-c", EAT)


def states(node: Node, name: str) -> list[str]:
    """Of the jobs of that name, one word each."""
    return node.exec("squeue", "-h", "-a", "-t", "all", "-n", name, "-o", "%T").split()


def test_a_job_that_fills_shared_memory_ends_and_says_so(node: Enforced) -> None:
    """The files outlive its processes: the kernel ended slurmstepd, and the job never did."""
    done = node.try_exec("timeout", "60", "srun", "--mem=50", "sh", "-c", f"{FILL}; exec {EAT}")
    assert done.returncode not in (0, 124)
    assert "Out Of Memory" in done.stderr
    for _ in range(4):
        node.exec(
            *ADA, "sbatch", "-D", "/", "-J", "fills", "-o", "/dev/null", "--mem=50", "--wrap",
            f"{FILL}; {FILL}; {FILL}",
        )  # fmt: skip
    until(lambda: states(node, "fills") == ["OUT_OF_MEMORY"] * 4)
    assert "fills" not in node.jobs()  # none was queued again
    # And nothing of it takes up the container's memory
    until(lambda: node.exec("ls", "/dev/shm") == "")


def test_the_daemon_of_a_step_is_not_in_the_group_of_its_memory(node: Enforced) -> None:
    groups = "cat /proc/self/cgroup /proc/$PPID/cgroup"
    for who in ((), ADA):
        own, daemons = node.exec(*who, "srun", "-D", "/", "sh", "-c", groups).split("\n0::")[:2]
        assert "/task_0" in own
        (memory,) = [line for line in daemons.splitlines() if ":memory:" in line] or [daemons]
        assert "/job_" not in memory


@pytest.mark.parametrize("who", [(), ADA])
def test_a_job_makes_no_namespace(node: Enforced, who: tuple[str, ...]) -> None:
    """The attack: all capabilities in a namespace of one's own, and from there every mount."""
    for argv in (("unshare", "-Ur", "id"), ("unshare", "-m", "true"), ("unshare", "-n", "true")):
        done = node.try_exec(*who, "srun", "-D", "/", *argv)
        assert (done.returncode, "Operation not permitted" in done.stderr) == (1, True), argv
        done = node.try_exec(*who, *argv)  # and none in a session without a job
        assert (done.returncode, "Operation not permitted" in done.stderr) == (1, True), argv


def test_a_job_of_root_mounts_nothing(node: Enforced) -> None:
    """Its SYS_ADMIN is for device rules: with /proc/sys writable it was root on the machine."""
    for argv in (
        ("mount", "-o", "remount,bind,rw", "/proc/sys"),
        ("mount", "-t", "tmpfs", "none", "/mnt"),
        ("mount", "--bind", "/tmp", "/mnt"),
    ):
        done = node.try_exec("srun", *argv)
        assert done.returncode == 32, done.stdout + done.stderr
    ask = "import ctypes; print(ctypes.CDLL(None).syscall(250, 0, -3, 0))"  # keyctl
    assert node.exec("srun", "python3", "-c", ask) == "-1"


def test_a_job_makes_no_namespace_under_the_profile_of_the_engine(fresh: Enforced) -> None:
    """In a container that was started by hand with SYS_ADMIN alone, whose profile opens all of it."""
    fresh.run(*RIGHTS, *_apparmor(), *_devices(fresh.nodes), devices=0)
    assert fresh.wait()["ready"], fresh.log()
    assert (
        fresh.try_exec("unshare", "-m", "true").returncode == 0
    )  # so that the next line says something
    for who in ((), ADA):
        done = fresh.try_exec(*who, "srun", "-D", "/", "unshare", "-Ur", "id")
        assert (done.returncode, "Operation not permitted" in done.stderr) == (1, True)


FORK = """
import os, time
try:
    for _ in range(900):
        if os.fork() == 0:
            time.sleep(60)
except OSError as error:
    print(error.strerror, flush=True)
time.sleep(60)
"""


def test_a_job_that_forks_without_an_end_leaves_half_to_the_others(node: Enforced) -> None:
    forks = ("sbatch", "--parsable", "-D", "/", "-J", "forks", "-o", "/tmp/forks", "--wrap")
    job = node.exec(*ADA, *forks, f"exec python3 -c '{FORK}'")
    until(lambda: "temporarily unavailable" in node.try_exec("cat", "/tmp/forks").stdout)
    limits = node.exec("sh", "-c", f"find {TREES} -name pids.max | xargs head -v").splitlines()
    group = f"/job_{job}/pids.max <=="
    assert [limits[n + 1] for n, line in enumerate(limits) if line.endswith(group)] == ["300"], (
        limits
    )
    assert node.exec(*ADA, "srun", "-D", "/", "echo", "begins") == "begins"
    node.exec("scancel", job)
    if node.try_exec("test", "-e", f"{TREES}/cgroup.controllers").returncode == 0:
        return  # in version 2 the group is Slurm's own
    until(lambda: f"job {job} had 300 processes, all that it may have." in node.log())
    assert node.exec("find", "/sys/fs/cgroup/pids", "-name", f"job_{job}") == ""


def test_tasks_are_the_first_to_go_where_memory_runs_out(node: Enforced) -> None:
    daemons = "slurmctld|slurmd|slurmscriptd|s6-svscan|s6-supervise|sed|run"
    adjusted = f"for p in $(pgrep -x '{daemons}'); do cat /proc/$p/oom_score_adj; done | sort -u"
    for tasks in ("1", "3"):
        seen = node.exec(
            *ADA, "srun", "-D", "/", "-O", "-n", tasks, "cat", "/proc/self/oom_score_adj"
        )
        assert seen.split() == ["500"] * int(tasks)
    assert node.exec("sh", "-c", adjusted) == "0"


def test_slurmstepd_lies_outside_of_its_jobs_memory(node: Enforced) -> None:
    """Before the first of its tasks begins, however many they are."""
    of_memory = "grep -m 1 -E 'memory|^0:' /proc"  # version 1 of control groups, and 2
    group = f"{of_memory}/self/cgroup; {of_memory}/$PPID/cgroup"
    for tasks in ("1", "3"):
        seen = node.exec(*ADA, "srun", "-D", "/", "-O", "-n", tasks, "sh", "-c", group).splitlines()
        assert len(seen) == 2 * int(tasks)
        assert sum("/job_" in line for line in seen) == int(tasks), seen


def test_cores_beyond_the_jobs_are_not_to_be_had(node: Enforced) -> None:
    all_of_them = len(os.sched_getaffinity(0))
    seen = node.exec("srun", "-n1", "-c1", "sh", "-c", f"{CPUS}; taskset -pc 0-255 $$; {CPUS}")
    first, last = seen.splitlines()[0], seen.splitlines()[-1]
    assert first == last  # a job cannot take others
    assert (first.isdigit()) is (all_of_them > 1 or first == "0")


def test_a_process_that_leaves_its_session_ends_with_the_job(node: Enforced) -> None:
    has_left = "until grep -q sleep /proc/$!/comm; do sleep 0.1; done"
    node.exec("srun", "sh", "-c", f"setsid sleep 4321 >/dev/null 2>&1 & {has_left}")
    until(lambda: node.try_exec("pgrep", "-f", "sleep 4321").returncode == 1)


def test_the_tier_is_told_by_the_controller(node: Enforced) -> None:
    assert isolation(parse_config(node.exec("scontrol", "show", "config"))) == "enforced"
    until(lambda: node.exec(HEALTH) == "Node node is idle.")  # the jobs before have ended


def test_a_user_in_the_container_has_no_right_of_its_root(node: Enforced) -> None:
    """The capability is root's alone: a user's job cannot give itself a device back."""
    text = node.exec(
        AS_USER, "t2", "4242", "4242", "ada", "--", "srun", "-D", "/", "sh", "-c",
        "grep -E 'CapEff|NoNewPrivs' /proc/self/status; mount -o remount,bind,rw /sys/fs/cgroup;"
        "echo 1 >$(find /sys/fs/cgroup -name 'devices.allow' | head -n 1) ; true",
    )  # fmt: skip
    assert text.split("\n")[:2] == ["CapEff:\t0000000000000000", "NoNewPrivs:\t1"]


def test_jobs_go_on_while_daemons_are_killed(node: Enforced) -> None:
    node.exec(
        "sbatch", "-J", "long", "-D", "/", "-o", "/tmp/long.out", "--gres=gpu:1", "--wrap",
        f"until [ -e /tmp/go ]; do sleep 0.1; done; {LOOK}",
    )  # fmt: skip
    until(lambda: node.jobs().get("long") == "RUNNING")
    node.exec("sh", "-c", SAVED)
    node.exec("pkill", "-KILL", "-x", "slurmd")
    node.exec("pkill", "-KILL", "-x", "slurmctld")
    until(lambda: node.try_exec("scontrol", "ping").returncode == 0)
    until(lambda: node.try_exec("srun", "-D", "/", "true").returncode == 0)
    assert node.look("srun", "-D", "/", "--gres=gpu:1") == [REFUSED, ALLOWED, "gpus=0"]
    node.exec("touch", "/tmp/go")
    until(lambda: "long" not in node.jobs())
    assert node.exec("cat", "/tmp/long.out").split("\n") == [ALLOWED, REFUSED, "gpus=0"]


def test_restart_and_removal_leave_no_control_group(fresh: Enforced) -> None:
    fresh.start()
    assert fresh.wait()["ready"], fresh.log()
    fresh.exec("sbatch", "-o", "/dev/null", "--gres=gpu:1", "--no-requeue", "--wrap", "sleep 600")
    # Slurm kills all of a job or step whose task has ended, as a shell that knows no trap does at once
    fresh.exec("sh", "-c", 'printf %s "$1" >$2', "sh", SAVES, PROGRAM)
    saves = f"srun sh -c 'sh {PROGRAM} step; true' & sh {PROGRAM} batch; true"
    fresh.exec("sbatch", "-o", "/dev/null", "--no-requeue", "--wrap", saves)
    until(lambda: has(fresh, "step.begun", "batch.begun"))
    fresh.restarted()
    assert has(fresh, "step.saved", "batch.saved")
    assert sorted(fresh.look("srun", "--gres=gpu:1")) == [ALLOWED, REFUSED, "gpus=0"]
    number = docker("inspect", "--format", "{{.Id}}", fresh.name).strip()
    assert groups(fresh.name)  # so that the search below can find one
    fresh.remove(volumes=False)
    until(lambda: groups_of(number) == [])
    fresh.start()
    assert fresh.wait()["ready"], fresh.log()
    assert sorted(fresh.look("srun", "--gres=gpu:1")) == [ALLOWED, REFUSED, "gpus=0"]


def test_a_gpu_that_is_named_is_the_one_that_can_be_opened(fresh: Enforced) -> None:
    """`gres_type: index`, several users and an array, each job on the GPU that it names."""
    fresh.start("--env", "DSHPC_GRES_TYPE=index")
    assert fresh.wait()["ready"], fresh.log()
    ada = (AS_USER, "t1", "4242", "4242", "ada", "--")
    bob = (AS_USER, "t2", "4343", "4343", "bob", "--")
    for who, number, opened in (
        (ada, 1, [REFUSED, ALLOWED, "gpus=0"]), (bob, 0, [ALLOWED, REFUSED, "gpus=0"]),
    ):  # fmt: skip
        assert fresh.look(*who, "srun", "-D", "/", f"--gres=gpu:gpu{number}:1") == opened
    fresh.exec(
        *ada, "sbatch", "-D", "/", "-o", "/tmp/task-%a", "--array=0-1", "--gres=gpu:gpu1:1",
        "--wrap", f"exec bash -c '{LOOK}'",
    )  # fmt: skip
    until(lambda: not fresh.jobs())
    for task in (0, 1):
        seen = fresh.exec("cat", f"/tmp/task-{task}").split("\n")
        assert seen == [REFUSED, ALLOWED, "gpus=0"]


def failed(node: Node) -> str:
    """Why the start failed; nothing runs, and the container stays up and unhealthy."""
    status = node.wait()
    assert not status["ready"]
    assert "isolation = enforced cannot be kept" in status["failure"]["brief"]
    assert node.try_exec("pgrep", "-x", "slurmd|slurmctld").returncode == 1
    assert node.try_exec(HEALTH).returncode == 1
    return str(status["failure"]["details"]) + "\n".join(status["failure"]["resolution"])


def test_a_container_without_the_rights_starts_no_daemon(fresh: Enforced) -> None:
    fresh.run("--env", "DSHPC_ISOLATION=enforced", *_devices(fresh.nodes), devices=0)
    said = failed(fresh)
    assert "permission denied" in said
    assert "docker run --cap-add SYS_ADMIN" in said


def test_a_container_with_other_cores_than_slurm_would_give(fresh: Enforced) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.fail("this test needs a machine with two cores")
    fresh.start("--cpuset-cpus", str(cores[-1]))
    assert "limited to some CPUs" in failed(fresh)


def test_names_of_dev_null_are_not_taken_for_gpus(fresh: Enforced) -> None:
    fresh.run(*RIGHTS, *_apparmor())
    assert "a name of /dev/null" in failed(fresh)


def test_the_default_tier_has_no_right_and_writes_no_group(fresh: Enforced) -> None:
    fresh.run(*_devices(fresh.nodes), devices=0)
    assert fresh.wait()["ready"], fresh.log()
    assert fresh.look("srun", "--gres=gpu:1") == [ALLOWED, ALLOWED, "gpus=0"]
    assert isolation(parse_config(fresh.exec("scontrol", "show", "config"))) == "default"
    bound = fresh.exec("grep", "CapBnd", "/proc/1/status").split()[1]
    assert int(bound, 16) >> 21 & 1 == 0  # CAP_SYS_ADMIN
    devices = "devices/" if (TREES / "devices").exists() else ""
    assert "Read-only" in fresh.try_exec("mkdir", f"{TREES}/{devices}x").stderr


def test_the_whole_way_by_the_compose_of_the_host(docker_engine: str, tmp_path: Path) -> None:
    """Memory and cores alone: the machine has no GPU that `configure-environment` would hand over."""
    with made("isolation") as cluster:
        cluster.configure("--gpu", "none", "--isolation", "enforced").good()
        status = cluster.dshpc("status", "--json").good().report
        assert status["isolation"]["tier"] == "enforced"
        shown = documented("docs/how-to/isolation.md", "dshpc status | grep Isolation")
        assert shown.lines[0] in cluster.dshpc("status").good().stdout.splitlines()
        assert "SYS_ADMIN" in cluster.inspect()["HostConfig"]["CapAdd"]
        assert not cluster.inspect()["HostConfig"]["Privileged"]
        options = docker(
            "inspect", "--format", "{{json .HostConfig.SecurityOpt}}", cluster.container
        )
        assert '\\"names\\"' in options  # compose has read our profile, and the engine has it
        assert cluster.dshpc("srun", "unshare", "-Ur", "id").code != 0
        assert cluster.dshpc("exec", "unshare", "-Ur", "id").code != 0
        killed = cluster.dshpc("srun", "--mem=60", "sh", "-c", EAT)
        assert killed.code != 0
        assert "oom_kill event" in killed.stderr
        cluster.dshpc("srun", "true").good()
        job = ("run", "--memory", "60M", "--wait", "--", "sh", "-c")
        ended = cluster.dshpc(*job, f"exec {EAT}")
        assert ended.code == 137
        assert "out of memory: ended by SIGKILL" in ended.stderr
        assert "dshpc run --memory SIZE" in ended.stdout  # the job's own log
        (one,) = cluster.dshpc("job", "list", "--json").good().report["jobs"][-1:]
        assert (one["out_of_memory"], one["signal"]) == ("host", "SIGKILL")
        # A process of it alone, and a job that ends well by itself
        ended = cluster.dshpc(*job, f"{EAT}; true")
        assert ended.code == 1
        assert "the kernel ended some of its processes" in ended.stderr
        item = documented(
            "docs/how-to/jobs.md", f"dshpc run --memory 60M --wait -- sh -c '{EAT}; true'"
        )
        Terminal(cluster.folder, {}).compare(item, ended.stdout, ended.stderr)
        assert "dshpc run --memory SIZE" in ended.stderr
        # A session of ssh is in its job's groups, and so is what it leaves
        ssh = Ssh(cluster, tmp_path)
        leave = "setsid sleep 602 </dev/null >/dev/null 2>&1 &"
        groups = ssh.said("cpu", f"echo $SLURM_JOB_ID; cat /proc/self/cgroup; {leave}")
        number = groups.split()[0]
        assert f"/job_{number}/step_batch" in groups
        assert "unshare failed" in ssh.run("cpu", "unshare -Ur true").stderr
        assert "sleep 602" in ssh.said("cpu", "ps -eo args")
        cluster.dshpc("job", "cancel", number).good()
        until(lambda: "sleep 602" not in cluster.said("ps", "-eo", "args"))


def test_what_cannot_be_enforced_is_refused_before_anything_is_written(docker_engine: str) -> None:
    with made("isolation") as cluster:
        done = cluster.configure("--simulate", "h100:2", "--isolation", "enforced")
        assert done.code == 2
        assert "isolation = enforced cannot be kept on this machine" in done.stdout + done.stderr
        assert not (cluster.folder / "docker-compose.yml").exists()
        assert not cluster.exists()
