"""What ssh prints, told with what to do next."""

from __future__ import annotations

import pytest

from dshpc_setup.adding import failing, host
from dshpc_setup.errors import Exit
from dshpc_setup.machine import CommandResult

_CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
Host key verification failed."""


@pytest.mark.parametrize(
    ("said", "brief", "step"),
    [
        (_CHANGED, "another host key than before", "ssh-keygen -R '[lab7]:2222'"),
        ("Host key verification failed.", "is not known here", "ssh -p 2222 ada@lab7 true"),
        (
            "ada@lab7: Permission denied (publickey,password).",
            "does not let this user in",
            "ssh-copy-id -p 2222 ada@lab7",
        ),
        (
            "ssh: Could not resolve hostname lab7: Name or service not known",
            "No machine is called lab7",
            "getent hosts lab7",
        ),
        (
            "ssh: connect to host lab7 port 2222: Connection refused",
            "No ssh server listens",
            "openssh-server",
        ),
        (
            "ssh: connect to host lab7 port 2222: Connection timed out",
            "ssh does not reach",
            "ssh -p 2222",
        ),
        (
            "kex_exchange_identification: Connection closed by remote host",
            "ssh does not reach",
            "ssh -p 2222",
        ),
    ],
)
def test_why_there_is_no_connection(said: str, brief: str, step: str) -> None:
    there = host.read("ada@lab7", "x", 2222)
    done = CommandResult(("ssh",), "present", 255, "", said, 1.0)
    error = failing.not_connected(there, done, interactive=False)
    assert brief in error.brief
    assert step in " ".join(error.resolution)
    assert said in error.details
    assert (error.exit_code == Exit.INCOMPLETE) == ("timed out" in said)


def test_silence_is_told_as_incomplete() -> None:
    done = CommandResult(("ssh",), "timeout", None, "", "", 1.0)
    error = failing.not_connected(host.read("lab7", "x"), done, interactive=True)
    assert error.exit_code == Exit.INCOMPLETE
