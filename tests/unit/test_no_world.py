"""The guard of the unit tests holds."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

import pytest


def start_process() -> None:
    # Not by subprocess: only the machine module may import it, and this is what it ends in.
    os.posix_spawn("/bin/true", ["true"], {})


def run_shell() -> None:
    os.system("true")  # noqa: S605, TID251  (what must be caught)


def open_socket() -> None:
    socket.socket().close()


def resolve() -> None:
    socket.getaddrinfo("localhost", 80)


@pytest.mark.parametrize("reach", [start_process, run_shell, open_socket, resolve])
def test_reaching_for_the_world_cannot_be_swallowed(reach: Callable[[], None]) -> None:
    with (
        pytest.raises(BaseException, match="give the code under test a fake Machine") as caught,
        contextlib.suppress(Exception),
    ):
        reach()
    assert not isinstance(caught.value, Exception)
