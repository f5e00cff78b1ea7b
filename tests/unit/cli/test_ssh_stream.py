"""What a job says in small pieces goes on whole."""

from __future__ import annotations

import os
import threading

import pytest

from dshpc_setup.cli import ssh_stream


def test_pieces_are_gathered_and_none_is_lost(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    said, say = os.pipe()
    copying = threading.Thread(target=ssh_stream._gather, args=(said,))
    copying.start()
    pieces = [bytes([number % 251]) * 1024 for number in range(300)] + [b"its end"]
    for piece in pieces:
        os.write(say, piece)
    os.close(say)
    copying.join(30)
    assert not copying.is_alive()
    assert capfdbinary.readouterr().out == b"".join(pieces)
