"""From whatever the machine has to an engine and a compose tool that answer, or to clear words.

The rules, and why, are in docs/decisions/0002-engine-and-root.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from dshpc_setup.engine import daemon, distribution, packages, privilege, refusals
from dshpc_setup.facts import Engine, HostFacts, Platform
from dshpc_setup.machine import Machine
from dshpc_setup.terminal.reporter import Reporter


@dataclass(frozen=True)
class EngineOutcome:
    """What was done to the machine; where `changed`, the facts have to be gathered again."""

    installed: tuple[str, ...] = ()
    started: bool = False

    @property
    def changed(self) -> bool:
        return self.started or bool(self.installed)


def ensure_engine(
    machine: Machine, facts: HostFacts, reporter: Reporter, *, interactive: bool
) -> EngineOutcome:
    """Install and start what is missing, asking first; raises `DshpcError` where that cannot be.

    `interactive` says whether sudo may ask for a password. After a change gather the facts again.
    """
    engine, platform = facts.engine, facts.platform
    if engine.state == "present":
        if engine.compose is not None:
            return EngineOutcome()
        added = _add_compose(machine, platform, reporter, interactive)
        return EngineOutcome(installed=added)
    if elsewhere := refusals.endpoint_elsewhere(machine, engine):
        raise refusals.dead_endpoint(elsewhere, engine)
    if engine.state == "denied":
        raise refusals.denied(machine, engine)
    if engine.state == "timeout":
        raise refusals.hangs(engine)
    if engine.state in ("error", "unsupported") and daemon.running(machine) is not None:
        raise refusals.answers_nonsense(engine)
    if platform.kind == "macos":
        raise refusals.macos(machine)
    if platform.kind == "wsl1":
        raise refusals.wsl1()
    if platform.kind == "wsl2" and refusals.desktop_client(machine):
        raise refusals.desktop_off(engine)
    if daemon.installed(machine):
        return _start(machine, platform, reporter, interactive)
    if refusals.podman_shim(machine):
        raise refusals.podman()
    return _install_and_start(machine, platform, reporter, interactive)


def _start(
    machine: Machine, platform: Platform, reporter: Reporter, interactive: bool
) -> EngineOutcome:
    if not reporter.ask("Docker is installed but does not run. Start it?"):
        raise refusals.refused("Docker is installed but does not run", _start_by_hand(machine))
    tool = packages.manager(machine)
    client = distribution.client(machine, tool) if tool else ()
    packages.install(machine, platform, client, reporter, interactive=interactive)
    daemon.start(machine, reporter, interactive=interactive)
    reporter.note(f"Started Docker ({daemon.starter(machine)}).")
    _raise_where_denied(machine)
    return EngineOutcome(installed=client, started=True)


def _install_and_start(
    machine: Machine, platform: Platform, reporter: Reporter, interactive: bool
) -> EngineOutcome:
    tool = packages.manager(machine)
    if tool is None:
        raise refusals.no_manager(platform)
    choice = distribution.choose(machine, platform, tool, engine=True)
    listed = " ".join(choice.packages) if choice else "its packages"
    question = f"Docker is not installed. Install it ({tool.program}: {listed}) and start it?"
    by_hand = _install_by_hand(machine, tool, choice)
    if not reporter.ask(question):
        raise refusals.refused("Docker is not installed", by_hand)
    if privilege.can_be_root(machine, interactive) == "no":
        raise privilege.needs_root(machine, by_hand)
    if choice is None or choice.compose is None:  # lists that were never fetched hold nothing
        failure = packages.refresh(machine, tool, reporter, interactive=interactive)
        choice = distribution.choose(machine, platform, tool, engine=True)
        if choice is None:
            raise distribution.no_engine_package(platform, tool, failure)
    packages.install(machine, platform, choice.packages, reporter, interactive=interactive)
    if daemon.answers(machine) is None:  # Debian's packages start it where an init system runs
        daemon.start(machine, reporter, interactive=interactive)
    how = daemon.starter(machine)
    reporter.note(f"Installed {' '.join(choice.packages)} and started Docker ({how}).")
    if choice.compose is None:
        raise distribution.no_compose_package(platform, tool)
    _raise_where_denied(machine)
    return EngineOutcome(installed=choice.packages, started=True)


def _raise_where_denied(machine: Machine) -> None:
    """What sudo installed and started is not yet for everybody."""
    if daemon.answers(machine) == "denied":
        raise refusals.denied(machine, Engine("denied"))


def _add_compose(
    machine: Machine, platform: Platform, reporter: Reporter, interactive: bool
) -> tuple[str, ...]:
    tool = packages.manager(machine) if platform.kind in ("linux", "wsl2") else None
    if tool is None:
        raise distribution.no_compose_package(platform, None)
    choice = distribution.choose(machine, platform, tool, engine=False)
    by_hand = [list(packages.manager_by_hand(tool)) + list(choice.packages if choice else ())]
    if not reporter.ask("Docker Compose is not installed. Install it?"):
        raise refusals.refused("Docker Compose is not installed", by_hand if choice else [])
    if privilege.can_be_root(machine, interactive) == "no":
        raise privilege.needs_root(machine, by_hand if choice else [list(tool.refresh)])
    if choice is None:
        packages.refresh(machine, tool, reporter, interactive=interactive)
        choice = distribution.choose(machine, platform, tool, engine=False)
    if choice is None:
        raise distribution.no_compose_package(platform, tool)
    packages.install(machine, platform, choice.packages, reporter, interactive=interactive)
    reporter.note(f"Installed {' '.join(choice.packages)}.")
    return choice.packages


def _install_by_hand(
    machine: Machine, tool: packages.Manager, choice: distribution.Choice | None
) -> list[list[str]]:
    names = list(choice.packages) if choice else ["docker.io" if tool.name == "apt" else "docker"]
    first = [list(tool.refresh)] if choice is None else []
    return [*first, [*packages.manager_by_hand(tool), *names], *_start_by_hand(machine)]


def _start_by_hand(machine: Machine) -> list[list[str]]:
    match daemon.starter(machine):
        case "systemd":
            return [["systemctl", "enable", "--now", "docker"]]
        case "openrc":
            return [["rc-update", "add", "docker"], ["rc-service", "docker", "start"]]
        case "snap":
            return [["snap", "start", "--enable", "docker"]]
        case "direct":
            return [["sh", "-c", f"dockerd >>{daemon.LOG} 2>&1 &"]]
