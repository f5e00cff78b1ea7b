"""How declaration, lock and image stand to each other, and making the lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dshpc_setup import probes
from dshpc_setup.debian import base as debian_base
from dshpc_setup.engine.images import ASK_S, debian_arch, docker, engine_silent, inspect
from dshpc_setup.engine.site import SiteFiles, gather_site
from dshpc_setup.engine_client import BUILTIN, PODMAN
from dshpc_setup.environment import debian, declaration, locking
from dshpc_setup.environment.layer import LABEL
from dshpc_setup.environment.model import FOLDER, LOCK, DebianPackage, Declaration, Lock
from dshpc_setup.environment.target import PYTHON
from dshpc_setup.errors import DshpcError
from dshpc_setup.image.base import ensure_base
from dshpc_setup.image.mirror import mirror_for
from dshpc_setup.machine import Machine
from dshpc_setup.machine.no_answer import answered
from dshpc_setup.project.folder import Project
from dshpc_setup.terminal.reporter import Reporter

NEXT_ADD = "dshpc env add NAME"
NEXT_LOCK = "dshpc env lock"
NEXT_BUILD = "configure-environment"


@dataclass(frozen=True)
class Standing:
    """`image`: the lock's digest that the image was built with, "" for none; None: no such image."""

    declared: Declaration
    lock: Lock | None
    differences: tuple[str, ...]
    image: str | None

    @property
    def next_step(self) -> str | None:
        """What to type; None where all is alike."""
        if self.declared.is_empty:
            return NEXT_BUILD if self.image else None
        if self.lock is None or self.differences:
            return NEXT_LOCK
        return None if self.image == self.lock.digest else NEXT_BUILD

    @property
    def is_in_image(self) -> bool:
        """Whether the image holds what is locked; of what is declared alone it holds nothing."""
        if self.lock is None:
            return self.declared.is_empty and self.image == ""
        return self.image == self.lock.digest

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "dshpc.environment/1",
            "declared": self.declared.texts(),
            "locked": None if self.lock is None else self.lock.to_json(),
            "differences": list(self.differences),
            "in_image": self.is_in_image,
            "next": self.next_step,
        }


def look(machine: Machine, project: Project) -> Standing:
    """How things stand; the engine is asked for the image's label where a cluster was configured."""
    declared = declaration.load(project.folder) or Declaration()
    lock = locking.read(project.folder)
    differs = locking.differences(declared, lock) if lock is not None else []
    return Standing(declared, lock, tuple(differs), _in_image(machine, project))


def _in_image(machine: Machine, project: Project) -> str | None:
    container = project.runtime().get("container")
    if not isinstance(container, str) or machine.which("docker") is None:
        return None
    # The newest of the tags (one for each GPU vendor) is the one in use.
    asked = machine.run(
        [docker(machine), "image", "ls", "--quiet", "--no-trunc", container], deadline_s=ASK_S
    )
    newest = asked.stdout.split() if answered(asked, "whether there is an image").ok else []
    image = inspect(machine, newest[0]) if newest else None
    return None if image is None else image.labels.get(LABEL, "")


def make_lock(machine: Machine, project: Project, engine: str, reporter: Reporter) -> Lock | None:
    """Resolve all that is declared and write the lock; raises DshpcError, the old lock then stays.

    Where nothing is declared any more, the lock goes: None.
    """
    declared = declaration.load(project.folder)
    if declared is None or declared.is_empty:
        if (project.folder / FOLDER / LOCK).exists():
            with project.lock():
                locking.forget(project)
            return None
        raise DshpcError(
            f"Nothing is declared in {project.folder / FOLDER}.",
            "",
            (f"Declare what methods need: {NEXT_ADD}",),
        )
    with project.lock():
        site = gather_site(machine)
        architecture = engine_architecture(machine)
        packages: tuple[DebianPackage, ...] = ()
        if declared.apt or declared.r:
            packages = _lock_debian(machine, project, engine, site, declared, reporter)
        wheels = locking.lock_python(
            machine, project, declared.python, (architecture, site), reporter.progress
        )
        lock = Lock(PYTHON, architecture, declared.texts(), wheels, packages)
        locking.write(project, lock)
        locking.forget_others(project, lock)
    return lock


def _lock_debian(
    machine: Machine,
    project: Project,
    engine: str,
    site: SiteFiles,
    declared: Declaration,
    reporter: Reporter,
) -> tuple[DebianPackage, ...]:
    facts = probes.gather_surely(machine, reporter.progress)
    settings = project.settings(machine.env)
    if engine in (BUILTIN, PODMAN):  # whose image is made of a root filesystem of ours
        reporter.progress("packages: asking Debian")
        from dshpc_setup.image import builtin_layers

        from_ = builtin_layers.archive(machine, facts, settings)
        names = debian.names_of(declared)
        return debian.chosen(declared, debian_base.offered(machine, from_, names))
    base = ensure_base(machine, facts, settings, reporter)
    reporter.progress("packages: asking Debian")
    made_here = base.ref.startswith("dshpc-base:") and not settings.apt_mirror
    mirror = mirror_for(machine, facts.platform.os_id, settings.apt_mirror)
    name = mirror.main if mirror is not None and not made_here else ""
    return debian.lock(machine, base.ref, name, site, declared)


def engine_architecture(machine: Machine) -> str:
    """Of the engine, which may be another machine than this one: "amd64" or "arm64"."""
    asked = machine.run(
        [docker(machine), "version", "--format", "{{.Server.Arch}}"], deadline_s=ASK_S
    )
    if not asked.ok:
        raise engine_silent(asked, "Asking for the processor that packages are chosen for")
    return debian_arch(asked.stdout.strip())


def lines(now: Standing) -> list[str]:
    """For people: each package with what is declared and what is locked."""
    if now.declared.is_empty and now.next_step is None:
        return [f"Nothing is declared. Declare what methods need: {NEXT_ADD}"]
    texts = [f"declared  {kind:<7} {each}" for kind, all_ in now.declared.texts().items()
             for each in all_]  # fmt: skip
    if now.lock is None:
        texts.append("locked    nothing yet")
    else:
        texts += [f"locked    python  {each.name} {each.version}" for each in now.lock.wheels]
        texts += [
            f"locked    {each.wanted_by:<7} {each.name} {each.version}" for each in now.lock.debian
        ]
    texts += [f"differs   {each}" for each in now.differences]
    if now.image is None:
        texts.append("image     none yet")
    elif now.lock is not None and now.image == now.lock.digest:
        texts.append("image     has what is locked")
    else:
        texts.append("image     was built from " + ("another lock" if now.image else "no lock"))
    if now.next_step is not None:
        texts.append(f"Next: {now.next_step}")
    return texts
