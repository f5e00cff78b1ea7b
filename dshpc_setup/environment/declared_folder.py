"""A folder that declares the environment of a job: which file says it, and what it comes down to.

Imports are counted here: an environment that is there already costs its job these alone.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from typing import Literal

from dshpc_setup.environment.target import FULL, MACHINES, PYTHON
from dshpc_setup.errors import DshpcError, usage_error

Kind = Literal["lock", "requirements", "conda", "npm"]
LOCK, PROJECT, REQUIREMENTS = "uv.lock", "pyproject.toml", "requirements.txt"
CONDA = ("environment.yml", "environment.yaml")
OVERRIDE = "CONDA_OVERRIDE_CUDA"  # conda's own: which CUDA a driver offers, where it is not asked
FORM = "1"  # of what is made: another one is made anew
_MOST_BYTES = 16 << 20
_WANTED = f"A folder that declares one holds {PROJECT} with {LOCK}, {REQUIREMENTS}, or {CONDA[0]}."
# What leads to another file, whose content nothing here would know of
_ELSEWHERE = re.compile(
    r"(?:-r|--requirements?|-c|--constraints?|-e|--editable)(?=[ =]|\S)|\.{0,2}/|\.{1,2}$|file:|\S+ *@ *file:"
)
_REQUIRES = re.compile(r'(?m)^requires-python = "([^"\n]{1,200})"')
_CLAUSE = re.compile(r"(>=|<=|==|!=|~=|>|<) *([0-9]{1,4}(?:\.[0-9]{1,4})*)(\.\*)?")
_ARCHITECTURES = {wheels: name for name, wheels in MACHINES.items()} | {"arm64": "arm64"}


@dataclass(frozen=True)
class Declared:
    """`texts`: the files that count, in order of name."""

    folder: str
    kind: Kind
    texts: tuple[tuple[str, bytes], ...]

    @property
    def architecture(self) -> str:
        """As the image has it, which runs on this machine's processor; DshpcError for another one."""
        machine = os.uname().machine
        if machine not in _ARCHITECTURES:
            raise DshpcError(f"There are no wheels for the processor of this machine ({machine}).")
        return _ARCHITECTURES[machine]

    @property
    def digest(self) -> str:
        """The name of what is made of it: equal files are one environment."""
        found = hashlib.sha256(f"{FORM} {PYTHON} {self.architecture} {self.kind}\n".encode())
        for name, text in self.texts:
            found.update(f"{name} {len(text)}\n".encode() + text)
        return found.hexdigest()[:20]


def read(folder: str) -> Declared:
    """What the folder declares; DshpcError (usage) for one that declares nothing, or what cannot be had."""
    if not os.path.isdir(folder):
        what = "is not a folder" if os.path.exists(folder) else "is not there"
        steps = (
            ("A variable is set before the command: dshpc run -- env NAME=VALUE COMMAND",)
            if "=" in folder
            else ()
        )
        raise usage_error(f"The environment {folder} {what}.", _WANTED, *steps)
    lock, requirements = (_bytes(folder, name) for name in (LOCK, REQUIREMENTS))
    project = _bytes(folder, PROJECT)
    if lock is not None:
        if project is None:
            raise usage_error(f"{folder} has {LOCK}, and no {PROJECT} that it belongs to.", _WANTED)
        _check_python(lock, folder)
        return Declared(folder, "lock", ((PROJECT, project), (LOCK, lock)))
    if requirements is not None:
        check_requirements(requirements, os.path.join(folder, REQUIREMENTS))
        return Declared(folder, "requirements", ((REQUIREMENTS, requirements),))
    for name in CONDA:
        if (text := _bytes(folder, name)) is not None:
            told = os.environ.get(OVERRIDE)
            override = ((OVERRIDE, told.encode()),) if told else ()
            return Declared(folder, "conda", (*override, (name, text)))
    if project is not None:
        raise usage_error(
            f"{folder} has {PROJECT}, and no {LOCK}.",
            "A lock says which versions a job gets, today and later.",
            f"Lock it there: cd {folder} && uv lock",
        )
    raise usage_error(f"{folder} declares no environment.", _WANTED)


def _check_python(lock: bytes, folder: str) -> None:
    found = _REQUIRES.search(lock.decode(errors="replace"))
    if found is not None and not allows(found[1], FULL):
        raise usage_error(
            f"The project {folder} is for Python {found[1]}, and jobs have {PYTHON}.", "",
            f"Let it have that one, too (requires-python in {PROJECT}), and lock it again: uv lock",
        )  # fmt: skip


def allows(specifiers: str, version: str) -> bool:
    """Whether a version of Python is one of them, as uv writes them; what is not understood is left to uv."""
    has = _numbers(version)
    for operator, text, is_family in _CLAUSE.findall(specifiers):
        wanted = _numbers(text)
        length = len(text.split("."))
        is_same = has[:length] == wanted[:length]
        good = {
            ">=": has >= wanted,
            ">": has > wanted,
            "<=": has <= wanted,
            "<": has < wanted,
            "==": is_same if is_family else has == wanted,
            "!=": not (is_same if is_family else has == wanted),
            "~=": has >= wanted and has[: length - 1] == wanted[: length - 1],
        }
        if not good[operator]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    parts = [int(part) for part in version.split(".")[:3]]
    return (*parts, 0, 0, 0)[:3]


def check_requirements(text: bytes, path: str) -> None:
    """Raises DshpcError (usage) for lines that lead to other files: the environment is known by this one."""
    try:
        whole = text.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise usage_error(f"{path} is not UTF-8.", "", "Save it as UTF-8.") from None
    wrong = [
        f"{path}:{number}: {line.strip()[:80]!r}"
        for number, line in enumerate(re.split(r"\r\n|\n|\r", whole), 1)
        if _ELSEWHERE.match(line.strip())
    ]
    if wrong:
        raise usage_error(
            "An environment of a job is known by one file, and these lines lead to others.",
            "\n".join(wrong[:20]),
            "Write all into one file: uv pip compile requirements.in -o requirements.txt",
        )


def _bytes(folder: str, name: str) -> bytes | None:
    """A file's bytes, None where there is none; a pipe is not waited for."""
    path = os.path.join(folder, name)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise usage_error(f"{path} cannot be read: {error.strerror}.") from None
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            raise usage_error(f"{path} is not a file of at most {_MOST_BYTES >> 20} MiB.")
        return file.read(_MOST_BYTES + 1)
