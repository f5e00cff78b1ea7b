"""`dshpc-node backup`: the state volume and the keys as one archive on stdout, while jobs go on.

slurmctld replaces its files and never writes into them: second names keep those of one moment, first the
jobs' scripts, then its state, then the scripts once more, so that each job of that state has its own. The
database is stopped for the seconds that its copy takes: slurmctld keeps what it owes meanwhile. It comes
back however this process ends. The archive's last file has the sum of each: what was cut off is no backup.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import stat
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from dshpc_setup import __version__, codec
from dshpc_setup.container import accounting
from dshpc_setup.container.exclusive import alone
from dshpc_setup.errors import DshpcError
from dshpc_setup.files.storage import open_lock, read_text
from dshpc_setup.machine import Machine
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.paths import Paths

MANIFEST = "dshpc-backup.json"
SCHEMA = "dshpc.backup/1"
STATE, KEY = "state", "key"
# Of the state volume: what is a moment's, what a restore puts there, and what is taken by itself
_NOT_KEPT = re.compile(
    r"\.(?:health|dshpc-room|backup\..*)|slurmctld\.runs|restore\..*|before-restore(?:\..*)?"
)
_BY_ITSELF = ("slurmctld", "database")
_SCRIPTS = re.compile(r"hash\.[0-9]+")
_ENDED_S = 60.0
DEEPEST = 32  # folders in each other; the cluster's own are five at most
_POLL_S = 0.02
_PACKED = 3  # of 9: a database is mostly zeros


@dataclass(frozen=True)
class Manifest:
    """`files`: path in the archive -> SHA-256 of its content."""

    prefix: str
    made: int  # seconds of the epoch
    slurm: str  # "24.11.5"
    dshpc: str
    accounting: bool
    files: dict[str, str] = field(default_factory=dict)


def write(machine: Machine, paths: Paths, settings: Settings) -> int:
    """The archive on stdout; DshpcError where another change is under way."""
    with alone(paths, "dshpc backup"):
        has_database = settings.accounting == "on"
        manifest = Manifest(
            settings.prefix, int(time.time()), slurm_version(machine), __version__, has_database
        )
        with (
            gzip.GzipFile("", "wb", _PACKED, sys.stdout.buffer) as packed,
            tarfile.open(fileobj=packed, mode="w|") as archive,
        ):
            into = _Archive(archive, manifest)
            with _snapshot(paths) as slurmctld:
                into.tree(slurmctld, f"{STATE}/slurmctld")
            if os.path.isdir(paths.database):
                with _database_at_rest(machine, paths, settings):
                    into.tree(paths.database, f"{STATE}/database", without=("tmp",))
            for name in sorted(os.listdir(paths.state)):
                if name not in _BY_ITSELF and not _NOT_KEPT.fullmatch(name):
                    into.tree(f"{paths.state}/{name}", f"{STATE}/{name}")
            into.tree(os.path.dirname(paths.key), KEY)
            into.end()
    return 0


def slurm_version(machine: Machine) -> str:
    """The release, as the program says it: "slurm-wlm 24.11.5"."""
    words = machine.run(["slurmctld", "-V"], deadline_s=10.0).stdout.split()
    return words[-1] if words else ""


def is_not_kept(names: list[str]) -> bool:
    """Whether what is called so in the state volume itself stays out of a backup."""
    return any(_NOT_KEPT.fullmatch(name) for name in names)


class _Archive:
    def __init__(self, archive: tarfile.TarFile, manifest: Manifest) -> None:
        self._archive, self._manifest = archive, manifest

    def tree(
        self, path: str, name: str, without: tuple[str, ...] = (), within: int | None = None
    ) -> None:
        """A file, or a folder with all in it; what has gone meanwhile, and what is neither, is none.

        `within`: the folder that holds it, open. Some folders are their users': no link of theirs leads out.
        """
        opened = _opened(path, within) if name.count("/") < DEEPEST else None
        if opened is None:
            return
        try:
            found = os.fstat(opened)
            if stat.S_ISDIR(found.st_mode):
                names = sorted(os.listdir(opened))
                self._archive.addfile(_member(name, found, tarfile.DIRTYPE))
                for each in names:
                    if each not in without:
                        self.tree(each, f"{name}/{each}", within=opened)
            else:
                self._file(opened, name)
        finally:
            os.close(opened)

    def _file(self, opened: int, name: str) -> None:
        with open(opened, "rb", closefd=False) as file:
            found = os.fstat(opened)
            member = _member(name, found, tarfile.REGTYPE)
            member.size = found.st_size
            summed = _Summed(file, found.st_size)
            self._archive.addfile(member, summed)
        self._manifest.files[name] = summed.sum.hexdigest()

    def end(self) -> None:
        text = json.dumps(codec.to_json(self._manifest, SCHEMA)).encode()
        member = tarfile.TarInfo(MANIFEST)
        member.size, member.mode, member.mtime = len(text), 0o600, self._manifest.made
        self._archive.addfile(member, io.BytesIO(text))


def _opened(path: str, within: int | None) -> int | None:
    """A plain file or a folder, looked at before and after it is opened; None for anything else."""
    plain = (stat.S_IFREG, stat.S_IFDIR)
    try:
        found = os.stat(path, dir_fd=within, follow_symlinks=False)
        if stat.S_IFMT(found.st_mode) not in plain:
            return None
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=within)
    except OSError as error:
        if error.errno in (
            errno.ENOENT,
            errno.ELOOP,
            errno.ENXIO,
        ):  # gone, a link now, a socket now
            return None
        raise
    if stat.S_IFMT(os.fstat(opened).st_mode) in plain:
        return opened
    os.close(opened)
    return None


class _Summed:
    """A file of that many bytes, though it grows or shrinks meanwhile: a ledger is written to its end."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size
        self.sum = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        found = self._file.read(wanted).ljust(wanted, b"\0")
        self._left -= wanted
        self.sum.update(found)
        return found


def _member(name: str, found: os.stat_result, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.mtime = kind, stat.S_IMODE(found.st_mode), int(found.st_mtime)
    member.uid, member.gid = found.st_uid, found.st_gid
    return member


@contextlib.contextmanager
def _snapshot(paths: Paths) -> Iterator[str]:
    """slurmctld's folder as it is at one moment, under second names."""
    live = f"{paths.state}/slurmctld"
    copy = f"{paths.state}/.backup.{os.getpid()}"
    for left in Path(paths.state).glob(".backup.*"):  # of one that was killed
        shutil.rmtree(left, ignore_errors=True)
    try:
        os.mkdir(copy, 0o700)
        shutil.copystat(live, copy)
        _link(live, copy, lambda name: _SCRIPTS.fullmatch(name) is not None)
        _link(live, copy, lambda name: _SCRIPTS.fullmatch(name) is None)
        _link(live, copy, lambda name: _SCRIPTS.fullmatch(name) is not None)
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _link(live: str, copy: str, wanted: Callable[[str], bool] = lambda _: True) -> None:
    for entry in sorted(os.scandir(live), key=lambda each: each.name):
        there = f"{copy}/{entry.name}"
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            if not wanted(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                if not os.path.isdir(there):
                    os.mkdir(there)
                    found = entry.stat(follow_symlinks=False)
                    os.chown(there, found.st_uid, found.st_gid)
                    os.chmod(there, stat.S_IMODE(found.st_mode))
                _link(entry.path, there)
            elif entry.is_file(follow_symlinks=False):
                os.link(entry.path, there)


@contextlib.contextmanager
def _database_at_rest(machine: Machine, paths: Paths, settings: Settings) -> Iterator[None]:
    """While it lasts the database's files are whole. Its service waits for our lock, which ends with us."""
    if settings.accounting != "on":
        yield
        return
    with open_lock(f"{paths.run}/database/lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pid = (read_text(f"{paths.run}/database/ready") or "").strip()
        machine.run(["s6-svc", "-t", f"{paths.services}/{accounting.DATABASE}"], deadline_s=10.0)
        until = time.monotonic() + _ENDED_S
        while pid and os.path.exists(f"/proc/{pid}"):
            if time.monotonic() >= until:
                raise DshpcError(
                    "The accounting database does not stop, so its files cannot be copied.",
                    f"Its process {pid} was told to, {_ENDED_S:.0f} s ago.",
                    ("See what it says: dshpc logs", "Then run this again."),
                )
            time.sleep(_POLL_S)
        yield
    until = time.monotonic() + _ENDED_S  # who asks sacct after a backup is to have an answer
    while not os.path.exists(f"{paths.run}/database/ready") and time.monotonic() < until:
        time.sleep(_POLL_S)
