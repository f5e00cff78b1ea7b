"""The keys of an object in a workflow's file."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from dshpc_setup.documents.shown import Path, shown
from dshpc_setup.methods.schema import Schema
from dshpc_setup.methods.structure import Wrong, nearest


def keys(
    value: Any,
    known: Mapping[str, Schema],
    refused: Mapping[str, str],
    path: Path,
    noted: Container[str] = (),
) -> Iterator[Wrong]:
    """What is wrong with the object itself and with its keys, not with what they hold.

    Keys of `noted` may stand there, and are not told of as some that there are.
    """
    if not isinstance(value, dict):
        what = "Nothing stands here" if value is None else "It is no object"
        yield Wrong(path, f"{what}; keys with values are needed.", f"Such as {', '.join(known)}.")
        return
    for key in value:
        if key in known or key in noted:
            continue
        what = f"There is no key {shown(key)} here."
        if key in refused:
            yield Wrong((*path, key), f"{shown(key)} is not offered here.", refused[key])
            continue
        near = nearest(key, list(known))
        right = f"Did you mean {near}?" if near else f"There are: {', '.join(known)}."
        yield Wrong((*path, key), what, right)
