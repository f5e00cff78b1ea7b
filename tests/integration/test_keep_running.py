"""A later `configure-environment` changes what has to change, and says what is not as it should be."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster, command, docker, made, run, wait_until

pytestmark = pytest.mark.engines("docker", why="about Docker's restart policy")

MADE_UP = ("--simulate", "h100:2")


def test_a_refused_configuration_is_an_error_until_it_is_fixed(fresh: Cluster) -> None:
    fresh.configure(*MADE_UP).good()
    own = fresh.folder / "config/slurm.conf"
    good, began = own.read_text(), fresh.started_at
    own.write_text(good.replace("SelectType=", "SelctType=") + "# USER_CUSTOMIZED=true\n")
    refused = fresh.configure()
    assert refused.code == 2
    assert "the cluster runs as before" in refused.report["error"]["details"]
    assert "SelectType" in " ".join(refused.report["error"]["resolution"])
    assert fresh.node() == ("gpu:h100:2", "idle")
    assert fresh.started_at == began
    docker("restart", fresh.container)  # with the last good one
    fresh.exec("dshpc-node", "wait", "--timeout", "60").good()
    began = fresh.started_at
    refused = fresh.configure()
    assert (refused.code, "not in force" in refused.report["error"]["brief"]) == (2, True)
    assert fresh.started_at == began  # nothing changed since: no reason to start anew
    own.write_text(good.replace("PartitionName=debug", "PartitionName=mine"))
    fresh.configure().good()
    assert fresh.said("sinfo", "-h", "-o", "%P") == "mine*"


def test_a_start_that_failed_is_tried_again_once_fixed(fresh: Cluster) -> None:
    fresh.configure(*MADE_UP, "--no-start").good()
    own = fresh.folder / "config/slurm.conf"
    good = own.read_text()
    own.write_text(good.replace("SelectType=", "SelctType="))  # and no last good one is there
    assert fresh.configure().code == 2
    own.write_text(good)
    fresh.configure().good()
    assert fresh.node() == ("gpu:h100:2", "idle")


def test_a_drained_node_is_told_and_its_jobs_go_on(fresh: Cluster) -> None:
    fresh.configure(*MADE_UP).good()
    job = fresh.submit("--gres=gpu:1", script="sleep 600")
    wait_until(lambda: fresh.job_state(job)[0] == "RUNNING", "the job runs")
    fresh.said(
        "scontrol", "update", f"nodename={fresh.prefix}", "state=drain", "reason=maintenance"
    )
    began = fresh.started_at
    told = fresh.configure()
    assert told.code == 2
    assert "not ready for jobs" in told.report["error"]["brief"]
    assert (fresh.started_at, fresh.job_state(job)[0]) == (began, "RUNNING")


def test_running_jobs_are_not_interrupted_unasked(fresh: Cluster) -> None:
    fresh.configure(*MADE_UP).good()
    job = fresh.submit("--gres=gpu:1", script="sleep 600")
    wait_until(lambda: fresh.job_state(job)[0] == "RUNNING", "the job runs")
    began = fresh.started_at
    argv = command("configure-environment", "--dir", str(fresh.folder), "--shm-size", "2g")
    refused = run(argv)
    assert refused.code == 2
    assert "1 job is running" in refused.stderr
    assert (fresh.started_at, fresh.job_state(job)[0]) == (began, "RUNNING")
    assert fresh.configure("--shm-size", "2g").code == 2  # with --yes
    fresh.configure("--shm-size", "2g", "--stop-jobs").good()
    assert fresh.started_at != began


def test_a_partition_that_takes_no_job_is_no_success(fresh: Cluster) -> None:
    fresh.configure(*MADE_UP, "--no-start").good()
    own = fresh.folder / "config/slurm.conf"
    own.write_text(own.read_text().replace("State=UP", "State=DOWN"))
    outcome = fresh.configure()
    assert outcome.code == 2
    assert outcome.steps["verify"]["state"] == "failed"


def test_the_queue_of_another_folder_is_not_taken_unasked(fresh: Cluster) -> None:
    fresh.configure(*MADE_UP).good()
    fresh.dshpc("down").good()
    with made("heir") as heir:
        flags = ("--yes", "--json", "--dir", str(heir.folder), "--prefix", fresh.prefix, *MADE_UP)
        refused = run(command("configure-environment", *flags))
        assert refused.code == 2
        assert str(fresh.folder) in refused.report["error"]["brief"]
        run(command("configure-environment", *flags, "--take-over")).good()
        run(command("dshpc", "down"), cwd=heir.folder).good()
        run(command("configure-environment", *flags)).good()  # it is this folder's now
