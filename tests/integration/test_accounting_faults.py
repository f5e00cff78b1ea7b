"""Accounting where the disk is full, the clock is set, and names are hostile; and with several nodes."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, Standards, as_root, made, run, wait_until
from tests.integration.engines import Engine
from tests.integration.test_accounting import SIMULATED, ended, is_up, sacct

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
    """Also the setting release_idle, whose service is started anew."""
    with made("nodes", engine=engine) as cluster:
        nodes = ("--nodes", "h100:1,h100:1")
        cluster.configure(*nodes).good()
        other = f"{cluster.prefix}-2"
        job = cluster.submit(
            "-w", other, "--gres=gpu:1", script="until [ -e go ]; do sleep 0.2; done"
        )
        wait_until(lambda: cluster.job_state(job)[0] == "RUNNING", "it runs")
        watcher = cluster.said("s6-svstat", "-o", "pid", f"{SERVICES}/use")
        cluster.configure(*nodes, "--accounting", "on", "--release-idle", "2h").good()
        assert cluster.job_state(job)[0] == "RUNNING"
        assert cluster.said("s6-svstat", "-o", "pid", f"{SERVICES}/use") != watcher
        settings = cluster.said("sh", "-c", f"cat {SERVICES}/../use.settings")
        assert settings.split() == ["30m", "2h"]
        both = ("-N2", "--gres=gpu:1", "true")
        refused = cluster.exec("srun", "--immediate=1", *both)
        assert refused.code != 0, "the GPU of one is held"
        (cluster.work / "go").touch()
        cluster.said("srun", *both)
        wait_until(lambda: job in ended(cluster), "the first one is told")
        rows = sacct(cluster, "--format=JobID,NodeList,NNodes,AllocTRES%80,State")
        assert [job, other, "1"] in [row[:3] for row in rows]
        (wide,) = (row for row in rows if row[2] == "2" and row[4] == "COMPLETED")
        assert {"gres/gpu=2", "node=2"} <= set(wide[3].split(","))
