"""AMD in data."""

from __future__ import annotations

from dshpc_setup.gpu_vendors import (
    Descriptor,
    Image,
    Nodes,
    Python,
    Record,
    Slurm,
    Toolkit,
    Variables,
)

DESCRIPTOR = Descriptor(
    name="amd",
    label="AMD",
    order=2,
    pci=0x1002,
    modules=("amdgpu",),
    evidence=(
        *("amd", "kfd", "kfd-device", "drm", "amdsmi", "amd-smi", "rocm-smi", "amd-log"),
        "amd-blacklist",
    ),
    nodes=Nodes(
        own=r"/dev/dri/renderD\d+",
        shared=("/dev/kfd",),
        files={"/dev": r"kfd|dxg", "/dev/dri": r"renderD\d+"},
        glob="/dev/dri/renderD*",
        top=r"kfd|dxg|dri",
        by_group=True,
        looked_at="/dev/kfd /dev/dri",
    ),
    # HIP and OpenCL count what ROCR leaves; without a list of its own HIP would read CUDA's
    variables=Variables(
        visible="ROCR_VISIBLE_DEVICES",
        ranks_beside_others=("HIP_VISIBLE_DEVICES",),
        ranks_if_set=("GPU_DEVICE_ORDINAL",),
    ),
    slurm=Slurm("amd_gpu_env"),
    # Without pyrsmi: it looks for libamd_smi.so in a folder of ROCm's, and Debian's lies elsewhere
    image=Image(("slurm-wlm-rsmi-plugin", "rocm-smi", "rocminfo")),
    python=Python(r"\+rocm\d", ("rocm", "rocm")),
    record=Record(
        programs=("amd-ctk", "amd-container-runtime", "rocm-smi", "amd-smi", "rocminfo"),
        variables=(
            *("ROCM_PATH", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
            *("HSA_OVERRIDE_GFX_VERSION", "HSA_ENABLE_DXG_DETECTION"),
        ),
        modules=("amdgpu", "radeon"),
        nodes=r"kfd$|dxg$",
    ),
    toolkit=Toolkit(
        label="AMD Container Toolkit",
        programs={"runtime": "amd-container-runtime", "ctk": "amd-ctk"},
        version="version",
        driver_signs=("/sys/class/kfd/kfd/topology/nodes", "/dev/kfd"),
        spec_path="/etc/cdi/amd.json",  # as amd-ctk has it without --output
        needed=False,
        drops_features=True,
    ),
    runtimes=("amd",),
    wsl_environment={"HSA_ENABLE_DXG_DETECTION": "1"},  # ROCm looks for /dev/kfd otherwise
    profiling=True,
    first_evidence="kfd",
    numbered_by="driver",
    tools=("rocm-smi", "amd-smi", "rocminfo"),
    hidden=("/sys/class/kfd", "/sys/module/amdgpu"),
    list_command="amd-smi list",
    holders_command="amd-smi process",
    findings=("DSH-AM-",),
    kernel_log=r"amdgpu|\bkfd\b",
)
