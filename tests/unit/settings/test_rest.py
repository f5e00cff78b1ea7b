"""The setting `rest`: off, on, or an address with a port."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError
from dshpc_setup.settings import load

ADDRESSES = st.one_of(
    st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(lambda each: f"[{each}]")
)


def test_what_the_page_shows() -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/rest.md").read_text()
    (text,) = re.findall(r"(?s)^```yaml\n(.*?)^```$", page, re.M)
    assert load(yaml_text=text).rest == "127.0.0.1:6820"


def rest(text: str) -> str:
    return load(env={"DSHPC_REST": text}).rest


@given(ADDRESSES, st.integers(1024, 65535))
def test_any_address_and_a_port_that_a_user_may_have(address: str, port: int) -> None:
    assert rest(f"{address}:{port}") == f"{address}:{port}"


@given(st.text(max_size=30).filter(lambda text: text.strip() not in ("", "on", "off")))
def test_nothing_else_gets_through(text: str) -> None:
    try:
        said = rest(text)
    except DshpcError as error:
        assert "127.0.0.1:6820" in str(error) + error.details
        return
    address, _, port = said.rpartition(":")
    ipaddress.ip_address(address.strip("[]"))
    assert 1024 <= int(port) < 65536


@pytest.mark.parametrize(
    "text",
    ["yes", "6820", ":6820", "localhost:6820", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:65536",
     "::1:6820", "[127.0.0.1]:6820", "[::1]", "[fe80::1%eth0]:6820", "127.0.0.1:06820",
     "127.0.0.1: 6820", "127.0.0.1:6820 -f /x"],
)  # fmt: skip
def test_what_is_refused(text: str) -> None:
    with pytest.raises(DshpcError):
        rest(text)
