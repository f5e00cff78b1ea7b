"""The port of the loopback that leads to a job: who is joined to it."""

from __future__ import annotations

import os
import socket

import pytest

from dshpc_setup.notebooks import forward

@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["4", "6"])
def test_who_has_connected(family: socket.AddressFamily) -> None:
    if family == socket.AF_INET6 and not os.path.exists("/proc/net/tcp6"):
        family = socket.AF_INET
    with forward.listening() as made, socket.socket(family) as client:
        port = made.getsockname()[1]
        client.connect((forward.HOST if family == socket.AF_INET else f"::ffff:{forward.HOST}", port))
        joined, peer = made.accept()
        with joined:
            assert forward.is_of((os.getuid(),), peer, port)
            assert not forward.is_of((os.getuid() + 1,), peer, port)
            client.close()
            assert not forward.is_of((os.getuid(),), peer, port), "it has gone again"
