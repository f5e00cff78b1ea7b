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


def _run(argv: Sequence[str], env: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_MAKE_S,
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"{' '.join(argv)}: no end within {_MAKE_S} s")
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)}: exit code {done.returncode}\n{done.stderr or done.stdout}")


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
            _run([program(), "image", "save", archive], {**os.environ, "DSHPC_DIR": str(project)})
            flags += ["--image-file", archive]
        own = Own(top / "project", env)
        try:
            _run([program("configure-environment"), *flags], env)
            yield own
        finally:
            argv = own.dshpc("destroy", "--yes", "--stop-jobs", "--image")
            subprocess.run(argv, env=env, capture_output=True, timeout=300, check=False)
