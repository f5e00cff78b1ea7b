"""What the benchmarks share: two commands timed in turns, and figures told against their limits."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if importlib.util.find_spec("dshpc_setup") is None:
    sys.exit(
        f"{sys.executable} has no dsHPC: run this with the Python of its environment, which is"
        " .venv/bin/python in a checkout once ./dshpc has run."
    )
if TYPE_CHECKING:
    from dshpc_setup.project.folder import Project

FIGURES = "DSHPC_BENCH_FIGURES"  # names a file: each limited figure becomes a line of JSON in it


def arguments(description: str | None, rounds: int, *, project: bool = False) -> argparse.Namespace:
    """What is asked for; each of `rounds` takes all that is compared in turn."""
    return parser(description, rounds, project=project).parse_args()


def parser(
    description: str | None, rounds: int, *, project: bool = False
) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    made.add_argument("--rounds", type=_at_least_one, default=rounds, metavar="N")
    if project:
        made.add_argument("--dir", type=Path, default=Path.cwd(), metavar="PROJECT")
    return made


def _at_least_one(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def program(name: str = "dshpc") -> str:
    """The program beside the Python that runs this."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        sys.exit(f"{path} is not there: run this with the Python of dshpc's environment")
    return str(path)


def project_at(folder: Path) -> Project:
    """The project in this folder or above it."""
    from dshpc_setup.errors import DshpcError
    from dshpc_setup.project.folder import need_project

    try:
        return need_project(folder.absolute(), {})
    except DshpcError as error:
        sys.exit(f"{error.brief}\nName the folder where configure-environment ran: --dir PROJECT")


def limited(
    what: str,
    value: float,
    unit: str = "",
    *,
    most: float | None = None,
    least: float | None = None,
) -> bool:
    """Tell a figure with its limit; whether it is beyond."""
    beyond = (most is not None and value > most) or (least is not None and value < least)
    limits = [f"at most {most:g}"] if most is not None else []
    limits += [f"at least {least:g}"] if least is not None else []
    unit = f" {unit}" if unit else ""
    shown, limit = f"{value:.2f}{unit}", f"{', '.join(limits)}{unit}"
    print(f"{what}: {shown} ({limit}){' BEYOND IT' if beyond else ''}", flush=True)
    if FIGURES in os.environ:
        line = {"what": what, "value": shown, "limit": limit, "beyond": beyond}
        with open(os.environ[FIGURES], "a") as file:
            file.write(json.dumps(line) + "\n")
    return beyond


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
) -> bool:
    """Tell the medians and their ratio; whether that, or the first's seconds, is beyond its limit."""
    # the first round fills the caches
    pairs = [(timed(measured, cwd, env), timed(against, cwd, env)) for _ in range(rounds + 1)][1:]
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"{title}: {ours * 1000:.0f} ms against {theirs * 1000:.0f} ms, median of {rounds}")
    beyond = []
    if most is None:
        print(f"ratio {ours / theirs:.2f}")
    else:
        beyond.append(limited(f"{title}, ratio", ours / theirs, most=most))
    if most_s is not None:
        beyond.append(limited(title, ours, "s", most=most_s))
    return any(beyond)


def timed(
    command: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> float:
    """Seconds of a command that ends with exit code 0; ends the benchmark where it does not."""
    began = time.perf_counter()
    said(command, cwd, env)
    return time.perf_counter() - began


def said(
    command: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> str:
    """What a command prints that ends with exit code 0; ends the benchmark where it does not."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"{' '.join(command)}: no end within 60 s")
    if done.returncode != 0:
        words = done.stderr.strip() or done.stdout.strip()
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{words}")
    return done.stdout
