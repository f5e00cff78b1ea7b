"""Accounting where the disk is full, the clock is set, and names are hostile; and with several nodes."""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import (
    Cluster,
    Standards,
    Started,
    as_root,
    made,
    run,
    wait_until,
)
from tests.integration.engines import Engine
from tests.integration.test_accounting import SIMULATED, ended, is_up, sacct
from tests.integration.test_metrics import strict

pytestmark = pytest.mark.engines("builtin", "docker")

DATABASE = "/var/lib/dshpc/state/database"
SERVICES = "/run/dshpc/services"
CLOCK = "/run/dshpc/libfaketime.so"
ROOM = "320m"


@pytest.fixture(scope="module")
def cluster(engine: Engine, standards: Standards) -> Iterator[Cluster]:
    standards(engine)  # whose image it has
    with made("counted", engine=engine) as cluster:
        cluster.configure(*SIMULATED, "--accounting", "on").good()
        yield cluster


def whole(cluster: Cluster, *jobs: str) -> None:
    """Slurm goes on, and the database is told of all of these."""
    later = cluster.submit("--gres=gpu:1", script="true")
    wait_until(lambda: is_up(cluster) and {*jobs, later} <= ended(cluster).keys(), "told", 120)
    assert {ended(cluster)[job] for job in (*jobs, later)} == {"COMPLETED"}


def on_the_host(cluster: Cluster, script: str) -> None:
    """By root of this machine, with the container's mounts."""
    pid = str(cluster.inspect()["State"]["Pid"])
    run(as_root("nsenter", "--target", pid, "--mount", "sh", "-euc", script)).good()


def database(cluster: Cluster, order: str) -> None:
    for name in ("slurmdbd", "mariadb")[:: -1 if order == "-u" else 1]:
        cluster.said(
            "s6-svc", "-wD" if order == "-d" else "-wu", "-T", "60000", order, f"{SERVICES}/{name}"
        )


@contextlib.contextmanager
def full_disk(cluster: Cluster) -> Iterator[None]:
    """The database lies on a disk of its own, and something else takes all that is free there."""
    database(cluster, "-d")
    moved = (
        f"mkdir /run/small; mount -t tmpfs -o size={ROOM} tmpfs /run/small; "
        f"cp -a {DATABASE}/. /run/small; mount --bind /run/small {DATABASE}"
    )
    on_the_host(cluster, moved)
    try:
        database(cluster, "-u")
        wait_until(lambda: is_up(cluster), "it is up")
        cluster.exec("dd", "if=/dev/zero", f"of={DATABASE}/fill", "bs=64k")
        assert cluster.said("stat", "-f", "-c", "%a", DATABASE) == "0"
        yield
    finally:
        database(cluster, "-d")
        back = f"umount {DATABASE}; rm -f /run/small/fill; cp -a /run/small/. {DATABASE}; umount /run/small"
        on_the_host(cluster, back)
        database(cluster, "-u")


def test_a_full_disk_of_the_database_stops_no_job_and_nothing_is_lost(cluster: Cluster) -> None:
    before = ended(cluster)
    with full_disk(cluster):
        jobs = [cluster.submit("--gres=gpu:1", script="true") for _ in range(20)]
        wait_until(lambda: all(cluster.job_state(job)[0] == "COMPLETED" for job in jobs), "done")
    whole(cluster, *jobs)
    assert before.items() <= ended(cluster).items()


@pytest.fixture(scope="module")
def clock() -> bytes:
    """The library that sets a program's clock."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        apt = ["apt-get", "-q", "-y", "--no-install-recommends", "install", "libfaketime"]
        run(as_root(*apt), timeout_s=300).good()
        found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return found[0].read_bytes()


def an_hour_later(cluster: Cluster, clock: bytes, takes_s: float) -> None:
    """slurmdbd begins with a clock that is an hour ahead, and has that long to add up, as it does at first
    and tells nobody; then with one that was set back.

    The whole cluster's cannot be set so: slurmctld does not answer with this library (24.11.5).
    """
    place = cluster.work / "libfaketime.so"
    place.write_bytes(clock)
    cluster.said("install", "-m", "755", str(place), CLOCK)
    line = f"export LD_PRELOAD={CLOCK} FAKETIME=+3601s DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1"
    for edit in (f"2i {line}", "2d"):
        cluster.said("sed", "-i", edit, f"{SERVICES}/slurmdbd/run")
        cluster.said("s6-svc", "-wr", "-T", "60000", "-r", f"{SERVICES}/slurmdbd")
        time.sleep(takes_s)
    wait_until(lambda: is_up(cluster), "slurmdbd is up")


def reported(cluster: Cluster, since: float) -> int:
    """GPU seconds of that hour, as sreport adds them up: one that is not over it takes by itself alone."""
    begin, end = (time.strftime("%Y-%m-%dT%H:00", time.gmtime(since + far)) for far in (0, 3600))
    span = (f"start={begin}", f"end={end}")
    said = cluster.said("sreport", "-n", "-P", "-t", "Seconds", "-T", "gres/gpu", "cluster",
                        "AccountUtilizationByUser", *span, "format=Login,TRESName,Used")  # fmt: skip
    return sum(int(row[2]) for row in (each.split("|") for each in said.splitlines()) if row[0])


def test_an_hour_that_is_over_is_added_up_and_a_clock_that_is_set_back_loses_nothing(
    cluster: Cluster, clock: bytes
) -> None:
    if (left := 3600 - time.time() % 3600) < 60:
        time.sleep(left)  # the jobs are to be of one hour
    began = time.time()
    jobs = [cluster.submit(f"--gres=gpu:{gpus}", script="sleep 2") for gpus in (1, 2, 1)]
    wait_until(lambda: {*jobs} <= ended(cluster).keys(), "they end")
    rows = sacct(cluster, "--format=ElapsedRaw,AllocTRES%80")
    gpus = [(int(row[0]), re.search(r"gres/gpu=(\d+)", row[1])) for row in rows]
    held = sum(seconds * int(found[1]) for seconds, found in gpus if found)
    assert held >= 8

    for takes_s in (2, 10, 50):
        an_hour_later(cluster, clock, takes_s)
        if reported(cluster, began) > 0:
            break
    assert reported(cluster, began) == held
    whole(cluster, *jobs)


def test_a_switch_that_is_ended_anywhere_is_right_at_the_next(
    cluster: Cluster, start_configure: Callable[..., Started], full: bool
) -> None:
    """By Ctrl-C, by kill -9, and by a kill of what it has begun in the container: jobs go on, and all that
    was counted before stays."""
    before = ended(cluster)
    job = cluster.submit("--gres=gpu:1", script="until [ -e stay ]; do sleep 0.2; done; echo $$")
    waits = cluster.submit("--hold", script="true")
    wait_until(lambda: cluster.job_state(job)[0] == "RUNNING", "it runs")
    (began,) = re.findall(r"StartTime=\S+ ", cluster.said("scontrol", "show", "job", job))
    switch, inside = (*SIMULATED, "--accounting"), ("-f", "dshpc-nod[e] reconfigure")
    since = time.monotonic()
    cluster.configure(*switch, "off").good()
    takes_s = time.monotonic() - since
    chance = random.Random(20)
    for nth in range(30 if full else 6):
        to, by = ("on", "off")[nth % 2], ("SIGINT", "SIGKILL", "inside")[nth % 3]
        switching = start_configure(cluster, *switch, to)
        time.sleep(chance.uniform(0.1, 1.1) * takes_s)
        if by == "inside":
            cluster.exec("pkill", "-9", *inside)
        else:
            switching.signal(signal.Signals[by])
        switching.end()
        # What the host's run has begun in the container may go on without it
        wait_until(lambda: cluster.exec("pgrep", *inside).code == 1, "nothing changes", 120)
        wait_until(lambda: cluster.exec("scontrol", "ping").code == 0, "slurmctld answers")
        now = cluster.said("scontrol", "show", "job", job)
        assert all(words in now for words in ("JobState=RUNNING", "Restarts=0", began)), now
        if nth % 2 == 0 and chance.random() < 0.5:
            continue  # the next one begins from where this one was ended
        cluster.configure(*switch, to).good()
        told = json.loads(cluster.dshpc("status", "--json").good().stdout)["accounting"]
        assert told == ("up" if to == "on" else None)
        assert (cluster.exec("pgrep", "-x", "mariadbd|slurmdbd").code == 0) == (to == "on")
    cluster.configure(*switch, "on").good()
    (cluster.work / "stay").touch()
    cluster.said("scontrol", "release", waits)
    whole(cluster, job, waits)
    assert before.items() <= ended(cluster).items()
    (row,) = sacct(cluster, "-j", job, "--format=Start")
    assert began == f"StartTime={row[0]} "


def test_a_name_writes_no_line_and_no_column(cluster: Cluster) -> None:
    """Neither as it is submitted nor as it is changed; and quotes end no question to the database."""
    control = "".join(map(chr, (*range(1, 32), 127, *range(0x80, 0xA0), 0x2028, 0x202E, 0x2066)))
    name = f"a{control}|b\\'\";--x"
    job = cluster.submit("--hold", "-J", name, script="true")
    forged = f"x'), (1,2,3);-- {control}"
    cluster.exec("scontrol", "update", f"jobid={job}", f"JobName={forged}")
    cluster.said("scontrol", "release", job)
    whole(cluster, job)
    said = cluster.exec("sacct", "-X", "-n", "-P", "-j", job, "--format=JobID,JobName,State").stdout
    assert re.fullmatch(rf"{job}\|[ -~]+\|COMPLETED\n", said), said
    listed = cluster.dshpc("job", "list", "--json").good().stdout
    assert not {each for each in listed if each < " "} - {"\n"}


def test_several_nodes_are_counted_and_switched_beside_their_jobs(engine: Engine) -> None:
    """By the accounting, by `dshpc usage` and in the metrics. Also the setting release_idle, whose service is
    started anew."""
    with made("nodes", engine=engine) as cluster:
        nodes = ("--nodes", "h100:1,h100:1,t4:1")
        cluster.configure(*nodes).good()
        names = [cluster.prefix, f"{cluster.prefix}-2", f"{cluster.prefix}-3"]
        job = cluster.submit(
            "-w", names[1], "--gres=gpu:1", script="until [ -e go ]; do sleep 0.2; done"
        )
        wait_until(lambda: cluster.job_state(job)[0] == "RUNNING", "it runs")
        watcher = cluster.said("s6-svstat", "-o", "pid", f"{SERVICES}/use")
        cluster.configure(*nodes, "--accounting", "on", "--release-idle", "2h").good()
        assert cluster.job_state(job)[0] == "RUNNING"
        assert cluster.said("s6-svstat", "-o", "pid", f"{SERVICES}/use") != watcher
        settings = cluster.said("sh", "-c", f"cat {SERVICES}/../use.settings")
        assert settings.split() == ["30m", "2h"]
        all_of_them = ("-N3", "--gres=gpu:1", "sleep", "2")
        refused = cluster.exec("srun", "--immediate=1", *all_of_them)
        assert refused.code != 0, "the GPU of one is held"

        seen = samples(cluster)
        assert {labels["node"]: value for labels, value in seen["dshpc_daemon_up"]
                if labels["daemon"] == "slurmd"} == dict.fromkeys(names, 1.0)  # fmt: skip
        assert {labels["node"] for labels, _ in seen["slurm_node_cpus"]} == {*names}
        up = {labels["daemon"]: value for labels, value in seen["dshpc_daemon_up"]}
        assert (up["slurmdbd"], up["mariadb"]) == (1.0, 1.0)
        assert seen["slurm_slurmdbd_queue_size"][0][1] == 0
        held = {labels["Hostname"]: value for labels, value in seen["dshpc_gpu_held"]}
        assert held == dict(zip(names, (0.0, 1.0, 0.0), strict=True))
        (holder,) = seen["dshpc_gpu_job_info"]
        assert (holder[0]["job"], holder[0]["Hostname"]) == (job, names[1])

        (cluster.work / "go").touch()
        cluster.said("srun", *all_of_them)
        wait_until(lambda: job in ended(cluster), "the first one is told")
        rows = sacct(cluster, "--format=JobID,NodeList,NNodes,AllocTRES%80,State,ElapsedRaw")
        assert [job, names[1], "1"] in [row[:3] for row in rows]
        (wide,) = (row for row in rows if row[2] == "3" and row[4] == "COMPLETED")
        assert {"gres/gpu=3", "node=3"} <= set(wide[3].split(","))

        def hours() -> dict[str, tuple[int, float]]:
            told = json.loads(cluster.dshpc("usage", "--by", "gpu-type", "--json").good().stdout)
            return {row["gpu_type"]: (row["jobs"], row["gpu_seconds_held"]) for row in told["rows"]}

        wait_until(lambda: "t4" in hours(), "both are written down")
        first = next(int(row[5]) for row in rows if row[0] == job)
        (h100, t4), both = (hours()[kind] for kind in ("h100", "t4")), int(wide[5])
        assert (h100[0], t4[0]) == (2, 0), "a job counts with its first type"
        assert t4[1] == pytest.approx(both, abs=1)
        assert h100[1] == pytest.approx(first + 2 * both, abs=3)
        total = {labels["type"]: value for labels, value in samples(cluster)["dshpc_gpu_seconds_total"]
                 if labels["how"] == "held"}  # fmt: skip
        assert total == {kind: seconds for kind, (_, seconds) in hours().items()}


def samples(cluster: Cluster) -> dict[str, list[tuple[dict[str, str], float]]]:
    """What `dshpc metrics` tells, by name, as the strict parser reads it."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in strict(cluster.dshpc("metrics", "--openmetrics").good().stdout):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found
