"""The program as an archive: a checkout's files, and the Python packages where those of here do there."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import platform
import re
import sys
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from dshpc_setup import resources
from dshpc_setup.adding.look import CARRIED, Found
from dshpc_setup.adding.scripts import SCRIPTS

# What a checkout needs to start, beside the package; a wheel has all of it in `_share`
_FILES = (
    "configure-environment", "dshpc", "pyproject.toml", "requirements.lock", "README.md", "LICENSE",
    "scripts/launch.sh", "scripts/others.sh", "scripts/packages.sh", "scripts/environment.py",
    "scripts/share_in_wheel.py",
    "templates", "container", "methods", "docker-compose.yml.j2", "docs/findings", "docs/schemas", "browser",
)  # fmt: skip
_LEFT_OUT = ("__pycache__", "_share")
_NOT_CARRIED = ("uv",)  # two thirds of all, and needed for `dshpc env` alone
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)


def fits(found: Found, arch: str) -> bool:
    """Whether packages that are installed here run there: the same Python and processor, both with glibc."""
    ours = ".".join(map(str, sys.version_info[:2]))
    same = found["python"] == ours and found["arch"] == arch
    return same and found["libc"].startswith("glibc") and platform.libc_ver()[0] == "glibc"


def pack(file: Path, *, packages: bool, arch: str) -> str:
    """The archive, and the digest of what is in it; OSError where it cannot be written."""
    digest = hashlib.sha256()
    with (
        gzip.GzipFile(file, "wb", compresslevel=1, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for name, mode, content in sorted(_all(packages=packages, arch=arch)):
            digest.update(f"{name}\0{mode}\0{len(content)}\0".encode() + content)
            _add(archive, name, mode, content)
        _add(archive, f"{CARRIED}/program", 0o644, digest.hexdigest().encode())
    return digest.hexdigest()


def _add(archive: tarfile.TarFile, name: str, mode: int, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))


def _all(*, packages: bool, arch: str) -> Iterator[tuple[str, int, bytes]]:
    share = resources.share()
    for name in _FILES:
        yield from _tree(share / name, name)
    yield from _tree(resources.package(), "dshpc_setup")
    for name, text in SCRIPTS.items():
        yield f"{CARRIED}/{name}", 0o755, text.encode()
    if packages:
        version = ".".join(map(str, sys.version_info[:2]))
        lock = (share / "requirements.lock").read_text("utf-8")
        yield from _packages(lock, f"{CARRIED}/packages-{version}-{arch}")


def _tree(path: Path, name: str) -> Iterator[tuple[str, int, bytes]]:
    if path.is_file():
        # A wheel keeps no modes of programs; scripts are told by their first line
        content = path.read_bytes()
        yield name, 0o755 if content.startswith(b"#!") else 0o644, content
    elif path.is_dir():
        for below in sorted(os.listdir(path)):
            if below not in _LEFT_OUT:
                yield from _tree(path / below, f"{name}/{below}")


def _packages(lock: str, below: str) -> Iterator[tuple[str, int, bytes]]:
    """Those of the lock that are installed here, as their own lists of files have them."""
    for name in _PIN.findall(lock):
        if name in _NOT_CARRIED:
            continue
        try:
            files = metadata.distribution(name).files or ()
        except (
            metadata.PackageNotFoundError
        ):  # for another system, or of an extra that is not installed
            continue
        for each in files:
            path = Path(str(each.locate()))
            if ".." not in each.parts and not set(_LEFT_OUT) & set(each.parts) and path.is_file():
                yield f"{below}/{each.as_posix()}", 0o644, path.read_bytes()
