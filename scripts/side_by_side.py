"""The tests of a stage in lines beside each other.

Most of the time is waiting, and tests of one line do not meet those of another (tests/lines.py). Unit tests
do not wait: they run on what the others leave of the processor. The output of the other lines comes after
the first one's.

The first stage has the unit tests and each feature on a real engine. With --all the extended stage follows:
kills, attacks and limits, other engines and hosts, other ways in; with --full both, the long tests whole.
All other arguments are handed on to pytest.

Nothing that failed is run again: docs/decisions/0023-no-second-look.md. Exit code: 0 where all passed,
else that of the first line that failed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

# In the terminal's session, where sudo remembers, and not among those that its Ctrl-C reaches
_OWN_GROUP: dict[str, Any] = (
    {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
)
# A file that is there once they were interrupted. A test of our own Ctrl-C takes the signal for its own.
_INTERRUPTED = "DSHPC_TESTS_INTERRUPTED"
STAGES = (("engine", "others", "jobs", "unit"), ("kills", "attacks", "hosts", "extras"))
LINES = tuple(line for stage in STAGES for line in stage)


def main(arguments: Sequence[str]) -> int:
    stages = STAGES if {"--all", "--full"} & set(arguments) else STAGES[:1]
    rest = [argument for argument in arguments if argument != "--all"]
    codes = []
    for stage in stages:
        codes.append(next((code for code in _run(stage, rest) if code), 0))
        if codes[-1] not in (0, 1):
            break  # it was interrupted, or could not begin
    return next((code for code in codes if code), 0)


def _run(lines: Sequence[str], arguments: Sequence[str]) -> list[int]:
    """The exit codes of all lines."""

    def argv(line: str) -> list[str]:
        behind = ["nice", "-n", "10"] if line == "unit" else []
        own = ["-p", "no:cacheprovider", "--line", line]  # the lines would write one cache
        return [*behind, sys.executable, "-m", "pytest", *arguments, *own]

    first, *beside = lines
    with ExitStack() as stack:
        interrupted = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "interrupted"
        os.environ[_INTERRUPTED] = str(interrupted)
        started: list[IO[bytes]] = []
        try:
            with _ended([], interrupted) as running:
                for line in beside:
                    output: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
                    running.append(_started(argv(line), output))
                    started.append(output)
                running.insert(0, _started(argv(first)))
                codes = [process.wait() for process in running]
        finally:  # Ctrl-C, too: what had failed by then is seen
            sys.stdout.flush()
            for printed in started:
                printed.seek(0)
                sys.stdout.buffer.write(printed.read())
            sys.stdout.flush()
    return codes


@pytest.hookimpl(trylast=True)  # what a test has put in the place of functions is gone by then
def pytest_runtest_teardown(item: Any) -> None:
    """A hook of tests/conftest.py: behind a test that took the interrupt for its own no other begins."""
    if (interrupted := os.environ.get(_INTERRUPTED)) and os.path.exists(interrupted):
        item.session.shouldstop = "interrupted"


def _started(argv: list[str], output: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Away from the terminal: its Ctrl-C comes to us, and one goes on to each (`_ended`)."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        **_OWN_GROUP,
    )


@contextmanager
def _ended(
    running: list[subprocess.Popen[bytes]], interrupted: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Whatever happens, each has ended behind it, and has removed what its tests had made on the engine.

    SIGTERM is what Ctrl-C is. A second one of either is not waited for: then all are killed.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield running
    except BaseException:
        interrupted.touch()
        for process in running:
            _signal(process, signal.SIGINT)
        for process in running:
            process.wait()
        raise
    finally:
        for process in running:
            _signal(process, signal.SIGKILL)
            process.wait()
        signal.signal(signal.SIGTERM, before)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """To it and all that it has started, as a terminal does."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
