"""A method's folder copied for its job: what lies in it, and nothing of what its links lead to.

The folder may be another user's, who changes it while it is read, and the copy is read by the method's
own code. Its files are opened with the rights of who the job is for, each in the folder that it lies in.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.files import tree
from dshpc_setup.jobs import rights, safe_open

METHOD = ".method"  # beside the copies of inputs, where programs that list those do not see it
_MOST_ENTRIES, _MOST_BYTES = 1000, 100 << 20
_PASSED_OVER = frozenset({".git", "__pycache__", ".venv", "node_modules"})
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Source:
    """`real`: its folder, resolved. `owner` (uid, gid) where we are root for somebody else. `seen`: a real
    path as jobs see it, None where they do not."""

    real: str
    owner: tuple[int, int] | None
    seen: Callable[[str], str | None]

    def check(self) -> None:
        """Raises DshpcError (usage) where it is too large or holds what is not to be copied; OSError."""
        for _ in self._parts():
            pass

    def copy(self, at: int) -> None:
        """Into the open folder `at`, as METHOD; raises as `check` does."""
        os.close(self._new_folder(METHOD, at))
        for entry, file, link in self._parts():
            with _below(at, (METHOD, *entry.parts[:-1])) as here:
                if file is not None:
                    fill(here, entry.name, file, self.owner)
                elif link is not None:
                    os.symlink(link, entry.name, dir_fd=here)
                    if self.owner is not None:
                        os.chown(entry.name, *self.owner, dir_fd=here, follow_symlinks=False)
                else:
                    os.close(self._new_folder(entry.name, here))

    def _parts(self) -> Iterator[tuple[tree.Entry, int | None, str | None]]:
        """Each thing in it: a file with a descriptor that is closed again, a link with what it says."""
        try:
            with self._rights(), safe_open.above(self.real) as (parent, name):
                top = safe_open.folder(name, parent)
        except PermissionError:
            raise unreadable(self.real, self.owner) from None
        try:
            whose, size = os.fstat(top).st_uid, 0
            for entry in tree.entries(top, _MOST_ENTRIES, _PASSED_OVER, self._rights):
                _check_name(entry)
                if entry.is_folder:
                    yield entry, None, None
                elif entry.is_link:
                    yield entry, None, self._link(entry)
                else:
                    with self._file(entry) as file:
                        found = os.fstat(file)
                        size += found.st_size
                        if size > _MOST_BYTES:
                            raise tree.TooLargeError(0, "its files are too large")
                        if found.st_nlink > 1 and found.st_uid != whose:
                            raise self._refused(
                                entry, "is one of several names of another user's file"
                            )
                        yield entry, file, None
        except tree.TooLargeError as error:
            raise usage_error(
                f"The method {self.real} is too large to be copied for its job: {error.strerror}.",
                f"It may have {_MOST_ENTRIES} files and folders, and {_MOST_BYTES >> 20} MiB.",
                "Put it into the work folder, where jobs see it as it is; or give its data as --input.",
            ) from None
        finally:
            os.close(top)

    @contextlib.contextmanager
    def _file(self, entry: tree.Entry) -> Iterator[int]:
        if not entry.is_file:
            raise usage_error(
                f"{self.real}/{entry.path} is not a file.",
                "A method that is copied for its job has files, folders and links.",
                "Move it out of the method's folder.",
            )
        try:
            with self._rights():
                handle = entry.file()
        except PermissionError:
            raise unreadable(f"{self.real}/{entry.path}", self.owner) from None
        try:
            yield handle
        finally:
            os.close(handle)

    def _link(self, entry: tree.Entry) -> str:
        """What the copy of a link says: only where it leads inside of the method, or to what jobs see."""
        text = entry.link()
        led = os.path.normpath("/".join((*entry.parts[:-1], text)))
        if not os.path.isabs(text) and led != ".." and not led.startswith("../"):
            return text
        seen = self.seen(os.path.realpath(f"{self.real}/{entry.path}"))
        if seen is None:
            raise self._refused(entry, "is a link that leads out of the method's folder")
        return seen

    def _refused(self, entry: tree.Entry, why: str) -> DshpcError:
        return usage_error(
            f"{self.real}/{entry.path} {why}.",
            "A method that lies outside of the work folder is copied for its job, and nothing else with it.",
            "Put a copy of the file in its place, or give it as --input.",
        )

    def _rights(self) -> contextlib.AbstractContextManager[None]:
        return rights.of_user(self.owner)

    def _new_folder(self, name: str, at: int) -> int:
        made = safe_open.new_folder(name, at, 0o700)
        give(made, self.owner)
        return made


def fill(at: int, name: str, source: int, owner: tuple[int, int] | None) -> None:
    """A new file in an open folder with what is in an open one, as long as that is now; executable where
    that is."""
    found = os.fstat(source)
    target = safe_open.new_file(name, at)
    with open(source, "rb", closefd=False) as file, open(target, "wb") as copy:
        if found.st_size == 0:  # as files of /proc say, which have an end
            copy.write(file.read(_BLOCK))
        left = found.st_size
        while left > 0 and (block := file.read(min(_BLOCK, left))):
            copy.write(block)
            left -= len(block)
        safe_open.give_mode(target, found.st_mode & 0o700 | 0o600)
        give(target, owner)


def give(at: int, owner: tuple[int, int] | None) -> None:
    """What is open, to who it is for."""
    if owner is not None:
        os.fchown(at, *owner)


def unreadable(path: str, owner: tuple[int, int] | None) -> DshpcError:
    """Of what may not be read by who the job is for."""
    if owner is None or owner[0] == 0:
        return usage_error(f"You may not read {path}.", "", "Make it readable for you.")
    return usage_error(
        f"User {owner[0]} may not read {path}.",
        "The job runs as the user who called sudo, and so do its files have to be readable for that user.",
        "Make it readable for that user, or run this without sudo as a user who may read it.",
    )


def _check_name(entry: tree.Entry) -> None:
    try:
        entry.name.encode()
    except UnicodeEncodeError:
        raise usage_error(
            f"The path {os.fsencode(entry.path)!r} is not valid UTF-8.", "", "Rename the file."
        ) from None


@contextlib.contextmanager
def _below(at: int, parts: Sequence[str]) -> Iterator[int]:
    """The folder at those parts below an open one, by no link."""
    if not parts:
        yield at
        return
    with safe_open.opened(parts[0], at) as inner, _below(inner, parts[1:]) as last:
        yield last
