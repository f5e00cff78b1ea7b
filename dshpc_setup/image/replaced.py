"""The image that another one has replaced: removed once the new one is proven, and nothing uses it."""

from __future__ import annotations

from collections.abc import Iterable

from dshpc_setup.engine import containers
from dshpc_setup.engine.images import inspect
from dshpc_setup.errors import DshpcError
from dshpc_setup.image.build import LABEL
from dshpc_setup.machine import Machine


def remove(machine: Machine, replaced: Iterable[str | None], in_use: str) -> int:
    """The bytes of those that are removed: images of ours, by id, that have no name any more.

    One that a container uses, running or stopped, the engine keeps; so does it where it does not answer.
    """
    freed = 0
    for image in dict.fromkeys(replaced):
        if not image or image == in_use:
            continue
        try:
            found = inspect(machine, image)
            if found is None or found.names or LABEL not in found.labels:
                continue
            if containers.remove_image(machine, image):
                freed += found.size
        except DshpcError:  # in use, or the engine is busy: it takes disk space, and nothing fails
            continue
    return freed
