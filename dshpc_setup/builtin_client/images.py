"""Images of the built-in engine: a root filesystem in the cache, and what is said of it.

An image file is a tar of the root filesystem, packed or not, with a member `etc/dshpc/image.json` that holds
its name, labels, environment and first program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dshpc_setup import codec
from dshpc_setup.builtin import rootfs
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.builtin_client import containers
from dshpc_setup.builtin_client.failing import none, refused
from dshpc_setup.builtin_client.store import Image, Store
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine

FILE = "etc/dshpc/image.json"
SCHEMA = "dshpc.image/1"


@dataclass(frozen=True)
class Told:
    """What an image file says of itself."""

    ref: str
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()


def load(machine: Machine, store: Store, archive: Path, ids: Ids) -> Image:
    """The image of a file, unpacked where it is not yet; DshpcError."""
    root = rootfs.ensure(machine, archive, ids)
    told = _told(Path(root.folder) / FILE, archive)
    made = Image(
        told.ref,
        root.digest,
        root.unpacked.size_bytes,
        containers.now(),
        told.labels,
        told.environment,
        told.entrypoint,
    )
    store.put("image", made.ref, made)
    return made


def _told(file: Path, archive: Path) -> Told:
    try:
        return codec.from_json(Told, foreign.value(file.read_text()), SCHEMA)
    except (OSError, ValueError) as error:
        raise DshpcError(
            f"{archive} is no image of dsHPC's.",
            f"{FILE} in it: {error}",
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
        rootfs.remove(machine, found.digest, containers.ids_of(machine))
