"""A node without the work folder, as the controller's machine has it: a step of the job, and its stream.

`carried.py` is the other end. What comes from there is data: see `parcels.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from dshpc_setup.files import tree
from dshpc_setup.files.streams import write_all
from dshpc_setup.jobs import carried, environments, parcels
from dshpc_setup.jobs.cargo import Cargo
from dshpc_setup.jobs.luggage import Piece
from dshpc_setup.jobs.parcels import Head
from dshpc_setup.jobs.workspace import OWN, REQUEST
from dshpc_setup.terminal import sanitize

_MOST_TROUBLE = 300


class FarStep(threading.Thread):
    """`events` is given this one whenever something is known of it. `before`: the lost one whose place it
    takes."""

    def __init__(
        self,
        cargo: Cargo,
        node: str,
        events: queue.Queue[FarStep],
        before: FarStep | None = None,
    ) -> None:
        super().__init__(daemon=True, name=node)
        self.cargo, self.node, self.events = cargo, node, events
        self.is_ready = self.is_done = self.is_final = self.is_lost = False
        self.failed = ""  # why not all could be written there
        self.refused = ""  # why what was to go there could not be read
        self.strange = ""  # what it has said that is none of ours
        self.trouble: str = before.trouble if before else ""
        self.back: float | None = before.back if before else None
        # As its files were here when they last came or went; None: not known, and all is its own
        self.known: dict[str, tuple[int, int] | None] | None = before.known if before else None
        self.beside: set[str] = set()  # its folders in whose places there are files of others
        self.told: set[str] = set()
        self.logged = 0  # bytes of its log that are here
        self.writer = parcels.Writer(cargo.at)
        self.pid, self.to, self.source = self._srun()
        self.send = parcels.Sender(lambda block: write_all(self.to, block))

    def _srun(self) -> tuple[int, int, int]:
        ours, to = os.pipe()
        source, theirs = os.pipe()
        cargo = self.cargo
        task = () if cargo.task is None else (str(cargo.task),)
        argv = [
            "srun", "--quiet", f"--jobid={cargo.job}", "--overlap", "-N1", "-n1", f"-w{self.node}",
            "--unbuffered", f"--chdir={cargo.place.path}", carried.PROGRAM, cargo.run, *task,
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
        except parcels.StrangeError as error:
            self.strange = f"it sent what is none of ours ({error.fault})"
        except OSError as error:
            if not isinstance(error, parcels.BrokenError | BrokenPipeError):
                self._has_trouble("", error)
        if not self.is_final:
            self.is_lost = True
        os.close(self.source)
        self.events.put(self)

    def _marked(self, word: str, text: bytes) -> None:
        if word == "new":
            self.known = {}
            if self.cargo.kept and not self.cargo.refused:
                self.send.mark("kept", "\0".join(each.place for each in self.cargo.kept).encode())
            else:
                self._fill(())
        elif word == "wanted":
            names = text.decode("ascii", "replace").split("\0")
            self._fill([each for each in self.cargo.kept if each.place in names])
        elif word == "known":
            self.logged = max(0, self.cargo.log_size() - parcels.number(text))
        elif word == "ready":
            self.is_ready = True
        elif word == "shared":
            self.is_ready = self.is_final = True
        elif word == "done":
            self.is_done = True
        elif word == "left":
            self.trouble = _shown(text)
        elif word == "failed":
            self.failed = _shown(text)
        elif word == "round":
            self.back = time.time()
            self.writer.finish()
        elif word == "final":
            self.writer.finish()
            self.is_final = True
        self.events.put(self)

    @property
    def why(self) -> str:
        """Something of it is not here."""
        return self.trouble or (self.strange if self.is_lost else "")

    def _has_trouble(self, path: str, error: OSError) -> None:
        """The first one is told. A name may hold anything."""
        text = f"{path}: {error.strerror or error}" if path else f"{error.strerror or error}"
        self.trouble = self.trouble or sanitize.plain(text)[:_MOST_TROUBLE]

    def _log(self, begin: int, block: bytes) -> None:
        """`begin`: where in the log of this run. After a break it comes again from its beginning."""
        new = block[max(0, self.logged - begin) :]
        if new:
            self.cargo.write_log(new)
            self.logged = begin + len(block)

    def _fill(self, copies: Sequence[Piece]) -> None:
        cargo = self.cargo
        if not cargo.refused:
            for path, entry in self._read(cargo.own_entries()):
                if self.send.entry(path, entry) and self.known is not None:
                    self.known[path] = (entry.seen.st_size, entry.seen.st_mtime_ns)
            for piece in cargo.pieces:
                for path, entry in self._read(piece.entries()):
                    self.send.entry(path, entry)
            for piece in copies:
                # One that is gone its launcher misses, and says what to do
                with contextlib.suppress(FileNotFoundError):
                    self._copy(piece)
        self.send.text(f"{OWN}/{REQUEST}", json.dumps(cargo.request_there()).encode())
        self.send.mark("filled", str(cargo.log_size()).encode())

    def _copy(self, piece: Piece) -> None:
        handle = environments.hold(piece.source)  # who cleans meanwhile leaves it
        try:
            self.send.mark("copy", piece.place.encode())
            for path, entry in self._read(piece.entries()):
                if path != piece.place:
                    self.send.entry(path[len(piece.place) + 1 :], entry)
            self.send.mark("copied", b"" if self.refused else piece.place.encode())
        finally:
            os.close(handle)

    def _read(self, found: Iterator[tuple[str, tree.Entry]]) -> Iterator[tuple[str, tree.Entry]]:
        """What cannot be read is no fault of the connection: the job is told, and nothing is tried again."""
        try:
            yield from found
        except OSError as error:
            self.refused = self.refused or sanitize.plain(
                f"what it takes along cannot be read: {error.filename or ''}: {error.strerror or error}."
            )

    def _take(self, head: Head, content: Callable[[], Iterator[bytes]]) -> None:
        """What somebody else has changed here meanwhile stays, and this node's lies beside it."""
        if carried.stays(head.path):
            return
        path = head.path
        if self._is_of_others(head):
            if head.kind == parcels.GONE:
                return
            path = f"from-{self.node}/{path}"
        try:
            self.writer.put(Head(head.kind, path, head.mode, head.time, head.size), content)
        except parcels.BrokenError:
            raise
        except OSError as error:
            self._has_trouble(path, error)
            return
        if self.known is not None and path == head.path:
            self.known[path] = self.writer.seen(path)

    def _is_of_others(self, head: Head) -> bool:
        path = head.path
        if self.known is None:
            return False
        if any(path.startswith(f"{each}/") for each in self.beside):
            return True
        if head.kind in (parcels.FOLDER, parcels.GONE) and self.writer.is_folder(path):
            return False  # a folder goes only once nothing is left in it
        there = self.writer.seen(path)
        is_of_others = there is not None and there != self.known.get(path)
        if is_of_others and head.kind == parcels.FOLDER:
            self.beside.add(path)
        return is_of_others


def _shown(text: bytes) -> str:
    return sanitize.plain(text.decode("utf-8", "replace"))[:_MOST_TROUBLE]
