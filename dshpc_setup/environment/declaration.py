"""The files of `environment/` as one declaration; all that is wrong with them, at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dshpc_setup.documents import json_text
from dshpc_setup.documents.document import Document, Problem
from dshpc_setup.documents.shown import one_line, path_text, shown
from dshpc_setup.environment import requirement
from dshpc_setup.environment.model import FOLDER, Declaration, Requirement
from dshpc_setup.environment.schema import (
    APT_FILE,
    PYTHON_FILE,
    R_FILE,
    REQUIREMENTS_FILE,
    SCHEMAS,
)
from dshpc_setup.environment.target import PYTHON
from dshpc_setup.errors import DshpcError
from dshpc_setup.methods.structure import differences
from dshpc_setup.terminal.sanitize import counted

FILES = (PYTHON_FILE, REQUIREMENTS_FILE, APT_FILE, R_FILE)
Found = tuple[str, int, Requirement]  # file, line, what


def load(project: Path) -> Declaration | None:
    """What is declared; None where there is no such file. Raises DshpcError with all problems."""
    folder = project / FOLDER
    texts = {name: data for name in FILES if (data := _bytes(folder / name)) is not None}
    if not texts:
        return None
    problems: list[str] = []
    python: list[Found] = []
    apt: tuple[str, ...] = ()
    r: tuple[str, ...] = ()
    for name, data in texts.items():
        where = folder / name
        if name == REQUIREMENTS_FILE:
            found, wrong = requirements(data)
            python += found
        else:
            said = json_text.read(data)
            wrong = [*said.problems, *(_in_file(name, said) if said.is_whole else ())]
            if not wrong and name == PYTHON_FILE:
                pairs = said.value.get("libraries", {})
                python += [
                    (name, said.line(("libraries", key)), made)
                    for key, value in pairs.items()
                    if (made := requirement.of_pair(key, value)) is not None
                ]
            elif not wrong and name == APT_FILE:
                apt = tuple(dict.fromkeys(said.value.get("apt_packages", ())))
            elif not wrong:
                r = tuple(said.value.get("packages", {}))
        problems += [_told(where, each) for each in wrong]
    problems += [_told(folder / file, each) for file, each in _twice(python)]
    if problems:
        count = len(problems)
        raise DshpcError(
            f"{folder} has {counted(count, 'problem')}.",
            "\n".join(problems),
            ("Correct the lines above, then: dshpc env lock",),
        )
    return Declaration(tuple(sorted(each for _, _, each in python)), apt, r)


def requirements(data: bytes) -> tuple[list[Found], list[Problem]]:
    """A requirements file of plain names and versions; comments and empty lines may stand in it."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return [], [Problem("$", 1, "The file is not UTF-8.", "Save it as UTF-8.")]
    found: list[Found] = []
    wrong = []
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        plain = re.sub(r"(^|[ \t])#.*", "", line).strip(" \t")
        if not plain:
            continue
        made = requirement.parse(plain)
        if made is None:
            what = f"{shown(plain)}: {requirement.why_not(plain)}"
            wrong.append(Problem("$", number, what, requirement.PLAIN))
        else:
            found.append((REQUIREMENTS_FILE, number, made))
    return found, wrong


def _in_file(name: str, said: Document) -> Iterator[Problem]:
    is_form = True
    for each in differences(said.value, SCHEMAS[name]):
        is_form = False
        yield Problem(path_text(each.path), said.line(each.path), each.what, each.right)
    if not is_form or name != PYTHON_FILE:
        return
    asked = said.value.get("python_version", PYTHON)
    if asked.split(".")[:2] != PYTHON.split("."):
        what = f"The image has Python {PYTHON}, Debian's own, and no {asked}."
        line = said.line(("python_version",))
        yield Problem("$.python_version", line, what, f'Write "{PYTHON}", or take the key out.')
    for key, versions in said.value.get("libraries", {}).items():
        if requirement.of_pair(key, versions) is None:
            path = ("libraries", key)
            what = f"{shown(key)}: {requirement.why_not(key)}"
            yield Problem(path_text(path), said.line(path), what, requirement.PLAIN)


def _twice(python: list[Found]) -> Iterator[tuple[str, Problem]]:
    first: dict[str, tuple[str, int]] = {}
    for file, line, each in python:
        if each.key in first:
            other, at = first[each.key]
            what = f"{each.name} is declared twice, first in {other}:{at}."
            yield file, Problem("$", line, what, "Keep one of the two.")
        else:
            first[each.key] = (file, line)


def _told(file: Path, each: Problem) -> str:
    where = "" if each.path == "$" else f"{each.path}: "
    return f"{one_line(str(file))}:{each.line}: {where}{each.what} {each.right}"


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DshpcError(
            f"Cannot read {path}: {error.strerror}.", "", ("Make it readable for you.",)
        ) from None
