"""Whether the machine is a virtual one, and whose.

The names that firmware gives are those that systemd-detect-virt knows, and of clouds beside them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dshpc_setup.facts import PlatformKind, State
from dshpc_setup.machine import Machine
from dshpc_setup.probes.trace import Trace, kept

_DMI = "/sys/class/dmi/id"
_DMI_FIELDS = (
    "product_name", "sys_vendor", "board_vendor", "bios_vendor", "chassis_vendor",
    "product_version",
)  # fmt: skip
# What the fields begin with. "Microsoft Corporation" and "Google" also build laptops, and "Oracle
# Corporation" and "Nutanix" servers: there the product's name alone tells.
_BY_PREFIX = (
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("KubeVirt", "kvm"),
    ("RHEV Hypervisor", "kvm"),
    ("oVirt", "kvm"),
    ("AHV", "kvm"),
    ("Alibaba Cloud ECS", "kvm"),
    ("Droplet", "kvm"),
    ("vServer", "kvm"),
    ("Amazon EC2", "amazon"),
    ("Google Compute Engine", "google"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "virtualbox"),
    ("VirtualBox", "virtualbox"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Xen", "xen"),
    ("HVM domU", "xen"),
    ("Hyper-V", "hyperv"),
    ("Apple Virtualization", "apple"),
    ("QEMU", "qemu"),
    ("Bochs", "qemu"),
)
_NO_NAME = (("a virtual machine", "no name of a maker of those, no /sys/hypervisor"),)
_CLOUDS = ("amazon", "google")  # they rent out bare metal as well, under the same names
_CLOCKS = "/sys/devices/system/clocksource/clocksource0/available_clocksource"
_DOM0 = 1 << 11  # Xen's feature bit of the domain that owns the hardware


@dataclass(frozen=True)
class Signs:
    """What the machine says of itself; None where it could not be read."""

    dmi: dict[str, str] = field(default_factory=dict)
    flag: bool | None = None  # the processor's own "there is a hypervisor"
    flagless: bool = False  # a processor that has no such flag: x86 alone does
    clocks: str = ""
    hypervisor: str | None = None  # /sys/hypervisor/type
    owns_hardware: bool = False  # Xen's dom0
    tree: str | None = None  # the device tree's hypervisor, or what board it was made for
    tree_model: str | None = None
    user_mode: bool = False
    firecracker: bool = False


@dataclass(frozen=True)
class Verdict:
    """`name` is Platform.virtual_machine; `instead` says what else could be thought, and why not."""

    name: str | None
    source: str
    says: str
    instead: tuple[tuple[str, str], ...] = ()


def probe(look: Trace, kind: PlatformKind) -> str | None:
    """The name of the virtual machine's maker, "none" on bare metal, None where nothing tells."""
    if kind == "wsl2":
        verdict = Verdict("hyperv", "WSL 2", "it always runs in a virtual machine of Hyper-V")
    elif kind == "wsl1":
        verdict = Verdict(None, "WSL 1", "it has no kernel of its own to ask")
    elif kind == "macos":
        verdict = _macos(look)
    else:
        verdict = judge(_signs(look))
    state: State = "present" if verdict.name is not None else "unsupported"
    look.saw("virtual machine", state, verdict.source, verdict.says)
    says = {"none": "none (bare metal)", "unknown": "yes, of an unknown kind"}
    name = verdict.name or "not known"
    look.concluded(
        "platform.virtual_machine",
        says.get(name, name),
        (verdict.source, verdict.says),
        instead=verdict.instead,
    )
    return verdict.name


def judge(signs: Signs) -> Verdict:
    """What follows. Bare metal only where the firmware names its maker and nothing speaks against."""
    if signs.user_mode:
        return Verdict("uml", "/proc/cpuinfo", "the processor is User Mode Linux")
    name, where, text = _by_dmi(signs.dmi)
    if name in _CLOUDS and _is_metal(signs, name):
        why = "the processor has no hypervisor flag" if signs.flag is False else "a .metal type"
        says = f"{signs.dmi.get('product_name') or text}: {why}"
        instead = ((name, f"{where} says {text!r}, as the cloud's bare metal does too"),)
        return Verdict("none", _DMI, says, instead)
    if signs.hypervisor is not None and name in (None, "xen"):
        if not signs.owns_hardware:
            known = signs.hypervisor if signs.hypervisor == "xen" else "unknown"
            return Verdict(known, "/sys/hypervisor/type", f"it says {signs.hypervisor!r}")
        name = None
    if name in (None, "qemu") and signs.firecracker:
        return Verdict("firecracker", "ACPI tables", "Firecracker wrote them")
    if name == "qemu" and "kvm-clock" in signs.clocks:
        says = f"the kernel has a clock of KVM; {where} says {text!r}"
        return Verdict("kvm", _CLOCKS, says, (("qemu", "that would be without KVM"),))
    if name is not None:
        return Verdict(name, f"{_DMI}/{where}", f"it says {text!r}")
    return _without_a_name(signs)


def _without_a_name(signs: Signs) -> Verdict:
    if signs.tree is not None:
        return Verdict(*_by_tree(signs.tree))
    if signs.flag:
        for clock, name in (("kvm-clock", "kvm"), ("hyperv", "hyperv"), ("xen", "xen")):
            if clock in signs.clocks:
                return Verdict(name, _CLOCKS, f"the kernel has a clock of {name}")
        says = "the processor says that there is a hypervisor, and nothing says which"
        return Verdict("unknown", "/proc/cpuinfo", says)
    maker = signs.dmi.get("sys_vendor") or signs.dmi.get("product_name")
    if maker and signs.flag is False:
        says = f"made by {maker!r}, and the processor has no hypervisor flag"
        return Verdict("none", f"{_DMI}, /proc/cpuinfo", says, _NO_NAME)
    if signs.flagless and (maker or signs.tree_model):
        said = maker or signs.tree_model
        source = _DMI if maker else "/proc/device-tree"
        says = f"made by {said!r}, and nothing speaks of a hypervisor"
        return Verdict("none", source, says, _NO_NAME)
    says = "the firmware's names cannot be read here"
    if signs.flag is False:
        says += "; that the processor has no hypervisor flag is not enough"
    elif maker:
        says = f"the firmware names {maker!r}; whether a hypervisor is beneath cannot be read here"
    return Verdict(None, f"{_DMI}, /proc/cpuinfo", says)


def _by_dmi(dmi: dict[str, str]) -> tuple[str | None, str, str]:
    """The name, the field that gives it and its text."""
    if dmi.get("sys_vendor", "").startswith("Microsoft") and dmi.get("product_name", "").startswith(
        "Virtual Machine"
    ):
        return "hyperv", "product_name", dmi["product_name"]
    for where in _DMI_FIELDS:
        text = dmi.get(where, "")
        for prefix, name in _BY_PREFIX:
            if text.startswith(prefix):
                return name, where, text
    return None, "", ""


def _is_metal(signs: Signs, name: str | None) -> bool:
    if signs.flag:
        return False
    if name == "amazon":
        return re.search(r"\.metal(?:-|$)", signs.dmi.get("product_name", "")) is not None
    return signs.flag is False  # a guest of theirs on x86 always sees the flag


def _by_tree(told: str) -> tuple[str, str, str]:
    source = "/proc/device-tree"
    for word, name in (
        ("linux,kvm", "kvm"),
        ("xen", "xen"),
        ("vmware", "vmware"),
        ("qemu", "qemu"),
        ("linux,dummy-virt", "qemu"),
    ):
        if word in told:
            return name, source, f"it says {told!r}"
    return "unknown", source, f"it says {told!r}"


def _signs(look: Trace) -> Signs:
    machine = look.machine
    dmi, denied = {}, []
    for name in _DMI_FIELDS:
        read = machine.read(f"{_DMI}/{name}")
        if read.text is not None and read.text.strip():
            dmi[name] = kept(read.text)[:80]
        elif read.state == "denied":
            denied.append(name)
    if denied:
        look.saw("virtual machine", "denied", _DMI, f"may not be read: {', '.join(denied)}")
    cpuinfo = look.text("/proc/cpuinfo") or ""
    flag, user_mode = parse_cpuinfo(cpuinfo)
    features = look.text("/sys/hypervisor/properties/features") or ""
    return Signs(
        dmi,
        flag,
        bool(cpuinfo) and flag is None,
        look.text(_CLOCKS) or "",
        kept(look.text("/sys/hypervisor/type") or "")[:40] or None,
        parse_owns_hardware(features, look.text("/proc/xen/capabilities") or ""),
        _device_tree(machine),
        kept((look.text("/proc/device-tree/model") or "").rstrip("\0"))[:80] or None,
        user_mode,
        # Behind a flag: the tables are binary, and root's alone.
        bool(flag and not dmi) and "FIRECK" in (look.text("/sys/firmware/acpi/tables/FACP") or ""),
    )


def _device_tree(machine: Machine) -> str | None:
    """What it says of a hypervisor; None where it does not, or there is none."""
    root = "/proc/device-tree"
    told = machine.read(f"{root}/hypervisor/compatible").text
    if told is None and any("fw-cfg" in name for name in machine.listdir(root)):
        return "qemu fw-cfg"
    if told is None:
        told = machine.read(f"{root}/compatible").text or ""
        if not told.startswith(("linux,dummy-virt", "qemu,")):
            return None
    return kept(told.replace("\0", " "))[:80]


def parse_cpuinfo(text: str) -> tuple[bool | None, bool]:
    """Whether the processor tells of a hypervisor (None: it has no such flag); User Mode Linux."""
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    user_mode = re.search(r"^vendor_id\s*: User Mode Linux", text, re.MULTILINE) is not None
    return ("hypervisor" in flags[1].split() if flags else None), user_mode


def parse_owns_hardware(features: str, capabilities: str) -> bool:
    """Xen: whether this is the domain that runs on the hardware itself."""
    if re.fullmatch(r"[0-9a-fA-F]{1,16}", features, re.ASCII):
        return bool(int(features, 16) & _DOM0)
    return "control_d" in capabilities.split(",")


def _macos(look: Trace) -> Verdict:
    name = "kern.hv_vmm_present"
    result = look.machine.run(["sysctl", "-n", name], deadline_s=look.tool_s(3.0))
    if result.ok and result.stdout.strip() == "0":
        return Verdict("none", f"sysctl {name}", "0")
    if result.ok and result.stdout.strip() == "1":
        return Verdict("unknown", f"sysctl {name}", "1: this macOS is a guest, and not told whose")
    return Verdict(None, f"sysctl {name}", kept(result.text) or "no answer")
