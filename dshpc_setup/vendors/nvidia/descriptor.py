"""NVIDIA in data."""

from __future__ import annotations

from dshpc_setup.gpu_vendors import (
    Descriptor,
    DriverFiles,
    Image,
    Nodes,
    Python,
    Record,
    Slurm,
    Toolkit,
    Variables,
)

DESCRIPTOR = Descriptor(
    name="nvidia",
    label="NVIDIA",
    order=1,
    pci=0x10DE,
    modules=("nvidia", "nvgpu"),
    evidence=(
        *("nvidia", "jetson", "wsl", "nvidia-pci", "nvidia-module", "nvidia-nodes", "nvidia-uvm"),
        *("nvml", "nvidia-smi", "nvidia-answer", "nvidia-proc"),
    ),
    nodes=Nodes(
        own=r"/dev/nvidia\d+|/dev/nvidia-caps/.+|/dev/dxg",
        shared=("/dev/nvidiactl", "/dev/nvidia-uvm"),
        files={"/dev": r"dxg|nvidia.*", "/dev/nvidia-caps": r".*"},
        glob="/dev/nvidia[0-9]*",
        top=r"nvidia[\w-]*",
        read_only=r"/dev/nvidia-caps/.+",
    ),
    variables=Variables(
        visible="CUDA_VISIBLE_DEVICES",
        order=("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        uuids="NVIDIA_VISIBLE_DEVICES",
        uuids_none="void",
        others=("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PIPE_DIRECTORY"),
    ),
    slurm=Slurm("nvidia_gpu_env", ("shard", "mps"), compute_prefix="cc"),
    image=Image(("slurm-wlm-nvml-plugin",), ("nvidia-ml-py",)),
    python=Python(r"\+cu\d", ("cuda", "cuda13")),
    record=Record(
        programs=(
            *("nvidia-smi", "nvidia-ctk", "nvidia-container-cli", "nvidia-container-runtime"),
            *("nvidia-container-runtime-hook", "nvidia-cdi-hook", "nvidia-persistenced"),
            *("nv-fabricmanager", "nvidia-modprobe"),
        ),
        variables=("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES"),
        modules=(
            *("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "nouveau"),
            *("nvgpu", "nvidia_fs", "gdrdrv"),
        ),
        folders=("/proc/driver/nvidia", "/proc/driver/nvidia-caps"),
        nodes=r"nvidia|dxg$|nvhost|nvmap",
    ),
    toolkit=Toolkit(
        label="NVIDIA Container Toolkit",
        programs={
            "hook": "nvidia-container-runtime-hook",
            "runtime": "nvidia-container-runtime",
            "ctk": "nvidia-ctk",
            "cdi_hook": "nvidia-cdi-hook",
        },
        version="--version",
        # On PCs, Jetsons and WSL 2
        driver_signs=(
            *("/sys/module/nvidia", "/proc/driver/nvidia", "/dev/nvidiactl", "/sys/module/nvgpu"),
            *("/usr/lib/wsl/lib/libcuda.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"),
        ),
        spec_path="/etc/cdi/nvidia.yaml",
        has_config=True,
        rootless=True,
        refreshes_since="1.18",
        refresh_units=("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"),
        nixos_unit="nvidia-container-toolkit-cdi-generator.service",
    ),
    runtimes=("nvidia", "nvidia-cdi", "nvidia-experimental", "nvidia-legacy"),
    nodes_suffice=False,
    # The lists of libnvidia-container for the capabilities compute and utility (src/nvc_info.c), and what
    # NVIDIA's packages for CUDA's compatibility have since 590. A Jetson's driver is made of others.
    driver_files=DriverFiles(
        modules=("nvidia",),
        versions={
            "/proc/driver/nvidia/version": r"NVRM version:.*?\s(\d{3,4}(?:\.\d{1,4}){1,2})(?:\s|$)",
            "/sys/module/nvidia/version": r"^(\d{3,4}(?:\.\d{1,4}){1,2})$",
        },
        numbered=r"\.so\.(\d{3,4}(?:\.\d{1,4}){1,2})$",
        libraries=(
            *("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-cfg.so.1", "libcudadebugger.so.1"),
            *("libnvidia-opencl.so.1", "libnvidia-gpucomp.so.*", "libnvidia-ptxjitcompiler.so.1"),
            *("libnvidia-allocator.so.1", "libnvidia-nvvm.so.4", "libnvidia-nvvm70.so.4"),
            *("libnvidia-pkcs11.so.*", "libnvidia-pkcs11-openssl3.so.*", "libnvidia-tileiras.so.*"),
            *("libnvidia-compiler.so.*", "libnvidia-fatbinaryloader.so.*"),  # until 470
        ),
        needed=("libcuda.so.1", "libnvidia-ml.so.1"),
        also={"libcuda.so": "libcuda.so.1"},  # as the toolkit has it
        programs=("nvidia-smi",),
        nodes=("/dev/nvidia-uvm-tools",),
        folders=(
            "/usr/lib/{multiarch}/nvidia/current",  # Debian
            *("/usr/lib/nvidia", "/usr/lib/nvidia-*"),  # Ubuntu until 18.04
            *("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/opt/nvidia/lib64"),
            "/run/opengl-driver/lib",  # NixOS
            "/home/kubernetes/bin/nvidia/lib64",  # Google's Container-Optimized OS
        ),
    ),
    # CUDA's libraries, and NVML with nvidia-smi
    capabilities={"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"},
    cuda=True,
    lists_all=True,
    tools=("nvidia-smi",),
    hidden=("/sys/module/nvidia", "/proc/driver/nvidia", "/proc/driver/nvidia-caps"),
    list_command="nvidia-smi",
    holders_command=(
        "nvidia-smi --query-compute-apps=gpu_bus_id,pid,process_name,used_memory --format=csv"
    ),
    findings=("DSH-NV-",),
    kernel_log=r"NVRM|nvidia|\bXid\b|nouveau|nova_core",
)
