"""Slurm's programs, asked and ordered: the one place that calls squeue, sinfo, scontrol and slurmd -G.

An answer is what the program said and the value that was read from it, None where it gave none. What a
submission or a start waits for is asked in columns (`-O`): `--json` prints every field of every job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from dshpc_setup.engine_client import DOCKER, Client
from dshpc_setup.machine import CommandResult, Machine

if TYPE_CHECKING:  # imports are counted: each submission takes this
    from datetime import datetime

    from dshpc_setup.slurm.gpus import SlurmGpu
    from dshpc_setup.slurm.holders import Holder
    from dshpc_setup.slurm.job_states import SlurmJob
    from dshpc_setup.slurm.longest_wait import Look, Reservation
    from dshpc_setup.slurm.nodes import Node
    from dshpc_setup.slurm.pending import Queue
    from dshpc_setup.slurm.queue_index import Entry

T = TypeVar("T")

_WHOLE = {"SLURM_BITSTR_LEN": "0"}  # else squeue cuts the list of an array's tasks short: squeue(1)
HOLDING = "RUNNING,SUSPENDED,STOPPED,COMPLETING,CONFIGURING,SIGNALING,STAGE_OUT,RESIZING"
"""Job states in which GPUs are held."""


def requeue_argv(ids: Sequence[str]) -> list[str]:
    """For who runs it as the user who asks."""
    return ["scontrol", "requeue", ",".join(ids)]


@dataclass(frozen=True)
class Answer(Generic[T]):
    """`value` is None where the program failed, or said what nobody can read."""

    asked: CommandResult
    value: T | None

    @property
    def ok(self) -> bool:
        return self.value is not None


@dataclass(frozen=True)
class Slurm:
    """The cluster of this machine, or, from the host, that of a container.

    `checked`: raises DshpcError (INCOMPLETE) where the container never ran the program.
    """

    machine: Machine
    container: str | None = None
    checked: bool = False
    engine: Client = DOCKER

    def run(
        self, *argv: str, deadline_s: float, env: Mapping[str, str] | None = None
    ) -> CommandResult:
        if self.container is None:
            return self.machine.run([*argv], deadline_s=deadline_s, env=env)
        done = self.machine.run(self.engine.run_in(self.container, *argv), deadline_s=deadline_s)
        if not self.checked:
            return done
        from dshpc_setup.engine import containers

        return containers.ran(done, self.container)

    # The queue

    def jobs(self, *numbers: int, deadline_s: float) -> Answer[tuple[SlurmJob, ...]]:
        """All that slurmctld knows, also those that have ended lately, or those of these numbers: () where
        it has none of them. Of a long queue the whole is no answer: see `long_queue`."""
        of = ("-j", ",".join(map(str, numbers))) if numbers else ()
        return self._jobs("-t", "all", *of, deadline_s=deadline_s)

    def _jobs(self, *options: str, deadline_s: float) -> Answer[tuple[SlurmJob, ...]]:
        from dshpc_setup import slurm_releases
        from dshpc_setup.slurm import job_states

        asked = self.run("squeue", "--json", "-a", *options, deadline_s=deadline_s, env=_WHOLE)
        if "-j" in options and not asked.ok:
            none = slurm_releases.says("no_such_job").search(asked.text)
            return Answer(asked, () if none else None)
        return Answer(asked, read(job_states.parse, asked))

    def gpus_by_kind(self, number: int, *, deadline_s: float) -> Answer[Mapping[str, int]]:
        """ "gpu:h100" -> how many a job has, or had: of one that has ended no more is known.

        Nothing of a job that slurmctld knows no longer; None where it did not answer.
        """
        from dshpc_setup import slurm_releases

        asked = self.run("scontrol", "-d", "show", "job", str(number), deadline_s=deadline_s)
        is_known = asked.ok or slurm_releases.says("no_such_job").search(asked.text)
        return Answer(asked, _held_by_kind(asked.stdout) if is_known else None)

    def index(self, *, deadline_s: float) -> Answer[tuple[Entry, ...]]:
        """Which jobs there are, in some bytes each, in the order of squeue."""
        from dshpc_setup.slurm import queue_index

        argv = ("squeue", "-h", "-a", "-t", "all", "-o", queue_index.COLUMNS)
        asked = self.run(*argv, deadline_s=deadline_s)
        return Answer(asked, queue_index.parse(asked.stdout) if asked.ok else None)

    def long_queue(
        self, entries: Sequence[Entry], *, deadline_s: float
    ) -> Answer[tuple[SlurmJob, ...]]:
        """These of an index (one or more), asked for in parts, each of which has that long; of a job that
        has gone since, nothing."""
        from dshpc_setup.slurm import queue_index

        first, *others = queue_index.in_parts(entries)
        told = self._jobs(*first, deadline_s=deadline_s)
        found = {job.id: job for job in told.value or ()}
        for part in others:
            if told.value is None:
                return told
            told = self._jobs(*part, deadline_s=deadline_s)
            found.update((job.id, job) for job in told.value or ())
        return told if told.value is None else Answer(told.asked, tuple(found.values()))

    def own_folders(self, *, deadline_s: float) -> Answer[tuple[tuple[str, str], ...]]:
        """(number, folder) of each job of the user who asks; an array once."""
        argv = ("squeue", "-h", "-a", "-t", "all", "--me", "-o", "%F %Z")
        asked = self.run(*argv, deadline_s=deadline_s)
        rows = (line.partition(" ") for line in asked.stdout.split("\n"))
        return Answer(asked, tuple((row[0], row[2]) for row in rows) if asked.ok else None)

    def holders(self, *, deadline_s: float) -> Answer[tuple[Holder, ...]]:
        """The jobs that hold GPUs or shares of them."""
        from dshpc_setup.slurm import holders

        asked = self.run("squeue", "--json", "-a", "-t", HOLDING, deadline_s=deadline_s)
        return Answer(asked, read(holders.parse, asked))

    def rows(
        self,
        columns: str,
        states: str | None = None,
        *,
        ids: Sequence[str] = (),
        on: Sequence[str] = (),
        each_task: bool = False,
        everyone: bool = True,
        deadline_s: float,
    ) -> Answer[tuple[SlurmJob, ...]]:
        """What `columns` (squeue's own names: "JobID State") say of the jobs in these states.

        `on`: on these nodes. `everyone`: in hidden partitions, too.
        """
        from dshpc_setup.slurm import columns as reader

        argv = ("squeue", "-h", *(("-a",) if everyone else ()), *(("-r",) if each_task else ()))
        chosen = (("-t", states) if states else ()) + ((f"--jobs={','.join(ids)}",) if ids else ())
        chosen += (f"--nodelist={','.join(on)}",) if on else ()
        asked = self.run(*argv, *chosen, "-O", reader.option(columns), deadline_s=deadline_s)
        return Answer(asked, reader.read(asked.stdout, columns) if asked.ok else None)

    def pending(self, *, deadline_s: float) -> Answer[Queue]:
        """Queued jobs, and what there is for them."""
        from dshpc_setup.slurm import pending

        asked = self.run(*pending.argv(), deadline_s=deadline_s)
        return Answer(asked, pending.parse(asked.stdout) if asked.ok else None)

    def longest_wait(self, now: datetime, *, deadline_s: float) -> Answer[Look]:
        """Queued jobs, nodes, and the reservations of those that come first; `now` of Slurm's clock."""
        from dshpc_setup.slurm import longest_wait

        asked = self.run(*longest_wait.argv(), deadline_s=deadline_s, env=_WHOLE)
        return Answer(asked, longest_wait.parse(asked.stdout, now) if asked.ok else None)

    def reservations(self, *, deadline_s: float) -> Mapping[str, Reservation]:
        """Of the jobs that have waited for longest_wait, by name; {} where nobody says."""
        from dshpc_setup.slurm import longest_wait

        asked = self.run("scontrol", "-o", "show", "reservation", deadline_s=deadline_s)
        return longest_wait.parse_reservations(asked.stdout) if asked.ok else {}

    # Nodes and the controller

    def nodes(self, *, deadline_s: float) -> Answer[tuple[Node, ...]]:
        """The nodes as sinfo has them: with what of their GPUs is in use, and without who took one out."""
        from dshpc_setup.slurm import nodes

        asked = self.run("sinfo", "-N", "-h", "-O", nodes.COLUMNS, deadline_s=deadline_s)
        return Answer(asked, nodes.parse_rows(asked.stdout) if asked.ok else None)

    def node(self, name: str, *, deadline_s: float) -> Node | None:
        """The node as scontrol has it: with who gave its reason; None where nobody says."""
        from dshpc_setup.slurm import nodes

        asked = self.run("scontrol", "-o", "show", "node", name, deadline_s=deadline_s)
        return nodes.parse_line(asked.stdout) if asked.ok else None

    def node_lines(self, *, deadline_s: float) -> tuple[Node, ...]:
        """All nodes as scontrol has them; () where nobody says."""
        from dshpc_setup.slurm import nodes

        asked = self.run("scontrol", "-o", "show", "node", deadline_s=deadline_s)
        return nodes.parse_lines(asked.stdout.splitlines()) if asked.ok else ()

    def config(self, *, deadline_s: float) -> Answer[Mapping[str, str]]:
        """slurm.conf and cgroup.conf in force: key -> value, as Slurm writes them."""
        asked = self.run("scontrol", "show", "config", deadline_s=deadline_s)
        return Answer(asked, parse_config(asked.stdout) if asked.ok else None)

    def ping(self, *, deadline_s: float) -> CommandResult:
        """`ok` where the controller answers."""
        return self.run("scontrol", "ping", deadline_s=deadline_s)

    def gpus(
        self, conf: str, node: str | None = None, *, deadline_s: float
    ) -> Answer[tuple[SlurmGpu, ...]]:
        """The node's GPUs in the order in which Slurm counts them: `slurmd -G`, with this slurm.conf."""
        from dshpc_setup.slurm import gpus

        named = ("-N", node) if node is not None else ()
        asked = self.run("slurmd", "-G", *named, "-f", conf, deadline_s=deadline_s)
        return Answer(asked, gpus.parse(asked.text) if asked.ok else None)

    # Orders

    def _update(self, what: str, *changes: str, deadline_s: float) -> CommandResult:
        return self.run("scontrol", "update", what, *changes, deadline_s=deadline_s)

    def release(self, ids: Sequence[str], *, deadline_s: float) -> CommandResult:
        return self.run("scontrol", "release", ",".join(ids), deadline_s=deadline_s)

    def requeue(self, ids: Sequence[str], *, deadline_s: float) -> CommandResult:
        return self.run(*requeue_argv(ids), deadline_s=deadline_s)

    def queue_text(self, *, deadline_s: float) -> CommandResult:
        """A line for each job, which is another one where something has changed; cheap enough to poll."""
        return self.run(
            *("squeue", "-h", "-a", "-t", "all", "-o", "%i|%T|%r|%S|%b"), deadline_s=deadline_s
        )

    def nodes_text(self, *, deadline_s: float) -> CommandResult:
        """The same of the nodes."""
        columns = "NodeList:|,StateLong:|,Reason:"
        return self.run("sinfo", "-h", "-N", "-O", columns, deadline_s=deadline_s)

    def cancel(self, *ids: str, deadline_s: float) -> CommandResult:
        return self.run("scancel", *ids, deadline_s=deadline_s)

    def notify(self, job: str, text: str, *, deadline_s: float) -> CommandResult:
        """Into the standard error of a batch job, of srun or salloc."""
        return self.run("scontrol", "notify", job, text, deadline_s=deadline_s)

    def cancel_queued(self, job: str, *, deadline_s: float) -> CommandResult:
        """Not where it runs by then."""
        return self.run("scancel", "--state=PENDING", job, deadline_s=deadline_s)

    def cancel_named(
        self, name: str, user: str, node: str | None = None, *, deadline_s: float
    ) -> CommandResult:
        """Those on `node` alone, where that is said."""
        there = () if node is None else (f"--nodelist={node}",)
        return self.run(
            "scancel", f"--name={name}", f"--user={user}", *there, deadline_s=deadline_s
        )

    def update_jobs(self, ids: Sequence[str], change: str, *, deadline_s: float) -> CommandResult:
        """`change`: "starttime=now"."""
        return self._update(f"jobid={','.join(ids)}", change, deadline_s=deadline_s)

    def reserve(
        self, name: str, nodes: Sequence[str], for_s: int, *, deadline_s: float
    ) -> CommandResult:
        """Nothing begins on these nodes but jobs of reservations like this one, and what runs there goes on.

        FLEX: its jobs outlive it, and may run elsewhere. Slurm forgets it by itself, and holds no job for it.
        It wants users: all but one who has no jobs (26.05 does not take nobody).
        """
        return self.run(
            "scontrol", "create", "reservation", f"reservationname={name}", f"nodes={','.join(nodes)}",
            "users=-slurm", "starttime=now", f"endtime=now+{for_s}",
            "flags=FLEX,OVERLAP,IGNORE_JOBS,NO_HOLD_JOBS_AFTER", deadline_s=deadline_s,
        )  # fmt: skip

    def reserve_longer(
        self, name: str, nodes: Sequence[str], for_s: int, *, deadline_s: float
    ) -> CommandResult:
        changes = (f"nodes={','.join(nodes)}", f"endtime=now+{for_s}")
        return self._update(f"reservationname={name}", *changes, deadline_s=deadline_s)

    def delete_reservation(self, name: str, *, deadline_s: float) -> CommandResult:
        return self.run("scontrol", "delete", f"reservationname={name}", deadline_s=deadline_s)

    def drain(self, node: str, reason: str, *, deadline_s: float) -> CommandResult:
        return self._update(
            f"nodename={node}", "state=drain", f"reason={reason}", deadline_s=deadline_s
        )

    def resume(self, node: str, *, deadline_s: float) -> CommandResult:
        return self.run(*resume_argv(node), deadline_s=deadline_s)

    def undrain(self, node: str, *, deadline_s: float) -> CommandResult:
        """As `resume`, and one that is down stays so."""
        return self._update(f"nodename={node}", "state=undrain", deadline_s=deadline_s)

    def take_down(self, node: str, reason: str, *, deadline_s: float) -> CommandResult:
        """Its jobs are queued again, or end: slurmctld takes it for dead."""
        return self._update(
            f"nodename={node}", "state=down", f"reason={reason}", deadline_s=deadline_s
        )

    def describe_node(self, node: str, text: str, *, deadline_s: float) -> CommandResult:
        """A word that slurmctld keeps with the node and gives to everybody who asks (Extra)."""
        return self._update(f"nodename={node}", f"extra={text}", deadline_s=deadline_s)

    def delete_node(self, node: str, *, deadline_s: float) -> CommandResult:
        """One that has registered itself."""
        return self.run("scontrol", "delete", f"nodename={node}", deadline_s=deadline_s)

    def partition_states(self, *, deadline_s: float) -> Answer[dict[str, str]]:
        """Partition -> `UP`, in which jobs may begin, or another word."""
        asked = self.run("scontrol", "-o", "show", "partition", deadline_s=deadline_s)
        rows = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in asked.stdout.splitlines()]
        found = {row["PartitionName"]: row.get("State", "") for row in rows if row}
        return Answer(asked, found if asked.ok else None)

    def set_partition(self, name: str, state: str, *, deadline_s: float) -> CommandResult:
        """`DOWN`: takes jobs, and none begins; `UP`. A start of slurmctld goes by slurm.conf again."""
        return self._update(f"partitionname={name}", f"state={state}", deadline_s=deadline_s)

    def delete_partition(self, name: str, *, deadline_s: float) -> CommandResult:
        return self.run("scontrol", "delete", f"partitionname={name}", deadline_s=deadline_s)

    def reconfigure(self, *, deadline_s: float) -> CommandResult:
        return self.run("scontrol", "reconfigure", deadline_s=deadline_s)


def read(parse: Callable[[str], T], asked: CommandResult) -> T | None:
    """The value of an answer; None where there is none, or `parse` finds it malformed (ValueError)."""
    try:
        return parse(asked.stdout) if asked.ok else None
    except ValueError:
        return None


def _held_by_kind(text: str) -> dict[str, int]:
    """Of a name that looks like such a line the largest count stands: nobody can make his own smaller."""
    from dshpc_setup.slurm.nodes import parse_gres

    told = [parse_gres(each) for each in re.findall(r"(?m)^\s*JOB_GRES=(\S+)", text)]
    kinds = {kind for each in told for kind in each if kind.split(":")[0] == "gpu"}
    return {kind: max(each.get(kind, 0) for each in told) for kind in sorted(kinds)}


def resume_argv(node: str) -> tuple[str, ...]:
    """What takes a node back: Slurm lets only root and its own user."""
    return ("scontrol", "update", f"nodename={node}", "state=resume")


def parse_config(text: str) -> dict[str, str]:
    """`scontrol show config`: lines `Key = value`; of a key that is there twice, the first."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, mark, value = line.partition("=")
        if mark and key.strip():
            found.setdefault(key.strip(), value.strip())
    return found
