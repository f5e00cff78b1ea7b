"""The cluster's image in Podman's store: a root filesystem made or unpacked here, and imported."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from dshpc_setup.builtin import cache, image_file
from dshpc_setup.builtin.rootfs import Rootfs
from dshpc_setup.builtin_client import containers, images
from dshpc_setup.builtin_client.store import Store
from dshpc_setup.engine.images import Image, inspect
from dshpc_setup.engine_client import PODMAN
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import atomic
from dshpc_setup.machine import Machine
from dshpc_setup.podman_client.words import image_changes
from dshpc_setup.terminal.reporter import Reporter

_IMPORT_S = 300.0


def keep(machine: Machine, described: image_file.Described, root: Rootfs) -> Image:
    """Import a root filesystem of the cache under its name, and take it out of there; DshpcError.

    `machine`: through Podman's door.
    """
    place = cache.folder(machine.env)
    atomic.make_folder(place, mode=0o700)
    try:
        with tempfile.TemporaryDirectory(prefix=".podman-", dir=place) as made:
            tar = Path(made) / "root.tar"
            if (why := images.pack(machine, root, tar)) is not None:
                raise DshpcError("The image could not be packed for Podman.", why, _AGAIN)
            changes = image_changes(described.labels, described.environment, described.entrypoint)
            argv = [PODMAN, "import", "--quiet", *changes, str(tar), f"localhost/{described.ref}"]
            done = machine.run(argv, deadline_s=_IMPORT_S)
    except OSError as error:
        raise atomic.write_error(error, place) from None
    if not done.ok:
        raise DshpcError("Podman could not import the image.", done.text or done.state, _AGAIN)
    found = inspect(machine, described.ref)
    if found is None:
        brief = f"Podman has imported the image {described.ref}, and does not know it."
        raise DshpcError(brief, done.text, ("See: podman images",))
    images.forget_root(machine, Store(machine.env), root)
    return found


def load(machine: Machine, tag: str, file: Path, reporter: Reporter) -> None:
    """The image of a file under that name, imported where it is not there yet; DshpcError."""
    reporter.progress(f"image: unpacking {file.name}")
    store = Store(machine.env)
    root, described = images.unpacked(machine, store, file, containers.ids_of(machine))
    there = inspect(machine, tag)
    if there is not None and there.labels.get(image_file.LOADED) == root.digest:
        images.forget_root(machine, store, root)
        return
    reporter.progress("image: importing it into Podman")
    labels = {**described.labels, image_file.LOADED: root.digest}
    keep(machine, replace(described, ref=tag, labels=labels), root)


_AGAIN = ("See whether the disk is full: df -h ~", "Then run this again.")
