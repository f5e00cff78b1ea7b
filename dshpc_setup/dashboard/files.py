"""What lies in a job's workspace, and what it has printed: opened part by part, by no link.

By the rights of who started the dashboard; each file must be the job's user's. See jobs/safe_open.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import safe_open, workspace
from dshpc_setup.jobs.view import View
from dshpc_setup.terminal.sanitize import harmless

MOST_ENTRIES = 1000
MOST_TEXT = 256 << 10  # bytes of a file that are shown in a page
MOST_LOG = 64 << 10
_MOST_SEARCHED = 16 << 20
_MOST_HITS = 500
PICTURES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
"""What a browser may show as it is; SVG is a program, and downloaded."""

# CSI and OSC sequences of terminals, and what stands alone behind an ESC
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


@dataclass(frozen=True)
class Entry:
    name: str
    kind: str  # folder | file | link | other
    size: int
    changed: float


@dataclass(frozen=True)
class Part:
    """Text from the place `begin` of a file to `end`, of `size` bytes."""

    text: str
    begin: int
    end: int
    size: int


def listing(one: View, work: str, parts: tuple[str, ...]) -> tuple[tuple[Entry, ...], bool]:
    """What lies in a folder of the workspace, by name, and whether there is more. Raises DshpcError."""
    with _told(one, parts), _folder(one, work, parts) as handle:
        found: list[Entry] = []
        with os.scandir(handle) as entries:
            for entry in entries:
                if len(found) == MOST_ENTRIES:
                    return _sorted(found), True
                if not entry.name.startswith(".dshpc-"):
                    with contextlib.suppress(FileNotFoundError):  # jobs remove files meanwhile
                        found.append(_entry(entry))
        return _sorted(found), False


def is_folder(one: View, work: str, parts: tuple[str, ...]) -> bool:
    """Raises DshpcError for what is not there."""
    with _told(one, parts), _folder(one, work, parts[:-1]) as folder:
        if parts and not _is_name(parts[-1]):
            raise FileNotFoundError(2, os.strerror(2))
        found = os.stat(parts[-1] if parts else ".", dir_fd=folder, follow_symlinks=False)
        return stat.S_ISDIR(found.st_mode)


def opened(one: View, work: str, parts: tuple[str, ...]) -> tuple[int, int]:
    """A file of the workspace, open for reading, and its size; raises DshpcError."""
    with _told(one, parts), _folder(one, work, parts[:-1]) as folder:
        handle = safe_open.file(parts[-1] if _is_name(parts[-1]) else "", folder, _owner(one, work))
        return handle, os.fstat(handle).st_size


def text(one: View, work: str, parts: tuple[str, ...]) -> Part | None:
    """The beginning of a file as text; None for one that is none."""
    handle, size = opened(one, work, parts)
    with open(handle, "rb") as file:
        data = file.read(MOST_TEXT)
    if b"\0" in data:
        return None
    return Part(shown(data), 0, len(data), size)


def log(one: View, work: str, begin: int | None = None, most: int = MOST_LOG) -> Part:
    """What it has printed from a place on, or the last of it; Raises DshpcError where there is no log.

    A log that has become shorter than `begin` is read from its beginning: it was begun anew.
    """
    with _log(one, work) as handle:
        size = os.fstat(handle).st_size
        at = max(0, size - most) if begin is None else begin if begin <= size else 0
        data = os.pread(handle, min(most, size - at), at)
    if begin is None and at > 0:  # from the beginning of a line
        cut = data.find(b"\n") + 1
        at, data = at + cut, data[cut:]
    whole = _whole_letters(data) if at + len(data) >= size else data
    return Part(shown(whole), at, at + len(whole), size)


def opened_log(one: View, work: str) -> tuple[int, int]:
    """The log, open for reading, and its size; raises DshpcError."""
    with _log(one, work) as handle:
        return os.dup(handle), os.fstat(handle).st_size


def hits(one: View, work: str, words: str) -> tuple[tuple[int, str], ...]:
    """The lines of the log that hold the words, with their numbers; capitals do not count."""
    wanted = words.casefold()
    found: list[tuple[int, str]] = []
    with _log(one, work) as handle, open(os.dup(handle), "rb") as file:
        for number, line in enumerate(file.read(_MOST_SEARCHED).splitlines(), 1):
            shown_line = shown(line)
            if wanted in shown_line.casefold():
                found.append((number, shown_line))
                if len(found) == _MOST_HITS:
                    break
    return tuple(found)


def shown(data: bytes) -> str:
    """As a page may have it: without a terminal's commands; a line that was written over is several."""
    plain = _ESCAPES.sub("", data.decode("utf-8", "replace"))
    return harmless(plain.replace("\r\n", "\n").replace("\r", "\n"))


def _whole_letters(data: bytes) -> bytes:
    """Without the beginning of a letter whose rest is not written yet."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            needed = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if needed > back else data
    return data


@contextlib.contextmanager
def _folder(one: View, work: str, parts: tuple[str, ...]) -> Iterator[int]:
    with _place(one, work).opened() as top:
        at = os.dup(top)
        try:
            for part in parts:
                if not _is_name(part):
                    raise FileNotFoundError(2, os.strerror(2))
                before, at = at, safe_open.folder(part, at)
                os.close(before)
            yield at
        finally:
            os.close(at)


def _place(one: View, work: str) -> workspace.Workspace:
    place = workspace.of_path(work, one.workspace or "")
    if place is None:
        raise FileNotFoundError(2, os.strerror(2))
    return place


def _owner(one: View, work: str) -> int:
    return _place(one, work).uid


def _is_name(part: str) -> bool:
    """Of one entry of a folder, and no way to another."""
    return part not in ("", ".", "..") and "/" not in part and "\0" not in part


@contextlib.contextmanager
def _log(one: View, work: str) -> Iterator[int]:
    if one.log is None:
        raise DshpcError(f"Job {one.id} has no log that is known.")
    with _told(one, ("log",)):
        handle = safe_open.file_at(one.log, work, one.uid)
    try:
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def _told(one: View, parts: tuple[str, ...]) -> Iterator[None]:
    name = "/".join(parts) or "the workspace"
    try:
        yield
    except safe_open.NotTheirsError:
        raise DshpcError(f"What lies in {name} is not of job {one.id}.") from None
    except PermissionError as error:
        raise DshpcError(f"You may not read {name}.", error.strerror or "") from None
    except (OSError, ValueError):
        # A link, a pipe, something of another name: what is not there for us
        raise DshpcError(f"There is no {name} of job {one.id} to be read.") from None


def _entry(entry: os.DirEntry[str]) -> Entry:
    found = entry.stat(follow_symlinks=False)
    mode = found.st_mode
    kinds = ((stat.S_ISDIR, "folder"), (stat.S_ISREG, "file"), (stat.S_ISLNK, "link"))
    kind = next((name for is_one, name in kinds if is_one(mode)), "other")
    return Entry(entry.name, kind, found.st_size, found.st_mtime)


def _sorted(found: list[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(found, key=lambda each: (each.kind != "folder", each.name)))
