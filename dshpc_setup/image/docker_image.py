"""The cluster's image in Docker's store, of a file that another machine's cluster has saved: imported."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

from dshpc_setup import codec
from dshpc_setup.builtin import cache, image_file, rootfs
from dshpc_setup.documents import foreign
from dshpc_setup.engine.images import Image, docker, inspect
from dshpc_setup.environment.layer import LABEL as LAYER_LABEL
from dshpc_setup.environment.layer import current_lock
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import atomic
from dshpc_setup.machine import Machine
from dshpc_setup.machine.elf import HEAD_BYTES, architecture_of
from dshpc_setup.podman_client.words import image_changes
from dshpc_setup.project.folder import Project
from dshpc_setup.terminal.reporter import Reporter

_IMPORT_S = 600.0
_MOST_TOLD = 1 << 20
_PROGRAMS = ("bin", "sbin", "usr/bin", "usr/sbin")


def load(machine: Machine, tag: str, file: Path, reporter: Reporter) -> None:
    """The image of a file under that name, imported where it is not there yet; DshpcError."""
    digest = rootfs.digest_of(file)
    there = inspect(machine, tag)
    if there is not None and there.labels.get(image_file.LOADED) == digest:
        return
    place = cache.folder(machine.env)
    atomic.make_folder(place, mode=0o700)
    try:
        with tempfile.TemporaryDirectory(prefix=".docker-", dir=place) as made:
            tar = Path(made) / "root.tar"
            reporter.progress(f"image: unpacking {file.name}")
            rootfs.write_tar(machine, file, tar)
            told = _described(tar, file, machine.system[2])
            labels = {**told.labels, image_file.LOADED: digest}
            changes = image_changes(labels, told.environment, told.entrypoint)
            reporter.progress("image: importing it into Docker")
            argv = [docker(machine), "import", *changes, str(tar), tag]
            done = machine.run(argv, deadline_s=_IMPORT_S)
    except OSError as error:
        raise atomic.write_error(error, place) from None
    if not done.ok:
        raise DshpcError(
            "Docker could not import the image.",
            done.text or done.state,
            ("See whether the disk is full: docker system df", "Then run this again."),
        )


def came(machine: Machine, project: Project, tag: str) -> bool:
    """Whether the image of that name came as a file, with the packages that the project declares now."""
    there = inspect(machine, tag) if machine.which("docker") else None
    if there is None or image_file.LOADED not in there.labels:
        return False
    return _has_packages(there, project)


def _has_packages(there: Image, project: Project) -> bool:
    lock = current_lock(project.folder, there.arch)
    return there.labels.get(LAYER_LABEL) == (lock.digest if lock is not None else None)


def _described(tar: Path, file: Path, here: str) -> image_file.Described:
    """What the image says of itself; DshpcError for another machine's, and for what is no image of ours."""
    text, arch = "", None
    try:
        with tarfile.open(tar, "r:") as members:
            for member in members:
                name = member.name.removeprefix("./")
                if not member.isreg():
                    continue
                content = members.extractfile(member)
                if content is not None and name == image_file.FILE:  # the last one counts
                    text = content.read(_MOST_TOLD).decode("utf-8")
                elif content is not None and arch is None and name.rpartition("/")[0] in _PROGRAMS:
                    arch = architecture_of(content.read(HEAD_BYTES))
        told = codec.from_json(image_file.Described, foreign.value(text), image_file.SCHEMA)
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise DshpcError(
            f"{file} is no image of dsHPC's.",
            f"{image_file.FILE} in it: {error}",
            ("Make one on a machine with a cluster: dshpc image save FILE",),
        ) from None
    if arch is not None and arch != here:
        raise DshpcError(
            f"The image in {file} is for another processor: {arch}.",
            f"This machine is {here}.",
            ("Leave --image-file out: the image is made here then.",),
        )
    return told
