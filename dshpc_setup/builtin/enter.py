"""A program run inside a container that is up, as one of its users: its streams, terminal, signals and end.

Three processes: ours; one that enters the namespaces (and stays outside the container's numbers, which are
for its children alone); the program. Whichever of the first two is killed takes the next one along.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import tempfile
import termios
import threading
import time
import tty
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from dshpc_setup import signals
from dshpc_setup.builtin import accounts, kernel, limits, one_id, processes, refused_calls
from dshpc_setup.builtin.launch import Status
from dshpc_setup.builtin.processes import Process
from dshpc_setup.builtin.wanted import Record
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Exit, Fix

_NAMESPACES = (
    ("user", kernel.NEWUSER),
    ("ipc", kernel.NEWIPC),
    ("uts", kernel.NEWUTS),
    ("cgroup", kernel.NEWCGROUP),
    ("pid", kernel.NEWPID),
    ("mnt", kernel.NEWNS),
)
_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_OWN = (*_FORWARDED, signal.SIGPIPE, signal.SIGCHLD, signal.SIGWINCH)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BLOCK = 65536
_ENTER_S = 10.0
_LOOK_S = 0.5
TIMED_OUT = 124
"""The exit code of what was ended at its deadline, as timeout(1) has it."""

Fault = Literal["namespaces", "user", "terminal", "rights", "folder"]


@dataclass(frozen=True)
class Command:
    """What to run. `user` is NAME, UID or UID:GID of the container's. `environment` is laid over the
    container's, with HOME, USER and LOGNAME of that user. `deadline_s`: after it what runs is ended: TERM,
    and KILL after `grace_s`."""

    argv: tuple[str, ...]
    user: str = "root"
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"
    deadline_s: float | None = None
    grace_s: float = 2.0


@dataclass(frozen=True)
class Captured:
    """How it ended and what it printed; `timed_out`: it was ended at its deadline."""

    code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool


def run(status: Status, command: Command, streams: tuple[int, int, int] = (0, 1, 2)) -> int:
    """Run to the end on these open files: the exit code, 128 and the signal where one ended it, 124 at the
    deadline, 126 or 127 where it could not be started.

    INT, TERM, HUP, QUIT, USR1 and USR2 that come to us meanwhile go to the program and those that it has
    started in its session. DshpcError where the container does not run or knows no such user.
    """
    return _Session(command, _entered(_running(status), command, streams)).wait(None)


def run_terminal(status: Status, command: Command, streams: tuple[int, int] = (0, 1)) -> int:
    """The same on a new terminal of the container's, which is joined to ours: its size is followed, and
    ours is as before at the end, however that comes."""
    session = _Session(command, _entered(_running(status), command, None))
    return session.wait(streams)


def capture(status: Status, command: Command, stdin: bytes = b"") -> Captured:
    """The same with files for its streams. Waits for the program, and not for what it leaves running."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(stdin)
        given.seek(0)
        streams = (given.fileno(), out.fileno(), err.fileno())
        session = _Session(command, _entered(_running(status), command, streams))
        code = session.wait(None)
        for file in (out, err):
            file.seek(0)
        return Captured(code, out.read(), err.read(), session.timed_out)


def _running(status: Status) -> Record:
    record = status.record
    if status.state != "running" or record is None or record.init is None:
        raise DshpcError(
            "The container does not run.", f"It is: {status.state}.", (Fix("Start it", "dshpc up"),)
        )
    return record


@dataclass(frozen=True)
class _Entered:
    runner: int  # our child
    program: int  # its child, held back until we say so
    line: socket.socket
    master: int | None  # of its terminal


def _entered(record: Record, command: Command, streams: tuple[int, int, int] | None) -> _Entered:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    above = os.getpid()
    with _blocked(_FORWARDED):
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                ours.close()
                _runner(record, command, streams, theirs, above)
            os._exit(1)
    theirs.close()
    ours.settimeout(_ENTER_S)
    try:
        said, handles, _, _ = socket.recv_fds(ours, _BLOCK, 1)
    except TimeoutError:
        said, handles = b"", []
    told = foreign.value(said) if said else {}
    if "program" not in told:
        ours.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise _refused(command, told.get("fault"), str(told.get("detail", "no answer")))
    for handle in handles:
        os.set_inheritable(handle, False)
    return _Entered(pid, int(told["program"]), ours, handles[0] if handles else None)


def _refused(command: Command, fault: object, detail: str) -> DshpcError:
    if fault == "user":
        return DshpcError(
            f"The container knows no user {command.user}.",
            detail,
            ("Name one of its /etc/passwd, or root.",),
            Exit.USAGE,
        )
    return DshpcError(
        "The container could not be entered.",
        f"{fault or 'namespaces'}: {detail}",
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
            at.line.close()  # the runner ends by that, and the program with it
            os.waitpid(at.runner, 0)

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
                    self._answer(os.read(wake, _BLOCK), streams)
                elif stream == line.fileno():
                    code = self._code(line.recv(_BLOCK))
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
        block = os.read(stream, _BLOCK)
    except OSError:  # EIO: nobody has the other end open
        block = b""
    if stream == master:
        _write(streams[1], block)
    elif block:
        _write(master, block)
    else:
        _write(master, b"\x04")  # ours has ended: as ^D
    if not block:
        poll.unregister(stream)


def _drain(master: int, out: int) -> None:
    os.set_blocking(master, False)
    with contextlib.suppress(OSError):
        while block := os.read(master, _BLOCK):
            _write(out, block)


def _write(handle: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(handle, view) :]


@contextlib.contextmanager
def _raw(streams: tuple[int, int] | None, master: int | None) -> Iterator[None]:
    if streams is None or not os.isatty(streams[0]):
        yield
        return
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
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(streams[0], termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(master, termios.TIOCSWINSZ, size)


@contextlib.contextmanager
def _signals_to(waking: int) -> Iterator[None]:
    """The numbers of signals that come are written there; as before at the end. A thread gets none."""
    if threading.current_thread() is not threading.main_thread():
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


@contextlib.contextmanager
def _blocked(numbers: tuple[signal.Signals, ...]) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# In the processes that enter


class _FaultError(Exception):
    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(fault, detail)
        self.fault, self.detail = fault, detail


def _runner(
    record: Record,
    command: Command,
    streams: tuple[int, int, int] | None,
    line: socket.socket,
    above: int,
) -> NoReturn:
    for number in _OWN:
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # of our terminal: they are passed on to the program
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        limits.raise_all()
        init = record.init or record.supervisor
        alone, machines = _is_alone(init), _is_machines(init)
        _enter(init)
        account = _account(command.user, alone)
        master, slave = _terminal(account) if streams is None else (None, None)
        kernel.die_with_parent(signal.SIGKILL)
        if os.getppid() != above:
            os._exit(1)
        held, go = os.pipe()
        program = os.fork()
    except _FaultError as fault:
        line.send(json.dumps({"fault": fault.fault, "detail": fault.detail}).encode())
        os._exit(1)
    if program == 0:
        os.close(go)
        with contextlib.suppress(BaseException):
            if streams is None and slave is not None:
                streams = (slave, slave, slave)
            if streams is not None:
                _program(
                    command,
                    _Who(account, alone, machines, record),
                    streams,
                    held,
                    master is not None,
                )
        os._exit(126)
    os.close(held)
    said = json.dumps({"program": program}).encode()
    socket.send_fds(line, [said], [] if master is None else [master])
    for handle in (master, slave):
        if handle is not None:
            os.close(handle)
    if line.recv(_BLOCK):
        os.write(go, b".")
        os.close(go)
        _tell_end(program, line)
    os.kill(program, signal.SIGKILL)
    os._exit(0)


def _tell_end(program: int, line: socket.socket) -> None:
    """Its exit code, and it is reaped only once that was heard: until then signals may be sent to it."""
    ended = os.waitid(os.P_PID, program, os.WEXITED | os.WNOWAIT)
    code = 0
    if ended is not None:
        code = ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status
    with contextlib.suppress(OSError):
        line.send(json.dumps({"code": code}).encode())
        line.recv(_BLOCK)


def _enter(init: Process) -> None:
    """By /proc/PID held open: it is of this very process, also where the pid is given again."""
    try:
        folder = os.open(f"/proc/{init.pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if not processes.runs(init):
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        handles = []
        for name, kind in _NAMESPACES:
            with contextlib.suppress(FileNotFoundError):  # a kernel without them
                handle = os.open(f"ns/{name}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
                if not os.path.samestat(os.fstat(handle), os.stat(f"/proc/self/ns/{name}")):
                    handles.append((handle, kind))
        entered = {kind for _, kind in handles}
        if not {kernel.NEWNS, kernel.NEWPID} <= entered:  # or the program would run on the machine
            raise PermissionError(errno.EPERM, "it has no root or processes of its own")
        for handle, kind in handles:
            kernel.setns(handle, kind)
        os.chdir("/")
    except OSError as error:
        raise _FaultError("namespaces", str(error)) from None


def _account(user: str, alone: bool) -> accounts.Account:
    texts = []
    for path in ("/etc/passwd", "/etc/group"):
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                texts.append(file.read())
        except OSError:
            texts.append("")
    found = accounts.find(user, texts[0], texts[1])
    if found is None:
        raise _FaultError("user", "it is not in /etc/passwd")
    if found.uid != 0 and alone:
        raise _FaultError("user", "root is the only user of a container without a range of ids")
    return found


def _is_alone(init: Process) -> bool:
    """Whether root is the container's only user (user_namespaces(7))."""
    try:
        with open(f"/proc/{init.pid}/uid_map", encoding="ascii") as file:
            return [line.split()[0::2] for line in file] == [["0", "1"]]
    except OSError as error:
        raise _FaultError("namespaces", str(error)) from None


def _is_machines(init: Process) -> bool:
    """Whether its root is ours: there is no user namespace in between."""
    try:
        ours = os.stat("/proc/self/ns/user")
        return os.geteuid() == 0 and os.path.samestat(os.stat(f"/proc/{init.pid}/ns/user"), ours)
    except OSError as error:
        raise _FaultError("namespaces", str(error)) from None


def _terminal(account: accounts.Account) -> tuple[int, int]:
    """A new one of the container's own: its master and its slave, which belongs to the user."""
    try:
        _as_root()
        master, slave = os.openpty()
        with contextlib.suppress(OSError):  # no such user can own anything here
            os.fchown(slave, account.uid, -1)
    except OSError as error:
        raise _FaultError("terminal", str(error)) from None
    return master, slave


def _as_root() -> None:
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


@dataclass(frozen=True)
class _Who:
    account: accounts.Account
    alone: bool  # the container has no other user than root
    machines: bool  # its root is the machine's
    record: Record


def _program(
    command: Command,
    who: _Who,
    streams: tuple[int, int, int],
    held: int,
    terminal: bool,
) -> NoReturn:
    account = who.account
    kernel.die_with_parent(signal.SIGKILL)
    signals.as_at_first()
    os.setsid()
    copies = [fcntl.fcntl(stream, fcntl.F_DUPFD_CLOEXEC, 10) for stream in streams]
    for at, handle in enumerate(copies):
        os.dup2(handle, at)
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    try:
        _become(who)
        os.chdir(command.folder)
    except OSError as error:
        os.write(2, f"dshpc: {command.folder}: {error.strerror}\n".encode())
        os._exit(126)
    kernel.die_with_parent(signal.SIGKILL)  # which the change of user has taken back
    if not os.read(held, 1):
        os._exit(1)
    environment = {
        "PATH": _PATH,
        **who.record.environment,
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        **command.environment,
    }
    kernel.close_from(
        3
    )  # what the caller has open is his, and a folder would lead out of the container
    try:
        os.execvpe(command.argv[0], command.argv, environment)
    except OSError as error:
        os.write(2, f"dshpc: {command.argv[0]}: {error.strerror}\n".encode())
        os._exit(127 if error.errno == errno.ENOENT else 126)


def _become(who: _Who) -> None:
    account = who.account
    _as_root()
    kernel.keep_capabilities(who.record.capabilities)
    kernel.no_new_privileges()
    if who.alone:
        one_id.pretend()
    if who.machines:
        refused_calls.refuse()
    os.setgroups(account.groups)
    os.setresgid(account.gid, account.gid, account.gid)
    os.setresuid(account.uid, account.uid, account.uid)
