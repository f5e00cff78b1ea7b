"""The image that ours is built from: there already, pulled, or made from Debian's packages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dshpc_setup.engine.build_failures import redacted, tail
from dshpc_setup.engine.images import Image, debian_arch, docker, engine_silent, inspect
from dshpc_setup.engine.site import gather_site
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.image import debootstrap
from dshpc_setup.image.mirror import RELEASE, mirror_for
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Reporter

Origin = Literal["local", "pulled", "made"]

# A firewall that drops packets makes the engine wait for minutes; one that got an answer gets time.
_FIRST_WORD_S = 25.0  # beside the time in which the engine itself answers here
_PULL_S = 1800.0
_IMPORT_S = 600.0

# The names of the image that debootstrap can stand in for.
_REPLACEABLE = re.compile(
    rf"(?:docker\.io/)?(?:library/)?debian:(?:{RELEASE}|13(?:\.\d+)?)(?:-slim)?"
)


@dataclass(frozen=True)
class BaseImage:
    """`ref`: the name to build from; `origin`: where it came from in this run.

    `environment` is what the image itself sets.
    """

    ref: str
    image_id: str
    origin: Origin
    environment: Mapping[str, str] = field(default_factory=dict)


def local_tag(arch: str) -> str:
    """What a base image of our own making is called: "dshpc-base:trixie-amd64"."""
    return f"dshpc-base:{RELEASE}-{arch}"


def replaceable(name: str) -> bool:
    """Whether the image of that name is plain Debian trixie."""
    return _REPLACEABLE.fullmatch(name) is not None


def ensure_base(
    machine: Machine,
    facts: HostFacts,
    settings: Settings,
    reporter: Reporter,
    *,
    interactive: bool = False,
) -> BaseImage:
    """The base image, in the engine's store when this returns.

    What is there wins over the registry, the registry over making it. Raises DshpcError where it is
    not to be had; `interactive`: whether sudo may ask on the terminal.
    """
    started = machine.clock()
    found = find_base(machine, facts, settings)
    if found is not None:
        return found
    arch = _arch(facts)
    # What this machine is slow at is no silence of the registry's
    first_word_s = _FIRST_WORD_S + 2 * (machine.clock() - started)
    pulled = _pull(machine, settings.base_image, arch, reporter, first_word_s)
    if pulled.ok:
        image = inspect(machine, settings.base_image)
        if image is not None and image.arch == arch:
            return BaseImage(settings.base_image, image.id, "pulled", image.environment)
    if not replaceable(settings.base_image):
        raise _no_such_image(settings.base_image, arch, pulled)
    reporter.note(
        f"The image {settings.base_image} could not be pulled "
        f"({_reason(pulled)}): it is made from Debian's packages."
    )
    return _make(machine, facts, settings, reporter, interactive=interactive)


def find_base(machine: Machine, facts: HostFacts, settings: Settings) -> BaseImage | None:
    """The base image where it is in the engine's store already, else None; changes nothing."""
    name, arch = settings.base_image, _arch(facts)
    names = [name, local_tag(arch)] if replaceable(name) else [name]
    for each in names:
        image = inspect(machine, each)
        if image is not None and image.arch == arch:
            return BaseImage(each, image.id, "local", image.environment)
    return None


def find_image(machine: Machine, tag: str) -> BaseImage:
    """The whole image of that name, where an engine has no base image:
    it is also what passthrough is tried with; DshpcError.
    """
    found = inspect(machine, tag)
    if found is None:
        raise DshpcError(
            f"There is no image {tag} yet.",
            "",
            ("Make it: run this again without --no-build.",),
        )
    return BaseImage(tag, found.id, "local", found.environment)


def _arch(facts: HostFacts) -> str:
    """Of the engine, which may be another machine than this one."""
    return debian_arch(facts.engine.arch or facts.platform.arch or "")


def _reason(pulled: CommandResult) -> str:
    """The last words of docker's chain of causes: "no such host"."""
    return redacted(tail(pulled.text, 1)).rpartition(": ")[2] or pulled.state


def _pull(
    machine: Machine, name: str, arch: str, reporter: Reporter, first_word_s: float
) -> CommandResult:
    """`docker pull`, given up early where the registry says nothing at all."""
    reporter.progress(f"base image: pulling {name}")
    argv = [docker(machine), "pull", "--platform", f"linux/{arch}", name]
    heard: list[str] = []

    def listen(line: str) -> None:
        heard.append(line)
        reporter.progress(f"base image: {redacted(line.strip())[:80]}")

    first = machine.run(argv, deadline_s=first_word_s, on_line=listen)
    if first.state == "timeout" and heard:  # slow and not silent: layers that are done are kept
        return machine.run(argv, deadline_s=_PULL_S, on_line=listen)
    return first


def _make(
    machine: Machine,
    facts: HostFacts,
    settings: Settings,
    reporter: Reporter,
    *,
    interactive: bool,
) -> BaseImage:
    # What follows takes the modules that make images, which is seldom
    from dshpc_setup.image import builtin_layers, own_base

    arch = _arch(facts)
    with ExitStack() as stack:
        made: Path | None = None
        if (ids := own_base.find_ids(machine, arch)) is not None:
            source = builtin_layers.archive(machine, facts, settings)
            try:
                made = stack.enter_context(own_base.archive(machine, ids, source, reporter))
            except DshpcError as error:
                # An archive that a site signs itself, or that lacks a suite: debootstrap knows more of them
                reporter.note(f"{error.brief} debootstrap is tried.")
        if made is None:
            site = gather_site(machine)
            mirror = mirror_for(machine, facts.platform.os_id, settings.apt_mirror)
            plan = debootstrap.recipe(
                machine, facts, mirror, site, reporter, interactive=interactive
            )
            made = stack.enter_context(
                debootstrap.archive(machine, plan, reporter, interactive=interactive)
            )
        return _imported(machine, made, arch, reporter)


def _imported(machine: Machine, archive: Path, arch: str, reporter: Reporter) -> BaseImage:
    tag = local_tag(arch)
    reporter.progress(f"base image: importing it as {tag}")
    result = machine.run(
        [
            docker(machine),
            "import",
            "--platform",
            f"linux/{arch}",
            "--change",
            'CMD ["bash"]',
            "--message",
            f"Debian {RELEASE}, made of its packages",
            str(archive),
            tag,
        ],
        deadline_s=_IMPORT_S,
    )
    if not result.ok:
        raise engine_silent(result, f"Importing the base image as {tag}")
    image: Image | None = inspect(machine, tag)
    if image is None:
        raise engine_silent(result, f"Looking for the base image {tag} after its import")
    return BaseImage(tag, image.id, "made", image.environment)


def _no_such_image(name: str, arch: str, pulled: CommandResult) -> DshpcError:
    why = (
        f"The registry did not answer within {max(_FIRST_WORD_S, pulled.ms / 1000):.0f} s."
        if pulled.state == "timeout"
        else redacted(tail(pulled.text))
    )
    return DshpcError(
        f"The base image {name} is not there for linux/{arch} and cannot be pulled.",
        why,
        (
            "Check its name, and where its registry needs a login: docker login.",
            f"Or bring it in: docker load, then `docker image inspect {name}` shows it.",
            "Or leave --base-image out: plain Debian is made from the package mirror where no "
            "registry answers.",
        ),
    )
