"""A cluster on Podman by its own command, as root and as a user: from an image to jobs, and to nothing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Outcome, wait_until
from tests.integration.lan import needs_namespaces, network
from tests.integration.test_builtin import own_user
from tests.integration.test_builtin_cluster import User, installed

__all__ = ["installed"]

_PACKAGES = ("podman", "crun", "slirp4netns", "uidmap", "containernetworking-plugins")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TUN = Path("/dev/net/tun")
# This kernel's control groups are of both versions at once, which crun refuses and Docker's runc takes
_CONF = '[engine]\nruntime = "runc"\nevents_logger = "file"\n'
_BROKEN = '[engine]\nruntime = "broken"\n[engine.runtimes]\nbroken = ["/bin/false"]\n'


@dataclass(frozen=True)
class PodmanUser(User):
    """Somebody who has Podman, with what it keeps in his home; `more`: variables."""

    more: tuple[tuple[str, str], ...] = ()

    def run(self, program: str, *words: str, deadline_s: float = 240, **more: str) -> Outcome:
        path = f"{self.top}/bin:{_PATH}"
        env: dict[str, Any] = {"PATH": path, **dict(self.more), **more}
        return super().run(program, *words, deadline_s=deadline_s, **env)

    def podman(self, *words: str) -> str:
        env = {"PATH": _PATH, "HOME": str(self.home), **dict(self.more)}
        done = self.started(["podman", *words], env, 120)
        assert done.code == 0, (words, done)
        return done.stdout


@pytest.fixture(scope="module")
def podman() -> Iterator[None]:
    """Podman and its programs; and /dev/net/tun for all, as a Linux with udev has it."""
    if any(shutil.which(name) is None for name in ("podman", "crun", "slirp4netns", "newuidmap")):
        apt = ["apt-get", "-q", "-y", "--no-install-recommends", "install", *_PACKAGES]
        subprocess.run(apt, check=True, timeout=600, stdin=subprocess.DEVNULL, capture_output=True)
    before = stat.S_IMODE(_TUN.stat().st_mode)
    _TUN.chmod(0o666)
    try:
        yield
    finally:
        _TUN.chmod(before)


def _file(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o644)
    return str(path)


@contextlib.contextmanager
def somebody(way: str, top: Path) -> Iterator[PodmanUser]:
    """Root with a storage of its own, or a user with a range of ids."""
    is_root = way.startswith("root")
    with own_user("root" if is_root else "mapped", f"dshpc-pod-{way}") as (uid, gid):
        home = top / f"podman-{way}"
        home.mkdir(mode=0o700)
        os.chown(home, uid, gid)
        more = [("CONTAINERS_CONF", _file(top / f"{way}.conf", _CONF))]
        if (
            way == "auto"
        ):  # DOCKER_HOST would name an engine; its usual socket is closed to this user
            more.append(("DOCKER_HOST", ""))
        if is_root:
            store = f'[storage]\ndriver = "overlay"\ngraphroot = "{home}/store"\nrunroot = "{home}/run"\n'
            more.append(("CONTAINERS_STORAGE_CONF", _file(top / f"{way}-storage.conf", store)))
        one = PodmanUser(way, uid, gid, top, home, f"dshpc-test-podman-{way}", more=tuple(more))
        try:
            yield one
        finally:
            one.run("dshpc", "destroy", "--yes", "--stop-jobs", "--image")
            if not is_root:
                one.podman("system", "migrate")  # ends the process that holds its namespaces
                shutil.rmtree(f"/tmp/podman-run-{uid}", ignore_errors=True)
            for mount in _mounts(home):
                subprocess.run(["umount", "-l", mount], check=False, capture_output=True)


def _mounts(home: Path) -> list[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return sorted((each for each in points if each.startswith(f"{home}/")), reverse=True)


@pytest.fixture(scope="module", params=("root", "user"))
def user(request: pytest.FixtureRequest, podman: None, installed: Path) -> Iterator[PodmanUser]:
    with somebody(request.param, installed) as one:
        report = one.configure(
            "--engine", "podman", "--image-file", str(installed / "image.tar.xz"), "--simulate", "h100:2",
        )  # fmt: skip
        assert report["cluster"]["nodes"] == [
            {"name": one.prefix, "gres": "gpu:h100:2", "state": "idle"}
        ]
        yield one


def test_jobs_have_different_gpus_and_their_files_belong_to_the_caller(user: PodmanUser) -> None:
    script = "printenv CUDA_VISIBLE_DEVICES; echo x > $SLURM_PROCID.txt; sleep 1"
    said = user.dshpc("srun", "--ntasks=2", "--gpus-per-task=1", "sh", "-c", script)
    assert sorted(said.split()) == ["0", "1"]
    for name in ("0.txt", "1.txt"):
        found = (user.folder / "work" / name).stat()
        assert (found.st_uid, found.st_gid) == (user.uid, user.gid)
    assert user.run("dshpc", "srun", "sh", "-c", "exit 3").code == 3
    assert json.loads((user.folder / ".dshpc/runtime.json").read_text())["engine"] == "podman"


def test_a_log_in_the_work_folder_is_not_called_lost(user: PodmanUser) -> None:
    """Podman's driver vfs has the container's layer on the very file system of the work folder."""
    work = user.folder / "work"
    done = user.run("dshpc", "sbatch", "--wrap=echo here", f"--output={work}/log.txt", "--wait")
    assert done.code == 0
    assert "alone" not in done.stderr
    assert (work / "log.txt").read_text() == "here\n"
    done = user.run("dshpc", "sbatch", "--wrap=true", "--output=/tmp/log.txt")
    assert "/tmp/log.txt lies in the cluster's container alone" in done.stderr


def test_methods_doctor_status_logs_and_the_shell(user: PodmanUser) -> None:
    user.dshpc("method", "run", "gpu-report", "--gpus", "1", "--wait")
    found = json.loads(user.run("dshpc", "doctor", "--json").stdout)
    broken = [item for item in found["findings"] if item["state"] in ("warn", "error", "crashed")]
    assert broken == []
    advice = json.dumps([item["fix"] for item in found["findings"]])
    assert "docker " not in advice
    assert json.loads(user.dshpc("status", "--json"))["ready"] is True
    assert "slurmctld" in user.dshpc("logs", "-n", "50")
    assert user.dshpc("exec", "--", "id", "-u") == f"{user.uid}\n"
    assert user.dshpc("shell", "-c", "echo in") == "in\n"
    facts = user.run("dshpc", "passthrough", "--json")
    assert facts.code == 0, facts


def test_a_second_run_changes_nothing(user: PodmanUser) -> None:
    before = user.podman("ps", "--no-trunc", "--format", "{{.ID}}")
    report = user.configure()
    assert {each["action"] for each in report["files"]} == {"unchanged"}
    assert user.podman("ps", "--no-trunc", "--format", "{{.ID}}") == before


def test_a_restart_keeps_the_queue_and_sees_other_gpus(user: PodmanUser) -> None:
    user.dshpc("sbatch", "--hold", "--wrap=true", "--job-name=waits")
    user.configure("--simulate", "h100:1")
    node = json.loads(user.dshpc("status", "--json"))["nodes"][0]
    assert node["gres_total"] == {"gpu:h100": 1}
    assert "waits" in user.dshpc("squeue", "-h", "-o", "%j")
    user.dshpc("restart", "--stop-jobs")
    user.dshpc("down", "--stop-jobs")
    assert user.podman("ps", "-a", "--format", "{{.Names}}") == ""
    user.dshpc("up")
    assert "waits" in user.dshpc("squeue", "-h", "-o", "%j")


@pytest.mark.parametrize("daemon", ["slurmctld", "slurmd"])
def test_a_daemon_that_is_killed_comes_back(user: PodmanUser, daemon: str) -> None:
    user.dshpc("up")
    container = f"{user.prefix}-slurm"

    def killed() -> bool:  # the other one is started anew by its own end, a moment later
        with contextlib.suppress(AssertionError):
            user.podman("exec", container, "pkill", "-KILL", "-f", f"^{daemon} -D")
            return True
        return False

    wait_until(killed, f"{daemon} was killed", 30)
    assert user.dshpc("srun", "--gres=gpu:1", "printenv", "CUDA_VISIBLE_DEVICES") == "0\n"


def test_a_container_that_is_killed_starts_again(user: PodmanUser) -> None:
    user.podman("kill", f"{user.prefix}-slurm")
    user.dshpc("up")
    assert user.dshpc("srun", "--gres=gpu:1", "printenv", "CUDA_VISIBLE_DEVICES") == "0\n"


def test_what_is_not_carried_out_is_said_before_anything_stops(user: PodmanUser) -> None:
    file = user.folder / "docker-compose.yml"
    before = file.read_text()
    wrong = "cpus: 2" if user.uid == 0 else "mem_limit: 1g"  # a user's on version 1
    try:
        file.write_text("# USER_CUSTOMIZED=true\n" + before.replace(
            "    environment:\n", f"    {wrong}\n    environment:\n", 1))  # fmt: skip
        done = user.run("dshpc", "up", "--stop-jobs")
        assert done.code == 2
        assert ("services.slurm.cpus" if user.uid == 0 else "control group memory") in done.stderr
    finally:
        file.write_text(before)
    assert user.dshpc("srun", "echo", "on") == "on\n"


def test_the_image_goes_to_another_engine_and_back(user: PodmanUser) -> None:
    saved = user.home / "saved.tar.gz"
    user.dshpc("image", "save", str(saved))
    other = replace(user, prefix=f"{user.prefix}-saved", project="saved")
    try:
        report = other.configure(
            "--engine", "podman", "--image-file", str(saved), "--simulate", "h100:1"
        )
        assert report["cluster"]["nodes"][0]["gres"] == "gpu:h100:1"
    finally:
        other.dshpc("destroy", "--yes", "--stop-jobs", "--image")


def test_a_podman_that_is_gone(user: PodmanUser) -> None:
    only = f"{user.top}/bin"
    done = user.run("dshpc", "doctor", "--json", PATH=only)
    found = {item["title"]: item for item in json.loads(done.stdout)["findings"]}
    (fix,) = found["Podman is not installed"]["fix"]
    assert "install" in fix["command"]
    done = user.run(
        "configure", "--yes", "--dir", str(user.folder), "--prefix", user.prefix, PATH=only
    )
    assert done.code == 2
    assert "Podman is not installed." in done.stderr
    assert "--engine builtin" in done.stderr


def test_a_podman_that_cannot_start_a_container(user: PodmanUser) -> None:
    folder = str(user.home / "other")
    conf = _file(user.top / f"{user.way}-broken.conf", _BROKEN)
    done = user.run(
        "configure", "--yes", "--dir", folder, "--prefix", "other", "--engine", "podman",
        CONTAINERS_CONF=conf,
    )  # fmt: skip
    assert done.code == 2
    assert "Podman cannot start a container here." in done.stderr
    assert "--engine builtin" in done.stderr
    assert not Path(folder, "docker-compose.yml").exists()
    assert "dshpc-trial" not in user.podman("images")


# One of both ways each: a user's Podman copies the image for each container (driver vfs)
@pytest.mark.parametrize("user", ["root"], indirect=True)
def test_several_nodes_share_the_machines_network(user: PodmanUser) -> None:
    """Jobs on a node go on while another comes or goes, and while the controller's container is killed."""
    third = f"{user.prefix}-3"
    user.configure("--nodes", "h100:1,t4:1", "--stop-jobs")
    script = "sbatch --parsable -o /dev/null -w"
    job = user.dshpc(*script.split(), f"{user.prefix}-2", "--wrap", "sleep 600").strip()
    state = ("squeue", "-h", "-j", job, "-o", "%T")
    wait_until(lambda: user.dshpc(*state) == "RUNNING\n", "it runs", 60)
    before = user.podman("inspect", "-f", "{{.Id}}", f"{user.prefix}-slurm")
    user.configure("--nodes", "h100:1,t4:1,none")
    assert user.dshpc("srun", "-w", third, "hostname") == f"{third}\n"
    assert sorted(user.dshpc("srun", "-N3", "--overcommit", "hostname").split()) == sorted(
        [user.prefix, f"{user.prefix}-2", third]
    )
    user.dshpc("node", "remove", third, "--yes")
    assert user.podman("inspect", "-f", "{{.Id}}", f"{user.prefix}-slurm") == before
    user.podman("kill", f"{user.prefix}-slurm")
    user.dshpc("up")
    told = user.dshpc("squeue", "-h", "-j", job, "-o", "%T %N")
    assert told == f"RUNNING {user.prefix}-2\n"
    assert third not in user.dshpc("sinfo", "-h", "-N", "-o", "%N").split()
    user.dshpc("scancel", job)


@pytest.mark.parametrize("user", ["user"], indirect=True)
def test_it_listens_for_other_machines(user: PodmanUser) -> None:
    """At one address, in the machine's own network."""
    user.configure("--nodes", "1", "--listen", "lo", "--stop-jobs")
    assert user.dshpc("srun", "hostname") == f"{user.prefix}\n"
    host = user.podman("inspect", "-f", "{{.HostConfig.NetworkMode}}", f"{user.prefix}-slurm")
    assert host == "host\n"
    conf = (user.folder / "config" / "slurm.conf").read_text()
    assert "LaunchParameters=enable_nss_slurm" in conf


@pytest.mark.parametrize(("first", "second"), [("root-1", "user-2"), ("user-1", "root-2")])
def test_a_machine_with_podman_joins_another(
    podman: None, installed: Path, first: str, second: str
) -> None:
    """Root's and a user's, each in a network of its own; a job on both."""
    needs_namespaces()
    image = ("--engine", "podman", "--image-file", str(installed / "image.tar.xz"))
    with (
        network("p1", "p2") as (one, two),
        somebody(first, installed) as ours,
        somebody(second, installed) as theirs,
    ):
        controller, node = replace(ours, space=one.space), replace(theirs, space=two.space)
        controller.configure(*image, "--simulate", "h100:1", "--listen", "eth0", deadline_s=400)
        line, *_ = controller.dshpc("node", "token", "--once").splitlines()
        joined = ("--join", line.split()[-1], "--node-name", "other", "--simulate", "t4:1")
        into = ("--yes", "--json", "--dir", str(node.folder))
        done = node.run("configure", *into, *image, *joined, deadline_s=400).good()
        assert done.report["cluster"]["nodes"] == [
            {"name": "other", "gres": "gpu:t4:1", "state": "idle"}
        ]
        there = controller.dshpc("srun", "-N2", "--gres=gpu:1", "-D", "/tmp", "hostname").split()
        assert sorted(there) == sorted([controller.prefix, "other"])
        node.dshpc("destroy", "--yes", "--stop-jobs")
        controller.dshpc("destroy", "--yes", "--stop-jobs")


def test_destroy_leaves_nothing(user: PodmanUser) -> None:
    user.dshpc("destroy", "--yes", "--stop-jobs", "--image")
    assert user.podman("ps", "-a", "-q") == ""
    assert user.podman("volume", "ls", "-q") == ""
    assert user.podman("images", "-q") == ""
    assert list((user.home / ".cache/dshpc/images").iterdir()) == []


def test_auto_takes_podman_where_there_is_no_docker_and_makes_the_image(
    podman: None, installed: Path
) -> None:
    with somebody("auto", installed) as one:
        report = one.configure("--simulate", "h100:1", deadline_s=600)
        assert any("Podman works here" in note for note in _notes(report))
        assert one.dshpc("srun", "--gres=gpu:1", "printenv", "CUDA_VISIBLE_DEVICES") == "0\n"


def _notes(report: dict[str, Any]) -> list[str]:
    return [str(note) for note in report.get("notes", ())]
