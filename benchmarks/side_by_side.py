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
    most: float | None = None,
    most_s: float | None = None,
    rounds: int,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> int:
    """Print the medians and their ratio; 0 where both limits hold (`most_s`: seconds), else 1."""
    # the first round fills the caches
    pairs = [(timed(measured, cwd, env), timed(against, cwd, env)) for _ in range(rounds + 1)][1:]
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = ours / theirs
    print(f"{title}: {ours * 1000:.0f} ms against {theirs * 1000:.0f} ms, median of {rounds}")
    limits = [f"at most {most}"] if most is not None else []
    limits += [f"at most {most_s} s"] if most_s is not None else []
    print(f"ratio {ratio:.2f} ({', '.join(limits)})")
    return int((most is not None and ratio > most) or (most_s is not None and ours > most_s))


def timed(
    command: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> float:
    """Seconds of a command that ends with exit code 0; raises CalledProcessError where it does not."""
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
