"""What the name of a host asks for: `gpu`, `gpu-h100x2-4h`, `cpu-x4-16g`, `job-123`. Pure.

A name is small letters, digits, `.`, `_` and `-`: what ssh hands on, and what no shell reads otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dshpc_setup.errors import usage_error
from dshpc_setup.terminal.sanitize import plain

TYPE_CHECKING = False  # each connection takes this
if TYPE_CHECKING:
    from typing import Literal

PATTERNS = ("gpu", "gpu-*", "cpu", "cpu-*", "job-*")
FORMS = (
    "gpu                 one GPU",
    "gpu-h100x2-4h       two GPUs h100, for four hours",
    "gpu-x2-8c-64g       two GPUs, 8 CPUs, 64 GB of memory",
    "cpu-x4-30m          four CPUs, no GPU, for half an hour",
    "job-123             a job of yours that is there already",
)
LONGEST = 63
# At most two digits: rtx4090 and gtx980 are models
_COUNT = r"x([1-9][0-9]?)"
_TYPE = re.compile(r"(?=[0-9_.]*[a-z])(?!x[0-9]+$)([a-z0-9]|[a-z0-9][a-z0-9_.]*[a-z0-9])")
_OF_TYPE = re.compile(rf"(.+){_COUNT}")
_JOB = re.compile(r"job-([1-9][0-9]{0,9}(?:_(?:0|[1-9][0-9]{0,9}))?)")
_SERVER = re.compile(r"[a-z]{1,20}")
_PARTS = {
    "time": re.compile(r"([1-9][0-9]{0,4}[mhd])"),
    "memory": re.compile(r"([1-9][0-9]{0,5}g)"),
    "cpus": re.compile(r"([1-9][0-9]{0,3})c"),
    "count": re.compile(_COUNT),
}


@dataclass(frozen=True)
class Wanted:
    """`count`: GPUs of `gpu`, CPUs of `cpu`, None for what is usual. The others as `dshpc run` takes them."""

    kind: Literal["gpu", "cpu", "job"]
    gpu_type: str | None = None
    count: str | None = None
    cpus: str | None = None
    memory: str | None = None
    time: str | None = None
    job: str | None = None

    @property
    def name(self) -> str:
        """The one spelling of all that ask for the same: they share a job."""
        if self.job is not None:
            return f"job-{self.job}"
        which = (self.gpu_type or "") + (f"x{self.count}" if self.count else "")
        cpus = f"{self.cpus}c" if self.cpus else None
        return "-".join(filter(None, (self.kind, which, cpus, self.memory, self.time)))


def check(name: str, *, is_server: bool) -> None:
    """Raises DshpcError (usage) for what names no job: of a host, or of a server that is reached alike."""
    if not is_server:
        parse(name)
    elif not _SERVER.fullmatch(name):
        raise usage_error(f"{plain(name)[:80]!r} is no server of a job.")


def parse(name: str) -> Wanted:
    """Raises DshpcError (usage) for a name that asks for nothing."""
    lower = name.lower()
    if len(lower) <= LONGEST and lower.isascii():
        if found := _JOB.fullmatch(lower):
            return Wanted("job", job=found[1])
        kind, *parts = lower.split("-")
        if kind in ("gpu", "cpu") and (said := _said(parts, kind)) is not None:
            count = said.pop("count", None)
            return Wanted(kind, count=None if count == "1" else count, **said)  # type: ignore[arg-type]
    raise usage_error(
        f"{plain(name)[:80]!r} is no host that jobs are reached by.",
        "Names are, with these parts in any order:\n" + "\n".join(FORMS),
    )


def _said(parts: list[str], kind: str) -> dict[str, str] | None:
    """What the parts say, each thing once; None where one says nothing, or something again."""
    said: dict[str, str] = {}
    for part in parts:
        found = _part(part)
        if found is None or said.keys() & found.keys():
            return None
        said.update(found)
    impossible = {"gpu": set(), "cpu": {"gpu_type", "cpus"}}[kind]
    return None if said.keys() & impossible else said


def _part(part: str) -> dict[str, str] | None:
    for what, pattern in _PARTS.items():
        if found := pattern.fullmatch(part):
            return {what: found[1]}
    several = _OF_TYPE.fullmatch(part)
    model, count = (several[1], {"count": several[2]}) if several else (part, {})
    return {"gpu_type": model, **count} if _TYPE.fullmatch(model) else None
