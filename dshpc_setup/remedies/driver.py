"""Steps for drivers, cards and their device nodes. Pure.

Sources: NVIDIA's driver installation guide and `nvidia-smi`, `nvidia-modprobe`; the packages of Ubuntu
(ubuntu-drivers), Debian, RPM Fusion and Arch; the troubleshooting guide of NVIDIA's toolkit (SELinux,
/dev/char); AMD's quick start guide (render, video); Microsoft's guide to WSL.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from dshpc_setup import gpu_vendors
from dshpc_setup.errors import Fix
from dshpc_setup.facts import HostFacts
from dshpc_setup.remedies.family import Fixes, family
from dshpc_setup.remedies.of_vendors import FIRST
from dshpc_setup.remedies.toolkit import generate_cdi

DRIVER_GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"
NIXOS_GUIDE = "https://wiki.nixos.org/wiki/Nvidia"
FABRIC_GUIDE = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"

_SHOWN_NODES = 8  # as many as fit a line


def _is_wsl(facts: HostFacts) -> bool:
    return facts.platform.kind in ("wsl1", "wsl2")


def reboot(_: HostFacts) -> Fixes:
    return (Fix("Restart the machine", "sudo reboot"),)


def install_driver(facts: HostFacts, begin: str = "Install the NVIDIA driver") -> Fixes:
    """NVIDIA's driver, by the distribution's way where that is one command; `begin` is how it is told."""
    if _is_wsl(facts):
        return update_wsl(facts)
    platform = facts.platform
    text = f"{begin}, then restart the machine"
    if platform.os_id == "ubuntu":
        return (
            Fix(text, "sudo ubuntu-drivers install"),
        )  # --gpgpu would remove a desktop's driver
    if platform.os_id == "debian":
        return (
            Fix(
                f"{text} (the components contrib and non-free must be on)",
                "sudo apt-get update && sudo apt-get install -y nvidia-driver firmware-misc-nonfree",
            ),
        )
    if platform.os_id == "fedora":
        return (
            Fix(
                f"{text} (the repositories of RPM Fusion must be on)",
                "sudo dnf install -y akmod-nvidia xorg-x11-drv-nvidia-cuda",
            ),
        )
    if family(platform) == "arch":
        return (Fix(text, "sudo pacman -S --needed nvidia-open nvidia-utils"),)
    if family(platform) == "nixos":
        return (Fix(f"{text}: {NIXOS_GUIDE}"),)
    return (Fix(f"{text}: {DRIVER_GUIDE}"),)


def newer_driver(facts: HostFacts) -> Fixes:
    """A driver that offers a newer CUDA."""
    if _is_wsl(facts):
        return update_wsl(facts)
    if facts.platform.os_id == "debian":  # has one version alone
        text = "Install a newer NVIDIA driver, from NVIDIA's own packages or Debian's backports"
        return (Fix(f"{text}, then restart the machine: {DRIVER_GUIDE}"),)
    return install_driver(facts, "Install a newer NVIDIA driver")


def _else_install(facts: HostFacts) -> Fixes:
    return install_driver(facts, "Where that does not help, install the NVIDIA driver")


def reload_driver(facts: HostFacts) -> Fixes:
    """Bring the loaded kernel module and the installed libraries to one version."""
    if _is_wsl(facts):
        return update_wsl(facts)
    return (
        *reboot(facts),
        Fix(
            "Or, with no program on any GPU and no screen on one, load the driver's modules again",
            "sudo modprobe -r nvidia_drm nvidia_modeset nvidia_uvm nvidia && sudo modprobe nvidia",
            step="alternative",
        ),
    )


def driver_libraries(facts: HostFacts) -> Fixes:
    """The driver's own libraries on this machine: installed, and known to the loader."""
    if _is_wsl(facts):
        return update_wsl(facts)
    return (
        Fix("Let the loader find the driver's libraries again", "sudo ldconfig"),
        *_else_install(facts),
    )


def library_of_another_version(facts: HostFacts) -> Fixes:
    """A library of another driver in the container: from an old CDI specification, or the image."""
    spec = any(gpu_vendors.of(FIRST).named_in(item.kind) for item in facts.engine.cdi_specs)
    image = Fix(
        "Or use an image that brings no driver libraries of its own (libcuda, libnvidia-ml)",
        step="alternative",
    )
    again = generate_cdi(facts) if spec else ()
    return (*again, *reload_driver(facts), image)


def load_driver(facts: HostFacts) -> Fixes:
    """The driver's module and device nodes; the driver itself where it is not installed."""
    if _is_wsl(facts):
        return update_wsl(facts)
    load = Fix("Load the NVIDIA driver and make its device nodes", "sudo nvidia-modprobe -c=0 -u")
    return (load, *_else_install(facts))


def make_nodes(facts: HostFacts) -> Fixes:
    """The device nodes of a driver that is loaded and answers."""
    first = Fix("Make the device nodes of the NVIDIA driver", "sudo nvidia-modprobe -c=0 -u")
    otherwise = replace(reboot(facts)[0], text="Where that does not help, restart the machine")
    return (first, otherwise)


def make_mig_nodes(_: HostFacts) -> Fixes:
    """The capability nodes of MIG instances; nvidia-modprobe knows each by its file in /proc."""
    command = (
        "sudo find /proc/driver/nvidia/capabilities -path '*/mig/*' -name access "
        "-exec nvidia-modprobe -f {} ';'"
    )
    return (Fix("Make the device nodes of the MIG instances", command),)


def load_uvm(facts: HostFacts) -> Fixes:
    """The module that CUDA needs, and its device node."""
    if _is_wsl(facts):
        return update_wsl(facts)
    text = "Load nvidia_uvm and make its device node"
    return (Fix(text, "sudo nvidia-modprobe -u -c=0", repair=("load-uvm", "")),)


def persistence(_: HostFacts) -> Fixes:
    """Keep the driver loaded, so that its first use is not slow."""
    command = "sudo systemctl enable --now nvidia-persistenced"
    return (Fix("Keep the driver ready between uses", command),)


def hung_driver(facts: HostFacts) -> Fixes:
    """A driver that does not answer: nothing but a restart ends that."""
    if _is_wsl(facts):
        again = Fix("Restart WSL, in PowerShell; where that helps, stop here", "wsl --shutdown")
        return (again, *update_wsl(facts))
    return (
        Fix(
            "See what the kernel says of it",
            "sudo dmesg | grep -iE 'NVRM|Xid|amdgpu|hung_task'",
            step="look",
        ),
        *reboot(facts),
    )


def reset_gpu(facts: HostFacts, handles: Sequence[str] = ()) -> Fixes:
    """Cards that need a reset, by what `nvidia-smi -i` takes; where none is named, every GPU.

    nvidia-smi(1): --gpu-reset without -i resets all GPUs, and -i takes several with commas between.
    """
    named = ",".join(map(shlex.quote, dict.fromkeys(handles)))
    if named:
        those, them = ("these GPUs", "them") if "," in named else ("the GPU", "it")
        others = len([gpu for gpu in facts.gpus.devices if gpu_vendors.has_cuda(gpu.vendor)]) > len(
            handles
        )
        alone = "; the others keep running" if others else ""
        step = Fix(
            f"End the programs that use {those}, then reset {them}{alone}",
            f"sudo nvidia-smi --gpu-reset -i {named}",
        )
    else:
        step = Fix(
            "End the programs on all GPUs, then reset all: it is not known which needs it",
            "sudo nvidia-smi --gpu-reset",
        )
    return (step, Fix("Where that is refused, restart the machine", "sudo reboot"))


def fabric_manager(_: HostFacts) -> Fixes:
    """The service without which the GPUs of an NVSwitch machine do not compute."""
    return (
        Fix("Start the Fabric Manager", "sudo systemctl enable --now nvidia-fabricmanager"),
        Fix(f"Where it is missing, install that of exactly the driver's version: {FABRIC_GUIDE}"),
    )


def device_links(facts: HostFacts) -> Fixes:
    """Keep the GPUs of running containers over `systemctl daemon-reload`."""
    return (
        *generate_cdi(facts),
        Fix(
            "Or make the links in /dev/char that systemd wants, and restart the container",
            "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
            step="alternative",
        ),
    )


def selinux(_: HostFacts) -> Fixes:
    """Let containers use device nodes under SELinux."""
    return (
        Fix(
            "Allow containers to use devices (all containers of this machine)",
            "sudo setsebool -P container_use_devices true",
        ),
    )


def node_groups(facts: HostFacts, nodes: Sequence[str]) -> Fixes:
    """Device nodes that a user may not open: whose they are, and who is let in."""
    listed = " ".join(shlex.quote(node) for node in nodes[:_SHOWN_NODES])
    steps = [Fix("See who may open them", f"ls -ln {listed}", step="look")] if listed else []
    if any(node.startswith("/dev/nvidia") for node in nodes):
        steps.append(
            Fix(
                "NVIDIA's driver gives its nodes the mode 0666 unless it was told otherwise: see by what",
                "grep -rs NVreg_DeviceFile /etc/modprobe.d",
            )
        )
    elif facts.engine.rootless:
        steps.append(
            Fix("A rootless engine has no groups of this machine: your own user must be let in")
        )
    else:
        steps.append(Fix("Hand the container the number of the nodes' group by group_add"))
    return tuple(steps)


def own_groups(_: HostFacts, nodes: Sequence[str], groups: Sequence[int | None]) -> Fixes:
    """Device nodes that this user may not open, where containers have no more rights than he has."""
    listed = " ".join(shlex.quote(node) for node in nodes[:_SHOWN_NODES])
    look = Fix("See who may open them", f"ls -ln {listed}", step="look")
    numbers = ",".join(str(group) for group in dict.fromkeys(groups) if group)
    if not numbers:
        return (look,)
    says = "Join the nodes' group on this machine, then log out and in again"
    return (look, Fix(says, f'sudo usermod -aG {numbers} "$USER"'))


def amd_groups(facts: HostFacts) -> Fixes:
    """AMD's nodes are open to groups, and a container knows these by number only."""
    nodes = [
        node
        for gpu in facts.gpus.devices
        if gpu_vendors.of(gpu.vendor).nodes.by_group
        for node in gpu.device_files
    ] or ["/dev/dri/renderD*"]
    files = " ".join(dict.fromkeys(["/dev/kfd", *nodes]))
    return (
        Fix(
            "Hand the container the numbers of these groups by group_add: a name would be looked up "
            "in the image",
            f"stat -c '%n %g' {files}",
        ),
        Fix(
            "Join the groups on this machine, then log out and in again",
            'sudo usermod -aG render,video "$USER"',
        ),
    )


def amd_driver(facts: HostFacts) -> Fixes:
    """AMD's kernel driver, loaded and not kept from loading."""
    if _is_wsl(facts):
        text = "On WSL a program uses AMD's GPU through ROCm for WSL, which has no /dev/kfd"
        return (Fix(text), Fix("Update WSL, in PowerShell", "wsl --update"))
    return (
        Fix("Load AMD's driver", "sudo modprobe amdgpu"),
        Fix(
            "Where it does not load, see what keeps it from that",
            "grep -rs amdgpu /etc/modprobe.d; grep -oE 'nomodeset|modprobe.blacklist=[^ ]*' /proc/cmdline",
        ),
    )


def update_wsl(_: HostFacts) -> Fixes:
    """Under WSL the driver is that of Windows."""
    return (
        Fix(
            "Install the newest driver of the GPU on Windows; inside WSL install no display driver"
        ),
        Fix("Update WSL, in PowerShell", "wsl --update"),
        Fix("Restart WSL, in PowerShell", "wsl --shutdown"),
    )


def move_to_wsl2(_: HostFacts) -> Fixes:
    """WSL 1 has no kernel, and so neither containers nor GPUs."""
    return (
        Fix(
            "See the name and version of this distribution, in PowerShell",
            "wsl --list --verbose",
            step="look",
        ),
        Fix("Move it to WSL 2, in PowerShell", "wsl --set-version NAME 2"),
    )
