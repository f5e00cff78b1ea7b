"""A project folder and a state volume that another version has left: the version of now takes them over.

tests/states/README.md says what is in the archives. Slurm's saved state holds the path of the work folder,
so it lies where it lay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dshpc_setup.image.base import BaseImage
from tests.integration.cluster import (
    ROOT,
    Cluster,
    assert_removed,
    docker,
    one_at_a_time,
    remove_folder,
    run,
    wait_until,
)
from tests.integration.leftovers import remember

STATES = sorted((ROOT / "tests/states").glob("*.tar.gz"))
PREFIX = "dshpc-test-upgrade"
TOP = Path("/var/tmp/dshpc-test-upgrade")
pytestmark = pytest.mark.engines("docker", why="all versions know Docker")


@pytest.fixture(scope="module", params=[path.name.removesuffix(".tar.gz") for path in STATES])
def left(request: pytest.FixtureRequest, base_image: BaseImage) -> Iterator[Cluster]:
    """As it was behind `dshpc down`."""
    cluster = Cluster(PREFIX, TOP / "project")
    remember(PREFIX)
    with one_at_a_time("upgrade"):
        cluster.remove()
        remove_folder(TOP)
        try:
            TOP.mkdir(mode=0o755)
            archive = ROOT / f"tests/states/{request.param}.tar.gz"
            run(["tar", "-xzf", str(archive), "-C", str(TOP), "--no-same-owner", "project"]).good()
            labels = {
                "org.dshpc.project": str(cluster.folder),
                "com.docker.compose.project": PREFIX,
                "com.docker.compose.volume": "state",
            }
            named = [f"--label={key}={value}" for key, value in labels.items()]
            docker("volume", "create", *named, f"{PREFIX}-state")
            docker(
                "run", "--rm", f"--name={PREFIX}-unpack", f"--volume={PREFIX}-state:/state",
                f"--volume={archive}:/packed.tar.gz:ro", base_image.ref,
                "tar", "-xpzf", "/packed.tar.gz", "-C", "/", "--numeric-owner", "state",
            )  # fmt: skip
            yield cluster
        finally:
            cluster.remove()
            remove_folder(TOP)
            assert_removed(cluster)


def test_a_look_changes_nothing_and_says_what_a_run_would(left: Cluster) -> None:
    before = {path: path.read_bytes() for path in left.folder.rglob("*") if path.is_file()}
    looked = run([str(ROOT / "configure-environment"), "--diff", "--dir", str(left.folder)])
    assert looked.code == 0, looked
    assert "slurm.conf" in looked.stdout
    after = {path: path.read_bytes() for path in left.folder.rglob("*") if path.is_file()}
    assert {path: after.get(path) for path in before} == before


def test_one_run_goes_on_with_settings_queue_ids_and_edits(left: Cluster) -> None:
    """No flag is given: prefix and made-up GPUs were those of an earlier run."""
    argv = [str(ROOT / "configure-environment"), "--yes", "--dir", str(left.folder)]
    done = run(argv, timeout_s=600)
    assert done.code == 0, done
    assert "Slurm is up" in done.stdout
    assert "gpu:h100:2" in done.stdout
    assert left.said("squeue", "--noheader", "--sort=i", "--format=%i %j %P %r").split("\n") == [
        "5 later debug JobHeldUser",
        "6 dated long BeginTime",
        "7_[1-3] rows debug JobHeldUser",
    ]
    config = left.said("scontrol", "show", "config")
    assert re.search(r"^MaxArraySize *= (\d+)$", config, re.M)[1] == "500"  # type: ignore[index]
    assert (left.folder / "config/cgroup.conf").read_text().endswith("# our own remark\n")


def test_what_waited_runs_and_what_has_ended_is_known(left: Cluster) -> None:
    left.said("scontrol", "release", "5")
    log = left.work / "slurm-5.out"
    wait_until(lambda: log.exists() and log.read_text() == "device 0\n", "job 5 has run")
    assert int(left.submit("--gres=gpu:1", script="true")) > 7
    listed = left.dshpc("job", "list").good().stdout
    assert "monte-carlo-pi" in listed
    assert "pi is about" in left.dshpc("job", "logs", "4").good().stdout
    assert left.dshpc("status").code == 0
    assert left.dshpc("method", "check", "train").code == 0


def test_afterwards_nothing_is_left_to_change(left: Cluster) -> None:
    argv = [str(ROOT / "configure-environment"), "--yes", "--dir", str(left.folder)]
    assert "Slurm is up" in run(argv, timeout_s=600).good().stdout
    looked = run([*argv[:1], "--diff", *argv[2:]]).good().stdout
    assert re.findall(r"^\+\+\+ (\S+)", looked, re.M) == ["config/cgroup.conf"], "the edited file"
