"""What a job takes along to a node that has not the work folder: decision 0081.

Its workspace, and copies in that of what it names elsewhere: the folder that it was submitted in, its
method, its inputs, the results that it requires. There these lie in the workspace, and its request says so.
Its environment and its image have the same path there as here, and stay for other jobs of the same user's.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dshpc_setup import resources
from dshpc_setup.files import tree
from dshpc_setup.jobs import safe_open, workspace
from dshpc_setup.jobs.workspace import JOBS

HERE, METHOD, INPUTS, REQUIRES = "here", ".method", "inputs", "requires"
# Of the folder that a command was submitted in nobody has said that the job wants all of it
MOST_HERE, MOST_HERE_BYTES = 1000, 100 << 20
MOST, MOST_BYTES = 20_000, 4 << 30
MOST_KEPT, MOST_KEPT_BYTES = (
    500_000,
    32 << 30,
)  # of an environment or an image, which goes there once
PASSED_OVER = frozenset({".git", "__pycache__", ".venv", "node_modules"})

Why = Literal["large", "unreadable", "processor", "in-place"]
_KEPT = re.compile(r"\.(?:envs|images)/[0-9a-f]{1,64}")


@dataclass(frozen=True)
class Piece:
    """A file or a folder as the controller's machine has it, and its place in the workspace there."""

    source: str
    place: str

    @property
    def passed_over(self) -> frozenset[str]:
        """Names of folders in it that do not go along; workspaces lie in the work folder itself."""
        has_workspaces = os.path.isdir(f"{self.source}/{JOBS}/{os.getuid()}")
        return (
            PASSED_OVER | ({JOBS} if has_workspaces else frozenset())
            if self.is_here
            else frozenset()
        )

    @property
    def is_here(self) -> bool:
        return self.place == HERE

    @property
    def most(self) -> int:
        return MOST_KEPT if is_kept(self.place) else MOST_HERE if self.is_here else MOST

    def entries(self) -> Iterator[tuple[str, tree.Entry]]:
        """Each thing of it with its place; raises OSError, TooLargeError."""
        with safe_open.above(os.path.realpath(self.source)) as (at, name):
            seen = os.stat(name, dir_fd=at, follow_symlinks=False)
            own = tree.Entry((name,), at, seen)
            yield self.place, own
            if own.is_folder:
                with safe_open.opened(name, at) as top:
                    for each in tree.entries(top, self.most, self.passed_over):
                        yield f"{self.place}/{each.path}", each


@dataclass(frozen=True)
class Refused:
    """Why a job cannot be carried; `details` names what is too large, and how large it may be."""

    code: Why
    details: str = ""


def pieces(request: Mapping[str, Any], own: str | None) -> tuple[Piece, ...]:
    """What a request (its JSON) names outside of `own`, where its workspace is or waits to become one."""
    found: list[Piece] = []

    def take(path: object, place: str) -> None:
        if isinstance(path, str) and path.startswith("/") and not (own and _lies_in(path, own)):
            covered = any(_lies_in(path, each.source) and not each.is_here for each in found)
            if not covered and path not in (each.source for each in found):
                found.append(Piece(path, place))

    take(request.get("cwd"), HERE)
    method = request.get("method_dir")
    if isinstance(method, str) and not _lies_in(method, resources.METHODS_IN_IMAGE):
        take(method, METHOD)
    requires = request.get("requires")
    for name, folder in (requires if isinstance(requires, dict) else {}).items():
        take(folder, f"{REQUIRES}/{posixpath.basename(str(name)).strip('.') or 'result'}")
    inputs = request.get("inputs")
    for number, path in enumerate(inputs if isinstance(inputs, list | tuple) else (), 1):
        take(path, f"{INPUTS}/{number}-{posixpath.basename(str(path))}")
    for given in _sets(request):
        for value in given.values():  # files of a method that lie in the work folder
            if isinstance(value, str) and value.startswith("/") and os.path.isfile(value):
                take(value, f"{INPUTS}/{len(found) + 1}-{posixpath.basename(value)}")
    return tuple(found)


def kept(request: Mapping[str, Any]) -> tuple[Piece, ...]:
    """Its environment and its image: the place of each is that in the folder of the user's workspaces."""
    top = f"{workspace.of_user(str(request.get('work')), os.getuid())}/"
    named = (request.get(key) for key in ("environment", "image"))
    paths = (path for path in named if isinstance(path, str) and path.startswith(top))
    return tuple(Piece(path, path[len(top) :]) for path in paths if is_kept(path[len(top) :]))


def is_kept(place: str) -> bool:
    return _KEPT.fullmatch(place) is not None


def moved(request: Mapping[str, Any], taken: Sequence[Piece], folder: str) -> dict[str, Any]:
    """The request as it is there: each path of a piece is one in the workspace `folder`."""
    longest_first = sorted(taken, key=lambda each: len(each.source), reverse=True)

    def new(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("/"):
            for each in longest_first:
                if _lies_in(value, each.source):
                    return f"{folder}/{each.place}{value[len(each.source.rstrip('/')) :]}"
        if isinstance(value, dict):
            return {key: new(each) for key, each in value.items()}
        return [new(each) for each in value] if isinstance(value, list | tuple) else value

    named = ("cwd", "method_dir", "inputs", "requires", "parameters", "argv")
    return {key: new(value) if key in named else value for key, value in request.items()}


def refused(request: Mapping[str, Any], own: str | None) -> Refused | None:
    """Why it cannot be carried; None where it can. `own` is measured, too, where there is one."""
    if request.get("in_place"):
        return Refused("in-place")
    count = size = 0
    mine = (Piece(own, "."),) if own is not None else ()
    for piece in (*mine, *pieces(request, own), *kept(request)):
        here_size = here_count = 0
        try:
            for _, entry in piece.entries():
                here_count += 1
                here_size += entry.seen.st_size if entry.is_file else 0
        except tree.TooLargeError as error:
            return Refused("large", f"{piece.source}: {error.strerror}")
        except ValueError:  # no path
            return Refused("unreadable", repr(piece.source))
        except OSError as error:
            # Not there yet: of a workflow's job that has yet to be submitted, or in a dry run
            if piece.place.startswith(f"{REQUIRES}/") or is_kept(piece.place):
                continue
            return Refused("unreadable", f"{piece.source}: {error.strerror or error}")
        most = MOST_KEPT_BYTES if is_kept(piece.place) else MOST_HERE_BYTES
        if here_size > most and (piece.is_here or is_kept(piece.place)):
            return _too_large(piece.source, here_size, most)
        if not is_kept(piece.place):
            count, size = count + here_count, size + here_size
    if size > MOST_BYTES:
        return _too_large("workspace and inputs", size, MOST_BYTES)
    return Refused("large", f"{count} files and folders, {MOST} at most") if count > MOST else None


def _too_large(what: str, size: int, most: int) -> Refused:
    return Refused("large", f"{what}: {size >> 20} MiB, {most >> 20} MiB at most")


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _sets(request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    given = request.get("parameters")
    for each in given if isinstance(given, list | tuple) else ():
        if isinstance(each, dict):
            yield each
