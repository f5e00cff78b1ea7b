"""A program run inside a container that is up, as one of its users: its streams, terminal, signals and end.

The caller's side: the container's supervisor is asked, which forks what enters (entered.py). Whichever of
the two ends takes the program along. Imports are counted here: each `dshpc srun` takes this.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import sys
import time

from dshpc_setup.documents import foreign
from dshpc_setup.files.streams import write_all

TYPE_CHECKING = False  # importing typing would cost as much as all of the rest
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dshpc_setup.errors import DshpcError

_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
OWN = (*_FORWARDED, signal.SIGPIPE, signal.SIGCHLD, signal.SIGWINCH)
DOOR = "enter"  # the supervisor's socket in the run folder
BLOCK = 65536
ENTER_S = 10.0
_LOOK_S = 0.5
TIMED_OUT = 124
"""The exit code of what was ended at its deadline, as timeout(1) has it."""


class RefusedError(Exception):
    """Nothing was run. `fault`: "user" for one that the container does not know, "stopped" where nobody is
    there to let anybody in, or what else the container could not do."""

    def __init__(self, fault: str, detail: str = "") -> None:
        super().__init__(fault, detail)
        self.fault, self.detail = fault, detail


class Command:
    """What to run. `user` is NAME, UID or UID:GID of the container's. `environment` is laid over the
    container's, with HOME, USER and LOGNAME of that user. `deadline_s`: after it what runs is ended: TERM,
    and KILL after `grace_s`."""

    def __init__(
        self,
        argv: tuple[str, ...],
        user: str = "root",
        environment: Mapping[str, str] | None = None,
        folder: str = "/",
        deadline_s: float | None = None,
        grace_s: float = 2.0,
    ) -> None:
        self.argv, self.user, self.folder = argv, user, folder
        self.environment = environment or {}
        self.deadline_s, self.grace_s = deadline_s, grace_s


class Captured:
    """How it ended and what it printed; `timed_out`: it was ended at its deadline."""

    def __init__(self, code: int, stdout: bytes, stderr: bytes, *, timed_out: bool) -> None:
        self.code, self.stdout, self.stderr, self.timed_out = code, stdout, stderr, timed_out


def run(
    folder: str | os.PathLike[str], command: Command, streams: tuple[int, int, int] = (0, 1, 2)
) -> int:
    """Run to the end on these open files in the container with that run folder: the exit code, 128 and the
    signal where one ended it, 124 at the deadline, 126 or 127 where it could not be started.

    INT, TERM, HUP, QUIT, USR1 and USR2 that come to us meanwhile go to the program and those that it has
    started in its session. RefusedError where the container does not run or cannot be entered.
    """
    return _Session(command, _entered(folder, command, streams)).wait(None)


def run_terminal(
    folder: str | os.PathLike[str], command: Command, streams: tuple[int, int] = (0, 1)
) -> int:
    """The same on a new terminal of the container's, which is joined to ours: its size is followed, and
    ours is as before at the end, however that comes."""
    return _Session(command, _entered(folder, command, None)).wait(streams)


def capture(folder: str | os.PathLike[str], command: Command, stdin: bytes = b"") -> Captured:
    """The same with files for its streams. Waits for the program, and not for what it leaves running."""
    import tempfile

    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(stdin)
        given.seek(0)
        streams = (given.fileno(), out.fileno(), err.fileno())
        session = _Session(command, _entered(folder, command, streams))
        code = session.wait(None)
        for file in (out, err):
            file.seek(0)
        return Captured(code, out.read(), err.read(), timed_out=session.timed_out)


class _Entered:
    def __init__(self, program: int, line: socket.socket, master: int | None) -> None:
        self.program = program  # held back until we say so
        self.line, self.master = line, master  # of its terminal


def _entered(
    folder: str | os.PathLike[str], command: Command, streams: tuple[int, int, int] | None
) -> _Entered:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        line.settimeout(ENTER_S)
        _knock(line, os.fspath(folder), command, streams)
        said, handles, _, _ = socket.recv_fds(line, BLOCK, 1)
        told = foreign.value(said) if said else {"fault": "stopped", "detail": "it is ending"}
    except TimeoutError:
        told, handles = {"fault": "namespaces", "detail": f"no answer within {ENTER_S:g} s"}, []
    except OSError as error:
        told, handles = {"fault": "stopped", "detail": str(error)}, []
    if "program" not in told:
        line.close()
        raise RefusedError(str(told.get("fault")), str(told.get("detail")))
    for handle in handles:
        os.set_inheritable(handle, False)
    return _Entered(int(told["program"]), line, handles[0] if handles else None)


def _knock(
    line: socket.socket, folder: str, command: Command, streams: tuple[int, int, int] | None
) -> None:
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        seen = os.fstat(at)
        if seen.st_uid != os.geteuid() or seen.st_mode & 0o022:
            raise PermissionError(errno.EPERM, "it is not a folder of this user's alone", folder)
        # The whole path may be longer than an address of this kind
        line.connect(f"/proc/self/fd/{at}/{DOOR}")
    finally:
        os.close(at)
    asked = {
        "argv": command.argv,
        "user": command.user,
        "environment": dict(command.environment),
        "folder": command.folder,
    }
    handle = os.memfd_create("asked")  # it may be longer than a message
    with open(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump(asked, file, ensure_ascii=False)
        file.flush()
        os.lseek(handle, 0, os.SEEK_SET)
        socket.send_fds(line, [b"enter"], [handle, *(streams or ())])


def in_words(error: RefusedError, user: str) -> DshpcError:
    """Why a command of that user's was not run."""
    from dshpc_setup.errors import DshpcError, Exit, Fix

    if error.fault == "stopped":
        return DshpcError(
            "The container does not run.", error.detail, (Fix("Start it", "dshpc up"),)
        )
    if error.fault == "user":
        return DshpcError(
            f"The container knows no user {user}.",
            error.detail,
            ("Name one of its /etc/passwd, or root.",),
            Exit.USAGE,
        )
    return DshpcError(
        "The container could not be entered.",
        f"{error.fault}: {error.detail}",
        (Fix("See whether it runs", "dshpc status", step="look"),),
    )


class _Session:
    """The program while it runs, from outside."""

    def __init__(self, command: Command, entered: _Entered) -> None:
        self._command, self._entered = command, entered
        self.timed_out = False

    def wait(self, streams: tuple[int, int] | None) -> int:
        """With `streams` (in, out) they are joined to the program's terminal."""
        at, master = self._entered, self._entered.master
        wake, waking = os.pipe()
        for end in (wake, waking):
            os.set_blocking(end, False)
        try:
            with _signals_to(waking), _raw(streams, master):
                at.line.settimeout(None)
                at.line.send(b"go")
                return self._watch(wake, streams)
        finally:
            for end in (wake, waking, *([] if master is None else [master])):
                os.close(end)
            at.line.close()  # what has entered ends by that, and the program with it

    def _watch(self, wake: int, streams: tuple[int, int] | None) -> int:
        line, master = self._entered.line, self._entered.master
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        poll.register(line, select.POLLIN)
        if streams is not None and master is not None:
            poll.register(streams[0], select.POLLIN)
            poll.register(master, select.POLLIN)
        end = _End(self._command)
        while True:
            for stream, _ in poll.poll(end.left_ms()):
                if stream == wake:
                    self._answer(os.read(wake, BLOCK), streams)
                elif stream == line.fileno():
                    code = self._code(line.recv(BLOCK))
                    if streams is not None and master is not None:
                        _drain(master, streams[1])
                    return code
                elif streams is not None and master is not None:
                    _carry(poll, stream, master, streams)
            number = end.due()
            if number is not None:
                self.timed_out = True
                self._end(number)

    def _code(self, said: bytes) -> int:
        if self.timed_out:
            return TIMED_OUT
        return int(foreign.value(said)["code"]) if said else 128 + signal.SIGKILL

    def _answer(self, numbers: bytes, streams: tuple[int, int] | None) -> None:
        for number in numbers:
            if number == signal.SIGWINCH:
                _follow_size(streams, self._entered.master)
            else:
                self._send(number)

    def _send(self, number: int) -> None:
        # Its runner has not reaped it: the number is no other's as long as it lives
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._entered.program, number)

    def _end(self, number: int) -> None:
        if number != signal.SIGKILL:
            self._send(number)
            return
        from dshpc_setup.builtin import processes

        for pid in processes.descendants(self._entered.program):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


class _End:
    """When a command is to be ended, and how."""

    def __init__(self, command: Command) -> None:
        self._grace_s = command.grace_s
        deadline = command.deadline_s
        self._at = None if deadline is None else time.monotonic() + deadline
        self._orders = [signal.SIGTERM, signal.SIGKILL]

    def left_ms(self) -> float | None:
        if self._at is None:
            return None
        return max(0.0, min(self._at - time.monotonic(), _LOOK_S)) * 1000

    def due(self) -> int | None:
        if self._at is None or time.monotonic() < self._at:
            return None
        order = self._orders[0]
        if len(self._orders) > 1:
            del self._orders[0]
        self._at = time.monotonic() + self._grace_s
        return order


def _carry(poll: select.poll, stream: int, master: int, streams: tuple[int, int]) -> None:
    """A block from our terminal to the container's, or back."""
    try:
        block = os.read(stream, BLOCK)
    except OSError:  # EIO: nobody has the other end open
        block = b""
    if stream == master:
        write_all(streams[1], block)
    elif block:
        write_all(master, block)
    else:
        write_all(master, b"\x04")  # ours has ended: as ^D
    if not block:
        poll.unregister(stream)


def _drain(master: int, out: int) -> None:
    os.set_blocking(master, False)
    with contextlib.suppress(OSError):
        while block := os.read(master, BLOCK):
            write_all(out, block)


@contextlib.contextmanager
def _raw(streams: tuple[int, int] | None, master: int | None) -> Iterator[None]:
    if streams is None or not os.isatty(streams[0]):
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(streams[0])
    try:
        tty.setraw(streams[0])
        _follow_size(streams, master)
        yield
    finally:
        termios.tcsetattr(streams[0], termios.TCSAFLUSH, before)


def _follow_size(streams: tuple[int, int] | None, master: int | None) -> None:
    if streams is None or master is None:
        return
    import fcntl
    import termios

    with contextlib.suppress(OSError):
        size = fcntl.ioctl(streams[0], termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(master, termios.TIOCSWINSZ, size)


@contextlib.contextmanager
def _signals_to(waking: int) -> Iterator[None]:
    """The numbers of signals that come are written there; as before at the end. A thread gets none."""
    threads = sys.modules.get("threading")  # who has not imported it has none
    if threads is not None and threads.current_thread() is not threads.main_thread():
        yield
        return
    before = {}
    woken = -1
    try:
        for number in (*_FORWARDED, signal.SIGWINCH):
            before[number] = signal.signal(number, lambda *_: None)
        woken = signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        yield
    finally:
        signal.set_wakeup_fd(woken)
        for number, handler in before.items():
            signal.signal(number, handler)
