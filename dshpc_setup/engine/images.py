"""The docker command line as this room uses it: the program, the context, what an image is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Exit, words_of
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.machine.no_answer import answered, in_words

ASK_S = 20.0  # an engine that is alive answers in milliseconds

# `uname -m` and Docker's own names -> Debian's name, which is Docker's as well.
_DEBIAN_ARCH = {
    "x86_64": "amd64",
    "amd64": "amd64",
    "aarch64": "arm64",
    "arm64": "arm64",
}


@dataclass(frozen=True)
class Image:
    """An image in the engine's store; `size` in bytes, `arch` as Debian names it."""

    id: str
    arch: str
    size: int
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()  # "p-slurm:none"; () once another image has taken them all


def docker(machine: Machine) -> str:
    """The docker client's path. It honours contexts, DOCKER_HOST and the user's credentials."""
    path = machine.which("docker")
    if path is None:
        raise DshpcError(
            "The docker command was not found.",
            "The image is built with the docker command line client; PATH holds none.",
            ("Install Docker's command line client (docker-cli or docker.io) and run again.",),
        )
    return path


def debian_arch(arch: str) -> str:
    """ "x86_64" -> "amd64"; raises DshpcError where the image does not exist for it."""
    known = _DEBIAN_ARCH.get(arch.lower())
    if known is None:
        raise DshpcError(
            f"The Docker engine's processor type, {arch}, is not supported.",
            "The image is made for amd64 (x86_64) and arm64 (aarch64).",
            ("Use a machine, or a Docker context, of one of these types.",),
        )
    return known


def inspect(machine: Machine, ref: str) -> Image | None:
    """The image of that name or id in the engine's store, None where there is none."""
    result = machine.run(
        [docker(machine), "image", "inspect", "--format", "{{json .}}", ref], deadline_s=ASK_S
    )
    if not result.ok:
        if re.search(r"no such (image|object)|image not known", result.text, re.IGNORECASE):
            return None
        raise engine_silent(result, f"Looking for the image {ref}")
    return _image(result.stdout)


def _image(text: str) -> Image:
    """Raises DshpcError for what is no answer of an engine."""
    try:
        value = foreign.value(text)
        config = value.get("Config") or {}
        return Image(
            id=str(value["Id"]),
            arch=_DEBIAN_ARCH.get(str(value["Architecture"]), str(value["Architecture"])),
            size=int(value["Size"]),
            labels=dict(config.get("Labels") or {}),
            environment=dict(item.split("=", 1) for item in config.get("Env") or () if "=" in item),
            names=tuple(map(str, value.get("RepoTags") or ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        brief = "The engine's answer about an image cannot be read."
        raise DshpcError(brief, words_of(error), ("dshpc doctor",)) from None


def engine_silent(result: CommandResult, doing: str) -> DshpcError:
    """The error for a docker command that got no sensible answer."""
    if result.state == "timeout":
        return DshpcError(
            f"{doing}: {in_words(result)}.",
            result.text,
            ("See whether `docker info` answers; restart the engine if it hangs.",),
            Exit.INCOMPLETE,
        )
    return DshpcError(
        f"{doing}: the Docker engine refused.",
        result.text,
        ("See whether `docker info` answers, and what it says.",),
    )


def context_name(machine: Machine) -> str:
    """The docker context in force; "default" for clients that know no contexts."""
    asked = machine.run([docker(machine), "context", "show"], deadline_s=ASK_S)
    result = answered(asked, "which docker context is in force")
    return result.stdout.strip() if result.ok and result.stdout.strip() else "default"


def client_version(machine: Machine) -> tuple[int, int]:
    """Major and minor of the docker client; (0, 0) where it does not say."""
    asked = machine.run([docker(machine), "--version"], deadline_s=ASK_S)
    result = answered(asked, "which version the docker command has")
    found = re.search(r"(\d+)\.(\d+)", result.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)
