"""Steps for the container engine itself: restart, replace, switch on, choose another. Pure.

Sources: Docker's guides for rootless mode, contexts and CDI (behind `features.cdi` from 25, on by
default from 28.2); `nvidia-ctk runtime configure --cdi.enabled` sets that feature.
"""

from __future__ import annotations

from dshpc_setup.errors import Fix, Want, configure
from dshpc_setup.facts import HostFacts
from dshpc_setup.remedies.family import Fixes, family, toolkit
from dshpc_setup.remedies.of_vendors import FIRST
from dshpc_setup.versions import at_least

ENGINE_GUIDE = "https://docs.docker.com/engine/install/"
COMPOSE_GUIDE = "https://docs.docker.com/compose/install/linux/"
CDI_SINCE = "25.0"
PODMAN_SINCE = "5.4"  # takes CDI devices from Docker's clients (podman, issue 25196)

OWN_CONFIG = '--config="$HOME/.config/docker/daemon.json"'  # of a rootless Docker

_COMPOSE = {
    "ubuntu": "sudo apt-get update && sudo apt-get install -y docker-compose-v2",
    "fedora": "sudo dnf install -y docker-compose",
    "suse": "sudo zypper install -y docker-compose",
    "arch": "sudo pacman -S --needed docker-compose",
    "alpine": "sudo apk add docker-cli-compose",
}


# Debian has the client apart from docker.io since 13
_CLIENT = {
    "ubuntu": "sudo apt-get update && sudo apt-get install -y docker.io",
    "fedora": "sudo dnf install -y docker-cli",
    "suse": "sudo zypper install -y docker",
    "arch": "sudo pacman -S --needed docker",
    "alpine": "sudo apk add docker-cli",
}


_PODMAN = {
    "deb": "sudo apt-get update && sudo apt-get install -y podman",
    "rpm": "sudo dnf install -y podman",
    "suse": "sudo zypper install -y podman",
    "arch": "sudo pacman -S --needed podman",
    "alpine": "sudo apk add podman",
}
_START: Want = ("start-engine", "")


def restart_docker(facts: HostFacts) -> Fixes:
    """Restart the engine that was asked; () for Podman, which reads everything anew each time."""
    engine, platform = facts.engine, facts.platform
    if engine.kind == "podman":
        return ()
    if engine.kind == "desktop" or platform.kind == "macos":
        return (Fix(f"Quit {engine.application} and start it again (running containers stop)"),)
    if engine.kind == "remote":
        return (Fix("Restart Docker on the machine that it runs on (running containers stop)"),)
    command = "sudo systemctl restart docker"
    if engine.kind == "snap":
        command = "sudo snap restart docker"
    elif engine.rootless:
        command = "systemctl --user restart docker"
    elif family(platform) == "alpine":
        command = "sudo rc-service docker restart"
    elif platform.kind == "wsl2":  # works with systemd and without
        command = "sudo service docker restart"
    text = "Restart Docker (running containers stop)"
    return (Fix(text, command, repair=("restart-engine", "")),)


def look_at_engine(facts: HostFacts) -> Fixes:
    """See why the engine went away, and start it again."""
    engine = facts.engine
    if engine.by_command:
        return podman_command(facts)
    if engine.kind == "desktop" or facts.platform.kind == "macos":
        return (Fix(f"Start {engine.application} again"),)
    if engine.kind == "remote":
        return (Fix("See whether the engine answers", "docker version", step="look"),)
    if engine.kind == "podman":
        return (
            Fix(
                "Start Podman's socket again",
                "systemctl --user start podman.socket",
                repair=_START,
            ),
            Fix(
                "Or, where Podman runs as root",
                "sudo systemctl start podman.socket",
                step="alternative",
            ),
        )
    if engine.kind == "snap":
        return (
            Fix("See what it said last", "sudo snap logs -n=50 docker", step="look"),
            Fix("Start it again", "sudo snap start docker", repair=_START),
        )
    if engine.rootless:
        return (
            Fix("See what it said last", "journalctl --user -u docker -n 50", step="look"),
            Fix("Start it again", "systemctl --user start docker", repair=_START),
        )
    if family(facts.platform) == "alpine":
        return (Fix("Start it again", "sudo rc-service docker start", repair=_START),)
    if facts.platform.kind == "wsl2":  # works with systemd and without
        return (Fix("Start it again", "sudo service docker start", repair=_START),)
    return (
        Fix("See what it said last", "sudo journalctl -u docker -n 50", step="look"),
        Fix("Start it again", "sudo systemctl start docker", repair=_START),
    )


def podman_command(facts: HostFacts) -> Fixes:
    """Podman by its own command: there, and answering."""
    if facts.engine.state == "absent":
        install = _PODMAN.get(family(facts.platform) or "")
        return (Fix("Install Podman", install),)
    return (Fix("See whether it answers, and what it says", "podman info", step="look"),)


def enable_cdi(facts: HostFacts) -> Fixes:
    """Switch CDI on in a Docker that has it behind a setting; () where there is nothing to switch."""
    engine = facts.engine
    on = bool(engine.cdi_folders or engine.cdi_devices)
    if on or engine.kind in ("podman", "desktop", "remote"):
        return ()
    if not at_least(engine.server_version, CDI_SINCE):
        return newer_docker(facts)
    file = "~/.config/docker/daemon.json" if engine.rootless else "/etc/docker/daemon.json"
    if family(facts.platform) == "nixos":
        option = "virtualisation.docker.daemon.settings.features.cdi = true;"
        text = f"Put {option} into configuration.nix, and apply it"
        return (Fix(text, "sudo nixos-rebuild switch"),)
    configure = "nvidia-ctk runtime configure --runtime=docker --cdi.enabled"
    command = f"{configure} {OWN_CONFIG}" if engine.rootless else f"sudo {configure}"
    if toolkit(facts, FIRST) is not None:
        switch = Fix("Switch CDI on in Docker", command, repair=("enable-cdi", ""))
        return (switch, *restart_docker(facts))
    text = f'Switch CDI on in Docker: write "features": {{"cdi": true}} into {file}'
    return (Fix(text), *restart_docker(facts))


def matching_client(facts: HostFacts) -> Fixes:
    """Client and engine whose versions of the API meet."""
    version = facts.engine.server_version
    if facts.engine.kind == "podman":
        text = "Install a docker client from 20.10 to 28: these speak Podman's version of the API"
        return (Fix(f"{text}: {ENGINE_GUIDE}"),)
    like = f"as new as the engine ({version})" if version else "of the engine's age"
    return (Fix(f"Install a docker client {like}: {ENGINE_GUIDE}"),)


def newer_docker(facts: HostFacts, version: str = CDI_SINCE) -> Fixes:
    """An engine of at least that version."""
    if facts.engine.kind == "desktop":
        return (
            Fix(
                f"Update {facts.engine.application}: it should bring an engine of {version} or newer"
            ),
        )
    if facts.engine.kind == "podman":
        return (Fix(f"Install Podman {PODMAN_SINCE} or newer"),)
    return (Fix(f"Install Docker {version} or newer, from Docker's own packages: {ENGINE_GUIDE}"),)


def replace_snap(_: HostFacts) -> Fixes:
    """The packaged engine in the place of the snap, which does not see the toolkit."""
    return (
        Fix(
            "Remove the Docker of the snap store (its images, containers and volumes go with it)",
            "sudo snap remove docker",
        ),
        configure("Install Docker from packages, and continue"),
    )


def native_engine(facts: HostFacts) -> Fixes:
    """An engine on this machine's own kernel in the place of a virtual machine."""
    if facts.platform.kind == "macos":
        return (Fix("On macOS no GPU reaches containers: use the CPU alone"),)
    if facts.platform.kind == "wsl2" and facts.engine.product is not None:
        application = facts.engine.application
        return (
            Fix(f"Switch this distribution off in {application}: Preferences, WSL, Integrations"),
            configure("Install an engine in this distribution"),
            Fix("Or use Docker Desktop in its place, which hands the GPU over", step="alternative"),
        )
    if facts.platform.kind == "wsl2":
        return (
            Fix("Update Docker Desktop, and keep on in its Settings: Use the WSL 2 based engine"),
        )
    return (
        Fix(
            f"Quit {facts.engine.application} and choose this machine's own engine",
            "docker context use default",
        ),
        configure("Install that engine where it is missing"),
    )


def local_engine(_: HostFacts) -> Fixes:
    """The engine is elsewhere: work there, or choose the one that is here."""
    return (
        Fix("Run dshpc on the machine that the engine runs on"),
        Fix(
            "Or choose the engine of this machine",
            "unset DOCKER_HOST DOCKER_CONTEXT; docker context use default",
            step="alternative",
        ),
    )


def engine_policy(_: HostFacts) -> Fixes:
    """An engine whose authorization plugin, or a proxy before it, decides who may do what."""
    look = "See which plugin decides, or whether DOCKER_HOST names a proxy"
    return (
        Fix(look, "grep -s authorization-plugins /etc/docker/daemon.json; echo $DOCKER_HOST", step="look"),
        Fix("Have whoever looks after it allow this user images, builds, containers with exec, networks "
            "and volumes; groups and sudo change nothing"),
    )  # fmt: skip


def linux_containers(_: HostFacts) -> Fixes:
    """Docker Desktop back in its usual mode."""
    text = (
        "Right-click Docker's whale in the Windows task bar and choose Switch to Linux containers; or in "
        "PowerShell"
    )
    command = '& "$Env:ProgramFiles\\Docker\\Docker\\DockerCli.exe" -SwitchLinuxEngine'
    return (Fix(text, command),)


def rancher_desktop(_: HostFacts) -> Fixes:
    """Rancher Desktop's engine, reached from a WSL distribution: started, of the right kind, joined."""
    return (
        Fix("With Rancher Desktop: start it on Windows"),
        Fix("Choose dockerd (moby) in its Preferences, Container Engine: containerd has no Docker engine"),
        Fix("Switch this distribution on in its Preferences, WSL, Integrations"),
    )  # fmt: skip


def docker_group(facts: HostFacts) -> Fixes:
    """Let this user speak with the engine."""
    if facts.engine.by_command:
        return podman_command(facts)
    if facts.engine.kind == "podman":
        return (Fix("Start your own Podman's socket", "systemctl --user start podman.socket"),)
    return (
        Fix(
            "Join the group docker, whose members can become root on this machine; "
            "then log out and in again",
            'sudo usermod -aG docker "$USER"',
        ),
    )


def free_space(facts: HostFacts) -> Fixes:
    """Room where the engine keeps its data."""
    where = f" in {facts.engine.root_dir}" if facts.engine.root_dir else ""
    tool = "podman" if facts.engine.kind == "podman" else "docker"
    return (
        Fix(f"See what takes the space{where}", f"{tool} system df", step="look"),
        Fix("Remove images without a name; it asks first", f"{tool} image prune"),
    )


def docker_command(facts: HostFacts) -> Fixes:
    """The docker command, for an engine that is there without it."""
    platform = facts.platform
    if facts.engine.kind == "desktop" or platform.kind == "macos":
        return (Fix("Install the docker command", "brew install docker"),)
    command = _CLIENT.get(platform.os_id or "") or _CLIENT.get(family(platform) or "")
    if platform.os_id == "debian":
        package = "docker-cli" if at_least(platform.os_version, "13") else "docker.io"
        command = f"sudo apt-get update && sudo apt-get install -y {package}"
    ce = Fix("Where Docker's own packages are installed, it is the package docker-ce-cli")
    if command is None:
        return (Fix(f"Install the docker command: {ENGINE_GUIDE}"), ce)
    return (Fix("Install the docker command, or add its folder to PATH", command), ce)


def compose_v2(facts: HostFacts) -> Fixes:
    """The compose plugin, version 2, by the packages of this distribution where they have it."""
    platform = facts.platform
    if platform.kind == "macos":
        return (Fix("Install the compose plugin", "brew install docker-compose"),)
    command = _COMPOSE.get(platform.os_id or "")
    if platform.os_id == "debian" and at_least(platform.os_version, "13"):
        command = "sudo apt-get update && sudo apt-get install -y docker-compose"
    elif command is None and family(platform) in ("suse", "arch"):
        command = _COMPOSE[family(platform) or ""]
    if command is None:
        return (Fix(f"Install the compose plugin, version 2: {COMPOSE_GUIDE}"),)
    return (Fix("Install the compose plugin, version 2", command),)
