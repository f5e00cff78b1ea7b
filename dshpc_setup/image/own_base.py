"""The base image made of Debian's packages as the built-in engine makes its own: fetched beside each other,
their signatures checked, set up in namespaces.

It takes the ids of a whole system, which root has, and a user with a range of them. Else see `debootstrap`.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from dshpc_setup.builtin import cache, rights, rootfs
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.builtin_client import images
from dshpc_setup.debian import base, inside
from dshpc_setup.engine.images import debian_arch
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import atomic, locks
from dshpc_setup.image.root_scripts import SLIM
from dshpc_setup.machine import Machine
from dshpc_setup.terminal.reporter import Reporter

_SLIM_S = 120.0
_MAKE_S = 1800.0  # as debootstrap is given
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_LEFT_OUT = "".join(f"path-exclude=/usr/share/{what}/*\n" for what in ("man", "info", "locale"))


def find_ids(machine: Machine, arch: str) -> Ids | None:
    """Those to make it with; None where it cannot be made here for that processor (Debian's name)."""
    if machine.system[0] != "Linux" or debian_arch(machine.system[2]) != arch:
        return None
    ids = rights.find(machine).ids
    return ids if ids is not None and ids.way != "single" else None


@contextmanager
def archive(machine: Machine, ids: Ids, source: base.Archive, reporter: Reporter) -> Iterator[Path]:
    """The root as a tar file while the context lasts; nothing of it is left afterwards. DshpcError."""
    source = replace(source, components=("main",))

    def fill(folder: Path) -> None:
        base.make_base(
            machine,
            source.mirror,
            source.suite,
            ids,
            folder,
            components=source.components,
            security=source.security,
            options=_LEFT_OUT,
            progress=lambda text: reporter.progress(f"base image: {text}"),
        )
        log = folder.with_name(f".{folder.name}.log")
        try:
            code = inside.run(
                machine, folder, ids, inside.Script(f"set -eu\n{SLIM}", _ENVIRONMENT), log, _SLIM_S
            )
            if code != 0:
                raise DshpcError("The base image could not be made small.", inside.tail(log))
        finally:
            log.unlink(missing_ok=True)

    named = json.dumps(["base", asdict(source), SLIM, _LEFT_OUT], default=str)
    place = cache.folder(machine.env)
    atomic.make_folder(place, mode=0o700)
    # Another run would find the same root, and have it removed under it
    with locks.held(place / "base.lock", _MAKE_S) as ours:
        if not ours:
            raise DshpcError(
                "Another run is making the base image.", f"{place}/base.lock is locked."
            )
        root = rootfs.make(machine, hashlib.sha256(named.encode()).hexdigest(), ids, fill)
        try:
            with tempfile.TemporaryDirectory(prefix=".base-", dir=place) as made:
                tar = Path(made) / "base.tar"
                if (why := images.pack(machine, root, tar)) is not None:
                    raise DshpcError("The base image could not be packed.", why)
                yield tar
        finally:
            rootfs.remove_all(machine, root.digest)
