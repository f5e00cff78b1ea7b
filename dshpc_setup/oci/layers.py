"""Layers of an image laid over each other in one folder: what a later one has, or has removed, counts.

As in any archive here (builtin/archive.py) no member reaches beyond the folder. A link of a layer below
may lie on a member's way (`bin` to `usr/bin`): it is followed by hand, and its root is the folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tarfile
from pathlib import Path

from dshpc_setup.builtin.archive import ArchiveError, Tree, parts_of

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REMOVED, _OPAQUE = ".wh.", ".wh..wh..opq"  # of the OCI image specification
_MOST_LINKS = 40  # as the kernel
_NOWHERE = ("\0",)  # no member's folder


class LayerTree(Tree):
    """One layer on its way into `folder`. What it replaces is moved to `removed`, a folder on the same
    disk."""

    def __init__(self, folder: Path, removed: Path, machine: str, most: int) -> None:
        super().__init__(folder, False, machine, most)
        self._removed = os.open(removed, _FOLDER)
        self._count = len(os.listdir(self._removed))
        self._new: set[tuple[str, ...]] = set()  # of this layer, with the folders above

    def __exit__(self, *rest: object) -> None:
        os.close(self._removed)
        super().__exit__(*rest)

    def add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = parts_of(member.name)
        name = parts[-1] if parts else ""
        if name == _OPAQUE:
            self._empty(parts[:-1])
            return
        if name.startswith(_REMOVED):
            gone = (*parts[:-1], name.removeprefix(_REMOVED))
            if gone[-1] not in ("", ".", "..") and gone not in self._new:
                with contextlib.suppress(ArchiveError):  # there is no such folder
                    self._take_away(self._open(parts[:-1], make=False), gone[-1], opened=True)
            return
        if member.isdir() and parts:
            self._need_folder(parts)
        self._new.update(parts[: depth + 1] for depth in range(len(parts)))
        super().add(tar, member)

    def _need_folder(self, parts: tuple[str, ...]) -> None:
        """What is no folder, and has a folder's name, goes: a link as well."""
        at = self._at_folder(parts[:-1])
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.stat(parts[-1], dir_fd=at, follow_symlinks=False).st_mode):
                self._take_away(at, parts[-1])

    def _clear(self, at: int, name: str, parts: tuple[str, ...]) -> None:
        self._take_away(at, name)

    def _empty(self, parts: tuple[str, ...]) -> None:
        """Of a folder all that is not of this layer."""
        waiting = [parts]
        while waiting:
            here = waiting.pop()
            try:
                at = self._open(here, make=False)
            except ArchiveError:  # there is no such folder
                continue
            try:
                for name in os.listdir(at):
                    if (*here, name) not in self._new:
                        self._take_away(at, name)
                    elif stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                        waiting.append((*here, name))
            finally:
                os.close(at)

    def _take_away(self, at: int, name: str, *, opened: bool = False) -> None:
        """In one step, however much it is; `opened`: `at` is closed then."""
        try:
            with contextlib.suppress(FileNotFoundError):
                seen = os.stat(name, dir_fd=at, follow_symlinks=False)
                if not stat.S_ISDIR(seen.st_mode) and not stat.S_ISLNK(seen.st_mode):
                    os.unlink(name, dir_fd=at)
                    return
                if stat.S_ISDIR(seen.st_mode):
                    os.chmod(name, 0o700, dir_fd=at)  # moving one changes its ".."
                os.rename(name, str(self._count), src_dir_fd=at, dst_dir_fd=self._removed)
                self._count += 1
                self._forget()
        finally:
            if opened:
                os.close(at)

    def _forget(self) -> None:
        """The next member opens its folder anew: what is held open may be out of the tree."""
        self._at = (_NOWHERE, self._at[1])

    def _open(self, parts: tuple[str, ...], *, make: bool) -> int:
        todo, real, links = list(parts), list[str](), 0
        handle = os.dup(self._top)
        try:
            while todo:
                part = todo.pop(0)
                if part == "..":
                    real = real[:-1]
                    handle = self._moved(handle, real)
                    continue
                try:
                    inner = self._inner(handle, part, make=make)
                except OSError as error:
                    if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                        raise
                    links += 1
                    target = self._target(handle, part, links)
                    real = [] if target.startswith("/") else real
                    todo[:0] = [each for each in target.split("/") if each not in ("", ".")]
                    handle = self._moved(handle, real)
                    continue
                os.close(handle)
                handle = inner
                real.append(part)
        except OSError as error:
            os.close(handle)
            if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.ENOENT):
                raise ArchiveError("unsafe", "/".join(parts)) from None
            raise
        except ArchiveError:
            os.close(handle)
            raise
        return handle

    def _inner(self, handle: int, part: str, *, make: bool) -> int:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=handle)
        return os.open(part, _FOLDER, dir_fd=handle)

    def _target(self, handle: int, part: str, links: int) -> str:
        if links > _MOST_LINKS:
            raise ArchiveError("unsafe", part)
        try:
            return os.readlink(part, dir_fd=handle)
        except OSError:
            raise ArchiveError("unsafe", part) from None  # a file on the way

    def _moved(self, handle: int, real: list[str]) -> int:
        """Closes the one, and opens what lies at these parts, none of which is a link."""
        at = os.dup(self._top)
        try:
            for part in real:
                inner = os.open(part, _FOLDER, dir_fd=at)
                os.close(at)
                at = inner
        except OSError:
            os.close(at)
            raise
        os.close(handle)
        return at
