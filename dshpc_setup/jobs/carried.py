"""On a node that has not the work folder: a job's workspace comes, what changes in it goes back.

`main` is a step of the job's own, which `carrying.py` on the controller's machine has started: stdin and
stdout lead there. The job's launcher waits for it before and after its program. Both speak by empty files in
the folder `carried` of `.job`: JOB (made by the node before the job), and of each run JOB-RUN.WORD.

    list       what came, and so what need not go back    go        all is there
    refused    why nothing came                           pid       the launcher's
    done       the program has ended                      back      all has gone back
    request    what it says there, for a launcher that has the work folder
    coming     changed while something comes          room      kept free to say that the disk is full
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import sys
import threading
import time

from dshpc_setup.files import tree
from dshpc_setup.files.streams import write_all
from dshpc_setup.jobs import kept_copies, own_workspace, parcels, safe_open
from dshpc_setup.jobs.end_record import STOPPING
from dshpc_setup.jobs.own_workspace import OwnWorkspace
from dshpc_setup.jobs.workspace import JOB, LOG, OWN, REQUEST, of_task
from dshpc_setup.terminal import sanitize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FOLDER = "carried"
PROGRAM = "/usr/local/lib/dshpc/carried"
GO, REFUSED, PID, DONE, BACK, LIST = "go", "refused", "pid", "done", "back", "list"
REQUEST_THERE, COMING, _ROOM = "request", "coming", "room"
_COMES_S, _BACK_S = 900.0, 3600.0
_TICK_S, _POLL_S = 0.5, 0.1
_COMING_S = 10.0
_ROOM_BYTES = 1 << 16
_ROUND_S, _LAST_ROUNDS_S = 20.0, 2.0  # between two; and once the job is told to end
_SMALL = 16 << 20  # what goes back while the job runs; the rest at its end
_QUIET_NS = 2_000_000_000  # so long has nobody written in it
_MOST = 1_000_000
_LOGS = re.compile(r"output(-[0-9]+)?\.log")


# The launcher's part


def begin(at: OwnWorkspace, run: str) -> str | None:
    """Wait until the workspace is there on all nodes; why it does not come, in words."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(FOLDER, 0o700, dir_fd=at.own)
    with safe_open.opened(FOLDER, at.own) as marks:
        with contextlib.suppress(OSError):  # the disk is full, which the step tells
            safe_open.replace(f"{run}.{PID}", f"{os.getpid()}\n", marks)
        until, seen = time.monotonic() + _COMES_S, 0
        while time.monotonic() < until:
            if (changed := _changed(f"{run}.{COMING}", marks)) != seen:
                until, seen = time.monotonic() + _COMES_S, changed
            if _is_there(f"{run}.{REFUSED}", marks):
                with open(
                    safe_open.file(f"{run}.{REFUSED}", marks, None), encoding="utf-8"
                ) as file:
                    return file.read(4096) or "its workspace could not be written on this node."
            if _is_there(f"{run}.{GO}", marks):
                return None
            time.sleep(_POLL_S)
    return (
        f"its workspace did not come to this node: nothing has come for {_COMES_S / 60:.0f} minutes. See "
        "what the controller's machine says: dshpc logs"
    )


def end(at: OwnWorkspace, run: str) -> bool:
    """The program has ended: wait until all is back; False where it is not within an hour."""
    with contextlib.suppress(OSError), safe_open.opened(FOLDER, at.own) as marks:
        safe_open.replace(f"{run}.{DONE}", "", marks)
        until = time.monotonic() + _BACK_S
        while not _is_there(f"{run}.{BACK}", marks):
            if os.path.exists(STOPPING):  # the node stops, and the job runs again
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_S)
    return True


def run_name(environ: os._Environ[str] | dict[str, str]) -> str:
    return f"{environ['SLURM_JOB_ID']}-{environ.get('SLURM_RESTART_COUNT') or 0}"


def _is_there(name: str, at: int) -> bool:
    try:
        os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _changed(name: str, at: int) -> int:
    try:
        return os.stat(name, dir_fd=at, follow_symlinks=False).st_mtime_ns
    except FileNotFoundError:
        return 0


# The step's part


def stays(path: str) -> bool:
    """What never goes back, or is not of the workspace itself: the log goes by itself, as it grows."""
    first, _, rest = path.partition("/")
    if first != OWN:
        return _LOGS.fullmatch(path) is not None
    name = rest.partition("/")[0]
    return (
        name in (FOLDER, REQUEST, JOB) or re.fullmatch(r"carried(-[0-9]+)?\.json", name) is not None
    )


def main() -> int:
    """The exit code: 0 where all that was to go has gone."""
    run, task = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None
    ended: list[int] = []
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    try:
        at = own_workspace.opened(os.getcwd())
        try:
            marks = safe_open.folder(FOLDER, at.own)
            is_ours = _is_there(run.partition("-")[0], marks)
        except FileNotFoundError:
            marks, is_ours = -1, False
        if is_ours:
            return Step(at, marks, run, of_task(LOG, task), ended).run()
        parcels.Sender(lambda block: write_all(1, block)).mark("shared")
        return 0  # by now this folder is the controller's
    except OSError:
        return 1


class Step:
    """`told` has something in it once the job is told to end; `source` and `to` lead to the other side."""

    def __init__(
        self,
        at: OwnWorkspace,
        marks: int,
        run: str,
        log: str,
        told: Sequence[int],
        source: int = 0,
        to: int = 1,
    ) -> None:
        self.at, self.marks, self.name, self.log, self.told = at, marks, run, log, told
        self.source = source
        self.send = parcels.Sender(lambda block: write_all(to, block))
        self.events: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self.known: dict[str, tuple[int, ...]] = {}
        self.base = self.offset = 0  # bytes of the log: there before this run, and sent
        self.is_known = self.is_filled = _is_there(f"{run}.{LIST}", marks)
        self.failed = ""
        self.came = 0  # things, so far
        self.writing = threading.Lock()
        self.has_told = self.is_last = self.is_final = False

    def run(self) -> int:
        if self.is_known:
            self._read_list()
        if self.is_known:
            self.send.mark("known", str(self.base).encode())
        else:
            with contextlib.suppress(OSError):
                self._mark(_ROOM, " " * _ROOM_BYTES)
            self.send.mark("new")
        above = safe_open.folder("..", self.at.folder)
        self.copies = kept_copies.Copies(above)
        threading.Thread(target=self._receive, daemon=True).start()
        if self.is_known:
            self.send.mark("ready")
        try:
            return self._rounds()
        finally:
            with self.writing:
                self.failed = self.failed or "it has ended"  # nothing more is written
                self.copies.drop()

    def _rounds(self) -> int:
        next_round, noted = time.monotonic() + _ROUND_S, 0.0
        came = 0
        while True:
            word, text = self._event()
            if word == "bye":
                self._mark(BACK)
                return 0
            if word == "lost" or (self.told and not self.is_filled):
                return 1
            self._heard(word, text)
            self._tail()
            if not self.has_told and self._has_ended():
                self.has_told = True
                self.send.mark("done")
            now = time.monotonic()
            if not self.is_filled:
                if self.came != came and now >= noted:
                    came, noted = self.came, now + _COMING_S
                    with contextlib.suppress(OSError):
                        self._mark(COMING)
            elif self.is_last:
                self._finish()
            elif now >= next_round or (self.told and next_round > now + _LAST_ROUNDS_S):
                next_round = self._next_round()

    def _heard(self, word: str, text: bytes) -> None:
        if word == "kept":
            missing = self.copies.missing(text.decode("ascii", "replace").split("\0"))
            self.send.mark("wanted", "\0".join(missing).encode())
        elif word == "filled":
            self._filled(parcels.number(text))
        elif word in (GO, REFUSED):
            self._mark(word, text.decode("utf-8", "replace"))
        elif word == "end":
            self.is_last = True

    def _filled(self, base: int) -> None:
        """All has come, or not all: the disk may be full, and who is told so needs room for a few words."""
        self.base, self.is_filled = base, True
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.name}.{_ROOM}", dir_fd=self.marks)
        self.known = {path: state for path, state, _ in self._entries()}
        try:
            if not self.failed:
                self._write_list()
        except OSError as error:
            self._fails("its workspace", "", error)
        if self.failed:
            self.send.mark("failed", self.failed.encode(errors="replace"))
            try:
                self._mark(REFUSED, self.failed)
            except OSError:
                self._mark(REFUSED)
        self.send.mark("ready")

    def _fails(self, what: str, path: str, error: OSError) -> None:
        where = sanitize.plain(f"{path}: " if path else "")
        why = f"{what} could not be written on this node: {where}{error.strerror or error}."
        self.failed = self.failed or why

    def _finish(self) -> None:
        if not self.is_final:
            self.is_final = True
            self._round(None)
            self._tail()
            self.send.mark("final")

    def _next_round(self) -> float:
        """Once the job is told to end, all that there is goes at once."""
        self._round(None if self.told else _SMALL)
        return time.monotonic() + (_LAST_ROUNDS_S if self.told else _ROUND_S)

    def _event(self) -> tuple[str, bytes]:
        try:
            return self.events.get(timeout=_TICK_S)
        except queue.Empty:
            return "", b""

    def _receive(self) -> None:
        """What comes; a job's other tasks may be here already, and have changed what they had."""
        workspace = into = parcels.Writer(self.at.folder)
        own = self.name.partition("-")[0]
        with_others = any(name.isdecimal() and name != own for name in os.listdir(self.marks))
        try:
            for head, content in parcels.heads(lambda most: os.read(self.source, most)):
                self.came += 1
                if head.kind != parcels.MARK:
                    if into is not workspace or not (with_others and workspace.seen(head.path)):
                        with self.writing:
                            self._put(into, head, content)
                    continue
                text = b"".join(content())
                if head.path in ("copy", "copied"):
                    with self.writing:
                        into = self._copy(head.path, text.decode("ascii", "replace")) or workspace
                    continue
                if head.path == "filled":
                    workspace.finish()
                self.events.put((head.path, text))
        except OSError:
            pass  # the other side has ended: another one will come
        self.events.put(("lost", b""))

    def _put(
        self, into: parcels.Writer, head: parcels.Head, content: Callable[[], Iterator[bytes]]
    ) -> None:
        if self.failed:
            return
        try:
            into.put(head, content)
        except parcels.BrokenError:
            raise
        except OSError as error:
            self.copies.drop()
            self._fails("its workspace", head.path, error)

    def _copy(self, word: str, name: str) -> parcels.Writer | None:
        """Where what comes next is written: None where that is the workspace."""
        try:
            if word == "copy" and not self.failed:
                return self.copies.begin(name)
            self.copies.end(name if not self.failed else "")
        except parcels.BrokenError:
            raise
        except OSError as error:
            self._fails("its environment or image", name, error)
        return None

    def _has_ended(self) -> bool:
        """Whether the launcher has told so, or is gone."""
        if _is_there(f"{self.name}.{DONE}", self.marks):
            return True
        try:
            with open(
                safe_open.file(f"{self.name}.{PID}", self.marks, None), encoding="ascii"
            ) as file:
                return not os.path.exists(f"/proc/{int(file.read(20))}")
        except (OSError, ValueError):
            return False

    def _entries(self) -> Iterator[tuple[str, tuple[int, ...], tree.Entry]]:
        for entry in tree.entries(self.at.folder, _MOST):
            if parcels.is_part(entry.name):  # of a run that was killed, or of one that writes
                parcels.drop_left(entry)
            elif not stays(entry.path):
                seen = entry.seen
                state = (
                    (seen.st_mode,)
                    if entry.is_folder
                    else (seen.st_mode, seen.st_size, seen.st_mtime_ns)
                )
                yield entry.path, state, entry

    def _round(self, most: int | None) -> None:
        """Send what has changed; with `most` the files that are no larger and that nobody writes just now."""
        there = set()
        latest = time.time_ns() - _QUIET_NS
        try:
            for path, state, entry in self._entries():
                there.add(path)
                is_file = not entry.is_folder
                waits = (
                    most is not None
                    and is_file
                    and (entry.seen.st_size > most or state[-1] > latest)
                )
                if self.known.get(path) != state and not waits and self.send.entry(path, entry):
                    self.known[path] = state
        except tree.TooLargeError as error:
            self.send.mark("left", f"{error.strerror}".encode())
            return
        except PermissionError as error:
            self.send.mark("left", f"{error.filename}: {error.strerror}".encode(errors="replace"))
            return
        for path in sorted(self.known.keys() - there, reverse=True):
            self.send.gone(path)
            del self.known[path]
        self.send.mark("round")

    def _tail(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            handle = safe_open.file(self.log, self.at.folder, None)
            with open(handle, "rb") as file:
                file.seek(self.offset)
                while block := file.read(1 << 18):
                    self.send.log(self.offset, block)
                    self.offset += len(block)

    def _mark(self, word: str, text: str = "") -> None:
        safe_open.replace(f"{self.name}.{word}", text, self.marks)

    def _write_list(self) -> None:
        rows = (f"{','.join(map(str, state))} {path}" for path, state in self.known.items())
        self._mark(LIST, "\0".join((str(self.base), *rows)))

    def _read_list(self) -> None:
        """After a break everything that has changed since the beginning goes back again."""
        with open(safe_open.file(f"{self.name}.{LIST}", self.marks, None), "rb") as file:
            base, *rows = os.fsdecode(file.read()).split("\0")
        self.base = int(base)
        for row in rows:
            state, _, path = row.partition(" ")
            self.known[path] = tuple(map(int, state.split(",")))
