"""Files and answers of which only a part may be kept, whatever stands in the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from dshpc_setup.documents import foreign

# Never kept: they say nothing of the hardware but whose it is.
_NEVER = re.compile(
    r"/etc/(?:hostname|hosts|passwd|group|shadow|gshadow|machine-id|resolv\.conf|fstab|exports)"
    r"|/etc/ssh/.*|/var/lib/dbus/machine-id|/proc/sys/kernel/(?:domainname|random/.*)"
    r"|/sys/(?:class|devices/virtual)/dmi/id/.*(?:serial|uuid|asset_tag)"
    r"|/sys/firmware/(?:dmi|efi)/.*|/sys/firmware/acpi/tables/(?:MSDM|SLIC)"
    r"|/proc/(?:(?:self|\d+)/)?mounts"
    r"|/(?:proc/device-tree|sys/firmware/devicetree/base)/.*serial.*"
)

_ON_COMMAND_LINE = re.compile(
    r"(?:modprobe|module|rd\.driver|nvidia|nouveau|amdgpu|radeon|i915|xe|drm|iommu|intel_iommu"
    r"|amd_iommu|pci|pcie_\w+|vfio[\w-]*|nomodeset|cgroup\w*|systemd\.unified_cgroup_hierarchy|swapaccount"
    r"|mem|maxcpus|nr_cpus|isolcpus|nosmt|selinux|enforcing|apparmor|security|lsm|lockdown|quiet"
    r"|hugepages\w*|default_hugepagesz|numa\w*|video)(?:[._][\w.-]+)?(?:=.*)?"
)
_SELF_ENVIRONMENT = re.compile(r"container|WSL_INTEROP|KUBERNETES_SERVICE_PORT")
_MODPROBE = re.compile(r"\s*(?:blacklist\s+\S+|install\s+\S+\s+/?(?:\w+/)*(?:true|false))\s*")
_ADDRESS = re.compile(r"\b0x[0-9a-f]{12,16}\b")
_STATUS = re.compile(
    r"(?:Uid|Gid|Groups|NSsid|NSpgid|NSpid|NStgid|Name|Umask|P?Pid|Tgid|Ngid|TracerPid):"
)
_MOUNTS = ("/", "/sys", "/proc", "/dev", "/run", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf",
           "/.dockerenv", "/usr/lib/wsl", "/mnt/wsl", "/init")  # fmt: skip
# A socket that is a mount of its own comes from outside of the container.
_SOCKET = re.compile(r"(?:/var)?/run/(?:user/\d+/)?(?:docker|podman/podman)\.sock")
_MOUNTS_BELOW = ("/sys/", "/proc/", "/dev/", "/usr/lib/wsl/")
# File systems whose source and options name no disk, no server and no user.
_OF_NOBODY = frozenset(
    "overlay fuse.fuse-overlayfs fuse.lxcfs proc sysfs devtmpfs devpts tmpfs mqueue cgroup cgroup2 "
    "rootfs ramfs squashfs".split()
)
_NAME = re.compile(r"[\w./+-]{4,300}")
_LIBRARY = re.compile(
    r"lib[\w+-]*(?:nvidia|(?<!libi)cuda|nvml|amd|hsa|hip|rocm|rocr|opencl|level|ze_|dxcore|d3d12|drm|intel|vulkan)"
    r"[\w.+-]*\.so",
    re.IGNORECASE,
)


# The kernel's and the drivers' own files: nobody but them writes a number there
_MEASURED = re.compile(
    r"/(?:proc|sys)/.*|/etc/(?:ld\.so\.cache|nv_tegra_release)|/(?:etc|run|var/run)/cdi/.*"
    r"|/(?:var/)?run/[\w./-]*\.pid|/[\w./-]*/(?:amdgpu|pci)\.ids"
)
_SOMEBODYS = re.compile(
    r"/sys/(?:class|devices/virtual)/dmi/.*|/proc/driver/nvidia/params|/proc/(?:self|\d+)/environ"
    r"|/proc/(?:cmdline|version)|/sys/module/.*/parameters/.*"
)


def is_measured(path: str) -> bool:
    """Whether the numbers in that file are of the kernel or of a driver."""
    return bool(_MEASURED.fullmatch(path)) and not _SOMEBODYS.fullmatch(path)


def kept(path: str, text: str) -> str | None:
    """Of a file's text what may be kept, for all that a probe looks for; None: nothing of it."""
    if _NEVER.fullmatch(path):
        return None
    for pattern, filtered in _RULES:
        if pattern.fullmatch(path):
            return filtered(text)
    return text


def _lines(keep: Callable[[str], bool]) -> Callable[[str], str]:
    def filtered(text: str) -> str:
        return "".join(line for line in text.splitlines(keepends=True) if keep(line))

    return filtered


def _command_line(text: str) -> str:
    return " ".join(word for word in text.split() if _ON_COMMAND_LINE.fullmatch(word)) + "\n"


def _environment(text: str) -> str:
    kept_ones = (
        item for item in text.split("\0") if _SELF_ENVIRONMENT.fullmatch(item.partition("=")[0])
    )
    return "".join(f"{item}\0" for item in kept_ones)


def _libraries(text: str) -> str:
    """Of the loader's index the names that have to do with GPUs, in its own form."""
    found = (name for name in _NAME.findall(text) if _LIBRARY.search(name))
    return "".join(f"{name}\0" for name in dict.fromkeys(found))


def _processors(text: str) -> str:
    """Without what fills pages: flags are told of the first processor only."""
    seen: set[str] = set()
    kept_lines = []
    for line in text.splitlines(keepends=True):
        key = line.partition(":")[0].strip().lower()
        if key == "serial" or key in ("bugs", "vmx flags", "power management", "address sizes"):
            continue
        if key in ("flags", "features") and key in seen:
            continue
        seen.add(key)
        kept_lines.append(line)
    return "".join(kept_lines)


def _mounted(text: str) -> str:
    """Where the kernel's own file systems and our root lie, but not whose disk or share it is."""
    kept_lines = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        where, words = "".join(before.split()[4:5]), after.split(" ")
        known = where in _MOUNTS or where.startswith(_MOUNTS_BELOW) or _SOCKET.fullmatch(where)
        if len(words) != 3 or not known:
            continue
        kind, source, options = words
        if kind not in _OF_NOBODY:
            source, options = "none", options.partition(",")[0]
        kept_lines.append(f"{before} - {kind} {source} {options}\n")
    return "".join(kept_lines)


def _daemon(text: str) -> str:
    try:
        value = foreign.value(text)
    except (ValueError, RecursionError):
        return ""
    keep = ("features", "runtimes", "default-runtime", "exec-opts", "storage-driver", "data-root",
            "cdi-spec-dirs", "default-cgroupns-mode", "live-restore")  # fmt: skip
    if not isinstance(value, dict):
        return ""
    options = value.get("log-opts")
    value = {key: value[key] for key in keep if key in value}
    if isinstance(value.get("runtimes"), dict):
        value["runtimes"] = _runtimes(value["runtimes"])
    if size := _log_size(options):
        value["log-opts"] = {"max-size": size}
    return json.dumps(value, indent=1) + "\n"


def _log_size(options: object) -> str | None:
    """Of `log-opts`, whose other values may name anything."""
    size = options.get("max-size") if isinstance(options, dict) else None
    if isinstance(size, str) and re.fullmatch(r"-?[0-9]{1,9}[A-Za-z]{0,3}", size):
        return size
    return None


# Of NVIDIA's config.toml what decides how GPUs are handed over; the rest are paths and variables.
_TOOLKIT = re.compile(
    r"\s*(?:\[[\w.\" -]+\]|[\w.\" -]*(?:no-cgroups|mode|supported-driver-capabilities|disable-require"
    r"|skip-mode-detection|load-kmods|accept-nvidia-visible-devices-[\w-]+)\"?\s*=.*)\s*"
)
_FIELDS = 22  # of /proc/PID/stat, up to when the process was started; then come its addresses


def _process(text: str) -> str:
    before, mark, after = text.rpartition(")")
    return f"{before}{mark} {' '.join(after.split()[: _FIELDS - 2])}\n" if mark else ""


_RULES: tuple[tuple[re.Pattern[str], Callable[[str], str]], ...] = (
    (re.compile(r"/proc/cmdline"), _command_line),
    (re.compile(r"/proc/cpuinfo"), _processors),
    (re.compile(r"/proc/(?:self|\d+)/environ"), _environment),
    (re.compile(r"/proc/1/status"), _lines(lambda line: line.startswith("CapBnd:"))),
    (re.compile(r"/proc/(?:self|\d+)/status"), _lines(lambda line: not _STATUS.match(line))),
    (re.compile(r"/proc/(?:self|\d+)/mountinfo"), _mounted),
    (re.compile(r"/proc/(?:modules|kallsyms)"), lambda text: _ADDRESS.sub("0x0", text)),
    (re.compile(r"/etc/ld\.so\.cache"), _libraries),
    # Of a table in binary form the one word that a probe looks for: who made the virtual machine
    (
        re.compile(r"/sys/firmware/acpi/tables/.*"),
        lambda text: "FIRECK" if "FIRECK" in text else "",
    ),
    (
        re.compile(r"/(?:etc|run|lib|usr/lib|usr/local/lib)/modprobe\.d/.*"),
        _lines(lambda line: bool(_MODPROBE.fullmatch(line))),
    ),
    (re.compile(r".*/daemon\.json"), _daemon),
    (
        re.compile(r".*/nvidia-container-runtime/config\.toml"),
        _lines(lambda line: bool(_TOOLKIT.fullmatch(line))),
    ),
    (re.compile(r"/proc/\d+/stat"), _process),
    (re.compile(r"/proc/stat"), _lines(lambda line: line.startswith("btime "))),
    (re.compile(r".*/\.docker/.*"), lambda _text: ""),
)

_INFO_TEXTS = frozenset(
    "ServerVersion OperatingSystem OSVersion OSType Architecture KernelVersion CgroupDriver "
    "CgroupVersion Driver LoggingDriver DefaultRuntime DockerRootDir IndexServerAddress InitBinary "
    "Isolation BuildahVersion".split()
)
_INFO_WHOLE = frozenset(
    "SecurityOptions CDISpecDirs DiscoveredDevices ContainerdCommit RuncCommit InitCommit Warnings "
    "GenericResources FirewallBackend Features".split()
)
_DRIVER_STATUS = frozenset(
    ["Backing Filesystem", "Supports d_type", "Using metacopy", "Native Overlay Diff", "userxattr",
     "driver-type", "Supports volatile", "Supports shifting"]
)  # fmt: skip


def engine_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """`docker info` without labels, registries, proxies, swarm: names of others, and passwords."""
    found: dict[str, Any] = {}
    for key, value in info.items():
        plain = value is None or isinstance(value, (bool, int, float))
        if plain or key in _INFO_TEXTS or key in _INFO_WHOLE or key in ("ID", "Name"):
            found[key] = value
    for key in ("HttpProxy", "HttpsProxy"):
        if key in info:
            found[key] = "http://proxy.invalid:3128" if info[key] else ""
    if "NoProxy" in info:
        found["NoProxy"] = "localhost" if info["NoProxy"] else ""
    if "Labels" in info:
        found["Labels"] = []
    if isinstance(info.get("Runtimes"), dict):
        found["Runtimes"] = _runtimes(info["Runtimes"])
    if isinstance(info.get("DriverStatus"), list):
        found["DriverStatus"] = [
            pair
            for pair in info["DriverStatus"]
            if isinstance(pair, list) and len(pair) == 2 and pair[0] in _DRIVER_STATUS
        ]
    if isinstance(info.get("Plugins"), dict):
        found["Plugins"] = {
            key: names
            for key, names in info["Plugins"].items()
            if key in ("Volume", "Network", "Log") and isinstance(names, list)
        }
    if isinstance(info.get("Swarm"), dict):
        state = info["Swarm"].get("LocalNodeState")
        states = ("inactive", "pending", "active", "error", "locked")
        found["Swarm"] = {"LocalNodeState": state if state in states else "inactive"}
    return found


def _runtimes(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {"path": item["path"]} if isinstance(item, dict) and "path" in item else {}
        for name, item in value.items()
    }
