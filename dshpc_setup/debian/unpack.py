"""What dpkg itself needs, laid into a new root before there is a dpkg to do it."""

from __future__ import annotations

import functools
import lzma
import os
from collections.abc import Sequence
from pathlib import Path

from dshpc_setup.builtin.archive import ArchiveError, unpack_tar
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.debian import deb
from dshpc_setup.debian.faults import DebianError, Fault
from dshpc_setup.debian.inside import answers, as_root, told
from dshpc_setup.machine import Machine, Say

_LINKS = ("bin", "lib", "sbin")
_LINKS_64 = {"x86_64": ("lib64",)}
_MOST_AT_ONCE = 8


def lay_out(
    machine: Machine, root: Path, ids: Ids, files: Sequence[Path], deadline_s: float
) -> None:
    """The packages' files in the new folder `root`, as many packages at once as there are processors.

    Their scripts are not run, and dpkg knows none of them. The owners are those of the packages, in the way
    `single` the caller. DebianError.
    """
    until = machine.clock() + deadline_s
    above = os.getpid()

    def begin(_: Say) -> None:
        as_root(machine, ids, above)
        if ids.way == "mapped":
            os.chown(root, 0, 0)
        for name in (*_LINKS, *_LINKS_64.get(machine.system[2], ())):
            os.makedirs(root / "usr" / name, 0o755)
            os.symlink(f"usr/{name}", root / name)

    answers(machine.apart({"begin": told(begin)}, deadline_s=deadline_s)["begin"])

    def unpack(share: Sequence[Path], _: Say) -> None:
        as_root(machine, ids, above)
        for each in share:
            _one(machine, root, ids, each)

    shares = shared(files, min(_MOST_AT_ONCE, os.cpu_count() or 1))
    questions = {str(at): told(functools.partial(unpack, share)) for at, share in enumerate(shares)}
    for ended in machine.apart(questions, deadline_s=max(1.0, until - machine.clock())).values():
        answers(ended)


def _one(machine: Machine, root: Path, ids: Ids, file: Path) -> None:
    arch, owners = machine.system[2], ids.way != "single"
    try:
        with deb.opened(machine, file, "data.tar") as tar:
            unpack_tar(tar, root, owners=owners, machine=arch, name=file.name)
    except ArchiveError as error:
        fault: Fault = "no-room" if error.fault == "no-room" else "unpack"
        raise DebianError(fault, f"{file.name}: {error.fault}: {error.what}") from None
    except (lzma.LZMAError, EOFError) as error:
        raise DebianError("deb", f"{file.name}: {error}") from None


def shared(files: Sequence[Path], shares: int) -> list[list[Path]]:
    """The files in so many parts of about the same size."""
    found: list[tuple[int, list[Path]]] = [(0, []) for _ in range(max(1, shares))]
    sizes = sorted(((file.stat().st_size, file) for file in files), reverse=True)
    for size, file in sizes:
        least = min(range(len(found)), key=lambda at: found[at][0])
        found[least] = (found[least][0] + size, [*found[least][1], file])
    return [part for _, part in found if part]
