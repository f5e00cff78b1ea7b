"""A token survives being copied, and what is no whole one is refused."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.join.token import LENGTH, Token, read

hexes = {size: st.binary(min_size=size, max_size=size).map(bytes.hex) for size in (6, 16, 32)}
tokens = st.builds(
    Token,
    st.integers(0, 2**32 - 1).map(lambda number: str(ipaddress.IPv4Address(number))),
    st.integers(1, 65535),
    hexes[32],
    hexes[6],
    hexes[16],
)


@given(tokens)
def test_what_is_written_is_read(token: Token) -> None:
    text = token.text()
    assert read(f" {text}\n") == token
    assert len(text) == LENGTH
    assert text.replace("-", "").replace("_", "").isalnum()


@given(tokens, st.data())
def test_one_other_character_is_found(token: Token, data: st.DataObject) -> None:
    text = token.text()
    at = data.draw(st.integers(len("dshpc1-"), len(text) - 2))  # the last one has unused bits
    other = data.draw(st.sampled_from("ABCxyz019-_.é ").filter(lambda char: char != text[at]))
    with pytest.raises(DshpcError) as refused:
        read(text[:at] + other + text[at + 1 :])
    assert refused.value.exit_code == Exit.USAGE


@given(st.text(max_size=120))
def test_any_text_is_refused_in_words(text: str) -> None:
    for tried in (text, f"dshpc1-{text}"):
        with pytest.raises(DshpcError):
            read(tried)
