"""Whose a project folder is, and whether anybody else can have written what is read from it.

As ssh asks of its keys (StrictModes): what is read, the folder that it lies in and every folder above
belong to this user or to root, and nobody else can write there. A folder of another user is data at
most: the name of a cluster, to be compared with what the engine says of it. See
docs/decisions/0025-whose-project.md.

Each folder is opened from the one above it, and what is read is read from the descriptor that was
looked at. Imports are counted here: every `dshpc srun` passes through.
"""

from __future__ import annotations

import os
import stat

from dshpc_setup import engine_client
from dshpc_setup.project import writers

TYPE_CHECKING = False  # importing typing would cost as much as all of the rest
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

OWN = ".dshpc"
_RUNTIME = "runtime.json"
_WORK = "work"  # where jobs write, unless runtime.json names another folder
_MOST_BYTES = 1 << 20
_DIGITS = 10  # of a user id
# O_PATH asks for no right to list the folder, which other people's homes do not give
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")


class Fault:
    """What speaks against a path: `kind` is "owner" (another user's), "mode" (others can write it)."""

    def __init__(self, path: str, kind: str, seen: os.stat_result) -> None:
        self.path, self.kind = path, kind
        self.uid, self.gid, self.mode = seen.st_uid, seen.st_gid, stat.S_IMODE(seen.st_mode)

    @property
    def why(self) -> str:
        """A sentence."""
        if self.kind == "owner":
            return f"{self.path} belongs to {writers.user_name(self.uid)}, who can change what is read there."
        who = (
            "everybody" if self.mode & stat.S_IWOTH else f"the group {writers.group_name(self.gid)}"
        )
        return f"{self.path} can be written by {who} (mode {self.mode:04o})."

    @property
    def remedy(self) -> str:
        """What its owner can do about it."""
        import shlex

        path = shlex.quote(self.path)
        if self.mode & stat.S_ISVTX:  # made for everybody, as /tmp is: it stays so
            return "Go to the folder of your cluster, or name one of your own: --dir DIR"
        return (
            f"Give it to yourself: sudo chown {os.geteuid()} {path}"
            if self.kind == "owner"
            else (f"Let nobody else write there: chmod go-w {path}")
        )


class Place:
    """A folder with `.dshpc` in it, or one that was named.

    `foreign`: it is whole, and another user's (`uid`). `fault`: why nothing of it is used. `there`:
    whether it holds `.dshpc`. `text`: its runtime.json as it was when it was looked at.
    """

    def __init__(self, folder: str, uid: int, text: bytes | None, *, there: bool) -> None:
        self.folder, self.uid, self.text, self.there = folder, uid, text, there
        self.foreign = False
        self.fault: Fault | None = None

    @property
    def runtime(self) -> dict[str, Any]:
        return usable(self.text)


class _Part:
    """A folder on the way down, and what it holds of a project: paths with what they are like."""

    def __init__(self, folder: str, seen: os.stat_result) -> None:
        self.folder, self.seen = folder, seen
        self.own: list[tuple[str, os.stat_result]] = []
        self.text: bytes | None = None


def ours() -> tuple[int, ...]:
    """Whose files count as this user's: root's, his own, and for root those of who called sudo."""
    me = os.geteuid()
    if me != 0:
        return (0, me)
    text = os.environ.get("SUDO_UID", "")
    return (0, int(text)) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else (0,)


def search(start: str) -> tuple[Place | None, list[Place]]:
    """The project at or above a real path, and those nearer that are not used.

    One of this user's own comes before all others, whatever lies nearer. What lies in the work folder
    of another is not used: jobs write there.
    """
    parts, _ = _down(start)
    places = [_judged(parts[: number + 1]) for number, part in enumerate(parts) if part.own]
    whole = [place for place in places if place.fault is None]
    mine = [place for place in whole if not place.foreign] or whole
    chosen: Place | None = None
    for place in mine:
        if chosen is None or not _in_work(place.folder, chosen):
            chosen = place
    nearer = places if chosen is None else places[places.index(chosen) + 1 :]
    return chosen, [place for place in nearer if place.text is not None or chosen is None]


def default(environ: Mapping[str, str]) -> Place | None:
    """The project of who stands in none, which `dshpc install-commands` has named in DSHPC_DEFAULT_DIR."""
    named = environ.get("DSHPC_DEFAULT_DIR")
    return judged(os.path.realpath(named)) if named else None


def judged(folder: str) -> Place:
    """Of a folder that was named, which need not be there yet: a real path."""
    parts, whole = _down(folder)
    if whole:
        return _judged(parts)
    place = Place(folder, parts[-1].seen.st_uid, None, there=False)
    place.fault = next((fault for part in parts if (fault := _above(part, ours()))), None)
    return place


def of_file(path: str) -> Fault | None:
    """What speaks against a file of ours, or a folder, and all above it; None where there is none.

    The path is resolved first: links lead where they may, and that place is looked at.
    """
    real = os.path.realpath(path)
    parts, _ = _down(os.path.dirname(real))
    owners = ours()
    found = next((fault for part in parts if (fault := _above(part, owners))), None)
    if found is not None:
        return found
    try:
        seen = os.lstat(real)
    except OSError:
        return None  # nothing is read there
    return of(real, seen, owners)


def of(path: str, seen: os.stat_result, owners: Collection[int]) -> Fault | None:
    """What speaks against what is read at a path, or against the folder that it lies in."""
    if seen.st_uid not in owners:
        return Fault(path, "owner", seen)
    return Fault(path, "mode", seen) if writers.others_write(path, seen) else None


def above(path: str, seen: os.stat_result, owners: Collection[int]) -> Fault | None:
    """What speaks against a folder further up: from a sticky one nobody takes what is another's."""
    if seen.st_uid not in owners and not writers.is_outside(seen.st_uid):
        return Fault(path, "owner", seen)
    if seen.st_mode & stat.S_ISVTX:
        return None
    return Fault(path, "mode", seen) if writers.others_write(path, seen) else None


def read(folder: str, names: Sequence[str], owners: Collection[int]) -> bytes | None:
    """A file of a folder, by its parts below it, without following a link; None where there is none
    that is a plain file of these owners."""
    at = -1
    try:
        at = os.open(folder, _FOLDER)
        for name in names[:-1]:
            at, above_it = os.open(name, _FOLDER, dir_fd=at), at
            os.close(above_it)
        seen, text = _plain(at, names[-1])
    except OSError:
        return None
    finally:
        if at >= 0:
            os.close(at)
    return text if seen.st_uid in owners else None


def usable(text: bytes | None) -> dict[str, Any]:
    """What runtime.json says that can be meant: names of a container and of a cluster, paths, and whether
    jobs may run in images."""
    from dshpc_setup.documents import foreign

    try:
        value = foreign.value(text or b"")
    except ValueError:
        return {}
    if not isinstance(value, dict):
        return {}
    known = {
        "container": _is_name,
        "prefix": _is_name,
        "work": _is_path,
        "volumes_of": _is_path,
        "engine": _is_engine,
        "homes": _are_paths,
        "mounts": _are_paths,
        "toolkits": _are_toolkits,
        "cache": _is_path,
        "images": _is_true,
    }
    return {name: value[name] for name, right in known.items() if right(value.get(name))}


def _is_true(value: object) -> bool:
    return value is True


def _is_engine(value: object) -> bool:
    return value in (engine_client.BUILTIN, engine_client.PODMAN)


# -- looking ---------------------------------------------------------------------------------------


def _down(path: str) -> tuple[list[_Part], bool]:
    """Each folder from the root down to a real path, and whether it was reached."""
    names = [name for name in path.split("/") if name]
    parts: list[_Part] = []
    folder = ""
    at = os.open("/", _FOLDER)
    try:
        parts.append(_part("/", at))
        for name in names:
            # In this order: a Ctrl-C between the two must not let it be closed twice
            at, above_it = os.open(name, _FOLDER, dir_fd=at), at
            os.close(above_it)
            folder = f"{folder}/{name}"
            parts.append(_part(folder, at))
    except OSError:  # it is not there, or not to be looked into: what lies above it is known
        pass
    finally:
        os.close(at)
    return parts, len(parts) == len(names) + 1


def _part(folder: str, at: int) -> _Part:
    part = _Part(folder, os.fstat(at))
    try:
        own = os.open(OWN, _FOLDER, dir_fd=at)
    except OSError:
        return part
    path = f"{folder.rstrip('/')}/{OWN}"
    try:
        part.own.append((path, os.fstat(own)))
        seen, part.text = _plain(own, _RUNTIME)
        part.own.append((f"{path}/{_RUNTIME}", seen))
    except OSError:  # it was never set up to its end
        pass
    finally:
        os.close(own)
    return part


def _plain(at: int, name: str) -> tuple[os.stat_result, bytes]:
    """A plain file's text and what it is like, from one descriptor; raises OSError for any other."""
    handle = os.open(name, _FILE, dir_fd=at)
    try:
        seen = os.fstat(handle)
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > _MOST_BYTES:
            raise OSError
        text = b""
        while len(text) <= _MOST_BYTES and (more := os.read(handle, 1 << 16)):
            text += more
        return seen, text
    finally:
        os.close(handle)


# -- judging ---------------------------------------------------------------------------------------


def _judged(parts: Sequence[_Part]) -> Place:
    last, owners = parts[-1], ours()
    whose = [last.seen.st_uid, *(seen.st_uid for _, seen in last.own[:1])]
    strange = [uid for uid in whose if uid not in owners]
    place = Place(last.folder, (strange or whose)[0], last.text, there=bool(last.own))
    place.foreign = bool(strange)
    place.fault = _fault(parts, (0, place.uid) if strange else owners)
    return place


def _fault(parts: Sequence[_Part], owners: Collection[int]) -> Fault | None:
    *higher, last = parts
    for part in higher:
        if (found := _above(part, owners)) is not None:
            return found
    for path, seen in ((last.folder, last.seen), *last.own):
        if (found := of(path, seen, owners)) is not None:
            return found
    return None


def _above(part: _Part, owners: Collection[int]) -> Fault | None:
    return above(part.folder, part.seen, owners)


def _in_work(folder: str, outer: Place) -> bool:
    works = [f"{outer.folder.rstrip('/')}/{_WORK}"]
    if "work" in (runtime := outer.runtime):
        works.append(os.path.realpath(runtime["work"]))
    return any(folder == work or folder.startswith(f"{work}/") for work in works)


def _is_name(value: object) -> bool:
    """One that the engine gives to containers: no option of its client, no path."""
    return isinstance(value, str) and value[:1].isalnum() and _NAME.issuperset(value)


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value.startswith("/") and "\0" not in value


def _are_toolkits(value: object) -> bool:
    from dshpc_setup.settings import lent

    try:
        return isinstance(value, list) and all(lent.parse(each) for each in value)
    except (ValueError, AttributeError):
        return False


def _are_paths(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_path, value))
