"""Adding to and taking from the files of `environment/`; what is there keeps its order."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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
from dshpc_setup.errors import usage_error
from dshpc_setup.files import make_folder, write_atomic
from dshpc_setup.methods.shown import shown
from dshpc_setup.project import Project


def add(project: Project, kind: str, words: Sequence[str]) -> Path:
    """Declare packages of a kind ("python", "apt", "r"), with their versions where they have some.

    Returns the file. Raises DshpcError (64) for a word that is no name; nothing is then changed.
    """
    _check(project, kind, words)
    if kind == "python":
        wanted = [requirement.parse(word) for word in words]
        return _add_python(project, [each for each in wanted if each is not None])
    if kind == "apt":
        return _edit(project, APT_FILE, lambda value: _listed(value, words))
    return _edit(project, R_FILE, lambda value: _mapped(value, words))


def remove(project: Project, kind: str, words: Sequence[str]) -> list[Path]:
    """Take packages out; raises DshpcError (64) for one that is not declared."""
    _check(project, kind, words)
    folder = project.folder / FOLDER
    declared = declaration.load(project.folder)
    there = declared.texts()[kind] if declared else ()
    keys = {_key(kind, each) for each in there}
    unknown = [word for word in words if _key(kind, word) not in keys]
    if unknown:
        what = f"{shown(unknown[0])} is not declared."
        raise usage_error(what, "", "See what is: dshpc env show")
    gone = {_key(kind, word) for word in words}
    if kind == "apt":
        return [_edit(project, APT_FILE, lambda value: _unlisted(value, gone))]
    if kind == "r":
        return [_edit(project, R_FILE, lambda value: _without(value, "packages", "r", gone))]
    changed = []
    if (folder / PYTHON_FILE).exists():
        changed.append(
            _edit(project, PYTHON_FILE, lambda value: _without(value, "libraries", kind, gone))
        )
    if (folder / REQUIREMENTS_FILE).exists():
        changed.append(_edit_lines(project, gone, []))
    return changed


def _check(project: Project, kind: str, words: Sequence[str]) -> None:
    if not words:
        raise usage_error("Name packages.", "", "For example: dshpc env add numpy pandas==2.2")
    for word in words:
        if kind == "python" and requirement.parse(word) is None:
            what = f"{shown(word)}: {requirement.why_not(word)}"
            raise usage_error(what, "", requirement.PLAIN)
        pattern = DEBIAN_PATTERN if kind == "apt" else R_PATTERN
        if kind != "python" and not re.search(pattern, word):
            whose = "Debian" if kind == "apt" else "R"
            raise usage_error(
                f"{shown(word)} is no name of a package of {whose}.",
                "A name stands without a version: Debian has one of each.",
                "For example: dshpc env add --apt libgomp1, or --r dplyr",
            )
    declaration.load(project.folder)  # what is there must be right before it is written again


def _key(kind: str, word: str) -> str:
    made = requirement.parse(word) if kind == "python" else None
    return made.key if made is not None else word


def _add_python(project: Project, wanted: list[Requirement]) -> Path:
    folder = project.folder / FOLDER
    if (folder / REQUIREMENTS_FILE).exists() and not (folder / PYTHON_FILE).exists():
        return _edit_lines(project, {each.key for each in wanted}, wanted)
    if (folder / REQUIREMENTS_FILE).exists():
        _edit_lines(project, {each.key for each in wanted}, [])
    return _edit(project, PYTHON_FILE, lambda value: _with_libraries(value, wanted))


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
    value[part] = {name: each for name, each in kept.items() if _key(kind, name) not in gone}


def _edit(project: Project, name: str, change: Callable[[dict[str, Any]], None]) -> Path:
    path = project.folder / FOLDER / name
    value = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    change(value)
    _write(project, path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    return path


def _edit_lines(project: Project, gone: set[str], added: list[Requirement]) -> Path:
    """requirements.txt: lines of what is added or gone go, all others stay as they are."""
    path = project.folder / FOLDER / REQUIREMENTS_FILE
    found, _ = declaration.requirements(path.read_bytes())
    drop = {line for _, line, each in found if each.key in gone}
    lines = re.split(r"\r\n|\n|\r", path.read_text(encoding="utf-8"))
    kept = [line for number, line in enumerate(lines, 1) if number not in drop]
    while kept and not kept[-1]:
        kept.pop()
    _write(project, path, "".join(f"{line}\n" for line in (*kept, *map(str, added))))
    return path


def _write(project: Project, path: Path, text: str) -> None:
    make_folder(path.parent, project.owner)
    write_atomic(path, text, owner=project.owner)
