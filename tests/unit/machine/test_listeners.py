"""Who listens, by the kernel's tables."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.machine.listeners import Listener, parse

TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1A85 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0
   1: 0100007F:1A86 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 4243 1 0
   2: broken
"""


def test_only_who_listens_counts() -> None:
    assert list(parse(TABLE)) == [Listener(6789, 1000, 4242)]


@given(st.text())
def test_any_table_has_listeners_or_none(text: str) -> None:
    list(parse(f"head\n{text}"))
