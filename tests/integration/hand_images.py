"""Images made by hand: OCI and Docker archives and a SIF around one static busybox."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import struct
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dshpc_setup.oci import packing

PROGRAMS = (
    "sh",
    "ls",
    "id",
    "cat",
    "echo",
    "env",
    "sleep",
    "touch",
    "pwd",
    "true",
    "head",
    "mount",
    "kill",
    "hostname",
)
ENVIRONMENT = ("PATH=/usr/bin:/bin", "FROM_IMAGE=yes", "CUDA_VISIBLE_DEVICES=none")
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def member(name: str, text: bytes = b"", **more: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(text), 0o755
    for key, value in more.items():
        setattr(info, key, value)
    return info, text


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.SYMTYPE, linkname=target)


def folder(name: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.DIRTYPE)


def layer(members: Sequence[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for info, text in members:
            tar.addfile(info, io.BytesIO(text))
    return made.getvalue()


def debian_busybox(top: Path) -> Path:
    """Debian's, which needs no library, unpacked in that folder."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    fetch = ["apt-get", "-q", "download", "busybox-static"]
    subprocess.run(fetch, cwd=top, check=True, timeout=120, env=env)
    (package,) = top.glob("*.deb")
    subprocess.run(["dpkg", "-x", str(package), str(top / "tree")], check=True, timeout=60)
    return next(
        each
        for each in (top / "tree").rglob("busybox")
        if each.is_file() and os.access(each, os.X_OK)
    )


def busybox(program: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    """/usr/bin with its programs, and /bin as a link to it."""
    return [
        folder("usr/"), folder("usr/bin/"), folder("etc/"), link("bin", "usr/bin"),
        member("usr/bin/busybox", program.read_bytes()),
        *(link(f"usr/bin/{name}", "busybox") for name in PROGRAMS),
    ]  # fmt: skip


def _config(layers: Sequence[bytes], architecture: str, digests: Sequence[str] | None) -> bytes:
    return json.dumps({
        "architecture": architecture, "os": "linux",
        "config": {"Env": list(ENVIRONMENT), "WorkingDir": "/etc", "Cmd": ["sh"]},
        "rootfs": {
            "type": "layers",
            "diff_ids": list(digests or (f"sha256:{_hash(each)}" for each in layers)),
        },
    }).encode()  # fmt: skip


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def zipped(data: bytes) -> bytes:
    return gzip.compress(data, 1, mtime=0)


def zstd(data: bytes) -> bytes:
    """In two frames, with one between that has no content, as podman writes what it can fetch in parts."""
    half = len(data) // 2
    empty = b"\x50\x2a\x4d\x18" + len(b"note").to_bytes(4, "little") + b"note"
    return packing.zstd.compress(data[:half]) + empty + packing.zstd.compress(data[half:])


def oci(
    layers: Sequence[bytes],
    architecture: str = _ARCHITECTURE,
    digests: Sequence[str] | None = None,
    *,
    pack: Callable[[bytes], bytes] = zipped,
) -> dict[str, bytes]:
    """The files of an OCI layout with packed layers."""
    config = _config(layers, architecture, digests)
    packed = [pack(each) for each in layers]
    kind = f"application/vnd.oci.image.layer.v1.tar+{'zstd' if pack is zstd else 'gzip'}"
    blobs = {_hash(each): each for each in (config, *packed)}
    manifest = json.dumps({
        "schemaVersion": 2,
        "config": {"digest": f"sha256:{_hash(config)}", "size": len(config)},
        "layers": [
            {"mediaType": kind, "digest": f"sha256:{_hash(each)}", "size": len(each)}
            for each in packed
        ],
    }).encode()  # fmt: skip
    blobs[_hash(manifest)] = manifest
    index = {
        "schemaVersion": 2,
        "manifests": [{"digest": f"sha256:{_hash(manifest)}", "size": len(manifest)}],
    }
    return {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps(index).encode(),
        **{f"blobs/sha256/{name}": data for name, data in blobs.items()},
    }


def docker(layers: Sequence[bytes]) -> dict[str, bytes]:
    """The files that `docker save` writes."""
    config = _config(layers, _ARCHITECTURE, None)
    names = [f"{_hash(each)}/layer.tar" for each in layers]
    listed = [{"Config": f"{_hash(config)}.json", "RepoTags": ["hand:made"], "Layers": names}]
    return {
        "manifest.json": json.dumps(listed).encode(),
        f"{_hash(config)}.json": config,
        **dict(zip(names, layers, strict=True)),
    }


def archive(path: Path, files: Mapping[str, bytes]) -> Path:
    path.write_bytes(layer([member(name, data) for name, data in files.items()]))
    return path


def laid_out(path: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        place = path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return path


def sif(path: Path, root: Path, processor: bytes = b"02\0") -> Path:
    """A SIF around a squashfs of that folder, made by mksquashfs."""
    squashed = path.with_suffix(".squashfs")
    subprocess.run(
        ["mksquashfs", str(root), str(squashed), "-noappend", "-quiet", "-no-progress", "-all-root"],
        check=True, timeout=60, capture_output=True,
    )  # fmt: skip
    data = squashed.read_bytes()
    squashed.unlink()
    start = 8192
    descriptor = struct.pack(
        "<i?3I7q128s384s", 0x4004, True, 1, 1, 0, start, len(data), len(data), 0, 0, 0, 0, b"root",
        struct.pack("<ii3s", 1, 2, processor),
    )  # fmt: skip
    head = struct.pack(
        "<32s10s3s3s16s8q", b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC", b"01", processor, b"",
        0, 0, 47, 1, 4096, len(descriptor), start, len(data),
    )  # fmt: skip
    whole = bytearray(start)
    whole[: len(head)] = head
    whole[4096 : 4096 + len(descriptor)] = descriptor
    path.write_bytes(bytes(whole) + data)
    return path
