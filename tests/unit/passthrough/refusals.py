"""What engines really say when they refuse a GPU, and on which machine it means what.

Texts were seen on Docker 20.10, 26.1 and 28.5 and Podman 5.4, or stand in public issue threads, which
are named. `on` is a machine of MACHINES.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dshpc_setup.facts import (
    CdiDevice,
    CdiSpec,
    Cpu,
    Engine,
    GpuDevice,
    Gpus,
    HostFacts,
    Memory,
    Platform,
    Toolkit,
)
from dshpc_setup.passthrough import findings as f
from dshpc_setup.passthrough.handover import Mechanism

HOOK = "/usr/bin/nvidia-container-runtime-hook"
NVIDIA = Toolkit("nvidia", "present", "1.17.8", HOOK, ctk="/usr/bin/nvidia-ctk")
SPEC = CdiSpec(
    "/etc/cdi/nvidia.yaml", "present", "nvidia.com/gpu",
    (CdiDevice("nvidia.com/gpu=0"), CdiDevice("nvidia.com/gpu=all")),
)  # fmt: skip


def machine(
    *, platform: Platform | None = None, gpus: Gpus | None = None, **engine: object
) -> HostFacts:
    """Debian 12, one H100, Docker 28.5, and no toolkit."""
    card = GpuDevice(
        0, "nvidia", "NVIDIA H100 80GB HBM3", driver_version="550.163.01", compute="9.0"
    )
    settings: dict[str, object] = {
        "kind": "engine",
        "server_version": "28.5.2",
        "rootless": False,
        "cgroup_driver": "cgroupfs",
        "runtimes": ("runc",),
        "cdi_folders": ("/etc/cdi", "/var/run/cdi"),
        "toolkits": (Toolkit("nvidia", "absent"),),
    }
    return HostFacts(
        platform or Platform("linux", os_id="debian", os_version="12"),
        Cpu(8, usable=8),
        Memory(16000, 16000),
        gpus or Gpus("present", (card,), driver_version="550.163.01", cuda_version="12.4"),
        Engine("present", **{**settings, **engine}),  # type: ignore[arg-type]
    )


WSL = Platform("wsl2", os_id="ubuntu", os_like=("debian",))
UBUNTU = Platform("linux", os_id="ubuntu", os_version="24.04", os_like=("debian",))
AMD_GPUS = Gpus("present", (GpuDevice(0, "amd", device_files=("/dev/dri/renderD128",)),))

MACHINES: dict[str, HostFacts] = {
    "bare": machine(),
    "toolkit": machine(toolkits=(NVIDIA,)),
    "hook-newer": machine(toolkits=(NVIDIA,), newer=(HOOK,)),
    "base-only": machine(toolkits=(replace(NVIDIA, hook=None),)),
    "toolkit-denied": machine(toolkits=(Toolkit("nvidia", "denied"),)),
    "registered": machine(toolkits=(NVIDIA,), registered=("nvidia",)),
    "in-force": machine(
        toolkits=(NVIDIA,), registered=("nvidia",), runtimes=("runc", "nvidia"), cdi_specs=(SPEC,)
    ),
    "snap": machine(kind="snap", platform=UBUNTU, root_dir="/var/snap/docker/common/var-lib-docker"),
    "rootless": machine(rootless=True, toolkits=(NVIDIA,)),
    "rootless-newer": machine(rootless=True, toolkits=(NVIDIA,), newer=(HOOK,)),
    "remote": machine(kind="remote"),
    "desktop-linux": machine(kind="desktop"),
    "desktop-macos": machine(kind="desktop", platform=Platform("macos")),
    "desktop-wsl": machine(kind="desktop", platform=WSL),
    "wsl": machine(platform=WSL, toolkits=(NVIDIA,)),
    "podman": machine(kind="podman", server_version="5.4.2", cdi_folders=()),
    "podman-spec": machine(kind="podman", server_version="5.4.2", cdi_specs=(SPEC,)),
    "podman-stale": machine(
        kind="podman", server_version="5.4.2",
        cdi_specs=(replace(SPEC, missing=("/usr/lib/libcuda.so.550.1",)),),
    ),
    "docker-20": machine(server_version="20.10.24", toolkits=(NVIDIA,), cdi_folders=()),
    "docker-26": machine(server_version="26.1.5", toolkits=(NVIDIA,), cdi_folders=()),
    "spec": machine(toolkits=(NVIDIA,), cdi_specs=(SPEC,)),
    "spec-broken": machine(
        toolkits=(NVIDIA,), cdi_specs=(CdiSpec("/etc/cdi/nvidia.yaml", "error", detail="line 1"),)
    ),
    "spec-misses-egl": machine(
        toolkits=(NVIDIA,), cdi_specs=(replace(SPEC, missing=("/usr/lib/libEGL_x.so.1",)),)
    ),
    "selinux": machine(
        platform=Platform("linux", os_id="fedora", selinux="enforcing"), toolkits=(NVIDIA,)
    ),
    "no-cgroups": machine(toolkits=(replace(NVIDIA, no_cgroups=True),)),
    "no-cgroups-rootless": machine(rootless=True, toolkits=(replace(NVIDIA, no_cgroups=True),)),
    "systemd-cgroups": machine(cgroup_driver="systemd", toolkits=(NVIDIA,)),
    "in-lxc": machine(platform=Platform("linux", in_container=True, os_id="debian")),
    "amd": machine(gpus=AMD_GPUS, toolkits=(Toolkit("amd", "absent"),)),
    "amd-registered": machine(
        gpus=AMD_GPUS, toolkits=(Toolkit("amd", "present"),), registered=("amd",)
    ),
    "amd-toolkit": machine(gpus=AMD_GPUS, toolkits=(Toolkit("amd", "present"),)),
}  # fmt: skip

for _vendor, _kind in (("amd", "amd.com/gpu"), ("intel", "intel.com/gpu")):
    _spec = CdiSpec(f"/etc/cdi/{_vendor}.json", "present", _kind, (CdiDevice(f"{_kind}=0"),))
    MACHINES[f"{_vendor}-spec"] = machine(cdi_specs=(_spec,))
    MACHINES[f"{_vendor}-spec-broken"] = machine(cdi_specs=(CdiSpec(_spec.path, "denied"),))

_INIT = (
    "docker: Error response from daemon: failed to create task for container: failed to create shim task: "
    "OCI runtime create failed: runc create failed: unable to start container process: "
    "error during container init: "
)
_HOOK = (
    f"{_INIT}error running prestart hook #0: exit status 1, stdout: , stderr: "
    "Auto-detected mode as 'legacy'\nnvidia-container-cli: "
)
_HOOK_20 = (
    "docker: Error response from daemon: failed to create shim task: OCI runtime create failed: runc create "
    "failed: unable to start container process: error during container init: error running hook #0: error "
    "running hook: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: "
)
_END = "\n\nRun 'docker run --help' for more information"
_DRIVER = 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]]'
_DRIVER_CDI = (
    'docker: Error response from daemon: could not select device driver "cdi" with capabilities: []'
)
_RUNTIME = "docker: Error response from daemon: unknown or invalid runtime name: nvidia"
_CDI = "docker: Error response from daemon: CDI device injection failed: unresolvable CDI devices "
_STAT = (
    "docker: Error response from daemon: CDI device injection failed: failed to inject devices: "
    "failed to stat CDI host device "
)
_ADD = "docker: Error response from daemon: error gathering device information while adding custom device "
_FULFIL = f"{_INIT}failed to fulfil mount request: open "
_MOUNTING = (
    f'{_INIT}error mounting "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.163.01" to rootfs at '
    '"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": create mount destination for '
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1 mount: bind mount source stat: stat "
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.163.01: no such file or directory: unknown"
)
_NVML_MISSING = (
    "initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: "
    "no such file or directory"
)
_BPF = (
    "mount error: failed to add device rules: unable to find any existing device filters attached to the "
    "cgroup: bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted: unknown"
)
_CUDA = (
    "requirement error: unsatisfied condition: cuda>=12.9, please update your driver to a newer version, or "
    "use an earlier cuda container"
)


@dataclass(frozen=True)
class Case:
    """`finding` None: nothing that is known, the text is to be shown whole."""

    on: str
    mechanism: Mechanism
    text: str
    finding: str | None
    command: str | None = None  # one of the commands that fix it

    @property
    def name(self) -> str:
        words = " ".join(self.text.rsplit(": ", 2)[-2:]).strip()[:40]
        return f"{self.finding}-{self.on}-{words}"


def _cases(
    mechanism: Mechanism, text: str, *expected: tuple[str, str | None, str | None]
) -> Iterator[Case]:
    for on, finding, command in expected:
        yield Case(on, mechanism, text, finding, command)


CASES: tuple[Case, ...] = (
    # 7, 8, 10, 11, 30, 33 to 35: the same words on different machines
    *_cases(
        "device-request",
        _DRIVER + _END,
        ("bare", f.NO_TOOLKIT, "sudo apt-get update && sudo apt-get install -y nvidia-container-toolkit"),
        ("base-only", f.NO_TOOLKIT, "sudo systemctl restart docker"),
        ("hook-newer", f.NOT_RESTARTED, "sudo systemctl restart docker"),
        ("toolkit", f.NOT_RESTARTED, "sudo systemctl restart docker"),
        ("toolkit-denied", f.NOT_RESTARTED, "sudo systemctl restart docker"),
        ("wsl", f.NOT_RESTARTED, "sudo service docker restart"),
        ("snap", f.SNAP, "sudo snap remove docker"),
        ("rootless", f.ROOTLESS, "systemctl --user restart docker"),
        ("rootless-newer", f.NOT_RESTARTED, "systemctl --user restart docker"),
        ("remote", f.REMOTE_ENGINE, "unset DOCKER_HOST DOCKER_CONTEXT; docker context use default"),
        ("desktop-linux", f.DESKTOP_VM, "docker context use default"),
        ("desktop-macos", f.DESKTOP_VM, None),
        ("desktop-wsl", f.NO_WSL_GPU, "wsl --update"),
        ("podman", f.PODMAN, "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"),
    ),
    Case("bare", "device-request", _DRIVER.replace('""', '"nvidia"'), f.NO_TOOLKIT),
    Case("amd", "device-request", _DRIVER.replace('""', '"amd"'), f.NO_TOOLKIT,
         "sudo amd-ctk runtime configure --runtime=docker"),
    Case("amd-toolkit", "device-request", _DRIVER.replace('""', '"amd"'), f.NOT_RESTARTED),
    Case("bare", "device-request", _DRIVER.replace('""', '"tpu"'), None),
    # 60, 61: CDI, off or not there
    Case("docker-26", "cdi", _DRIVER_CDI + _END, f.CDI_OFF,
         "sudo nvidia-ctk runtime configure --runtime=docker --cdi.enabled"),
    Case("docker-20", "cdi", _DRIVER_CDI + _END, f.ENGINE_WITHOUT_CDI),
    Case("docker-20", "cdi", _DRIVER_CDI.replace("[]", "[[gpu]]"), f.ENGINE_WITHOUT_CDI),
    Case("docker-20", "cdi", _ADD + '"nvidia.com/gpu=all": no such file or directory', f.ENGINE_WITHOUT_CDI),
    Case("docker-20", "cdi", 'docker: invalid argument "nvidia.com/gpu=all" for "--device" flag: '
         "nvidia.com/gpu=all is not an absolute path.", f.ENGINE_WITHOUT_CDI),
    Case("docker-20", "devices", 'docker: invalid argument "dev/x" for "--device" flag: dev/x is not an '
         "absolute path.", None),
    # 9: the runtime
    *_cases(
        "runtime",
        _RUNTIME + _END,
        ("toolkit", f.RUNTIME_NOT_REGISTERED, "sudo nvidia-ctk runtime configure --runtime=docker"),
        ("rootless", f.RUNTIME_NOT_REGISTERED,
         'nvidia-ctk runtime configure --runtime=docker --config="$HOME/.config/docker/daemon.json"'),
        ("registered", f.NOT_RESTARTED, "sudo systemctl restart docker"),
        ("bare", f.NO_TOOLKIT, "sudo nvidia-ctk runtime configure --runtime=docker"),
        ("snap", f.SNAP, None),
        ("desktop-linux", f.DESKTOP_VM, None),
        ("remote", f.REMOTE_ENGINE, None),
        ("desktop-wsl", f.NO_WSL_GPU, "wsl --update"),
        ("podman", f.PODMAN, None),
    ),
    *_cases(
        "runtime",
        _RUNTIME.replace("nvidia", "amd"),
        ("amd-registered", f.NOT_RESTARTED, "sudo systemctl restart docker"),
        ("snap", f.SNAP, None),
        ("remote", f.REMOTE_ENGINE, None),
        ("desktop-linux", f.DESKTOP_VM, None),
    ),
    Case("toolkit", "runtime", "docker: Error response from daemon: Unknown runtime specified nvidia",
         f.RUNTIME_NOT_REGISTERED),
    Case("amd-toolkit", "runtime", _RUNTIME.replace("nvidia", "amd"), f.RUNTIME_NOT_REGISTERED,
         "sudo amd-ctk runtime configure --runtime=docker"),
    Case("amd", "runtime", _RUNTIME.replace("nvidia", "amd"), f.NO_TOOLKIT),
    Case("toolkit", "runtime", _RUNTIME.replace("nvidia", "runsc"), None),
    # 16, 17, 32, 75: CDI names
    *_cases(
        "cdi",
        _CDI + "nvidia.com/gpu=1" + _END,
        ("toolkit", f.NO_CDI_SPEC, "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"),
        ("bare", f.NO_CDI_SPEC, "sudo apt-get update && sudo apt-get install -y nvidia-container-toolkit"),
        ("spec", f.STALE_CDI_SPEC, "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"),
        ("spec-broken", f.CDI_SPEC_UNREADABLE, None),
        ("desktop-wsl", f.DESKTOP_CDI, None),
        ("remote", f.REMOTE_ENGINE, None),
    ),
    Case("spec", "cdi", _CDI + "nvidia.com/gpu=all", f.CDI_SPEC_UNREADABLE),
    Case("spec", "cdi", _CDI + "nvidia.com/gpu=0, nvidia.com/gpu=7", f.STALE_CDI_SPEC),
    Case("spec", "cdi", _CDI + "amd.com/gpu=all", f.NO_CDI_SPEC, "sudo amd-ctk cdi generate"),
    Case("spec", "cdi", _CDI + "intel.com/gpu=card0", f.NO_CDI_SPEC),
    *(
        Case(on.format(vendor), "cdi", f"{_CDI}{vendor}.com/gpu={name}", finding)
        for vendor in ("amd", "intel")
        for on, name, finding in (
            ("{}-spec", "0", f.CDI_SPEC_UNREADABLE),
            ("{}-spec", "1", f.STALE_CDI_SPEC),
            ("{}-spec-broken", "0", f.CDI_SPEC_UNREADABLE),
            ("desktop-wsl", "0", f.DESKTOP_CDI),
            ("remote", "0", f.REMOTE_ENGINE),
        )
    ),
    Case("spec", "cdi", _CDI + "vendor.com/tpu=0", None),
    Case("podman", "cdi", "Error response from daemon: setting up CDI devices: unresolvable CDI devices "
         "nvidia.com/gpu=9, amd.com/gpu=all", f.NO_CDI_SPEC),
    Case("podman", "cdi", "unable to upgrade to tcp, received 500", f.NO_CDI_SPEC),
    Case("podman-stale", "cdi", "unable to upgrade to tcp, received 500", f.STALE_CDI_SPEC),
    Case("podman-spec", "cdi", "unable to upgrade to tcp, received 500", None),
    Case("podman", "devices", "unable to upgrade to tcp, received 500", None),
    Case("spec", "cdi", "unable to upgrade to tcp, received 500", None),
    Case("spec", "cdi", 'json: unknown field "additionalGids"', f.CDI_SPEC_UNREADABLE),
    Case("spec", "cdi", "CDI: Error associated with spec file /etc/cdi/nvidia.json: failed to load CDI Spec "
         "invalid CDI Spec: invalid spec, no devices", f.CDI_SPEC_UNREADABLE),
    Case("spec", "cdi", 'json: unknown field "size"', None),
    # 17: nodes and files of a specification
    Case("spec", "cdi", _STAT + '"/dev/nvidia1": no such file or directory', f.STALE_CDI_SPEC),
    Case("spec", "cdi", _STAT + '"/dev/dri/card0": no such file or directory', f.STALE_CDI_SPEC),
    Case("spec", "cdi", _STAT + '"/dev/nvidia-uvm": no such file or directory', f.NO_UVM,
         "sudo nvidia-modprobe -u -c=0"),
    Case("spec", "cdi", _MOUNTING, f.STALE_CDI_SPEC),
    Case("spec", "cdi", _FULFIL + "/usr/lib/libEGL_nvidia.so.590.48.01: no such file or directory",
         f.STALE_CDI_SPEC),
    Case("spec", "device-request", _FULFIL + "/run/nvidia-persistenced/socket: no such file or directory",
         f.STALE_CDI_SPEC),
    Case("spec-misses-egl", "cdi", _FULFIL + "/usr/lib/libEGL_x.so.1: no such file or directory",
         f.STALE_CDI_SPEC),
    Case("spec", "cdi", _FULFIL + "/usr/lib/libEGL_x.so.1: no such file or directory", f.NO_MOUNT_SOURCE),
    Case("wsl", "devices", "docker: Error response from daemon: invalid mount config for type \"bind\": bind "
         "source path does not exist: /usr/lib/wsl", f.NO_MOUNT_SOURCE),
    Case("spec", "cdi", f'{_INIT}error mounting "/usr/lib/libcuda.so.550" to rootfs at "/x": permission '
         "denied", None),
    # 66, 15, 39, 30, 62: nodes
    Case("bare", "devices", _ADD + '"/dev/nonexistent": no such file or directory', f.NO_NODE),
    Case("podman", "devices", "docker: Error response from daemon: container create: stat /dev/nonexistent: "
         "no such file or directory", f.NO_NODE),
    Case("bare", "devices", _ADD + '"/dev/nvidia-uvm": no such file or directory', f.NO_UVM),
    # Docker before 18
    Case("bare", "devices", _ADD + '"/dev/nvidia-uvm": lstat /dev/nvidia-uvm: no such file or directory',
         f.NO_UVM),
    Case("amd", "devices", _ADD + '"/dev/kfd": no such file or directory', f.NO_KFD, "sudo modprobe amdgpu"),
    Case("wsl", "devices", _ADD + '"/dev/dxg": no such file or directory', f.NO_WSL_GPU, "wsl --update"),
    Case("bare", "devices", _ADD + '"/dev/nvidia0": no such file or directory', f.DRIVER_NOT_LOADED),
    Case("remote", "devices", _ADD + '"/dev/nvidia0": no such file or directory', f.NO_NODE),
    Case("bare", "devices", "Error: crun: error stat'ing file `/dev/nvidia9x`: No such file or directory",
         f.NO_NODE),
    Case("bare", "devices", _ADD + '"/dev/dri/renderD128": not a device node', f.NO_NODE),
    Case("bare", "devices", "stat /srv/data: no such file or directory", None),
    # 67, 14, 38: closed nodes
    Case("rootless", "devices", 'open /dev/nvidia0: operation not permitted', f.ENGINE_MAY_NOT_OPEN),
    Case("selinux", "devices", "open /dev/nvidia0: permission denied", f.SELINUX,
         "sudo setsebool -P container_use_devices true"),
    Case("amd", "devices", "Unable to open /dev/kfd read-write: Permission denied", f.AMD_GROUP),
    Case("amd", "devices", "Unable to open /dev/kfd read-write: No such file or directory", f.NO_KFD),
    Case("bare", "devices", "open /srv/data: permission denied", None),
    # 1, 6, 10, 14, 20 to 22, 62, 80: what NVML says
    *_cases(
        "device-request",
        _HOOK + "initialization error: nvml error: driver/library version mismatch" + _END,
        ("in-force", f.VERSIONS_DIFFER, "sudo reboot"),
        ("wsl", f.VERSIONS_DIFFER, "wsl --shutdown"),
    ),
    Case("in-force", "cdi", "Failed to initialize NVML: Driver/library version mismatch\nNVML library "
         "version: 550.163", f.VERSIONS_DIFFER),
    *_cases(
        "device-request",
        _HOOK + _NVML_MISSING,
        ("in-force", f.NO_LIBRARY, "sudo ldconfig"),
        ("snap", f.SNAP, "sudo snap remove docker"),  # canonical/docker-snap#148
        ("desktop-linux", f.DESKTOP_VM, None),
    ),
    Case("bare", "devices", "python: libcudnn.so.9: cannot open shared object file: no such file", None),
    Case("in-force", "device-request", _HOOK + "detection error: open failed: "
         "/usr/lib/libnvidia-tls.so.570.153.02: no such file or directory: unknown", f.NO_LIBRARY),
    Case("in-force", "device-request", _HOOK + "initialization error: nvml error: driver not loaded",
         f.DRIVER_NOT_LOADED, "sudo nvidia-modprobe -c=0 -u"),
    *_cases(
        "device-request",
        _HOOK + "initialization error: nvml error: insufficient permissions: unknown",
        ("in-force", f.ENGINE_MAY_NOT_OPEN, "ls -ln /dev/nvidiactl /dev/nvidia0"),
        ("selinux", f.SELINUX, None),
    ),
    Case("in-force", "cdi", "Failed to initialize NVML: Insufficient Permissions", f.NODE_DENIED),
    Case("selinux", "cdi", "Failed to initialize NVML: Insufficient Permissions", f.SELINUX),
    Case("in-force", "device-request", _HOOK + "detection error: nvml error: gpu requires reset", f.RESET,
         "sudo nvidia-smi --gpu-reset"),
    Case("in-force", "device-request", _HOOK + "detection error: nvml error: gpu is lost", f.LOST),
    Case("in-force", "cdi", "Unable to determine the device handle for GPU0000:1A:00.0: GPU is lost.  Reboot "
         "the system to recover this GPU", f.LOST),
    Case("in-force", "device-request", _HOOK + "initialization error: driver rpc error: timed out: unknown",
         f.DRIVER_HANGS),
    Case("in-force", "device-request", _HOOK + "detection error: nvml error: unknown error", f.DRIVER_ERROR),
    Case("in-force", "cdi", "nvidia-container-cli: a word that nobody knows", None),
    # 30: WSL
    Case("wsl", "device-request", _HOOK_20 + "initialization error: WSL environment detected but no adapters "
         "were found: unknown", f.NO_WSL_GPU, "wsl --update"),
    Case("wsl", "device-request", "no adapters", None),
    # 23, 76, 77: what the image demands
    Case("in-force", "device-request", _HOOK + _CUDA + _END, f.IMAGE_TOO_NEW),
    Case("in-force", "device-request", _HOOK_20 + "requirement error: unsatisfied condition: cuda >= 10.0",
         f.IMAGE_TOO_NEW),
    Case("in-force", "runtime", "unsatisfied condition: cuda>=13.0 (cuda=12.6)", f.IMAGE_TOO_NEW),
    Case("in-force", "device-request", _HOOK + "requirement error: unsatisfied condition: brand=tesla",
         f.REQUIREMENT_UNMET),
    Case("in-force", "device-request", _HOOK + "requirement error: invalid expression",
         f.REQUIREMENT_UNREADABLE),
    Case("in-force", "device-request", "the condition is unsatisfied", None),
    # 11, 64: device rules
    *_cases(
        "device-request",
        _HOOK + _BPF,
        ("rootless", f.ROOTLESS,
         "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=true --in-place"),
        ("in-lxc", f.ROOTLESS, None),
        ("toolkit", f.TOOLKIT_BROKEN, None),
    ),
    Case("toolkit", "device-request", _HOOK + "container error: cgroup subsystem devices not found: unknown",
         f.TOOLKIT_BROKEN),
    # 12, 13: lost in the container
    *_cases(
        "device-request",
        "Failed to initialize NVML: Unknown Error",
        ("no-cgroups", f.NO_CGROUPS,
         "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place"),
        ("no-cgroups-rootless", None, None),
        ("systemd-cgroups", f.LOST_ON_RELOAD,
         "sudo nvidia-ctk system create-dev-char-symlinks --create-all"),
        ("toolkit", None, None),
    ),
    Case("no-cgroups", "device-request", "Operation not permitted", f.NO_CGROUPS),
    Case("no-cgroups", "device-request", "sh: 1: cannot open /dev/null0: Operation not permitted",
         f.NO_CGROUPS),
    Case("no-cgroups", "device-request", "docker: Error response from daemon: x: operation not permitted",
         None),
    # 26, 65, 63, 27, 64: the rest of the hook
    Case("in-force", "device-request", _HOOK + "mount error: file creation failed: "
         "/var/lib/docker/overlay2/x/merged/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1: file exists: unknown",
         f.DRIVER_IN_IMAGE),
    Case("in-force", "device-request", _HOOK + "mount error: file creation failed: /x/libcuda.so: read-only "
         "file system", None),
    Case("in-force", "device-request", _HOOK + "device error: 7: unknown device", f.UNKNOWN_GPU),
    Case("in-force", "device-request", _HOOK + "device error: unknown device id: 7", f.UNKNOWN_GPU),
    Case("in-force", "device-request", f"{_INIT}error running prestart hook #0: exit status 1, stdout: , "
         "stderr: Using requested mode 'cdi'\ninvoking the NVIDIA Container Runtime Hook directly (e.g. "
         "specifying the docker --gpus flag) is not supported.", f.TOOLKIT_MODE),
    Case("in-force", "device-request", f"{_INIT}Using requested mode 'cdi'", None),
    Case("in-force", "device-request", "unsupported capabilities found in 'compute,utility' (allowed "
         "'utility')", f.NO_COMPUTE_CAPABILITY),
    *_cases(
        "device-request",
        'docker: Error response from daemon: exec: "nvidia-container-runtime-hook": executable file '
        "not found in $PATH",
        ("bare", f.NO_TOOLKIT, None),
        ("toolkit", f.TOOLKIT_BROKEN, None),
    ),
    Case("toolkit", "runtime", "fork/exec /usr/bin/nvidia-container-runtime: exec format error",
         f.TOOLKIT_BROKEN),
    Case("toolkit", "device-request", _HOOK + "ldcache error: open failed: /sbin/ldconfig.real: no such file",
         f.TOOLKIT_BROKEN),
    # 36: compose
    Case("bare", "device-request", "The Compose file './docker-compose.yml' is invalid because:\nUnsupported "
         "config option for services.s: 'gpus'", f.COMPOSE_TOO_OLD),
    Case("bare", "device-request", "services.s.deploy.resources.reservations value Additional properties are "
         "not allowed ('devices' was unexpected)", f.COMPOSE_TOO_OLD),
    Case("bare", "device-request", "Unsupported config option for services.s: 'gpu_memory'", None),
    # 37, 73, 74, 72: the engine itself
    Case("bare", "cdi", "Error response from daemon: client version 1.43 is too old. Minimum supported API "
         "version is 1.44, please upgrade your client to a newer version", f.API_REFUSED),
    Case("bare", "cdi", "client version 1.48 is too new. Maximum supported API version is 1.41",
         f.API_REFUSED),
    Case("bare", "device-request", '"--gpus" requires API version 1.40, but the Docker daemon API version is '
         "1.39", f.API_REFUSED),
    Case("bare", "cdi", "client version 1.43", None),
    Case("bare", "cdi", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker "
         "daemon running?", f.ENGINE_GONE, "sudo systemctl start docker"),
    Case("rootless", "cdi", 'error during connect: Post "http://%2Fvar%2Frun": EOF', f.ENGINE_GONE,
         "systemctl --user start docker"),
    Case("bare", "cdi", "error during the connection of two wires", None),
    Case("bare", "cdi", "permission denied while trying to connect to the Docker daemon socket at "
         "unix:///var/run/docker.sock: Get x: dial unix /var/run/docker.sock: connect: permission denied",
         f.ENGINE_DENIED, 'sudo usermod -aG docker "$USER"'),
    Case("bare", "cdi", "dial tcp 10.0.0.1:5000: connect: permission denied", None),
    Case("bare", "cdi", "Error response from daemon: authorization denied by plugin opa: request rejected by "
         "administrative policy", f.ENGINE_DENIED,
         "grep -s authorization-plugins /etc/docker/daemon.json; echo $DOCKER_HOST"),
    Case("bare", "cdi", "Error response from daemon: plugin casbin failed with error: AuthZPlugin.AuthZReq: "
         "Post timeout", f.ENGINE_DENIED),
    Case("bare", "cdi", "plugin vieux/sshfs failed with error: exit status 1", None),
    Case("bare", "cdi", "docker: Error response from daemon: mkdir /var/lib/docker/overlay2/x: no space left "
         "on device", f.DISK_FULL, "docker system df"),
    Case("bare", "cdi", "mkdir /sys/fs/cgroup/cpuset/docker/x: no space left on device", None),
    # 69, 56, 70: the image
    Case("bare", "cdi", "exec /bin/sh: exec format error", f.OTHER_PROCESSOR),
    Case("bare", "cdi", "image with reference x was found but does not match the specified platform: wanted "
         "linux/amd64, actual: linux/arm64", f.OTHER_PROCESSOR),
    Case("bare", "cdi", f'{_INIT}exec: "sh": executable file not found in $PATH: unknown',
         f.IMAGE_WITHOUT_SHELL),
    Case("bare", "cdi", f'{_INIT}exec: "/bin/sh": stat /bin/sh: no such file or directory: unknown',
         f.IMAGE_WITHOUT_SHELL),
    Case("podman", "cdi", "crun: executable file `/bin/sh` not found in $PATH: No such file or directory",
         f.IMAGE_WITHOUT_SHELL),
    Case("bare", "cdi", f'{_INIT}exec: "nvidia-smi": executable file not found in $PATH: unknown', None),
    Case("bare", "cdi", "docker: Error response from daemon: No such image: nosuch:1", f.NO_IMAGE),
    Case("bare", "cdi", "Unable to find image 'nosuch:1' locally\ndocker: Error response from daemon: Get "
         '"https://r/v2/": dial tcp: lookup r', f.NO_IMAGE),
    Case("bare", "device-request", f"Unable to find image 'x' locally\n{_DRIVER}", f.NO_TOOLKIT),
    Case("bare", "cdi", "the image is fine", None),
    Case("bare", "cdi", "", None),
)  # fmt: skip
