"""Facts, plans and changes in one line each, for the screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dshpc_setup.apply.apply import Change
from dshpc_setup.facts import Engine, Gpus, HostFacts, Platform
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.terminal.sanitize import listed

# By ID of /etc/os-release, or ours; as their makers write them
_SYSTEMS = {
    "almalinux": "AlmaLinux",
    "amzn": "Amazon Linux",
    "arch": "Arch Linux",
    "azurelinux": "Azure Linux",
    "cachyos": "CachyOS",
    "centos": "CentOS",
    "endeavouros": "EndeavourOS",
    "linuxmint": "Linux Mint",
    "macos": "macOS",
    "nixos": "NixOS",
    "ol": "Oracle Linux",
    "opensuse-leap": "openSUSE Leap",
    "opensuse-tumbleweed": "openSUSE Tumbleweed",
    "pop": "Pop!_OS",
    "rhel": "RHEL",
    "rocky": "Rocky Linux",
    "sled": "SLED",
    "sles": "SLES",
}


def system_name(platform: Platform) -> str:
    """ "Debian 13", "RHEL 8.6", "macOS 15.5"; "" where nothing names the system."""
    name = _SYSTEMS.get(platform.os_id or "", (platform.os_id or "").capitalize())
    return " ".join(filter(None, (name, platform.os_version)))


def gib(mib: int | None) -> str:
    return "unknown" if mib is None else f"{mib / 1024:.1f} GiB"


def describe_facts(facts: HostFacts) -> str:
    """ "Debian 13, 8 CPUs, 15.6 GiB; Docker 28.2.2, compose 2.26.1; 2 x NVIDIA H100 80GB HBM3"."""
    platform = facts.platform
    kind = {"wsl2": " (WSL2)", "wsl1": " (WSL1)"}.get(platform.kind, "")
    engine = describe_engine(facts.engine, compose_silent=bool(facts.late("compose")))
    return (
        f"{system_name(platform) or platform.kind.capitalize()}{kind}, {facts.cpu.logical} CPUs, "
        f"{gib(facts.memory.total_mib)}; {engine}; {describe_gpus(facts.gpus)}"
    )


def describe_engine(engine: Engine, *, compose_silent: bool = False) -> str:
    """`compose_silent`: it did not answer in time, so that none is not known to be missing."""
    if engine.state != "present":
        words = {"absent": "no Docker", "unsupported": "Docker: not asked"}
        return words.get(engine.state, f"Docker: not known ({engine.state})")
    if engine.kind == "builtin":
        return "the built-in engine"
    if engine.by_command:
        return f"Podman {engine.server_version}{' rootless' if engine.rootless else ''}"
    name = {"podman": "Podman", "desktop": engine.application}.get(engine.kind or "", "Docker")
    none = ", compose not known (timeout)" if compose_silent else ", no compose"
    compose = f", compose {engine.compose.version.lstrip('v')}" if engine.compose else none
    rootless = " rootless" if engine.rootless else ""
    return f"{name} {engine.server_version}{rootless}{compose}"


def describe_mapping(engine: Engine) -> str | None:
    """Whose the files are that jobs make, where the engine does not map ids one to one."""
    if engine.rootless and engine.by_command:
        return (
            "Podman is rootless: files that your jobs make belong to you, those of other users to ids of "
            "your subordinate range."
        )
    if engine.rootless:
        return (
            "Docker is rootless: files that jobs make as root belong to you, those of other users "
            "to ids of your subordinate range."
        )
    if engine.kind == "desktop" and engine.product is None:
        return "Docker Desktop maps file owners: what jobs make in the work folder belongs to you."
    return None


def describe_missing(facts: HostFacts) -> str:
    """What of Docker is missing, in one sentence."""
    engine = facts.engine
    if engine.state == "present" and facts.late("compose"):
        return "Docker Compose did not answer in time."
    if engine.state == "present":
        return "Docker Compose is not installed."
    return f"Docker: {engine.detail or engine.state}.".replace("..", ".")


def describe_gpus(gpus: Gpus) -> str:
    if not gpus.devices:
        return "no GPU" if gpus.state == "absent" else f"GPUs: {gpus.detail or gpus.state}"
    names = Counter(device.name or f"{device.vendor} GPU" for device in gpus.devices)
    text = ", ".join(f"{count} x {name}" for name, count in names.items())
    return f"SIMULATED {text}" if gpus.simulated else text


def describe_plans(plans: Sequence[ClusterPlan]) -> str:
    """Of each node; those that are alike together."""
    alike: dict[str, list[str]] = {}
    for plan in plans:
        alike.setdefault(_describe_plan(plan), []).append(plan.node)
    return "; ".join(
        f"node{'' if len(nodes) == 1 else 's'} {listed(tuple(nodes))}: {what}"
        for what, nodes in alike.items()
    )


def _describe_plan(plan: ClusterPlan) -> str:
    simulated = "SIMULATED " if plan.simulated and plan.gres else ""
    gpus = f", {simulated}{plan.gres_text}" if plan.gres else ", no GPU"
    return f"{plan.cpus} CPUs, {gib(plan.real_memory_mib)}{gpus}"


def describe_changes(changes: tuple[Change, ...]) -> str:
    counts = Counter(item.action for item in changes)
    if set(counts) == {"unchanged"}:
        return f"{len(changes)} files unchanged"
    return ", ".join(f"{count} {action}" for action, count in counts.items())
