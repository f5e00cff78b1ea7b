"""Inputs on their way to a job: in the work folder as they are, from elsewhere as copies.

The container sees the work folder only. Copies wait beside the user's workspaces until the submission
moves them into one. They are the user's alone, as the workspace is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.jobs import folder_lock, no_links, workspace, workspace_folders
from dshpc_setup.jobs.workspace_folders import room_for_writing

_BLOCK = 1 << 20
METHOD = ".method"  # beside the copies of inputs, where programs that list those do not see it
_MOST_FILES, _MOST_BYTES = 1000, 100 << 20  # of a method that is copied for each of its jobs
_PASSED_OVER = frozenset({".git", "__pycache__", ".venv", "node_modules"})


@dataclass
class Incoming:
    """`folder` is made with the first copy; with `dry`, nothing is. `owner` (uid, gid) where we are
    root for somebody else. `prepare` has the cluster make the user's folder, where we may not."""

    work: str
    owner: tuple[int, int] | None = None
    dry: bool = False
    prepare: Callable[[], None] | None = None
    folder: str | None = None
    _copies: dict[str, str] = field(default_factory=dict)
    _held: int | None = None  # the folder, open until this process ends or removes it

    def take(self, path: str) -> str:
        """Where the job finds this file; raises DshpcError where it is none, or cannot be read."""
        real = os.path.realpath(os.path.expanduser(path))
        check(path, real)
        if (seen := self.seen(real)) is not None:
            return seen
        if real not in self._copies:
            self._copies[real] = self._copy(real)
        return self._copies[real]

    def take_method(self, folder: str) -> str:
        """Where the job finds a method's folder; raises DshpcError where it is too large to be copied,
        or cannot be."""
        real = os.path.realpath(folder)
        if (seen := self.seen(real)) is not None:
            return seen
        files = list(_files_of(real))
        target = f"{self._made()}/{METHOD}"
        if not self.dry:
            try:
                self._fill_method(real, files)
            except OSError as error:
                self.remove()
                raise DshpcError(
                    f"The method {real} cannot be copied for its job: {error.strerror or error}.",
                    f"It lies outside of {self.work}, which is all that jobs see.",
                    (room_for_writing(error, self.work),),
                ) from None
        return target

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
            with suppress(OSError), workspace.user_opened(self.work, self._uid) as user:
                no_links.remove(os.path.basename(self.folder), user)
        if self._held is not None:
            os.close(self._held)
            self._held = None

    @property
    def _uid(self) -> int:
        return self.owner[0] if self.owner is not None else os.getuid()

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
            with (
                workspace.user_opened(self.work, self._uid) as user,
                no_links.opened(os.path.basename(folder), user) as at,
            ):
                self._fill(at, name, real)
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
        name = f".incoming-{os.urandom(6).hex()}"
        folder = f"{workspace.of_user(self.work, self._uid)}/{name}"
        if not self.dry:
            try:
                with self._user() as user:
                    self._held = made = no_links.new_folder(name, user, 0o700)
                    folder_lock.hold(made)
                    self._give(made)
            except OSError as error:
                raise DshpcError(
                    f"The work folder {self.work} cannot be written to: {error.strerror or error}.",
                    "An input from elsewhere has to be copied into it.",
                    (room_for_writing(error, self.work),),
                ) from None
        self.folder = folder
        return folder

    @contextmanager
    def _user(self) -> Iterator[int]:
        """The folder of the user's workspaces, open; made by whoever may."""
        if os.getuid() == 0:
            with suppress(PermissionError):  # of_user says why
                workspace_folders.prepare(self.work, *(self.owner or (0, 0)))
        elif self.prepare is not None and not self._is_ready():
            self.prepare()
        with workspace_folders.of_user(self.work, self._uid) as user:
            yield user

    def _is_ready(self) -> bool:
        try:
            with workspace_folders.of_user(self.work, self._uid):
                return True
        except (PermissionError, DshpcError):
            return False

    def _fill(self, at: int, name: str, real: str) -> None:
        """A new file in an open folder with what is in `real`; executable where that is."""
        with open(_file(os.path.realpath(real)), "rb") as source:
            target = no_links.new_file(name, at)
            with open(target, "wb") as file:
                shutil.copyfileobj(source, file, _BLOCK)
                no_links.give_mode(target, os.fstat(source.fileno()).st_mode & 0o700 | 0o600)
                self._give(target)

    def _fill_method(self, real: str, files: Sequence[str]) -> None:
        with (
            workspace.user_opened(self.work, self._uid) as user,
            no_links.opened(os.path.basename(str(self.folder)), user) as at,
        ):
            os.close(self._new_folder(METHOD, at))
            made = {""}
            for name in files:
                above = os.path.dirname(name)
                parts = above.split("/") if above else []
                for depth in range(1, len(parts) + 1):
                    if (part := "/".join(parts[:depth])) not in made:
                        with _below(at, [METHOD, *parts[: depth - 1]]) as inner:
                            os.close(self._new_folder(parts[depth - 1], inner))
                        made.add(part)
                with _below(at, [METHOD, *parts]) as inner:
                    self._fill(inner, os.path.basename(name), f"{real}/{name}")

    def _new_folder(self, name: str, at: int) -> int:
        made = no_links.new_folder(name, at, 0o700)
        self._give(made)
        return made

    def _give(self, at: int) -> None:
        if self.owner is not None:
            os.fchown(at, *self.owner)


def _files_of(folder: str) -> Iterator[str]:
    """The files of a method, below its folder; raises DshpcError (usage) where they are too many, or one
    is not to be copied."""
    count = size = 0
    for at, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(at, name))]
        folders[:] = sorted(set(folders) - _PASSED_OVER - set(links))
        for name in sorted([*names, *links]):
            path = os.path.join(at, name)
            check(path, path)
            count, size = count + 1, size + os.stat(path).st_size
            yield os.path.relpath(path, folder)
        if count > _MOST_FILES or size > _MOST_BYTES:
            raise usage_error(
                f"The method {folder} is too large to be copied for its job.",
                f"It may have {_MOST_FILES} files and {_MOST_BYTES >> 20} MiB.",
                "Put it into the work folder, where jobs see it as it is; or give its data as --input.",
            )


@contextmanager
def _below(at: int, parts: Sequence[str]) -> Iterator[int]:
    """The folder at those parts below an open one, by no link."""
    if not parts:
        yield at
        return
    with no_links.opened(parts[0], at) as inner, _below(inner, parts[1:]) as last:
        yield last


def _file(real: str) -> int:
    """What its name leads to by now, open: no link any more, and nothing to wait for."""
    with no_links.opened(os.path.dirname(real)) as folder:
        return no_links.file(os.path.basename(real), folder, None)


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
