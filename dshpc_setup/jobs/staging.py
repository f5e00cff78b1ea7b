"""Inputs on their way to a job: in the work folder as they are, from elsewhere as copies.

The container sees the work folder only. Copies wait beside the user's workspaces until the submission
moves them into one. They are the user's alone, as the workspace is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.jobs import (
    folder_lock,
    method_copy,
    removal,
    rights,
    safe_open,
    workspace,
    workspace_folders,
)
from dshpc_setup.jobs.method_copy import METHOD
from dshpc_setup.jobs.workspace_folders import room_for_writing

_LARGE = 256 << 20  # bytes: a copy takes longer than a question


@dataclass
class Incoming:
    """`folder` is made with the first copy; with `dry`, nothing is. `owner` (uid, gid) where we are
    root for somebody else. `prepare` has the cluster make the user's folder, where we may not. `also`:
    folders that jobs see beside the work folder. `runtime`: what the cluster's runtime.json says, for
    images. `foresee` raises DshpcError where the cluster is down or can have no such job."""

    work: str
    owner: tuple[int, int] | None = None
    dry: bool = False
    prepare: Callable[[], None] | None = None
    also: tuple[str, ...] = ()
    runtime: Mapping[str, Any] = field(default_factory=dict)
    folder: str | None = None
    foresee: Callable[[], object] | None = None
    _copies: dict[str, str] = field(default_factory=dict)
    _held: int | None = None  # the folder, open until this process ends or removes it

    def take(self, path: str) -> str:
        """Where the job finds this file; raises DshpcError where it is none, or cannot be read."""
        real = _resolved(os.path.expanduser(path))
        check(path, real)
        if (seen := self.seen(real)) is not None:
            return seen
        if real not in self._copies:
            self._copies[real] = self._copy(real)
        return self._copies[real]

    def take_method(self, folder: str) -> str:
        """Where the job finds a method's folder; raises DshpcError where it is too large to be copied,
        or cannot be."""
        real = _resolved(folder)
        if (seen := self.seen(real)) is not None:
            return seen
        method = method_copy.Source(real, self.owner, self.seen)
        try:
            method.check()
            target = f"{self._made()}/{METHOD}"
            if not self.dry:
                with self._copies_opened() as at:
                    method.copy(at)
        except OSError as error:
            self.remove()
            raise DshpcError(
                f"The method {real} cannot be copied for its job: {error.strerror or error}.",
                f"It lies outside of {self.work}, which is all that jobs see.",
                (room_for_writing(error, self.work),),
            ) from None
        except DshpcError:
            self.remove()
            raise
        return target

    def seen(self, real: str) -> str | None:
        """A real path as the job has it; None where it is in no folder that jobs see."""
        for folder in (self.work, *self.also):
            under = os.path.realpath(folder).rstrip("/")
            if real == (under or "/"):
                return folder
            if real.startswith(f"{under}/"):
                return f"{folder.rstrip('/')}{real[len(under) :]}"
        return None

    def before_long(self) -> None:
        """What takes long (an environment, an image, a large copy) is made for a job that can be had."""
        if self.foresee is not None:
            asked, self.foresee = self.foresee, None
            asked()

    def remove(self) -> None:
        """Where nothing was submitted."""
        if self.folder is not None and not self.dry:
            with suppress(OSError), workspace.user_opened(self.work, self.uid) as user:
                removal.discard(os.path.basename(self.folder), user)
        if self._held is not None:
            os.close(self._held)
            self._held = None

    @property
    def uid(self) -> int:
        return self.owner[0] if self.owner is not None else os.getuid()

    def _copy(self, real: str) -> str:
        if not self.dry and os.path.getsize(real) > _LARGE:
            self.before_long()
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
            source = self._source(real)
            try:
                with self._copies_opened() as at:
                    method_copy.fill(at, name, source, self.owner)
            finally:
                os.close(source)
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
        folder = f"{workspace.of_user(self.work, self.uid)}/{name}"
        if not self.dry:
            try:
                with self.user_folder() as user:
                    self._held = made = safe_open.new_folder(name, user, 0o700)
                    folder_lock.hold(made)
                    method_copy.give(made, self.owner)
            except OSError as error:
                raise DshpcError(
                    f"The work folder {self.work} cannot be written to: {error.strerror or error}.",
                    "An input from elsewhere has to be copied into it.",
                    (room_for_writing(error, self.work),),
                ) from None
        self.folder = folder
        return folder

    @contextmanager
    def user_folder(self) -> Iterator[int]:
        """The folder of the user's workspaces, open; made by whoever may."""
        if os.getuid() == 0:
            with suppress(PermissionError):  # of_user says why
                workspace_folders.prepare(self.work, *(self.owner or (0, 0)))
        elif self.prepare is not None and not self._is_ready():
            self.before_long()
            self.prepare()
        with workspace_folders.of_user(self.work, self.uid) as user:
            yield user

    def _is_ready(self) -> bool:
        try:
            with workspace_folders.of_user(self.work, self.uid):
                return True
        except (PermissionError, DshpcError):
            return False

    @contextmanager
    def _copies_opened(self) -> Iterator[int]:
        with (
            workspace.user_opened(self.work, self.uid) as user,
            safe_open.opened(os.path.basename(str(self.folder)), user) as at,
        ):
            yield at

    def _source(self, real: str) -> int:
        """The file, open, as who the job is for may open it: no part of its path is a link by now."""
        try:
            with rights.of_user(self.owner):
                return safe_open.real_file(real)
        except PermissionError:
            self.remove()
            raise method_copy.unreadable(real, self.owner) from None


def _resolved(path: str) -> str:
    try:
        return os.path.realpath(path)
    except OSError as error:  # a link when it was looked at, and none when it was read
        raise DshpcError(
            f"{path} cannot be read: {error.strerror}.",
            "Something was changed there while it was looked at.",
            ("Run this again.",),
        ) from None


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
