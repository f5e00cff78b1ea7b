"""Each benchmark works, which is all that is looked at here: the machine is busy with other tests.

One that was killed leaves containers of fixed names: the next run is not stopped by them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cluster import (
    OWN_GROUP,
    PREFIX,
    ROOT,
    Cluster,
    docker,
    end_group,
    environment,
    made,
    run,
)
from tests.integration.leftovers import remember

pytestmark = pytest.mark.engines("docker", why="not tried elsewhere")

BENCHMARKS = ROOT / "benchmarks"
# Beside each other, for most of their time is waiting
SIDE_BY_SIDE = (
    ("stop", "version", "validate", "completion", "ssh", "env"),
    ("processes", "use", "metrics", "dashboard", "nodes"),
    (
        "doctor",
        "restarts",
        "srun",
        "configure_again",
    ),  # doctor would name a slurmctld that was killed
    ("sbatch", "throughput", "method_run", "detect"),
    ("bring_up",),
)
BY_ITSELF = ("start",)  # by the test of what another one left
TOO_DEAR = ("image_size", "passthrough")  # they build an image, and a machine: with --full alone
DEADLINE_S = 600
# Of the programs, not of what they share
STARTS = re.compile(r"(?s)\b(seconds_to|started|started_with)\(.*__main__")


def test_one_round_of_each(standard: Cluster, tmp_path: Path, full: bool) -> None:
    """With what dsHPC's own environment has: no pytest. No figure is asserted."""
    (tmp_path / "pytest.py").write_text("raise ModuleNotFoundError('no pytest, as for users')\n")
    env = environment({"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    lines = [*SIDE_BY_SIDE, *([TOO_DEAR] if full else [])]
    every = [sys.executable, str(BENCHMARKS / "all.py"), "--quick"]
    with made("bench") as cluster:
        cluster.configure("--simulate", "h100:2").good()
        flags = ["--dir", str(cluster.folder), "--prefix", cluster.prefix]
        started = [
            subprocess.Popen(
                [*every, *flags, *names],
                cwd="/",
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                **OWN_GROUP,
            )
            for names in lines
        ]
        try:
            printed = [child.communicate(timeout=DEADLINE_S)[0] for child in started]
        finally:
            for child in started:
                if child.poll() is None:
                    end_group(child)
    for child, text in zip(started, printed, strict=True):
        assert child.returncode in (0, 1), text  # 1 is for a figure beyond its limit


def test_one_that_fails_is_told_from_a_figure_beyond_its_limit(tmp_path: Path) -> None:
    """Python's exit code for a crash is that of a figure beyond its limit."""
    done = run([sys.executable, str(BENCHMARKS / "all.py"), "--dir", str(tmp_path), "sbatch"])
    assert done.code == 2, done
    assert "There is no cluster in" in done.stderr
    assert "DID NOT END WELL" in done.stdout


def test_each_is_run() -> None:
    programs = {path.stem for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text()}
    names = [name for line in (*SIDE_BY_SIDE, TOO_DEAR, BY_ITSELF) for name in line]
    assert sorted(names) == sorted(programs - {"all"})


@pytest.mark.parametrize("name", TOO_DEAR)
def test_one_that_is_too_dear_can_be_loaded(name: str, tmp_path: Path) -> None:
    (tmp_path / "pytest.py").write_text("raise ModuleNotFoundError('no pytest, as for users')\n")
    argv = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--help"]
    assert "--help" in run(argv, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}).good().stdout


def test_a_leftover_container_is_in_nobodys_way(standard: Cluster) -> None:
    image = standard.inspect()["Image"]
    names = [f"{PREFIX}bench-{name}" for name in ("start", "least")]
    for name in names:
        remember(name)
        docker(
            "create", "--name", name, "--volume", f"{name}-state:/x", "--entrypoint", "true", image
        )
    program = str(BENCHMARKS / "start.py")
    argv = [
        sys.executable,
        program,
        "--image",
        image,
        "--prefix",
        f"{PREFIX}bench",
        "--rounds",
        "1",
    ]
    done = run(argv)
    assert "start, ratio: " in done.stdout, done.stderr  # 1 is for the time that it took here
    left = docker("ps", "--all", "--format", "{{.Names}}") + docker("volume", "ls", "--quiet")
    assert not re.search(rf"^{PREFIX}bench", left, re.M)


@pytest.mark.parametrize(
    "path",
    [path for path in BENCHMARKS.glob("*.py") if STARTS.search(path.read_text())],
    ids=lambda path: path.name,
)
def test_each_that_starts_containers_removes_them_first(path: Path) -> None:
    assert "with removed(" in path.read_text()
