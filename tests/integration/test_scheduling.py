"""A job that wants many GPUs, and a stream of small ones for as long as the test runs (decision 0046)."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, wait_until
from tests.integration.shown import documented
from tests.integration.slurms.asks import Ask
from tests.integration.slurms.cases import Case, cases
from tests.integration.slurms.cluster import run
from tests.integration.slurms.roots import SUITES, SlurmRoot

pytest_plugins = ("tests.integration.slurms.fixtures",)

LONGEST_S = 8
SMALL_S = 1.5
# How late the service may look at a queue, on a machine that does much else
LATE_S = 8

# More than there is room for, from the first second on: what ends is followed at once
_STREAM = f"""
while [ ! -e "$1/no-more" ]; do
    for kind in h100 h100 t4; do
        sbatch -D /tmp -J small-$kind -o /dev/null --gres=gpu:$kind:1 --wrap 'sleep {SMALL_S}' >/dev/null 2>&1
    done
    sleep {SMALL_S}
done
"""
# A second slurmd in the same container, with as many GPUs
_SECOND_NODE = """
conf=$(readlink -f /etc/slurm)/slurm.conf
line=$(grep '^NodeName=' "$conf")
echo "NodeName=two NodeHostname=$(hostname) Port=20001 ${line#* }" >>"$conf"
sed -e 's#^SlurmdSpoolDir=.*#SlurmdSpoolDir=/var/spool/two#' \
    -e 's#^SlurmdPidFile=.*#SlurmdPidFile=/run/slurm/two.pid#' "$conf" >/etc/slurm/two.conf
mkdir -p /var/spool/two
s6-svc -wr -T 60000 -r /run/dshpc/services/slurmctld
until scontrol ping | grep -q UP; do sleep 0.2; done
slurmd -N two -f /etc/slurm/two.conf && s6-svc -r /run/dshpc/services/slurmd
until [ "$(sinfo -h -N -t idle -o %N | wc -l)" = 2 ]; do sleep 0.2; done
"""


@dataclass(frozen=True)
class Job:
    id: str
    name: str
    state: str
    started: float  # 0: not yet
    node: str


def jobs(cluster: Cluster) -> list[Job]:
    text = cluster.said(
        "sh", "-c", "SLURM_TIME_FORMAT=%s squeue -h -a -r -t all -o '%i %j %T %S %N.'"
    )
    rows = [line.rstrip(".").split(" ") for line in text.splitlines()]
    return [
        Job(row[0], row[1], row[2], float(row[3]) if row[3].isdecimal() and row[4] else 0.0, row[4])
        for row in rows
    ]


def begun(cluster: Cluster, name: str, since: float, until: float, node: str = "") -> list[Job]:
    """Of slurmctld's seconds those between the two."""
    return [
        job for job in jobs(cluster)
        if job.name == name and since < job.started < until and node in ("", job.node)
    ]  # fmt: skip


def submit(cluster: Cluster, name: str, *options: str, script: str = "sleep 1") -> str:
    return cluster.submit("-J", name, *options, script=script)


def reservations(cluster: Cluster) -> str:
    return cluster.said("scontrol", "-o", "show", "reservation")


@contextlib.contextmanager
def stream(cluster: Cluster) -> Iterator[None]:
    argv = cluster.within("sh", "-c", _STREAM, "sh", str(cluster.work))
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            yield
        finally:
            (cluster.work / "no-more").touch()
            child.wait(timeout=60)
            (cluster.work / "no-more").unlink()
            cluster.said("scancel", "-u", "root")


def kill(cluster: Cluster, service: str) -> None:
    pid = cluster.said("s6-svstat", "-o", "pid", f"/run/dshpc/services/{service}")
    assert int(pid) > 1, service
    # Of the service longest-wait what it runs, too
    cluster.exec("sh", "-c", f"kill -9 {pid} $(cat /proc/{pid}/task/{pid}/children)")


@pytest.mark.engines("docker", "builtin")
def test_a_big_job_comes_first_once_it_has_waited_so_long(fresh: Cluster) -> None:
    """slurmctld and the service are killed meanwhile, and jobs of another kind go on."""
    fresh.configure("--simulate", "mixed", "--longest-wait", f"{LONGEST_S}s").good()
    go = fresh.work / "go"
    holder = submit(
        fresh, "holder", "--gres=gpu:h100:1", script=f"until [ -e {go} ]; do sleep 0.2; done"
    )
    with stream(fresh):
        wait_until(lambda: bool(begun(fresh, "small-h100", 0, 1e12)), "the stream runs")
        big = submit(fresh, "big", "--gres=gpu:h100:2")
        queued = time.time()
        wait_until(lambda: f"longest_wait-{big} " in reservations(fresh), "it comes first")
        kept = time.time()
        assert LONGEST_S - 1 <= kept - queued <= LONGEST_S + LATE_S
        assert begun(fresh, "small-h100", queued, kept), "until then the small ones overtook it"

        item = documented("docs/how-to/jobs.md", "dshpc job show 6")
        said = {"Job 6": f"Job {big}", "train": "big", "ada": "root", "on dshpc": f"on {fresh.prefix}",
                ": 4 (": f": {holder} ("}  # fmt: skip
        text = "\n".join(item.lines[:2])
        for theirs, ours in said.items():
            text = text.replace(theirs, ours)
        # The small one that overtook it last may run for a moment yet, and is named with the other
        wait_until(
            lambda: fresh.dshpc("job", "show", big).good().stdout.startswith(f"{text}\n"),
            "the holder alone is named",
        )
        small = submit(fresh, "small-h100", "--gres=gpu:h100:1")
        shown = fresh.dshpc("job", "show", small).good().stdout
        assert f"job {big} comes first there" in shown

        wait_until(
            lambda: len(begun(fresh, "small-t4", kept + 1, 1e12)) > 2, "the other kind goes on", 30
        )
        kill(fresh, "slurmctld")
        kill(fresh, "longest-wait")
        wait_until(lambda: fresh.exec("scontrol", "ping").code == 0, "slurmctld is back")
        again = time.time()
        wait_until(
            lambda: len(begun(fresh, "small-t4", again + 1, 1e12)) > 1, "and after the kills", 60
        )
        assert not begun(fresh, "small-h100", kept + 1, 1e12), "the GPU that is free is kept"
        assert fresh.job_state(big)[0] == "PENDING"
        go.touch()
        wait_until(lambda: fresh.job_state(big)[0] in ("RUNNING", "COMPLETED"), "it begins", 20)
        (of_big,) = [job for job in jobs(fresh) if job.id == big]
        assert not begun(fresh, "small-h100", kept + 1, of_big.started)
        wait_until(
            lambda: bool(begun(fresh, "small-h100", of_big.started, 1e12)), "the stream goes on"
        )
    wait_until(lambda: "longest_wait" not in reservations(fresh), "nothing is kept any more")
    assert not [job for job in jobs(fresh) if job.state == "PENDING"]

    # A queue of jobs that are alike needs nothing of the kind, however long it is
    array = submit(fresh, "alike", "--gres=gpu:h100:1", "--array=1-14", script="sleep 2")
    seen = ""
    while any(job.name == "alike" and job.state == "PENDING" for job in jobs(fresh)):
        seen += reservations(fresh)
        time.sleep(0.5)
    assert array not in seen
    assert "longest_wait" not in seen

    # Who is taken out of the queue keeps nothing either
    go.unlink()
    submit(fresh, "holder", "--gres=gpu:h100:1", script=f"until [ -e {go} ]; do sleep 0.2; done")
    big = submit(fresh, "big", "--gres=gpu:h100:2")
    wait_until(lambda: f"longest_wait-{big} " in reservations(fresh), "it comes first")
    small = submit(fresh, "small-h100", "--gres=gpu:h100:1")
    fresh.said("scontrol", "hold", big)
    fresh.completed(small)
    assert "longest_wait" not in reservations(fresh)
    go.touch()


@pytest.mark.engines("docker", why="a second slurmd and its port are made by hand")
def test_of_several_nodes_the_others_go_on(fresh: Cluster) -> None:
    fresh.configure("--simulate", "mixed", "--longest-wait", f"{LONGEST_S}s").good()
    fresh.said("bash", "-euc", _SECOND_NODE)
    go = fresh.work / "go"
    hold = f"until [ -e {go} ]; do sleep 0.2; done"
    for node in (fresh.prefix, "two"):
        submit(fresh, "holder", "-w", node, "--gres=gpu:h100:1", script=hold)
    with stream(fresh):
        wide = submit(fresh, "big", "--gres=gpu:h100:2")
        wait_until(lambda: f"longest_wait-{wide} " in reservations(fresh), "it comes first")
        kept = time.time()
        (line,) = [line for line in reservations(fresh).splitlines() if f"-{wide} " in line]
        node = line.partition(" Nodes=")[2].split()[0]
        assert node in (fresh.prefix, "two")
        time.sleep(5)
        now, other = time.time(), "two" if node != "two" else fresh.prefix
        assert not begun(fresh, "small-h100", kept + 1, now, node)
        assert begun(fresh, "small-h100", kept + 1, now, other)
        assert begun(fresh, "small-t4", kept + 1, now)
        both = submit(fresh, "both", "-N2", "--gres=gpu:h100:2")
        go.touch()
        for job in (wide, both):
            fresh.completed(job)


# What the service orders, by hand: of a release whose controller takes another view of it the rest is in vain
_BY_HAND = """
submit() { sbatch --parsable -o /dev/null "$@" --wrap 'sleep 300'; }
reserve() {
    scontrol create reservation reservationname=$1 nodes=ALL users=-slurm starttime=now endtime=now+120 \
        flags=FLEX,OVERLAP,IGNORE_JOBS,NO_HOLD_JOBS_AFTER >/dev/null || exit 1
}
holder=$(submit --gres=gpu:1) || exit 1
until [ "$(squeue -h -j $holder -o %t)" = R ]; do sleep 0.1; done
big=$(submit --gres=gpu:2) && reserve longest_wait-1 && reserve longest_wait-beside-cpu || exit 1
scontrol update jobid=$big reservationname=longest_wait-1 || exit 1
small=$(submit --gres=gpu:1) beside=$(submit) || exit 1
scontrol update jobid=$beside reservationname=longest_wait-beside-cpu || exit 1
sleep 3
echo kept $(squeue -h -j $big,$small,$beside -S i -o %t)
scontrol update reservationname=longest_wait-1 nodes=ALL endtime=now+90 || exit 1
scancel $holder
sleep 3
echo begun $(squeue -h -j $big,$small,$beside -S i -o %t)
scontrol update jobid=$big,$beside reservationname= || exit 1
scontrol delete reservationname=longest_wait-1 || exit 1
scontrol delete reservationname=longest_wait-beside-cpu || exit 1
scancel $big
sleep 3
echo gone $(squeue -h -j $small,$beside -S i -o %t)
scancel -u root
"""


@pytest.mark.parametrize("suite", SUITES)
def test_each_release_takes_reservations_for_this(
    suite: str, slurms: dict[str, SlurmRoot], tmp_path: Path
) -> None:
    case = cases()["a100x2"]
    assert isinstance(case, Case)
    ask = Ask("by hand", ("sh", "-c", _BY_HAND))
    outcome = run(slurms[suite], case, tmp_path / suite, questions=[ask])
    assert outcome.stopped is None
    said = outcome.answers[ask]
    assert said.code == 0, said
    lines = [
        line for line in said.text.splitlines() if line.split()[0] in ("kept", "begun", "gone")
    ]
    assert lines == ["kept PD PD R", "begun R PD R", "gone R R"]
