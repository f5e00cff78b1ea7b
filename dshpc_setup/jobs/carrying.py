"""`dshpc-node job carry FOLDER NUMBER JOB-RUN TASK all|some NODE...`: a workspace to nodes without it.

It runs on the controller's machine, as the job's user, for as long as the job does. On each of these nodes it
starts a step of the job (`carried.py`), hands over what the job takes along, writes down what comes back, and
tells the launcher when all has. Where a node or the connection is lost it tries again as long as the job
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dshpc_setup.errors import usage_error
from dshpc_setup.files import tree
from dshpc_setup.jobs import carried, luggage, parcels, records, safe_open, workspace
from dshpc_setup.jobs.carried import BACK, DONE, FOLDER, GO, REFUSED
from dshpc_setup.jobs.parcels import Head
from dshpc_setup.jobs.workspace import CARRIED, JOB, LOG, OWN, REQUEST, Workspace, of_task
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
        carrier = _Carrier(machine, place, (at, own, marks), run, number, request, nodes)
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
    """All nodes of one run of a job. `opened`: the workspace, its `.job` and the folder of marks."""

    def __init__(
        self,
        machine: Machine,
        place: Workspace,
        opened: tuple[int, int, int],
        run: str,
        task: int | None,
        request: Mapping[str, Any],
        nodes: Sequence[str],
    ) -> None:
        self.machine, self.place, self.name, self.task = machine, place, run, task
        self.at, self.own, self.marks = opened
        self.job, _, restarts = run.partition("-")
        self.restarts = int(restarts or 0)
        self.log = of_task(LOG, task)
        self.request = request
        self.pieces = luggage.pieces(request, place.path)
        self.refused = words_of(luggage.refused(request, place.path))
        self.events: queue.Queue[_Node] = queue.Queue()
        self.nodes = [_Node(self, name) for name in nodes]
        self.noted = 0.0
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
                    os.close(self._opened_log())
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

    def _copy_here(self) -> None:
        """All nodes of a job find the same under one path, those with the work folder too."""
        reading, writing = os.pipe()
        send = parcels.Sender(lambda block: parcels.write_all(writing, block))

        def give() -> None:
            for piece in self.pieces:
                with contextlib.suppress(OSError):
                    for path, entry in piece.entries():
                        send.entry(path, entry)
            os.close(writing)

        writer = parcels.Writer(self.at)
        giving = threading.Thread(target=give, daemon=True)
        giving.start()
        for head, content in parcels.heads(lambda most: os.read(reading, most)):
            with contextlib.suppress(OSError):
                writer.put(head, content)
        writer.finish()
        giving.join()
        os.close(reading)
        there = luggage.moved(self.request, self.pieces, self.place.path)
        self._mark(carried.REQUEST_THERE, json.dumps(there))

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
        self._note(last=True)
        self._mark(BACK)
        until = time.monotonic() + _ENDS_S  # who waits for it has seen it then
        while self._has_mark(DONE) and self._has_mark(carried.PID) and time.monotonic() < until:
            if not self._is_launchers_here():
                break
            time.sleep(_TICK_S)
        for name in os.listdir(self.marks):
            if name.startswith(f"{self.name}."):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=self.marks)
        with contextlib.suppress(OSError):
            os.rmdir(FOLDER, dir_fd=self.own)

    def _is_launchers_here(self) -> bool:
        try:
            with open(
                safe_open.file(f"{self.name}.{carried.PID}", self.marks, None), encoding="ascii"
            ) as file:
                return os.path.exists(f"/proc/{int(file.read(20))}")
        except (OSError, ValueError):
            return False

    def _try_again(self) -> bool:
        """Whether the job still runs, and lost nodes are asked once more."""
        time.sleep(_AGAIN_S)
        told = (
            Slurm(self.machine)
            .rows("JobID State RestartCnt", ids=[self.job], deadline_s=_ASK_S)
            .value
        )
        if told is None:
            return True  # slurmctld is away: look again
        mine = [job for job in told if str(job.own) == self.job and job.restarts == self.restarts]
        if not any(job.state == "RUNNING" for job in mine):
            return any(not node.is_lost for node in self.nodes) and any(
                job.state == "COMPLETING" for job in mine
            )
        for place, node in enumerate(self.nodes):
            if node.is_lost:
                self.nodes[place] = again = _Node(self, node.name, node)
                again.start()
        return True

    def _say_lost(self, node: _Node) -> None:
        when = time.strftime("%H:%M:%S", time.localtime(node.back)) if node.back else None
        what = (
            f"what it wrote on {node.name} after {when}"
            if when
            else f"what it wrote on {node.name}"
        )
        text = f"dshpc: {what} did not come back{f': {node.trouble}' if node.trouble else ''}.\n"
        with contextlib.suppress(OSError):
            handle = self._opened_log()
            try:
                os.write(handle, text.encode(errors="replace"))
            finally:
                os.close(handle)

    def _opened_log(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        mode = os.fstat(self.at).st_mode & 0o040 | 0o600
        handle = os.open(self.log, flags, mode, dir_fd=self.at)
        safe_open.check_owner(os.fstat(handle), self.place.uid, self.at, self.log)
        return handle

    def write_log(self, block: bytes) -> None:
        handle = self._opened_log()
        try:
            parcels.write_all(handle, block)
        finally:
            os.close(handle)

    def log_size(self) -> int:
        try:
            return os.stat(self.log, dir_fd=self.at, follow_symlinks=False).st_size
        except OSError:
            return 0

    def _note(self, *, last: bool = False) -> None:
        """What is back of each node, for `dshpc job show`."""
        if not last and time.monotonic() - self.noted < _NOTE_S:
            return
        self.noted = time.monotonic()
        nodes = {
            node.name: {
                "complete": node.is_final and not node.trouble,
                "back": node.back,
                "trouble": node.trouble,
            }
            for node in self.nodes
        }
        value = {"job_id": self.job, "task": self.task, "nodes": nodes}
        with contextlib.suppress(OSError):
            safe_open.replace(of_task(CARRIED, self.task), json.dumps(value), self.own)

    def _mark(self, word: str, text: str = "") -> None:
        with contextlib.suppress(OSError):
            safe_open.replace(f"{self.name}.{word}", text, self.marks)

    def _has_mark(self, word: str) -> bool:
        return os.access(f"{self.name}.{word}", os.F_OK, dir_fd=self.marks)

    def _stop(self, *_: object) -> None:
        """The job is gone, and a step that no node answers for may wait for long."""
        self.is_stopped = True


class _Node(threading.Thread):
    """One of the nodes, and the step there."""

    def __init__(self, carrier: _Carrier, name: str, before: _Node | None = None) -> None:
        super().__init__(daemon=True)
        self.carrier, self.node = carrier, name
        self.name = name
        self.is_ready = self.is_done = self.is_final = self.is_lost = False
        self.trouble: str = before.trouble if before else ""
        self.back: float | None = before.back if before else None
        self.known: dict[str, tuple[int, int] | None] | None = (
            None  # None: after a break all is its own
        )
        self.told: set[str] = set()
        self.logged = 0  # bytes of its log that are here
        self.writer = parcels.Writer(carrier.at)
        self.pid, self.to, self.source = self._srun()
        self.send = parcels.Sender(self._write)

    def _srun(self) -> tuple[int, int, int]:
        ours, to = os.pipe()
        source, theirs = os.pipe()
        carrier = self.carrier
        task = () if carrier.task is None else (str(carrier.task),)
        argv = [
            "srun", "--quiet", f"--jobid={carrier.job}", "--overlap", "-N1", "-n1", f"-w{self.node}",
            "--unbuffered", f"--chdir={carrier.place.path}", carried.PROGRAM, carrier.name, *task,
        ]  # fmt: skip
        try:
            pid = os.posix_spawnp(
                "srun", argv, os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, ours, 0), (os.POSIX_SPAWN_DUP2, theirs, 1)],
                setsigdef=[signal.SIGPIPE], setsid=True,
            )  # fmt: skip
        finally:
            os.close(ours)
            os.close(theirs)
        return pid, to, source

    def _write(self, block: bytes) -> None:
        parcels.write_all(self.to, block)

    def tell(self, word: str, text: str = "") -> None:
        """Once."""
        if self.is_ready and word not in self.told and not self.is_lost:
            self.told.add(word)
            with contextlib.suppress(OSError):
                self.send.mark(word, text.encode())

    def end(self, within_s: float) -> None:
        until = time.monotonic() + within_s
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                if time.monotonic() >= until:
                    os.killpg(self.pid, signal.SIGKILL)
                time.sleep(0.05)
        with contextlib.suppress(OSError):
            os.close(self.to)
            self.to = -1

    def run(self) -> None:
        try:
            for head, content in parcels.heads(lambda most: os.read(self.source, most)):
                if head.kind == parcels.MARK:
                    self._marked(head.path, b"".join(content()))
                elif head.kind == parcels.LOG:
                    self._log(head.time, b"".join(content()))
                else:
                    self._take(head, content)
        except OSError as error:
            if not isinstance(error, parcels.BrokenError | BrokenPipeError):
                self.trouble = self.trouble or f"{error.strerror or error}"
        if not self.is_final:
            self.is_lost = True
        os.close(self.source)
        self.carrier.events.put(self)

    def _marked(self, word: str, text: bytes) -> None:
        if word == "new":
            self.known = {}
            self._fill()
        elif word == "known":
            self.logged = max(0, self.carrier.log_size() - int(text))
        elif word == "ready":
            self.is_ready = True
        elif word == "shared":
            self.is_ready = self.is_final = True
        elif word == "done":
            self.is_done = True
        elif word == "left":
            self.trouble = text.decode("utf-8", "replace")[:300]
        elif word == "round":
            self.back = time.time()
            self.writer.finish()
        elif word == "final":
            self.writer.finish()
            self.is_final = True
        self.carrier.events.put(self)

    def _log(self, begin: int, block: bytes) -> None:
        """`begin`: where in the log of this run. After a break it comes again from its beginning."""
        new = block[max(0, self.logged - begin) :]
        if new:
            self.carrier.write_log(new)
            self.logged = begin + len(block)

    def _fill(self) -> None:
        carrier = self.carrier
        if not carrier.refused:
            for path, entry in self._own_entries():
                self._sent(path, entry)
            for piece in carrier.pieces:
                for path, entry in piece.entries():
                    self.send.entry(path, entry)
        there = luggage.moved(carrier.request, carrier.pieces, carrier.place.path)
        self.send.text(f"{OWN}/{REQUEST}", json.dumps(there).encode())
        self.send.mark("filled", str(carrier.log_size()).encode())

    def _own_entries(self) -> Iterator[tuple[str, tree.Entry]]:
        for entry in tree.entries(self.carrier.at, luggage.MOST):
            if not carried.stays(entry.path):
                yield entry.path, entry

    def _sent(self, path: str, entry: tree.Entry) -> None:
        if self.send.entry(path, entry) and self.known is not None:
            self.known[path] = (entry.seen.st_size, entry.seen.st_mtime_ns)

    def _take(self, head: Head, content: Callable[[], Iterator[bytes]]) -> None:
        """What somebody else has changed here meanwhile stays, and this node's lies beside it."""
        if carried.stays(head.path):
            return
        path = head.path
        if self.known is not None and head.kind != parcels.FOLDER:
            there = self.writer.seen(path)
            if there is not None and there != self.known.get(path):
                if head.kind == parcels.GONE:
                    return
                path = f"from-{self.node}/{path}"
        try:
            self.writer.put(Head(head.kind, path, head.mode, head.time, head.size), content)
        except parcels.BrokenError:
            raise
        except OSError as error:
            self.trouble = self.trouble or f"{path}: {error.strerror or error}"
            return
        if self.known is not None and path == head.path:
            self.known[path] = self.writer.seen(path)


def words_of(found: luggage.Refused | None) -> str:
    """Why a job whose turn it is cannot be carried, for its log."""
    if found is None:
        return ""
    return (
        f"it cannot be carried to this node, which has not the work folder: {found.details or found.code}. "
        "Make it smaller, or keep it on nodes that have the folder: dshpc node list"
    )
