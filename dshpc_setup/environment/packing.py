"""What uv has installed, as an archive that the image's build unpacks."""

from __future__ import annotations

import io
import re
import tarfile
from itertools import product
from pathlib import Path

from dshpc_setup.environment.model import Wheel
from dshpc_setup.environment.target import INTERPRETER, SITE

FORM = "1"  # of the archive: another one is made anew
_DATE = 315532800  # 1980, as in our own wheels: equal packages are equal bytes
_UVS_OWN = ".lock"


def installed(tree: Path, wheels: list[Wheel]) -> list[Wheel]:
    """That one of the wheels of a package which uv has installed, by the tags that it says it has."""
    stems = {f"{each.name}-{each.version}.dist-info" for each in wheels}
    texts = [path.read_text("utf-8") for stem in stems for path in tree.glob(f"{stem}/WHEEL")]
    tags = set(re.findall(r"^Tag: *(\S+)", "\n".join(texts), re.MULTILINE))
    return [each for each in wheels if tags & _tags(each)][:1] or wheels[:1]


def _tags(wheel: Wheel) -> set[str]:
    """ "x-1-py2.py3-none-any.whl" -> {"py2-none-any", "py3-none-any"} (PEP 425)."""
    parts = wheel.file.removesuffix(".whl").split("-")[-3:]
    return {"-".join(each) for each in product(*(part.split(".") for part in parts))}


def pack(tree: Path, into: Path, python: str) -> None:
    """Write the archive: root's files, readable for all, with scripts that start the image's Python.

    `python`: the one on this machine that uv wrote into the first line of each script.
    """
    with tarfile.open(into, "w", dereference=True) as archive:
        for path in sorted(tree.rglob("*")):
            name = path.relative_to(tree).as_posix()
            if name == _UVS_OWN:
                continue
            info = archive.gettarinfo(path, f"{SITE}/{name}")
            info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
            info.mtime, info.uid, info.gid, info.uname, info.gname = _DATE, 0, 0, "root", "root"
            if path.parent == tree / "bin" and info.isfile():
                text = script(path.read_bytes(), python)
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text))
            elif info.isfile():
                with path.open("rb") as file:
                    archive.addfile(info, file)
            else:
                archive.addfile(info)


def script(text: bytes, python: str, instead: bytes = f"#!{INTERPRETER}".encode()) -> bytes:
    """A script of uv's with another first line than that which starts `python`.

    uv starts a Python with a blank in its path, or a long one, by a line of sh.
    """
    plain = b"#!" + re.escape(python.encode())
    by_sh = rb"#!/bin/sh\n'''exec' [^\n]*\n' '''"
    return re.sub(rb"\A(?:%s|%s)(?=\n)" % (plain, by_sh), lambda _: instead, text, count=1)
