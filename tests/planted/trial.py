"""One fault in a copy of the checkout, and whether its tests fail there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.planted.faults import Fault

__all__ = ["LEFT_OUT", "ROOT", "Fault", "is_caught", "planted", "run"]

ROOT = Path(__file__).parents[2]
LEFT_OUT = (".git", ".venv", ".dshpc", ".hypothesis", "work", "__pycache__", ".*_cache")
_FAILED = 1  # pytest's code for tests that failed; others are for tests that did not run
_HUNG_S = 120


def planted(text: str, fault: Fault) -> str:
    """The text with the fault in it. Raises ValueError where its place is not found, or not one."""
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.file} has it {text.count(fault.old)} times: {fault.old!r}")
    return text.replace(fault.old, fault.new)


def is_caught(copy: Path, fault: Fault) -> bool:
    """Whether a test of the fault fails in this copy, which is left as it was."""
    path = copy / fault.file
    sound, times = path.read_text(), path.stat()
    path.write_text(planted(sound, fault))
    try:
        return run(copy, fault.tests)[0] == _FAILED
    finally:
        path.write_text(sound)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # what was compiled of it, too


def run(copy: Path, tests: Sequence[str]) -> tuple[int, str]:
    """pytest's exit code and output."""
    # The thread ends the process, where a test would shrink an example for each time it is ended
    late = ["-o", f"timeout={_HUNG_S}", "-o", "timeout_method=thread"]
    options = ["-x", "-q", "-p", "no:cacheprovider", *late]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=copy,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
