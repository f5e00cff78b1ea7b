"""What the vendors' toolkits and tools say, through the engine or in the container. First match counts.

Sources: libnvidia-container (src/cli, src/nvc.c), nvidia-container-toolkit (cmd/nvidia-container-
runtime-hook), the troubleshooting guide of NVIDIA's toolkit, and public issue threads.
"""

from __future__ import annotations

from dshpc_setup import remedies
from dshpc_setup.passthrough import findings
from dshpc_setup.passthrough.rules import (
    Q,
    Refusal,
    Rule,
    both,
    engine_is,
    in_container,
    no,
    no_cgroups,
    no_toolkit,
    on,
    rootless,
    selinux_enforces,
    systemd_cgroups,
)

_CLI = r"nvidia-container-cli(?:\.real)?: "
_NVML = r"(?:nvml error: |failed to initialize nvml: )"


def _root_without_cgroups(refusal: Refusal) -> bool:
    return no_cgroups(refusal) and not rootless(refusal)


# What a closed device cgroup looks like: a bare errno of the test, NVML's 999 in the container.
_CLOSED = r"\A(?!.*(?:daemon|docker|runc|crun|OCI|mount))[^\n]{0,200}operation not permitted\W*\Z"
_UNKNOWN_ERROR = r"failed to initialize nvml: unknown error"

NVML = (
    Rule(
        findings.VERSIONS_DIFFER,
        r"driver/library version mismatch",
        "the NVIDIA driver was updated, and the old one is still loaded",
        (remedies.reload_driver,),
    ),
    Rule(
        findings.NO_WSL_GPU,
        r"no adapters were found|gpu access blocked by the operating system",
        "WSL sees no GPU",
        (remedies.update_wsl,),
    ),
    Rule(
        findings.SNAP,
        r"libnvidia-ml\.so\.1: cannot open shared object",
        "Docker is a snap, which does not see the driver's libraries of this machine",
        (remedies.replace_snap,),
        engine_is("snap"),
    ),
    Rule(
        findings.DESKTOP_VM,
        r"libnvidia-ml\.so\.1: cannot open shared object",
        "Docker Desktop runs containers in a virtual machine that has no NVIDIA driver",
        (remedies.native_engine,),
        both(engine_is("desktop"), on("linux", "macos")),
    ),
    Rule(
        findings.NO_LIBRARY,
        _CLI + r"[^\n]{0,400}libnvidia-ml\.so\.1: cannot open shared object",
        "the NVIDIA driver's libraries are missing where the engine runs",
        (remedies.driver_libraries,),
    ),
    Rule(
        findings.NO_LIBRARY,
        _CLI + r"detection error: open failed: (?P<file>/\S+?): no such file",
        "{file} of the NVIDIA driver is missing: its installation is incomplete or half updated",
        (remedies.driver_libraries,),
    ),
    Rule(
        findings.DRIVER_NOT_LOADED,
        r"nvml error: driver not loaded",
        "the NVIDIA driver is not loaded",
        (remedies.load_driver,),
    ),
    Rule(
        findings.SELINUX,
        _NVML + r"(?:insufficient permissions|no permission)",
        "the container may not open the GPU's device nodes, and SELinux enforces",
        (remedies.selinux,),
        selinux_enforces,
    ),
    Rule(
        findings.ENGINE_MAY_NOT_OPEN,
        r"nvml error: (?:insufficient permissions|no permission)",
        "the toolkit may not open the GPU's device nodes",
        (lambda facts: remedies.node_groups(facts, ("/dev/nvidiactl", "/dev/nvidia0")),),
    ),
    Rule(
        findings.NODE_DENIED,
        r"failed to initialize nvml: insufficient permissions",
        "the container's user may not open the GPU's device nodes",
        (lambda facts: remedies.node_groups(facts, ("/dev/nvidiactl", "/dev/nvidia0")),),
    ),
    Rule(
        findings.LOST,
        r"(?:nvml error: |unable to determine the device handle[^\n]{0,400})gpu is lost|fallen off the bus",
        "a GPU has fallen off the bus",
        (remedies.reboot,),
    ),
    Rule(
        findings.RESET,
        _NVML + r"gpu requires reset",
        "a GPU needs a reset",
        (remedies.reset_gpu,),
    ),
    Rule(
        findings.DRIVER_HANGS,
        _CLI + r"[^\n]{0,400}(?:rpc|driver) error: timed out",
        "the NVIDIA driver did not answer the toolkit in time",
        (remedies.hung_driver, remedies.persistence),
    ),
)

TOOLKIT = (
    Rule(
        findings.IMAGE_TOO_NEW,
        r"unsatisfied condition: cuda ?>=? ?(?P<cuda>[\d.]+)",
        "the image needs CUDA {cuda} or newer, and the driver offers less",
        (remedies.matching_image,),
    ),
    Rule(
        findings.REQUIREMENT_UNMET,
        r"unsatisfied condition: (?P<condition>[^\n]{1,200}?)(?=, please|: unknown|\s*$|\\n|\n)",
        "the image demands {condition}, and that does not hold here",
        (remedies.without_requirement,),
    ),
    Rule(
        findings.REQUIREMENT_UNREADABLE,
        r"requirement error: invalid expression",
        "a requirement in the image's NVIDIA_REQUIRE_* cannot be read",
        (remedies.without_requirement,),
    ),
    Rule(
        findings.ROOTLESS,
        r"bpf_prog_query\(BPF_CGROUP_DEVICE\) failed|failed to add device rules"
        r"|cgroup subsystem devices not found|failed to get device cgroup",
        "NVIDIA's hook may not set device rules: the engine does not run as the root of this machine",
        (remedies.rootless_gpus,),
        lambda refusal: rootless(refusal) or in_container(refusal),
    ),
    Rule(
        findings.TOOLKIT_BROKEN,
        r"bpf_prog_query\(BPF_CGROUP_DEVICE\) failed|failed to add device rules"
        r"|cgroup subsystem devices not found|failed to get device cgroup",
        "the NVIDIA Container Toolkit cannot set device rules on this kernel: it is likely too old",
        (remedies.reinstall_toolkit,),
    ),
    Rule(
        findings.DRIVER_IN_IMAGE,
        r"mount error: file creation failed: (?P<file>\S+?): file exists",
        "the image carries a file of an NVIDIA driver where this machine's is to be put: {file}",
        (remedies.image_without_driver,),
    ),
    Rule(
        findings.UNKNOWN_GPU,
        r"device error: (?P<device>[^\s:]+): unknown device|device error: unknown device id: (?P<id>\S+)",
        "a GPU was asked for that is not there: {device}{id}",
    ),
    Rule(
        findings.TOOLKIT_MODE,
        r"invoking the nvidia container runtime hook directly",
        "the mode of the NVIDIA Container Toolkit does not allow --gpus",
        (remedies.toolkit_mode,),
    ),
    Rule(
        findings.NO_COMPUTE_CAPABILITY,
        r"unsupported capabilities found in '(?P<wanted>[^']*)' \(allowed '(?P<allowed>[^']*)'\)",
        "the toolkit allows the driver capabilities '{allowed}', and '{wanted}' was asked for",
        (remedies.driver_capabilities,),
    ),
    Rule(
        findings.NO_TOOLKIT,
        rf"(?:fork/exec |exec: |stat ){Q}\S*nvidia-container-(?:runtime|toolkit)[^\n]{{0,400}}"
        r"(?:no such file|not found)",
        "a program of the NVIDIA Container Toolkit is missing: it was removed, or never installed",
        (remedies.install_toolkit,),
        no_toolkit("nvidia"),
    ),
    Rule(
        findings.TOOLKIT_BROKEN,
        rf"(?:fork/exec |exec: |stat ){Q}\S*nvidia-container-(?:runtime|toolkit)[^\n]{{0,400}}"
        r"(?:no such file|not found|permission denied|exec format error)"
        r"|couldn't find binary nvidia-container-cli|ldcache error",
        "the NVIDIA Container Toolkit does not work: a part of it is missing or fails",
        (remedies.reinstall_toolkit, remedies.restart_docker),
    ),
    Rule(
        findings.NO_CGROUPS,
        f"{_UNKNOWN_ERROR}|{_CLOSED}",
        "the toolkit's no-cgroups is set, which leaves the GPU's device nodes closed where the engine "
        "runs as root",
        (remedies.cgroups_on,),
        _root_without_cgroups,
    ),
    Rule(
        findings.LOST_ON_RELOAD,
        f"{_UNKNOWN_ERROR}|{_CLOSED}",
        "the container has lost its GPUs: systemd, which keeps the cgroups here, does not know of them",
        (remedies.device_links,),
        both(systemd_cgroups, no(rootless), no(in_container)),
    ),
    Rule(
        findings.DRIVER_ERROR,
        _CLI + r"(?:initialization|detection) error: (?P<words>[^\n]{1,200})",
        "the NVIDIA driver answers the toolkit with an error: {words}",
        (remedies.hung_driver,),
    ),
)
