"""The lock: made from the declaration, kept in `environment/lock.json`, compared with it."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.environment import packing
from dshpc_setup.environment import uv as uv_module
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
from dshpc_setup.errors import DshpcError, words_of
from dshpc_setup.files.anchored import anchored
from dshpc_setup.files.atomic import make_folder, remove, temporary_name, write_error
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import OWN, Project

_SCRATCH = ".packages."
_OF_ROOT = "/var/tmp"  # sticky, on the disk
PACKAGES = f"{OWN}/packages"  # the archive with what is locked, as the image's build takes it
_NOTE = f"{OWN}/packages.json"  # how the archive looked when it was made
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
            words_of(error),
            ("Create it again: dshpc env lock",),
        ) from None


def write(project: Project, lock: Lock) -> None:
    project.write_json(f"{FOLDER}/{LOCK}", lock.to_json())


def _lock(value: dict[str, Any]) -> Lock:
    if value["schema"] != LOCK_SCHEMA or value["architecture"] not in MACHINES:
        raise ValueError("its form or its architecture is not known")
    return Lock(
        str(value["python"]),
        value["architecture"],
        {part: tuple(map(str, value["declared"][part])) for part in LOCK_PARTS},
        tuple(_wheel(each) for each in value["wheels"]),
        tuple(_debian(each) for each in value["debian"]),
    )


def _wheel(value: dict[str, str]) -> Wheel:
    wheel = _wheel_of(value["file"], value["sha256"])
    if (wheel.name, wheel.version) != (value["name"], value["version"]):
        raise ValueError(f"{value['file']} is not {value['name']} {value['version']}")
    return wheel


def _wheel_of(file: str, sha256: str) -> Wheel:
    """Each word becomes part of a file that uv reads: its form counts."""
    found = _FILE.fullmatch(file)
    if found is None or not _SHA256.fullmatch(sha256):
        raise ValueError(f"{file} is no wheel")
    return Wheel(found["name"], found["version"], file, sha256)


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
) -> tuple[Wheel, ...]:
    """The wheels of the packages and of all that they need, installed into an archive for the image.

    `target`: the architecture, and what this site needs.
    """
    if not wanted:
        return ()
    uv = uv_module.find(machine, *target)
    with _scratch(project) as scratch:
        say("packages: resolving")
        offered = resolved(uv_module.resolve(machine, uv, wanted, scratch))
        several = [wheels for wheels in offered if len(wheels) > 1]
        if several:  # uv takes the best of them, and says it in what it has installed alone
            tree = scratch / "several"
            file = _requirements(scratch, [wheel for wheels in several for wheel in wheels])
            uv_module.install(machine, uv, file, tree, say)
            offered = [packing.installed(tree, wheels) for wheels in offered]
        wheels = tuple(sorted(wheel for (wheel,) in offered))
        _make_archive(machine, project, uv, wheels, say, scratch)
    return wheels


def resolved(text: str) -> list[list[Wheel]]:
    """The wheels that a pylock.toml (PEP 751) offers for this target, one list a package."""
    found = []
    for package in tomllib.loads(text)["packages"]:
        names = {}
        for each in package.get("wheels", ()):
            name = each.get("name") or unquote(each.get("url") or each["path"]).rpartition("/")[2]
            names[name] = each["hashes"]["sha256"]
        wheels = [_wheel_of(name, sha256) for name, sha256 in names.items()]
        if not wheels:
            raise DshpcError(
                f"uv chose {package['name']}, which has no wheel.",
                "Nothing is built from source here.",
                ("Report this with the output of: dshpc env show",),
            )
        found.append(wheels)
    return found


def archive(
    machine: Machine,
    project: Project,
    lock: Lock,
    site: SiteFiles,
    say: Callable[[str], None] = lambda _: None,
) -> Path | None:
    """The archive with the lock's packages; what is not here yet is fetched by its hashes."""
    if not lock.wheels:
        return None
    path = _archive_path(project, lock.architecture, lock.wheels)
    if _stamp(path) != _noted(project):
        uv = uv_module.find(machine, lock.architecture, site)
        with _scratch(project) as scratch:
            say("packages: fetching what is locked")
            _make_archive(machine, project, uv, lock.wheels, say, scratch)
    return path


def _make_archive(
    machine: Machine,
    project: Project,
    uv: uv_module.Uv,
    wheels: tuple[Wheel, ...],
    say: Callable[[str], None],
    scratch: Path,
) -> None:
    tree, new = scratch / "tree", scratch / "new.tar"
    uv_module.install(machine, uv, _requirements(scratch, wheels), tree, say)
    say("packages: packing")
    path = _archive_path(project, uv.architecture, wheels)
    try:
        packing.pack(tree, new, uv.python)
        make_folder(path.parent, project.owner)
        with anchored(path.parent) as folder:
            _move(new, folder / path.name)
    except OSError as error:
        raise write_error(error, path) from None
    project.give_to_owner(path.parent)
    project.write_json(_NOTE, {"archive": _stamp(path)})


def _archive_path(project: Project, architecture: str, wheels: Iterable[Wheel]) -> Path:
    text = f"{packing.FORM} {architecture} {PYTHON}\n{with_hashes(wheels)}"
    return project.folder / PACKAGES / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.tar"


def _stamp(path: Path) -> list[str | int]:
    """How an archive looks, so that one that was changed since is made anew; [] where there is none."""
    try:
        found = path.stat()
    except OSError:
        return []
    return [path.name, found.st_size, found.st_mtime_ns]


def _noted(project: Project) -> Any:
    try:
        return project.read_json(_NOTE).get("archive")
    except DshpcError:  # damaged: then it is made anew
        return None


def forget(project: Project) -> None:
    """Remove the lock and what was fetched for it: nothing is declared any more."""
    forget_others(project, None)
    remove(project.folder / FOLDER / LOCK)


def forget_others(project: Project, lock: Lock | None) -> None:
    """Remove what was fetched for an earlier lock."""
    kept = _archive_path(project, lock.architecture, lock.wheels).name if lock else None
    with suppress(FileNotFoundError), anchored(project.folder / PACKAGES) as folder:
        for name in os.listdir(folder):
            if name != kept:
                (folder / name).unlink()
    with suppress(FileNotFoundError), anchored(project.own) as folder:
        shutil.rmtree(folder / "wheels")  # where 0.1.0 kept what pip fetched


def with_hashes(wheels: Iterable[Wheel]) -> str:
    """A requirements file that names these files and no others."""
    hashes: dict[str, str] = {}
    for each in wheels:
        name = f"{each.name}=={each.version}"
        hashes[name] = f"{hashes.get(name, name)} --hash=sha256:{each.sha256}"
    return "".join(f"{line}\n" for line in hashes.values())


def _requirements(scratch: Path, wheels: Iterable[Wheel]) -> Path:
    file = scratch / "requirements.txt"
    file.write_text(with_hashes(wheels), encoding="utf-8")
    return file


@contextmanager
def _scratch(project: Project) -> Iterator[Path]:
    make_folder(project.own, project.owner)
    for left in project.own.glob(f"{_SCRATCH}*"):  # of a run that was killed: it may be gigabytes
        shutil.rmtree(left, ignore_errors=True)
    # uv works by paths: where we are root for somebody else, by none that leads through their folders
    above = project.own if project.owner is None else Path(_OF_ROOT)
    try:
        folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=above))
    except OSError as error:
        raise write_error(error, above) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _move(path: Path, to: Path) -> None:
    """Into a folder that is held, which may be on another disk."""
    try:
        path.replace(to)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    temporary = to.with_name(temporary_name(to.name))
    try:
        with path.open("rb") as file, temporary.open("xb") as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
        temporary.replace(to)
    finally:
        temporary.unlink(missing_ok=True)
