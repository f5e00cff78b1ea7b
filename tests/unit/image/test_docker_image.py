"""An image of a file becomes Docker's: what it says of itself is read strictly, and goes along."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from dshpc_setup.builtin import image_file
from dshpc_setup.errors import DshpcError
from dshpc_setup.image import docker_image
from dshpc_setup.project.folder import Project
from tests.unit.engine.fake import Answer, FakeMachine, Listener

TOLD = {
    "schema": image_file.SCHEMA, "ref": "lab-slurm:none", "labels": {"org.dshpc.gpu-type": "none"},
    "environment": {"PATH": "/bin"}, "entrypoint": ["/init"],
}  # fmt: skip
X86, ARM = (b"\x7fELF\2\1\1" + bytes(11) + bytes([number, 0]) for number in (62, 183))


def archive(path: Path, *members: tuple[str, bytes]) -> Path:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as made:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    path.write_bytes(gzip.compress(plain.getvalue()))
    return path


def told(**more: object) -> tuple[str, bytes]:
    return f"./{image_file.FILE}", json.dumps({**TOLD, **more}).encode()


def machine(there: dict[str, str] | None, folder: Path) -> FakeMachine:
    image = {"Id": "sha256:1", "Architecture": "amd64", "Size": 1, "Config": {"Labels": there}}
    found = Answer(json.dumps(image)) if there is not None else Answer("", 1, "No such image")
    return FakeMachine(
        programs={"docker"},
        env={"XDG_CACHE_HOME": str(folder)},
        commands={
            "/usr/bin/docker image inspect": found,
            "/usr/bin/docker import": Answer("sha256:2"),
        },
    )


def imported(fake: FakeMachine) -> list[tuple[str, ...]]:
    return [argv for argv in fake.ran if argv[1] == "import"]


def test_it_is_imported_once_with_what_it_says(tmp_path: Path) -> None:
    file = archive(tmp_path / "x.tar.gz", ("bin/sh", X86), told(ref="old"), told())
    fake = machine(None, tmp_path)
    docker_image.load(fake, "lab-slurm:none", file, Listener())
    (argv,) = imported(fake)
    assert argv[-1] == "lab-slurm:none"
    assert 'ENTRYPOINT ["/init"]' in argv
    assert "ENV PATH=/bin" in argv
    assert "LABEL org.dshpc.gpu-type=none" in argv
    (loaded,) = (word for word in argv if image_file.LOADED in word)
    again = machine({image_file.LOADED: loaded.partition("=")[2]}, tmp_path)
    docker_image.load(again, "lab-slurm:none", file, Listener())
    assert imported(again) == []
    assert list((tmp_path / "dshpc").iterdir()) == []


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([("bin/sh", X86)], "no image of dsHPC's"),
        ([("bin/sh", X86), (image_file.FILE, b"{}")], "no image of dsHPC's"),
        ([("usr/bin/sh", ARM), told()], "another processor: aarch64"),
    ],
    ids=["without", "damaged", "arm"],
)
def test_what_is_no_image_for_this_machine(
    tmp_path: Path, members: list[tuple[str, bytes]], words: str
) -> None:
    fake = machine(None, tmp_path)
    with pytest.raises(DshpcError, match=words):
        docker_image.load(fake, "x", archive(tmp_path / "x.tar.gz", *members), Listener())
    assert imported(fake) == []


def test_zeros_that_would_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dshpc_setup.builtin.rootfs.most_bytes", lambda _: 1 << 20)
    file = archive(tmp_path / "x.tar.gz", ("zeros", bytes(4 << 20)), told())
    with pytest.raises(DshpcError, match="far too large"):
        docker_image.load(machine(None, tmp_path), "x", file, Listener())


def test_one_that_docker_has_built_is_built_as_before(tmp_path: Path) -> None:
    project = Project(tmp_path)
    assert not docker_image.came(machine(None, tmp_path), project, "x")
    assert not docker_image.came(machine({"org.dshpc.build": "1"}, tmp_path), project, "x")
    assert docker_image.came(machine({image_file.LOADED: "1"}, tmp_path), project, "x")
    other = {image_file.LOADED: "1", "org.dshpc.environment": "of-other-packages"}
    assert not docker_image.came(machine(other, tmp_path), project, "x")
