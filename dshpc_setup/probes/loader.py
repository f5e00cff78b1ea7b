"""Where the loader of shared libraries looks: its index, and the folders that nothing names."""

from __future__ import annotations

import re
from collections.abc import Collection

INDEX = "/etc/ld.so.cache"

MULTIARCH = {
    "x86_64": "x86_64-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "ppc64le": "powerpc64le-linux-gnu",
    "i686": "i386-linux-gnu",
    "armv7l": "arm-linux-gnueabihf",
}
"""Debian's names for folders of libraries, by what `uname -m` says."""


def folders(arch: str) -> tuple[str, ...]:
    """Where the loader looks though nothing names the folder."""
    bare = ("/lib", "/usr/lib", "/lib64", "/usr/lib64")
    multiarch = MULTIARCH.get(arch)
    return (*(f"{root}/{multiarch}" for root in bare[:2] if multiarch), *bare)


def indexed(index: str, names: Collection[str]) -> tuple[str, ...]:
    """The paths of these names in the text of the index, which has strings between zero bytes."""
    ends = tuple(f"/{name}" for name in names)
    if not any(end in index for end in ends):
        return ()
    words = (word for word in re.split(r"[\0\s]+", index) if len(word) < 4096)
    found = (word for word in words if word.startswith("/") and word.endswith(ends))
    return tuple(dict.fromkeys(found))
