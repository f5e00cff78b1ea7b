"""Our commands, and Slurm's, as small programs in a folder for the PATH; what they run is `dshpc`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dshpc_setup.files.atomic import make_folder, remove, write_atomic
from dshpc_setup.terminal.commands import EXEC_COMMANDS

SLURM = tuple(sorted(EXEC_COMMANDS - {"exec", "shell"}))
"""Slurm's commands; `dshpc` itself is beside them."""

MARK = "Made by dsHPC setup"
"""What stands in the second line of each of our files, and in no other."""
_MOST = 200  # bytes: two lines
_ON_PATH = 'case ":$PATH:" in *":${0%/*}:"*) export DSHPC_ON_PATH=yes ;; esac\n'


def wrapper(dshpc: str, command: str, variable: str, folder: str | None) -> str:
    """A program that runs `dshpc COMMAND` in its place: with its arguments, streams, signals and exit code.

    `variable` is set to the folder for it, unless the caller has set it: DSHPC_DIR means that cluster from
    anywhere, DSHPC_DEFAULT_DIR where the caller stands in no project. Advice then names `dshpc` as it was
    typed (terminal/command_names.py), where that is on the PATH.
    """
    words = [shlex.quote(dshpc), *([command] if command != "dshpc" else [])]
    chosen = (
        f'[ -n "${{{variable}:-}}" ] || {variable}={shlex.quote(folder)}\nexport {variable}\n'
        if folder is not None
        else ""
    )
    return f'#!/bin/sh\n# {MARK}\n{_ON_PATH}{chosen}exec {" ".join(words)} "$@"\n'


@dataclass
class Outcome:
    """What became of each file: written, left as somebody else's, removed."""

    written: list[Path] = field(default_factory=list)
    foreign: list[Path] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)


def is_ours(path: Path) -> bool:
    """Whether we made it; never so of a link, and of what cannot be read."""
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return MARK.encode() in file.read(_MOST)
    except OSError:
        return False


def put(files: Mapping[Path, str], *, mode: int = 0o644) -> Outcome:
    """Write them, and nothing over what we did not make. Raises DshpcError."""
    done = Outcome()
    for path, text in files.items():
        if os.path.lexists(path) and not is_ours(path):
            done.foreign.append(path)
            continue
        make_folder(path.parent)
        write_atomic(path, text, mode)
        done.written.append(path)
    return done


def take_away(paths: Iterable[Path]) -> Outcome:
    """Remove those that we made. Raises DshpcError."""
    done = Outcome()
    for path in paths:
        if not os.path.lexists(path):
            continue
        if is_ours(path):
            remove(path)
            done.removed.append(path)
        else:
            done.foreign.append(path)
    return done


def elsewhere(command: str, environ: Mapping[str, str], folder: Path) -> Path | None:
    """The program of that name that the PATH has, if it is not one of ours: a Slurm of the machine's own."""
    for place in environ.get("PATH", "").split(os.pathsep):
        path = Path(place or ".") / command
        if (
            path.parent != folder
            and os.access(path, os.X_OK)
            and path.is_file()
            and not is_ours(path)
        ):
            return path
    return None


def comes_first(folder: Path, other: Path, environ: Mapping[str, str]) -> bool:
    """Whether the PATH has our folder before that of another program."""
    places = environ.get("PATH", "").split(os.pathsep)
    return str(folder) in places and places.index(str(folder)) < places.index(str(other.parent))


def is_on_path(folder: Path, environ: Mapping[str, str]) -> bool:
    return str(folder) in environ.get("PATH", "").split(os.pathsep)
