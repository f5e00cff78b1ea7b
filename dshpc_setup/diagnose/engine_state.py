"""Whether an engine answers: not installed, stopped, closed to this user, silent, or elsewhere."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from dshpc_setup import remedies
from dshpc_setup.diagnose.common import set_up
from dshpc_setup.diagnose.model import Check, CheckInput, Verdict, fault, fine, unknown
from dshpc_setup.diagnose.proof import from_proof
from dshpc_setup.engine_client import BUILTIN, PODMAN
from dshpc_setup.errors import Fix
from dshpc_setup.facts import Because, Platform
from dshpc_setup.passthrough import findings
from dshpc_setup.passthrough.causes import of_refusal

ANSWERS = "DSH-DK-001"
COMMAND = "DSH-DK-086"

_SYSTEM_CONTAINERS = ("lxc", "systemd-nspawn")  # run a system of their own, and Docker in it
_SCHEMES = (
    "unix",
    "tcp",
    "http",
    "https",
    "ssh",
    "npipe",
    "fd",
    "http+unix",
)  # of an engine's address
_LOOK = Fix("See what Docker says", "docker version", step="look")
_FORBIDDEN = "The engine's policy refuses this user"
_OWN_ENGINE = Fix(
    "Use the engine of this machine",
    "unset DOCKER_HOST DOCKER_CONTEXT; docker context use default",
)
_DESKTOP_ON_WSL = Fix(
    "Or, with Docker Desktop: start it on Windows, and switch this distribution on in its Settings, "
    "Resources, WSL integration",
    step="alternative",
)


def _answers(known: CheckInput) -> Verdict:
    engine = known.facts.engine
    if engine.state == "present" and engine.os_type == "windows":
        return _told(
            known,
            "The engine runs Windows containers",
            "The engine answers and runs Windows containers, as Docker Desktop does in that mode: the "
            "cluster is a Linux container.",
            *remedies.linux_containers(known.facts),
        )
    if engine.state == "present":
        return fine(f"{engine.server_version} at {engine.host}")
    if engine.state == "unsupported" and known.observed.inside is not None:
        return fine("Asked from inside of the cluster's container.")
    if engine.state == "unsupported":
        return unknown(f"{(engine.detail or 'the engine was not asked').capitalize()}.")
    if engine.by_command:
        return _podman(known)
    if known.facts.forbidden:
        title = _forbidden(known)
        return _told(known, title, f"{title}.", *remedies.engine_policy(known.facts))
    if engine.state == "denied":
        return _told(
            known,
            "This user may not use the Docker engine",
            "The engine runs, and its socket is closed to this user.",
            *remedies.docker_group(known.facts),
        )
    if known.facts.without_engine and known.facts.platform.kind == "wsl2":
        return _told(
            known,
            "Rancher Desktop's engine does not answer",
            "A proxy answers in the engine's place and finds no engine behind it. In WSL that is Rancher "
            "Desktop's: its engine is off, or it runs containerd, or not for this distribution.",
            *remedies.rancher_desktop(known.facts),
        )
    if known.endpoint:
        return _elsewhere(known, known.endpoint)
    if engine.state == "absent":
        return _absent(known)
    if engine.state == "timeout":
        return _silent(known)
    title = "The Docker engine answers with an error"
    return _told(known, title, f"{title}.", _LOOK)


def _podman(known: CheckInput) -> Verdict:
    """Of a folder whose cluster is on Podman, by its own command."""
    steps = remedies.look_at_engine(known.facts)
    if known.facts.engine.state == "absent":
        cause = "The cluster of this folder is on Podman, and the program podman is not in PATH."
        return _told(known, "Podman is not installed", cause, *steps)
    if known.facts.engine.state == "timeout":
        cause = "Podman was asked about itself, and the deadline passed: it hangs, or this machine is busy."
        return _told(known, "Podman does not answer in time", cause, *steps)
    return _told(known, "Podman answers with an error", "Podman answers with an error.", *steps)


def _silent(known: CheckInput) -> Verdict:
    if known.facts.engine.host == PODMAN:
        return _told(
            known,
            "Podman does not answer in time",
            "Podman was asked about itself, and the deadline passed: this machine is very busy, or "
            "Podman hangs.",
            Fix("See how long it takes", "podman info", step="look"),
        )
    if known.facts.engine.kind == BUILTIN:
        return _told(
            known,
            "This machine is too busy to be asked",
            "The cluster of this folder is on the built-in engine, and its state was not read within the "
            "deadline: this machine is very busy.",
            Fix("See what keeps it busy", "uptime", step="look"),
            Fix("Ask again later", "dshpc doctor"),
        )
    return _told(
        known,
        "The Docker engine does not answer in time",
        "The engine was asked for its version, and the deadline passed: it hangs, or this machine "
        "is very busy.",
        *_without_start(known),
        *remedies.restart_docker(known.facts),
    )


def _absent(known: CheckInput) -> Verdict:
    """No socket, or nobody behind it."""
    platform = known.facts.platform
    if platform.kind == "wsl1":
        return _told(
            known,
            "Docker cannot run in WSL 1",
            "WSL 1 has no Linux kernel of its own, so no containers either; WSL 2 has one.",
            *remedies.move_to_wsl2(known.facts),
        )
    if _stopped(known):
        return _told(
            known,
            "The Docker engine is stopped",
            "Docker is installed, and its engine is stopped.",
            *_start(known, platform),
            *_rootless(known),
            *_without_docker(known),
        )
    if platform.kind == "macos":
        return _told(
            known,
            "Docker is not installed, or stopped",
            "On macOS the engine runs in a virtual machine of Docker Desktop, OrbStack or Colima, and none "
            "of them answers.",
            *_start(known, platform),
        )
    if own := _rootless(known):
        cause = (
            "No Docker engine is at its socket, and your own, rootless one is there and not chosen."
        )
        return _told(known, None, cause, *own)
    if platform.in_container and platform.container not in _SYSTEM_CONTAINERS:
        return _told(
            known,
            "No Docker engine is in this container",
            "This runs in a container, and no Docker engine is at its socket here.",
            Fix("Run it on the machine itself", "dshpc doctor"),
            replace(
                set_up(known),
                text="Or, where this container may run Docker, set it up here",
                step="alternative",
            ),
            *_without_docker(known),
        )
    certain = known.observed.engine_installed is False
    return _told(
        known,
        "Docker is not installed" if certain else "Docker is not installed, or stopped",
        "Docker is not installed."
        if certain
        else "No Docker engine is at its socket: it is not installed, or it is stopped.",
        set_up(known),
        *_without_docker(known),
    )


def _without_docker(known: CheckInput) -> tuple[Fix, ...]:
    """The built-in engine, for whom no cluster is set up yet that another engine has."""
    if known.observed.cluster is not None or known.facts.platform.kind not in ("linux", "wsl2"):
        return ()
    return (
        Fix(
            "Or run the cluster without Docker and without root",
            "configure-environment --engine builtin",
            step="alternative",
        ),
    )


def _stopped(known: CheckInput) -> bool:
    """Whether something of Docker is here all the same; a file that its engine alone leaves, or its tools."""
    if known.observed.engine_installed is not None:
        return known.observed.engine_installed
    engine = known.facts.engine
    plugins = engine.buildx is not None or any(item.argv[0] == "docker" for item in engine.composes)
    return plugins or "refused" in (engine.detail or "").lower()


def _start(known: CheckInput, platform: Platform) -> tuple[Fix, ...]:
    if platform.kind == "macos":
        return (
            Fix("Start Docker Desktop", "open -a Docker"),
            Fix("Or OrbStack", "open -a OrbStack", step="alternative"),
            Fix("Or Colima", "colima start", step="alternative"),
        )
    wsl = (_DESKTOP_ON_WSL,) if platform.kind == "wsl2" else ()
    return (*remedies.look_at_engine(known.facts), *wsl)


def _rootless(known: CheckInput) -> tuple[Fix, ...]:
    """Where this user's own engine is there, and nothing points to it."""
    if not any(item.key == "own-rootless-engine" for item in _not_chosen(known)):
        return ()
    return (
        Fix(
            "Or use your own, rootless engine, which is there",
            "docker context use rootless",
            step="alternative",
        ),
    )


def _without_start(known: CheckInput) -> tuple[Fix, ...]:
    """The steps to see why it is silent: it need not be started."""
    steps = remedies.look_at_engine(known.facts)
    return tuple(step for step in steps if step.step == "look")


def _elsewhere(known: CheckInput, endpoint: str) -> Verdict:
    wrong = known.facts.engine.state == "error"
    if wrong and urlsplit(endpoint).scheme not in _SCHEMES:
        title = f"{endpoint} is no address of a Docker engine"
        return _told(
            known, title, f"{title}, and DOCKER_HOST or a docker context names it.", _OWN_ENGINE
        )
    title = f"The engine at {endpoint} {'answers with an error' if wrong else 'does not answer'}"
    cause = f"{title}. DOCKER_HOST or a docker context names it."
    own = () if wrong else _own(endpoint)
    here = replace(_OWN_ENGINE, text="Or use the engine of this machine", step="alternative")
    return _told(
        known, title, cause, *own, Fix("See whether it is up", "docker version", step="look"), here
    )


def _own(endpoint: str) -> tuple[Fix, ...]:
    """How to start an engine of this user's, by where its socket is."""
    for part, text, command in (
        ("/podman/", "It is Podman's: start its socket", "systemctl --user start podman.socket"),
        ("/.docker/desktop/", "It is Docker Desktop's: start it", "systemctl --user start docker-desktop"),
        ("/.docker/run/", "It is Docker Desktop's: start it", "open -a Docker"),
        ("/.colima/", "It is Colima's: start it", "colima start"),
        ("/run/user/", "It is your own, rootless engine: start it", "systemctl --user start docker"),
    ):  # fmt: skip
        if endpoint.startswith("unix://") and part in endpoint:
            return (Fix(text, command),)
    return ()


def _forbidden(known: CheckInput) -> str:
    plugin = known.facts.refusing_plugin
    return f"The authorization plugin {plugin} refuses this user" if plugin else _FORBIDDEN


def _told(known: CheckInput, title: str | None, cause: str, *fix: Fix) -> Verdict:
    engine = known.facts.engine
    read = ": ".join(filter(None, (engine.host, engine.detail or engine.state)))
    return replace(fault(cause, read, *others(known), fix=fix), title=title)


def others(known: CheckInput) -> tuple[str, ...]:
    """Engines whose sockets are there, and that nobody has chosen."""
    return tuple(f"{item.source}: {item.says}" for item in _not_chosen(known))


def _not_chosen(known: CheckInput) -> tuple[Because, ...]:
    return tuple(
        item
        for conclusion in known.facts.conclusions
        if conclusion.about == "docker.state"
        for item in conclusion.instead
    )


# -- causes that have ids of their own --------------------------------------------------------------


def _denied(known: CheckInput) -> Verdict:
    engine = known.facts.engine
    if engine.state != "denied" or engine.by_command:
        return _from_proof_or_unasked(known, findings.ENGINE_DENIED)
    if known.facts.forbidden:
        plugin = known.facts.refusing_plugin
        who = (
            f"its authorization plugin {plugin}"
            if plugin
            else "an authorization plugin, or a proxy before it,"
        )
        verdict = fault(
            f"The engine answers, and {who} refuses what it is asked for. "
            "The socket is open to this user: its group is not the cause.",
            ": ".join(filter(None, (engine.host, engine.detail))),
            fix=remedies.engine_policy(known.facts),
        )
        return replace(verdict, title=_forbidden(known))
    return fault(
        "The engine runs, and this user may not use it: its socket is for root and the group docker.",
        ": ".join(filter(None, (engine.host, engine.detail))),
        fix=(
            *remedies.docker_group(known.facts),
            Fix("Where you are in the group already: log out and in again, or for this terminal",
                "newgrp docker"),
            *_without_docker(known),
        ),
    )  # fmt: skip


def _command(known: CheckInput) -> Verdict:
    """The engine is asked at its socket; all else of dshpc goes through the docker command."""
    if known.facts.engine.state == "unsupported":  # we are in the cluster's own container
        return replace(fine(), title="No docker command is needed here")
    if known.observed.docker_command is None:
        return replace(fine(), title="The docker command was not looked for")
    if known.observed.docker_command:
        return fine()
    return fault(
        "The Docker engine runs, and there is no docker command in PATH: no cluster can be started, "
        "stopped or asked without it.",
        fix=remedies.docker_command(known.facts),
    )


def _api(known: CheckInput) -> Verdict:
    engine = known.facts.engine
    cause = of_refusal(engine.detail or "", "device-request", known.facts)
    if engine.state != "error" or cause is None or cause.finding != findings.API_REFUSED:
        return _from_proof_or_unasked(known, findings.API_REFUSED)
    says = f"{cause.says[:1].upper()}{cause.says[1:]}."
    return fault(says, engine.detail or "", fix=cause.fix)


def _from_proof_or_unasked(known: CheckInput, identity: str) -> Verdict:
    state = known.facts.engine.state
    if state != "present":
        return unknown(f"The engine did not answer ({state}).")
    verdict = from_proof(identity)(known)
    return fine() if verdict.state == "skipped" else verdict  # it has answered us


CHECKS: tuple[Check, ...] = (
    Check(ANSWERS, "engine", "The Docker engine answers", "The Docker engine does not answer",
          _answers, because=("DSH-HO-001", findings.ENGINE_DENIED, findings.API_REFUSED)),
    Check(COMMAND, "engine", "The docker command is there", "The docker command is missing",
          _command, needs=(ANSWERS,)),
    Check(findings.ENGINE_DENIED, "engine", "This user may use the engine",
          findings.TITLES[findings.ENGINE_DENIED], _denied),
    Check(findings.API_REFUSED, "engine", "Client and engine speak the same API",
          findings.TITLES[findings.API_REFUSED], _api),
    Check(findings.ENGINE_GONE, "engine", "The engine stays up",
          findings.TITLES[findings.ENGINE_GONE], from_proof(findings.ENGINE_GONE), needs=(ANSWERS,)),
)  # fmt: skip
