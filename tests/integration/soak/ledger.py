"""Jobs with a known fate: each is in the queue, or its output file proves that it ran well.

A job writes one line to work/done.NAME as the last thing it does: its id, and how many GPUs CUDA and
ROCm programs would see in it. `--requeue` jobs may run twice, and then write two lines.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.soak.hardware import Hardware
from tests.integration.soak.node import Node

RUN_S = 120  # until a job runs that can
END_S = 90
ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED")

_SCRIPT = """
set -eu
{body}
count() {{ echo "$1" | tr , '\\n' | grep -cE '[0-9]' || :; }}
echo "$SLURM_JOB_ID $(count "${{CUDA_VISIBLE_DEVICES:-}}") $(count "${{ROCR_VISIBLE_DEVICES:-}}")" \\
    >>{done}
"""


@dataclass(frozen=True)
class Job:
    name: str
    id: str
    kind: str | None  # GPU type; "" any; None no GPU
    gpus: int
    cpus: int
    memory_mib: int
    waits: bool  # until work/go.NAME is there

    def fits(self, hardware: Hardware, memory_mib: int) -> bool:
        """Whether the machine has what it asks for; `memory_mib` is what the node has for jobs."""
        have = hardware.gres.get(self.kind, 0) if self.kind else sum(hardware.gres.values())
        enough = self.cpus <= hardware.cpu_count and self.memory_mib <= memory_mib
        return enough and (self.kind is None or self.gpus <= have)


@dataclass
class Ledger:
    node: Node
    work: Path
    choose: random.Random
    jobs: dict[str, Job] = field(default_factory=dict)  # not yet proven to have run
    held: set[str] = field(default_factory=set)
    could: set[str] = field(default_factory=set)  # run since the last check
    count: int = 0
    proven: int = 0

    def queue(self, hardware: Hardware, memory_mib: int) -> None:
        """Some jobs that this machine can run: at once, later, or when they are let go."""
        self._submit(hardware, memory_mib)
        self._release_some()
        self.could = {
            name
            for name, job in self.jobs.items()
            if name not in self.held and job.fits(hardware, memory_mib)
        }

    def _submit(self, hardware: Hardware, memory_mib: int) -> None:
        for _ in range(self.choose.randint(2, 4)):
            kind, gpus = self._gpus(hardware)
            cpus = self.choose.randint(1, hardware.cpu_count)
            memory = self.choose.choice([16, 16, 16, 700, 1500, 3000])
            self._one(kind, gpus, cpus, memory if memory <= memory_mib else 16)

    def _gpus(self, hardware: Hardware) -> tuple[str | None, int]:
        if not hardware.gres or self.choose.random() < 0.35:
            return None, 0
        if self.choose.random() < 0.3:
            return "", 1
        kind = self.choose.choice(sorted(hardware.gres))
        return kind, self.choose.randint(1, hardware.gres[kind])

    def _one(self, kind: str | None, gpus: int, cpus: int, memory_mib: int) -> None:
        self.count += 1
        name = f"j{self.count}"
        hold = self.choose.random() < 0.35
        waits = not hold and self.choose.random() < 0.3
        go = self.work / f"go.{name}"
        body = f"until [ -e {go} ]; do sleep 0.1; done" if waits else "sleep 0.1"
        options = [f"--job-name={name}", f"--mem={memory_mib}", "-n1", f"-c{cpus}", "--requeue"]
        if kind is not None:
            options.append(f"--gres=gpu:{kind}:{gpus}" if kind else f"--gres=gpu:{gpus}")
        if hold:
            options.append("--hold")
        script = _SCRIPT.format(body=body, done=self.work / f"done.{name}")
        output = ["-o", str(self.work / f"out.{name}"), "--open-mode=append", "-D", str(self.work)]
        job = self.node.said("sbatch", "--parsable", *options, *output, "--wrap", script)
        self.jobs[name] = Job(name, job, kind, gpus, cpus, memory_mib, waits)
        if hold:
            self.held.add(name)

    def _release_some(self) -> None:
        """Held ones, and those that wait; some of them a second time at a later start."""
        let_go = [name for name in sorted(self.held) if self.choose.random() < 0.5]
        self._let_go(let_go)

    def release_all(self) -> None:
        self._let_go(sorted(self.held))

    def _let_go(self, names: list[str]) -> None:
        """A job that this machine cannot run is let go as well, with a complaint."""
        if not names:
            return
        said = self.node.exec("scontrol", "release", ",".join(self.jobs[name].id for name in names))
        assert said.code == 0 or "configuration not available now" in said.stderr, said.stderr
        states = self.node.states()
        still = [name for name in names if states[self.jobs[name].id][1] == "JobHeldUser"]
        assert not still, (still, said.stderr)
        self.held -= set(names)

    def check(self, hardware: Hardware, memory_mib: int) -> None:
        """None is lost; every one that the machine can run does run, and no other one."""
        for job in self.jobs.values():
            (self.work / f"go.{job.name}").touch()
        can = {
            job.name
            for job in self.jobs.values()
            if job.name not in self.held and job.fits(hardware, memory_mib)
        }
        self._alive()
        self._run(can, hardware)
        for name in sorted(self.jobs):
            if self._lines(name):
                # or before the start, on the machine of that time
                assert name in can | self.could, f"{self.jobs[name]} ran on {hardware}"
                self._proven(name)
        self.could = set()
        self._ended()
        left = self._alive()
        assert {left[job.id][0] for job in self.jobs.values()} <= {"PENDING"}, left

    def _run(self, names: set[str], hardware: Hardware) -> None:
        until = time.monotonic() + RUN_S
        while not all(self._lines(name) for name in names):
            if time.monotonic() > until:
                waiting = [self.jobs[name].id for name in sorted(names) if not self._lines(name)]
                shown = [self.node.exec("scontrol", "show", "job", job).stdout for job in waiting]
                raise AssertionError(
                    "\n".join([f"on {hardware} these do not run:", *shown, self.node.log()])
                )
            time.sleep(0.1)

    def _alive(self) -> Mapping[str, tuple[str, str]]:
        """What slurmctld says of them; each that has not run to its end must be there."""
        states = self.node.states()
        for job in self.jobs.values():
            if not self._lines(job.name):
                state = states.get(job.id, ("lost", ""))
                # it may have ended since
                assert state[0] in ALIVE or self._lines(job.name), (job, state, self._said(job))
        return states

    def _ended(self) -> None:
        """Wait until nothing runs any more."""
        until = time.monotonic() + END_S
        while active := self.node.said("squeue", "-h", "-t", "RUNNING,COMPLETING,CONFIGURING"):
            if time.monotonic() > until:
                shown = self.node.said("scontrol", "show", "job", active.split()[0])
                raise AssertionError(f"it does not end: {shown}\n{self.node.log()}")
            time.sleep(0.1)

    def _lines(self, name: str) -> list[str]:
        path = self.work / f"done.{name}"
        return path.read_text().splitlines() if path.exists() else []

    def _said(self, job: Job) -> str:
        path = self.work / f"out.{job.name}"
        return path.read_text() if path.exists() else "no output"

    def _proven(self, name: str) -> None:
        job = self.jobs.pop(name)
        for line in self._lines(name):
            number, cuda, rocr = line.split()
            seen = int(rocr) if (job.kind or "").startswith("mi") else int(cuda)
            seen = seen if job.kind else max(int(cuda), int(rocr))
            assert (number, seen) == (job.id, job.gpus), (job, line)
        self.proven += 1
