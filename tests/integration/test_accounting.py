"""Accounting with a real slurmdbd and MariaDB: switched on and off beside jobs, killed, away, restored."""

from __future__ import annotations

import contextlib
import json
import random
import re
import shlex
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.plan.model import DATABASE_PORT
from tests.integration.cluster import ROOT, Cluster, Standards, as_user, made, wait_until
from tests.integration.engines import Engine
from tests.integration.test_rest import Api, as_described, free_port, token

pytestmark = pytest.mark.engines("builtin", "docker")

SIMULATED = ("--simulate", "h100:2")
DATABASE = "/run/dshpc/services/mariadb"
MOST_WAIT_S = 120.0


@pytest.fixture(scope="module")
def cluster(engine: Engine, standards: Standards) -> Iterator[Cluster]:
    """One that began without accounting, and was given it while jobs ran: they go on, and are counted."""
    standards(engine)  # whose image it has
    with made("accounting", engine=engine) as cluster:
        cluster.configure(*SIMULATED, "--rest", f"127.0.0.1:{free_port()}").good()
        # sshare ends well there, and shows nothing
        for command, ends_well in (
            ("sacct", False),
            ("sacctmgr", False),
            ("sreport", False),
            ("sshare", True),
        ):
            refused = cluster.dshpc(command)
            assert (refused.code == 0) is ends_well
            assert "dshpc config set accounting on" in refused.stderr.splitlines()[-1]
        with switched_beside_a_job(cluster, "on"):
            waits = cluster.submit("-N1", "--gres=gpu:2", script="true")
        wait_until(lambda: waits in ended(cluster), "what was queued runs")
        assert set(ended(cluster).values()) <= {"COMPLETED", "CANCELLED"}
        yield cluster


@contextlib.contextmanager
def switched_beside_a_job(cluster: Cluster, to: str, *more: str) -> Iterator[None]:
    """The setting changes while a batch job and an srun run: both go on in their processes, and end well."""
    made_at = cluster.started_at
    job = cluster.submit(
        "-n1", "--gres=gpu:1", "--mem=100", script="until [ -e go ]; do sleep 0.2; done; echo $$"
    )
    wait_until(lambda: cluster.job_state(job)[0] == "RUNNING", "it runs")
    step = subprocess.Popen(
        cluster.within("srun", "-n1", "--mem=100", "-D", str(cluster.work), "sh", "-c",
                       "echo began; until [ -e go ]; do sleep 0.2; done; echo done"),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert step.stdout is not None
        assert step.stdout.readline() == "began\n"
        began = re.search(r"StartTime=\S+ ", cluster.said("scontrol", "show", "job", job))
        yield
        cluster.configure(*SIMULATED, "--accounting", to, *more).good()
        now = cluster.said("scontrol", "show", "job", job)
        assert "JobState=RUNNING" in now
        assert "Restarts=0" in now
        assert began is not None
        assert began[0] in now
        assert cluster.started_at == made_at
    finally:
        (cluster.work / "go").touch()
    assert step.communicate(timeout=60)[0] == "done\n"
    assert step.returncode == 0
    cluster.completed(job)
    (cluster.work / "go").unlink()
    if to == "on":
        wait_until(lambda: ended(cluster).get(job) == "COMPLETED", "the database knows it")
        (row,) = sacct(cluster, "-j", job, "--format=ElapsedRaw,Start")
        assert int(row[0]) > 0
        assert began[0] == f"StartTime={row[1]} "


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
    def used() -> float:
        report = json.loads(cluster.dshpc("usage", "--json").good().stdout)
        return float(sum(row["gpu_seconds_held"] for row in report["rows"]))

    before = used()  # of jobs that began when Slurm did not count GPUs
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

    counted_all = sum(int(rows[job][0]) * gpus for job, gpus in kept.items())
    wait_until(lambda: used() >= before + sum(held.values()), "all are written down")
    assert abs(used() - before - counted_all) <= sum(kept.values())

    def listed() -> dict[str, Any]:
        jobs = json.loads(cluster.dshpc("job", "list", "--all", "--json").good().stdout)["jobs"]
        return {each["id"]: each["use"] for each in jobs if each["id"] in kept}

    # A job of less than a second adds nothing to the sum: its line may come later
    wait_until(lambda: all(listed().values()), "each has its line")
    uses = {job: use["gpu_seconds"] for job, use in listed().items()}
    assert {job: abs(uses[job] - held[job]) <= 1 for job in kept} == dict.fromkeys(kept, True)


def test_a_client_of_the_rest_api_is_told_what_the_database_knows(cluster: Cluster) -> None:
    job = cluster.submit("--gres=gpu:1", script="true")
    wait_until(lambda: job in ended(cluster), "it ends")
    rest = json.loads(cluster.dshpc("status", "--json").good().stdout)["rest"]
    api = as_described(cluster, int(rest["address"].rpartition(":")[2]), 0)
    version = rest["version"].replace(".", "")
    (found,) = api.call(f"slurmdb_{version}_get_job", job_id=job)["jobs"]
    assert found["state"]["current"] == ["COMPLETED"]
    gpus = [each["count"] for each in found["tres"]["allocated"] if each["name"] == "gpu"]
    assert gpus == [1]
    accounts = api.call(f"slurmdb_{version}_get_accounts")["accounts"]
    assert "root" in {each["name"] for each in accounts}
    path = f"/slurmdb/{rest['version']}/jobs"
    assert api.http("GET", path)[0] == 200
    wrong = (token(cluster, 0, "--lifespan", "1s"), api.token[:-4] + "AAAA", "token")
    clients = [Api(api.port, each) for each in wrong]
    wait_until(lambda: {each.http("GET", path)[0] for each in clients} == {502}, "they are refused")


def page_command(beginning: str) -> list[str]:
    """A command of the page, as it stands there."""
    page = (ROOT / "docs/how-to/accounting.md").read_text()
    (line,) = (line.strip() for line in page.splitlines() if line.strip().startswith(beginning))
    return shlex.split(line.removeprefix("dshpc exec --root -- ").removeprefix("dshpc "))


@pytest.mark.parametrize(
    ("beginning", "reason"),
    [
        ("dshpc exec --root -- sacctmgr -i modify user", "AssocGrpGRES"),
        ("dshpc exec --root -- sacctmgr -i modify qos", "QOSMaxGRESPerUser"),
    ],
)
def test_a_users_gpus_are_limited_by_one_command(
    cluster: Cluster, beginning: str, reason: str
) -> None:
    user = cluster.said("id", "-un")
    limit = [word.replace("name=ada", f"name={user}") for word in page_command(beginning)]
    assert limit[-1].endswith("gres/gpu=2")
    cluster.exec(*limit[:-1], limit[-1][:-1] + "1").good()
    first = cluster.submit("--gres=gpu:1", script="sleep 60")
    second = cluster.submit("--gres=gpu:1", script="true")
    wait_until(lambda: cluster.job_state(second) == ("PENDING", reason), "it waits")
    cluster.exec(*limit[:-1], limit[-1][:-1] + "-1").good()
    wait_until(lambda: second in ended(cluster), "it runs")
    cluster.said("scancel", first)


def test_fair_share_by_one_command(cluster: Cluster) -> None:
    """Who has used less comes first, though he came later."""
    user = cluster.said("id", "-un")
    for account in ("much", "little"):
        cluster.exec("sacctmgr", "-i", "add", "account", f"name={account}").good()
        cluster.exec("sacctmgr", "-i", "add", "user", f"name={user}", f"account={account}").good()
    used = cluster.submit("--account=much", "--gres=gpu:2", script="sleep 3")
    wait_until(lambda: used in ended(cluster), "it is used")
    words = page_command("dshpc config set slurm_conf_extra")
    assert words[:3] == ["config", "set", "slurm_conf_extra"]
    cluster.configure(*SIMULATED, "--accounting", "on", "--slurm-conf-extra", words[3]).good()

    def shares() -> dict[str, list[float]]:
        """Account -> what this user has used of it, and the share that is left."""
        said = cluster.said("sshare", "-a", "-n", "-P", "-o", "Account,User,RawUsage,FairShare")
        rows = [line.strip().split("|") for line in said.splitlines()]
        return {name: [float(n) for n in numbers] for name, who, *numbers in rows if who == user}

    # slurmctld computes shares in a thread of its own, as soon as it has begun
    wait_until(
        lambda: shares()["much"][1] < shares()["little"][1], "shares are computed", seen=shares
    )
    assert shares()["much"][0] > 0
    first = cluster.submit("--gres=gpu:2", script="until [ -e both ]; do sleep 0.2; done")
    rich, poor = (
        cluster.submit(f"--account={each}", "--gres=gpu:2", script="true")
        for each in ("much", "little")
    )
    asked = cluster.said("sprio")
    (cluster.work / "both").touch()
    wait_until(lambda: {first, rich, poor} <= ended(cluster).keys(), "all have ended")
    rows = {row[0]: row[1] for row in sacct(cluster, "--format=JobID,Start")}
    assert rows[poor] <= rows[rich], asked
    weight = re.search(
        r"PriorityWeightFairShare *= *(\d+)", cluster.said("scontrol", "show", "config")
    )
    assert weight is not None
    assert words[3].endswith(weight[1])


def test_away_it_stops_no_job_and_nothing_is_lost(cluster: Cluster) -> None:
    cluster.said("s6-svc", "-d", DATABASE)
    wait_until(lambda: not is_up(cluster), "it is away")
    jobs = [cluster.submit(script="true") for _ in range(5)]
    wait_until(lambda: all(cluster.job_state(job)[0] == "COMPLETED" for job in jobs), "they run")
    said = cluster.dshpc("status").stdout
    assert "Accounting does not answer: jobs continue" in said
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
    assert cluster.dshpc("restore", str(file)).code == 2, "without a terminal the answer is no"
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


def test_off_and_on_again_beside_jobs_keeps_what_was_counted(cluster: Cluster) -> None:
    before = ended(cluster)
    with switched_beside_a_job(cluster, "off"):
        pass
    assert json.loads(cluster.dshpc("status", "--json").stdout)["accounting"] is None
    assert cluster.exec("pgrep", "-x", "mariadbd|slurmdbd").code == 1
    cluster.exec("srun", "-n1", "true").good()
    with switched_beside_a_job(cluster, "on"):
        pass
    assert before.items() <= ended(cluster).items()


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
