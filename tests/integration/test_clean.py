"""`dshpc job clean` on a real cluster, by ordinary users: their own ended jobs' workspaces, and no others."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, Outcome, as_user, made, wait_until
from tests.integration.engines import Engine

pytestmark = [
    pytest.mark.engines("docker", why="a cluster of the built-in engine is one user's"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users"),
]
ADA, EVE = 42_620, 42_621


@pytest.fixture(scope="module")
def cluster(engine: Engine) -> Iterator[Cluster]:
    with made("clean", engine=engine) as found:
        found.configure("--gpu", "none").good()
        found.work.chmod(0o1777)
        yield found


def user(cluster: Cluster, uid: int, *words: str) -> Outcome:
    return as_user(uid, "dshpc", *words, cwd=cluster.folder)


def submitted(cluster: Cluster, uid: int, script: str, *options: str) -> tuple[str, Path]:
    told = user(cluster, uid, "run", "--json", *options, "--", "sh", "-c", script).good().report
    return str(told["job_id"]), Path(told["workspace"])


def aged(*places: Path) -> None:
    """Their jobs ended two months ago, as far as the user's own files say."""
    for place in places:
        os.utime(place / ".job", (1, 1))


def ended(cluster: Cluster, job: str) -> None:
    wait_until(
        lambda: not cluster.said("squeue", "-h", "-a", "-j", job, "-t", "PD,R,CG"), "it has ended"
    )


def test_only_ones_own_ended_jobs_go(cluster: Cluster) -> None:
    closed = "mkdir -p $JOB_WORKSPACE/a/b; touch $JOB_WORKSPACE/a/b/c; chmod 0 $JOB_WORKSPACE/a/b"
    job, old = submitted(cluster, ADA, f"{closed}; chmod 500 $JOB_WORKSPACE")
    other_job, others = submitted(cluster, EVE, "true")
    kept_job, needed = submitted(cluster, ADA, "echo 1 > $JOB_WORKSPACE/model")
    for each in (job, other_job, kept_job):
        ended(cluster, each)
    held, waits = submitted(cluster, ADA, f"cat {needed}/model", "--cpus", "1")
    going, runs = submitted(cluster, ADA, f"cat {needed}/model; sleep 300")
    ended(cluster, held)
    # Slurm's own log says when they ended: a minute has to pass, or the log be of another cluster
    cluster.exec("sh", "-c", ": > /var/lib/dshpc/state/jobcomp/jobs.log").good()
    cluster.exec("sh", "-c", "sleep 61", timeout_s=120).good()
    aged(old, others, needed, waits, runs)

    told = user(cluster, ADA, "job", "clean", "--older-than", "0", "--dry-run", "--json").good()
    found = {each["workspace"] for each in told.report["workspaces"]}
    assert found == {str(old), str(waits)}
    assert told.report["kept"] == {"going": 1, "needed": 1, "younger": 0, "unknown": 0}

    asked = user(cluster, ADA, "job", "clean", "--older-than", "0")
    assert (asked.code, "Nothing was removed." in asked.stderr) == (2, True)
    assert old.is_dir()

    done = user(cluster, ADA, "job", "clean", "--older-than", "0", "--yes").good()
    assert "Removed: 2 workspaces" in done.stdout
    there = {str(path) for path in old.parent.iterdir() if not path.name.startswith(".")}
    assert there == {str(needed), str(runs)}
    assert others.is_dir()
    assert cluster.said("squeue", "-h", "-a", "-o", "%i", "-t", "R") == going

    # Root's are root's: not even sudo's own user's, nor everybody's
    roots = cluster.dshpc("job", "clean", "--older-than", "0", "--yes").good()
    assert "There is nothing to remove." in roots.stdout
    assert others.is_dir()
    user(cluster, ADA, "job", "cancel", going).good()


def test_another_clusters_job_is_not_taken_for_ended(cluster: Cluster) -> None:
    """Both have one work folder, and neither knows the other's jobs."""
    job, place = submitted(cluster, EVE, "true")
    ended(cluster, job)
    foreign = place.parent / "train-20200101-000000-abcdef"
    shutil.copytree(place, foreign)
    (foreign / ".job" / "result.json").unlink()
    for path in (foreign, *foreign.rglob("*")):
        os.chown(path, EVE, EVE)
    aged(foreign)
    told = user(cluster, EVE, "job", "clean", "--json", "--dry-run").good().report
    assert (told["workspaces"], told["kept"]["unknown"]) == ([], 1)
    lost = user(cluster, EVE, "job", "clean", "--lost", "--yes").good()
    assert "Removed: 1 workspace," in lost.stdout
    assert not foreign.exists()
