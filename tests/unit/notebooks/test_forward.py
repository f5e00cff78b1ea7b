"""The port of the loopback that leads to a job: who is joined to it."""

from __future__ import annotations

import pytest

from dshpc_setup.notebooks import forward

# As Linux 6.12 writes it: a listener, both ends of bob's (4102) connection, one that ada (4101) has made by a
# socket of version 6, and one that has ended
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:9DC5 00000000:0000 0A 00000000:00000000 00:00000000 00000000  4101 0 301
   1: 0100007F:B0A2 0100007F:9DC5 01 00000000:00000000 00:00000000 00000000  4102 0 302
   2: 0100007F:9DC5 0100007F:B0A2 01 00000000:00000000 00:00000000 00000000  4101 0 303
   3: 0100007F:B0A4 0100007F:9DC5 06 00000000:00000000 03:000016B4 00000000     0 0 0
"""
TCP6 = """\
  sl  local_address remote_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode
   0: {0}:B0A6 {0}:9DC5 01 00000000:00000000 00:00000000 00000000 4101 0 304
""".format("0000000000000000FFFF00000100007F")
PORT = 0x9DC5


@pytest.mark.parametrize(
    ("port", "user"), [(0xB0A2, 4102), (0xB0A4, None), (0xB0A6, 4101), (0xB0A8, None)]
)
def test_whose_connection_it_is(port: int, user: int | None) -> None:
    assert forward.user_of(TCP + TCP6, ("127.0.0.1", port), PORT) == user
    assert forward.user_of(TCP + TCP6, ("127.0.0.2", port), PORT) is None
    assert forward.user_of(TCP + TCP6, ("127.0.0.1", port), PORT + 1) is None
