"""Images of jobs: unpacked once by their content, for their user, where jobs may run in them at all."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.jobs import images, launch
from dshpc_setup.jobs.staging import Incoming
from tests.integration import hand_images as hand

UID = os.getuid()
BUILTIN = {"engine": "builtin", "images": True}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work/jobs").mkdir(parents=True)
    (tmp_path / f"work/jobs/{UID}").mkdir(0o700)
    return tmp_path / "work"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return hand.archive(tmp_path / "a.tar", hand.oci([hand.layer([hand.member("x", b"1")])]))


def ready(work: Path, named: Path | str, *, dry: bool = False) -> str:
    return images.ready(str(named), Incoming(str(work), dry=dry, runtime=BUILTIN))


def unpacked(work: Path) -> list[str]:
    return [
        each for each in os.listdir(work / f"jobs/{UID}/.images") if not each.startswith(".known")
    ]


def test_once_whatever_its_file_is_called(work: Path, image: Path, tmp_path: Path) -> None:
    first = ready(work, image)
    assert first == f"{work}/jobs/{UID}/.images/{Path(first).name}"
    assert Path(first, "rootfs/x").read_bytes() == b"1"
    before = Path(first, "rootfs/x").stat().st_ino
    copy = hand.archive(tmp_path / "b.tar", hand.docker([hand.layer([hand.member("x", b"1")])]))
    assert ready(work, copy) == first
    assert ready(work, image) == first
    assert Path(first, "rootfs/x").stat().st_ino == before
    assert len(unpacked(work)) == 1
    # Another content under the same name is another image
    hand.archive(image, hand.oci([hand.layer([hand.member("x", b"2")])]))
    second = ready(work, image)
    assert Path(second, "rootfs/x").read_bytes() == b"2"


def test_what_nobody_has_used_for_long_goes(work: Path, image: Path, tmp_path: Path) -> None:
    first = ready(work, image)
    os.utime(first, (1, 1))
    other = hand.archive(tmp_path / "b.tar", hand.oci([hand.layer([hand.member("y")])]))
    second = ready(work, other)
    assert not os.path.exists(first)
    assert abs(os.stat(second).st_mtime - time.time()) < 60
    assert ready(work, image) == first, "it is unpacked again"


def test_nothing_stays_of_one_that_cannot_be_had(work: Path, image: Path) -> None:
    image.write_bytes(image.read_bytes()[:4000])
    with pytest.raises(DshpcError, match="cut off"):
        ready(work, image)
    assert unpacked(work) == []
    for name in ("none.tar", "-x", "a b", "", "no/such/file.sif"):
        with pytest.raises(DshpcError, match="There is no image") as caught:
            ready(work, name)
        assert caught.value.exit_code == Exit.USAGE
    with pytest.raises(DshpcError, match="has no images of others"):
        ready(work, "debian:trixie")


def test_a_dry_run_unpacks_nothing(work: Path, image: Path) -> None:
    ready(work, image, dry=True)
    assert not (work / f"jobs/{UID}/.images").exists()


def test_where_jobs_may_not_or_root_would(work: Path, image: Path) -> None:
    with pytest.raises(DshpcError, match="the setting containers is off") as caught:
        images.ready(str(image), Incoming(str(work)))
    assert "dshpc config set containers on" in str(caught.value.resolution)
    with pytest.raises(DshpcError, match="by the user whom it is for"):
        images.ready(str(image), Incoming(str(work), (UID + 1, UID + 1), runtime=BUILTIN))


def test_what_a_job_in_an_image_runs() -> None:
    request = {"argv": ["a", "b'c"], "image": "/w/i", "resources": {}}
    assert launch.words(request, {}) == [images.RUN, "/w/i", "a", "b'c"]
    steps = launch.words({**request, "resources": {"tasks": 2}}, {})
    assert steps[:3] == ["srun", "--container=/w/i", "--"]
    assert "'" not in json.dumps(steps)


def test_the_cluster_is_asked_before_an_image_is_unpacked_and_not_for_one_that_is(
    work: Path, image: Path
) -> None:
    def down() -> None:
        raise DshpcError("The cluster is down.")

    asked = Incoming(str(work), runtime=BUILTIN, foresee=down)
    with pytest.raises(DshpcError, match="The cluster is down"):
        images.ready(str(image), asked)
    assert unpacked(work) == []
    images.ready(str(image), Incoming(str(work), runtime=BUILTIN, foresee=lambda: None))
    images.ready(str(image), Incoming(str(work), runtime=BUILTIN, foresee=down))
