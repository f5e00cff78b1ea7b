"""What a job takes from its method, as the container has it: folder, words, files."""

from __future__ import annotations

import os
from collections.abc import Mapping

from dshpc_setup import resources as shipped
from dshpc_setup.jobs import environments, images
from dshpc_setup.jobs.staging import Incoming
from dshpc_setup.methods import store
from dshpc_setup.methods.model import Method, Value


def folder(method: Method, project: str, incoming: Incoming) -> str:
    """Its folder: the project's methods lie at the same path there, shipped ones in the image. One that
    jobs do not see is copied, as inputs are; raises DshpcError where it cannot be."""
    own = os.path.join(project, store.FOLDER)
    for top in (own, os.path.realpath(own)):
        if str(method.folder).startswith(f"{top}/"):
            return own + str(method.folder)[len(top) :]
    if method.folder.parent.resolve() == shipped.methods().resolve():
        return f"{shipped.METHODS_IN_IMAGE}/{method.folder.name}"
    return incoming.take_method(str(method.folder))


def argv(method: Method, folder: str) -> tuple[str, ...]:
    """The words that run its script, which lies in that folder."""
    return (*method.command, f"{folder}/{method.script_path}")


def environment(method: Method, incoming: Incoming) -> str | None:
    """The venv that it runs in, made where it is not there yet; None where it declares none."""
    return environments.ready(str(method.folder / method.env), incoming) if method.env else None


def image(method: Method, incoming: Incoming) -> str | None:
    """The image that it runs in, unpacked where it is not yet; None where it names none."""
    if not method.image:
        return None
    beside = method.folder / method.image
    return images.ready(str(beside) if beside.exists() else method.image, incoming)


def with_files(method: Method, given: Mapping[str, Value], incoming: Incoming) -> dict[str, Value]:
    """The parameters, with each file where the job finds it; raises DshpcError where it is none."""
    files = {each.name for each in method.parameters if each.type == "file"}
    return {
        name: incoming.take(value) if name in files and isinstance(value, str) else value
        for name, value in given.items()
    }
