#!/usr/bin/env python3
"""Many nodes: what 1,000 of them cost those who look, and what hundreds of real slurmds cost to start.

    python benchmarks/nodes.py [--dir PROJECT | --image TAG] [--slurmds N] [--jobs N] [--whole N]

The plan and the files of 1,000 nodes are made, and those of 250 beside them: as long again for each. What
`status`, `gpus`, `doctor` and `job list` do with 1,000 nodes of 8 GPUs and 10,000 jobs is done with answers
of Slurm's that are made up, each in a process of its own, whose memory is told.

--slurmds: so many real ones (300) in one container of the project's image, with files that dsHPC has
rendered and without a proof each, registered and idle; against the same with files written by hand. Then
--jobs jobs (2,000) of `true`, one by one and as an array, on both; and on task-spooler (which knows no
arrays) and HyperQueue, as `throughput.py` has them, on the machine's CPUs: printed, and no limit.
--alone leaves these out. --whole: a cluster of so many whole nodes
(0: none), each with its own start and proof, and one of half as many. Without a project and an image the
real ones are left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from image_size import image_of_project
from side_by_side import limited, parser, program
from start import docker, removed
from throughput import start_hyperqueue, start_spooler

from dshpc_setup.machine import CommandResult

NODES, GPUS, JOBS = 1_000, 8, 10_000
MOST_S, MOST_MIB = 2.0, 200.0
FILES_S, LINEAR = 1.0, 1.5
RATIO = 1.2
READY_S = 900
MAKE_S = 1800


# Made up


def status() -> str:
    from dshpc_setup.cluster import status as cluster_status
    from dshpc_setup.observed.cluster_status import ClusterStatus
    from dshpc_setup.slurm.nodes import parse_rows

    rows = "".join(f"lab-{at}|gpu:h100:{GPUS}(S:0)|gpu:h100:3|mixed|none\n" for at in range(NODES))
    now = ClusterStatus("/lab", "lab-slurm", "running", phase="ready", nodes=parse_rows(rows))
    return "\n".join(cluster_status.lines(now))


def gpus() -> str:
    import contextlib
    import io

    from dshpc_setup.cli import gpus as shown
    from dshpc_setup.cluster.gpu_jobs import ClusterGpus, Job
    from dshpc_setup.cluster.gpus import GpusNow
    from dshpc_setup.facts import GpuDevice, Gpus
    from dshpc_setup.probes.readings import Readings
    from dshpc_setup.slurm.gpus import SlurmGpu

    devices = tuple(
        GpuDevice(at, "nvidia", "NVIDIA H100", f"GPU-{at}", f"0000:{at:02x}:00.0", 81559,
                  slurm_type="h100", device_files=(f"/dev/nvidia{at}",))
        for at in range(GPUS)
    )  # fmt: skip
    listed = tuple(SlurmGpu("h100", gpu.device_files, gpu.uuid) for gpu in devices)

    def of(number: int) -> GpusNow:
        held = tuple(Job(str(number * 10 + at), "ada", "train", 1, (at,)) for at in range(GPUS))
        cluster = ClusterGpus("c", "ready", node=f"lab-{number}", jobs=held, listed=listed)
        return GpusNow(Gpus("present", devices=devices), Readings(), cluster)

    from dataclasses import replace

    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        shown._print(replace(of(0), others=tuple(map(of, range(1, NODES)))))
    return told.getvalue()


def doctor() -> str:
    from dataclasses import replace

    from dshpc_setup.diagnose import CheckInput, diagnose, to_json
    from dshpc_setup.facts import Cpu, Engine, Gpus, HostFacts, Memory, Platform
    from dshpc_setup.observed.cluster_status import ClusterStatus
    from dshpc_setup.observed.model import Daemon, Inside, KeyFile, NodeSeen, Observed, WorkFolder
    from dshpc_setup.slurm.nodes import parse_lines, parse_rows

    rows = "".join(f"lab-{at}|gpu:h100:{GPUS}|gpu:h100:3|mixed|none\n" for at in range(NODES))
    lines = tuple(
        f"NodeName=lab-{at} Gres=gpu:h100:{GPUS} State=MIXED Version=24.11.5 RealMemory=1000"
        for at in range(NODES)
    )
    assert len(parse_lines(lines)) == NODES
    daemons = tuple(
        Daemon(name, True, 7, 3600, version="24.11.5", running_version="24.11.5")
        for name in ("slurmctld", "slurmd")
    )
    inside = Inside(
        time=1.0, asked_at=1.0, controller="up", daemons=daemons, node_lines=lines,
        key=KeyFile("present", 0o600, "slurm", 256, kid="k.1"), wheel_version="1",
        gpus=("h100",) * GPUS, host_name="lab-0", host_name_resolves=True,
        device_files={f"/dev/nvidia{at}": True for at in range(GPUS)}, work=WorkFolder(7),
    )  # fmt: skip
    others = tuple(
        NodeSeen(f"lab-{at}", "running", replace(inside, node_lines=(), controller_resolves=True))
        for at in range(1, NODES)
    )
    cluster = ClusterStatus("/lab", "lab-slurm", "running", phase="ready", nodes=parse_rows(rows))
    observed = Observed(version="1", project="/lab", cluster=cluster, inside=inside, others=others,
                        work=WorkFolder(7))  # fmt: skip
    facts = HostFacts(
        Platform("linux"), Cpu(2, usable=2), Memory(8000, 8000), Gpus("absent"), Engine("present")
    )
    found = diagnose(CheckInput(facts, observed=observed))
    crashed = [each.id for each in found if each.state == "crashed"]
    if crashed:
        sys.exit(f"these checks crashed: {crashed}")
    return json.dumps(to_json(found))


def jobs() -> str:
    from dshpc_setup.jobs import table, view
    from dshpc_setup.jobs.reader import JobReader
    from dshpc_setup.slurm import queue_index

    with tempfile.TemporaryDirectory() as work:
        looked = JobReader(_Says(queue_index.MOST), work, None)  # type: ignore[arg-type]
        found = looked.all(whole=False)
        shown = table.table(view.together(found), time.time(), "ada")
    return "\n".join([shown, *looked.notes()])


class _Says:
    """A machine on which squeue answers what is made up, as for a queue that is long."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.env: dict[str, str] = {}

    def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        text = ""
        if "--json" in argv:
            text = json.dumps({"jobs": [_job(at) for at in range(self.most)]})
        elif argv[0] == "squeue" and "-o" in argv:
            rows = ("RUNNING" if at < NODES * GPUS else "PENDING" for at in range(JOBS))
            text = "".join(
                f"{at + 1} {at + 1} N/A {state} 1000 ada\n" for at, state in enumerate(rows)
            )
        return CommandResult(tuple(argv), "present", 0, text, "", 1.0)


def _job(number: int) -> dict[str, Any]:
    """As `squeue --json` has one, in what is read of it."""
    runs = number < NODES * GPUS
    return {
        "job_id": number + 1,
        "name": "train",
        "user_name": "ada",
        "user_id": 1000,
        "job_state": ["RUNNING" if runs else "PENDING"],
        "state_reason": "None" if runs else "Resources",
        "partition": "debug",
        "current_working_directory": f"/lab/jobs/1000/train-{number}",
        "standard_output": "/lab/out.log",
        "tres_per_node": "gres/gpu:h100:1",
        "gres_detail": [f"gpu:h100:1(IDX:{number % GPUS})"] if runs else [],
        "nodes": f"lab-{number // GPUS}" if runs else "",
        "submit_time": {"set": True, "infinite": False, "number": 1_790_000_000},
        "start_time": {"set": True, "infinite": False, "number": 1_790_000_000 if runs else 0},
        "time_limit": {"set": True, "infinite": True, "number": 0},
    }


MADE_UP: dict[str, tuple[Callable[[], str], str]] = {
    "status": (status, f"lab-{NODES - 1}"),
    "gpus": (gpus, f"Node lab-{NODES - 1}:"),
    "doctor": (doctor, f"lab-{NODES - 1}"),
    "job list": (jobs, f"{JOBS - 1000} of ada"),
}


def one(name: str) -> int:
    """In a process of its own: seconds of a CPU, for it waits for nobody, and how much memory, as JSON."""
    make, wanted = MADE_UP[name]
    if wanted not in make():
        sys.exit(f"{name}: {wanted} is not told")
    took = time.process_time()  # with the imports
    # getrusage(2) has the most of the process that started this one as well
    lines = Path("/proc/self/status").read_text().splitlines()
    (kib,) = (int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    print(json.dumps({"s": took, "mib": kib / 1024}))
    return 0


def made_up(rounds: int) -> bool:
    beyond = []
    for name in MADE_UP:
        told = [_measured(name) for _ in range(rounds)]
        what = f"{name}, {NODES} nodes and {JOBS} jobs"
        beyond.append(limited(what, median(each["s"] for each in told), "s", most=MOST_S))
        most_mib = max(each["mib"] for each in told)
        beyond.append(limited(f"{what}, memory", most_mib, "MiB", most=MOST_MIB))
    return any(beyond)


def _measured(name: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--one", name],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{name}: {done.stderr}{done.stdout}")
    return {key: float(value) for key, value in json.loads(done.stdout).items()}


def files(rounds: int) -> bool:
    """From the settings to the compose file and the files of Slurm's."""
    took = {count: median(_rendered(count) for _ in range(rounds)) for count in (NODES // 4, NODES)}
    ratio = took[NODES] / took[NODES // 4] / 4
    beyond = limited(f"plan and files of {NODES} nodes", took[NODES], "s", most=FILES_S)
    return limited("the same for each node, against 250 nodes", ratio, most=LINEAR) or beyond


def _rendered(count: int) -> float:
    from dshpc_setup.cluster import workers
    from dshpc_setup.facts import Cpu, Engine, Gpus, HostFacts, Memory, Platform
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.passthrough import Passthrough
    from dshpc_setup.passthrough.handover import Handover
    from dshpc_setup.plan import plan_cluster
    from dshpc_setup.render import stanza
    from dshpc_setup.render.configuration import render_slurm
    from dshpc_setup.settings import load

    facts = HostFacts(
        Platform("linux"),
        Cpu(64, usable=64),
        Memory(512000, 512000),
        Gpus("absent"),
        Engine("present"),
    )
    profiles = ",".join(("h100:8", "mi300x:8", "none")[at % 3] for at in range(count - 1))
    began = time.process_time()
    settings = load(flags={"nodes": f"none,{profiles}"})
    others = workers.planned(LocalMachine(), facts, settings)
    plan = workers.with_image_of_all(plan_cluster(facts, settings), others)
    none = Passthrough(Handover("none"), "No GPU was found.")
    text = stanza.compose_text(Path("/lab"), settings, facts, plan, none, "lab:all", None, others)
    rendered = [render_slurm(each.plan) for each in others]
    took = time.process_time() - began
    if text.count("container_name:") != count or len(rendered) != count - 1:
        raise SystemExit("not all nodes were rendered")
    return took


# Real ones

BY_HAND = """
ClusterName=bench
SlurmctldHost=bench
SlurmUser=slurm
AuthType=auth/slurm
CredType=cred/slurm
StateSaveLocation=/var/lib/dshpc/state/slurmctld
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
MaxNodeCount=1024
MaxArraySize=10001
TreeWidth=65533
Epilog=/usr/bin/true
SchedulerParameters=batch_sched_delay=0
PartitionName=debug Nodes=ALL Default=YES State=UP
"""

# $1: how many slurmds, $2: how many jobs. Several slurmds on one host have a port and folders each
ROUND = r"""
mkdir -p /run/slurm /run/slurmctld /var/lib/dshpc/state/slurmctld /var/lib/dshpc/state/jobcomp /etc/slurm
cp /bench/slurm/* /etc/slurm
sed -i -e '/^SlurmdSpoolDir=/d' -e '/^SlurmdPidFile=/d' -e '/^NodeName=/d' -e '/^SlurmdPort=/d' \
    -e '/^CommunicationParameters=/d' -e 's/^SlurmctldHost=.*/SlurmctldHost=bench/' /etc/slurm/slurm.conf
printf 'SlurmdSpoolDir=/var/spool/slurmd.%%n\nSlurmdPidFile=/run/slurm/%%n.pid\n' >> /etc/slurm/slurm.conf
head -c 1024 /dev/urandom > /etc/slurm/slurm.key
chown -R slurm /run/slurmctld /var/lib/dshpc/state /etc/slurm/slurm.key
chmod 600 /etc/slurm/slurm.key
began=$(date +%s.%N)
slurmctld -D > /tmp/slurmctld.log 2>&1 &
until scontrol ping 2>/dev/null | grep -q UP; do sleep 0.1; done
# One whose registration is lost in the crowd ends: it is started again, as a supervisor would
start() {
    i=0
    while [ "$i" -lt "$1" ]; do
        i=$((i + 1))
        [ -e "/run/slurm/node$i.pid" ] ||
            slurmd -Z -N "node$i" --conf "Port=$((20000 + i)) CPUs=1 RealMemory=100" > /tmp/slurmd.log 2>&1
    done
}
start "$1"
looked=0
until [ "$(sinfo -h -N -t idle -o %N | sort -u | wc -l)" -ge "$1" ]; do
    sleep 0.2
    looked=$((looked + 1))
    [ $((looked % 25)) -ne 0 ] || start "$1"
done
echo "ready $(date +%s.%N | awk -v b="$began" '{print $1 - b}')"
began=$(date +%s.%N)
i=0
while [ "$i" -lt "$2" ]; do
    i=$((i + 1))
    sbatch -Q --mem=1 -o /dev/null -D /tmp --wrap true || exit 1
done
until [ -z "$(squeue -h)" ]; do sleep 0.1; done
echo "one $(date +%s.%N | awk -v b="$began" '{print $1 - b}')"
began=$(date +%s.%N)
sbatch -Q --mem=1 -o /dev/null -D /tmp --array="1-$2" --wrap true || exit 1
until [ -z "$(squeue -h)" ]; do sleep 0.1; done
echo "array $(date +%s.%N | awk -v b="$began" '{print $1 - b}')"
"""


SPOOLER = """
began=$(date +%s.%N)
i=0
while [ "$i" -lt "$1" ]; do
    i=$((i + 1))
    tsp -n true > /dev/null || exit 1
done
while tsp -l | grep -qE 'queued|running'; do sleep 0.1; done
echo "one $(date +%s.%N | awk -v b="$began" '{print $1 - b}')"
"""
HYPERQUEUE = """
import os, sys, time
from hyperqueue import Job
from hyperqueue.cluster import LocalCluster, WorkerConfig

def job(count):
    made = Job()
    for _ in range(count):
        made.program(["true"], stdout=None, stderr=None)
    return made

many = int(sys.argv[1])
with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=len(os.sched_getaffinity(0))))
    client = cluster.client()
    began = time.time()
    client.wait_for_jobs([client.submit(job(1)) for _ in range(many)])
    print("one", time.time() - began)
    began = time.time()
    client.wait_for_jobs([client.submit(job(many))])
    print("array", time.time() - began)
"""


def others(name: str, image: str, most_jobs: int) -> None:
    """What two other queues make of as many jobs: printed, and judged by nobody."""
    names = f"{name}-tsp", f"{name}-hq"
    with tempfile.TemporaryDirectory() as text, removed(*names):
        folder = Path(text)
        (folder / "true.py").write_text(HYPERQUEUE)
        here = (
            ("task-spooler", start_spooler(names[0], image, folder, len(os.sched_getaffinity(0))),
             ("sh", "-c", SPOOLER, "sh")),
            ("HyperQueue", start_hyperqueue(names[1], image, folder), ("python3", "/bench/true.py")),
        )  # fmt: skip
        for container, (title, why, command) in zip(names, here, strict=True):
            if why is not None:
                print(f"{title} is left out: {why}")
                continue
            argv = ["docker", "exec", container, *command, str(most_jobs)]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=READY_S, check=True)
            rows = (line.split() for line in done.stdout.splitlines())
            told = {row[0]: float(row[1]) for row in rows if len(row) == 2}
            for how, words in (("one", "one by one"), ("array", "as one job")):
                if how in told:
                    rate = most_jobs / told[how]
                    print(f"{most_jobs} jobs of true {words}, {title}: {rate:.1f} jobs/s")


def real(name: str, image: str, slurmds: int, most_jobs: int) -> bool:
    with tempfile.TemporaryDirectory() as text, removed(f"{name}-ours", f"{name}-by-hand"):
        top = Path(text)
        ours = _round(f"{name}-ours", image, top / "ours", _ours(), slurmds, most_jobs)
        theirs = _round(
            f"{name}-by-hand", image, top / "by-hand", {"slurm.conf": BY_HAND}, slurmds, most_jobs
        )
    print(f"{slurmds} slurmds idle: {ours['ready']:.1f} s against {theirs['ready']:.1f} s by hand")
    for how, words in (("one", "one by one"), ("array", "as an array")):
        rates = [most_jobs / each[how] for each in (ours, theirs)]
        print(f"{most_jobs} jobs of true {words}: {rates[0]:.1f} against {rates[1]:.1f} jobs/s")
    return limited(f"{slurmds} slurmds, ratio", ours["ready"] / theirs["ready"], most=RATIO)


def _ours() -> dict[str, str]:
    """The files of a controller with other nodes, as they are rendered."""
    from dshpc_setup.facts import Cpu, Engine, Gpus, HostFacts, Memory, Platform
    from dshpc_setup.plan import plan_cluster
    from dshpc_setup.render.configuration import render_slurm
    from dshpc_setup.settings import load

    facts = HostFacts(
        Platform("linux"), Cpu(2, usable=2), Memory(8000, 8000), Gpus("absent"), Engine("present")
    )
    return dict(render_slurm(plan_cluster(facts, load(flags={"nodes": "2", "prefix": "bench"}))))


def _round(
    name: str, image: str, folder: Path, texts: dict[str, str], slurmds: int, most_jobs: int
) -> dict[str, float]:
    (folder / "slurm").mkdir(parents=True)
    for file, text in texts.items():
        (folder / "slurm" / file).write_text(text)
    (folder / "round.sh").write_text(ROUND)
    argv = ["docker", "run", "--name", name, "--hostname", "bench", "--volume", f"{folder}:/bench:ro",
            "--entrypoint", "sh", "--init", image,
            "/bench/round.sh", str(slurmds), str(most_jobs)]  # fmt: skip
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=READY_S, check=False)
    except subprocess.TimeoutExpired:
        log = docker("exec", name, "tail", "-5", "/tmp/slurmctld.log", "/tmp/slurmd.log")
        raise SystemExit(f"{name}: not done within {READY_S} s\n{log}") from None
    rows = (line.split() for line in done.stdout.splitlines())
    told = {row[0]: float(row[1]) for row in rows if len(row) == 2}
    if done.returncode != 0 or set(told) != {"ready", "one", "array"}:
        raise SystemExit(f"{name}: {done.stderr.strip() or done.stdout.strip()}")
    return told


def whole(prefix: str, count: int) -> bool:
    """Clusters of half as many and of all nodes, from nothing but the image: seconds for each node."""
    took: dict[int, float] = {}
    for nodes in (max(count // 2, 1), count):
        with tempfile.TemporaryDirectory() as folder:
            own = f"{prefix}-whole"
            flags = ["--yes", "--dir", folder, "--prefix", own, "--simulate", "h100:2"]
            argv = [program("configure-environment"), *flags, "--nodes", str(nodes)]
            try:
                if not took:  # the image is made before the clock begins to run
                    _ran([*argv, "--no-start"])
                began = time.perf_counter()
                _ran(argv)
                took[nodes] = time.perf_counter() - began
            finally:
                end = [program(), "destroy", "--yes", "--stop-jobs", "--dir", folder]
                subprocess.run(end, capture_output=True, timeout=600, check=False)
        print(f"{nodes} whole nodes: {took[nodes]:.1f} s, {took[nodes] / nodes:.2f} s for each")
    first, last = took.values()
    ratio = (last / count) / (first / max(count // 2, 1))
    return limited("whole nodes, for each against half as many", ratio, most=LINEAR)


def _ran(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=MAKE_S, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(argv)}: exit code {done.returncode}\n{done.stderr}")


def main() -> int:
    asked = parser(__doc__, 3, project=True)
    asked.add_argument("--image", help="tag or id of the dsHPC image")
    asked.add_argument("--prefix", default="dshpc-bench", help="names of the containers")
    asked.add_argument("--slurmds", type=int, default=300, metavar="N", help="0: none")
    asked.add_argument("--jobs", type=int, default=2000, metavar="N")
    asked.add_argument("--whole", type=int, default=20, metavar="N", help="0: none")
    asked.add_argument("--alone", action="store_true", help="no task-spooler and no HyperQueue")
    asked.add_argument("--one", choices=MADE_UP, help=argparse_hidden())
    found = asked.parse_args()
    if found.one is not None:
        return one(found.one)
    beyond = [files(found.rounds), made_up(found.rounds)]
    if found.slurmds:
        image = found.image or image_of_project(found.dir)
        beyond.append(real(f"{found.prefix}-nodes", image, found.slurmds, found.jobs))
        if not found.alone:
            others(f"{found.prefix}-nodes", image, found.jobs)
    if found.whole:
        beyond.append(whole(found.prefix, found.whole))
    return int(any(beyond))


def argparse_hidden() -> str:
    import argparse

    return argparse.SUPPRESS


if __name__ == "__main__":
    sys.exit(main())
