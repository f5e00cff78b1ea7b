"""The lock: made from the declaration, kept in `environment/lock.json`, compared with it."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.environment import pip as pip_module
from dshpc_setup.environment.model import (
    FOLDER,
    LOCK,
    LOCK_SCHEMA,
    DebianPackage,
    Declaration,
    Lock,
    Requirement,
    Wheel,
)
from dshpc_setup.environment.schema import LOCK_PARTS
from dshpc_setup.environment.target import MACHINES, PYTHON
from dshpc_setup.errors import DshpcError
from dshpc_setup.files.anchored import anchored
from dshpc_setup.files.atomic import make_folder, remove, temporary_name, write_error
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import OWN, Project

_SCRATCH = ".packages."
_OF_ROOT = "/var/tmp"  # sticky, on the disk
WHEELS = f"{OWN}/wheels"  # what was fetched, by the files' names
_SEEN = f"{OWN}/wheels.json"  # what of them was hashed, and how it looked then
_FILE = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.]*)-(?P<version>[0-9A-Za-z][0-9A-Za-z_.!+]*)"
    r"(?:-[0-9][0-9A-Za-z_]*)?-[0-9A-Za-z_.]+-[0-9A-Za-z_.]+-[0-9A-Za-z_.]+\.whl"
)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~:_-]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*")


def read(project: Path) -> Lock | None:
    """The lock, None where there is none; raises DshpcError for one that is damaged."""
    path = project / FOLDER / LOCK
    value = Project(project).read_json(f"{FOLDER}/{LOCK}")
    if not value:
        return None
    try:
        return _lock(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DshpcError(
            f"{path} is not a lock of this version of dsHPC.",
            f"{type(error).__name__}: {error}",
            ("Create it again: dshpc env lock",),
        ) from None


def write(project: Project, lock: Lock) -> None:
    project.write_json(f"{FOLDER}/{LOCK}", lock.to_json())


def _lock(value: dict[str, Any]) -> Lock:
    if value["schema"] != LOCK_SCHEMA or value["architecture"] not in MACHINES:
        raise ValueError("its form or its architecture is not known")
    installer = value["installer"]
    return Lock(
        str(value["python"]),
        value["architecture"],
        {part: tuple(map(str, value["declared"][part])) for part in LOCK_PARTS},
        tuple(_wheel(each) for each in value["wheels"]),
        None if installer is None else _wheel(installer),
        tuple(_debian(each) for each in value["debian"]),
    )


def _wheel(value: dict[str, str]) -> Wheel:
    """Each word becomes part of a path or of a file that pip reads: its form counts."""
    found = _FILE.fullmatch(value["file"])
    if found is None or not _SHA256.fullmatch(value["sha256"]):
        raise ValueError(f"{value['file']} is no wheel")
    if (found["name"], found["version"]) != (value["name"], value["version"]):
        raise ValueError(f"{value['file']} is not {value['name']} {value['version']}")
    return Wheel(value["name"], value["version"], value["file"], value["sha256"])


def _debian(value: dict[str, str]) -> DebianPackage:
    if not _NAME.fullmatch(value["name"]) or not _VERSION.fullmatch(value["version"]):
        raise ValueError(f"{value['name']} {value['version']}")
    return DebianPackage(value["name"], value["version"], str(value["wanted_by"]))


def differences(declared: Declaration, lock: Lock) -> list[str]:
    """What the declaration says and the lock was not made from, and the other way round."""
    found = []
    for part, now in declared.texts().items():
        then = lock.declared[part]
        found += [f"{part}: {each} is declared and not locked" for each in now if each not in then]
        found += [
            f"{part}: {each} is locked and not declared any more"
            for each in then
            if each not in now
        ]
    if lock.python != PYTHON:
        found.append(f"the lock is for Python {lock.python}, and the image has {PYTHON}")
    return found


def lock_python(
    machine: Machine,
    project: Project,
    wanted: tuple[Requirement, ...],
    target: tuple[str, SiteFiles],
    say: Callable[[str], None],
) -> tuple[tuple[Wheel, ...], Wheel | None]:
    """The wheels of the packages and of all that they need, fetched; and pip, which installs them.

    `target`: the architecture, and what this site needs.
    """
    if not wanted:
        return (), None
    architecture, site = target
    with _scratch(project) as scratch:
        new, tool, cwd = (scratch / name for name in ("new", "tool", "cwd"))
        for folder in (new, tool, cwd):
            folder.mkdir()
        pip = pip_module.find(machine, architecture, site, cwd)
        say("packages: resolving")
        pip_module.fetch(machine, pip, pip_module.argv(pip, new, wanted), cwd, say)
        call = [*pip_module.argv(pip, tool, ())[:-1], "--no-deps", "--", "pip"]
        pip_module.fetch(machine, pip, call, cwd, say)
        wheels, tools = _wheels_in(new), _wheels_in(tool)
        for folder in (new, tool):
            _keep(folder, project)
    return wheels, tools[0]


def wheel_files(
    machine: Machine,
    project: Project,
    lock: Lock,
    site: SiteFiles,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Path]:
    """File name -> file of each wheel of the lock; what is not here yet is fetched by its hash."""
    folder = project.folder / WHEELS
    wanted = [*lock.wheels, *([lock.installer] if lock.installer else [])]
    seen = _seen(project)
    missing = [each for each in wanted if not _is_here(folder / each.file, each, seen)]
    if missing:
        with _scratch(project) as scratch:
            new, cwd, file = (scratch / name for name in ("new", "cwd", "requirements.txt"))
            new.mkdir()
            cwd.mkdir()
            file.write_text(with_hashes(missing), encoding="utf-8")
            pip = pip_module.find(machine, lock.architecture, site, cwd)
            say("packages: fetching what is locked")
            pip_module.fetch(machine, pip, pip_module.argv_locked(pip, new, file), cwd, say)
            _keep(new, project)
    for each in missing:
        if not _is_here(folder / each.file, each, seen):
            raise DshpcError(
                f"The package index gave another file than {each.file}, which is locked.",
                "",
                ("Lock again: dshpc env lock",),
            )
    project.write_json(_SEEN, {each.file: _stamp(folder / each.file, each) for each in wanted})
    return {each.file: folder / each.file for each in wanted}


def _seen(project: Project) -> dict[str, Any]:
    try:
        return project.read_json(_SEEN)
    except DshpcError:  # damaged: then all are read again
        return {}


def _is_here(path: Path, wheel: Wheel, seen: Mapping[str, Any]) -> bool:
    """Whether that very file is; one that was hashed and has not changed since is not read again: all
    of them may be gigabytes, and each run of configure-environment asks."""
    try:
        return seen.get(wheel.file) == _stamp(path, wheel) or _sha256(path) == wheel.sha256
    except FileNotFoundError:
        return False


def _stamp(path: Path, wheel: Wheel) -> list[str | int]:
    found = path.stat()
    return [wheel.sha256, found.st_size, found.st_mtime_ns]


def forget(project: Project) -> None:
    """Remove the lock and what was fetched for it: nothing is declared any more."""
    forget_others(project, None)
    remove(project.folder / FOLDER / LOCK)


def forget_others(project: Project, lock: Lock | None) -> None:
    """Remove what was fetched for an earlier lock."""
    wanted = [] if lock is None else [*lock.wheels, lock.installer]
    kept = {each.file for each in wanted if each is not None}
    with suppress(FileNotFoundError), anchored(project.folder / WHEELS) as folder:
        for name in os.listdir(folder):
            if name not in kept:
                (folder / name).unlink()


def with_hashes(wheels: list[Wheel]) -> str:
    """A requirements file that names these files and no others."""
    return "".join(f"{each.name}=={each.version} --hash=sha256:{each.sha256}\n" for each in wheels)


@contextmanager
def _scratch(project: Project) -> Iterator[Path]:
    make_folder(project.own, project.owner)
    for left in project.own.glob(f"{_SCRATCH}*"):  # of a run that was killed: it may be gigabytes
        shutil.rmtree(left, ignore_errors=True)
    # pip works by paths: where we are root for somebody else, by none that leads through their folders
    above = project.own if project.owner is None else Path(_OF_ROOT)
    try:
        folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=above))
    except OSError as error:
        raise write_error(error, above) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wheels_in(folder: Path) -> tuple[Wheel, ...]:
    found = []
    for path in sorted(folder.iterdir()):
        parts = _FILE.fullmatch(path.name)
        if parts is None:
            raise DshpcError(
                f"pip fetched {path.name}, which is no wheel.",
                "Nothing is built from source here.",
                ("Report this with the output of: dshpc env show",),
            )
        found.append(Wheel(parts["name"], parts["version"], path.name, _sha256(path)))
    return tuple(found)


def _sha256(path: Path) -> str:
    """ "" where there is no such file."""
    total = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while part := file.read(1 << 20):
                total.update(part)
    except FileNotFoundError:
        return ""
    return total.hexdigest()


def _keep(folder: Path, project: Project) -> None:
    into = project.folder / WHEELS
    make_folder(into, project.owner)
    with anchored(into) as at:
        for path in folder.iterdir():
            _move(path, at)
    project.give_to_owner(into)


def _move(path: Path, into: Path) -> None:
    """Into a folder that is held, which may be on another disk."""
    try:
        path.replace(into / path.name)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    temporary = into / temporary_name(path.name)
    try:
        with path.open("rb") as file, temporary.open("xb") as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
        temporary.replace(into / path.name)
    finally:
        temporary.unlink(missing_ok=True)
