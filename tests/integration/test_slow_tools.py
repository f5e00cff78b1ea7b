"""A real run whose compose, builder and engine's client take longer than a question's first deadline."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dshpc_setup.probes import engine
from tests.integration.cluster import environment, made

pytestmark = pytest.mark.engines("docker", why="programs of Docker's are slow there")

LATE_S = engine._TOOL_S + 1.5

# As a program that a busy machine starts late: first it waits, then it is the program itself.
_LATE = """#!/bin/sh
echo "$*" >>{log}
case "$1 ${{2:-}}" in {late}) sleep {seconds} ;; esac
exec {program} "$@"
"""


@pytest.fixture
def late(tmp_path: Path) -> dict[str, str]:
    """An environment in which they are late; what they were asked is in the file LATE_LOG."""
    log = tmp_path / "asked"
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, words in (
        ("docker", "'compose version' | 'buildx version' | 'version '*"),
        ("docker-compose", "'version '*"),
    ):
        program = shutil.which(name)
        if program is None:
            continue
        text = _LATE.format(
            log=shlex.quote(str(log)), late=words, seconds=LATE_S, program=shlex.quote(program)
        )
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "LATE_LOG": str(log)}


def times_asked(late: dict[str, str], words: str) -> int:
    return sum(line.startswith(words) for line in Path(late["LATE_LOG"]).read_text().splitlines())


def test_late_tools_are_waited_for_and_nothing_is_installed_again(late: dict[str, str]) -> None:
    with made("slow") as cluster:
        done = cluster.configure(
            "--simulate", "h100:1", "--no-build", "--no-start", env=late
        ).good()
        assert ", compose " in done.steps["probe"]["detail"]
        assert ", no compose" not in done.steps["probe"]["detail"]
        assert "nstall" not in done.stderr
    asked = times_asked(late, "buildx version")
    assert asked == 2  # in a hurry, and once more with time


def test_what_the_tests_call_first_waits_as_well(late: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dshpc_setup.engine.ensure"],
        env=environment(late),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "compose " in done.stdout.splitlines()[-1]
