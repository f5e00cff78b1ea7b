"""All tests in lines beside each other: those on this machine's engine, those of jobs, and all others.

Most of the time is waiting, and tests of one line do not meet those of another (tests/conftest.py). The
output of the other lines comes after the first one's. Arguments are handed on to pytest. Exit code: that
of the first line that failed, else 0.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from typing import IO

BESIDE = ("others", "jobs")


def main() -> int:
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *sys.argv[1:]]
    with ExitStack() as stack:
        beside: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
        try:
            for line in BESIDE:
                output: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
                beside.append((_started([*pytest, "--line", line], output), output))
            codes = [subprocess.run([*pytest, "--line", "engine"], check=False).returncode]
            codes += [process.wait() for process, _ in beside]
        finally:
            for process, _ in beside:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        sys.stdout.flush()
        for _, printed in beside:
            printed.seek(0)
            sys.stdout.buffer.write(printed.read())
    return next((code for code in codes if code), 0)


def _started(argv: list[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)


if __name__ == "__main__":
    sys.exit(main())
