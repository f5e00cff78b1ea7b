"""Two commands timed in turns in one run, so that a busy machine weighs on both alike."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


def arguments(description: str | None, rounds: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds, metavar="N")
    return parser


def compare(
    title: str,
    measured: Sequence[str],
    against: Sequence[str],
    *,
    most: float,
    rounds: int,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> int:
    """Print the medians and their ratio; 0 where it is at most `most`, else 1."""
    pairs = [(_time(measured, cwd, env), _time(against, cwd, env)) for _ in range(rounds + 1)][
        1:
    ]  # the first round fills the caches
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = ours / theirs
    print(f"{title}: {ours * 1000:.0f} ms against {theirs * 1000:.0f} ms, median of {rounds}")
    print(f"ratio {ratio:.2f} (at most {most})")
    return 0 if ratio <= most else 1


def _time(command: Sequence[str], cwd: Path | None, env: Mapping[str, str] | None) -> float:
    began = time.perf_counter()
    subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=60,
    )
    return time.perf_counter() - began
