"""What a test container is started from, and how long it may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEADLINE_S = 60.0  # eight GPUs without the persistence daemon take half of it to wake up


@dataclass(frozen=True)
class Bench:
    """What to test in: a local image, the (uid, gid) that jobs run as, seconds for a container.

    `environment` is the image's own: what it wants of the driver stands there.
    """

    image: str
    user: tuple[int, int] = (0, 0)
    deadline_s: float = DEADLINE_S
    environment: Mapping[str, str] = field(default_factory=dict)
