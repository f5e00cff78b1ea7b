"""Inputs on their way to a job: in the work folder as they are, from elsewhere as copies.

The container sees the work folder only. Copies wait in a folder of the work folder's `jobs` until the
submission moves them into the workspace.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.jobs.workspace import JOBS, room_for_writing

_BLOCK = 1 << 20


@dataclass
class Incoming:
    """`folder` is made with the first copy; with `dry`, nothing is. `owner` (uid, gid) where we are
    root for somebody else."""

    work: str
    owner: tuple[int, int] | None = None
    dry: bool = False
    folder: str | None = None
    _copies: dict[str, str] = field(default_factory=dict)

    def take(self, path: str) -> str:
        """Where the job finds this file; raises DshpcError where it is none, or cannot be read."""
        real = os.path.realpath(os.path.expanduser(path))
        check(path, real)
        if (seen := self.seen(real)) is not None:
            return seen
        if real not in self._copies:
            self._copies[real] = self._copy(real)
        return self._copies[real]

    def seen(self, real: str) -> str | None:
        """A real path as the job has it; None where it is not in the work folder."""
        under = os.path.realpath(self.work).rstrip("/")
        if real == (under or "/"):
            return self.work
        return (
            f"{self.work.rstrip('/')}{real[len(under) :]}" if real.startswith(f"{under}/") else None
        )

    def remove(self) -> None:
        """Where nothing was submitted."""
        if self.folder is not None and not self.dry:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _copy(self, real: str) -> str:
        folder = self._made()
        taken = {os.path.basename(copy) for copy in self._copies.values()}
        name = os.path.basename(real)
        number = 2
        while name in taken:
            name, number = f"{number}-{os.path.basename(real)}", number + 1
        target = f"{folder}/{name}"
        if self.dry:
            return target
        try:
            self._fill(folder, name, real)
        except OSError as error:
            self.remove()
            raise DshpcError(
                f"The input {real} cannot be copied into the work folder: {error.strerror or error}.",
                f"It lies outside of {self.work}, which is all that jobs see.",
                (room_for_writing(error, self.work),),
            ) from None
        return target

    def _made(self) -> str:
        if self.folder is not None:
            return self.folder
        jobs = f"{self.work.rstrip('/')}/{JOBS}"
        self.folder = f"{jobs}/.incoming-{os.urandom(6).hex()}"
        if self.dry:
            return self.folder
        try:
            made = not os.path.isdir(jobs) and _make(jobs)
            with self._opened(jobs) as at:
                if made:
                    os.fchmod(at, os.stat(self.work).st_mode & 0o7777)  # as submit.py makes it
                    self._give(at)
                os.mkdir(os.path.basename(self.folder), 0o755, dir_fd=at)
            with self._opened(self.folder) as at:
                self._give(at)
        except OSError as error:
            raise DshpcError(
                f"The work folder {self.work} cannot be written to: {error.strerror or error}.",
                "An input from elsewhere has to be copied into it.",
                (room_for_writing(error, self.work),),
            ) from None
        return self.folder

    def _fill(self, folder: str, name: str, real: str) -> None:
        """A new file with what is in `real`, and with its permissions."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(real, "rb") as source, self._opened(folder) as at:
            target = os.open(name, flags, 0o600, dir_fd=at)
            with open(target, "wb") as file:
                shutil.copyfileobj(source, file, _BLOCK)
                os.fchmod(target, os.fstat(source.fileno()).st_mode & 0o777 | 0o600)
                self._give(target)

    @contextmanager
    def _opened(self, folder: str) -> Iterator[int]:
        """A folder, open. As root for somebody else it is none that a link leads to: its owner could
        lead us anywhere."""
        link = os.O_NOFOLLOW if self.owner is not None else 0
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | link)
        try:
            yield at
        finally:
            os.close(at)

    def _give(self, at: int) -> None:
        if self.owner is not None:
            os.fchown(at, *self.owner)


def _make(folder: str) -> bool:
    """Whether it was us: another submission may have made it just now."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        return False
    return True


def check(path: str, real: str) -> None:
    """Raises DshpcError (usage) for what is no file that can be read."""
    try:
        real.encode()
    except UnicodeEncodeError:
        raise usage_error(
            f"The path {os.fsencode(path)!r} is not valid UTF-8.", "", "Rename the file."
        ) from None
    if not os.path.exists(real):
        raise usage_error(f"There is no file {path}.", "", "Check how it is written.")
    if not os.path.isfile(real):
        raise usage_error(
            f"{path} is not a file.", "An input is a file.", "Give its files one by one."
        )
    if not os.access(real, os.R_OK):
        raise usage_error(f"You may not read {path}.", "", "Make it readable for you.")
