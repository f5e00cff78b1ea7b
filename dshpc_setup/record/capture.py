"""What a recording holds beyond what the probes read today: what later versions may want to know.

Everything is asked of a RecordingMachine, which keeps the answers; nothing is judged here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import State
from dshpc_setup.machine import Reply, Say
from dshpc_setup.machine.recording import RecordingMachine as Machine
from dshpc_setup.probes import pci
from dshpc_setup.probes.amd import amd_smi, rocm_smi
from dshpc_setup.probes.nvidia import smi_csv as nvidia_smi
from dshpc_setup.probes.nvidia import smi_xml as nvidia_xml

DEADLINE_S = 90.0
_TOOL_S = 15.0  # a driver without persistence takes seconds to wake eight GPUs
_LIBRARY_S = 15.0
_MOST_FILES = 20_000

_VENDORS = gpu_vendors.all_of_them()
PROGRAMS = (
    *"docker docker-compose dockerd podman nerdctl clinfo lspci modprobe systemctl getenforce".split(),
    *("mokutil", "slurmd"),
    *(program for vendor in _VENDORS for program in vendor.record.programs),
)

ENVIRONMENT = (
    *"HOME XDG_CONFIG_HOME container KUBERNETES_SERVICE_HOST LD_LIBRARY_PATH DOCKER_HOST".split(),
    *"DOCKER_CONTEXT DOCKER_API_VERSION WSL_INTEROP DOCKER_CONFIG".split(),
    *(name for vendor in _VENDORS for name in vendor.record.variables),
)
"""The variables that are recorded; there are no others."""

_FILES = (
    "/etc/os-release /usr/lib/os-release /proc/cpuinfo /proc/meminfo /proc/modules /proc/devices "
    "/proc/cmdline /proc/self/cgroup /proc/self/status /proc/1/cgroup /proc/2/comm "
    "/proc/sys/kernel/osrelease /proc/sys/kernel/arch /proc/version "
    "/etc/ld.so.cache /etc/nv_tegra_release /sys/fs/selinux/enforce /sys/hypervisor/type "
    "/sys/class/dmi/id/sys_vendor /sys/class/dmi/id/product_name /sys/class/dmi/id/board_vendor "
    "/sys/class/dmi/id/bios_vendor /sys/class/dmi/id/chassis_type "
    "/sys/firmware/devicetree/base/model /sys/firmware/devicetree/base/compatible "
    "/proc/device-tree/model /proc/device-tree/compatible /proc/sys/fs/binfmt_misc/WSLInterop "
    "/sys/devices/soc0/family /sys/devices/soc0/machine /sys/devices/soc0/soc_id "
    "/sys/devices/system/cpu/online /sys/devices/system/cpu/possible "
    "/sys/devices/system/cpu/present /sys/devices/system/cpu/offline "
    "/sys/devices/system/cpu/isolated /sys/devices/system/cpu/smt/active "
    "/sys/devices/system/node/online /sys/devices/system/node/possible "
    "/sys/devices/system/node/has_memory"
).split()
_EXISTENCE = (
    "/.dockerenv /run/.containerenv /run/systemd/system /run/WSL /dev/dxg /usr/lib/wsl/lib "
    "/etc/selinux/config /proc/xen /etc/cdi /var/run/cdi /run/docker.sock /var/run/docker.sock "
    "/run/nvidia-persistenced/socket /run/nvidia-fabricmanager /opt/rocm /var/lib/snapd /snap/bin/docker"
).split()
_FOLDERS = ("/dev", "/dev/dri", "/dev/dri/by-path", "/dev/nvidia-caps", "/dev/vfio", "/usr/lib/wsl/lib",
            "/etc/cdi", "/var/run/cdi", "/etc/modprobe.d", "/sys/class/drm", "/sys/class/accel")  # fmt: skip
_MODULES = ("vfio_pci", *(name for vendor in _VENDORS for name in vendor.record.modules))
_OF_A_MODULE = ("version", "srcversion", "initstate", "taint", "refcnt")
_OF_A_CARD = (
    "vendor device subsystem_vendor subsystem_device class revision numa_node local_cpulist "
    "local_cpus boot_vga enable modalias power_state current_link_speed current_link_width "
    "max_link_speed max_link_width product_name product_number vbios_version unique_id "
    "mem_info_vram_total mem_info_vram_used mem_info_vis_vram_total mem_info_gtt_total "
    "mem_info_gtt_used mem_info_vram_vendor gpu_busy_percent mem_busy_percent "
    "current_compute_partition available_compute_partition current_memory_partition "
    "available_memory_partition sriov_numvfs sriov_totalvfs reset_method uevent"
).split()
_LINKS_OF_A_CARD = ("driver", "subsystem", "iommu_group", "physfn", "firmware_node")
_OF_A_CPU = ("package_cpus_list", "core_cpus_list", "core_siblings_list", "thread_siblings_list",
             "physical_package_id", "core_id", "die_id")  # fmt: skip
_OF_A_GROUP = (
    "cgroup.controllers cpu.max cpu.cfs_quota_us cpu.cfs_period_us memory.max memory.high "
    "memory.limit_in_bytes memory.stat cpuset.cpus cpuset.cpus.effective cpuset.effective_cpus"
).split()
_GPU_NODE = re.compile("|".join(each.record.nodes for each in _VENDORS if each.record.nodes))


def questions(machine: Machine) -> dict[str, Callable[[Say], None]]:
    """What to ask apart, so that what hangs holds up nothing but itself."""
    asked: dict[str, Callable[[Machine], None]] = {
        "system": _system,
        "cpus": _cpus,
        "groups": _groups,
        "pci": _pci,
        "kfd": lambda one: _walk("/sys/class/kfd/kfd/topology", one, skip=("caches", "perf")),
        **{
            folder: partial(_walk, folder)
            for vendor in _VENDORS
            for folder in vendor.record.folders
        },
        "devices": _devices,
        "nvml": lambda one: _libraries(one, {"nvml": one.nvml, "nvml_readings": one.nvml_readings}),
        "amdsmi": lambda one: _libraries(one, {"amdsmi": one.amdsmi}),
        "nvidia-smi": _nvidia_tools,
        "amd tools": _amd_tools,
        "docker": _docker_tools,
    }
    return {name: partial(_ask, ask, machine) for name, ask in asked.items()}


def _ask(ask: Callable[[Machine], None], machine: Machine, _say: Say) -> None:
    ask(machine)


def _libraries(machine: Machine, ask: Mapping[str, Callable[[float], Reply]]) -> None:
    """Once each: what the probes have asked is known."""
    for name, question in ask.items():
        known = machine.log.replies.get(name)
        if (known or question(_LIBRARY_S)).state == "timeout":
            return


def _system(machine: Machine) -> None:
    for path in _FILES:
        machine.read(path)
    for path in _EXISTENCE:
        machine.exists(path)
    for folder in ("/etc/cdi", "/var/run/cdi", "/usr/lib/wsl/lib"):
        machine.listdir(folder)
    for name in machine.listdir("/etc/modprobe.d"):
        if name.endswith(".conf"):
            machine.read(f"/etc/modprobe.d/{name}")
    for module in _MODULES:
        for name in _OF_A_MODULE if machine.exists(f"/sys/module/{module}") else ():
            machine.read(f"/sys/module/{module}/{name}")
    for program in PROGRAMS:
        machine.which(program)


def _cpus(machine: Machine) -> None:
    root = "/sys/devices/system"
    for kind, names in (("cpu", _OF_A_CPU), ("node", ("cpulist", "distance", "meminfo"))):
        for entry in machine.listdir(f"{root}/{kind}"):
            if re.fullmatch(rf"{kind}\d{{1,5}}", entry):
                inside = "topology/" if kind == "cpu" else ""
                for name in names:
                    machine.read(f"{root}/{kind}/{entry}/{inside}{name}")


def _groups(machine: Machine) -> None:
    """Of our own control group and of those above it, in both versions."""
    for line in (machine.read("/proc/self/cgroup").text or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers.startswith("name="):
            continue
        mounted = f"/sys/fs/cgroup/{controllers}".rstrip("/")
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts), -1, -1):
            folder = "/".join([mounted, *parts[:depth]])
            for name in _OF_A_GROUP if machine.exists(folder) else ():
                machine.read(f"{folder}/{name}")


def _pci(machine: Machine) -> None:
    for entry in machine.listdir(pci.ROOT):
        folder = f"{pci.ROOT}/{entry}"
        machine.readlink(folder)
        kind = (machine.read(f"{folder}/class").text or "").strip()
        vendor = (machine.read(f"{folder}/vendor").text or "").strip()
        display = kind.startswith(("0x03", "0x12"))
        switch = vendor == "0x10de" and kind.startswith("0x06")
        if not display and not switch:
            continue
        for name in _OF_A_CARD:
            machine.read(f"{folder}/{name}")
        for name in _LINKS_OF_A_CARD:
            machine.readlink(f"{folder}/{name}")
        for name in machine.listdir(f"{folder}/ras"):
            if name.endswith("_err_count"):
                machine.read(f"{folder}/ras/{name}")
        for name in machine.listdir(f"{folder}/drm"):
            machine.read(f"{folder}/drm/{name}/dev")
            machine.read(f"{folder}/drm/{name}/lmem_total_bytes")
    for name in machine.listdir("/sys/class/drm"):
        machine.readlink(f"/sys/class/drm/{name}")


def _devices(machine: Machine) -> None:
    for folder in _FOLDERS:
        machine.listdir(folder)
    nodes = [f"/dev/{name}" for name in machine.listdir("/dev") if _GPU_NODE.match(name)]
    for folder in ("/dev/dri", "/dev/nvidia-caps"):
        nodes += [f"{folder}/{name}" for name in machine.listdir(folder)]
    for node in nodes:
        if machine.is_device(node):
            machine.device_number(node)
            machine.group_of(node)
            machine.access(node)


def _nvidia_tools(machine: Machine) -> None:
    wsl = "/usr/lib/wsl/lib/nvidia-smi"
    program = machine.which("nvidia-smi") or (wsl if machine.exists(wsl) else None)
    _ask_tool(
        machine, program,
        [nvidia_smi.LIST_ARGUMENTS, nvidia_xml.ARGUMENTS, nvidia_smi.ARGUMENTS, ("topo", "-m")],
    )  # fmt: skip


def _amd_tools(machine: Machine) -> None:
    folder = f"{machine.env.get('ROCM_PATH') or '/opt/rocm'}/bin"
    for tool, calls in (
        ("amd-smi", (amd_smi.STATIC, amd_smi.LIST, ("metric", "--json"), ("version", "--json"))),
        ("rocm-smi", (rocm_smi.ARGUMENTS, rocm_smi.READING_ARGUMENTS)),
    ):
        _ask_tool(machine, machine.which(tool) or machine.which(f"{folder}/{tool}"), calls)


def _docker_tools(machine: Machine) -> None:
    docker = machine.which("docker")
    for arguments in (
        ("--version",),
        ("version", "--format", "{{json .}}"),
        ("context", "show"),
        ("compose", "version", "--short"),
        ("buildx", "version"),
    ):
        # As the probes call it, by its name.
        if docker is not None:
            _run(machine, "docker", *arguments)
    if machine.which("docker-compose") is not None:
        _run(machine, "docker-compose", "version", "--short")


def _run(machine: Machine, *argv: str) -> State:
    """How it went; what the probes have run is not run again."""
    known = machine.log.commands.get(argv)
    return (known or machine.run(argv, deadline_s=_TOOL_S)).state


def _ask_tool(machine: Machine, program: str | None, calls: Iterable[tuple[str, ...]]) -> None:
    """One call after the other; once one hangs, the driver does, and the others would too."""
    for arguments in calls if program is not None else ():
        assert program is not None
        if _run(machine, program, *arguments) == "timeout":
            return


def _walk(root: str, machine: Machine, *, skip: tuple[str, ...] = ()) -> None:
    """Every file below the folder; links are kept and not followed."""
    waiting, seen = [root], 0
    while waiting and seen < _MOST_FILES:
        folder = waiting.pop()
        for name in machine.listdir(folder):
            path = f"{folder}/{name}"
            seen += 1
            if name in skip or machine.readlink(path) is not None:
                continue
            if machine.listdir(path):
                waiting.append(path)
            else:
                machine.read(path)
