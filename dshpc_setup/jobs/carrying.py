"""`dshpc-node job carry FOLDER NUMBER JOB-RUN TASK all|some NODE...`: a workspace to nodes without it.

It runs on the controller's machine, as the job's user, for as long as the job does. On each of these nodes
it starts a step of the job (`far_step.py`), hands over what the job takes along, writes down what comes back,
and tells the launcher when all has. Where a node or the connection is lost it tries again as long as the job
runs; what is not back by then is lost, and the job's log and `dshpc job show` say so.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator, Sequence

from dshpc_setup.errors import usage_error
from dshpc_setup.files.streams import write_all
from dshpc_setup.jobs import carried, luggage, parcels, records, safe_open, workspace
from dshpc_setup.jobs.cargo import Cargo
from dshpc_setup.jobs.carried import BACK, DONE, FOLDER, GO, REFUSED
from dshpc_setup.jobs.far_step import FarStep
from dshpc_setup.jobs.workspace import CARRIED, JOB, REQUEST, Workspace, of_task
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.client import Slurm

_TICK_S = 0.3
_ASK_S = 20.0
_AGAIN_S = 3.0
_NOTE_S = 10.0
_ENDS_S = 15.0  # a step whose work is done
_LATE = 100_000_000  # nanoseconds, of a file system with a clock of its own


def main(rest: Sequence[str]) -> int:
    from dshpc_setup.machine.local import LocalMachine

    match rest:
        case [folder, submitted, run, task, "all" | "some" as which, _, *_]:
            nodes = rest[5:]
        case _:
            raise usage_error(
                "dshpc-node job carry takes FOLDER NUMBER JOB-RUN TASK all|some NODE..."
            )
    place = of_folder(folder, os.getuid())
    if place is None:
        return 0
    number = int(task) if task.isdecimal() else None
    machine = LocalMachine()
    with contextlib.ExitStack() as open_:
        try:
            at, own = open_.enter_context(place.opened()), open_.enter_context(place.own())
        except FileNotFoundError:  # taken back: its launcher would wait there for nothing
            Slurm(machine).cancel(run.partition("-")[0], deadline_s=_ASK_S)
            return 0
        request = records.read_at(REQUEST, own, place.uid)
        of = records.read_at(JOB, own, place.uid).get("job_id", submitted)
        if not request or of != submitted:  # a job of somebody who stood in an old workspace
            return 0
        with contextlib.suppress(FileExistsError):
            os.mkdir(FOLDER, 0o700, dir_fd=own)
        try:
            marks = open_.enter_context(safe_open.opened(FOLDER, own))
            open_.enter_context(_alone(f"{run}.lock", marks))
        except (BlockingIOError, FileNotFoundError):
            return 0  # another one does it, or another task's has just removed the folder
        parcels.drop_all_left(at, luggage.MOST)
        cargo = Cargo(place, at, run, number, request)
        carrier = _Carrier(machine, cargo, own, marks, nodes)
        carrier.is_mixed = which == "some"
        return carrier.run()


@contextlib.contextmanager
def _alone(name: str, at: int) -> Iterator[None]:
    """Raises BlockingIOError where another process has that run."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, flags, 0o600, dir_fd=at)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def of_folder(folder: str, uid: int) -> Workspace | None:
    """The workspace of a job by its folder alone; None where it is none of that user's."""
    work, _, rest = folder.rpartition(f"/{workspace.JOBS}/{uid}/")
    return workspace.of_path(work, folder) if work and rest else None


class _Carrier:
    """All nodes of one run of a job. `own` is the workspace's `.job`, `marks` its folder of marks: open."""

    def __init__(
        self, machine: Machine, cargo: Cargo, own: int, marks: int, nodes: Sequence[str]
    ) -> None:
        self.machine, self.cargo, self.own, self.marks = machine, cargo, own, marks
        self.events: queue.Queue[FarStep] = queue.Queue()
        self.nodes = [FarStep(cargo, name, self.events) for name in nodes]
        self.noted = 0.0
        self.log_from = cargo.log_size()
        self.has_gone = False  # the launcher may begin
        self.is_stopped = False  # from outside, as the job is gone
        self.is_mixed = False  # the job has nodes with the work folder, too

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._stop)
        for node in self.nodes:
            node.start()
        is_ending = False
        while True:
            with contextlib.suppress(queue.Empty):
                self.events.get(timeout=_TICK_S)
            is_lost = any(node.is_lost for node in self.nodes)
            if self.is_stopped or (is_lost and not self._try_again()):
                break
            there = [node for node in self.nodes if not node.is_lost]
            if not self.has_gone and all(node.is_ready for node in self.nodes):
                self.has_gone = True
                with contextlib.suppress(OSError):  # one that prints nothing has a log, too
                    os.close(self.cargo.open_log())
                if self.is_mixed and not self.refused:
                    self._copy_here()
                # The launcher may run on a node that has the work folder, and looks here then
                self._mark(REFUSED if self.refused else GO, self.refused)
            for node in there if self.has_gone else ():
                node.tell(REFUSED if self.refused else GO, self.refused)
            if self.has_gone and not is_ending:
                is_ending = any(node.is_done for node in there) or self._has_mark(DONE)
            if is_ending:
                for node in there:
                    node.tell("end")
                if all(node.is_final for node in there):
                    break
            self._note()
        self._conclude()
        return 0

    @property
    def refused(self) -> str:
        return next((node.refused for node in self.nodes if node.refused), self.cargo.refused)

    def _copy_here(self) -> None:
        """All nodes of a job find the same under one path, those with the work folder too."""
        reading, writing = os.pipe()
        send = parcels.Sender(lambda block: write_all(writing, block))

        def give() -> None:
            for piece in self.cargo.pieces:
                with contextlib.suppress(OSError):
                    for path, entry in piece.entries():
                        send.entry(path, entry)
            os.close(writing)

        writer = parcels.Writer(self.cargo.at)
        giving = threading.Thread(target=give, daemon=True)
        giving.start()
        for head, content in parcels.heads(lambda most: os.read(reading, most)):
            with contextlib.suppress(OSError):
                writer.put(head, content)
        writer.finish()
        giving.join()
        os.close(reading)
        self._mark(carried.REQUEST_THERE, json.dumps(self.cargo.request_there()))

    def _conclude(self) -> None:
        lost = [node for node in self.nodes if not node.is_final]
        for node in self.nodes:
            if node.is_final:
                node.tell("bye")
        for node in self.nodes:
            node.end(_ENDS_S if node.is_final else 0.0)
        for node in self.nodes if self.has_gone else ():
            if node in lost or node.trouble:
                self._say_lost(node)
            elif node.failed and self.cargo.log_size() == self.log_from:
                self._say(node.failed)  # the launcher has no room there for its words
        self._note(last=True)
        self._mark(BACK)
        until = time.monotonic() + _ENDS_S  # who waits for it has seen it then
        while self._has_mark(DONE) and self._has_mark(carried.PID) and time.monotonic() < until:
            if not self._is_launchers_here():
                break
            time.sleep(_TICK_S)
        for name in os.listdir(self.marks):
            if name.startswith(f"{self.cargo.run}."):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=self.marks)
        with contextlib.suppress(OSError):
            os.rmdir(FOLDER, dir_fd=self.own)

    def _is_launchers_here(self) -> bool:
        try:
            with open(
                safe_open.file(f"{self.cargo.run}.{carried.PID}", self.marks, None),
                encoding="ascii",
            ) as file:
                return os.path.exists(f"/proc/{int(file.read(20))}")
        except (OSError, ValueError):
            return False

    def _try_again(self) -> bool:
        """Whether the job still runs, and lost nodes are asked once more."""
        time.sleep(_AGAIN_S)
        told = (
            Slurm(self.machine)
            .rows("JobID State RestartCnt", ids=[self.cargo.job], deadline_s=_ASK_S)
            .value
        )
        if told is None:
            return True  # slurmctld is away: look again
        mine = [
            job
            for job in told
            if str(job.own) == self.cargo.job and job.restarts == self.cargo.restarts
        ]
        if not any(job.state == "RUNNING" for job in mine):
            return any(not node.is_lost for node in self.nodes) and any(
                job.state == "COMPLETING" for job in mine
            )
        for place, node in enumerate(self.nodes):
            if node.is_lost:
                self.nodes[place] = again = FarStep(self.cargo, node.node, self.events, node)
                again.start()
        return True

    def _say_lost(self, node: FarStep) -> None:
        when = time.strftime("%H:%M:%S", time.localtime(node.back)) if node.back else None
        what = (
            f"what it wrote on {node.node} after {when}"
            if when
            else f"what it wrote on {node.node}"
        )
        self._say(f"{what} did not come back{f': {node.why}' if node.why else ''}.")

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self.cargo.write_log(f"dshpc: {text}\n".encode(errors="replace"))

    def _note(self, *, last: bool = False) -> None:
        """What is back of each node, for `dshpc job show`."""
        if not last and time.monotonic() - self.noted < _NOTE_S:
            return
        self.noted = time.monotonic()
        nodes = {
            node.node: {
                "complete": node.is_final and not node.trouble,
                "back": node.back,
                "trouble": node.why,
            }
            for node in self.nodes
        }
        value = {"job_id": self.cargo.job, "task": self.cargo.task, "nodes": nodes}
        with contextlib.suppress(OSError):
            safe_open.replace(of_task(CARRIED, self.cargo.task), json.dumps(value), self.own)

    def _mark(self, word: str, text: str = "") -> None:
        with contextlib.suppress(OSError):
            safe_open.replace(f"{self.cargo.run}.{word}", text, self.marks)

    def _has_mark(self, word: str) -> bool:
        return os.access(f"{self.cargo.run}.{word}", os.F_OK, dir_fd=self.marks)

    def _stop(self, *_: object) -> None:
        """The job is gone, and a step that no node answers for may wait for long."""
        self.is_stopped = True
