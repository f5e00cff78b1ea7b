"""Clusters of one image on both engines, for benchmarks that compare them. Made and removed here."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from side_by_side import program, timed

_MAKE_S = 600


@dataclass(frozen=True)
class Own:
    """A cluster that nobody else uses."""

    folder: Path
    env: Mapping[str, str]

    def dshpc(self, *words: str) -> list[str]:
        """The command line, which says itself which cluster it is about."""
        names = [f"{name}={self.env[name]}" for name in ("DSHPC_DIR", "XDG_CACHE_HOME")]
        return ["env", *names, program(), *words]

    def time(self, *words: str) -> float:
        return timed(self.dshpc(*words), self.folder, self.env)


def ran(argv: Sequence[str], env: Mapping[str, str], most_s: float, cwd: Path | None = None) -> str:
    """What it prints; ends the benchmark where it fails, or does not end."""
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=most_s,
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"{' '.join(argv)}: no end within {most_s:.0f} s")
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)}: exit code {done.returncode}\n{done.stderr}{done.stdout}")
    return done.stdout


@contextlib.contextmanager
def cluster(project: Path, engine: str, prefix: str) -> Iterator[Own]:
    """One of the image of that project's cluster, or with Docker of the same files, with two made-up GPUs."""
    with tempfile.TemporaryDirectory(prefix=f"{prefix}-") as text:
        top = Path(text)
        env = {**os.environ, "XDG_CACHE_HOME": f"{text}/cache", "DSHPC_DIR": f"{text}/project"}
        flags = ["--yes", "--engine", engine, "--prefix", f"{prefix}-{engine}"]
        flags += ["--dir", env["DSHPC_DIR"], "--simulate", "h100:2"]
        if engine == "builtin":
            archive = f"{text}/image.tar.gz"
            of_project = {**os.environ, "DSHPC_DIR": str(project)}
            ran([program(), "image", "save", archive], of_project, _MAKE_S)
            flags += ["--image-file", archive]
        own = Own(top / "project", env)
        try:
            ran([program("configure-environment"), *flags], env, _MAKE_S)
            yield own
        finally:
            argv = own.dshpc("destroy", "--yes", "--stop-jobs", "--image")
            subprocess.run(argv, env=env, capture_output=True, timeout=300, check=False)
