"""A root filesystem out of an archive that nobody vouches for: no member reaches beyond the folder.

Each part of a path is opened in the one above it and no link is followed; so a member below a link of the
archive's own is refused, and a link may lead wherever it likes: nobody goes there before the container
has this folder as its root.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import lzma
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from dshpc_setup.builtin.unxz import MAGIC, Unxz
from dshpc_setup.machine.elf import architecture_of

Fault = Literal[
    "truncated", "no-archive", "unsafe", "too-large", "architecture", "no-room", "write"
]
_BLOCK = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_END = bytes(tarfile.BLOCKSIZE)
_RATIO, _ALWAYS_BYTES = 50, 1 << 30  # root filesystems are packed to a fourth, seldom to a tenth
_LEAST_BYTES = 4096  # that a file takes, an empty one as well
_HEADER = 1 << 20  # longer is no name, and would be read into memory
_KEPT_FREE = 256 << 20
_PROGRAMS = ("bin", "sbin", "usr/bin", "usr/sbin")


class ArchiveError(Exception):
    """Why it cannot be unpacked: a code, and the member or the number of the kernel that tells more."""

    def __init__(self, fault: Fault, what: str = "") -> None:
        super().__init__(fault, what)
        self.fault, self.what = fault, what


@dataclass(frozen=True)
class Unpacked:
    """What was written. `skipped`: device nodes and pipes, which a container gets made anew."""

    files: int
    size_bytes: int
    skipped: int
    architecture: str | None  # as `uname -m` has it; None where there was no program to tell


def parts_of(name: str) -> tuple[str, ...]:
    """The parts of a member's name below the folder; raises ArchiveError for one with "..".

    A "/" at its front means the folder, as tar itself has it.
    """
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts or "\0" in name:
        raise ArchiveError("unsafe", name)
    return parts


def most_bytes(packed: int) -> int:
    """What an archive of so many bytes may become at most: zeros are packed to a thousandth, and the holes of
    a sparse file to nothing."""
    return max(_ALWAYS_BYTES, _RATIO * packed)


def unpack(
    archive: Path, folder: Path, *, owners: bool, machine: str, most: int | None = None
) -> Unpacked:
    """The archive (tar, tar.gz or tar.xz) into an empty folder; ArchiveError, what was written stays then.

    `owners`: members get the ids that the archive tells; else all belong to the caller, who can read and
    write each. `machine`: the processor as `uname -m` has it, for which a program of the archive must be.
    `most`: how many bytes may come of it (`most_bytes` of the file that it came as).
    """
    try:
        if most is None:
            most = most_bytes(os.stat(archive).st_size)
        with _opened(archive) as source:
            tree = Tree(folder, owners, machine, most)
            return unpacked(source, tree, archive.name)
    except OSError as error:
        raise ArchiveError("write", str(error)) from None


def unpack_tar(
    source: IO[bytes], folder: Path, *, owners: bool, machine: str, name: str
) -> Unpacked:
    """The same of a tar that is read from here, also into a folder that holds others already.

    It comes from those who signed it: it may be as large as it likes.
    """
    return unpacked(source, Tree(folder, owners, machine, None), name)


def unpacked(source: IO[bytes], tree: Tree, name: str) -> Unpacked:
    """A tar that is read from here, which needs no way back, into that tree; ArchiveError."""
    with contextlib.ExitStack() as stack:
        tail: Tail | None = None
        try:
            stack.enter_context(tree)
            tail = Tail(source)
            tar = stack.enter_context(tarfile.TarFile(fileobj=tail, mode="r"))  # type: ignore[arg-type]
            for member in tar:
                tree.add(tar, member)
            if tail.last != _END:
                raise ArchiveError("truncated", name)
            while source.read(_BLOCK):  # the check sum is compared at the end alone
                pass
            tree.finish()
        except (EOFError, zlib.error, lzma.LZMAError) as error:
            raise ArchiveError("truncated", str(error)) from None
        except gzip.BadGzipFile as error:
            raise ArchiveError("truncated", str(error)) from None
        except tarfile.ReadError as error:
            raise ArchiveError(_fault_of(tail), str(error)) from None
        except (
            tarfile.TarError,
            ValueError,
            OverflowError,
        ) as error:  # of fields that are no values
            raise ArchiveError("no-archive", str(error)) from None
        except OSError as error:
            fault: Fault = "no-room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "write"
            raise ArchiveError(fault, str(error)) from None
        return tree.unpacked()


def _fault_of(tail: Tail | None) -> Fault:
    return "truncated" if tail is not None and tail.seen > tarfile.BLOCKSIZE else "no-archive"


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[IO[bytes]]:
    with open(archive, "rb") as raw:
        head = raw.read(len(MAGIC))
        raw.seek(0)
        if head == MAGIC:
            yield Unxz(raw)  # type: ignore[misc]
            return
        if head[:2] != b"\x1f\x8b":
            yield raw
            return
        with gzip.GzipFile(fileobj=raw) as unzipped:
            yield unzipped  # type: ignore[misc]


def plain(archive: Path, to: Path, most: int) -> None:
    """A tar, tar.gz or tar.xz as a tar; ArchiveError."""
    try:
        with _opened(archive) as source, open(to, "wb") as file:
            while block := source.read(_BLOCK):
                file.write(block)
                if file.tell() > most:
                    raise ArchiveError("too-large", archive.name)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise ArchiveError("truncated", str(error)) from None
    except OSError as error:
        fault: Fault = "no-room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "write"
        raise ArchiveError(fault, str(error)) from None


class Tail:
    """A file that knows what was read last: tarfile takes an archive that just stops for a whole one."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.last = b""
        self.seen = 0

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _HEADER:
            raise ArchiveError("unsafe", f"a header of {size} bytes")
        self.last = self._file.read(size)
        self.seen += len(self.last)
        return self.last

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


class Tree:
    """The folder, held open, with the folder that was written to last."""

    def __init__(self, folder: Path, owners: bool, machine: str, most: int | None) -> None:
        self._top = os.open(folder, _FOLDER)
        self._owners, self._machine, self._most = owners, machine, most
        self.taken = 0  # bytes, each file at the least that it takes
        self._at: tuple[tuple[str, ...], int] = ((), os.dup(self._top))
        self._folders: dict[tuple[str, ...], tarfile.TarInfo] = {}
        self._files = self._bytes = self._skipped = 0
        self._architecture: str | None = None

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._at[1])
        os.close(self._top)

    def unpacked(self) -> Unpacked:
        return Unpacked(self._files, self._bytes, self._skipped, self._architecture)

    def _need_room(self, member: tarfile.TarInfo) -> None:
        """Before a byte of it is written: a full disk stops others."""
        size = max(_LEAST_BYTES, member.size if member.isreg() else 0)
        self.taken += size
        if self._most is not None and self.taken > self._most:
            raise ArchiveError("too-large", member.name)
        disk = os.fstatvfs(self._top)
        kept = min(_KEPT_FREE, disk.f_blocks * disk.f_frsize // 20)
        if disk.f_blocks and disk.f_bavail * disk.f_frsize - kept < size:
            raise ArchiveError(
                "no-room", f"{member.name} of {size} bytes does not fit in what is free"
            )

    def add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = parts_of(member.name)
        self._need_room(member)
        if not parts:  # the folder itself
            self._folders[()] = member
            return
        if member.isdir():
            self._at_folder(parts)
            self._folders[parts] = member
            return
        if not (member.isreg() or member.issym() or member.islnk()):
            self._skipped += 1
            return
        at, name = self._at_folder(parts[:-1]), parts[-1]
        self._clear(at, name, parts)
        if member.issym():
            os.symlink(member.linkname, name, dir_fd=at)
            if self._owners:
                os.chown(name, member.uid, member.gid, dir_fd=at, follow_symlinks=False)
        elif member.islnk():
            self._link(member, at, name)
        else:
            self._file(tar, member, at, name)
        self._files += 1

    def _clear(self, at: int, name: str, parts: tuple[str, ...]) -> None:
        """What has the name so far gives way, but for a folder."""
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                raise ArchiveError("unsafe", "/".join(parts))
            os.unlink(name, dir_fd=at)

    def _link(self, member: tarfile.TarInfo, at: int, name: str) -> None:
        target = parts_of(member.linkname)
        if not target:
            raise ArchiveError("unsafe", member.name)
        above = self._open(target[:-1], make=False)
        try:
            os.link(target[-1], name, src_dir_fd=above, dst_dir_fd=at, follow_symlinks=False)
        except FileNotFoundError:
            raise ArchiveError("unsafe", member.name) from None
        finally:
            os.close(above)

    def _file(self, tar: tarfile.TarFile, member: tarfile.TarInfo, at: int, name: str) -> None:
        content = tar.extractfile(member)
        handle = os.open(name, _NEW, 0o600, dir_fd=at)
        with open(handle, "wb") as file:
            first = True
            while content is not None and (block := content.read(_BLOCK)):
                if first and self._architecture is None:
                    self._judge(self._at[0], block)
                first = False
                file.write(block)
            self._bytes += member.size
            file.flush()
            self._give(handle, member, 0o600)

    def _judge(self, above: tuple[str, ...], head: bytes) -> None:
        if "/".join(above) not in _PROGRAMS:
            return
        self._architecture = architecture_of(head)
        if self._architecture not in (None, self._machine):
            raise ArchiveError("architecture", str(self._architecture))

    def _give(self, handle: int, member: tarfile.TarInfo, least: int) -> None:
        """Owner, mode and time; the mode last: a change of the owner takes bits of it away."""
        if self._owners:
            os.fchown(handle, member.uid, member.gid)
            os.fchmod(handle, stat.S_IMODE(member.mode))
        else:
            os.fchmod(handle, (stat.S_IMODE(member.mode) & 0o1777) | least)
        with contextlib.suppress(OverflowError):
            os.utime(handle, (int(member.mtime), int(member.mtime)))

    def finish(self) -> None:
        """Owners, modes and times of folders: nobody writes in them any more."""
        for parts, member in sorted(self._folders.items(), reverse=True):
            handle = self._open(parts, make=False)
            try:
                self._give(handle, member, 0o700)
            finally:
                os.close(handle)

    def _at_folder(self, parts: tuple[str, ...]) -> int:
        """Open as long as no other one is asked for; made where it is missing."""
        if self._at[0] != parts:
            (_, before), self._at = self._at, (parts, self._open(parts, make=True))
            os.close(before)
        return self._at[1]

    def _open(self, parts: tuple[str, ...], *, make: bool) -> int:
        handle = os.dup(self._top)
        try:
            for part in parts:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o755, dir_fd=handle)
                inner = os.open(part, _FOLDER, dir_fd=handle)
                os.close(handle)
                handle = inner
        except OSError as error:
            os.close(handle)
            if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.ENOENT):
                raise ArchiveError("unsafe", "/".join(parts)) from None
            raise
        return handle
