"""One connection of the user's own OpenSSH, over which all goes: whoever is asked is asked once."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dshpc_setup.adding import failing
from dshpc_setup.adding.host import Host
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import CommandResult, Machine

_CONNECT_S = 15
_LOGIN_S = 180.0  # somebody may have to find a password
_END_S = 10.0
_KEPT_S = 3600  # without a command: we may be killed, and it is not to stay for ever
_LOST_AFTER = 3  # times that it does not answer, 10 s apart
_MOST_WORDS = 16384  # of bytes: a pipe takes them without a reader
_LONGEST_PATH = 60  # a socket's path has 108 at most, and ssh adds to it
LOST = 255  # ssh's own exit code
_OPTIONS = (
    f"ConnectTimeout={_CONNECT_S}",
    "ServerAliveInterval=10",
    f"ServerAliveCountMax={_LOST_AFTER}",
    # What a user's configuration may have for sessions at a terminal
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "LogLevel=ERROR",
)


@dataclass(frozen=True)
class Connection:
    """Commands for the other machine's shell. `folder` is a private one of this machine."""

    machine: Machine
    host: Host
    folder: Path

    def argv(self, script: str, *, first: bool = False, may_ask: bool = False) -> list[str]:
        keep = (
            ("ControlMaster=yes", f"ControlPersist={_KEPT_S}") if first else ("ControlMaster=no",)
        )
        options = [f"ControlPath={self.folder}/ssh", *keep, *_OPTIONS]
        if not may_ask:
            options.append("BatchMode=yes")
        port = ["-p", str(self.host.port)] if self.host.port is not None else []
        said = [part for option in options for part in ("-o", option)]
        return ["ssh", *said, *port, "--", self.host.name, script]

    def run(
        self,
        script: str,
        *,
        deadline_s: float,
        stdin: str | Path | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> CommandResult:
        """`stdin`: a text, or the file whose content it is. DshpcError where the connection is lost."""
        argv = self.argv(script)
        if isinstance(stdin, Path):
            argv, stdin = ["sh", "-c", 'exec "$@" <"$0"', str(stdin), *argv], None
        return self._done(
            self.machine.run(argv, deadline_s=deadline_s, stdin=stdin, on_line=on_line)
        )

    def run_watched(
        self,
        script: str,
        words: Sequence[str],
        *,
        deadline_s: float,
        on_line: Callable[[str], None],
    ) -> CommandResult:
        """It gets the words on stdin, a line each and an empty one, and stdin's end where we end."""
        text = "".join(f"{word}\n" for word in (*words, "")).encode()
        if len(text) > _MOST_WORDS:
            raise ValueError("more words than a pipe takes")
        pipe = self.folder / "words"
        os.mkfifo(pipe, 0o600)
        handle = os.open(pipe, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.write(handle, text)
            return self.run(script, deadline_s=deadline_s, stdin=pipe, on_line=on_line)
        finally:
            os.close(handle)
            pipe.unlink()

    def _done(self, done: CommandResult) -> CommandResult:
        if done.state == "present" and done.code == LOST:
            raise failing.lost(self.host, done.text)
        return done

    def _open(self, *, interactive: bool) -> None:
        argv = self.argv("true", first=True, may_ask=interactive)
        done = self.machine.run(argv, deadline_s=_LOGIN_S)
        if not done.ok:
            raise failing.not_connected(self.host, done, interactive=interactive)

    def _close(self) -> None:
        argv = self.argv("")
        place = argv.index("--")
        self.machine.run([*argv[:place], "-O", "exit", *argv[place:-1]], deadline_s=_END_S)


@contextlib.contextmanager
def opened(machine: Machine, host: Host, *, interactive: bool) -> Iterator[Connection]:
    """Raises DshpcError where there is none to be had; nothing of it is left afterwards."""
    if machine.which("ssh") is None:
        raise failing.no_client()
    with _private_folder() as folder:
        there = Connection(machine, host, Path(folder))
        try:
            there._open(interactive=interactive)
            yield there
        finally:
            there._close()


def _private_folder() -> tempfile.TemporaryDirectory[str]:
    """Short enough for a socket in it."""
    usual = tempfile.gettempdir()
    try:
        return tempfile.TemporaryDirectory(
            prefix="dshpc-", dir=usual if len(usual) <= _LONGEST_PATH else "/tmp"
        )
    except OSError as error:
        raise DshpcError(
            "No private folder can be made for the connection.", f"{error.strerror}: {usual}"
        ) from None
