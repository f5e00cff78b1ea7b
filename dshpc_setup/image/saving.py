"""The cluster's image as a file: its root filesystem, and what the engine knew of it beside that."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dshpc_setup import codec
from dshpc_setup.builtin import image_file
from dshpc_setup.documents import foreign
from dshpc_setup.engine.containers import engine_error, inspect
from dshpc_setup.engine_client import BUILTIN, DOCKER
from dshpc_setup.errors import DshpcError, usage_error, words_of
from dshpc_setup.files import atomic
from dshpc_setup.image import compressing
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.terminal.reporter import Reporter

SCHEMA = "dshpc.image-save/1"
_SAVE_S = 900.0


@dataclass(frozen=True)
class Saved:
    image: str
    file: str
    size: int  # bytes

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "exit_code": 0,
            "image": self.image,
            "file": self.file,
            "bytes": self.size,
        }


def save(machine: Machine, project: Project, file: Path, reporter: Reporter) -> Saved:
    """The image that the cluster's container was made from, packed as the file's name says, in one step.

    Raises DshpcError where there is no container, and where the file is there already or cannot be written.
    """
    suffix = compressing.suffix_of(file.name)
    if suffix is None:
        names = ", ".join(f"NAME{each}" for each in compressing.SUFFIXES)
        raise usage_error(
            f"{file.name!r} does not say how the image is to be packed.",
            "",
            f"Name the file as one of these: {names}",
        )
    if os.path.lexists(file):
        raise usage_error(f"{file} is there already.", "", "Name another file.")
    name = str(project.runtime().get("container"))
    container = inspect(machine, name)
    if container is None:
        raise DshpcError(
            f"There is no container {name}, whose image could be saved.",
            "",
            ("Start it: dshpc up",),
        )
    reporter.progress(f"saving {container.image}")
    try:
        with tempfile.TemporaryDirectory(prefix=".dshpc-image-", dir=file.parent) as made:
            tar = Path(made) / "root.tar"
            _export(machine, project, container.image, tar)
            packed = Path(made) / "packed"
            compressing.compress(tar, packed, suffix, machine.system[2])
            os.rename(packed, file)
    except OSError as error:
        raise atomic.write_error(error, file) from None
    return Saved(container.image, str(file), file.stat().st_size)


def _export(machine: Machine, project: Project, ref: str, tar: Path) -> None:
    if project.runtime().get("engine") == BUILTIN:
        _done(machine, ["docker", "image", "save", "--output", str(tar), "--", ref], ref)
        return
    told = tar.with_name("image.json")
    told.write_text(json.dumps(codec.to_json(_config(machine, ref), image_file.SCHEMA), indent=1))
    told.chmod(0o644)
    name = _done(machine, DOCKER.create(ref), ref).strip()
    try:
        # In the file system itself: an image that came as a file has one there, and Docker takes no tar with
        # a name twice
        _done(machine, DOCKER.put(name, str(told), f"/{image_file.FILE}"), ref)
        _done(machine, DOCKER.export(name, str(tar)), ref)
    finally:
        machine.run(DOCKER.remove(name), deadline_s=_SAVE_S)


def _config(machine: Machine, ref: str) -> image_file.Described:
    told = _done(machine, DOCKER.inspect("image", ref), ref)
    try:
        (value,) = foreign.value(told)
        config = value["Config"]
        return image_file.Described(
            ref,
            dict(config.get("Labels") or {}),
            dict(item.split("=", 1) for item in config.get("Env") or () if "=" in item),
            tuple(config.get("Entrypoint") or ()),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        brief = f"The engine's answer about the image {ref} cannot be read."
        raise DshpcError(brief, words_of(error), ("dshpc doctor",)) from None


def _done(machine: Machine, argv: list[str], ref: str) -> str:
    done = machine.run(argv, deadline_s=_SAVE_S)
    if not done.ok:
        raise engine_error(done, f"The image {ref} could not be saved")
    return done.stdout
