"""What the built-in engine knows of by name: containers, volumes and images of this user, a file each."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, unquote

from dshpc_setup import codec
from dshpc_setup.builtin import cache
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.builtin.processes import Process
from dshpc_setup.builtin.wanted import Wanted
from dshpc_setup.documents import foreign
from dshpc_setup.files import atomic, locks, owned

SCHEMA = "dshpc.engine/1"
Kind = Literal["container", "volume", "image"]
_LOCK_S = 60.0
_T = TypeVar("_T")


@dataclass(frozen=True)
class Container:
    """A container as it was made. `created` and `started` are RFC 3339 times; `volumes`: target -> name."""

    id: str
    name: str
    image: str  # the reference it was made from
    created: str
    wanted: Wanted
    labels: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 10.0
    started: str = ""
    supervisor: Process | None = None  # of its last start, should its folder be moved or removed

    @property
    def run(self) -> Path:
        return Path(self.wanted.run)


@dataclass(frozen=True)
class Volume:
    name: str
    path: str
    ids: Ids
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Image:
    """`digest` is that of its root filesystem in the cache."""

    ref: str
    digest: str
    size: int  # bytes, unpacked
    created: str
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"sha256:{self.digest}"

    @property
    def has_name(self) -> bool:
        """False once another image has taken it: it is known by its id alone then."""
        return self.ref != self.id


_TYPES: dict[Kind, type[Any]] = {"container": Container, "volume": Volume, "image": Image}


class Store:
    """The folder that holds them all: `dshpc/engine` in XDG_CACHE_HOME or ~/.cache."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.folder = cache.folder(env) / "engine"

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """One at a time makes and removes; OSError and TimeoutError."""
        cache.make_folder(self.folder)
        with locks.held(self.folder / "lock", _LOCK_S) as ours:
            if not ours:
                raise TimeoutError(f"{self.folder / 'lock'} was locked for {_LOCK_S:g} s")
            yield

    def find(self, kind: Kind, name: str) -> Any | None:
        """The one of that name or id (images: any beginning of an id); None where there is none."""
        found = self._read(kind, self._file(kind, name))
        if found is not None or kind == "volume":
            return found
        digits = name.removeprefix("sha256:")
        if not re.fullmatch(r"[0-9a-f]{12,64}", digits):
            return None
        same = (
            each for each in self.all(kind) if each.id.removeprefix("sha256:").startswith(digits)
        )
        return next(same, None)

    def all(self, kind: Kind) -> list[Any]:
        """By their names; what cannot be read is left out."""
        try:
            names = sorted(os.listdir(self.folder / kind))
        except OSError:
            return []
        found = (self._read(kind, self._file(kind, unquote(name[:-5]))) for name in names)
        return [each for each in found if each is not None]

    def put(self, kind: Kind, name: str, value: Any) -> None:
        """In one step; DshpcError."""
        file = self._file(kind, name)
        cache.make_folder(file.parent)
        atomic.write_atomic(file, json.dumps(codec.to_json(value, SCHEMA), indent=1) + "\n", 0o600)

    def forget(self, kind: Kind, name: str) -> None:
        self._file(kind, name).unlink(missing_ok=True)

    def _file(self, kind: Kind, name: str) -> Path:
        return self.folder / kind / f"{quote(name, safe='')}.json"

    def _read(self, kind: Kind, file: Path) -> Any | None:
        try:
            return codec.from_json(_TYPES[kind], foreign.value(owned.read_text(file)), SCHEMA)
        except (OSError, ValueError):
            return None


def new_id() -> str:
    return secrets.token_hex(32)
