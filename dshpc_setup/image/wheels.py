"""Wheels for the container, made from what is installed on the host: no index is asked.

Compiled parts are left out (MarkupSafe falls back to its Python code), so one wheel serves every
Python and processor. See docs/decisions/0003-wheels-from-the-host.md.
"""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

from dshpc_setup import __version__, gpu_vendors, resources
from dshpc_setup.errors import DshpcError

# What the package needs inside the container: rendering, and asking the GPUs.
CARRIED = (
    *("Jinja2", "MarkupSafe"),
    *(name for each in gpu_vendors.all_of_them() for name in each.image.wheels),
)

_COMPILED = (".so", ".pyd", ".dylib", ".c", ".pyc", ".pyo", ".pyi")
_OF_INSTALLERS = ("RECORD", "WHEEL", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
_NOT_INSIDE = (
    "_share",
    "dashboard",
    "notebooks",
)  # the host alone serves pages: editing one makes no other image
_SHARED = ("templates", "container", "methods", "docker-compose.yml.j2")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip archive knows


@dataclass(frozen=True)
class Wheel:
    """`files`: path in the archive -> (content, executable?)."""

    name: str
    version: str
    files: Mapping[str, tuple[bytes, bool]]

    @property
    def filename(self) -> str:
        return f"{_normalized(self.name)}-{self.version}-py3-none-any.whl"


def wheels() -> tuple[Wheel, ...]:
    """All that the container needs, dsHPC itself last; raises where something is not installed."""
    return (*(_installed(name) for name in CARRIED), _own())


def write(folder: Path) -> None:
    """The wheels as files; the same content gives the same bytes on every machine."""
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in wheels():
        write_wheel(wheel, folder / wheel.filename)


def write_wheel(wheel: Wheel, path: Path) -> None:
    """One wheel: entries sorted, dates fixed, not compressed (zlib's output differs by version)."""
    info = f"{_normalized(wheel.name)}-{wheel.version}.dist-info"
    tag = "Wheel-Version: 1.0\nGenerator: dshpc-setup\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {**wheel.files, f"{info}/WHEEL": (tag.encode(), False)}
    record = "".join(
        f"{name},sha256={_digest(content)},{len(content)}\n"
        for name, (content, _) in sorted(files.items())
    )
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), False)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, (content, executable) in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3  # Unix, also where this is not
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            archive.writestr(entry, content)


def _normalized(name: str) -> str:
    return name.lower().replace("-", "_")


def _digest(content: bytes) -> str:
    # urlsafe and without padding, as the format of RECORD wants it
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _installed(name: str) -> Wheel:
    """An installed distribution, without what is compiled and what its installer added."""
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise _incomplete(f"The Python package {name} is not installed.") from None
    if not found.files:
        raise _incomplete(f"The Python package {name} was installed without a list of its files.")
    files: dict[str, tuple[bytes, bool]] = {}
    info = f"{_normalized(name)}-{found.version}.dist-info"
    for file in found.files:
        path = PurePosixPath(file.as_posix())
        if path.is_absolute() or ".." in path.parts or path.suffix in _COMPILED:
            continue  # scripts lie outside of the library folder
        in_info = path.parts[0].endswith(".dist-info")
        if in_info and path.name in _OF_INSTALLERS:
            continue
        target = "/".join((info, *path.parts[1:])) if in_info else str(path)
        files[target] = _content(str(found.locate_file(file)), name)
    return Wheel(name, found.version, files)


def _own() -> Wheel:
    """dsHPC itself, from its own folder: the same for a checkout and for an installed wheel."""
    files: dict[str, tuple[bytes, bool]] = {}
    package = resources.package()
    _add_tree(files, package, package.name, skip=_NOT_INSIDE)
    for name in _SHARED:
        source, target = resources.share() / name, f"{package.name}/_share/{name}"
        if source.is_dir():
            _add_tree(files, source, target)
        elif source.is_file():
            files[target] = _content(str(source), name)
    text = f"Metadata-Version: 2.1\nName: dshpc-setup\nVersion: {__version__}\n"
    info = f"{_normalized('dshpc-setup')}-{__version__}.dist-info"
    files[f"{info}/METADATA"] = (text.encode(), False)
    return Wheel("dshpc-setup", __version__, files)


def _add_tree(
    files: dict[str, tuple[bytes, bool]], source: Path, target: str, skip: tuple[str, ...] = ()
) -> None:
    # Some 800 files at each run: Path would take as long again
    for above, folders, names in os.walk(source):
        folders[:] = [
            each
            for each in folders
            if each != "__pycache__"
            and not each.startswith(".")
            and (above != str(source) or each not in skip)
        ]
        below = above[len(str(source)) :].replace(os.sep, "/")
        for name in names:
            if not name.startswith(".") and not name.endswith(_COMPILED):
                path = os.path.join(above, name)
                files[f"{target}{below}/{name}"] = _content(path, "dshpc-setup")


def _content(path: str, name: str) -> tuple[bytes, bool]:
    try:
        with open(path, "rb") as file:
            return file.read(), bool(os.fstat(file.fileno()).st_mode & 0o100)
    except OSError as error:
        raise _incomplete(f"A file of the Python package {name} cannot be read: {error}") from None


def _incomplete(details: str) -> DshpcError:
    return DshpcError(
        "This installation of dsHPC is not complete, so its image cannot be built.",
        details,
        (
            "From a checkout: remove the folder .venv and run ./configure-environment again.",
            "Else reinstall dshpc-setup, into a virtual environment, with pip or uv.",
        ),
    )
