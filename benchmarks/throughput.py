#!/usr/bin/env python3
"""Short jobs through our Slurm, through the same Slurm set up by hand, and through two other queues.

    python benchmarks/throughput.py [--dir PROJECT | --image TAG] [--jobs N] [--rounds N]
        [--without PART] [--alone]

The project is the folder where configure-environment ran, or one below it: its image is measured, in
containers and volumes of this program's own, which are removed at the end. The yardstick is the image's
Slurm with the minimal start script of benchmarks/start.py and a slurm.conf written by hand for short
jobs, without what dsHPC adds (Lua scripts, task prolog, accounting, log of ended jobs). Each job writes
when it begins, sleeps 60 ms and writes when it ends. They are submitted one by one in one loop in the
container, by all in turns, to clusters that are new in each round. Beside them, for comparison alone:
task-spooler (Debian's package, in a container of the image) and HyperQueue (PyPI's package, in another;
it has no command, so one Python program submits, which is faster than a command for each job). One that
cannot be installed is left out; --alone leaves out both.

--without PART, as often as wanted, sets another Slurm of ours beside them that lacks one thing which dsHPC
adds to slurm.conf (`PARTS` in changed.py): docs/decisions/0031-throughput.md. The limit is on the jobs a
second, against those of the yardstick (median of the rounds).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from changed import PARTS, started_with, without
from image_size import image_of_project
from side_by_side import limited, parser
from start import MINIMAL, docker, options, removed, seconds_to

LEAST_RATIO = 0.9
INSTALL_S = 180.0
OF_EACH_JOB_S = 2.0  # more than the slowest round may take
READY_S = 60.0

BY_HAND = """
ClusterName=bench
SlurmctldHost=bench
SlurmUser=slurm
AuthType=auth/slurm
CredType=cred/slurm
StateSaveLocation=/var/lib/dshpc/state/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
# For short jobs: without an epilog slurmctld starts the next job up to a second later, or three
Epilog=/usr/bin/true
SchedulerParameters=batch_sched_delay=0
"""

JOB = """#!/bin/sh
date "+began $1 %s.%N" >> /tmp/ran
sleep 0.06
date "+ended $1 %s.%N" >> /tmp/ran
"""

# $1: how many; what submits number $i stands in place of SUBMIT
ROUND = """
cd /tmp
rm -f ran
: > ran
chmod 666 ran
i=0
while [ "$i" -lt "$1" ]; do
    i=$((i + 1))
    date "+said $i %s.%N" >> ran
    SUBMIT
done
date "+submitted 0 %s.%N" >> ran
until [ "$(grep -c ^ended ran)" -ge "$1" ]; do sleep 0.1; done
CLEARED
"""
SLURM = ROUND.replace("SUBMIT", 'sbatch --quiet -o /dev/null /bench/job "$i" || exit 1').replace(
    "CLEARED", 'until [ -z "$(squeue -h)" ]; do sleep 0.1; done'
)
SPOOLER = ROUND.replace("SUBMIT", 'tsp -n /bench/job "$i" > /dev/null || exit 1').replace(
    "CLEARED", "tsp -C"
)
HYPERQUEUE = """
import pathlib, sys, time
from hyperqueue import Job
from hyperqueue.cluster import LocalCluster, WorkerConfig

pathlib.Path("/tmp/ran").unlink(missing_ok=True)
with LocalCluster() as cluster, open("/tmp/ran", "a", buffering=1) as ran:
    cluster.start_worker(WorkerConfig(cores=int(sys.argv[2])))
    client, submitted = cluster.client(), []
    for number in range(1, int(sys.argv[1]) + 1):
        print("said", number, time.time(), file=ran)
        job = Job()
        job.program(["/bench/job", str(number)], stdout=None, stderr=None)
        submitted.append(client.submit(job))
    print("submitted", 0, time.time(), file=ran)
    client.wait_for_jobs(submitted)
"""


@dataclass(frozen=True)
class Round:
    submitted_s: float  # from the first submission until the last has returned
    ended_s: float  # ... until the last job has ended
    waited_s: tuple[float, ...]  # from each job's submission to its begin

    @property
    def rate(self) -> float:
        return len(self.waited_s) / self.ended_s


def read_round(text: str, jobs: int) -> Round:
    """Of what the loop and the jobs wrote, which must be all of them, each once."""
    times: dict[str, dict[int, float]] = {}
    for line in text.splitlines():
        word, number, moment = line.split()
        said = times.setdefault(word, {})
        if int(number) in said:
            raise SystemExit(f"job {number} was {word} twice")
        said[int(number)] = float(moment)
    numbers = set(range(1, jobs + 1))
    for word in ("said", "began", "ended"):
        if missing := sorted(numbers - set(times.get(word, ()))):
            raise SystemExit(f"{len(missing)} of {jobs} jobs were never {word}: {missing[:10]}")
    first = min(times["said"].values())
    return Round(
        times["submitted"][0] - first,
        max(times["ended"].values()) - first,
        tuple(times["began"][number] - times["said"][number] for number in sorted(numbers)),
    )


def run_round(name: str, jobs: int, *command: str) -> Round:
    """`command` submits in the container and waits; /tmp/ran is then what `read_round` reads."""
    argv = ["docker", "exec", name, *command]
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=READY_S + jobs * OF_EACH_JOB_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{name}: {jobs} jobs did not end in time") from None
    if done.returncode != 0:
        raise SystemExit(f"{name}: {done.stderr.strip() or done.stdout.strip()}")
    try:
        return read_round(docker("exec", name, "cat", "/tmp/ran"), jobs)
    except SystemExit as error:
        raise SystemExit(f"{name}: {error}") from None


def mounted(name: str, folder: Path) -> list[str]:
    return [*options(name), "--volume", f"{folder}:/bench:ro"]


def start_slurms(ours: str, by_hand: str, image: str, folder: Path) -> tuple[str, int]:
    """Both clusters, ready; the slurm.conf of ours, and how many CPUs their nodes have."""
    seconds_to("Ready after", [*mounted(ours, folder), image])
    docker("cp", "--follow-link", f"{ours}:/etc/slurm", str(folder / "rendered"))
    rendered = (folder / "rendered" / "slurm.conf").read_text()
    # The machine itself is the same for both, and what memory a job has that asks for none
    same = re.findall(r"(?m)^(?:NodeName|PartitionName|DefMemPerCPU)=.*$", rendered)
    (folder / "slurm").mkdir()
    (folder / "slurm" / "slurm.conf").write_text(BY_HAND + "\n".join(same) + "\n")
    for name in ("gres.conf", "cgroup.conf"):
        shutil.copy(folder / "rendered" / name, folder / "slurm" / name)
    shutil.rmtree(folder / "rendered")
    minimal = ["--entrypoint", "sh", "--init", image, "/bench/start.sh", "bench"]
    (folder / "start.sh").write_text(MINIMAL)
    seconds_to("FIRST JOB PASSED", [*mounted(by_hand, folder), *minimal])
    cpus = re.search(r"(?m)^NodeName=.* CPUs=(\d+)", rendered)
    if cpus is None:
        raise SystemExit("slurm.conf says no number of CPUs")
    return rendered, int(cpus[1])


def start_other(name: str, image: str, folder: Path, *more: str) -> None:
    argv = ["run", "--detach", "--init", "--name", name, "--volume", f"{folder}:/bench:ro"]
    docker(*argv, *more, "--entrypoint", "sleep", image, "infinity")


def other_queues(
    spooler: str, hyperqueue: str, image: str, folder: Path, cpus: int, jobs: int
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Those of the two that can be installed: title -> container, what submits there."""
    calls: dict[str, tuple[str, tuple[str, ...]]] = {}
    if why := start_spooler(spooler, image, folder, cpus):
        print(f"task-spooler is left out: {why}")
    else:
        calls["task-spooler"] = spooler, ("sh", "-c", SPOOLER, "sh", str(jobs))
    if why := start_hyperqueue(hyperqueue, image, folder):
        print(f"HyperQueue is left out: {why}")
    else:
        calls["HyperQueue"] = hyperqueue, ("python3", "/bench/submit.py", str(jobs), str(cpus))
    return calls


def start_spooler(name: str, image: str, folder: Path, cpus: int) -> str | None:
    """Why there is none, where there is none."""
    start_other(name, image, folder, "--network", "host")
    apt = "apt-get -qq -o APT::Sandbox::User=root"
    script = f"{apt} update && {apt} install --yes task-spooler && tsp -S {cpus}"
    return tried(["docker", "exec", name, "sh", "-c", script])


def start_hyperqueue(name: str, image: str, folder: Path) -> str | None:
    into = folder / "hyperqueue"
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
    why = tried([*uv, "--only-binary", ":all:", "--target", str(into), "hyperqueue"])
    if why is None:
        (folder / "submit.py").write_text(HYPERQUEUE)
        start_other(name, image, folder, "--env", "PYTHONPATH=/bench/hyperqueue")
        why = tried(["docker", "exec", name, "python3", "-c", "import hyperqueue"])
    return why


def tried(argv: list[str]) -> str | None:
    """The last line of what it complains of, where it fails."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {INSTALL_S:.0f} s"
    if done.returncode == 0:
        return None
    return ((done.stderr.strip() or done.stdout.strip()).splitlines() or ["it failed"])[-1]


def tell(title: str, rounds: list[Round]) -> None:
    waited = [second for each in rounds for second in each.waited_s]
    cuts = quantiles(waited, n=20)
    print(
        f"{title:27} {median(each.rate for each in rounds):6.1f} jobs/s; submitted in "
        f"{median(each.submitted_s for each in rounds):.1f} s, all ended after "
        f"{median(each.ended_s for each in rounds):.1f} s; waited "
        f"{median(waited):.2f} s (median), {cuts[-1]:.2f} s (95 %)"
    )


def main() -> int:
    asked = parser(__doc__, 3, project=True)
    asked.add_argument("--image", help="tag or id of the dsHPC image")
    asked.add_argument("--prefix", default="dshpc-bench", help="names of the containers")
    asked.add_argument("--jobs", type=int, default=1000, metavar="N", help="in each round")
    asked.add_argument("--alone", action="store_true", help="no task-spooler and no HyperQueue")
    asked.add_argument("--without", action="append", default=[], choices=PARTS, metavar="PART",
                       help=", ".join(PARTS))  # fmt: skip
    choice = asked.parse_args()
    image = choice.image or image_of_project(choice.dir)
    ours, by_hand, spooler, hyperqueue = names = [
        f"{choice.prefix}-{name}" for name in ("queue", "by-hand", "tsp", "hq")
    ]
    lacking = {part: f"{choice.prefix}-without-{part}" for part in choice.without}
    loop = ("sh", "-c", SLURM, "sh", str(choice.jobs))
    others: dict[str, tuple[str, tuple[str, ...]]] | None = {} if choice.alone else None
    rounds: dict[str, list[Round]] = defaultdict(list)
    cpus = 0
    with removed(*names), tempfile.TemporaryDirectory() as text:
        for number in range(choice.rounds):
            folder = Path(text) / str(number)
            folder.mkdir(mode=0o755)
            (folder / "job").write_text(JOB)
            (folder / "job").chmod(0o755)
            # New ones: what has ended in the round before is in slurmctld's state for five minutes
            with removed(ours, by_hand, *lacking.values()):
                slurm_conf, cpus = start_slurms(ours, by_hand, image, folder)
                calls = {"dsHPC": (ours, loop), "Slurm, by hand": (by_hand, loop)}
                for part, name in lacking.items():
                    mount = ("--volume", f"{folder}:/bench:ro")
                    started_with(name, image, without(slurm_conf, part), folder, *mount)
                    calls[f"dsHPC less {part}"] = name, loop
                if others is None:
                    others = other_queues(spooler, hyperqueue, image, folder, cpus, choice.jobs)
                for title, (name, command) in (calls | others).items():
                    rounds[title].append(run_round(name, choice.jobs, *command))
    print(f"{choice.jobs} jobs of 60 ms on {cpus} CPUs, {choice.rounds} rounds in turns")
    for title, each in rounds.items():
        tell(title, each)
    pairs = zip(rounds["dsHPC"], rounds["Slurm, by hand"], strict=True)
    ratio = median(mine.rate / yardstick.rate for mine, yardstick in pairs)
    return int(limited("jobs a second, ratio", ratio, least=LEAST_RATIO))


if __name__ == "__main__":
    sys.exit(main())
