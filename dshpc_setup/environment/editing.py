"""Adding to and taking from the files of `environment/`; what is there keeps its order."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dshpc_setup.documents import foreign
from dshpc_setup.documents.shown import shown
from dshpc_setup.environment import declaration, requirement
from dshpc_setup.environment.model import FOLDER, Requirement
from dshpc_setup.environment.schema import (
    APT_FILE,
    DEBIAN_PATTERN,
    PYTHON_FILE,
    R_FILE,
    R_PATTERN,
    REQUIREMENTS_FILE,
)
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.files import locks, swap
from dshpc_setup.files.atomic import make_folder, write_error
from dshpc_setup.project.folder import Project

WAIT_S = 20.0  # for another edit, which takes milliseconds


def add(project: Project, kind: str, words: Sequence[str]) -> Path:
    """Declare packages of a kind ("python", "apt", "r"), with their versions where they have some.

    Returns the file. Raises DshpcError (64) for words that are no names; nothing is then changed.
    """
    _check(kind, words)
    with _alone(project):
        declaration.load(project.folder)  # what is there must be right before it is written again
        if kind == "python":
            wanted = [requirement.parse(word) for word in words]
            return _add_python(project, [each for each in wanted if each is not None])
        file = APT_FILE if kind == "apt" else R_FILE
        into = _listed if kind == "apt" else _mapped
        _edit(project, file, lambda value: into(value, words))
        return project.folder / FOLDER / file


def replaced(project: Project, kind: str, words: Sequence[str]) -> dict[str, str]:
    """The word -> what is declared of the same package now, where something is."""
    declared = declaration.load(project.folder)
    there = {_key(kind, each): each for each in (declared.texts()[kind] if declared else ())}
    return {word: there[key] for word in words if (key := _key(kind, word)) in there}


def remove(project: Project, kind: str, words: Sequence[str]) -> list[Path]:
    """Take packages out; raises DshpcError (64) for one that is not declared."""
    _check(kind, words)
    if not (project.folder / FOLDER).is_dir():
        raise _undeclared([shown(word) for word in words])
    with _alone(project):
        return _remove(project, kind, words)


def _remove(project: Project, kind: str, words: Sequence[str]) -> list[Path]:
    declared = declaration.load(project.folder)
    there = declared.texts()[kind] if declared else ()
    keys = {_key(kind, each) for each in there}
    unknown = [shown(word) for word in words if _key(kind, word) not in keys]
    if unknown:
        raise _undeclared(unknown)
    gone = {_key(kind, word) for word in words}
    if kind == "apt":
        files = [_edit(project, APT_FILE, lambda value: _unlisted(value, gone))]
    elif kind == "r":
        files = [_edit(project, R_FILE, lambda value: _without(value, "packages", "r", gone))]
    else:
        files = [
            _edit(project, PYTHON_FILE, lambda value: _without(value, "libraries", kind, gone)),
            _edit_lines(project, gone, []),
        ]
    return [each for each in files if each is not None]


def _undeclared(shown_words: Sequence[str]) -> DshpcError:
    what = f"{', '.join(shown_words)} {'is' if len(shown_words) == 1 else 'are'} not declared."
    return usage_error(what, "", "See what is: dshpc env show")


@contextmanager
def _alone(project: Project) -> Iterator[None]:
    """Nobody else edits the files meanwhile; raises DshpcError where another edit takes too long.

    The lock is that of the folder itself: it is kept in version control, and holds no file of ours.
    """
    project.need_own()
    folder = project.folder / FOLDER
    make_folder(folder, project.owner)
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise write_error(error, folder) from None
    try:
        if not locks.hold(handle, fcntl.LOCK_EX, WAIT_S):
            raise DshpcError(
                f"Another dshpc env is changing {folder}.",
                f"It was waited for, {WAIT_S:.0f} seconds long. Nothing was changed.",
                ("Wait until it has ended, then run this again.",),
                Exit.INCOMPLETE,
            )
        yield
    finally:
        os.close(handle)


def _check(kind: str, words: Sequence[str]) -> None:
    if not words:
        raise usage_error("Name packages.", "", "For example: dshpc env add numpy pandas==2.2")
    if kind == "python":
        whys = [
            f"{shown(word)}: {requirement.why_not(word)}"
            for word in words
            if requirement.parse(word) is None
        ]
        if whys:
            raise usage_error(whys[0], "\n".join(whys[1:]), requirement.PLAIN)
    else:
        pattern, whose = (DEBIAN_PATTERN, "Debian") if kind == "apt" else (R_PATTERN, "R")
        odd = [shown(word) for word in words if not re.search(pattern, word)]
        if odd:
            are = "are no names" if len(odd) > 1 else "is no name"
            raise usage_error(
                f"{', '.join(odd)} {are} of a package of {whose}.",
                "A name stands without a version: Debian has one of each.",
                "For example: dshpc env add --apt libgomp1, or --r dplyr",
            )
    named = Counter(_key(kind, word) for word in dict.fromkeys(words))
    for key, count in named.items():
        if count > 1:
            raise usage_error(f"{key} is named twice, in two ways.", "", "Name it once.")


def _key(kind: str, word: str) -> str:
    made = requirement.parse(word) if kind == "python" else None
    return made.key if made is not None else word


def _add_python(project: Project, wanted: list[Requirement]) -> Path:
    folder = project.folder / FOLDER
    keys = {each.key for each in wanted}
    if (folder / REQUIREMENTS_FILE).exists() and not (folder / PYTHON_FILE).exists():
        _edit_lines(project, keys, wanted)
        return folder / REQUIREMENTS_FILE
    _edit_lines(project, keys, [])
    _edit(project, PYTHON_FILE, lambda value: _with_libraries(value, wanted))
    return folder / PYTHON_FILE


def _with_libraries(value: dict[str, Any], wanted: list[Requirement]) -> None:
    libraries = value.setdefault("libraries", {})
    for each in wanted:
        for name in [name for name in libraries if _key("python", name) == each.key]:
            del libraries[name]
        plain = re.fullmatch(r"==([^=,*]+)", each.versions)
        libraries[str(Requirement(each.name, each.extras))] = plain[1] if plain else each.versions


def _listed(value: dict[str, Any], words: Sequence[str]) -> None:
    names = value.setdefault("apt_packages", [])
    names += [word for word in dict.fromkeys(words) if word not in names]


def _unlisted(value: dict[str, Any], gone: set[str]) -> None:
    value["apt_packages"] = [each for each in value["apt_packages"] if each not in gone]


def _mapped(value: dict[str, Any], words: Sequence[str]) -> None:
    value.setdefault("packages", {}).update(dict.fromkeys(words, ""))


def _without(value: dict[str, Any], part: str, kind: str, gone: set[str]) -> None:
    kept = value.get(part, {})
    for name in [name for name in kept if _key(kind, name) in gone]:
        del kept[name]


def _edit(project: Project, name: str, change: Callable[[dict[str, Any]], None]) -> Path | None:
    """The file with that change; None where it stays as it is, and so is not written."""
    path = project.folder / FOLDER / name
    old = path.read_bytes() if path.exists() else None
    text = "{}" if old is None else old.decode()
    value = foreign.value(text)
    change(value)
    if value == foreign.value(text):
        return None
    _write(project, path, json.dumps(value, indent=2, ensure_ascii=False) + "\n", old)
    return path


def _edit_lines(project: Project, gone: set[str], added: list[Requirement]) -> Path | None:
    """requirements.txt: lines of what is added or gone go, all others stay as they are."""
    path = project.folder / FOLDER / REQUIREMENTS_FILE
    if not path.exists():
        return None
    old = path.read_bytes()
    found, _ = declaration.requirements(old)
    drop = {line for _, line, each in found if each.key in gone}
    if not drop and not added:
        return None
    lines = re.split(r"\r\n|\n|\r", old.decode("utf-8-sig"))
    kept = [line for number, line in enumerate(lines, 1) if number not in drop]
    while kept and not kept[-1]:
        kept.pop()
    _write(project, path, "".join(f"{line}\n" for line in (*kept, *map(str, added))), old)
    return path


def _write(project: Project, path: Path, text: str, old: bytes | None) -> None:
    was = None if old is None else old.decode("utf-8", "surrogateescape")
    swap.write(path, text, was, owner=project.owner)
