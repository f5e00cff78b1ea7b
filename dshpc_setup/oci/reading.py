"""What an archive says of the image in it: `docker save`'s manifest.json, or the index.json of an OCI
layout."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dshpc_setup.oci import sources
from dshpc_setup.oci.model import ARCHITECTURES, Image, ImageError, Layer, Start
from dshpc_setup.oci.sources import Source

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_MOST_DEPTH = 4
_MOST_LAYERS = 1000


def image(source: Source, machine: str) -> Image:
    """The one image of an archive for a processor, as `uname -m` names it; raises ImageError.

    Whether its layers are what they are said to be, is seen as they are unpacked.
    """
    if source.has("manifest.json"):
        config, layers = _of_docker(source)
    elif source.has("index.json"):
        config, layers = _of_layout(source, ARCHITECTURES.get(machine, machine))
    else:
        raise ImageError("no-image", "it has neither a manifest.json nor an index.json")
    text, value = sources.document(source, config)
    described = _object(value, config)
    _need_right(described, machine)
    digests = [
        _hex(each)
        for each in _list(_object(described.get("rootfs"), "rootfs").get("diff_ids"), "diff_ids")
    ]
    if len(digests) != len(layers) or not 0 < len(layers) <= _MOST_LAYERS:
        raise ImageError("no-image", f"{len(layers)} layers, {len(digests)} digests")
    return Image(
        hashlib.sha256(text).hexdigest(),
        tuple(Layer(member, digest) for member, digest in zip(layers, digests, strict=True)),
        _start(described.get("config") or {}),
    )


def _of_docker(source: Source) -> tuple[str, list[str]]:
    listed = _list(sources.document(source, "manifest.json")[1], "manifest.json")
    if len(listed) != 1:
        raise ImageError("several", ", ".join(_name(each) for each in listed[:5]))
    only = _object(listed[0], "manifest.json")
    return _text(only.get("Config"), "Config"), [
        _text(each, "Layers") for each in _list(only.get("Layers"), "Layers")
    ]


def _name(entry: object) -> str:
    tags = entry.get("RepoTags") if isinstance(entry, dict) else None
    return str(tags[0]) if isinstance(tags, list) and tags else "one without a name"


def _of_layout(source: Source, architecture: str) -> tuple[str, list[str]]:
    name = "index.json"
    for _ in range(_MOST_DEPTH):
        value = _object(sources.document(source, name)[1], name)
        if "manifests" not in value:
            config = _blob(_object(value.get("config"), "config"))
            return config, [
                _layer(_object(each, "layers")) for each in _list(value.get("layers"), "layers")
            ]
        name = _blob(_meant(_list(value["manifests"], "manifests"), architecture))
    raise ImageError("no-image", "its indexes do not end")


def _meant(entries: Sequence[object], architecture: str) -> Mapping[str, Any]:
    """The manifest for this processor; what is of no platform (attestations) is no image."""
    found: list[tuple[str | None, Mapping[str, Any]]] = []
    for each in entries:
        entry = _object(each, "manifests")
        platform = entry.get("platform")
        told = platform.get("architecture") if isinstance(platform, dict) else None
        if told != "unknown":
            found.append((told, entry))
    right = [entry for told, entry in found if told in (None, architecture)]
    if len({_blob(entry) for entry in right}) == 1:
        return right[0]
    if right:
        raise ImageError("several", f"{len(right)} for {architecture}")
    if found:
        raise ImageError("architecture", ", ".join(str(told) for told, _ in found[:8]))
    raise ImageError("no-image", "its index names none")


def _layer(entry: Mapping[str, Any]) -> str:
    if "encrypted" in str(entry.get("mediaType")):
        raise ImageError("encrypted")
    return _blob(entry)


def _need_right(config: Mapping[str, Any], machine: str) -> None:
    system, architecture = config.get("os", "linux"), config.get("architecture")
    if system != "linux":
        raise ImageError("system", str(system)[:40])
    if architecture not in (None, "", ARCHITECTURES.get(machine, machine)):
        raise ImageError("architecture", str(architecture)[:40])


def _start(config: object) -> Start:
    if not isinstance(config, dict):
        return Start()
    folder = config.get("WorkingDir")
    return Start(
        tuple(
            each for each in _texts(config.get("Env")) if re.match(r"[A-Za-z_][A-Za-z0-9_]*=", each)
        ),
        folder if isinstance(folder, str) and folder.startswith("/") else "/",
        _texts(config.get("Entrypoint")),
        _texts(config.get("Cmd")),
    )


def _texts(value: object) -> tuple[str, ...]:
    return (
        tuple(each for each in value if isinstance(each, str) and "\0" not in each)
        if isinstance(value, list)
        else ()
    )


def _blob(entry: Mapping[str, Any]) -> str:
    return f"blobs/sha256/{_hex(entry.get('digest'))}"


def _hex(digest: object) -> str:
    found = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if found is None:
        raise ImageError("no-image", f"{str(digest)[:80]!r} is no digest of SHA-256")
    return found[1]


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ImageError("no-image", f"{where} is no object")
    return value


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ImageError("no-image", f"{where} is no list")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ImageError("no-image", f"{where} is no text")
    return value
