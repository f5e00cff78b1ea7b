"""Steps for NVIDIA's container toolkit and device nodes. Pure.

Sources: the install and CDI guides of the NVIDIA Container Toolkit (apt, dnf and zypper; nvidia-cdi-refresh
from 1.18, which does not see changes of MIG), Arch's package of it, NixOS' manual for
hardware.nvidia-container-toolkit.
"""

from __future__ import annotations

import shlex

from dshpc_setup.errors import Fix
from dshpc_setup.facts import HostFacts
from dshpc_setup.remedies.driver import make_mig_nodes, make_nodes
from dshpc_setup.remedies.family import Fixes, family, toolkit
from dshpc_setup.remedies.of_vendors import VendorRemedies
from dshpc_setup.vendors.nvidia.descriptor import DESCRIPTOR
from dshpc_setup.versions import at_least

_GUIDE = (
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
)
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


def _install(facts: HostFacts) -> tuple[Fixes, bool] | None:
    system = family(facts.platform)
    if system == "nixos":
        text = "Put hardware.nvidia-container-toolkit.enable = true; into configuration.nix, and apply it"
        return (Fix(text, "sudo nixos-rebuild switch"),), True
    if system == "alpine":
        text = (
            "NVIDIA's driver needs glibc, which Alpine does not have: use another distribution here"
        )
        return (Fix(text),), True
    if system is None:
        return None
    source = _ADD_REPOSITORY.get(system)
    add = (Fix("Add NVIDIA's package repository", source),) if source else ()
    return (*add, Fix("Install the NVIDIA Container Toolkit", _INSTALL[system])), False


def _generate(facts: HostFacts, old: tuple[str, ...]) -> Fixes:
    known = DESCRIPTOR.toolkit
    assert known is not None
    if family(facts.platform) == "nixos":
        text = "Write NVIDIA's CDI specification (hardware.nvidia-container-toolkit.enable makes its unit)"
        return (Fix(text, f"sudo systemctl restart {known.nixos_unit}"),)
    installed = toolkit(facts, DESCRIPTOR.name)
    version = installed.version if installed else None
    if (
        not old
        and facts.platform.kind == "linux"
        and at_least(version, known.refreshes_since or "")
    ):
        text = "Let NVIDIA's toolkit write the CDI specification, now and after every driver update"
        return (Fix(text, f"sudo systemctl enable --now {' '.join(known.refresh_units)}"),)
    return tuple(
        Fix(
            "Write NVIDIA's CDI specification",
            f"sudo nvidia-ctk cdi generate --output={shlex.quote(path)}",
        )
        for path in old or (known.spec_path,)
    )


def _make_nodes(facts: HostFacts, whole: bool) -> Fixes:
    return make_nodes(facts) if whole else make_mig_nodes(facts)


REMEDIES = VendorRemedies(_GUIDE, _install, _generate, _make_nodes)
