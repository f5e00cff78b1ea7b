"""What runs inside the container, on the real engine: start, stop, faults, users, signals.

The GPUs are made up: names of /dev/null, handed in as the compose file does it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.facts import HostFacts
from dshpc_setup.image.base import BaseImage
from dshpc_setup.image.build import build
from dshpc_setup.image.context import write_context
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Silent
from tests.integration.conftest import docker
from tests.integration.leftovers import remember
from tests.integration.saved import SAVED

pytestmark = pytest.mark.timeout(300)
RUN = f"dshpc-test-container-{os.getpid()}"
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
AS_USER = "/usr/local/lib/dshpc/as-user"
HEALTH = "/usr/local/lib/dshpc/health"


@pytest.fixture(scope="module")
def image(
    local_machine: LocalMachine,
    image_facts: HostFacts,
    base_image: BaseImage,
    site: SiteFiles,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    context = write_context(tmp_path_factory.mktemp("image") / "build", buildkit=False, site=site)
    settings, machine = Settings(), local_machine
    build(machine, image_facts, settings, base_image, context, RUN, "none", Silent())
    yield RUN
    docker("rmi", "-f", RUN)


class Node:
    """A container with its volumes and its folder of configuration files."""

    def __init__(self, image: str, config: Path) -> None:
        self.image, self.config = image, config
        self.name = f"{RUN}-{secrets.token_hex(3)}"
        remember(self.name)
        config.mkdir(exist_ok=True)

    def run(self, *options: str, devices: int = 2, simulate: str = "h100:2") -> None:
        docker(
            "run", "--detach", "--name", self.name, "--hostname", "node",
            "--cap-drop", "ALL", *(f"--cap-add={each}" for each in CAPABILITIES),
            "--security-opt", "no-new-privileges",
            *(f"--device=/dev/null:/dev/nvidia{index}" for index in range(devices)),
            "--volume", f"{self.name}-state:/var/lib/dshpc/state",
            "--volume", f"{self.name}-key:/var/lib/dshpc/key",
            "--volume", f"{self.config}:/config:ro",
            "--env", "DSHPC_PREFIX=node", "--env", f"DSHPC_SIMULATE={simulate}",
            *options, self.image,
        )  # fmt: skip

    def wait(self) -> dict[str, Any]:
        """The status, once it is ready or failed."""
        done = self.try_exec("dshpc-node", "wait", "--timeout", "60")
        status = json.loads(done.stdout)
        assert isinstance(status, dict)
        assert done.returncode == (0 if status["ready"] else 2), self.log()
        return status

    def restart(self) -> dict[str, Any]:
        docker("restart", "--time", "10", self.name)
        return self.wait()

    def remove(self, *, volumes: bool = True) -> None:
        docker("rm", "--force", self.name)
        if volumes:
            docker("volume", "rm", "--force", f"{self.name}-state", f"{self.name}-key")

    def try_exec(
        self, *argv: str, options: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", "exec", *options, self.name, *argv],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def exec(self, *argv: str) -> str:
        done = self.try_exec(*argv)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}\n{self.log()}"
        return done.stdout.strip()

    def log(self) -> str:
        done = subprocess.run(
            ["docker", "logs", self.name], capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout + done.stderr

    def ready(self) -> dict[str, Any]:
        """The status of a start that has to succeed."""
        status = self.wait()
        assert status["ready"], self.log()
        return status

    def jobs(self) -> dict[str, str]:
        """Job name -> state."""
        lines = self.exec("squeue", "-h", "-o", "%j %T").splitlines()
        return dict(line.split() for line in lines)


@pytest.fixture
def fresh(image: str, tmp_path: Path) -> Iterator[Node]:
    node = Node(image, tmp_path / "config")
    yield node
    node.remove()


@pytest.fixture(scope="module")
def node(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One that is running and that the tests leave as they found it."""
    found = Node(image, tmp_path_factory.mktemp("config"))
    found.run()
    found.ready()
    yield found
    found.remove()


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, "it did not happen in time"
        time.sleep(0.05)


# Start


def test_a_first_start_ends_with_a_job_that_ran(node: Node) -> None:
    status = node.wait()
    assert status["schema"] == "dshpc.start/1"
    assert (status["node"], status["gres"], status["simulated"]) == ("node", "gpu:h100:2", True)
    assert status["image_gpu_type"] == "none"
    assert status["failure"] is None
    assert [step["name"] for step in status["steps"]][-1] == "first job"
    log = node.log()
    assert "SIMULATED" in log
    assert "srun --gres=gpu:1 true passed" in log
    assert node.exec("srun", "--gres=gpu:1", "printenv", "CUDA_VISIBLE_DEVICES") == "0"
    until(lambda: node.exec(HEALTH) == "Node node is idle.")  # that job completes


def test_it_has_the_least_rights_and_a_key_that_only_slurm_reads(node: Node) -> None:
    status = node.exec("cat", "/proc/1/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["NoNewPrivs"] == "1"
    assert int(fields["CapBnd"], 16).bit_count() == len(CAPABILITIES)
    assert node.exec("stat", "-c", "%a %U", "/var/lib/dshpc/key/slurm.key") == "600 slurm"


def test_the_image_itself_has_no_key(image: str) -> None:
    found = docker("run", "--rm", "--entrypoint", "find", image, "/", "-xdev", "-name", "*.key")
    assert found == ""


def test_two_deployments_have_two_keys(node: Node, fresh: Node) -> None:
    fresh.run(devices=0, simulate="")
    fresh.ready()
    argv = ("sha256sum", "/var/lib/dshpc/key/slurm.key")
    assert fresh.exec(*argv) != node.exec(*argv)
    # no GPU at all: a job that asks for one is refused, and runs nowhere without it
    assert fresh.exec("srun", "hostname") == "node"
    assert fresh.try_exec("srun", "--gres=gpu:1", "true").returncode != 0


def test_a_host_name_that_does_not_resolve_is_fixed(fresh: Node, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    fresh.run("--volume", f"{hosts}:/etc/hosts")
    status = fresh.wait()
    assert status["ready"], fresh.log()
    assert any("did not resolve" in note for note in status["notes"])
    # Where it does not, each srun takes 20 s longer; what docker exec takes does not count
    times = fresh.exec("bash", "-c", "TIMEFORMAT=%R; { time srun true; } 2>&1").split()
    assert float(times[-1]) < 15


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--network", "none"), "no network"),
        (("--env", "DSHPC_PREFIX=other"), "host name is node, but the controller's is other"),
    ],
)
def test_a_container_that_cannot_work_says_so_at_once(
    fresh: Node, options: tuple[str, ...], words: str
) -> None:
    fresh.run(*options)
    status = fresh.wait()
    assert status["phase"] == "failed"
    assert words in status["failure"]["brief"]
    assert status["failure"]["resolution"]


def test_a_gpu_whose_device_file_is_missing_is_left_out_with_words(fresh: Node) -> None:
    fresh.run(devices=1)
    status = fresh.wait()
    assert (status["ready"], status["gres"]) == (True, "gpu:h100:1"), fresh.log()
    assert "/dev/nvidia1" in fresh.log()


def test_a_setting_that_is_none_is_an_error_with_words(fresh: Node) -> None:
    fresh.run(simulate="h1OO:2")
    status = fresh.wait()
    assert status["phase"] == "failed"
    assert "h1OO" in status["failure"]["brief"]
    assert "h100" in json.dumps(status["failure"])


# Stop and start again


def test_stop_is_quick_and_the_queue_and_users_outlive_the_container(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    fresh.exec("sbatch", "-J", "later", "--begin=now+1hour", "-o", "/dev/null", "--wrap", "true")
    for name, option in (("again", "--requeue"), ("once", "--no-requeue")):
        fresh.exec("sbatch", "-J", name, option, "-o", "/dev/null", "--wrap", "sleep 600")
    user = (AS_USER, "t", "4242", "4242", r"DOM\ada", "--")
    fresh.exec(*user, "sbatch", "-J", "hers", "--begin=now+1hour", "-o", "/dev/null", "--wrap=true")
    until(lambda: fresh.jobs().get("once") == "RUNNING")
    # After these seconds the engine kills it, and the code is 137
    docker("stop", "--time", "10", fresh.name)
    assert docker("inspect", "--format", "{{.State.ExitCode}}", fresh.name).strip() == "0"
    fresh.remove(volumes=False)
    fresh.run()
    status = fresh.wait()
    assert status["ready"], fresh.log()
    # what ran is gone with the container: nothing may hold a GPU in its name
    jobs = fresh.jobs()
    assert jobs.pop("again") in ("PENDING", "RUNNING"), "it begins anew a second after the start"
    assert jobs == {"later": "PENDING", "hers": "PENDING"}
    assert any("1 queued again, 1 ended" in note for note in status["notes"])
    assert fresh.exec("squeue", "-h", "-n", "hers", "-o", "%u") == r"DOM\ada"
    assert fresh.exec("id", "-u", r"DOM\ada") == "4242"


def test_what_changed_since_the_last_start_is_said(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    fresh.remove(volumes=False)
    fresh.run(devices=1)
    status = fresh.wait()
    assert (status["ready"], status["gres"]) == (True, "gpu:h100:1"), fresh.log()
    assert any("(gone: NVIDIA H100" in change for change in status["changes"])
    assert status["drift"][0]["done"] == "Gres is gpu:h100:1 instead of gpu:h100:2"
    assert fresh.exec("srun", "--gres=gpu:1", "printenv", "CUDA_VISIBLE_DEVICES") == "0"


@pytest.mark.parametrize(
    ("reason", "resumed"),
    [
        ("dshpc:until the GPU is back", True),
        ("broken fan", False),
        (
            "gres/gpu count reported lower than configured (1 < 2)",
            False,
        ),  # root's words, not Slurm's
    ],
)
def test_only_a_drain_of_our_own_doing_is_undone(fresh: Node, reason: str, resumed: bool) -> None:
    fresh.run()
    fresh.ready()
    fresh.exec("scontrol", "update", "nodename=node", "state=drain", f"reason={reason}")
    status = fresh.restart()
    assert status["ready"], fresh.log()
    assert any(reason in note for note in status["notes"]), (status, fresh.log())
    health = fresh.try_exec(HEALTH)
    assert (health.returncode == 0) is resumed, health.stdout
    assert resumed or health.stdout == f"Node node is drained by root: {reason}\n"


# Faults while it runs


def test_killed_daemons_are_back_and_jobs_outlive_them(node: Node) -> None:
    node.exec("sbatch", "-J", "outlive", "-o", "/dev/null", "--wrap", "sleep 600")
    until(lambda: node.jobs().get("outlive") == "RUNNING")
    node.exec("sh", "-c", SAVED)
    for service in ("slurmctld", "slurmd"):
        before = node.exec("s6-svstat", "-o", "pid", f"/run/dshpc/services/{service}")
        node.exec("kill", "-9", before)
        until(  # how fast: test_start_faults
            lambda service=service, before=before: (  # type: ignore[misc]
                node.try_exec("scontrol", "ping").returncode == 0
                and node.exec("s6-svstat", "-o", "pid", f"/run/dshpc/services/{service}")
                not in (before, "-1")
            )
        )
    assert node.jobs().get("outlive") == "RUNNING"
    node.exec("scancel", "-n", "outlive")
    until(lambda: not node.jobs())
    node.exec("srun", "true")


def test_zombies_are_reaped(node: Node) -> None:
    script = "(sleep 0.1 & echo /proc/$!); (setsid sleep 0.1 & echo /proc/$!)"
    places = node.exec("sh", "-c", script).split()
    assert len(places) == 2
    until(lambda: node.try_exec("ls", "-d", *places).stdout == "")  # a zombie still has its place


# Files of the user


def own(node: Node, name: str, old: str, new: str) -> None:
    text = node.exec("cat", f"/etc/slurm/{name}")
    assert old in text
    (node.config / name).write_text(f"# USER_CUSTOMIZED=true\n{text.replace(old, new, 1)}\n")


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("slurm.conf", "ReturnToService", "ReturnToServise", "Did you mean ReturnToService?"),
        ("slurm.conf", "select/cons_tres", "select/cons_foo", "select/cons_foo"),
        ("gres.conf", "Type=h100", "Typ=h100", "Did you mean Type?"),
    ],
)
def test_a_broken_file_of_the_user_never_takes_a_good_cluster_down(
    fresh: Node, name: str, old: str, new: str, words: str
) -> None:
    fresh.run()
    fresh.ready()
    own(fresh, name, old, new)
    status = fresh.restart()
    assert status["ready"], fresh.log()
    kept = status["kept_last_good"]
    assert kept["brief"].startswith(f"config/{name}, line ")
    assert words in json.dumps(kept)
    tried = hashlib.sha256((fresh.config / name).read_bytes()).hexdigest()
    assert (status["customized"], status["config_sha256"]) == ({name: "custom"}, {name: tried})
    # with nothing good from before it does not start, says the same, and stays to be looked at
    fresh.remove()
    fresh.run()
    status = fresh.wait()
    assert (status["phase"], status["failure"]["brief"]) == ("failed", kept["brief"])
    assert (status["customized"], status["config_sha256"]) == ({name: "custom"}, {name: tried})
    assert fresh.try_exec(HEALTH).returncode == 1
    assert fresh.try_exec("pidof", "slurmctld", "slurmd").stdout == ""
    # fixed, it starts
    (fresh.config / name).unlink()
    assert fresh.restart()["ready"], fresh.log()


def test_a_file_of_the_user_that_does_not_fit_the_hardware_is_not_replaced(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    own(fresh, "gres.conf", "/dev/nvidia1", "/dev/nvidia7")
    tried = hashlib.sha256((fresh.config / "gres.conf").read_bytes()).hexdigest()
    status = fresh.restart()
    assert status["phase"] == "failed"
    failure = status["failure"]
    assert failure["brief"].startswith("config/gres.conf, line ")
    assert "/dev/nvidia7 is no device" in failure["brief"]
    assert "File=/dev/nvidia1" in failure["details"]  # what is there, as the right line
    assert status["config_sha256"] == {"gres.conf": tried}
    assert fresh.try_exec(HEALTH).returncode == 1
    assert fresh.try_exec("pidof", "slurmctld", "slurmd").stdout == ""
    assert docker("inspect", "--format", "{{.RestartCount}}", fresh.name).strip() == "0"
    (fresh.config / "gres.conf").unlink()
    assert fresh.restart()["ready"], fresh.log()


def test_a_file_of_another_node_and_a_folder_in_its_place_are_no_end(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    own(fresh, "slurm.conf", "NodeName=node", "NodeName=nod[1-2]")
    status = fresh.restart()
    assert status["ready"], fresh.log()
    assert status["kept_last_good"]["brief"] == "config/slurm.conf has no NodeName=node."
    (fresh.config / "slurm.conf").unlink()
    (fresh.config / "slurm.conf").mkdir()
    status = fresh.restart()
    assert status["ready"], fresh.log()
    assert status["kept_last_good"]["brief"].startswith("config/slurm.conf cannot be read")


def test_a_node_of_another_name_is_found_all_the_same(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    own(fresh, "slurm.conf", "NodeName=node", "NodeName=noed")
    status = fresh.restart()
    assert (status["ready"], status["node"]) == (True, "noed"), fresh.log()


def test_a_good_file_of_the_user_is_used(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    own(fresh, "slurm.conf", "PartitionName=debug", "PartitionName=mine")
    status = fresh.restart()
    assert status["ready"], fresh.log()
    assert status["customized"] == {"slurm.conf": "custom"}
    assert fresh.exec("sinfo", "-h", "-o", "%R") == "mine"


# Users and signals


def test_an_ordinary_users_job_may_open_a_gpu_that_is_its_groups_alone(
    fresh: Node, tmp_path: Path
) -> None:
    # The engine gives a device in the container the owner and the mode it has outside
    made = tmp_path / "dev"
    made.mkdir()
    script = 'mknod "$0" c 1 3; chown "root:$1" "$0"; chmod 660 "$0"'
    devices: list[str] = []
    for name, gid in (("kfd", "4343"), ("dri/renderD128", "4242")):
        path = made / Path(name).name
        inside = f"/dev-out/{path.name}"
        docker(
            "run", "--rm", "--volume", f"{made}:/dev-out", "--entrypoint", "sh", fresh.image,
            "-euc", script, inside, gid,
        )  # fmt: skip
        devices.append(f"--device={path}:/dev/{name}")
    groups = ("--group-add=4242", "--group-add=4343")
    fresh.run(*devices, *groups, devices=0, simulate="mi300x:1")
    assert (fresh.wait()["ready"], fresh.wait()["gres"]) == (True, "gpu:mi300x:1"), fresh.log()
    assert fresh.exec("stat", "-c", "%u:%g %a", "/dev/dri/renderD128") == "0:4242 660"
    job = ("srun", "--gres=gpu:1", "sh", "-c", "exec 3<>/dev/dri/renderD128 4<>/dev/kfd && id -G")
    user = (AS_USER, "a", "5151", "5252", "ada", "--")
    for _ in ("as the user comes", "after a start"):
        assert set(fresh.exec(*user, *job).split()) == {"5252", "4242", "4343"}
        fresh.restart()
    # what it takes: one who is in no group of theirs is kept out
    fresh.exec("sh", "-c", "echo eve:x:6161:6161::/:/bin/sh >>/etc/passwd")
    refused = fresh.try_exec(
        "setpriv", "--reuid=6161", "--regid=6161", "--clear-groups", "--", *job
    )
    assert refused.returncode != 0
    assert "/dev/dri/renderD128: Permission denied" in refused.stderr, refused.stderr


def test_as_user_runs_as_that_user_with_its_exit_code(node: Node) -> None:
    user = (AS_USER, "a", "5151", "5252", r"DOM\user", "--")
    assert node.exec(*user, "id", "-u") == "5151"
    assert node.exec(*user, "srun", "sh", "-c", "id -un; id -g") == "DOM\\user\n5252"
    assert node.exec(*user, "sh", "-c", 'touch "$HOME/x"; echo $USER') == "DOM\\user"
    assert node.try_exec(*user, "sh", "-c", "exit 7").returncode == 7
    assert node.try_exec(*user, "srun", "sh", "-c", "exit 9").returncode == 9
    missing = node.try_exec(*user, "no-such-command")
    assert (missing.returncode, "no such command" in missing.stderr) == (127, True)
    assert node.exec(AS_USER, "r", "0", "0", "root", "--", "id", "-u") == "0"


@pytest.mark.parametrize(
    "argv", [("../x", "1", "1", "a", "--", "id"), ("a", "x", "1", "a", "--", "id"), ("a", "1")]
)
def test_as_user_refuses_what_it_cannot_mean(node: Node, argv: tuple[str, ...]) -> None:
    assert node.try_exec(AS_USER, *argv).returncode == 64


def test_as_user_waits_for_its_folder_which_a_start_makes_anew(node: Node) -> None:
    tokens = "/run/dshpc/exec"
    anew = f"rm -rf {tokens}; (sleep 0.3; mkdir {tokens}) & exec {AS_USER} w 0 0 root -- echo begun"
    assert node.exec("sh", "-c", anew) == "begun"


def test_a_signal_reaches_the_command_and_not_its_successor(node: Node) -> None:
    script = 'trap "echo heard; exit 3" INT; echo begun; while :; do sleep 0.05; done'
    with subprocess.Popen(
        ["docker", "exec", node.name, AS_USER, "sig", "5151", "5252", "ada", "--", "sh"]
        + ["-c", script],
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "begun\n"
        node.exec(AS_USER, "--signal", "sig", "INT")
        assert client.stdout.readline() == "heard\n"
        assert client.wait(timeout=20) == 3
    late = node.try_exec(AS_USER, "--signal", "sig", "INT")
    assert late.returncode == 4
    # the tokens of commands that have ended go with the next one
    node.exec(AS_USER, "next", "5151", "5252", "ada", "--", "true")
    assert "sig" not in node.exec("ls", "/run/dshpc/exec").split()
