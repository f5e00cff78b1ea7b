"""Steps for what the kernel's log says of drivers, cards and switches. Pure.

Sources: NVIDIA's guides to the driver and to Fabric Manager (GPUs and NVSwitches are reset together), its
list of legacy GPUs (580 is the last series for Maxwell, Pascal and Volta); RPM Fusion's packages; dkms(8),
akmods; the firmware packages of Debian, Ubuntu, Fedora, openSUSE and Arch.
"""

from __future__ import annotations

from dshpc_setup.errors import Fix
from dshpc_setup.facts import HostFacts
from dshpc_setup.remedies.driver import DRIVER_GUIDE, reboot
from dshpc_setup.remedies.family import Fixes, family

_LAST_WITH_PROPRIETARY = 580  # for Maxwell, Pascal and Volta
_BOOT_IMAGE = {
    "deb": "sudo update-initramfs -u",
    "rpm": "sudo dracut --force",
    "suse": "sudo dracut --force",
    "arch": "sudo mkinitcpio -P",
}


def reset_fabric(_: HostFacts) -> Fixes:
    """GPUs and NVSwitches together: one alone is not reset while the others use it."""
    return (
        Fix(
            "End the programs on all GPUs, then reset GPUs and NVSwitches together",
            "sudo systemctl stop nvidia-fabricmanager && sudo nvidia-smi --gpu-reset && "
            "sudo systemctl start nvidia-fabricmanager",
        ),
        Fix("Where that is refused, restart the machine", "sudo reboot"),
    )


def power_cables(_: HostFacts) -> Fixes:
    """A card whose own power connectors are empty; what the slot gives is not enough."""
    return (
        Fix("Switch the machine off, and connect every power connector of the card by a cable of its own "
            "to the power supply"),
        Fix("See that the cable is of the card's kind: a Tesla takes the processor's 8 pins (EPS), not "
            "those of PCIe", step="look"),
    )  # fmt: skip


def proprietary_modules(facts: HostFacts, series: int | None) -> Fixes:
    """The proprietary kernel modules, for a GPU without GSP. `series`: of the installed driver."""
    newest = series is None or series > _LAST_WITH_PROPRIETARY
    number = _LAST_WITH_PROPRIETARY if newest else series
    text = f"Install the driver of the series {number} with its proprietary kernel modules"
    if newest:
        text += ": newer ones have none for this GPU"
    platform, command = facts.platform, None
    if platform.os_id == "ubuntu":
        command = f"sudo apt-get install -y nvidia-driver-{number}"
    elif platform.os_id == "debian" and not newest:
        command = "sudo apt-get install -y nvidia-driver nvidia-kernel-dkms"
    elif platform.os_id == "fedora" and newest:
        command = f"sudo dnf install -y akmod-nvidia-{number}xx xorg-x11-drv-nvidia-{number}xx-cuda"
    install = Fix(text, command) if command else Fix(f"{text}: {DRIVER_GUIDE}")
    return (install, *reboot(facts))


def rebuild_module(facts: HostFacts) -> Fixes:
    """The driver's module for the kernel that runs."""
    headers, build = {
        "deb": ('sudo apt-get install -y "linux-headers-$(uname -r)"', "sudo dkms autoinstall"),
        "rpm": ('sudo dnf install -y "kernel-devel-$(uname -r)"', "sudo akmods --force"),
        "suse": ("sudo zypper install -y kernel-default-devel", "sudo dkms autoinstall"),
        "arch": (None, "sudo pacman -Syu"),
    }.get(family(facts.platform) or "", (None, None))  # fmt: skip
    again = Fix("Build the driver's module again for the kernel that runs", build)
    return (
        *((Fix("Install the headers of the kernel that runs", headers),) if headers else ()),
        *((again,) if build else (Fix(f"{again.text}: {DRIVER_GUIDE}"),)),
        Fix("Load it; where that is refused again, restart the machine into its newest kernel",
            "sudo modprobe nvidia"),
    )  # fmt: skip


def amd_firmware(facts: HostFacts) -> Fixes:
    """The files that amdgpu gives its cards to run."""
    package = {
        "debian": "sudo apt-get install -y firmware-amd-graphics",
        "ubuntu": "sudo apt-get install -y linux-firmware",
        "fedora": "sudo dnf install -y amd-gpu-firmware",
    }.get(facts.platform.os_id or "")
    by_family = {
        "rpm": "sudo dnf install -y linux-firmware",
        "suse": "sudo zypper install -y kernel-firmware-amdgpu",
        "arch": "sudo pacman -S --needed linux-firmware",
    }.get(family(facts.platform) or "")
    text = "Install the firmware of AMD's GPUs"
    if facts.platform.os_id == "debian":
        text += " (the component non-free-firmware must be on)"
    return (
        Fix(text, package or by_family),
        Fix("Make the boot image anew, which may hold the driver without its firmware",
            _BOOT_IMAGE.get(family(facts.platform) or "")),
        *reboot(facts),
        Fix("A card newer than the package needs a newer one: that of linux-firmware, or AMD's amdgpu-dkms"),
    )  # fmt: skip


def address_space(facts: HostFacts) -> Fixes:
    """A card to whose memory the machine's firmware, or a virtual machine, gave no addresses."""
    guest = facts.platform.virtual_machine not in (None, "none")
    realloc = Fix(
        "Or have Linux give out the addresses anew: add pci=realloc to the kernel's command line, in the "
        "boot loader's settings",
        step="alternative",
    )
    if guest:
        return (
            Fix("Start the virtual machine with UEFI firmware (OVMF), not with a BIOS, and give it an "
                "address space for 64-bit devices as large as the memory of all its GPUs"),
            realloc,
            *reboot(facts),
        )  # fmt: skip
    return (
        Fix("In the machine's firmware setup switch on Above 4G Decoding, and Resizable BAR where it is "
            "there; switch off CSM; update the firmware where it has neither"),
        realloc,
        *reboot(facts),
    )  # fmt: skip
