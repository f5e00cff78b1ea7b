"""Images of the built-in engine: a root filesystem in the cache, and what is said of it."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dshpc_setup import codec
from dshpc_setup.builtin import image_file, rootfs
from dshpc_setup.builtin.ids import Ids, become_root
from dshpc_setup.builtin.rootfs import Rootfs
from dshpc_setup.builtin_client import containers
from dshpc_setup.builtin_client.failing import none, refused
from dshpc_setup.builtin_client.store import Image, Store
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine, Say

_SAVE_S = 300.0


def load(machine: Machine, store: Store, archive: Path, ids: Ids, ref: str | None = None) -> Image:
    """The image of a file, unpacked where it is not yet, by its own name or another; DshpcError."""
    root, described = unpacked(machine, store, archive, ids)
    labels = {**described.labels, image_file.LOADED: "yes"}
    named = replace(described, ref=ref or described.ref, labels=labels)
    return register(machine, store, named, root)


def make(
    machine: Machine,
    store: Store,
    ids: Ids,
    described: image_file.Described,
    digest: str,
    fill: Callable[[Path], None],
) -> Image:
    """The image of the root filesystem of that digest, made by `fill` where there is none.

    It is made again where somebody has removed the last other name of it before it had this one.
    """
    while True:
        root = rootfs.make(machine, digest, ids, fill)
        with store.changing():
            if rootfs.known(machine, digest, ids) is not None:
                return register(machine, store, described, root)


def register(
    machine: Machine, store: Store, described: image_file.Described, root: Rootfs
) -> Image:
    """A root filesystem of the cache gets that name; another image that had it loses it."""
    made = Image(
        described.ref,
        root.digest,
        root.unpacked.size_bytes,
        containers.now(),
        described.labels,
        described.environment,
        described.entrypoint,
    )
    name(store, made)
    _remove_nameless(machine, store)
    return made


def name(store: Store, image: Image) -> None:
    """The image gets its name. One that had it stays by its id alone, as others may have it in use."""
    old: Image | None = store.find("image", image.ref)
    named = (each.digest for each in store.all("image") if each.ref != image.ref)
    if old is not None and old.digest not in (image.digest, *named):
        store.put("image", old.id, replace(old, ref=old.id))
    store.put("image", image.ref, image)
    store.forget("image", image.id)


def _remove_nameless(machine: Machine, store: Store) -> None:
    """Images that have no name any more, and no container."""
    used = {each.wanted.rootfs.digest for each in store.all("container")}
    for each in store.all("image"):
        if not each.has_name and each.digest not in used:
            remove(machine, store, each.id)


def save(machine: Machine, image: Image, file: Path) -> None:
    """The root filesystem as a tar, with what the image says of itself; DshpcError."""
    root = rootfs.known(machine, image.digest, containers.ids_of(machine))
    if root is None:
        raise refused(f"the root filesystem of {image.ref} is not in the cache any more")
    if (why := pack(machine, root, file)) is not None:
        raise refused(f"{file} could not be written: {why}")


def pack(machine: Machine, root: Rootfs, file: Path) -> str | None:
    """A root filesystem as a tar, with the owners that a container sees; why not, where it failed."""
    folder, ids = Path(root.folder), root.ids

    def question(say: Say) -> None:
        out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        become_root(machine, ids)
        with os.fdopen(out, "wb") as to, tarfile.open(fileobj=to, mode="w|") as archive:
            archive.add(folder, ".")
        say("saved")

    ended = machine.apart({"save": question}, deadline_s=_SAVE_S)["save"]
    if "saved" in ended.items:
        return None
    file.unlink(missing_ok=True)
    return ended.detail or ended.state


def unpacked(
    machine: Machine, store: Store, archive: Path, ids: Ids
) -> tuple[Rootfs, image_file.Described]:
    """The root filesystem of a file in the cache, and what the file says of itself; DshpcError."""
    root = rootfs.ensure(machine, archive, ids)
    try:
        return root, _told(Path(root.folder) / image_file.FILE, archive)
    except DshpcError:
        forget_root(machine, store, root)
        raise


def forget_root(machine: Machine, store: Store, root: Rootfs) -> None:
    """Out of the cache, where no image of the built-in engine has it."""
    if all(each.digest != root.digest for each in store.all("image")):
        rootfs.remove_all(machine, root.digest)


def _told(file: Path, archive: Path) -> image_file.Described:
    try:
        return codec.from_json(
            image_file.Described, foreign.value(file.read_text()), image_file.SCHEMA
        )
    except (OSError, ValueError) as error:
        raise DshpcError(
            f"{archive} is no image of dsHPC's.",
            f"{image_file.FILE} in it: {error}",
            ("Make one on a machine with a cluster: dshpc image save FILE",),
        ) from None


def remove(machine: Machine, store: Store, ref: str) -> None:
    """The name, and the root filesystem where it was the last one of it and no container has it."""
    found = store.find("image", ref)
    if found is None:
        raise none("image", ref)
    users = [each for each in store.all("container") if each.wanted.rootfs.digest == found.digest]
    others = [each for each in store.all("image") if each.digest == found.digest]
    if users and len(others) == 1:
        raise refused(f"conflict: unable to remove {ref}: container {users[0].id} is using it")
    store.forget("image", found.ref)
    if len(others) == 1:
        rootfs.remove_all(machine, found.digest)
