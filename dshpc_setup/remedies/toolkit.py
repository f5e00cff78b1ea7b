"""Steps for the vendors' container toolkits and their CDI specifications. Pure.

Sources: the install, CDI and troubleshooting guides of the NVIDIA Container Toolkit (apt, dnf and
zypper; nvidia-cdi-refresh from 1.18, which does not see changes of MIG), Arch's package of it, NixOS'
manual for hardware.nvidia-container-toolkit, the quick start and CDI guides of AMD's toolkit.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

from dshpc_setup.errors import Fix
from dshpc_setup.facts import HostFacts, Toolkit
from dshpc_setup.remedies.engine import OWN_CONFIG, enable_cdi, restart_docker
from dshpc_setup.remedies.family import Fixes, family, toolkit
from dshpc_setup.versions import at_least

NVIDIA_GUIDE = (
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
)
AMD_GUIDE = (
    "https://instinct.docs.amd.com/projects/container-toolkit/en/latest/"
    "container-runtime/quick-start-guide.html"
)

_NEW_CONTAINER = "dshpc down && dshpc up"  # to render anew would change no file, and so make none
_REFRESHES_CDI = "1.18"
_SPEC = "/etc/cdi/nvidia.yaml"

_PACKAGE = "nvidia-container-toolkit"
_REPOSITORY = "https://nvidia.github.io/libnvidia-container"
_RPM = f"{_REPOSITORY}/stable/rpm/{_PACKAGE}.repo"
_KEYRING = f"/usr/share/keyrings/{_PACKAGE}-keyring.gpg"
_ADD_REPOSITORY = {
    "deb": "sudo apt-get update && sudo apt-get install -y ca-certificates curl gnupg && "
    f"curl -fsSL {_REPOSITORY}/gpgkey | sudo gpg --yes --dearmor -o {_KEYRING} && "
    f"curl -fsSL {_REPOSITORY}/stable/deb/{_PACKAGE}.list | "
    f"sed 's#deb https://#deb [signed-by={_KEYRING}] https://#g' | "
    f"sudo tee /etc/apt/sources.list.d/{_PACKAGE}.list",
    "rpm": f"curl -fsSL {_RPM} | sudo tee /etc/yum.repos.d/{_PACKAGE}.repo",
    "suse": f"sudo zypper addrepo {_RPM}",
}
_INSTALL = {
    "deb": f"sudo apt-get update && sudo apt-get install -y {_PACKAGE}",
    "rpm": f"sudo dnf install -y {_PACKAGE}",
    "suse": f"sudo zypper --gpg-auto-import-keys install -y {_PACKAGE}",
    "arch": f"sudo pacman -S --needed {_PACKAGE}",
}


def install_toolkit(facts: HostFacts, vendor: str = "nvidia") -> Fixes:
    """Install the vendor's container toolkit and put it in force."""
    if vendor == "amd":
        install = Fix(f"Install the AMD Container Toolkit: {AMD_GUIDE}")
        return (install, *_in_force(facts, vendor))
    system = family(facts.platform)
    if system == "nixos":
        text = "Put hardware.nvidia-container-toolkit.enable = true; into configuration.nix, and apply it"
        return (Fix(text, "sudo nixos-rebuild switch"),)
    if system == "alpine":
        text = (
            "NVIDIA's driver needs glibc, which Alpine does not have: use another distribution here"
        )
        return (Fix(text),)
    if system is None:
        install = Fix(f"Install the NVIDIA Container Toolkit: {NVIDIA_GUIDE}")
        return (install, *_in_force(facts, vendor))
    source = _ADD_REPOSITORY.get(system)
    add = (Fix("Add NVIDIA's package repository", source),) if source else ()
    install = Fix("Install the NVIDIA Container Toolkit", _INSTALL[system])
    return (*add, install, *_in_force(facts, vendor))


def reinstall_toolkit(facts: HostFacts) -> Fixes:
    """The newest NVIDIA toolkit over one that is broken or too old."""
    return install_toolkit(facts)


def _in_force(facts: HostFacts, vendor: str) -> Fixes:
    """What makes an installed toolkit usable by the engine: Podman reads CDI alone."""
    if facts.engine.kind == "podman":
        return generate_cdi(facts, vendor)
    return (*register_runtime(facts, vendor), *restart_docker(facts))


def register_runtime(facts: HostFacts, vendor: str = "nvidia") -> Fixes:
    """Write the vendor's runtime into Docker's configuration; () for Podman, which takes none."""
    if facts.engine.kind == "podman":
        return ()
    ctk = "amd-ctk" if vendor == "amd" else "nvidia-ctk"
    configure = f"{ctk} runtime configure --runtime=docker"
    if facts.engine.rootless and vendor != "amd":
        return (
            Fix("Register the runtime nvidia with your own Docker", f"{configure} {OWN_CONFIG}"),
        )
    return (Fix(f"Register the runtime {vendor} with Docker", f"sudo {configure}"),)


def toolkit_mode(facts: HostFacts) -> Fixes:
    """Where the toolkit's mode refuses --gpus: its runtime, or another mode."""
    return (
        *register_runtime(facts),
        *restart_docker(facts),
        Fix(
            "Or, where this is no Jetson, let the toolkit choose its mode",
            "sudo nvidia-ctk config --set nvidia-container-runtime.mode=auto --in-place",
            step="alternative",
        ),
    )


def generate_cdi(facts: HostFacts, vendor: str = "nvidia") -> Fixes:
    """Write the vendor's CDI specification, over the old one where there is one."""
    if vendor == "intel":
        return (Fix("Write Intel's CDI specification anew with the tool that made it"),)
    old = _old_specs(facts, vendor)
    if vendor == "amd":
        each = [f" --output {shlex.quote(path)}" for path in old] or [""]
        make = tuple(
            Fix("Write AMD's CDI specification", f"sudo amd-ctk cdi generate{o}") for o in each
        )
    else:
        make = _generate_nvidia(facts, old)
    # A rootless Docker sees of /etc and /run what was there when it started
    again = restart_docker(facts) if facts.engine.rootless else ()
    return tuple(dict.fromkeys((*make, *_old_docker_without(facts), *again)))


def first_cdi(facts: HostFacts, vendor: str = "nvidia") -> Fixes:
    """A specification where there is none yet: by the toolkit's tool, and the toolkit first."""
    has = vendor == "intel" or toolkit(facts, vendor) is not None
    install = () if has else install_toolkit(facts, vendor)
    steps = (
        *install,
        *generate_cdi(facts if has or vendor != "nvidia" else _with_toolkit(facts), vendor),
    )
    return tuple(dict.fromkeys(steps[::-1]))[::-1]  # the restart once, at the end


def _with_toolkit(facts: HostFacts) -> HostFacts:
    """The machine as it is when NVIDIA's toolkit has just been installed."""
    engine = facts.engine
    return replace(facts, engine=replace(engine, toolkits=(Toolkit("nvidia", "present"),)))


def _generate_nvidia(facts: HostFacts, old: tuple[str, ...]) -> Fixes:
    if family(facts.platform) == "nixos":
        unit = "nvidia-container-toolkit-cdi-generator.service"
        text = "Write NVIDIA's CDI specification (hardware.nvidia-container-toolkit.enable makes its unit)"
        return (Fix(text, f"sudo systemctl restart {unit}"),)
    installed = toolkit(facts, "nvidia")
    version = installed.version if installed else None
    if not old and facts.platform.kind == "linux" and at_least(version, _REFRESHES_CDI):
        units = "nvidia-cdi-refresh.path nvidia-cdi-refresh.service"
        text = "Let NVIDIA's toolkit write the CDI specification, now and after every driver update"
        return (Fix(text, f"sudo systemctl enable --now {units}"),)
    return tuple(
        Fix(
            "Write NVIDIA's CDI specification",
            f"sudo nvidia-ctk cdi generate --output={shlex.quote(path)}",
        )
        for path in old or (_SPEC,)
    )


def _old_specs(facts: HostFacts, vendor: str) -> tuple[str, ...]:
    """Where specifications of this vendor lie: a new one elsewhere would stand beside the old one."""
    return tuple(
        spec.path
        for spec in facts.engine.cdi_specs
        if (spec.kind or "").startswith(f"{vendor}.com/")
        or (spec.kind is None and vendor in spec.path.rsplit("/", 1)[-1])
    )


def _old_docker_without(facts: HostFacts) -> Fixes:
    """CDI switched on as well where this Docker has it off; nothing about a version without CDI."""
    return enable_cdi(facts) if at_least(facts.engine.server_version, "25.0") else ()


def handed_over_anew(facts: HostFacts, ids: tuple[str, ...] = ()) -> Fixes:
    """Fewer GPUs than were asked for: the specification of these CDI names anew, else the toolkit's view."""
    if ids and "/" in ids[0]:
        return generate_cdi(facts, ids[0].split(".")[0])
    if toolkit(facts, "nvidia") is None:
        return ()
    return (
        Fix("See which GPUs NVIDIA's toolkit hands over", "nvidia-container-cli list", step="look"),
    )


def clashing_specs(facts: HostFacts) -> Fixes:
    """Specifications that name the devices, and that the engine does not take."""
    paths = [spec.path for spec in facts.engine.cdi_specs]
    several = f" ({', '.join(paths)}): each device may stand in one alone" if len(paths) > 1 else ""
    text = f"See what the engine says of its CDI specifications{several}"
    if facts.engine.kind == "podman":
        return (Fix(f"Look at the CDI specifications{several}", step="look"),)
    return (Fix(text, "docker info --format '{{json .Warnings}}'", step="look"),)


def rootless_gpus(facts: HostFacts) -> Fixes:
    """GPUs for an engine that does not run as root: CDI, else the hook without cgroups."""
    return (
        *generate_cdi(facts),
        Fix(
            "Or, where CDI cannot be had, let NVIDIA's hook leave cgroups alone "
            "(not where an engine that runs as root is used as well)",
            "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=true --in-place",
            step="alternative",
        ),
    )


def cgroups_on(_: HostFacts) -> Fixes:
    """Undo no-cgroups, which is for rootless engines alone."""
    command = "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place"
    return (
        Fix("Let NVIDIA's hook set device rules again", command),
        Fix(
            "Then, where the cluster is up, make its container anew (running jobs are lost)",
            _NEW_CONTAINER,
        ),
    )
