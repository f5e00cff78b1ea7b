"""Ports on the loopback for clusters that share the machine's network: chosen once, kept, and no two alike.

They lie below those that the kernel gives to connections (ip_local_port_range of ip(7)), so that no
connection of somebody's has taken one by chance when a cluster starts again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shlex
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dshpc_setup import codec
from dshpc_setup.builtin import cache, processes
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.files import atomic, locks
from dshpc_setup.machine.listeners import Listener, listeners

SCHEMA = "dshpc.ports/1"
FIRST, LAST = 20000, 32767
_LOCK_S = 10.0

IsFree = Callable[[int], bool]


@dataclass(frozen=True)
class _Kept:
    clusters: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Taken:
    """Somebody listens on a port that is kept for a cluster. `uid` is whose process it is, `pid` and
    `program` which one; None where this user may not see that."""

    name: str
    port: int
    uid: int | None = None
    pid: int | None = None
    program: str | None = None


def registry(env: Mapping[str, str]) -> Path:
    """The file of all clusters of this user, in the cache: a port that it has lost is chosen again."""
    return cache.folder(env) / "ports.json"


def cluster(folder: str, prefix: str) -> str:
    """What a project's cluster is called in the file: a folder may have had several."""
    return f"{folder}:{prefix}"


def is_free(port: int, address: str = "127.0.0.1") -> bool:
    """Whether one may listen on the port of that address now."""
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def keep(
    file: Path,
    cluster: str,
    names: tuple[str, ...],
    free: IsFree = is_free,
    before: Mapping[str, int] | None = None,
    lost: Collection[str] = (),
) -> Mapping[str, int]:
    """A port for each name: those kept for the cluster, and new free ones for what has none yet: that of
    `before` where it is free. `lost`: names whose port another program has now.

    `cluster` names it among all of this user's, such as its folder. Raises DshpcError where the file
    cannot be read or written, or all ports are taken.
    """
    with _changed(file) as clusters:
        had = clusters.get(cluster, {})
        kept = {name: port for name, port in had.items() if name not in lost}
        taken = {port for ports in clusters.values() for port in ports.values()}
        for name in names:
            if name not in kept:
                first = [port for port in [(before or {}).get(name)] if port and port not in taken]
                others = _candidates(f"{cluster}\0{name}", taken, free)
                kept[name] = next((port for port in first if free(port)), 0) or next(others, 0)
                if not kept[name]:
                    raise DshpcError(
                        "There is no free port for the cluster.",
                        f"Each from {FIRST} to {LAST} is taken on 127.0.0.1.",
                        (Fix("See who listens", "ss -ltn", step="look"),),
                    )
                taken.add(kept[name])
        clusters[cluster] = kept
        return {name: kept[name] for name in names}


def forget(file: Path, cluster: str) -> None:
    """The cluster's ports may be given to others; DshpcError where that cannot be written."""
    if file.exists():
        with _changed(file) as clusters:
            clusters.pop(cluster, None)


def _candidates(seed: str, taken: set[int], free: IsFree) -> Iterator[int]:
    """All ports, from one that the name chooses: users of one machine begin at different ones."""
    many = LAST - FIRST + 1
    begin = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") % many
    for step in range(many):
        port = FIRST + (begin + step) % many
        if port not in taken and free(port):
            yield port


@contextlib.contextmanager
def _changed(file: Path) -> Iterator[dict[str, Mapping[str, int]]]:
    """The clusters of the file, to be changed under its lock, and written in one step at the end."""
    cache.make_folder(file.parent)
    with locks.held(file.with_suffix(".lock"), _LOCK_S) as ours:
        if not ours:
            raise DshpcError(
                "Another run is choosing ports.", f"{file} is locked.", ("Run this again.",)
            )
        before = _read(file)
        now = dict(before)
        yield now
        if now != before:
            text = json.dumps(codec.to_json(_Kept(now), SCHEMA), indent=1)
            atomic.write_atomic(file, text + "\n", 0o600)


def _read(file: Path) -> dict[str, Mapping[str, int]]:
    try:
        text = file.read_text()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise atomic.read_error(error, file) from None
    try:
        return dict(codec.from_json(_Kept, foreign.value(text), SCHEMA).clusters)
    except ValueError as error:
        raise DshpcError(
            f"{file} cannot be read: it does not hold what was written there.",
            str(error),
            (
                Fix(
                    "Remove it; clusters that are started then choose their ports again",
                    f"rm {shlex.quote(str(file))}",
                ),
            ),
        ) from None


def taken(kept: Mapping[str, int], ours: processes.Process | None = None) -> tuple[Taken, ...]:
    """The ports on which somebody listens who is not of the container whose first process is `ours`."""
    by_port: dict[int, Listener] = {}
    for each in listeners():
        by_port.setdefault(each.port, each)
    wanted = {by_port[port].inode for port in kept.values() if port in by_port}
    holders = _holders(wanted) if wanted else {}
    own = _namespace(ours.pid) if ours is not None else None
    lent = lent_ids(_uid_map(ours.pid), os.geteuid()) if ours is not None else ()
    found = []
    for name, port in kept.items():
        if port not in by_port:
            continue
        pid, uid = holders.get(by_port[port].inode), by_port[port].uid
        if (
            pid is None
        ):  # the kernel shows no open files of other users, those of the range among them
            is_ours = any(uid in each for each in lent)
        else:
            is_ours = own is not None and _namespace(pid) == own
        if not is_ours:
            found.append(Taken(name, port, uid, pid, _program(pid)))
    return tuple(found)


def lent_ids(uid_map: str, own: int) -> tuple[range, ...]:
    """Ids of the machine that users of a container have, its root among them, by its uid_map; but for `own`,
    whose programs need not be of the container, and ids that are the same within."""
    found = []
    for line in uid_map.splitlines():
        fields = line.split()
        if len(fields) == 3 and all(each.isascii() and each.isdigit() for each in fields):
            inside, outside, count = map(int, fields)
            if inside != outside and outside != own:
                found.append(range(outside, outside + count))
    return tuple(found)


def _uid_map(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/uid_map").read_text()
    except OSError:
        return ""


def _holders(inodes: set[int]) -> dict[int, int]:
    """Socket -> a process that has it open, of those that this user may look at."""
    names = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, int] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for handle in os.listdir(f"/proc/{pid}/fd"):
                inode = names.get(os.readlink(f"/proc/{pid}/fd/{handle}"))
                if inode is not None:
                    found.setdefault(inode, int(pid))
        except OSError:  # another user's, or it has ended
            continue
    return found


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def _program(pid: int | None) -> str | None:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() if pid is not None else None
    except OSError:
        return None
