"""What jobs have used, kept in files: a line for each, a file for each month.

    use/ledger/2026-11.jsonl   all jobs; root's alone
    use/of/UID.jsonl           that user's, to be read by that user; a copy, and nothing goes by it
    use/live.json, of/UID.live.json   those that run
    use/run/JOB.RESTARTS       what Slurm's plugin has noted of a run (container/task_use.c)

A month's file may begin with a line {"sums": [...]}: what older lines were added up to. Lines are
appended and synced; whoever is killed in between leaves at most half a line, which is none. A file is only
ever replaced as a whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from dshpc_setup import codec
from dshpc_setup.documents import foreign
from dshpc_setup.files.storage import replace_bytes
from dshpc_setup.files.streams import write_all
from dshpc_setup.usage import sums
from dshpc_setup.usage.records import JobUse, of_line, to_line
from dshpc_setup.usage.sums import Sum

FOLDER = "/var/lib/dshpc/state/use"
WHOLE_MONTHS = 3  # of older ones only sums are kept
MOST_BYTES = 16 << 20  # of one month, some 30,000 jobs; of more the older half is added up
MOST_OWN_BYTES = 2 << 20
_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}\.jsonl", re.ASCII)


def make_folders(folder: str = FOLDER) -> None:
    """Raises OSError."""
    for path, mode in ((folder, 0o711), (f"{folder}/ledger", 0o700), (f"{folder}/run", 0o700),
                       (f"{folder}/of", 0o711)):  # fmt: skip
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)


def add(jobs: Iterable[JobUse], folder: str = FOLDER) -> None:
    """Behind what is there, synced; raises OSError."""
    by_file: dict[str, list[str]] = {}
    own: dict[int, list[str]] = {}
    for job in jobs:
        line = to_line(job)
        by_file.setdefault(f"{folder}/ledger/{_month(job.ended)}.jsonl", []).append(line)
        own.setdefault(job.uid, []).append(line)
    for path, lines in by_file.items():
        _append(path, lines, 0o600, sync=True)
    for uid, lines in own.items():
        path = own_path(uid, folder)
        _append(path, lines, 0o400)
        give(path, uid)
        if os.lstat(path).st_size > MOST_OWN_BYTES:
            with open(path, "rb") as file:
                file.seek(-MOST_OWN_BYTES // 2, os.SEEK_END)
                file.readline()
                kept = file.read()
            replace_bytes(path, kept, mode=0o400, sync=False)
            give(path, uid)


def own_path(uid: int, folder: str = FOLDER) -> str:
    return f"{folder}/of/{uid}.jsonl"


def give(path: str, uid: int) -> None:
    """To that user, who is then the only one beside root that can read it. Where the container has no such
    user (a built-in engine's is root alone), it stays root's."""
    with contextlib.suppress(OSError):
        os.chown(path, uid, -1, follow_symlinks=False)


def _month(seconds: float) -> str:
    return time.strftime("%Y-%m", time.gmtime(seconds))


def _append(path: str, lines: list[str], mode: int, *, sync: bool = False) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    handle = os.open(path, flags, mode)
    try:
        size = os.fstat(handle).st_size
        cut_off = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        data = ("\n" if cut_off else "").encode() + "".join(lines).encode()
        write_all(handle, data)
        if sync:
            os.fsync(handle)
    finally:
        os.close(handle)


def months(folder: str = FOLDER) -> list[str]:
    """The paths, the newest first."""
    try:
        names = sorted((name for name in os.listdir(f"{folder}/ledger") if _MONTH.fullmatch(name)),
                       reverse=True)  # fmt: skip
    except OSError:
        return []
    return [f"{folder}/ledger/{name}" for name in names]


def newest_first(uid: int | None = None, folder: str = FOLDER) -> Iterator[JobUse]:
    """What is kept: of all users where root asks (`uid` None), else of that one."""
    for path in months(folder) if uid is None else [own_path(uid, folder)]:
        for line in reversed(_lines(path)):
            job = of_line(line)
            if job is not None:
                yield job


def _lines(path: str) -> list[bytes]:
    try:
        with open(path, "rb") as file:
            return file.read(2 * MOST_BYTES).split(b"\n")
    except OSError:
        return []


def all_sums(uid: int | None = None, folder: str = FOLDER) -> list[Sum]:
    """Of all that is kept, each job once."""
    found: list[Sum] = []
    for path in months(folder) if uid is None else [own_path(uid, folder)]:
        found += _sums_of(_lines(path))
    return sums.together(found)


def _sums_of(lines: Iterable[bytes]) -> list[Sum]:
    found: list[Sum] = []
    seen: set[tuple[int, int, float]] = set()
    for line in lines:
        job = of_line(line)
        if job is not None and job.key not in seen:
            seen.add(job.key)
            found += sums.of_job(job)
        elif job is None:
            found += _folded(line)
    return sums.together(found)


def _folded(line: bytes) -> list[Sum]:
    if not line.startswith(b'{"sums":'):
        return []
    try:
        return [codec.from_json(Sum, each) for each in foreign.value(line)["sums"]]
    except (ValueError, TypeError):
        return []


def fold(now: float, folder: str = FOLDER) -> None:
    """Old months, and the older half of one that has grown too large, become sums."""
    for at, path in enumerate(months(folder)):
        name = os.path.basename(path)
        too_old = at >= WHOLE_MONTHS and name < f"{_month(now)}.jsonl"
        with contextlib.suppress(OSError):
            if too_old or os.lstat(path).st_size > MOST_BYTES:
                _fold(path, whole=too_old)


def _fold(path: str, *, whole: bool) -> None:
    lines = [line for line in _lines(path) if line]
    if whole and len(lines) == 1 and lines[0].startswith(b'{"sums":'):
        return
    most, kept = (0 if whole else MOST_BYTES // 2), []
    while lines and (most := most - len(lines[-1]) - 1) >= 0:
        kept.append(lines.pop())
    added: dict[str, Any] = {"sums": [asdict(each) for each in _sums_of(lines)]}
    first = json.dumps(added, separators=(",", ":")).encode()
    replace_bytes(path, b"\n".join([first, *reversed(kept)]) + b"\n", mode=0o600)
