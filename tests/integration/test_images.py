"""Jobs in images of their own: from files made by hand to exit codes and signals, with no way out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration import hand_images as hand
from tests.integration.cluster import Cluster, wait_until

pytestmark = pytest.mark.engines("builtin", why="with Docker it takes the setting containers")

PACKAGES = {"unsquashfs": "squashfs-tools", "mksquashfs": "squashfs-tools"}


@pytest.fixture(scope="module")
def busybox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if missing := {
        package for program, package in PACKAGES.items() if shutil.which(program) is None
    }:
        install = ["apt-get", "-q", "-y", "--no-install-recommends", "install", *missing]
        subprocess.run(install, check=True, timeout=300, env=env, stdin=subprocess.DEVNULL)
    return hand.debian_busybox(tmp_path_factory.mktemp("busybox"))


@pytest.fixture(scope="module")
def image(busybox: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    layers = [
        hand.layer(hand.busybox(busybox)),
        hand.layer([hand.member("bin/extra", b"#!/bin/sh\necho extra\n")]),
    ]
    top = tmp_path_factory.mktemp("images")
    hand.archive(top / "docker.tar", hand.docker(layers))
    return hand.archive(top / "oci.tar", hand.oci(layers, pack=hand.zstd))


def images(cluster: Cluster) -> list[str]:
    folder = cluster.work / "jobs" / str(os.getuid()) / ".images"
    return sorted(each for each in os.listdir(folder) if len(each) == 64) if folder.is_dir() else []


SEEN = "extra; echo $FROM_IMAGE $CUDA_VISIBLE_DEVICES; id -u; pwd; ls -d /dev/nvidia0; echo x >from-image"
WAYS_OUT = """
mount -t proc x /tmp; mount -t sysfs x /tmp; mount -o remount,rw /; echo x >/etc/x; ls /.dshpc/old
"""


def test_a_job_in_an_image(standard: Cluster, image: Path) -> None:
    run = ("run", "--wait", "--gpus", "1", "--image")
    first = standard.dshpc(*run, str(image), "--", "sh", "-c", SEEN).good()
    lines = first.stdout.splitlines()
    assert lines[0] == "extra"
    assert lines[1].split()[0] == "yes"
    assert lines[1].split()[1] in "01", "the job's, not the image's"
    assert lines[2] == str(os.getuid())
    assert lines[3].startswith(f"{standard.work}/jobs/{os.getuid()}/sh-")
    assert lines[4] == "/dev/nvidia0"
    assert Path(lines[3], "from-image").read_text() == "x\n"
    assert "unpacking it, once" in first.stderr

    # The same image in another form: nothing is unpacked, and exit codes are the program's
    docker = image.with_name("docker.tar")
    again = standard.dshpc(*run, str(docker), "--", "sh", "-c", "exit 7")
    assert again.code == 7
    assert "unpacking" not in again.stderr
    assert len(images(standard)) == 1
    missing = standard.dshpc(*run, str(image), "--", "python3")
    assert missing.code == 127
    assert "no such command in the image" in missing.stdout + missing.stderr


def test_no_way_out(standard: Cluster, image: Path, busybox: Path, tmp_path: Path) -> None:
    job = standard.dshpc("run", "--wait", "--image", str(image), "--", "sh", "-c", WAYS_OUT)
    said = job.stdout + job.stderr
    assert said.count("denied") + said.count("not permitted") >= 3, said
    assert "Read-only file system" in said
    # A link of the image's to the node's folders, while these are in sight: nothing is made or removed there
    hostile = [*hand.busybox(busybox), hand.link("tmp", f"/.dshpc/old{standard.work}/made")]
    led = hand.archive(tmp_path / "led.tar", hand.oci([hand.layer(hostile)]))
    job = standard.dshpc("run", "--wait", "--image", str(led), "--", "true")
    assert job.code == 126
    assert "/tmp: in the image it is a link that leads out" in job.stdout + job.stderr
    assert not (standard.work / "made").exists()
    for more in ("--pid --fork", "--net", "--cgroup", "--ipc"):
        refused = standard.said("sh", "-c", f"unshare --user {more} true 2>&1; true")
        assert "not permitted" in refused or os.getuid() != 0


def test_a_job_in_an_image_is_told_to_end(standard: Cluster, image: Path) -> None:
    script = 'trap "echo told; exit 9" TERM; echo up; while :; do sleep 0.1; done'
    job = (
        standard.dshpc("run", "--json", "--image", str(image), "--", "sh", "-c", script)
        .good()
        .report
    )
    log = Path(str(job["workspace"]), "output.log")
    wait_until(lambda: log.is_file() and "up" in log.read_text(), "it runs")
    standard.dshpc("job", "cancel", str(job["job_id"])).good()
    wait_until(lambda: "told" in log.read_text(), "its program heard it")


def test_slurms_own_option_and_a_sif(
    standard: Cluster, image: Path, busybox: Path, tmp_path: Path
) -> None:
    # Also that of the hostile image is kept, and which of the two comes first is luck
    kept = standard.work / "jobs" / str(os.getuid()) / ".images"
    (bundle,) = (
        kept / each for each in images(standard) if (kept / each / "rootfs/bin/extra").exists()
    )
    step = standard.dshpc(
        "srun", "--gres=gpu:1", f"--container={bundle}", "/bin/sh", "-c",
        "extra; echo $CUDA_VISIBLE_DEVICES; exit 5",
    )  # fmt: skip
    assert step.code == 5
    assert step.stdout.split()[0] == "extra"
    assert step.stdout.split()[1] in "01"
    none = standard.dshpc("srun", "--container=/nowhere", "true")
    assert none.code != 0
    assert "is no OCI bundle" in none.stderr

    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    shutil.copy(busybox, root / "usr/bin/busybox")
    (root / "bin").symlink_to("usr/bin")
    (root / "bin/sh").symlink_to("busybox")
    sif = hand.sif(tmp_path / "tool.sif", root)
    job = standard.dshpc("run", "--wait", "--image", str(sif), "--", "sh", "-c", "echo in; exit 4")
    assert (job.code, job.stdout) == (4, "in\n")


def test_a_method_in_an_image(standard: Cluster, image: Path) -> None:
    method = standard.folder / "methods" / "boxed"
    method.mkdir(parents=True)
    shutil.copy(image, method / "image.tar")
    (method / "main.sh").write_text("echo $FROM_IMAGE\n")
    told = {"name": "boxed", "command": "sh", "script_path": "main.sh", "image": "image.tar"}
    (method / "method.json").write_text(json.dumps(told))
    assert standard.dshpc("method", "run", "boxed", "--wait").good().stdout == "yes\n"


def test_what_is_no_image_is_told(standard: Cluster, image: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.tar").write_bytes(image.read_bytes()[:100_000])
    before = images(standard)
    for name, told in (("cut.tar", "cut off or damaged"), ("none.tar", "There is no image")):
        refused = standard.dshpc("run", "--json", "--image", str(tmp_path / name), "--", "true")
        assert refused.code != 0
        assert told in json.dumps(refused.report)
    assert images(standard) == before
