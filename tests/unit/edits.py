"""What hands and editors do to a text file: by chance, and worse than most people would."""

from __future__ import annotations

import random
from collections.abc import Callable

MARKS: tuple[tuple[bytes, bool], ...] = (
    (b"# USER_CUSTOMIZED=true", True),
    (b"#user_customized = TRUE ", True),
    (b"\t#\tUSER_CUSTOMIZED=true\r", True),
    ("# USER_CUSTOMIZED=true é".encode(), False),
    (b"# USER_CUSTOMIZED=false", False),
    (b"USER_CUSTOMIZED=true", False),
    (b"# USER_CUSTOMISED=true", False),
    ("\N{ZERO WIDTH SPACE}# USER_CUSTOMIZED=true".encode(), False),
    (b"# USER_CUSTOMIZED=true # by me", False),
    (b"\xef\xbb\xbf# USER_CUSTOMIZED=true", False),
)

ODD_VALUES = (
    b"", b" ", b"-1", b"0", b"9" * 40, b"9" * 5000, b"1e9", b"[0-9]", b"[0-", b"[9-0]", b"0x10",
    b"[0-99999999999]", b"[1,,2]", b"[[0]]", b"nvidia[0-1]", "\u0663".encode(), "\u00b2".encode(),
    "日本".encode(), b"\x00", b"\xff\xfe", b'"', b"'", b'"a b"', b"\\", b"#", b"=", b"==", b"%d%s",
    b"$(reboot)", b"../../etc/passwd", b"/dev/null", b"/dev/nvidia\x00", b"a" * 300, b"(S:0-1)",
    b"gpu:h100:999999999999999999999", b"gpu::", b"gpu:h100:2(", b"NO_VAL", b"INFINITE",
    b"DEFAULT", b"ALL", b"localhost", b"n[1-3]", b"n1,n2", b"FORCE:0", b"\xef\xbb\xbf",
)  # fmt: skip

Edit = Callable[[bytes, random.Random], bytes]


def edited(text: bytes, choose: random.Random) -> bytes:
    """One to three things done to it."""
    for _ in range(choose.choice((1, 1, 2, 3))):
        text = choose.choice(_EDITS)(text, choose)
    return text


def long_line(text: bytes, choose: random.Random) -> bytes:
    """A line of a megabyte in it."""
    filler = choose.choice((b"x", b"=", b"9", b"a=1 ", b"[", b",", b" ", b"\\", b'"'))
    line = b"NodeName=" + filler * (10**6 // len(filler))
    return _insert(text, choose, line)


def _insert(text: bytes, choose: random.Random, line: bytes) -> bytes:
    lines = text.split(b"\n")
    lines.insert(choose.randint(0, len(lines)), line)
    return b"\n".join(lines)


def _flip(text: bytes, choose: random.Random) -> bytes:
    changed = bytearray(text)
    for _ in range(choose.randint(1, 8) if text else 0):
        changed[choose.randrange(len(changed))] = choose.randrange(256)
    return bytes(changed)


def _remove_line(text: bytes, choose: random.Random) -> bytes:
    lines = text.split(b"\n")
    del lines[choose.randrange(len(lines))]
    return b"\n".join(lines)


def _double_line(text: bytes, choose: random.Random) -> bytes:
    return _insert(text, choose, choose.choice(text.split(b"\n")))


def _swap_lines(text: bytes, choose: random.Random) -> bytes:
    lines = text.split(b"\n")
    one, other = choose.randrange(len(lines)), choose.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def _odd_value(text: bytes, choose: random.Random) -> bytes:
    lines = text.split(b"\n")
    with_value = [number for number, line in enumerate(lines) if b"=" in line]
    if with_value:
        number = choose.choice(with_value)
        words = lines[number].split(b" ")
        pairs = [place for place, word in enumerate(words) if b"=" in word]
        place = choose.choice(pairs)
        words[place] = words[place].partition(b"=")[0] + b"=" + choose.choice(ODD_VALUES)
        lines[number] = b" ".join(words)
    return b"\n".join(lines)


def _mark(text: bytes, choose: random.Random) -> bytes:
    return _insert(text, choose, choose.choice(MARKS)[0])


def _noise(text: bytes, choose: random.Random) -> bytes:
    return _insert(text, choose, bytes(choose.randrange(256) for _ in range(60)))


def _cut(text: bytes, choose: random.Random) -> bytes:
    return text[: choose.randint(0, len(text))]


_EDITS: tuple[Edit, ...] = (
    _flip,
    _remove_line,
    _double_line,
    _swap_lines,
    _odd_value,
    _odd_value,
    _mark,
    _noise,
    _cut,
    lambda text, _: text.replace(b"\n", b"\r\n"),
    lambda text, _: text.replace(b"\n", b"\r"),
    lambda text, _: b"\xef\xbb\xbf" + text,
    lambda text, _: text.replace(b"=", b" = "),
    lambda text, _: text.upper(),
    lambda text, _: text + b"\x00" * 40,
    lambda text, _: text.rstrip(b"\n"),
    lambda text, _: text.decode("utf-8", "replace").encode("utf-16"),
    lambda text, _: text[:0],
    lambda text, choose: _insert(
        text, choose, choose.choice((b"\\", b"=", b"Include /x", b"\xc3"))
    ),
    lambda text, _: text.replace(b" ", "\N{NO-BREAK SPACE}".encode()),
)
