"""Three machines, and what happens to them: wrong clocks, keys and users, and random events, jobs counted.

A sample of that life, and 20 events with --full. `DSHPC_LAN_SEED` repeats one that failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.cluster import PREFIX, Cluster, Outcome, wait_until
from tests.integration.engines import Engine
from tests.integration.lan import Member, address, needs_namespaces, network

pytestmark = [
    pytest.mark.engines(
        "builtin",
        why="each machine needs an engine with a store of its own, and this one is a folder",
    ),
    pytest.mark.timeout(5400),
]
NAME = f"{PREFIX}faults"
CONTAINER = f"{NAME}-slurm"
UID = "4712"
# A job whose node has failed waits for 121 s, the life of its credential, before it may begin again
_BACK_S = 400
_DOWN_S = 20  # so long a node is waited for
_JOB = (
    'echo "begin $SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}}" >>{ledger}; sleep {seconds}; '
    'echo "end $SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}}" >>{ledger}'
)


@dataclass
class Lab:
    """A controller and two machines that join it as `lab2` and `lab3`; `image`: a file."""

    first: Member
    others: dict[str, Member]
    image: Path
    gpus: dict[str, int] = field(default_factory=lambda: {"lab2": 1, "lab3": 1})

    def token(self) -> str:
        line, *_ = self.first.said("node", "token").splitlines()
        return line.split()[-1]

    def join(
        self, node: str, *words: str, token: str = "", before: tuple[str, ...] = ()
    ) -> Outcome:
        flags = (
            "--join",
            token or self.token(),
            "--node-name",
            node,
            "--image-file",
            str(self.image),
        )
        simulated = ("--simulate", f"t4:{self.gpus[node]}", "--stop-jobs")
        return self.others[node].configure(*flags, *simulated, *words, before=before)

    def state(self, node: str) -> str:
        return self.first.dshpc("sinfo", "-h", "-n", node, "-o", "%T").stdout.strip()

    def is_back(self, node: str) -> bool:
        return self.state(node) in ("idle", "mixed", "allocated", "completing", "planned")

    def all_back(self) -> bool:
        return all(map(self.is_back, self.others))

    def seen(self) -> str:
        """What tells why something did not come: nodes, jobs, and the ends of the logs."""
        asked = (("scontrol", "show", "nodes"), ("scontrol", "show", "jobs"), ("logs", "-n", "40"))
        said = [self.first.dshpc(*words).stdout for words in asked]
        said += [each.dshpc("logs", "-n", "40").stdout for each in self.others.values()]
        return "\n".join(said)

    def job_state(self, job: str) -> str:
        return self.first.said("squeue", "-h", "-t", "all", "-j", job, "-o", "%T")


@pytest.fixture(scope="module")
def lab(
    engine: Engine, standard: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    needs_namespaces()
    image = tmp_path_factory.mktemp("image") / "image.tar.gz"
    standard.dshpc("image", "save", str(image)).good()
    with network("f1", "f2", "f3") as (first, second, third):
        first.configure(
            "--prefix", NAME, "--simulate", "h100:1", "--listen", "eth0", "--image-file", str(image),
            "--slurm-conf-extra", f"SlurmdTimeout={_DOWN_S}",
        ).good()  # fmt: skip
        made = Lab(first, {"lab2": second, "lab3": third}, image)
        token = made.token()
        for node in made.others:
            made.join(node, token=token).good()
        yield made


@pytest.fixture(scope="module")
def faketime() -> Path:
    """The library that tells the programs which preload it another time."""
    names = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
    paths = [Path(name) / "faketime/libfaketime.so.1" for name in names]
    if not any(path.exists() for path in paths):
        apt = ["apt-get", "-q", "-y", "--no-install-recommends", "install", "libfaketime"]
        subprocess.run(apt, check=True, timeout=300, stdin=subprocess.DEVNULL, capture_output=True)
    return next(path for path in paths if path.exists())


def test_a_machine_whose_clock_is_wrong_does_not_join(lab: Lab, faketime: Path) -> None:
    wrong = ("env", f"LD_PRELOAD={faketime}", "FAKETIME=+30s", "DONT_FAKE_MONOTONIC=1")
    done = lab.join("lab2", before=wrong)
    assert done.code == 2, done
    told = json.loads(done.stdout)["error"]["brief"]
    assert re.fullmatch(r"This machine's clock is (29|30|31) s ahead of the controller's\.", told)
    assert lab.is_back("lab2")


@contextlib.contextmanager
def clock_of(member: Member, faketime: Path, offset: str) -> Iterator[None]:
    """All programs that begin in that container have another time, its slurmd first."""
    shutil.copy(faketime, member.folder / "libfaketime.so.1")
    work = json.loads((member.folder / ".dshpc/runtime.json").read_text())["work"]
    shutil.copy(faketime, Path(work) / "libfaketime.so.1")
    member.root("cp", f"{work}/libfaketime.so.1", "/usr/lib/libfaketime.so.1")
    member.root("sh", "-c", f"echo '{offset}' >/etc/faketimerc")
    member.root("sh", "-c", "echo /usr/lib/libfaketime.so.1 >/etc/ld.so.preload")
    try:
        member.root("pkill", "-KILL", "-x", "slurmd")
        yield
    finally:
        member.root("rm", "/etc/ld.so.preload", "/etc/faketimerc")
        member.root("pkill", "-KILL", "-x", "slurmd")


@contextlib.contextmanager
def other_key(member: Member) -> Iterator[None]:
    told = json.loads(member.root("cat", "/var/lib/dshpc/key/slurm.key"))
    other = json.dumps({"keys": [{**told["keys"][0], "k": "A" * 43 + "="}]})
    member.root("sh", "-c", f"echo '{other}' >/var/lib/dshpc/key/slurm.key")
    member.root("pkill", "-KILL", "-x", "slurmd")
    yield


def test_a_wrong_clock_and_a_wrong_key_put_a_node_out_and_lose_no_job(
    lab: Lab, faketime: Path
) -> None:
    """Slurm believes nothing that is signed a minute off, or otherwise. doctor there says what it is."""
    clock, key = lab.others["lab2"], lab.others["lab3"]
    job = lab.first.said(
        "sbatch", "--parsable", "-w", "lab2", "-o", "/dev/null", "--wrap", "sleep 5"
    )
    with clock_of(clock, faketime, "+120"), other_key(key):
        for node in lab.others:
            wait_until(lambda node=node: not lab.is_back(node), "it is not believed", _BACK_S)  # type: ignore[misc]
        assert lab.first.said("srun", "hostname") == NAME
        found = json.loads(clock.dshpc("doctor", "--json").stdout)["findings"]
        wrong = {it["id"]: it["title"] for it in found if it["state"] == "error"}
        assert "clock" in " ".join(wrong.values()), wrong
    wait_until(lambda: lab.is_back("lab2"), "it is back by itself", _BACK_S, lab.seen)
    wait_until(lambda: lab.job_state(job) == "COMPLETED", "the job has ended", _BACK_S, lab.seen)
    lab.join("lab3").good()
    assert lab.first.said("srun", "-w", "lab3", "hostname") == "lab3"


def test_a_user_becomes_nobody_else_where_the_name_is_another_users(lab: Lab) -> None:
    """The number counts: who has it is given another name there."""
    lab.first.root("dshpc-node", "add-user", UID, UID, "grace")
    member = lab.others["lab2"]
    member.root("sh", "-c", "echo grace:x:5555:5555::/tmp:/bin/sh >>/etc/passwd")
    as_grace = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups")
    there = lab.first.root(
        *as_grace, "srun", "-w", "lab2", "-D", "/tmp", "sh", "-c", "id -u; id -un; touch /tmp/mine"
    )
    number, name = there.split()
    assert (number, name == "grace") == (UID, False)
    assert member.root("stat", "-c", "%u", "/tmp/mine") == UID


def test_a_node_that_still_has_the_former_run_of_a_job_stays_in_service(lab: Lab) -> None:
    """The node was away as its job was queued again. It refuses the next run, and the job waits once more."""
    first, member = lab.first, lab.others["lab2"]
    ledger = first.folder / "work" / "again"
    script = _JOB.format(ledger=ledger, seconds=5)
    words = ("--parsable", "-w", "lab2", "--mem=10", "-o", "/dev/null", "--wrap", script)
    job = first.said("sbatch", *words)
    wait_until(ledger.exists, "it has begun", _BACK_S, lab.seen)
    with member.unplugged():
        first.root("scontrol", "update", "NodeName=lab2", "State=DOWN", "Reason=unplugged")
        wait_until(lambda: lab.job_state(job) == "PENDING", "it is queued again", 60, lab.seen)
        first.root("scontrol", "update", f"JobId={job}", "StartTime=now")
        wait_until(lambda: "end" in ledger.read_text(), "its first run has ended", 60, lab.seen)
    refused = f"Job {job} already running, do not launch second copy"
    said = lambda: refused in member.dshpc("logs", "-n", "40").stdout  # noqa: E731
    wait_until(said, "the node has refused it", 60, lab.seen)
    wait_until(lambda: lab.job_state(job) == "PENDING", "it waits once more", 60, lab.seen)
    assert lab.is_back("lab2"), lab.seen()
    time.sleep(1.1)  # its credential is of another second than the end of the former run
    first.root("scontrol", "update", f"JobId={job}", "StartTime=now")
    wait_until(lambda: lab.job_state(job) == "COMPLETED", "it has ended", 60, lab.seen)
    assert lab.is_back("lab2")
    assert ledger.read_text().splitlines()[-1] == f"end {job} 2"


# A random life


@dataclass
class Life:
    """Jobs that write down each of their runs, while things happen to the machines."""

    lab: Lab
    choose: random.Random
    away_s: float
    jobs: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    addresses: int = 100

    @property
    def ledger(self) -> Path:
        return self.lab.first.folder / "work" / "ledger"

    def submit(self, count: int) -> None:
        for _ in range(count):
            script = _JOB.format(ledger=self.ledger, seconds=self.choose.randint(0, 12))
            words = ["sbatch", "--parsable", "-n1", "--mem=10", "-o", "/dev/null", "--wrap", script]
            if self.choose.random() < 0.5:
                words[1:1] = [f"--gres=gpu:{self.choose.choice(['t4', 'h100'])}:1"]
            wait_until(lambda words=words: self._submitted(words), "it is taken", _BACK_S)  # type: ignore[misc]

    def _submitted(self, words: list[str]) -> bool:
        done = self.lab.first.dshpc(*words)
        if done.code == 0:
            self.jobs.append(done.stdout.strip())
        return done.code == 0

    def unplugged(self) -> None:
        node = self.choose.choice(list(self.lab.others))
        with self.lab.others[node].unplugged():
            time.sleep(self.away_s)

    def killed(self) -> None:
        self.lab.first.kill(CONTAINER)
        wait_until(lambda: self.lab.first.dshpc("sinfo").code == 0, "it is back by itself", _BACK_S)

    def node_killed(self) -> None:
        node = self.choose.choice(list(self.lab.others))
        self.lab.others[node].kill(CONTAINER)

    def other_hardware(self) -> None:
        node = self.choose.choice(list(self.lab.others))
        self.lab.gpus[node] = 3 - self.lab.gpus[node]
        words = ("--simulate", f"t4:{self.lab.gpus[node]}", "--no-build", "--stop-jobs")
        self._settled()
        self.lab.others[node].configure(*words).good()

    def left_and_back(self) -> None:
        """What is removed has no key any more, nor have the others: all join anew."""
        node = self.choose.choice(list(self.lab.others))
        self._settled()
        self.lab.first.said("node", "remove", node, "--stop-jobs", "--yes")
        assert self.lab.state(node) == ""
        self._join_all()

    def controller_moved(self) -> None:
        self.addresses += 1
        self.lab.first.said("node", "token", "--revoke")
        self.lab.first = self.lab.first.move(address(self.addresses))
        done = self.lab.first.dshpc("restart", "--stop-jobs", "--yes")
        assert re.search("(?m)^Start +ready$", done.stdout), done  # 2 where a node was away before
        self._join_all()

    def _join_all(self) -> None:
        token = self.lab.token()
        for node in self.lab.others:
            self.lab.join(node, token=token).good()

    def _settled(self) -> None:
        wait_until(self.lab.all_back, "all are back", _BACK_S, self.lab.seen)

    def count(self) -> None:
        """Each job has run to its end, and each of its runs began once."""
        self._settled()
        left = ("squeue", "-h", "-t", "PD,R,CG", "-o", "%i %T %r %N")
        none = "all jobs have ended"
        wait_until(lambda: self.lab.first.said(*left) == "", none, 600, self.lab.seen)
        lines = [line.split() for line in self.ledger.read_text().splitlines()]
        for job in self.jobs:
            began = sorted(int(run) for word, own, run in lines if (word, own) == ("begin", job))
            ended = {int(run) for word, own, run in lines if (word, own) == ("end", job)}
            assert began, (job, "has never run", self.told)
            assert len(began) == len(set(began)), (job, "ran twice under one number", self.told)
            assert max(ended, default=-1) == max(began), (job, "has not ended", self.told)


def test_none_is_lost_and_none_runs_twice_but_by_requeue(lab: Lab, full: bool) -> None:
    seed = int(os.environ.get("DSHPC_LAN_SEED", "0") or 0)
    choose = random.Random(seed)
    life = Life(lab, choose, away_s=120.0 if full else 1.5 * _DOWN_S)
    events = ["unplugged", "killed", "node_killed", "other_hardware"]
    choose.shuffle(events)
    events += ["left_and_back"]
    if full:
        events += ["controller_moved"]
        events += choose.choices([*events], k=20 - len(events))
    life.submit(4)
    for event in events:
        life.told.append(event)
        life.submit(2)
        getattr(life, event)()
    life.submit(2)
    life.count()
