"""What commands in the container print: harmless on our terminal, the same bytes in a file or a pipe."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = b"\x1b]0;x\x07\xc2\x9b2Jto out\r\n"
HARMLESS = b"?]0;x??2Jto out\r\n"  # the terminal's own line break
# `dshpc logs`, and `dshpc squeue` and `dshpc job logs`, with a stand-in for the engine's client
LOGS = "from dshpc_setup.cli.exec import hand_over; hand_over({argv!r})"
ASKS = (
    "import sys; from dshpc_setup.cli.exec_session import Session; "
    "sys.exit(Session({argv!r}, ['false'], 'none').run()[0])"
)


def started(way: str, script: str, out: int | None, err: int | None) -> subprocess.Popen[bytes]:
    argv = ["sh", "-c", script]
    return subprocess.Popen(
        [sys.executable, "-c", way.format(argv=argv)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
    )


def read(master: int, until: bytes, seconds: float = 60.0) -> bytes:
    seen, end = b"", time.monotonic() + seconds
    while until not in seen:
        assert time.monotonic() < end, seen
        if select.select([master], [], [], 0.2)[0]:
            seen += os.read(master, 1 << 16)
    return seen


@pytest.fixture
def terminal() -> tuple[int, int]:
    return pty.openpty()


@pytest.mark.parametrize("way", [LOGS, ASKS])
def test_a_terminal_gets_it_harmless_at_once(way: str, terminal: tuple[int, int]) -> None:
    master, slave = terminal
    script = (
        r"printf '\033]0;x\007\302\2332Jto out\r\n'; printf 'err\033[2J\n' >&2; printf 'no end'; "
        "read go <{gate}; exit 3"
    )
    here, there = os.pipe()
    script = script.replace("{gate}", f"/proc/{os.getpid()}/fd/{here}")
    child = started(way, script, slave, slave)
    try:
        assert read(master, b"no end") == HARMLESS + b"err?[2J\r\nno end"
        assert child.poll() is None
        os.write(there, b"go\n")
        assert child.wait(60) == 3
    finally:
        child.kill()
        for handle in (master, slave, here, there):
            os.close(handle)


@pytest.mark.parametrize("way", [LOGS, ASKS])
def test_a_pipe_gets_the_bytes(way: str, terminal: tuple[int, int]) -> None:
    master, slave = terminal
    script = r"printf '\033]0;x\007\302\2332Jto out\r\n'; printf 'err\033[2J\n' >&2"
    child = started(way, script, subprocess.PIPE, slave)
    assert child.communicate(timeout=60)[0] == WRITTEN
    assert (child.returncode, read(master, b"\n")) == (0, b"err?[2J\r\n")
    for handle in terminal:
        os.close(handle)


def test_all_of_a_long_log_arrives(terminal: tuple[int, int]) -> None:
    master, slave = terminal
    child = started(LOGS, "seq 200000", slave, slave)
    seen = read(master, b"200000\r\n")
    assert (child.wait(60), seen.count(b"\r\n")) == (0, 200000)
    for handle in terminal:
        os.close(handle)


def test_what_ends_us_ends_the_client(terminal: tuple[int, int]) -> None:
    master, slave = terminal
    child = started(
        LOGS, "trap 'echo told; exit 5' TERM; echo ready; sleep 60 & wait", slave, slave
    )
    read(master, b"ready\r\n")
    child.send_signal(signal.SIGTERM)
    read(master, b"told\r\n")
    assert child.wait(60) == 5
    for handle in terminal:
        os.close(handle)
