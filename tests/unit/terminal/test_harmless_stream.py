"""What others wrote, in blocks, on its way to a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.terminal.sanitize import HarmlessStream


def shown(*blocks: bytes) -> list[str]:
    stream = HarmlessStream()
    return [stream.shown(block) for block in (*blocks, b"")]


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        (b"\x1b]0;title\x07x\n", "?]0;title?x\n"),  # OSC
        (b"\x1b[2J\x1b[31mred\n", "?[2J?[31mred\n"),  # CSI
        (b"\xc2\x9b2J\n", "?2J\n"),  # C1, as UTF-8
        (b"\x9b2J\n", "\N{REPLACEMENT CHARACTER}2J\n"),  # C1 of 8 bits
        ("a\u202eb\u2066c\n".encode(), "a?b?c\n"),  # bidi
        (b"10%\r20%\rdone\r\nnext\n", "10%\n20%\ndone\nnext\n"),
        (b"a\tb\x08\x08c\x7f\n", "a\tb??c?\n"),
        ("Größe: 5 µm\n".encode(), "Größe: 5 µm\n"),
    ],
)
def test_nothing_commands_the_terminal(written: bytes, seen: str) -> None:
    assert "".join(shown(written)) == seen


@given(
    st.lists(st.one_of(st.binary(min_size=1), st.text("ä\r\n\x1b€😀", min_size=1).map(str.encode)))
)
def test_it_is_the_same_in_whichever_blocks(blocks: list[bytes]) -> None:
    whole = b"".join(blocks)
    text = "".join(shown(*blocks))
    assert text == "".join(shown(*(bytes([byte]) for byte in whole)))
    assert all(sign.isprintable() or sign in "\n\t" for sign in text)


def test_nothing_waits_but_a_part_of_a_letter() -> None:
    assert shown(b"10%\r", b"\n", b"no end", "€".encode()[:2], "€".encode()[2:], b"\xe2") == [
        "10%\n", "", "no end", "", "€", "", "\N{REPLACEMENT CHARACTER}",
    ]  # fmt: skip
