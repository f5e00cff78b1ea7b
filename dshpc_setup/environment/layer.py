"""What of the environment goes into the image's build: files of the build context."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.environment import declaration, locking
from dshpc_setup.environment.model import FOLDER, Lock
from dshpc_setup.errors import DshpcError
from dshpc_setup.files.anchored import open_file
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project

ARCHIVE = "packages.tar"
LABEL = "org.dshpc.environment"
_LOCK_NOW = "dshpc env lock"


@dataclass(frozen=True)
class Layer:
    """`archive`: the Python packages; None in a dry run, which fetches nothing."""

    lock: Lock
    archive: Path | None = None

    @property
    def digest(self) -> str:
        return self.lock.digest

    @property
    def has_python(self) -> bool:
        return bool(self.lock.wheels)

    @property
    def has_debian(self) -> bool:
        return bool(self.lock.debian)

    def write(self, folder: Path) -> None:
        """The files that the Dockerfile copies."""
        folder.mkdir()
        if self.has_debian:
            names = "".join(f"{each.name}={each.version}\n" for each in self.lock.debian)
            (folder / "debian").write_text(names, encoding="utf-8")
        if self.has_python:
            hashed = locking.with_hashes(self.lock.wheels)
            (folder / "requirements.txt").write_text(hashed, encoding="utf-8")
        if self.archive is not None:
            _link(self.archive, folder / ARCHIVE)


def _link(path: Path, to: Path) -> None:
    """The same file under another name, for it is large; a copy where there are no links."""
    try:
        os.link(path, to)
    except OSError:
        with (
            open(open_file(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file,
            to.open("xb") as copy,
        ):
            shutil.copyfileobj(file, copy, 1 << 20)


def current_lock(project: Path, architecture: str) -> Lock | None:
    """The lock where all is declared and locked alike; None where nothing is declared.

    Raises DshpcError where they differ, with the difference and what to type.
    """
    declared = declaration.load(project)
    if declared is None or declared.is_empty:
        return None
    lock = locking.read(project)
    if lock is None:
        count = sum(map(len, declared.texts().values()))
        raise DshpcError(
            f"{project / FOLDER} declares packages ({count}), and they are not locked yet.",
            "The image is built from a lock alone, so that it can be built again.",
            (f"Lock them: {_LOCK_NOW}", "Then run configure-environment again."),
        )
    differs = locking.differences(declared, lock)
    if lock.architecture != architecture:
        differs.append(
            f"the lock is for {lock.architecture}, and the engine is of type {architecture}"
        )
    if differs:
        raise DshpcError(
            f"{project / FOLDER} declares something else than what is locked.",
            "\n".join(differs),
            (f"Lock again: {_LOCK_NOW}", "Then run configure-environment again."),
        )
    return lock


def prepare(
    machine: Machine,
    project: Project,
    architecture: str,
    site: SiteFiles,
    *,
    fetch: bool,
    say: Callable[[str], None] = lambda _: None,
) -> Layer | None:
    """The layer that the image is to have, its packages fetched; None where nothing is declared.

    What was fetched for others goes then. A dry run fetches nothing and removes nothing.
    """
    lock = current_lock(project.folder, architecture)
    if lock is None:
        if fetch:
            locking.forget_others(project, None)
        return None
    if not fetch:
        return Layer(lock)
    return Layer(lock, locking.archive(machine, project, lock, site, say))
