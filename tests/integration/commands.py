"""Commands as the tests run them: ended with all that they have started, whatever ends the test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Where commands remember which clusters there are: not in the home of who runs the tests
STATE = f"{tempfile.gettempdir()}/dshpc-test-state"
# Of the terminal's session (sudo remembers by it), and not in what its Ctrl-C ends.
OWN_GROUP: dict[str, Any] = (
    {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
)


@dataclass(frozen=True)
class Outcome:
    code: int
    stdout: str
    stderr: str

    @property
    def report(self) -> dict[str, Any]:
        """The one JSON object that all of stdout is."""
        value = json.loads(self.stdout)
        assert isinstance(value, dict), self.stdout
        return value

    @property
    def actions(self) -> dict[str, str]:
        return {item["path"]: item["action"] for item in self.report["files"]}

    @property
    def steps(self) -> dict[str, dict[str, Any]]:
        return {item["name"]: item for item in self.report["steps"]}

    def good(self) -> Outcome:
        assert self.code == 0, f"exit code {self.code}\n{self.stdout}\n{self.stderr}"
        return self


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """This one's, without settings of whoever runs the tests."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("DSHPC_", "COMPOSE_", "SUDO_"))
    }
    own = {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "XDG_STATE_HOME": STATE}
    return {**kept, **own, **(changes or {})}


def run(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 400,
    given: str | None = None,
) -> Outcome:
    """`given`: what it reads."""
    with subprocess.Popen(
        argv,
        cwd=cwd or "/",
        env=environment(env),
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **OWN_GROUP,
    ) as child:
        try:
            stdout, stderr = child.communicate(given, timeout=timeout_s)
        except (
            BaseException
        ):  # Ctrl-C: nothing of it may go on while the fixtures remove what it made
            end_group(child)
            raise
    return Outcome(child.returncode, stdout, stderr)


def end_group(child: subprocess.Popen[str]) -> None:
    """With all that it has started; politely first."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(10)
            if number == signal.SIGINT:
                time.sleep(0.2)  # what it has started hears of it at the same time
