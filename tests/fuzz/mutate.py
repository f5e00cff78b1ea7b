"""Small and large damage to texts and JSON values, from a seeded generator."""

from __future__ import annotations

from random import Random
from typing import Any

_NUMBERS = (
    b"0", b"-1", b"1", b"007", b"255", b"65536", b"4294967295", b"18446744073709551616",
    b"9" * 40, b"9" * 5000, b"1e309", b"-0.0", b"NaN", b"0x", b"0xffffffffffffffffff",
    "²".encode(), "٣".encode(), b"1_000", b" ",
)  # fmt: skip
_WORDS = (
    b"", b"\0", b"\n", b"\r\n", b"\t", b"N/A", b"[N/A]", b"[Not Supported]", b"ERR!", b"max", b"none",
    b"[Unknown Error]", b"<gpu id=", b"</gpu>", b"<!DOCTYPE x [", b"&amp;", b"&x;", b"]]>", b"{", b"}",
    b"[" * 2000, b'{"a":' * 500, b"<a>" * 500, b'"', b"\\u0000", b"\\ud800", b"GPU-", b"MIG 1g.10gb",
    b"GPU 0000", b":", b",", b"=", b"-", b"--", b"/", b"../", b"/proc", b"0000:00:00.0", b"\xff\xfe",
    b"\xc3", b"\x1b[31m", "\u202e".encode(), b"processor\t: ", b"name=rootless", b"0-4294967295",
    b"0-", b"1-0", b"0::/", b"%s%n", b"null", b"true",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1 << 70, -(1 << 70), 1.5, 1e308, "", " ", "x", "\0", "N/A", "\ud800",
    [], {}, [[]], [None], {"": None}, {"a": []}, "9" * 5000, [0] * 100, "GPU-", "0000:00:00.0",
)  # fmt: skip
_MOST_BYTES = 1 << 20


def text(random: Random, source: str, others: tuple[str, ...] = ()) -> str:
    """The text with one to four pieces of damage, as whoever reads a file would decode it."""
    data = source.encode(errors="replace")
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        data = _damage(random, data, others)[:_MOST_BYTES]
    return data.decode(errors="replace")


def _damage(random: Random, data: bytes, others: tuple[str, ...]) -> bytes:
    start = random.randrange(len(data) + 1)
    end = min(len(data), start + random.choice((0, 1, 2, 8, 64, 1024)))
    kind = random.randrange(9)
    if kind == 0:  # other bytes
        return data[:start] + random.randbytes(end - start) + data[end:]
    if kind == 1:
        return data[:start] + data[end:]
    if kind == 2:
        return data[:start]
    if kind == 3:
        return data[:start] + random.choice(_WORDS) + data[end:]
    if kind == 4:
        return _other_number(random, data)
    if kind == 5:
        return data[:end] + data[start:end] * random.choice((1, 3, 500)) + data[end:]
    if kind == 6:
        lines = data.split(b"\n")
        random.shuffle(lines)
        return b"\n".join(lines)
    if kind == 7 and others:
        other = random.choice(others).encode(errors="replace")
        at = random.randrange(len(other) + 1)
        return data[:start] + other[at : at + 2000] + data[end:]
    return random.randbytes(random.choice((0, 1, 20, 3000)))


def _other_number(random: Random, data: bytes) -> bytes:
    places = [at for at, byte in enumerate(data[:20000]) if 48 <= byte <= 57]
    if not places:
        return data
    start = end = random.choice(places)
    while end < len(data) and 48 <= data[end] <= 57:
        end += 1
    return data[:start] + random.choice(_NUMBERS) + data[end:]


def value(random: Random, source: Any) -> Any:
    """A JSON value with something in it that is not what it was."""
    if random.random() < 0.15 or not isinstance(source, (dict, list)) or not source:
        if isinstance(source, str) and random.random() < 0.5:
            return text(random, source)
        return random.choice(_VALUES)
    if isinstance(source, list):
        found = list(source)
        at = random.randrange(len(found))
        kind = random.randrange(4)
        if kind == 0:
            del found[at]
        elif kind == 1:
            found += found[at : at + 1] * random.choice((1, 40))
        else:
            found[at] = value(random, found[at])
        return found
    changed = dict(source)
    key = random.choice(list(changed))
    if random.random() < 0.2:
        del changed[key]
    else:
        changed[key] = value(random, changed[key])
    return changed
