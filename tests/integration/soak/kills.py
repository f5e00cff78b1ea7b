"""Jobs that are submitted while things die, and a ledger of its own: acknowledged, begun, ended.

A job writes `begin` and `end` with its number into work/NAME; whoever submitted it notes the number that
he was told. The ledger is judged at the end, when nothing runs any more.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dshpc_setup.jobs.request import SCHEMA
from tests.integration.cluster import as_root
from tests.integration.second_engine import SecondEngine

UID = 4321
_PERIOD_S = 0.5
_MOMENT_S = (
    0.5  # between a script's last command and the line that it has ended, on a machine that is busy
)
_SCRIPT = """#!/bin/sh
echo "begin $SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}}" >>{file}
sleep {seconds} || exit 1 # a kill may end it before it ends this shell: that is no end of the job
echo "end $SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}} $(date +%s.%N)" >>{file}
"""
_LAST = 'echo "end '
_AS_USER = ("/usr/local/lib/dshpc/as-user", "TOKEN", str(UID), str(UID), "soak", "--")


@dataclass(frozen=True)
class Verdict:
    """Names of jobs, and numbers that two of them had."""

    acknowledged: int
    cut_off: int  # kills that took the container, and all that ran in it
    lost: dict[str, str]  # name -> number
    twice: dict[str, list[str]]  # name -> its lines
    # The same, of those that ended as their container was killed, and that the start said it had requeued
    in_the_moment: dict[str, list[str]]
    reused: dict[str, list[str]]  # number -> names
    begun_again: int

    @property
    def is_kept(self) -> bool:
        """All that is promised. A script whose end falls into the moment in which its container is killed may
        run again (docs/security.md): a few do, and their start has said so."""
        few = len(self.in_the_moment) <= max(2, self.cut_off // 8)
        return few and not (self.lost or self.twice or self.reused)

    def __str__(self) -> str:
        return (
            f"{self.acknowledged} acknowledged, {len(self.lost)} lost, {len(self.twice)} run twice, "
            f"{len(self.reused)} ids given twice; {len(self.in_the_moment)} run twice of those that "
            f"ended as one of {self.cut_off} kills took the container, and said to be requeued; "
            f"{self.begun_again} begun again\n{self.lost} {self.twice} {self.reused} "
            f"{self.in_the_moment}"
        )


@dataclass
class Kills:
    """`name` is the container, `work` the folder that it shares with this machine."""

    name: str
    work: Path
    choose: random.Random
    acknowledged: dict[str, str] = field(default_factory=dict)
    count: int = 0
    moments: list[tuple[float, float]] = field(default_factory=list)  # of kills of the container
    events: list[str] = field(default_factory=list)
    requeued: set[str] = field(default_factory=set)  # numbers, as each start has told them
    engine: SecondEngine | None = None  # where its death is to be among the kills

    def run(self, *argv: str, given: str = "", timeout_s: float = 90) -> str:
        """What it printed; "" where it failed, as it may in the moment of a kill."""
        done = subprocess.run(
            ["docker", "exec", "-i", "-w", str(self.work), self.name, *argv],
            input=given, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        return done.stdout.strip() if done.returncode == 0 else ""

    # Jobs

    def submit(self) -> None:
        """One job by one of the three ways, of root or of a user."""
        self.count += 1
        name = f"j{self.count}"
        seconds = round(self.choose.uniform(0.05, 1.0), 2)
        way = self.choose.choice((self._sbatch, self._within, self.launch))
        way(name, _SCRIPT.format(file=self.work / name, seconds=seconds))

    def _options(self) -> tuple[str, ...]:
        output = f"--output={self.work}/log.%j"
        return "sbatch", "--parsable", "--mem=16", "-n1", output, "--open-mode=append"

    def _sbatch(self, name: str, script: str) -> None:
        is_root = self.choose.random() < 0.5
        user = () if is_root else tuple(name if word == "TOKEN" else word for word in _AS_USER)
        self._note(name, self.run(*user, *self._options(), given=script))

    def _within(self, name: str, script: str) -> None:
        """A job that submits another one, and notes itself what it was told."""
        # One that begins anew submits another one: the second has a name of its own
        own = f"{self.work}/{name}i${{SLURM_RESTART_COUNT:-0}}"
        script_of_own = _SCRIPT.format(file="$FILE", seconds=0.1)
        inner = self.work / f"{name}.inner"
        inner.write_text(script_of_own)
        order = " ".join((*self._options(), f'--export=ALL,FILE="{own}"', str(inner)))
        told = f'id=$({order}) && [ -n "$id" ] && echo "$id" >>{own}.told\n'
        # Before its last line, so that the job's end is that line's
        before, last, rest = script.partition(_LAST)
        self._note(name, self.run(*self._options(), given=before + told + last + rest))

    def launch(self, name: str, script: str) -> None:
        """As `dshpc run` does."""
        request = {
            "schema": SCHEMA, "name": name, "kind": "command", "argv": ["sh", "-c", script],
            "work": str(self.work), "cwd": str(self.work), "resources": {"memory_mb": 16},
            "parameters": [{}], "inputs": [], "targets": [], "utc_offset_s": 0,
        }  # fmt: skip
        answer = self.run("dshpc-node", "job", "submit", given=json.dumps(request))
        self._note(name, str(json.loads(answer)["job_id"]) if answer else "")

    def _note(self, name: str, number: str) -> None:
        if number.isdecimal():
            self.acknowledged[name] = number

    @contextmanager
    def submitting(self) -> Iterator[None]:
        """Two a second, on and on."""
        over = threading.Event()

        def submit() -> None:
            while not over.is_set():
                began = time.monotonic()
                self.submit()
                over.wait(max(0.0, _PERIOD_S - (time.monotonic() - began)))

        thread = threading.Thread(target=submit)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    # Kills

    def kill(self, what: str) -> None:
        """One of `WHAT`; it is up again when this returns, or will be by itself."""
        self.events.append(f"{time.time():.3f} {what}")
        if what in ("slurmctld", "slurmd"):
            pid = self.run("s6-svstat", "-o", "pid", f"/run/dshpc/services/{what}")
            if pid.isdecimal():
                self.run("kill", "-9", pid)
            return
        with self.cut_off(what):
            if what == ENGINE:
                assert self.engine is not None
                self.engine.kill()
                self.engine.start()
                self._docker("start")  # as `dshpc up` does
                return
            if what == "restart":
                self._docker("restart", "-t", "0")
                return
            if what == "supervisor":
                pid = self._docker("inspect", "--format", "{{.State.Pid}}")
                subprocess.run(as_root("kill", "-9", pid), check=True)  # and all others with it
                until = time.monotonic() + 90
                # Not `docker wait`: an engine that starts it again may have done so before that asks
                while self._docker("inspect", "--format", "{{.State.Pid}}") == pid:
                    assert time.monotonic() < until, "the engine does not see that it has ended"
                    time.sleep(0.1)
            else:
                self._docker("kill")
            self._docker("start")

    def _docker(self, *words: str) -> str:
        argv = ["docker", *words, self.name]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @contextmanager
    def cut_off(self, what: str) -> Iterator[None]:
        """Around what kills the container and starts it again; waits until its node is ready."""
        began = time.time()
        yield
        self.moments.append((began - _MOMENT_S, time.time()))
        argv = ["docker", "exec", self.name, "dshpc-node", "wait", "--timeout", "80"]
        until = time.monotonic() + 60
        while True:
            ready = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
            if ready.returncode == 0 or time.monotonic() > until:
                break
            time.sleep(0.5)
        if ready.returncode != 0:
            subprocess.run(["docker", "logs", "--tail", "60", self.name], check=False)
        assert ready.returncode == 0, f"no start after {what}: {ready.stdout}{ready.stderr}"
        self.requeued.update(json.loads(ready.stdout)["interrupted"]["requeued"])

    # The ledger

    def judge(self) -> Verdict:
        begun: dict[str, list[str]] = defaultdict(list)
        ended: dict[str, list[str]] = defaultdict(list)
        for path in self.work.iterdir():
            if path.suffix == ".told":
                numbers = path.read_text().split()
                if numbers:
                    self.acknowledged[path.stem] = numbers[-1]
            elif path.name[:1] == "j" and not path.suffix and path.is_file():
                for line in path.read_text().splitlines():
                    (begun if line.startswith("begin") else ended)[path.name].append(line)
        names: dict[str, set[str]] = defaultdict(set)
        for name, number in self.acknowledged.items():
            names[number].add(name)
        for name, lines in begun.items():
            for line in lines:
                names[line.split()[1]].add(name)
        several = {name: lines for name, lines in ended.items() if len(lines) > 1}
        twice = {name: lines for name, lines in several.items() if not self._in_a_moment(lines)}
        return Verdict(
            len(self.acknowledged),
            len(self.moments),
            {name: number for name, number in self.acknowledged.items() if name not in ended},
            twice,
            {name: lines for name, lines in several.items() if name not in twice},
            {number: sorted(all_) for number, all_ in names.items() if len(all_) > 1},
            sum(len(lines) > 1 for lines in begun.values()),
        )

    def _in_a_moment(self, ends: list[str]) -> bool:
        """Whether each end but the last came as the container was being killed, and was told."""
        told = all(line.split()[1] in self.requeued for line in ends)
        times = [float(line.split()[3]) for line in ends[:-1]]
        return told and all(any(a <= at <= b for a, b in self.moments) for at in times)

    def wait_empty(self, until: Callable[[], float], seconds: float) -> None:
        """Until the queue is empty; `until` is a clock."""
        limit = until() + seconds
        while self.run("sh", "-c", "squeue -h | wc -l") != "0":
            assert until() < limit, self.run("squeue", "-h", "-o", "%i %T %r %S")
            time.sleep(0.3)


WHAT = ("slurmctld", "slurmd", "container", "restart", "supervisor")
ENGINE = "engine"  # takes one of our own: nobody else's containers are in it


def counted(kills: list[str]) -> str:
    return ", ".join(f"{count} of {what}" for what, count in sorted(Counter(kills).items()))
