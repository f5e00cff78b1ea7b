"""Which packages of the distribution make a Docker engine and a compose tool.

By what the package lists really hold, not by a table of releases: names were renamed and split more
than once. Seen: Debian 12 (docker.io, docker-compose 1.29), Debian 13 (docker.io, docker-cli,
docker-compose 2.26, docker-buildx: each only recommends the next), Fedora (moby-engine, docker-cli
since 41), Alpine (docker, docker-cli-compose), Amazon Linux (docker, no compose).
"""

from __future__ import annotations

from dataclasses import dataclass

from dshpc_setup.engine.packages import Manager, available
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Platform
from dshpc_setup.machine import Machine

# Docker's own repository, where an administrator has set it up: its packages refuse to lie beside
# the distribution's, so they are taken as one set.
_OWN_REPOSITORY = {
    "engine": ("docker-ce", "docker-ce-cli", "containerd.io"),
    "compose": ("docker-compose-plugin",),
    "extras": ("docker-buildx-plugin",),
}

# Engine: all that exist of the list, and the first must. Compose: the first that exists.
_ENGINE = {
    "apt": ("docker.io", "docker-cli", "ca-certificates"),
    "dnf": ("moby-engine", "docker-cli"),
    "zypper": ("docker",),
    "pacman": ("docker",),
    "apk": ("docker", "docker-cli"),
}
# The client is a package of its own (Debian 13, Fedora 41): an engine can lie there without it.
_CLIENT = {
    "apt": ("docker-cli", "docker.io"),
    "dnf": ("docker-cli", "moby-engine"),
    "zypper": ("docker",),
    "pacman": ("docker",),
    "apk": ("docker-cli",),
}
_COMPOSE = {
    "apt": ("docker-compose-v2", "docker-compose"),
    "dnf": ("docker-compose",),
    "zypper": ("docker-compose",),
    "pacman": ("docker-compose",),
    "apk": ("docker-cli-compose",),
}
_EXTRAS = {
    "apt": ("docker-buildx",),
    "dnf": ("docker-buildx",),
    "zypper": ("docker-buildx",),
    "pacman": ("docker-buildx",),
    "apk": ("docker-cli-buildx",),
}

_DOCKER_DOCS = "https://docs.docker.com/engine/install/"


@dataclass(frozen=True)
class Choice:
    """What to install: `packages` in order; `compose` is None where the lists hold no compose."""

    packages: tuple[str, ...]
    compose: str | None


def choose(
    machine: Machine, platform: Platform, manager: Manager, *, engine: bool
) -> Choice | None:
    """The packages for an engine with compose, or for compose alone; None where there is none."""
    own = available(machine, manager, _OWN_REPOSITORY["engine"][0]) and manager.name in (
        "apt",
        "dnf",
        "zypper",
    )
    engines = _OWN_REPOSITORY["engine"] if own else _engine_names(platform, manager)
    composes = (*(_OWN_REPOSITORY["compose"] if own else ()), *_COMPOSE[manager.name])
    extras = _OWN_REPOSITORY["extras"] if own else _EXTRAS[manager.name]
    compose = next((name for name in composes if available(machine, manager, name)), None)
    if not engine:
        return Choice((compose, *client(machine, manager)), compose) if compose else None
    if not available(machine, manager, engines[0]):
        return None
    others = [name for name in (*engines[1:], *extras) if available(machine, manager, name)]
    return Choice((engines[0], *others, *([compose] if compose else [])), compose)


def client(machine: Machine, manager: Manager) -> tuple[str, ...]:
    """The package of the `docker` command, empty where the command is there."""
    if machine.which("docker"):
        return ()
    names = _CLIENT[manager.name]
    return next(((name,) for name in names if available(machine, manager, name)), ())


def _engine_names(platform: Platform, manager: Manager) -> tuple[str, ...]:
    # On Red Hat's systems `docker` is a name of Podman's shim; Amazon's is the real one.
    if manager.name == "dnf" and platform.os_id == "amzn":
        return ("docker",)
    return _ENGINE[manager.name]


def no_engine_package(platform: Platform, manager: Manager, refresh_failure: str) -> DshpcError:
    """The error for a distribution that has no Docker engine in its repositories."""
    family = {platform.os_id, *platform.os_like}
    name = platform.os_id or "This system"
    if refresh_failure:
        return DshpcError(
            "The package lists could not be fetched, so Docker cannot be installed",
            refresh_failure,
            (
                f"Check the network and the proxy, then: sudo {' '.join(manager.refresh)}",
                "Run this again.",
            ),
        )
    if manager.name == "dnf" and family & {"rhel", "centos", "rocky", "almalinux", "ol"}:
        repo = "rhel" if platform.os_id == "rhel" else "centos"
        return DshpcError(
            f"{name} has no Docker engine among its packages",
            "Red Hat's distributions bring Podman only. Docker's own repository has the engine.",
            (
                "sudo dnf -y install dnf-plugins-core",
                "sudo dnf config-manager --add-repo "
                f"https://download.docker.com/linux/{repo}/docker-ce.repo",
                "Run this again: it installs docker-ce from there.",
                f"More: {_DOCKER_DOCS}",
            ),
        )
    hint = {
        "apt": "On Ubuntu the component universe may be off: sudo add-apt-repository universe",
        "apk": "Docker is in the community repository: enable it in /etc/apk/repositories",
        "zypper": "On SUSE Linux Enterprise the Containers module may be off: see SUSEConnect -l",
        "pacman": "The package lists may be old: sudo pacman -Syu",
        "dnf": "The repository that has moby-engine may be off: dnf repolist --all",
    }[manager.name]
    return DshpcError(
        f"{name} has no Docker engine in the package repositories that are on",
        f"{manager.program} knows none of: {', '.join(_ENGINE[manager.name])}, docker-ce.",
        (hint, f"Or install Docker yourself: {_DOCKER_DOCS}", "Then run this again."),
    )


def no_compose_package(platform: Platform, manager: Manager | None) -> DshpcError:
    """The error for an engine without a compose tool, on a system that has none to install."""
    return DshpcError(
        "Docker is here, but neither `docker compose` nor `docker-compose`",
        f"{platform.os_id or 'This system'} has no package for it"
        + (f" that {manager.program} knows." if manager else "."),
        (
            "Put the compose plugin into ~/.docker/cli-plugins/docker-compose (executable): "
            "https://docs.docker.com/compose/install/linux/",
            "Then run this again.",
        ),
    )
