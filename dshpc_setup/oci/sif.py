"""SIF, the file of Singularity and Apptainer: where its root filesystem lies, and what its programs'
environment is.

Little-endian and without gaps: a header of 128 bytes names a table of descriptors, of which one is the
primary system partition (the SIF specification, pkg/sif).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from dshpc_setup.oci.model import ImageError

MAGIC = b"SIF_MAGIC\0"
_MAGIC_AT = 32
_HEADER = struct.Struct("<32s10s3s3s16s8q")
_DESCRIPTOR = struct.Struct("<i?3I7q128s384s")
_MOST_DESCRIPTORS = 10_000
_PARTITION, _PRIMARY = 0x4004, 2
_SQUASHFS, _ENCRYPTED = 1, 5
_ARCHITECTURES = {"02": "x86_64", "04": "aarch64", "06": "ppc64le", "11": "s390x", "12": "riscv64"}
_EXPORT = re.compile(
    r'^export ([A-Za-z_][A-Za-z0-9_]*)="(?:\$\{\1:-"?)?([^"$`\\]*)"?\}?"?\s*$', re.MULTILINE
)
ENVIRONMENT = ".singularity.d/env/10-docker2singularity.sh"


@dataclass(frozen=True)
class Partition:
    """A squashfs in the file."""

    offset: int
    size: int


def is_sif(head: bytes) -> bool:
    """Of at least 42 bytes."""
    return head[_MAGIC_AT : _MAGIC_AT + len(MAGIC)] == MAGIC


def partition(file: IO[bytes], size: int, machine: str) -> Partition:
    """The root filesystem in a file of that size, for a processor as `uname -m` names it; raises
    ImageError."""
    head = file.read(_HEADER.size)
    if len(head) < _HEADER.size:
        raise ImageError("truncated", "its header")
    _, _, _, _, _, _, _, _, count, at, _, _, _ = _HEADER.unpack(head)
    if not (0 < count <= _MOST_DESCRIPTORS and at > 0 and at + count * _DESCRIPTOR.size <= size):
        raise ImageError("truncated", "its table of parts")
    file.seek(at)
    for kind, used, offset, length, extra in _parts(file.read(count * _DESCRIPTOR.size)):
        system, part, processor = struct.unpack_from("<ii3s", extra)
        if used and kind == _PARTITION and part == _PRIMARY:
            _need_right(system, processor.rstrip(b"\0").decode("ascii", "replace"), machine)
            if offset <= 0 or length <= 0 or offset + length > size:
                raise ImageError("truncated", "its root filesystem")
            return Partition(offset, length)
    raise ImageError("no-image", "it has no system partition")


def environment(script: str) -> tuple[str, ...]:
    """NAME=VALUE, of the script in which an image's own variables stand; what takes a shell is left out.
    Pure."""
    return tuple(f"{name}={value}" for name, value in _EXPORT.findall(script))


def _parts(table: bytes) -> Iterator[tuple[int, bool, int, int, bytes]]:
    for kind, used, _, _, _, offset, length, _, _, _, _, _, _, extra in _DESCRIPTOR.iter_unpack(
        table
    ):
        yield kind, used, offset, length, extra


def _need_right(system: int, processor: str, machine: str) -> None:
    if system == _ENCRYPTED:
        raise ImageError("encrypted")
    if system != _SQUASHFS:
        raise ImageError("file-system", str(system))
    if processor != "00" and _ARCHITECTURES.get(processor) != machine:
        raise ImageError("architecture", _ARCHITECTURES.get(processor, processor))
