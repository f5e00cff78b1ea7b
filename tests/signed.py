"""Texts signed by keys of the tests' own, made as they are needed."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from dshpc_setup.debian.faults import Fault

TEXT = (
    "Suite: stable\nCodename: trixie\nDate: Mon, 04 May 2026 12:00:00 UTC\n- a line with a dash\n"
)

CASES: dict[str, Fault] = {
    "changed": "bad-signature",
    "other key": "unknown-key",
    "expired": "expired-key",
    "not signed": "unsigned",
    "empty": "unsigned",
    "text before": "unsigned",
    "text after": "unsigned",
    "two": "unsigned",
    "cut": "unsigned",
}


@functools.cache
def key(name: str, seconds: int | None = None) -> Any:
    import pysequoia

    return pysequoia.Tsk.generate(f"{name} <{name}@example.org>", validity_seconds=seconds)


def signed(text: str, by: Any) -> bytes:
    import pysequoia

    mode = pysequoia.SignatureMode.CLEAR
    return bytes(pysequoia.sign(by.signer(), text.encode(), mode=mode))


def certificate(of: Any) -> bytes:
    """Binary, as gpgv wants it."""
    return _dearmored(bytes(of.extract_certificate()))


def _dearmored(raw: bytes) -> bytes:
    if not raw.startswith(b"-----BEGIN"):
        return raw
    import base64

    body = raw.decode().partition("\n\n")[2].partition("\n-----END")[0]
    return base64.b64decode("".join(line for line in body.splitlines() if not line.startswith("=")))


def case(name: str) -> tuple[bytes, bytes]:
    """(what is signed, the keys that are believed)."""
    ours = key("ours")
    good, keys = signed(TEXT, ours), certificate(ours)
    match name:
        case "good":
            return good, keys
        case "changed":
            return good.replace(b"trixie", b"trixia"), keys
        case "other key":
            return signed(TEXT, key("theirs")), keys
        case "expired":
            return _expired()
        case "not signed":
            return TEXT.encode(), keys
        case "empty":
            return b"", keys
        case "text before":
            return b"Codename: sid\n" + good, keys
        case "text after":
            return good + b"\nCodename: sid\n", keys
        case "two":
            return good + good, keys
        case "cut":
            return good[: len(good) // 2], keys
    raise AssertionError(name)


@functools.cache
def _expired() -> tuple[bytes, bytes]:
    import time

    short = key("short", 62)  # the library dates a key back by a minute
    made = signed(TEXT, short)
    time.sleep(3)
    return made, certificate(short)


def kept(folder: Path, keys: bytes) -> Path:
    path = folder / "keys.pgp"
    path.write_bytes(keys)
    return path
