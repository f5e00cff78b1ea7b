"""What would stop running jobs: tried whole before, and done only where somebody said so."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.integration.cluster import Cluster, command, environment, made, run, wait_until
from tests.integration.conftest import docker
from tests.integration.engines import Engine

pytestmark = pytest.mark.engines("docker", why="a container is paused, and tried by compose 2")

MADE_UP = ("--simulate", "h100:2")


@pytest.fixture(scope="module")
def cluster(engine: Engine, standard: Cluster) -> Iterator[Cluster]:
    with made("stopping", engine=engine) as found:
        found.configure(*MADE_UP).good()
        yield found


@pytest.fixture
def busy(cluster: Cluster) -> Iterator[str]:
    """A job that must go on, in the container that must stay."""
    job = cluster.submit("--gres=gpu:1", script="sleep 900")
    wait_until(lambda: cluster.job_state(job)[0] == "RUNNING", "the job runs")
    began = cluster.started_at
    yield job
    assert (cluster.started_at, cluster.job_state(job)[0]) == (began, "RUNNING")
    cluster.said("scancel", job)
    wait_until(lambda: cluster.node()[1] == "idle", "it has ended")


def test_a_setting_that_slurm_refuses(cluster: Cluster, busy: str) -> None:
    texts = cluster.texts()
    refused = cluster.configure("--slurm-conf-extra", "SchedulerParamters=defer", "--stop-jobs")
    assert refused.code == 2
    error = refused.report["error"]
    assert "SchedulerParamters" in error["brief"] + error["details"]
    assert "the cluster runs as before" in error["details"]
    assert cluster.texts() == texts
    assert busy


def test_a_file_of_ones_own_that_does_not_fit_other_gpus(cluster: Cluster, busy: str) -> None:
    """Its remedy is typed as it is printed, as often as it takes, from the work folder."""
    own = cluster.folder / "config/slurm.conf"
    good = own.read_text()
    for kept in ("slurm.conf.dshpc-old", "slurm.conf.dshpc-old.2"):
        own.write_text(f"{good}# mine\n")
        refused = cluster.configure("--simulate", "h100:1", "--stop-jobs")
        assert refused.code == 2
        assert "the node would have 2 GPUs" in refused.report["error"]["brief"]
        assert any("dshpc config accept" in step for step in refused.report["error"]["resolution"])
        assert "gpu:h100:1" in own.with_name("slurm.conf.dshpc-new").read_text()
        taken = cluster.dshpc("config", "accept", "../config/slurm.conf", cwd=cluster.work).good()
        assert kept in taken.stdout
        assert own.with_name(kept).read_text().endswith("# mine\n")
    own.write_text(good)
    cluster.configure().good()
    assert busy


def test_a_good_edit_needs_no_restart(cluster: Cluster, busy: str) -> None:
    own = cluster.folder / "config/slurm.conf"
    good = own.read_text()
    own.write_text(good.replace("PartitionName=debug", "KillWait=31\nPartitionName=debug"))
    done = cluster.configure().good()
    assert done.steps["start"]["detail"] == "running already"
    assert "= 31 sec" in cluster.said("sh", "-c", "scontrol show config | grep KillWait")
    own.write_text(good)
    cluster.configure().good()
    assert busy


def test_a_restart_for_a_file_that_is_refused(cluster: Cluster, busy: str) -> None:
    own = cluster.folder / "config/slurm.conf"
    good = own.read_text()
    own.write_text(f"{good}Bogus=1\n")
    try:
        assert cluster.dshpc("reconfigure").code == 2
        refused = cluster.dshpc("restart", "--stop-jobs")
        assert (refused.code, "Bogus" in refused.stderr) == (2, True)
    finally:
        own.write_text(good)
    cluster.dshpc("reconfigure").good()
    assert busy


def test_nobodys_jobs_are_stopped_unasked(cluster: Cluster, busy: str) -> None:
    for act in (["down"], ["restart"]):
        refused = cluster.dshpc(*act)
        assert refused.code == 2
        assert f"job {busy} of root" in refused.stderr
        assert f"dshpc {act[0]} --stop-jobs" in refused.stderr
    refused = cluster.dshpc("destroy", "--yes")
    assert (refused.code, "dshpc destroy --yes --stop-jobs" in refused.stderr) == (2, True)
    assert f"job {busy} of root" in refused.stderr
    refused = cluster.configure("--shm-size", "2g")  # with --yes
    assert refused.code == 2
    assert f"job {busy} of root" in refused.report["error"]["details"]
    last = refused.report["error"]["resolution"][-1]
    assert last.endswith(" --shm-size 2g --stop-jobs")


def test_a_paused_cluster_has_jobs_too(cluster: Cluster, busy: str) -> None:
    docker("pause", cluster.container)
    try:
        for act in ("down", "restart"):
            refused = cluster.dshpc(act)
            assert (refused.code, f"job {busy} of root" in refused.stderr) == (2, True)
            assert cluster.inspect()["State"]["Status"] == "paused"
        refused = cluster.configure("--shm-size", "2g")
        assert (refused.code, f"job {busy} of root" in refused.stdout) == (2, True)
        assert cluster.inspect()["State"]["Status"] == "paused"
        began = cluster.started_at
        told = cluster.configure().good()
        assert "is paused (docker pause). It is resumed now" in told.stderr
        assert (cluster.inspect()["State"]["Status"], cluster.started_at) == ("running", began)
        assert cluster.job_state(busy)[0] == "RUNNING"
    finally:
        if cluster.inspect()["State"]["Status"] == "paused":
            docker("unpause", cluster.container)


def test_jobs_of_a_controller_that_is_down(cluster: Cluster, busy: str) -> None:
    """It cannot name them, and they are there all the same."""
    cluster.said("pkill", "-STOP", "slurmctld")
    try:
        refused = cluster.dshpc("down")
        assert (refused.code, "jobs may run" in refused.stderr) == (2, True)
    finally:
        cluster.said("pkill", "-CONT", "slurmctld")
    assert busy


@pytest.mark.parametrize("name", ["two\nlines", "a\x1fcut"])
def test_a_job_that_is_called_so_is_not_overlooked(cluster: Cluster, name: str) -> None:
    job = cluster.submit("-J", name, script="sleep 900")
    wait_until(lambda: cluster.job_state(job)[0] == "RUNNING", "the job runs")
    refused = cluster.dshpc("down")
    assert refused.code == 2
    assert f"job {job} of root" in refused.stderr or "jobs may run" in refused.stderr
    cluster.said("scancel", job)
    wait_until(lambda: cluster.node()[1] == "idle", "it has ended")


def test_an_srun_that_is_ended_says_why(cluster: Cluster) -> None:
    # A restart is told as what has been done of it by then
    for act, how in ((["restart"], "(stopped|restarted)"), (["down"], "stopped")):
        argv = command("dshpc", "srun", "sleep", "900")
        running = subprocess.Popen(
            argv, cwd=cluster.work, env=environment(), stderr=subprocess.PIPE, text=True
        )
        wait_until(lambda: "sleep" in cluster.said("squeue", "-h", "-t", "R"), "it runs")
        stopped = run(command("dshpc", *act, "--stop-jobs"), cwd=cluster.folder).good()
        assert "(sleep)" in stopped.stderr
        said = running.communicate(timeout=60)[1]
        assert re.search(f"the cluster was {how} by dshpc {act[0]} at", said), said
        assert running.returncode not in (0, 2)
    cluster.dshpc("up").good()


def test_another_prefix_in_the_same_folder(cluster: Cluster) -> None:
    """The former cluster is named with what removes all of it, and stays until somebody says so."""
    other = replace(cluster, prefix=f"{cluster.prefix}-b")
    try:
        told = other.configure("--simulate", "h100:1").good()
        note = next(each for each in told.report["notes"] if cluster.prefix in each)
        assert f"destroy --prefix {cluster.prefix}" in note
        assert cluster.exists()
        gone = other.dshpc("destroy", "--yes", "--prefix", cluster.prefix).good()
        for part in ("slurm", "state", "key", "home"):
            assert f"{cluster.prefix}-{part}" in gone.stdout
        assert not cluster.exists()
        assert other.node() == ("gpu:h100:1", "idle")
        again = other.configure().good()
        assert not [each for each in again.report["notes"] if "set up in this folder" in each]
    finally:
        other.remove()


def test_compose_2_tries_it_as_well(standard: Cluster, v2_plugins: dict[str, str]) -> None:
    """The rest of this file has the compose that the machine has."""
    with made("stopping2", v2_plugins) as cluster:
        cluster.configure(*MADE_UP).good()
        job = cluster.submit("--gres=gpu:1", script="sleep 900")
        wait_until(lambda: cluster.job_state(job)[0] == "RUNNING", "the job runs")
        began = cluster.started_at
        other = ("--shm-size", "2g", "--stop-jobs")  # which makes another container
        refused = cluster.configure("--slurm-conf-extra", "Bogus=1", *other)
        assert (refused.code, "Bogus" in refused.report["error"]["brief"]) == (2, True)
        assert (cluster.started_at, cluster.job_state(job)[0]) == (began, "RUNNING")
        cluster.configure("--slurm-conf-extra", "KillWait=31", *other).good()
        assert cluster.started_at != began
        assert "= 31 sec" in cluster.said("sh", "-c", "scontrol show config | grep KillWait")
