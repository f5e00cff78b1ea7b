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


# What the engine's client says of a container that it does not reach

SAYS = "Error response from daemon: No such container: c"
KEEPS = (
    "import sys; from dshpc_setup.cli.exec_session import Session; "
    "session = Session({argv!r}, ['false'], 'direct'); code, _ = session.run(); "
    "sys.stdout.write(session.said.decode()); sys.exit(code)"
)


def test_it_is_kept_for_who_tells_the_reason() -> None:
    child = started(KEEPS, f"echo {SAYS} >&2; exit 1", subprocess.PIPE, subprocess.PIPE)
    assert child.communicate(timeout=60) == (f"{SAYS}\n".encode(), b"")
    assert child.returncode == 1


def test_a_programs_words_arrive_as_they_are() -> None:
    script = f"printf 'x\\033[2J\\r%s\\n' '{SAYS}' >&2; seq 20000 >&2; echo out; exit 7"
    child = started(KEEPS, script, subprocess.PIPE, subprocess.PIPE)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (7, b"out\n")
    assert err.startswith(b"x\x1b[2J\r" + SAYS.encode())
    assert err.endswith(b"\n19999\n20000\n")


def test_a_long_text_that_begins_so_is_a_programs_own() -> None:
    script = f"echo {SAYS} >&2; seq 5000 >&2"
    child = started(KEEPS, script, subprocess.PIPE, subprocess.PIPE)
    assert child.communicate(timeout=60)[1].splitlines()[::5000] == [SAYS.encode(), b"5000"]


def test_both_streams_of_one_file_stay_in_their_order(tmp_path: Path) -> None:
    script = "for i in 1 2 3 4 5 6 7 8 9; do echo out$i; echo err$i >&2; done"
    with (tmp_path / "log").open("wb") as file:
        child = started(KEEPS, script, file.fileno(), file.fileno())
        assert child.wait(60) == 0
    wanted = [f"{name}{number}" for number in range(1, 10) for name in ("out", "err")]
    assert (tmp_path / "log").read_text().split() == wanted


def test_where_nobody_reads_stderr_any_more_it_ends() -> None:
    child = started(KEEPS, "while echo x >&2; do :; done; exit 9", None, subprocess.PIPE)
    assert child.stderr is not None
    child.stderr.read(2)
    child.stderr.close()
    assert child.wait(60) == 128 + signal.SIGPIPE
