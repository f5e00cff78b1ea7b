"""A program run inside a container that is up: the part that enters it, made by the container's supervisor.

Three processes: the caller's (enter.py); one that the supervisor forks, which enters the namespaces and stays
outside the container's numbers, which are for its children alone; the program. The program ends where one of
the other two does. Nothing of the caller's is in what enters but what was sent: the interpreter is the
supervisor's, which is kept from the container (own_program.py).
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
import struct
import termios
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from dshpc_setup import signals
from dshpc_setup.builtin import accounts, kernel, limits, one_id, processes, refused_calls
from dshpc_setup.builtin.enter import BLOCK, DOOR, ENTER_S, OWN
from dshpc_setup.builtin.processes import Process
from dshpc_setup.builtin.wanted import Record
from dshpc_setup.documents import foreign

_NAMESPACES = (
    ("user", kernel.NEWUSER),
    ("ipc", kernel.NEWIPC),
    ("uts", kernel.NEWUTS),
    ("cgroup", kernel.NEWCGROUP),
    ("pid", kernel.NEWPID),
    ("mnt", kernel.NEWNS),
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_WAITING = 64  # callers whose turn has not come

Fault = Literal["namespaces", "user", "terminal", "rights", "folder"]


@dataclass(frozen=True)
class _Asked:
    """What the caller has sent: as enter.Command has it. `streams`: None for a terminal of its own."""

    argv: tuple[str, ...]
    user: str
    environment: Mapping[str, str]
    folder: str
    streams: tuple[int, int, int] | None


def door(run: Path) -> socket.socket:
    """Where callers knock, in the run folder, which only its owner can enter; OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(run / DOOR)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = os.open(run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:  # the whole path may be longer than an address of this kind
        made.bind(f"/proc/self/fd/{folder}/{DOOR}")
    finally:
        os.close(folder)
    os.chmod(run / DOOR, 0o600)
    made.listen(_WAITING)
    return made


def let_in(at: socket.socket, record: Record) -> None:
    """One who knocks, by a process of its own, where the container runs and it is this user; never raises."""
    try:
        line, _ = at.accept()
    except OSError:  # it has gone away again
        return
    with line:
        _, uid, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if record.state != "running" or uid != os.geteuid():
            return
        above = os.getpid()
        with contextlib.suppress(
            OSError
        ):  # no more processes: the caller is told by the end of the line
            if os.fork() == 0:
                with contextlib.suppress(BaseException):
                    _runner(record, _alone_with(line), above)
                os._exit(1)


def _alone_with(line: socket.socket) -> socket.socket:
    """The line, of all that the supervisor has open."""
    signal.set_wakeup_fd(-1)
    at = fcntl.fcntl(line.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)
    if at != 3:
        os.dup2(at, 3, inheritable=False)
    kernel.close_from(4)
    return socket.socket(fileno=3)


def _asked(line: socket.socket) -> _Asked:
    """Raises what a caller's mistake raises."""
    line.settimeout(ENTER_S)
    _, handles, _, _ = socket.recv_fds(line, BLOCK, 4)
    line.settimeout(None)
    for handle in handles:
        os.set_inheritable(handle, False)
    told, *streams = handles
    with open(told, encoding="utf-8", errors="surrogateescape") as file:
        value: dict[str, Any] = foreign.value(file.read())
    given = (streams[0], streams[1], streams[2]) if streams else None
    return _Asked(tuple(value["argv"]), value["user"], value["environment"], value["folder"], given)


class _FaultError(Exception):
    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(fault, detail)
        self.fault, self.detail = fault, detail


def _runner(record: Record, line: socket.socket, above: int) -> NoReturn:
    for number in OWN:
        signal.signal(number, signal.SIG_DFL)
    try:
        command = _asked(line)
        streams = command.streams
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
        wake, waking = os.pipe()
        for end in (wake, waking):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waking)
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
    for handle in (master, slave, *(streams or ())):
        if handle is not None:
            os.close(handle)
    if line.recv(BLOCK):
        os.write(go, b".")
        os.close(go)
        _tell_end(program, line, wake)
    os.kill(program, signal.SIGKILL)
    os._exit(0)


def _tell_end(program: int, line: socket.socket, wake: int) -> None:
    """Its exit code, and it is reaped only once that was heard: until then signals may be sent to it.
    Nothing where the caller ends first."""
    poll = select.poll()
    for handle in (line.fileno(), wake):
        poll.register(handle, select.POLLIN)
    while (ended := os.waitid(os.P_PID, program, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is None:
        for handle, _ in poll.poll():
            if handle != wake:
                return
            os.read(wake, BLOCK)
    code = ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status
    with contextlib.suppress(OSError):
        line.send(json.dumps({"code": code}).encode())
        line.recv(BLOCK)


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
    command: _Asked,
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
