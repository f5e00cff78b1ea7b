"""A batch job whose log its user may not write: said by sbatch, and not found out from nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, Outcome, as_user

pytestmark = pytest.mark.engines("docker", why="a cluster of the built-in engine is one user's")

UID = 4321


@pytest.fixture
def roots(standard: Cluster) -> Path:
    """A folder of root's in the work folder, and one of the user's beside it."""
    for name, uid in (("roots", 0), ("own", UID)):
        folder = standard.work / name
        folder.mkdir(exist_ok=True)
        os.chown(folder, uid, uid)
    return standard.work / "roots"


def sbatch(cwd: Path, *arguments: str) -> Outcome:
    return as_user(UID, "dshpc", "sbatch", "--hold", *arguments, "--wrap=true", cwd=cwd)


@pytest.mark.parametrize(
    ("folder", "arguments"),
    [
        ("roots", ()),
        ("own", ("-D", "{roots}")),
        ("own", ("--output", "{roots}/%j.out")),
        ("own", ("-e", "../roots/%x-%j.err")),
        ("roots", ("-a", "0-3", "-o", "%A_%a")),
    ],
)
def test_a_folder_that_the_user_may_not_write(
    standard: Cluster, roots: Path, folder: str, arguments: tuple[str, ...]
) -> None:
    said = sbatch(roots.parent / folder, *(word.format(roots=roots) for word in arguments))
    assert (said.code != 0, said.stdout) == (True, "")
    for word in (f"{roots} is drwxr-xr-x of root (0:0)", f"({UID})", "--output=FILE"):
        assert word in said.stderr, said.stderr
    assert standard.said("squeue", "-h", "-u", str(UID)) == ""


@pytest.mark.parametrize(
    ("folder", "arguments"),
    [
        ("own", ()),
        ("own", ("-o", "it's %j $x.out")),
        ("roots", ("-D", "../own")),
        ("roots", ("-o", "../own/%j.out", "-e", "/dev/null")),
        ("roots", ("-o", "/dev/null")),
        # slurmstepd makes these folders
        ("own", ("-o", "later/on/%j.out")),
        ("own", ("-o", "of/%j/out")),
        ("own", ("-D", "not-yet/there")),
        ("own", ("-o", "/var/lib/dshpc/home/user4321/logs/%j")),
    ],
)
def test_a_log_that_can_be_written(
    standard: Cluster, roots: Path, folder: str, arguments: tuple[str, ...]
) -> None:
    said = sbatch(roots.parent / folder, *arguments).good()
    assert said.stderr == ""
    standard.said("scancel", said.stdout.split()[-1])


def test_other_ways_to_say_it(standard: Cluster, roots: Path) -> None:
    own = roots.parent / "own"
    (own / "kept.out").touch()  # root's
    assert "kept.out is -rw-" in sbatch(own, "-o", "kept.out").stderr
    roots.chmod(0o700)
    try:
        said = sbatch(own, "-D", str(roots))
        assert said.code != 0
        assert "could not begin in its folder" in said.stderr
    finally:
        roots.chmod(0o755)
    later = sbatch(own, "-o", "../roots/later/%j.out").good()
    assert f"there is no folder {own}/../roots/later, and you may not make one" in later.stderr
    assert f"{roots} is drwxr-xr-x of root" in later.stderr
    standard.said("scancel", later.stdout.split()[-1])
    script = own / "job.sh"
    script.write_text(f"#!/bin/sh\n#SBATCH --output={roots}/%j\ntrue\n")
    script.chmod(0o755)
    said = as_user(UID, "dshpc", "sbatch", "job.sh", cwd=own)
    assert (said.code != 0, "drwxr-xr-x of root" in said.stderr) == (True, True)


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("-o", "/tmp/x"), "/tmp/x"),
        (("-D", "/tmp"), "/tmp/slurm-%j.out"),
        (("-D", "/tmp", "-o", "o", "-e", "./o"), "/tmp/o"),
        (("-e", "/tmp/%j/err"), "/tmp/"),
        (("-o", "/tmp/not/there/yet"), "/tmp/not/there/yet"),
        (("-o", "/dev/shm/log"), "/dev/shm/log"),
    ],
)
def test_a_log_that_goes_with_the_container(
    standard: Cluster, roots: Path, arguments: tuple[str, ...], where: str
) -> None:
    said = sbatch(roots.parent / "own", *arguments).good()
    assert f"{where} lies in the cluster's container alone" in said.stderr
    assert said.stderr.count("\n") == 1
    standard.said("scancel", said.stdout.split()[-1])


def test_a_folder_of_the_image(standard: Cluster, roots: Path) -> None:
    """/root is the image's: root's logs there are lost, and nobody else's can be."""
    refused = sbatch(roots.parent / "own", "-o", "/root/x/out")
    assert (refused.code != 0, "/root is drwx------ of root" in refused.stderr) == (True, True)
    said = standard.dshpc("sbatch", "-W", "-o", "/root/x/out", "--wrap=echo here").good()
    assert "/root/x/out lies in the cluster's container alone" in said.stderr
    assert standard.dshpc("exec", "cat", "/root/x/out").good().stdout == "here\n"


def test_what_srun_writes(standard: Cluster) -> None:
    said = standard.dshpc("srun", "-o", "/tmp/step", "true").good()
    assert "/tmp/step lies in the cluster's container alone" in said.stderr
    for output in ("none", "0", "step.out"):
        assert "alone" not in standard.dshpc("srun", "-o", output, "true").good().stderr
