"""Why no engine is installed or used here, in words with the steps to take.

Recognising each case asks the machine; deciding is in install.py.
"""

from __future__ import annotations

import re
import shlex
from urllib.parse import urlsplit

from dshpc_setup import remedies
from dshpc_setup.engine import packages, privilege
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Engine, HostFacts, Platform
from dshpc_setup.machine import Machine
from dshpc_setup.machine.no_answer import answered

_ASK_S = 20.0
_DEFAULT_SOCKETS = ("/var/run/docker.sock", "/run/docker.sock")
_ANSWERS, _API, _DENIED = "DSH-DK-001", "DSH-DK-037", "DSH-DK-074"  # findings of doctor
_LOGIN = "Log out and in again (or, for this terminal only: newgrp docker)"


class EngineDeniedError(DshpcError):
    """The engine is there and does not let this user in: sudo, or its group, would help."""


def look_up(identity: str) -> str:
    """The last step of an error that doctor has a finding for."""
    return f"More about it: dshpc explain {identity}"


def denied(machine: Machine, engine: Engine) -> EngineDeniedError:
    """The engine runs, but this user may not use it."""
    user = privilege.caller(machine)
    detail = engine.detail or f"Permission denied at {engine.host or _DEFAULT_SOCKETS[0]}."
    member = in_docker_group(machine, user)
    if member:
        return EngineDeniedError(
            "You are in the group docker, but this login does not know it yet",
            detail,
            (f"{_LOGIN}, then run this again.", look_up(_DENIED)),
        )
    return EngineDeniedError(
        f"Docker runs, but {user.name} may not use it: not in the group docker",
        f"{detail}\nMembers of that group can become root on this machine.",
        (
            f"sudo usermod -aG docker {shlex.quote(user.name)}",
            f"{_LOGIN}, then run this again.",
            "Or now, without that: the same command with sudo in front; what it makes stays yours.",
            look_up(_DENIED),
        ),
    )


def in_docker_group(machine: Machine, user: privilege.Caller) -> bool:
    """What the group database says, which a login only reads at its start."""
    asked = machine.run(["getent", "group", "docker"], deadline_s=_ASK_S)
    # Docker's packages make the group in the file, which is true as well where getent is silent
    text = asked.stdout if asked.ok else machine.read("/etc/group").text or ""
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) == 4 and fields[0] == "docker":
            return user.name in fields[3].split(",")
    return False


def endpoint_elsewhere(machine: Machine, engine: Engine) -> str | None:
    """The endpoint that a variable or a context names, unless it is this machine's own socket."""
    named = machine.env.get("DOCKER_HOST")
    host = named or engine.host or ""
    if named and "://" not in named:  # "host:2375", which counts as tcp, or no address at all
        return named
    if "://" not in host:  # the name of what was asked, where no endpoint was reached
        return None
    where = urlsplit(host)
    return None if where.scheme.endswith("unix") and where.path in _DEFAULT_SOCKETS else host


def dead_endpoint(host: str, engine: Engine) -> DshpcError:
    rootless = host.startswith("unix:///run/user/")
    own_engine = (
        ("It is your own, rootless engine: systemctl --user start docker",) if rootless else ()
    )
    return DshpcError(
        f"The Docker engine at {host} does not answer",
        f"{engine.detail or engine.state}\n"
        "It was chosen by DOCKER_HOST or a docker context, so nothing is installed here.",
        (
            *own_engine,
            "See whether it is up: docker version",
            "To use an engine on this machine instead: unset DOCKER_HOST; "
            "docker context use default",
            look_up(_ANSWERS),
        ),
        Exit.INCOMPLETE if engine.state == "timeout" else Exit.ERROR,
    )


def hangs(engine: Engine) -> DshpcError:
    return DshpcError(
        "Docker runs, but does not answer",
        engine.detail or "It was asked for its version, and the deadline passed.",
        (
            "See its log: sudo journalctl -u docker -n 50",
            "Restart it (this stops containers): sudo systemctl restart docker",
            look_up(_ANSWERS),
        ),
        Exit.INCOMPLETE,
    )


def answers_nonsense(engine: Engine) -> DshpcError:
    """The daemon runs, but its answer is an error."""
    return DshpcError(
        "Docker runs, but answers with an error",
        engine.detail or "",
        (
            "See what it says to its own client: docker version",
            "See its log: journalctl -u docker",
            look_up(_API if "client version" in (engine.detail or "") else _ANSWERS),
        ),
        Exit.INCOMPLETE,
    )


def macos(machine: Machine) -> DshpcError:
    for app, how in (
        ("/Applications/Docker.app", "Start Docker Desktop: open -a Docker"),
        ("/Applications/OrbStack.app", "Start OrbStack: open -a OrbStack"),
    ):
        if machine.exists(app):
            steps = (how, "Run this again.", look_up(_ANSWERS))
            return DshpcError("Docker is installed but does not run", "", steps)
    if machine.which("colima"):
        steps = ("colima start --cpu 4 --memory 8", "Run this again.", look_up(_ANSWERS))
        return DshpcError("Docker is installed but does not run", "", steps)
    return DshpcError(
        "Docker is not installed",
        "On macOS the engine runs in a small virtual machine that an application brings.",
        (
            "Docker Desktop: https://docs.docker.com/desktop/setup/install/mac-install/",
            "Or, without an application: brew install colima docker docker-compose; colima start",
            "Then run this again.",
        ),
    )


def unfit(facts: HostFacts) -> DshpcError | None:
    """Where no Linux container can run, or the engine's own policy refuses us; None elsewhere."""
    if facts.platform.kind == "wsl1" and facts.engine.state != "present":
        return wsl1()
    if facts.engine.state == "present" and facts.engine.os_type == "windows":
        return DshpcError(
            "The Docker engine runs Windows containers",
            "Docker Desktop was switched to them; the cluster is a Linux container.",
            (*_steps(remedies.linux_containers(facts)), "Then run this again.", look_up(_ANSWERS)),
        )
    if facts.without_engine and facts.platform.kind == "wsl2":
        return DshpcError(
            "Rancher Desktop's engine does not answer",
            facts.engine.detail or "Its proxy answered with HTTP 502.",
            (*_steps(remedies.rancher_desktop(facts)), "Then run this again.", look_up(_ANSWERS)),
        )
    if facts.forbidden:
        plugin = facts.refusing_plugin
        who = f"authorization plugin {plugin}" if plugin else "policy"
        return DshpcError(
            f"The Docker engine's {who} refuses this user",
            facts.engine.detail or "It answered with HTTP 403.",
            (*_steps(remedies.engine_policy(facts)), "Then run this again.", look_up(_DENIED)),
        )
    return None


def _steps(fixes: remedies.Fixes) -> tuple[str, ...]:
    return tuple(map(str, fixes))


def wsl1() -> DshpcError:
    return DshpcError(
        "Docker cannot run in WSL 1",
        "WSL 1 has no Linux kernel, so no containers either; WSL 2 has one.",
        (
            "In PowerShell: wsl --list --verbose, then: wsl --set-version NAME 2",
            "Then run this again.",
            look_up(_ANSWERS),
        ),
    )


def desktop_client(machine: Machine) -> bool:
    """Whether this WSL 2 has Docker Desktop's client (or the stub it leaves when it is off)."""
    path = machine.which("docker")
    if path is None:
        return False
    if "docker-desktop" in (machine.readlink(path) or ""):
        return True
    return "WSL 2 distro" in _version_text(machine, path)


def _version_text(machine: Machine, path: str) -> str:
    """What the docker command says of itself; raises where it does not answer."""
    asked = machine.run([path, "--version"], deadline_s=_ASK_S)
    return answered(asked, "which program the docker command is").text


def desktop_off(engine: Engine) -> DshpcError:
    return DshpcError(
        "Docker Desktop does not run, or not for this WSL distribution",
        engine.detail or "",
        (
            "Start Docker Desktop on Windows.",
            "In its Settings, Resources, WSL integration: switch this distribution on.",
            "Then run this again.",
            look_up(_ANSWERS),
        ),
    )


def podman_shim(machine: Machine) -> bool:
    """Whether `docker` is Podman under another name (package podman-docker: a script, or a link)."""
    path = machine.which("docker")
    if path is None:
        return False
    if re.search(r"^exec .*/podman\b", machine.read(path).text or "", re.MULTILINE):
        return True
    return "podman" in _version_text(machine, "docker").lower()


def podman_silent(engine: Engine) -> DshpcError:
    """The folder's engine is Podman by its own command, and it does not answer."""
    if engine.state == "absent":
        return DshpcError(
            "Podman is not installed.",
            "The cluster of this folder runs on it.",
            ("Install it: sudo apt-get install podman (or dnf, zypper, pacman)",),
        )
    late = Exit.INCOMPLETE if engine.state == "timeout" else Exit.ERROR
    return DshpcError(
        "Podman does not answer.", engine.detail or engine.state, ("See: podman info",), late
    )


def podman() -> DshpcError:
    return DshpcError(
        "The command docker is Podman's stand-in, and Podman's service does not answer",
        "Docker's own packages cannot lie beside it, and nothing is removed for you.",
        (
            "For Docker: remove the package podman-docker yourself, then run this again.",
            "For Podman: systemctl --user enable --now podman.socket, "
            "export DOCKER_HOST=unix://$XDG_RUNTIME_DIR/podman/podman.sock, then run this again.",
            look_up(_ANSWERS),
        ),
    )


def no_manager(platform: Platform) -> DshpcError:
    return DshpcError(
        "Docker is not installed, and this machine has no package manager that is known here",
        f"Looked for: {', '.join(each.program for each in packages.MANAGERS)} "
        f"(system: {platform.os_id or 'unknown'}).",
        ("Install Docker: https://docs.docker.com/engine/install/", "Then run this again."),
    )


def refused(brief: str, by_hand: list[list[str]]) -> DshpcError:
    return DshpcError(
        brief,
        "Nothing was changed: the question was not answered with yes "
        "(without a terminal that takes --yes).",
        (*privilege.steps(by_hand), "Then run this again, or run it with --yes."),
    )
