"""What jobs use of their GPUs: measured by a real library, kept by a cluster, counted against a ledger."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.container.use_sampler import Sampler
from dshpc_setup.facts import GpuDevice, Gpus, MigInstance
from dshpc_setup.jobs.allocated_gpus import Places, parse_table
from dshpc_setup.jobs.offer import OfferedGpu
from dshpc_setup.machine import CommandResult
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.usage import ledger, live
from tests.integration.cluster import Cluster, Standards, as_user, made, wait_until
from tests.integration.engines import Engine
from tests.integration.shown import documented
from tests.integration.test_nvml_standin import Describe, describe, library

pytestmark = pytest.mark.engines("docker", why="its jobs are of two users")

__all__ = ["describe", "library"]

UIDS = (4321, 4322)
STATE = ledger.FOLDER
CARD = (
    "gpu minor={0} bus=00000000:0{0}:00 memory=81559 uuid=GPU-{0} used={1} utilization={2} power={3} "
    "temperature=50 name=NVIDIA H100 80GB HBM3\n"
)
ENDED = (
    "JobId=7 UserId=root(0) GroupId=root(0) Name=train JobState=COMPLETED Partition=debug TimeLimit=1 "
    "StartTime={} EndTime={} NodeList=node NodeCnt=1 ProcCnt=2 WorkDir=/lab ReservationName= "
    "Tres=cpu=2,mem=4G,node=1,billing=2 Account= QOS= WcKey= Cluster=unknown SubmitTime={} "
    "EligibleTime={} DerivedExitCode=0:0 ExitCode=3:0 \n"
)
BEGAN = 1_795_000_000


class Ordered:
    """Slurm's programs: what they were told; squeue knows the job 7."""

    def __init__(self) -> None:
        self.orders: list[list[str]] = []

    def run(self, argv: Sequence[str], **_: object) -> CommandResult:
        if argv[0] == "squeue":
            cells = (
                "7",
                "7",
                "7",
                "N/A",
                "0",
                "0",
                "root",
                "1",
                "node",
                "%j.log",
                "/lab",
                "a\x1b]0;b\njob",
            )
            return CommandResult(tuple(argv), "present", 0, "\x1f".join((*cells, "\n")), "", 1.0)
        self.orders.append(list(argv))
        return CommandResult(tuple(argv), "present", 0, "", "", 1.0)


@pytest.fixture
def sampler(describe: Describe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sampler:
    """It watches two cards, of which the job 7 has both."""
    devices = tuple(
        GpuDevice(index, "nvidia", "H100", f"GPU-{index}", slurm_type="h100",
                  pci_bus_id=f"0000:0{index}:00.0", device_files=(f"/dev/nvidia{index}",))
        for index in (0, 1)
    )  # fmt: skip
    offered = tuple(
        OfferedGpu(index, f"GPU-{index}", "h100", "h100", "H100", "nvidia", 81559, "9.0")
        for index in (0, 1)
    )
    places = Places(parse_table(["gpu 0 nvidia 0 GPU-0", "gpu 1 nvidia 1 GPU-1"]), offered, "node")
    folder, log = str(tmp_path / "use"), str(tmp_path / "jobs.log")
    Path(log).touch()
    made = Sampler(describe(""), Settings(idle_gpu="1m", release_idle="20m"), "node",
                   Gpus("present", devices=devices), places, folder, log)  # fmt: skip
    ordered = Ordered()
    monkeypatch.setattr(Slurm, "run", lambda _, *argv, **more: ordered.run(argv, **more))
    monkeypatch.setattr(made, "orders", ordered.orders, raising=False)
    made.begin()
    (tmp_path / "use" / "run" / "7.0").write_text(
        f"start 4294967291 {BEGAN} 0 0,1 GPU-0,GPU-1 /dev/null\n"
    )
    return made


def says(tmp_path: Path, *cards: str, more: str = "") -> None:
    (tmp_path / "nvml.txt").write_text("driver 550.163.01\n" + "".join(cards) + more)


def end(sampler: Sampler, seconds: int) -> dict[str, Any]:
    """The job ends so long after its start: its line of the ledger."""
    times = [
        time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(BEGAN + each)) for each in (0, seconds)
    ]
    assert sampler.log is not None
    with open(sampler.log, "a", encoding="utf-8") as file:
        file.write(ENDED.format(times[0], times[1], times[0], times[0]))
    run = Path(sampler.folder) / "run" / "7.0"
    with run.open("a", encoding="utf-8") as file:
        file.write(f"end 4294967291 {BEGAN + seconds} 768 2097152 60000\n")
    sampler.pass_once(1e6, BEGAN + seconds + 1)
    (line,) = ledger.newest_first(None, sampler.folder)
    return {"job": line, "use": line.use_json()}


def test_readings_that_move_become_means_and_peaks(sampler: Sampler, tmp_path: Path) -> None:
    for at, (percent, used, power) in enumerate(
        ((100, 40000, 700000), (0, 20000, 100000)), start=1
    ):
        says(tmp_path, CARD.format(0, used, percent, power), CARD.format(1, 0, 0, 60000))
        sampler.pass_once(at * 15.0, BEGAN + at * 15.0)
    (running,) = live.load(sampler.folder)
    assert (running.id, running.user, running.name) == ("7", "root", "a\x1b]0;b\njob")
    # Who is killed and begins again goes on where it was
    sampler.jobs = {}
    sampler.begin()
    found = end(sampler, 30)
    job = found["job"]
    assert (job.id, job.name, job.exit_code, job.log) == ("7", "train", 3, "/lab/7.log")
    assert (job.cpus, job.memory_mib, job.peak_memory_mib, job.mean_cpus) == (2, 4096, 2048, 2.0)
    assert [(gpu.index, gpu.uuid, gpu.type, gpu.node) for gpu in job.gpus] == [
        (0, "GPU-0", "h100", "node"), (1, "GPU-1", "h100", "node"),
    ]  # fmt: skip
    assert (found["use"]["gpu_seconds"], found["use"]["gpu_used_seconds"]) == (60.0, 15.0)
    first, second = found["use"]["gpus"]
    assert first == {
        "uuid": "GPU-0", "measured_s": 30.0, "mean_percent": 50.0, "peak_percent": 100,
        "mean_memory_mib": 30000, "peak_memory_mib": 40000, "energy_j": 12000.0,
        "last_used": BEGAN + 15.0,
    }  # fmt: skip
    assert (second["peak_percent"], second["last_used"]) == (0, None)
    assert list(Path(sampler.folder, "run").iterdir()) == []
    assert live.load(sampler.folder) == ()


def test_a_short_job_of_another_machine_has_the_kinds_of_its_gpus(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its notes are there, no sample saw it, and of one that has ended Slurm says no more."""
    asked: list[Sequence[str]] = []

    def run(_: object, *argv: str, **__: object) -> CommandResult:
        asked.append(argv)
        text = "JobId=7 JobName=a\n   JOB_GRES=gpu:t4:1\n   JOB_GRES=gpu:t4:2,shard:4\n     Nodes=there\n"
        return CommandResult(argv, "present", 0, text if argv[0] == "scontrol" else "", "", 1.0)

    monkeypatch.setattr(Slurm, "run", run)
    Path(sampler.folder, "run", "7.0").unlink()
    sampler.settings = replace(sampler.settings, listen="10.0.0.1")
    ended = ENDED.replace("NodeList=node", "NodeList=there")
    Path(sampler.log or "").write_text(ended.format(*["2026-11-18T12:00:00"] * 4))
    sampler.pass_once(1e6, BEGAN + 60)
    (job,) = ledger.newest_first(None, sampler.folder)
    held = [(gpu.index, gpu.uuid, gpu.type, gpu.node) for gpu in job.gpus]
    assert held == [(None, None, "t4", "there")] * 2
    assert ("scontrol", "-d", "show", "job", "7") in asked


@pytest.mark.usefixtures("no_crash_dump")
def test_a_driver_that_hangs_costs_its_samples_alone(
    sampler: Sampler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dshpc_setup.container.use_sampler.ASK_S", 1.0)
    says(tmp_path, CARD.format(0, 10, 50, 1000), CARD.format(1, 10, 50, 1000),
         more="hang nvmlDeviceGetUtilizationRates 1\n")  # fmt: skip
    began = time.monotonic()
    sampler.pass_once(15.0, BEGAN + 15.0)
    assert time.monotonic() - began < 8
    says(tmp_path, more="crash nvmlDeviceGetCount_v2\n")
    sampler.pass_once(30.0, BEGAN + 30.0)
    says(tmp_path, CARD.format(0, 10, 30, 1000), CARD.format(1, 10, 30, 1000))
    sampler.pass_once(45.0, BEGAN + 45.0)
    first, second = end(sampler, 50)["use"]["gpus"]
    # What the first card said before the second one hung counts
    assert (first["measured_s"], second["measured_s"]) == (30.0, 15.0)


def test_a_clock_that_is_set_back_costs_no_measure(sampler: Sampler, tmp_path: Path) -> None:
    """Nor is what is used idle then."""
    says(tmp_path, CARD.format(0, 10, 50, 1000), CARD.format(1, 10, 0, 1000))
    for at in range(1, 9):
        sampler.pass_once(at * 15.0, BEGAN + at * 15.0 - (3600 if at > 2 else 0))
        assert [gpu.index for _, gpu, _ in live.read(None, sampler.folder).idle()] == []
    first, second = end(sampler, 120)["use"]["gpus"]
    assert (first["measured_s"], second["measured_s"]) == (120.0, 120.0)
    assert (first["mean_percent"], first["peak_percent"], second["peak_percent"]) == (50.0, 50, 0)


def test_ten_thousand_jobs_that_ended_unseen_are_all_written_down(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Once, though who writes them down is killed on the way; and within what a sample may take."""
    assert sampler.log is not None
    many, notes = 10_000, Path(sampler.folder) / "run"
    shutil.rmtree(notes)
    request.addfinalizer(lambda: shutil.rmtree(memory))
    memory = tempfile.mkdtemp(dir="/dev/shm")  # to remove so many files takes long on some disks
    notes.symlink_to(memory)
    at = [time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(BEGAN + each)) for each in (0, 60)]
    line = ENDED.format(at[0], at[1], at[0], at[0])
    with open(sampler.log, "a", encoding="utf-8") as file:
        for own in range(1, many + 1):
            (notes / f"{own}.0").write_text(f"start 0 {BEGAN} 0 0 GPU-0 /dev/null\n")
            file.write(line.replace("JobId=7 ", f"JobId={own} "))
    began = time.monotonic()
    with monkeypatch.context() as killed:
        killed.setattr(sampler._ended, "_forget", lambda *_: sys.exit("killed"))
        with pytest.raises(SystemExit):
            sampler.pass_once(1e6, BEGAN + 100)
    sampler.__post_init__()
    sampler.pass_once(2e6, BEGAN + 110)
    assert time.monotonic() - began < 60
    (told,) = ledger.all_sums(None, sampler.folder)
    assert (told.jobs, told.held_s) == (many, many * 60.0)
    assert {job.own for job in ledger.newest_first(None, sampler.folder)} == {*range(1, many + 1)}
    assert list(notes.iterdir()) == []


def test_an_idle_job_is_warned_and_then_ended(sampler: Sampler, tmp_path: Path) -> None:
    orders: list[list[str]] = sampler.orders  # type: ignore[attr-defined]
    quiet = [CARD.format(index, 10, 0, 1000) for index in (0, 1)]

    def at(minutes: int) -> list[str]:
        del orders[:]
        sampler.pass_once(minutes * 60.0, BEGAN + minutes * 60.0)
        return [order[1] if order[0] == "scontrol" else order[0] for order in orders]

    says(tmp_path, *quiet)
    assert at(1) == []
    assert len(live.read(None, sampler.folder).idle()) == 2
    says(tmp_path, quiet[0], CARD.format(1, 10, 3, 1000))  # one of its GPUs computes
    assert at(15) == []
    says(tmp_path, *quiet)
    assert at(20) == []  # five minutes since its last use
    assert at(26) == ["notify"]
    assert "the job is ended in 10 min" in orders[0][-1]
    assert at(30) == []
    says(tmp_path, quiet[0], CARD.format(1, 10, 3, 1000))
    assert at(34) == []
    says(tmp_path, *quiet)
    assert at(40) == []  # it has computed since it was warned
    assert at(45) == ["notify"]
    assert at(56) == ["notify", "scancel"]
    assert orders[-1] == ["scancel", "7"]


def test_instances_are_measured_each(sampler: Sampler, tmp_path: Path) -> None:
    """As far as the driver tells: the memory. Whether one computes it does not, so none is idle."""
    parts = (MigInstance("3g.40gb", "MIG-1", 40448, ("/dev/nvidia-caps/nvidia-cap1",)),)
    card = GpuDevice(0, "nvidia", "H100", "GPU-0", pci_bus_id="0000:00:00.0",
                     mig_mode="enabled", mig=parts)  # fmt: skip
    sampler.gpus = Gpus("present", devices=(card,))
    sampler.places = Places(parse_table(["gpu 0 nvidia - MIG-1"]), (), "node")
    (tmp_path / "use" / "run" / "7.0").write_text(f"start 0 {BEGAN} 0 0 MIG-1 /dev/null\n")
    says(tmp_path, CARD.format(0, 5000, 50, 1000).replace("uuid=", "mig=1 uuid="),
         more="instance gi=1 ci=0 memory=40448 used=700 slices=3/3 uuid=MIG-1 profile=3g.40gb\n")  # fmt: skip
    sampler.pass_once(15.0, BEGAN + 600.0)
    assert live.read(None, sampler.folder).idle() == []
    (part,) = end(sampler, 600)["use"]["gpus"]
    assert (part["uuid"], part["peak_memory_mib"], part["peak_percent"]) == ("MIG-1", 700, None)


# On a cluster


def asked(cluster: Cluster, uid: int, *words: str) -> str:
    return as_user(uid, "dshpc", *words, cwd=cluster.work / f"of{uid}").good().stdout


def listed(cluster: Cluster, uid: int) -> dict[str, dict[str, Any]]:
    told = json.loads(asked(cluster, uid, "job", "list", "--all", "--json"))
    return {job["id"]: job for job in told["jobs"]}


def submitted(cluster: Cluster, uid: int, chance: random.Random) -> dict[str, int]:
    """One job, or an array, of some way and size: its ids and how many GPUs each has."""
    gpus, name = chance.randint(1, 2), chance.choice(["plain", "a b\t'c'", "=1+1", 'x"{}\\'])
    script = f"sleep {chance.choice([0, 0.2, 1.1, 2])}"
    match chance.choice(["srun", "sbatch", "array", "run"]):
        case "srun":
            said = asked(cluster, uid, "srun", "-J", name, f"--gres=gpu:{gpus}", "sh", "-c",
                         f"{script}; echo $SLURM_JOB_ID")  # fmt: skip
            return {said.strip(): gpus}
        case "sbatch":
            own = ("-o", "log-%j.out", "-J", name, f"--gres=gpu:{gpus}", f"--wrap={script}")
            return {asked(cluster, uid, "sbatch", "--parsable", *own).strip(): gpus}
        case "array":
            of_array = ("-o", "/dev/null", "--array=0-2", f"--gres=gpu:{gpus}", f"--wrap={script}")
            job = asked(cluster, uid, "sbatch", "--parsable", *of_array).strip()
            return {f"{job}_{task}": gpus for task in range(3)}
    told = asked(cluster, uid, "run", "--json", "--gpus", str(gpus), "--", "sh", "-c", script)
    return {str(json.loads(told)["job_id"]): gpus}


def slurms(cluster: Cluster) -> dict[str, tuple[str, float, float]]:
    """What slurmctld says of jobs that have ended: user, start and end."""
    told = json.loads(cluster.said("squeue", "--json", "-a", "-t", "all"))
    found: dict[str, tuple[str, float, float]] = {}
    for job in told["jobs"]:
        task: Mapping[str, Any] = job["array_task_id"]
        name = (
            f"{job['array_job_id']['number']}_{task['number']}"
            if task["set"]
            else str(job["job_id"])
        )
        state = job["job_state"]
        if not {"PENDING", "RUNNING", "COMPLETING"} & set(state):
            found[name] = (job["user_name"], job["start_time"]["number"], job["end_time"]["number"])
    return found


def sampler_pid(cluster: Cluster) -> str:
    return cluster.said("pgrep", "-f", "^/usr/bin/python3 .*dshpc-node sample-use").strip()


def test_gpu_seconds_are_those_of_a_ledger(fresh: Cluster) -> None:
    """Of random jobs of two users; who watches is killed meanwhile, and then the container is."""
    fresh.configure("--simulate", "h100:2").good()
    for uid in UIDS:
        (fresh.work / f"of{uid}").mkdir()
        os.chown(fresh.work / f"of{uid}", uid, uid)
    chance = random.Random(7)
    kept: dict[str, tuple[int, int]] = {}
    wait_until(lambda: fresh.exec("pgrep", "-f", "sample-use").code == 0, "it watches")
    for round_ in range(10):
        uid = chance.choice(UIDS)
        kept.update({job: (uid, gpus) for job, gpus in submitted(fresh, uid, chance).items()})
        if round_ == 5:
            fresh.said("kill", "-9", sampler_pid(fresh))
    wait_until(lambda: kept.keys() <= slurms(fresh).keys(), "all have ended", 180)
    told = slurms(fresh)
    held = {job: gpus * (told[job][2] - told[job][1]) for job, (_, gpus) in kept.items()}

    def written() -> bool:
        found = {uid: listed(fresh, uid) for uid in UIDS}
        return all(found[uid][job]["use"] is not None for job, (uid, _) in kept.items())

    wait_until(written, "all are written down")
    for uid in UIDS:
        mine = {job for job, (of, _) in kept.items() if of == uid}
        found = listed(fresh, uid)
        others = {job for job, one in found.items() if one["use"] is not None} - mine
        assert not others, "what others' jobs use is not told"
        for job in mine:
            assert abs(found[job]["use"]["gpu_seconds"] - held[job]) <= 1.0
            assert len({gpu["index"] for gpu in found[job]["gpus"]}) == kept[job][1]
            assert {(gpu["type"], gpu["node"]) for gpu in found[job]["gpus"]} == {
                ("h100", fresh.prefix)
            }
            assert found[job]["use"]["peak_memory_mib"] > 0
            assert found[job]["exit_code"] == 0

    def hours() -> dict[str, float]:
        report = json.loads(fresh.dshpc("usage", "--json").good().stdout)
        assert report["schema"] == "dshpc.usage/1"
        return {row["user"]: row["gpu_seconds_held"] for row in report["rows"]}

    users = {told[job][0] for job in kept}
    wanted = {user: sum(held[job] for job in held if told[job][0] == user) for user in users}
    assert hours() == pytest.approx(wanted, abs=len(held))
    page = documented("docs/how-to/usage.md", "dshpc usage").lines
    table = fresh.dshpc("usage").good().stdout.splitlines()
    assert table[0].split() == page[0].split()
    numbers = r"\S+ +\d+ +\d+\.\d\d +0\.00 +- +-"  # made-up GPUs measure nothing
    assert all(re.fullmatch(numbers, line) for line in (*table[1:], *page[1:]))
    for way, key in (("gpu-type", "h100"), ("week", time.strftime("%G-W%V", time.gmtime()))):
        rows = fresh.dshpc("usage", "--by", way, "--csv").good().stdout.splitlines()
        assert rows[0].startswith(f"{way.replace('-', '_')},jobs,gpu_seconds_held,")
        assert rows[1].startswith(f"{key},{len(kept)},")
    methods = json.loads(fresh.dshpc("usage", "--by", "method", "--json").good().stdout)
    assert sum(row["jobs"] for row in methods["rows"]) == len(kept)

    # No job reads of others, or stops who watches
    files = (
        f"{STATE}/{name}" for name in ("live.json", "ledger/*", f"of/{UIDS[1]}.jsonl", "run/*")
    )
    spy = f"cat {' '.join(files)}; kill -9 {sampler_pid(fresh)}"
    said = as_user(UIDS[0], "dshpc", "srun", "sh", "-c", f"{spy}; ls {STATE}/of",
                   cwd=fresh.work / f"of{UIDS[0]}")  # fmt: skip
    assert (said.stdout, said.stderr.count("ermission")) == ("", 5), said.stderr

    before = hours()
    fresh.engine.said("kill", fresh.container)
    fresh.dshpc("up", "--yes").good()
    assert hours() == before
    # Slurm has forgotten nothing yet; what is kept does not hang on it
    plain = next(job for job in kept if told[job][0] and "_" not in job)
    fresh.said("sh", "-c", ": >/var/lib/dshpc/state/jobcomp/jobs.log")
    assert listed(fresh, kept[plain][0])[plain]["use"] is not None


SERVICE = "/run/dshpc/services/use"
IDLE = "until [ -e never ]; do sleep 0.5; done"
_EARLIER = """
import pathlib
pathlib.Path("live.json").unlink(missing_ok=True)
for notes in pathlib.Path("run").iterdir():
    words = (line.split(" ") for line in notes.read_text().splitlines())
    lines = [" ".join((*each[:2], str(int(each[2]) - 60), *each[3:])) for each in words]
    notes.write_text("\\n".join(lines) + "\\n")
"""


def seen_by_the_stand_in(cluster: Cluster, library: Path, used: Sequence[int]) -> None:
    """The service takes the made-up GPUs for real ones, which a real library says are `used` so much; and
    what runs has begun a minute earlier."""
    facts = json.loads(cluster.said("cat", f"{STATE}/../facts.json"))
    cards = (
        CARD.format(gpu["index"], 10, percent, 1000).replace(
            f"uuid=GPU-{gpu['index']}", f"uuid={gpu['uuid']}"
        )
        for gpu, percent in zip(facts["gpus"]["devices"], used, strict=True)
    )
    says(cluster.work, *cards)
    copied = cluster.work / "libnvidia-ml.so.1"
    copied.write_bytes((library / copied.name).read_bytes())
    facts["gpus"]["simulated"] = False
    (cluster.work / "facts.json").write_text(json.dumps(facts))
    cluster.said("cp", f"{cluster.work}/facts.json", f"{STATE}/../facts.json")
    words = f"export LD_LIBRARY_PATH={cluster.work} DSHPC_STANDIN_NVML={cluster.work}/nvml.txt"
    cluster.said("sed", "-i", f"2i {words}", f"{SERVICE}/run")
    cluster.said("s6-svc", "-wd", "-T", "60000", "-d", SERVICE)
    cluster.said("sh", "-euc", 'cd "$1"; exec python3 -c "$2"', "sh", STATE, _EARLIER)
    cluster.said("s6-svc", "-wu", "-T", "60000", "-u", SERVICE)


@pytest.mark.engines("builtin", "docker")
def test_who_idles_is_named_told_and_ended_and_who_works_is_not(
    engine: Engine, standards: Standards, library: Path
) -> None:
    """On a cluster: a batch job and an srun that never use their GPU, and a job that does."""
    standards(engine)  # whose image it has
    with made("idles", engine=engine) as cluster:
        release = ("--idle-gpu", "1m", "--release-idle", "1m")
        cluster.configure("--simulate", "h100:3", *release).good()
        works = cluster.submit("--gres=gpu:1", script=IDLE)
        wait_until(lambda: cluster.job_state(works)[0] == "RUNNING", "the first GPU is held")
        idles = cluster.submit("--gres=gpu:1", "--requeue", script=IDLE)
        wait_until(lambda: cluster.job_state(idles)[0] == "RUNNING", "the second one is")
        argv = ("srun", "--gres=gpu:1", "-D", str(cluster.work), "sh", "-c", f"echo began; {IDLE}")
        step = subprocess.Popen(cluster.within(*argv), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)  # fmt: skip
        try:
            wait_until(lambda: len(cluster.said("ls", f"{STATE}/run").split()) == 3, "all run")
            seen_by_the_stand_in(cluster, library, (50, 0, 0))
            wait_until(lambda: "the job is ended in" in cluster.output(idles), "it is told", 90)
            assert cluster.job_state(idles)[0] == "RUNNING", "it has time to use its GPU"
            found = named(cluster)
            assert idles in found
            assert len(found) == 2
            assert works not in found
            wait_until(lambda: cluster.job_state(idles)[0] == "CANCELLED", "it is ended", 90)
            said = step.communicate(timeout=60)
        finally:
            step.kill()
        assert step.returncode != 0
        assert said[0] == "began\n"
        for told in (cluster.output(idles), said[1]):
            assert "setting release_idle: 1m" in told
            assert told.index("is ended in") < told.index(
                "the job is ended: its GPUs have not been used"
            )
        assert cluster.job_state(works)[0] == "RUNNING"
        assert "idle" not in cluster.output(works)
        cluster.said("scancel", works)

        def written() -> dict[str, Any]:
            jobs = json.loads(cluster.dshpc("job", "list", "--all", "--json").good().stdout)["jobs"]
            return {job["id"]: job["use"] for job in jobs if job["use"] is not None}

        wait_until(lambda: {works, idles} <= written().keys(), "what they have used is known")
        peaks = {job: written()[job]["gpus"][0]["peak_percent"] for job in (works, idles)}
        assert peaks == {works: 50, idles: 0}
        (row,) = json.loads(cluster.dshpc("usage", "--json").good().stdout)["rows"]
        assert 0 < row["gpu_seconds_used"] < row["gpu_seconds_measured"]


def named(cluster: Cluster) -> set[str]:
    """Jobs whose GPUs `status`, `gpus`, `doctor` and the metrics call idle: the same ones."""
    told = json.loads(cluster.dshpc("status", "--json").stdout)["idle_gpus"]
    jobs = {each["job"] for each in told}
    gpus = json.loads(cluster.dshpc("gpus", "--json").stdout)
    assert {each["job"] for each in gpus["idle_gpus"]} == jobs
    doctor = json.loads(cluster.dshpc("doctor", "--json", "--only", "DSH-SL-058").stdout)
    (found,) = (each for each in doctor["findings"] if each["id"] == "DSH-SL-058")
    assert found["state"] == "warn"
    assert all(f"job {job} " in "\n".join(found["evidence"]) for job in jobs)
    idle = re.findall(r"(?m)^dshpc_gpu_idle_seconds\{", cluster.dshpc("metrics").stdout)
    assert len(idle) == len(jobs)
    return jobs
