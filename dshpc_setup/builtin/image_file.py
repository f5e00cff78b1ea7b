"""An image as a file: a tar of its root filesystem, with a member that says what an engine knew beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FILE = "etc/dshpc/image.json"
SCHEMA = "dshpc.image/1"
LOADED = "org.dshpc.loaded"
"""The label of an image that came as a file: it is not made anew where it is there."""


@dataclass(frozen=True)
class Described:
    """What the image file says of itself: its name where it was made, and how a container of it begins."""

    ref: str
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
