"""From a fresh clone to the first `srun`, by step, with an empty home; and once more where all is there.

    python benchmarks/bring_up.py [--rounds N] [--prefix NAME] [--engine builtin|docker ...]

Each round is a clone of this checkout (by git, from this disk), its Python environment, and
`configure-environment --simulate h100:2` in a home where nothing is cached. A checkout's own folder and
home are removed behind it. The packages of Python and Debian come over this machine's network.

Docker keeps its images beside all homes: where the base image is there already, its time is told and not
held against the limit of a first run. Docker is installed on the way only where it is missing and root can
be had: else that is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from beside import ran
from side_by_side import limited, parser

ROOT = Path(__file__).resolve().parents[1]
ENGINES = ("builtin", "docker")
MOST_S = {"builtin": 45.0, "docker": 40.0}
MOST_INSTALLED_S = 75.0  # with Docker's own installation
MOST_AGAIN_S = 1.0
STEP_S = 900.0
# A step of configure-environment -> the row that it is counted to
ROWS = {
    "probe": "probe, engine",
    "base": "base, image",
    "passthrough": "plan, files",
    "plan": "plan, files",
    "render": "plan, files",
    "build": "base, image",
    "start": "start",
    "verify": "verify",
}


@dataclass(frozen=True)
class Place:
    """A clone, a project and a home of their own."""

    top: Path
    engine: str
    prefix: str

    @property
    def clone(self) -> Path:
        return self.top / "clone"

    @property
    def env(self) -> dict[str, str]:
        """The caller's, less what would bring caches, settings or another environment."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DSHPC_", "XDG_", "UV_CACHE", "PIP_CACHE", "VIRTUAL_ENV"))
        }
        return {**kept, "HOME": str(self.top / "home"), "PYTHONPATH": ""}

    def run(self, *argv: str) -> str:
        """What it prints; ends the benchmark where it fails."""
        return ran(argv, self.env, STEP_S, self.top)

    def configure(self) -> dict[str, Any]:
        flags = ["--yes", "--json", "--simulate", "h100:2", "--engine", self.engine]
        flags += ["--prefix", self.prefix, "--dir", str(self.top / "project")]
        said = self.run(str(self.clone / "configure-environment"), *flags)
        report: dict[str, Any] = json.loads(said)
        return report

    def dshpc(self, *words: str) -> str:
        return self.run(
            "env", f"DSHPC_DIR={self.top / 'project'}", str(self.clone / "dshpc"), *words
        )


@dataclass(frozen=True)
class Round:
    """Seconds by row, in order. `cached`: the engine had the base image. `again_s`: with nothing to do."""

    rows: Mapping[str, float]
    cached: bool
    again_s: float

    @property
    def whole_s(self) -> float:
        return sum(self.rows.values())


def by_row(steps: Sequence[Mapping[str, Any]], whole_s: float) -> dict[str, float]:
    """The steps of a report as rows. What no step has is the program's own: "between". Pure."""
    rows = dict.fromkeys(dict.fromkeys(ROWS.values()), 0.0)
    for step in steps:
        rows[ROWS[step["name"]]] += (step["ms"] or 0.0) / 1000
    return {**rows, "between": max(0.0, whole_s - sum(rows.values()))}


@contextlib.contextmanager
def place(engine: str, prefix: str) -> Iterator[Place]:
    """Removed at the end with its cluster and its image, however it ends."""
    top = Path(tempfile.mkdtemp(prefix=f"{prefix}-"))
    try:
        top.chmod(0o755)
        (top / "home").mkdir()
        made = Place(top, engine, f"{prefix}-{engine}")
        try:
            yield made
        finally:
            if (top / "project/.dshpc").exists():
                destroy = ["destroy", "--yes", "--stop-jobs", "--image"]
                with contextlib.suppress(SystemExit):  # the first error is the one to tell
                    made.dshpc(*destroy)
    finally:
        shutil.rmtree(top, ignore_errors=True)


def one_round(engine: str, prefix: str) -> Round:
    with place(engine, prefix) as it:
        rows: dict[str, float] = {}

        def timed(row: str, *argv: str) -> None:
            began = time.perf_counter()
            it.run(*argv)
            rows[row] = time.perf_counter() - began

        timed("clone", "git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(it.clone))
        timed("Python environment", str(it.clone / "dshpc"), "--version")
        began = time.perf_counter()
        report = it.configure()
        rows |= by_row(report["steps"], time.perf_counter() - began)
        began = time.perf_counter()
        it.dshpc("srun", "--gres=gpu:1", "true")
        rows["srun"] = time.perf_counter() - began
        began = time.perf_counter()
        it.configure()
        again_s = time.perf_counter() - began
    base = next(step["detail"] or "" for step in report["steps"] if step["name"] == "base")
    return Round(rows, engine == "docker" and base.endswith("here already"), again_s)


def table(rounds: Mapping[str, Sequence[Round]]) -> list[str]:
    """A column for each engine: medians in seconds. Pure."""
    engines = list(rounds)
    names = list(rounds[engines[0]][0].rows)
    lines = [f"{'':20}" + "".join(f"{engine:>10}" for engine in engines)]
    for name in names:
        values = [median(each.rows[name] for each in rounds[engine]) for engine in engines]
        lines.append(f"{name:20}" + "".join(f"{value:8.1f} s" for value in values))
    whole = [median(each.whole_s for each in rounds[engine]) for engine in engines]
    again = [median(each.again_s for each in rounds[engine]) for engine in engines]
    for name, values in (("first srun after", whole), ("configured again", again)):
        lines.append(f"{name:20}" + "".join(f"{value:8.1f} s" for value in values))
    return lines


def docker_answers() -> bool:
    argv = ["docker", "version", "--format", "{{.Server.Version}}"]
    try:
        return subprocess.run(argv, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def installs(engine: str, answers: bool) -> str | None:
    """Whether Docker is installed on the way: "yes", "no" where it is there, None where it cannot be."""
    if engine != "docker" or answers:
        return "no"
    root = os.geteuid() == 0 or shutil.which("sudo") is not None
    return "yes" if root and shutil.which("docker") is None else None


def main() -> int:
    asked = parser(__doc__, 1)
    asked.add_argument("--prefix", default="dshpc-bench", help="names of what is made")
    asked.add_argument(
        "--engine", action="append", choices=ENGINES, help="default: all that can run"
    )
    options = asked.parse_args()
    answers = docker_answers()
    rounds: dict[str, list[Round]] = {}
    installed = False
    for engine in options.engine or ENGINES:
        how = installs(engine, answers)
        if how is None:
            print(f"{engine}: left out, there is no Docker that answers, and none can be installed")
            continue
        installed |= how == "yes"
        count = 1 if how == "yes" else options.rounds  # the second would find it installed
        rounds[engine] = [one_round(engine, options.prefix) for _ in range(count)]
    if not installed and "docker" in rounds:
        print("Docker installed on the way: left out, Docker is here already")
    if not rounds:
        sys.exit("There is no engine to measure.")
    print(*table(rounds), sep="\n")
    beyond = [judged(engine, each, installed) for engine, each in rounds.items()]  # each is told
    return int(any(beyond))


def judged(engine: str, rounds: Sequence[Round], installed: bool) -> bool:
    """Whether a figure is beyond its limit."""
    beyond = False
    if any(each.cached for each in rounds):
        print(f"{engine}: not held against its limit, the base image was here already")
    else:
        most = MOST_INSTALLED_S if engine == "docker" and installed else MOST_S[engine]
        what = (
            "Docker installed on the way" if most == MOST_INSTALLED_S else f"{engine}, first srun"
        )
        beyond = limited(what, median(each.whole_s for each in rounds), "s", most=most)
    again = median(each.again_s for each in rounds)
    return limited(f"{engine}, configured again", again, "s", most=MOST_AGAIN_S) | beyond


if __name__ == "__main__":
    sys.exit(main())
