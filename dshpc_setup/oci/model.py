"""An image as values: what it is called by its content, how its programs begin, and why one cannot be had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Fault = Literal[
    "absent",  # there is no such file
    "no-image",  # it is none of the forms that are known
    "several",  # it holds more than one, and says of none that it is meant
    "architecture",
    "system",  # not of Linux
    "truncated",
    "damaged",  # its content is not what its own digests say
    "unsafe",  # a member that leads out of it
    "too-large",
    "no-room",
    "encrypted",
    "file-system",  # of a SIF: it holds no squashfs
    "no-program",  # unsquashfs is missing
    "refused",  # unsquashfs could not
    "write",
]

ARCHITECTURES: Mapping[str, str] = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "ppc64le": "ppc64le",
    "riscv64": "riscv64",
    "s390x": "s390x",
}
"""As `uname -m` has it, and as images have it."""


class ImageError(Exception):
    """Why there is no image: a code, and the member, the digest or the message that tells more."""

    def __init__(self, fault: Fault, what: str = "") -> None:
        super().__init__(fault, what)
        self.fault, self.what = fault, what


@dataclass(frozen=True)
class Layer:
    """`member`: where it lies in the archive; `diff_id`: SHA-256 of it unpacked, in hexadecimal."""

    member: str
    diff_id: str


@dataclass(frozen=True)
class Start:
    """How an image's programs begin, by itself."""

    environment: tuple[str, ...] = ()
    folder: str = "/"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Image:
    """`digest`: SHA-256 of what describes it, its layers' digests included: equal ones are the same image."""

    digest: str
    layers: tuple[Layer, ...]
    start: Start = field(default_factory=Start)
