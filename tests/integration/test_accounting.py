"""Accounting with a real slurmdbd and MariaDB: switched on beside jobs, killed, away, restored, off."""

from __future__ import annotations

import json
import random
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dshpc_setup.plan.model import DATABASE_PORT
from tests.integration.cluster import ROOT, Cluster, Standards, as_user, made, wait_until
from tests.integration.engines import Engine

pytestmark = pytest.mark.engines("builtin", "docker")

SIMULATED = ("--simulate", "h100:2", "--stop-jobs")
DATABASE = "/run/dshpc/services/mariadb"
MOST_WAIT_S = 120.0


@pytest.fixture(scope="module")
def cluster(engine: Engine, standards: Standards) -> Iterator[Cluster]:
    """One that began without accounting, had jobs, and was given it: what was queued is still there."""
    standards(engine)  # whose layers it is laid on
    with made("accounting", engine=engine) as cluster:
        cluster.configure(*SIMULATED).good()
        refused = cluster.dshpc("sacct")
        assert refused.code != 0
        assert "dshpc config set accounting on" in refused.stderr.splitlines()[-1]
        jobs = [cluster.submit("-N1", "--gres=gpu:2", script=f"sleep {each}") for each in (3, 0)]
        wait_until(lambda: cluster.job_state(jobs[0])[0] == "RUNNING", "the first one runs")
        cluster.configure(*SIMULATED, "--accounting", "on").good()
        wait_until(lambda: ended(cluster).keys() >= {*jobs}, "both end")
        assert {ended(cluster)[job] for job in jobs} == {"COMPLETED"}
        yield cluster


def sacct(cluster: Cluster, *options: str) -> list[list[str]]:
    said = cluster.said("sacct", "-a", "-X", "-n", "-P", *options)
    return [line.split("|") for line in said.splitlines()]


def ended(cluster: Cluster) -> dict[str, str]:
    """Job -> its state. By whom one was cancelled ("CANCELLED by 0") slurmctld forgets as it is restarted."""
    rows = sacct(cluster, "--format=JobID,State")
    return {job: state.split()[0] for job, state in rows if state not in ("RUNNING", "PENDING")}


def is_up(cluster: Cluster) -> bool:
    return cluster.exec("sacctmgr", "ping").code == 0


def test_it_works_at_once(cluster: Cluster) -> None:
    job = cluster.submit("--gres=gpu:h100:1", script="true")
    wait_until(lambda: job in ended(cluster), "it ends")
    (row,) = sacct(cluster, "-j", job, "--format=AllocTRES%80,Account,User")
    assert {"gres/gpu=1", "gres/gpu:h100=1", "cpu=1"} <= set(row[0].split(","))
    counted = cluster.said("sreport", "-n", "-P", "-T", "gres/gpu", "cluster", "utilization")
    assert re.match(rf"{cluster.prefix}\|gres/gpu\|", counted) or counted == ""
    assert (
        cluster.said("sacctmgr", "-n", "-P", "list", "tres", "format=type,name").count("gres|gpu")
        >= 2
    )
    assert cluster.said("sshare", "-n", "-P", "-a")
    status = json.loads(cluster.dshpc("status", "--json").good().stdout)
    assert status["accounting"] == "up"


def test_nobody_but_slurms_user_reaches_the_database(cluster: Cluster) -> None:
    """Without a password there is none in a file, a command line, or the log."""
    assert (
        cluster.said(
            "stat", "-c", "%a %U", "/run/dshpc/database", "/var/lib/dshpc/state/database"
        ).split("\n")
        == ["700 slurm"] * 2
        or cluster.said("id", "-u", "slurm") == "0"
    )
    files = cluster.said(
        "sh", "-c", "cat /run/dshpc/database/*.c* /etc/slurm/slurm.conf; ps -eo args"
    )
    log = cluster.dshpc("logs").stdout
    assert not re.search(r"(?i)storagepass|identified by|password", files + log)
    listening = cluster.said("cat", "/proc/net/tcp", "/proc/net/tcp6")
    assert f":{3306:04X} " not in listening
    unsafe = cluster.said(
        "sh", "-c", "grep -c innodb_snapshot_isolation=off /run/dshpc/database/my.cnf"
    )
    assert unsafe == "1"


def test_gpu_seconds_are_those_of_a_ledger_though_the_database_is_killed(
    cluster: Cluster, full: bool
) -> None:
    chance = random.Random(11)
    kept: dict[str, int] = {}
    for nth in range(200 if full else 24):
        gpus = chance.randint(1, 2)
        script = f"sleep {chance.choice([0, 0.2, 1.1, 2])}"
        kept[cluster.submit(f"--gres=gpu:{gpus}", script=script)] = gpus
        if nth % 12 == 6:
            cluster.exec("pkill", "-9", "-x", "mariadbd")
        if nth % 12 == 11:
            cluster.exec("pkill", "-9", "-x", "slurmdbd")
    wait_until(
        lambda: is_up(cluster) and kept.keys() <= ended(cluster).keys(), "all have ended", 400
    )
    # slurmctld's own word is the ledger
    told = json.loads(cluster.said("squeue", "--json", "-a", "-t", "all"))["jobs"]
    times = {
        str(job["job_id"]): (job["start_time"]["number"], job["end_time"]["number"]) for job in told
    }
    held = {job: gpus * (times[job][1] - times[job][0]) for job, gpus in kept.items()}
    rows = {
        row[0]: row[1:] for row in sacct(cluster, "--format=JobID,ElapsedRaw,AllocTRES%80,State")
    }
    for job, gpus in kept.items():
        elapsed, counted, state = rows[job]
        assert f"gres/gpu={gpus}" in counted.split(",")
        assert state == "COMPLETED"
        assert abs(int(elapsed) * gpus - held[job]) <= gpus

    def used() -> float:
        report = json.loads(cluster.dshpc("usage", "--json").good().stdout)
        return float(sum(row["gpu_seconds_held"] for row in report["rows"]))

    every = {
        row[0]: row for row in sacct(cluster, "--format=JobID,ElapsedRaw,AllocTRES%80,JobName")
    }
    counted_all = 0
    for _, elapsed, tres, name in every.values():
        found = re.search(r"gres/gpu=(\d+)", tres)
        counted_all += int(elapsed) * int(found[1]) if found and name != "dshpc-proof" else 0
    wait_until(lambda: used() >= sum(held.values()), "all are written down")
    assert abs(used() - counted_all) <= len(every)


def test_limits_and_fair_share_by_one_command_each(cluster: Cluster) -> None:
    user = cluster.said("id", "-un") if cluster.engine.name == "builtin" else "root"
    limit = ("sacctmgr", "-i", "modify", "user", "where", f"name={user}", "set")
    page = (ROOT / "docs/how-to/accounting.md").read_text()
    assert "sacctmgr -i modify user where name=ada set GrpTRES=gres/gpu=2" in page
    cluster.exec(*limit, "GrpTRES=gres/gpu=1").good()
    first = cluster.submit("--gres=gpu:1", script="sleep 60")
    second = cluster.submit("--gres=gpu:1", script="true")
    wait_until(lambda: cluster.job_state(second) == ("PENDING", "AssocGrpGRES"), "it waits")
    cluster.exec(*limit, "GrpTRES=gres/gpu=-1").good()
    wait_until(lambda: second in ended(cluster), "it runs")
    cluster.said("scancel", first)


def test_away_it_stops_no_job_and_nothing_is_lost(cluster: Cluster) -> None:
    cluster.said("s6-svc", "-d", DATABASE)
    wait_until(lambda: not is_up(cluster), "it is away")
    jobs = [cluster.submit(script="true") for _ in range(5)]
    wait_until(lambda: all(cluster.job_state(job)[0] == "COMPLETED" for job in jobs), "they run")
    said = cluster.dshpc("status").stdout
    assert "Accounting does not answer: jobs go on" in said
    report = json.loads(cluster.dshpc("doctor", "--json", "--only", "DSH-SL-057").stdout)
    (found,) = (each for each in report["findings"] if each["id"] == "DSH-SL-057")
    assert found["state"] == "warn"
    assert "mariadb: down" in "\n".join(found["evidence"])
    refused = cluster.dshpc("sacct")
    assert "does not answer" in refused.stderr.splitlines()[-1]
    owed = re.search(r"DBD Agent queue size: (\d+)", cluster.said("sdiag"))
    assert owed is not None
    assert int(owed[1]) > 0
    # Nor does a slurmctld that is started without it
    cluster.said("s6-svc", "-r", "/run/dshpc/services/slurmctld")
    wait_until(lambda: cluster.exec("scontrol", "ping").code == 0, "it is back")
    cluster.said("s6-svc", "-u", DATABASE)
    wait_until(lambda: is_up(cluster) and {*jobs} <= ended(cluster).keys(), "all is told", 120)


def test_what_is_backed_up_is_restored(cluster: Cluster, tmp_path: Path) -> None:
    cluster.exec("sacctmgr", "-i", "add", "account", "name=lab", f"cluster={cluster.prefix}").good()
    waits = cluster.submit("--hold", script="echo restored")
    before = ended(cluster)
    file = tmp_path / "saved.tar.gz"
    assert (
        cluster.dshpc("backup", str(file)).good().stdout.startswith(f"{cluster.container} is saved")
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert cluster.dshpc("backup", str(file)).code == 64, "a file that is there stays"
    wait_until(lambda: is_up(cluster), "the database is back")

    later = cluster.submit("-J", "later", script="true")
    cluster.said("scancel", waits)
    cluster.exec("sacctmgr", "-i", "delete", "account", "name=lab").good()
    wait_until(lambda: later in ended(cluster), "it ends")

    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    for bad in (cut, Path("/etc/passwd")):
        refused = cluster.dshpc("restore", str(bad), "--yes")
        assert (refused.code, "no whole backup" in refused.stderr) == (2, True)
    assert cluster.dshpc("restore", str(file)).code == 64, "without a terminal the answer is no"
    assert later in ended(cluster)
    assert cluster.said("ls", "/var/lib/dshpc/state").count("restore") == 0

    cluster.dshpc("restore", str(file), "--yes", "--stop-jobs").good()
    assert before.items() <= ended(cluster).items()
    assert ["later"] not in sacct(cluster, "--format=JobName"), (
        "its number may be another job's now"
    )
    assert "lab|" in cluster.said("sacctmgr", "-n", "-P", "list", "assoc", "format=account,user")
    assert cluster.job_state(waits)[0] == "PENDING"
    cluster.said("scontrol", "release", waits)
    wait_until(lambda: ended(cluster).get(waits) == "COMPLETED", "it runs")
    assert cluster.output(waits) == "restored\n"


def test_off_keeps_what_was_counted(cluster: Cluster) -> None:
    before = ended(cluster)
    cluster.configure(*SIMULATED, "--accounting", "off").good()
    assert json.loads(cluster.dshpc("status", "--json").stdout)["accounting"] is None
    cluster.exec("srun", "-n1", "true").good()
    weight = "PriorityWeightFairshare=100000"
    cluster.configure(*SIMULATED, "--accounting", "on", "--slurm-conf-extra", weight).good()
    assert before.items() <= ended(cluster).items()
    assert "100000" in cluster.said("sprio", "-w")
    page = (ROOT / "docs/how-to/accounting.md").read_text()
    assert f"dshpc config set slurm_conf_extra {weight}" in page


@pytest.mark.engines("docker", why="its jobs are of two users")
def test_users_are_known_as_they_are_first_seen(engine: Engine, standards: Standards) -> None:
    """And one of them ends no job of another's, though slurmctld is asked by itself."""
    standards(engine)
    with made("accounts", engine=engine) as cluster:
        cluster.configure(*SIMULATED, "--accounting", "on").good()
        ada, bob = 4101, 4102
        for uid in (ada, bob):
            as_user(uid, "dshpc", "srun", "-n1", "id", "-u", cwd=cluster.folder).good()
        job = as_user(ada, "dshpc", "sbatch", "--parsable", "-o/dev/null", "--wrap=sleep 60",
                      cwd=cluster.folder).good().stdout.strip()  # fmt: skip
        wait_until(lambda: cluster.job_state(job)[0] == "RUNNING", "it runs")
        began = time.monotonic()
        refused = as_user(bob, "dshpc", "scancel", "--ctld", job, cwd=cluster.folder)
        assert "denied" in refused.stderr
        assert time.monotonic() - began < MOST_WAIT_S
        assert cluster.job_state(job)[0] == "RUNNING"
        names = cluster.said(
            "sacctmgr", "-n", "-P", "list", "assoc", "account=users", "format=user"
        )
        assert len(names.split()) >= 2
        assert str(DATABASE_PORT) in cluster.said("scontrol", "show", "config")
