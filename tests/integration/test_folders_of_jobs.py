"""Homes and data of the machine in jobs, and settings that change while jobs run."""

from __future__ import annotations

import itertools
import os
import pwd
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import (
    Cluster,
    Started,
    as_user,
    made,
    new_folder,
    remove_folder,
    run,
    users_of_this_machine,
    wait_until,
)
from tests.integration.engines import Engine

pytestmark = pytest.mark.engines("builtin", "docker")

MADE_UP = ("--simulate", "h100:2")
DOCKER_ALONE = pytest.mark.engines("docker", why="a cluster of the built-in engine is one user's")
ADA = "dshpc-ada"


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    folder = new_folder("data")
    yield folder
    remove_folder(folder)


@pytest.fixture(scope="module")
def lasting(engine: Engine, standard: Cluster, data: Path) -> Iterator[Cluster]:
    assert data.is_dir()  # as long as the cluster has it
    with made("lasting", engine=engine) as found:
        yield found


def runs(cluster: Cluster, job: str) -> bool:
    return cluster.job_state(job)[0] == "RUNNING"


def is_held(cluster: Cluster) -> bool:
    return cluster.exec("test", "-e", "/run/dshpc/hold").code == 0 and (
        "UP" not in cluster.said("sh", "-c", "scontrol -o show partition | grep -o 'State=[A-Z]*'")
    )


def test_jobs_are_lent_the_machines_cuda(lasting: Cluster, data: Path) -> None:
    cuda = data / "cuda-12.4"
    for name in ("bin", "lib64"):
        (cuda / name).mkdir(parents=True)
    nvcc = cuda / "bin" / "nvcc"
    nvcc.write_text("#!/bin/sh\necho release 12.4\n")
    nvcc.chmod(0o755)
    (data / "cuda").symlink_to(cuda.name)
    lend = ("--toolkit", "host", "--cuda-paths")
    assert lasting.configure(*MADE_UP, *lend, str(data)).code == 64, "no compiler is there"
    lasting.configure(*MADE_UP, *lend, f"{data}/cuda").good()
    tells = "nvcc; echo $CUDA_HOME $LD_LIBRARY_PATH; touch $CUDA_HOME/x || test -e $PWD; which srun"
    found = lasting.said("srun", "sh", "-c", f"{tells} 2>/dev/null").splitlines()
    assert found == ["release 12.4", f"{data}/cuda {data}/cuda/lib64", "/usr/bin/srun"]
    assert not (cuda / "x").exists()
    within = lasting.said("srun", "sh", "-c", "srun --overlap printenv PATH LD_LIBRARY_PATH")
    assert within.count(f"{data}/cuda/bin") == within.count(f"{data}/cuda/lib64") == 1
    assert lasting.said("srun", f"{cuda}/bin/nvcc") == "release 12.4", "by its other name, too"


def test_settings_are_read_anew_while_jobs_run(lasting: Cluster, data: Path) -> None:
    lasting.configure(*MADE_UP, "--mounts", f"{data}:ro").good()
    job, began = lasting.submit("--gres=gpu:1", script="sleep 900"), lasting.started_at
    wait_until(lambda: runs(lasting, job), "the job runs")

    lasting.configure(
        *MADE_UP, "--partitions", "short=1:00:00", "--slurm-conf-extra", "KillWait=17"
    ).good()
    assert "KillWait" in lasting.said("sh", "-c", "scontrol show config | grep 'KillWait.*17 sec'")
    assert lasting.said("sinfo", "-h", "-p", "short", "-o", "%l") == "1:00:00"
    assert (lasting.started_at, runs(lasting, job)) == (began, True)
    assert "nothing has changed" not in lasting.dshpc("status").good().stdout.lower()

    sampler = lasting.said("s6-svstat", "-o", "pid", "/run/dshpc/services/use")
    lasting.configure("--idle-gpu", "7m").good()
    assert lasting.said("s6-svstat", "-o", "pid", "/run/dshpc/services/use") != sampler
    assert lasting.configure().good().steps["start"]["detail"] == "running already"
    assert (lasting.started_at, runs(lasting, job)) == (began, True)

    texts = lasting.texts()
    refused = lasting.configure("--slurm-conf-extra", "KillWat=17")
    assert (refused.code, "KillWat" in refused.stdout) == (2, True)
    assert (lasting.texts(), lasting.started_at, runs(lasting, job)) == (texts, began, True)
    for bad in (
        "/etc",
        f"{data}/none",
        "/var/run/docker.sock",
        f"{lasting.folder}/.dshpc",
        "/x:/y",
    ):
        refused = lasting.configure("--mounts", bad, "--stop-jobs")
        assert (refused.code, lasting.started_at) == (64, began), refused.stdout
    lasting.said("scancel", job)


def test_a_change_waits_until_no_job_runs(
    lasting: Cluster, start_configure: Callable[..., Started]
) -> None:
    lasting.configure(*MADE_UP).good()
    first, began = lasting.submit(script="sleep 900"), lasting.started_at
    wait_until(lambda: runs(lasting, first), "the job runs")
    wish = ("--shm-size", "2g", "--when-idle")
    assert lasting.configure(*wish, "--stop-jobs").code == 64

    # Ctrl-C, and a terminal that is gone
    for number in (signal.SIGINT, signal.SIGHUP):
        waits = start_configure(lasting, *wish)
        waits.wait_until(lambda: is_held(lasting), "the queue is held", 120)
        second = lasting.submit(script="true")
        assert lasting.job_state(second) == ("PENDING", "PartitionDown")
        for other in (lasting.configure(*wish), lasting.dshpc("down", "--when-idle")):
            assert (other.code, str(waits.child.pid) in f"{other.stdout}{other.stderr}") == (
                2,
                True,
            )
        waits.signal(number)
        assert waits.end().code == 128 + number
        assert (lasting.started_at, runs(lasting, first)) == (began, True)
        lasting.completed(second)

    waits = start_configure(lasting, *wish)
    waits.wait_until(lambda: is_held(lasting), "the queue is held", 120)
    third = lasting.submit(script="true")
    lasting.said("scancel", first)
    waits.end().good()
    assert lasting.started_at != began
    assert lasting.job_state(first)[0] == "CANCELLED"
    lasting.completed(third)


def test_one_who_is_killed_as_he_waits_holds_nothing(
    lasting: Cluster, start_configure: Callable[..., Started]
) -> None:
    lasting.configure(*MADE_UP).good()
    first = lasting.submit(script="sleep 900")
    wait_until(lambda: runs(lasting, first), "the job runs")
    waits = start_configure(lasting, "--shm-size", "3g", "--when-idle")
    waits.wait_until(lambda: is_held(lasting), "the queue is held", 120)
    waits.signal(signal.SIGKILL)
    waits.end()
    second = lasting.submit(script="true")
    assert lasting.job_state(second)[0] == "PENDING"
    lasting.said("touch", "-d", "-50 seconds", "/run/dshpc/hold")  # the lease is a minute
    lasting.completed(second)
    lasting.said("scancel", first)


def written(cluster: Cluster, folders: dict[str, str], number: int) -> None:
    """A job writes a file into each folder, and a long one."""
    for folder in folders.values():
        cluster.dshpc(
            "srun", "sh", "-c", f"head -c 200000 /dev/urandom >{folder}/{number}; sync"
        ).good()


def digests(cluster: Cluster, folders: dict[str, str]) -> dict[str, str]:
    argv = ("sh", "-c", 'cd "$0" && find . -type f -exec sha256sum {} + | sort')
    return {
        name: cluster.dshpc("srun", *argv, folder).good().stdout for name, folder in folders.items()
    }


# Another version of dsHPC, and so another image
UPGRADED = """
import sys
import dshpc_setup
dshpc_setup.__version__ = sys.argv.pop(1)
from dshpc_setup import cli
sys.exit(cli.run(["configure", *sys.argv[1:]], "configure-environment"))
"""


def upgraded(cluster: Cluster, version: str) -> None:
    before = cluster.inspect()["Image"] if cluster.exists() else ""
    run([sys.executable, "-c", UPGRADED, version, *cluster.own_flags], timeout_s=400).good()
    assert cluster.inspect()["Image"] != before


def test_every_byte_stays(lasting: Cluster, data: Path, full: bool) -> None:
    """Through downs, ups, restarts, upgrades and other hardware, in whatever order."""
    seed = random.SystemRandom().getrandbits(32) if full else 1  # else the same at each run
    choice = random.Random(seed)
    lasting.configure("--simulate", "h100:2", "--mounts", str(data)).good()
    folders = {"home": "/var/lib/dshpc/home/root", "data": str(data), "work": str(lasting.work)}
    versions = itertools.count()
    acts: dict[str, Callable[[], object]] = {
        "down": lambda: lasting.dshpc("down", "--stop-jobs").good(),
        "up": lambda: lasting.dshpc("up").good(),
        "restart": lambda: lasting.dshpc("restart", "--stop-jobs").good(),
        "drift": lambda: lasting.configure("--simulate", f"h100:{choice.randint(1, 4)}").good(),
        "other": lambda: lasting.configure("--shm-size", f"{choice.randint(1, 9)}g").good(),
        "removed": lambda: lasting.engine.run("rm", "-f", lasting.container),
        "upgrade": lambda: upgraded(lasting, f"1.{next(versions)}.0"),
    }
    for number in range(50 if full else 3):
        lasting.dshpc("up").good()
        written(lasting, folders, number)
        before = digests(lasting, folders)
        for name in choice.sample(sorted(acts), 2) if number else ("upgrade", "removed"):
            acts[name]()
        lasting.dshpc("up").good()
        assert digests(lasting, folders) == before, (number, seed)


@pytest.fixture
def ada() -> Iterator[pwd.struct_passwd]:
    with users_of_this_machine(ADA):
        yield pwd.getpwnam(ADA)


@DOCKER_ALONE
def test_a_home_is_the_users_own(fresh: Cluster, ada: pwd.struct_passwd) -> None:
    def job(line: str, cwd: str | Path = fresh.work) -> str:
        env = {"DSHPC_DIR": str(fresh.folder)}
        argv = ("dshpc", "srun", "sh", "-c", line)
        return as_user(ada.pw_uid, *argv, cwd=Path(cwd), env=env).good().stdout

    fresh.configure(*MADE_UP, "--home", "kept").good()
    assert (
        job("echo kept >~/result; ln -s /etc/shadow ~/link; echo ~")
        == f"/var/lib/dshpc/home/{ADA}\n"
    )
    env, late = (
        {"DSHPC_DIR": str(fresh.folder)},
        ("--hold", "--output=/dev/null", "--wrap", "echo late >~/late"),
    )
    queued = as_user(ada.pw_uid, "dshpc", "sbatch", "--parsable", *late, cwd=fresh.work, env=env)
    told = fresh.configure(*MADE_UP, "--home", "host").good()
    notes = " ".join(told.report["notes"])
    assert f"Of {ADA}, 2 files" in notes
    copy = Path(ada.pw_dir, "dshpc-home")
    assert (copy / "result").read_text() == "kept\n"
    assert (copy.stat().st_uid, copy.stat().st_mode & 0o777) == (ada.pw_uid, 0o700)

    # her own home, under its own path; nothing that was kept is gone
    said = job(f"echo mine >~/mine; pwd; cat /var/lib/dshpc/home/{ADA}/result", ada.pw_dir)
    assert said.split() == [ada.pw_dir, "kept"]
    found = Path(ada.pw_dir, "mine")
    assert (found.read_text(), found.stat().st_uid) == ("mine\n", ada.pw_uid)
    # What was queued before writes where she looks now
    fresh.said("scontrol", "release", queued.good().stdout.strip())
    wait_until(Path(ada.pw_dir, "late").exists, "the job that was queued before has run")
    fresh.dshpc("down").good()
    fresh.dshpc("up").good()
    assert job("cat ~/mine; echo $HOME") == f"mine\n{ada.pw_dir}\n"

    # and back: what was kept is there again, what is hers stays
    fresh.configure(*MADE_UP, "--home", "kept").good()
    assert job("cat ~/result; ls -d ~") == f"kept\n/var/lib/dshpc/home/{ADA}\n"
    assert found.exists()


@pytest.mark.engines("builtin", why="other engines open what is mounted by its path")
def test_a_mount_that_was_swapped_for_a_link_is_not_followed(fresh: Cluster, data: Path) -> None:
    """Whose folder it lies in would have root lend, and write in, what no user is given."""
    theirs, locked = data / "theirs", data / "locked"
    for folder in (theirs / "mine", locked / "inner"):
        folder.mkdir(parents=True)
    (locked / "inner/secret").write_text("secret\n")
    locked.chmod(0o700)
    (theirs / "mine/x").write_text("x\n")
    os.chown(theirs, 4711, 4711)
    mount = theirs / "mine"
    fresh.configure(*MADE_UP, "--mounts", str(mount)).good()
    mount.rename(theirs / "before")
    mount.symlink_to(locked / "inner")
    os.chown(mount, 4711, 4711, follow_symlinks=False)
    refused = fresh.dshpc("restart")
    assert refused.code != 0, refused
    assert "root follows none" in refused.stderr
    assert fresh.dshpc("srun", "cat", f"{mount}/secret", cwd=fresh.work).code != 0
    mount.unlink()
    (theirs / "before").rename(mount)
    fresh.dshpc("up").good()
    assert fresh.dshpc("srun", "cat", f"{mount}/x", cwd=fresh.work).good().stdout == "x\n"


def test_a_project_that_jobs_see_starts_and_keeps_its_own_folder_to_itself(fresh: Cluster) -> None:
    """As one in a home does: what the engine has there is covered, with its mounts."""
    fresh.configure(*MADE_UP, "--mounts", str(fresh.folder)).good()
    seen = fresh.dshpc("srun", "ls", "-A", f"{fresh.folder}/.dshpc", cwd=fresh.work).good().stdout
    assert seen == ""
    assert "config" in fresh.dshpc("srun", "ls", str(fresh.folder), cwd=fresh.work).good().stdout
