"""All benchmarks in turn, and a table of their figures at the end.

    python benchmarks/all.py [--quick] [--dir PROJECT] [--prefix NAME] [NAME ...]

Without --dir a cluster is made for them, with two made-up GPUs, and removed at the end. --quick: one round
of each, to see that all work; its figures say little. Exit code 1: a figure is beyond its limit; 2: a
benchmark did not come to its end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from side_by_side import FIGURES, program

HERE = Path(__file__).parent
DEADLINE_S = 3600
# Without --dir
ALONE = (
    *(
        "bring_up",
        "completion",
        "detect",
        "image_size",
        "metrics",
        "passthrough",
        "processes",
        "use",
    ),
    "validate",
    "version",
)
CONTAINERS = (
    "bring_up",
    "nodes",
    "restarts",
    "sbatch",
    "srun",
    "start",
    "stop",
    "throughput",
)  # have --prefix
ALL = tuple(
    sorted(
        {*ALONE, *CONTAINERS, "configure_again", "dashboard", "doctor", "env", "method_run", "ssh"}
    )
)
QUICK = {
    "dashboard": ("--rounds", "1", "--seconds", "2"),
    "image_size": (),  # has no rounds
    "nodes": ("--rounds", "1", "--slurmds", "4", "--jobs", "10", "--whole", "0", "--alone"),
    "restarts": ("--rounds", "1", "--kills", "1"),
    "sbatch": ("--rounds", "1", "--jobs", "20"),
    "throughput": ("--rounds", "1", "--jobs", "10", "--alone"),
}


@dataclass(frozen=True)
class Outcome:
    name: str
    took_s: float
    figures: Sequence[dict[str, str | bool]]
    code: int

    @property
    def failed(self) -> bool:
        """It ended before its end; a Python program that crashes has the exit code 1 too."""
        return self.code not in (0, 1) or not self.figures or (self.code == 1 and not self.beyond)

    @property
    def beyond(self) -> bool:
        return any(figure["beyond"] for figure in self.figures)


def run(name: str, project: Path, prefix: str, quick: bool) -> Outcome:
    """What it prints is seen as it comes."""
    argv = [sys.executable, str(HERE / f"{name}.py")]
    argv += [] if name in ALONE else ["--dir", str(project)]
    argv += ["--prefix", prefix] if name in CONTAINERS else []
    argv += QUICK.get(name, ("--rounds", "1")) if quick else ()
    print(f"\n{name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder, "figures")
        figures.touch()
        began = time.monotonic()
        env = {**os.environ, FIGURES: str(figures)}
        try:
            done = subprocess.run(
                argv, env=env, stdin=subprocess.DEVNULL, timeout=DEADLINE_S, check=False
            )
            code = done.returncode
        except subprocess.TimeoutExpired:
            print(f"no end within {DEADLINE_S} s")
            code = 124
        took = time.monotonic() - began
        told = [json.loads(line) for line in figures.read_text().splitlines()]
    return Outcome(name, took, told, code)


@contextlib.contextmanager
def made(prefix: str) -> Iterator[Path]:
    """A cluster that is there for the benchmarks alone."""
    with tempfile.TemporaryDirectory(prefix=f"{prefix}-") as text:
        folder = Path(text)
        flags = ["--yes", "--dir", text, "--prefix", prefix, "--simulate", "h100:2"]
        try:
            subprocess.run([program("configure-environment"), *flags], timeout=1800, check=True)
            yield folder
        finally:
            argv = [program(), "destroy", "--yes", "--image", "--dir", text]
            subprocess.run(argv, timeout=300, check=False)


def table(outcomes: Sequence[Outcome]) -> list[str]:
    rows = [
        (outcome.name if number == 0 else "", figure["what"], figure["value"], figure["limit"])
        + ("BEYOND" if figure["beyond"] else "",)
        for outcome in outcomes
        for number, figure in enumerate(outcome.figures)
    ]
    rows += [
        (outcome.name, "DID NOT END WELL", "", "", "") for outcome in outcomes if outcome.failed
    ]
    widths = [max(map(len, map(str, column))) for column in zip(*rows, strict=True)]
    return [
        "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round of each")
    parser.add_argument("--dir", type=Path, metavar="PROJECT", help="its cluster runs")
    parser.add_argument("--prefix", default="dshpc-bench", help="names of what is made for them")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ALL))
    choice = parser.parse_args()
    if unknown := sorted(set(choice.names) - set(ALL)):
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(ALL)}")
    with contextlib.nullcontext(choice.dir) if choice.dir else made(choice.prefix) as project:
        outcomes = [run(name, project, choice.prefix, choice.quick) for name in choice.names or ALL]
    print("", *table(outcomes), sep="\n")
    print("; ".join(f"{outcome.name} took {outcome.took_s:.0f} s" for outcome in outcomes))
    if any(outcome.failed for outcome in outcomes):
        return 2
    return int(any(outcome.beyond for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
