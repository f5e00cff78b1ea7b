"""Toolkits of the machine that jobs are lent: CUDA's and ROCm's folders. Pure.

As a text one is "KIND:SOURCE:PLACE": what it is, where it lies on the machine, and where jobs see it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from dshpc_setup.settings.places import folder_of, hides_the_system, unfit_for_mount

Kind = Literal["cuda", "rocm"]
VARIABLE = "DSHPC_TOOLKITS"  # of the container: those whose variables jobs get, "KIND=PLACE" by ':'
COMPILERS: dict[Kind, str] = {"cuda": "bin/nvcc", "rocm": "bin/hipcc"}
"""By which a folder is known for what it is."""
# Below /usr these alone: nothing of a distribution's lies in them
_OWN = re.compile(r"/usr/local/(?:cuda|rocm)[^/]*")


@dataclass(frozen=True)
class Toolkit:
    kind: Kind
    source: str
    place: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.source}:{self.place}"

    def to_json(self) -> dict[str, str]:
        return {"kind": self.kind, "path": self.place, "lies_in": self.source}

    @property
    def mount(self) -> str:
        return f"{self.source}:{self.place}:ro"


def parse(text: str) -> Toolkit:
    """ValueError for another text, and for one that covers the system."""
    kind, source, place = text.split(":")
    if kind not in get_args(Kind) or not source.startswith("/") or not fits(place):
        raise ValueError(f"{text!r} is no toolkit")
    return Toolkit(kind, source, place)  # type: ignore[arg-type]


def fits(place: str) -> bool:
    """Whether a toolkit may be seen there."""
    if not place.startswith("/") or unfit_for_mount(place) or ".." in place.split("/"):
        return False
    return bool(_OWN.fullmatch(place)) or not hides_the_system(place)


def first_of_each(toolkits: tuple[Toolkit, ...]) -> tuple[Toolkit, ...]:
    """Those whose variables jobs get: of each kind the first."""
    return tuple({each.kind: each for each in reversed(toolkits)}.values())[::-1]


def sources(toolkits: Iterable[str]) -> tuple[str, ...]:
    """Where they lie on the machine."""
    return tuple(parse(each).source for each in toolkits)


def mounts(toolkits: Iterable[str], beside: Iterable[str]) -> tuple[str, ...]:
    """Their mounts, but where one of `beside` (the setting `mounts`) has that place."""
    taken = set(map(folder_of, beside))
    return tuple(each.mount for each in map(parse, toolkits) if each.place not in taken)


def variables(toolkits: Iterable[str]) -> dict[str, str]:
    """What tells the container which of them jobs get the variables of."""
    first = first_of_each(tuple(map(parse, toolkits)))
    return {VARIABLE: ":".join(f"{each.kind}={each.place}" for each in first)} if first else {}


def told(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Kind and place of each, in the container."""
    pairs = (each.partition("=") for each in env.get(VARIABLE, "").split(":"))
    return tuple((kind, place) for kind, _, place in pairs if place)
