"""What programs say, and the findings it is a sign of. In order: what is more telling stands first.

Beside this table count the catalogue of refusals (`passthrough.causes`) and the checks of the kernel's log;
what these know is not said here again, and a line in the kernel's own form is for its checks alone. Here
stands what nobody asks a machine for: what CUDA, ROCm, PyTorch and Slurm say to who uses them, and words that
mean another thing in a person's hands than in a test-run.

Sources: the CUDA Runtime and Driver API references (error names and texts), c10/cuda of PyTorch, HIP's error
names, Slurm's slurm_errno.c and its node reasons, NVIDIA's driver and installer (NVRM: ...), moby, and the
threads that tests/messages names, without those of its second half.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sign:
    """Findings, the likeliest first; `words` tells them, where `also` stands in the text as well.

    Both are patterns without regard to capitals, of a text that is one line, with one space between words.
    What a group of `words` holds is what was said, else all of it.
    """

    findings: tuple[str, ...]
    words: str
    also: str = ""


def _sign(findings: str, *words: str, also: str = "") -> Sign:
    """Of the findings' short ids, with a space between, and of words of which one is enough."""
    return Sign(tuple(f"DSH-{each}" for each in findings.split()), "|".join(words), also)


LOST = (
    _sign(
        "NV-020 NV-081",
        "fallen off the bus",
        r"\bGPU is lost\b",
        "NV_ERR_GPU_IS_LOST",
        r"NVML_?ERROR_?GPU_?IS_?LOST",
        "NV_ERR_GPU_IN_FULLCHIP_RESET",
        "rpcSendMessage failed with status 0x0000000f",
        r"\bNVIDIA Corporation .{0,120}\(rev ff\)",
    ),
    _sign(
        "NV-021 NV-081",
        r"\bGPU requires (?:a )?reset\b",
        "NV_ERR_RESET_REQUIRED",
        "NVML_?ERROR_?RESET_?REQUIRED",
    ),
)
"""A card that is gone: whatever else a log says of it comes from that."""

DRIVER = (
    _sign("NV-080 NV-022", r"\bRIP: \S{1,120} \[nvidia(?:_\w{1,20})?\]"),
    _sign("NV-001 PT-052 DK-026", "API mismatch: the client has (?:the )?version"),
    _sign(
        "NV-001 DK-026 PT-052",
        "driver/library version mismatch",
        "LIB_?RM_?VERSION_?MISMATCH",
        r"\bNVML_?ERROR_?LibRmVersionMismatch",
    ),
    _sign(
        "NV-001 PT-052 NV-023",
        "unsupported display driver ?/ ?cuda driver combination",
        "system_?driver_?mismatch",
    ),
    _sign(
        "NV-002 NV-062",
        "NVIDIA probe routine was not called",
        "nouveau kernel driver is currently in use",
    ),
    _sign(
        "NV-004 NV-062",
        r"could not insert '?nvidia[\w-]*'?: (?:key was rejected|required key not)",
    ),
    _sign("NV-004 NV-002 NV-084 NV-062", "unable to load the kernel module '?nvidia"),
    _sign(
        "NV-003 NV-020 NV-080",
        r"\brm_?init_?adapter\b.{0,40}failed",
        "cannot initialize GSP firmware",
        "failed to wait for GFW",
        r"direct firmware load for nvidia/\S{1,60}gsp",
    ),
    _sign(
        "NV-020 NV-003",
        "unable to determine the device handle for gpu.{0,40}: unknown error",
        also=r"\bPCIe Bus Error\b|\bAER: ",
    ),
    _sign(
        "NV-003 NV-020 NV-080",
        "unable to determine the device handle for gpu.{0,40}: unknown error",
    ),
    _sign("NV-022 NV-081", r"\btask nvidia\S{0,30} blocked for more than"),
    _sign(
        "NV-018",
        r"\bMIG\b.{0,60}\bno (?:instances|MIG devices)\b",
        "no MIG devices (?:were )?found",
    ),
)

CUDA = (
    _sign(
        "NV-019",
        "system not yet initialized",
        r"system_?not_?ready\b",
    ),
    _sign(
        "NV-019",
        r"\b\w*-?fabric-?manager\b.{0,200}\b(?:failed|inactive|exited|not running)\b",
        also=r"\A(?!.*nothing_to_do)",
    ),
    _sign("NV-081 NV-020", "infoROM is corrupted", "NVML_?ERROR_?CORRUPTED_?INFOROM"),
    _sign(
        "NV-024 NV-001",
        "forward compatibility was attempted",
        "compat_?not_?supported_?on_?device",
    ),
    _sign(
        "NV-023 NV-049",
        "driver version is insufficient",
        "cudaErrorInsufficientDriver",
        "nvidia driver on your system is too old",
        "provided PTX was compiled with an unsupported toolchain",
        "unsupported_?ptx_?version",
    ),
    _sign(
        "NV-078 NV-025",
        "no longer supports this GPU because it is too old",
        r"\bunsupported gpu architecture 'compute_[2-7]\d",
        r"cuda capability sm_(?:[2-6]\d|70)\b.{0,80}not compatible with",
    ),
    _sign(
        "NV-025 NV-078",
        "no kernel image is available",
        "NoKernelImageForDevice",
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        r"cuda capability sm_\d+ is not compatible with",
        r"\binstall supports cuda capabilities sm_",
        r"\bunsupported gpu architecture 'compute_(?:[89]\d|1\d\d)",
        r"\bptxas fatal ?: value 'sm_(?:[89]\d|1\d\d)\w?' is not defined",
        "invalid value for --gpu-architecture",
    ),
    _sign("NV-025 NV-023", "device kernel image is invalid", "InvalidKernelImage"),
    _sign(
        "NV-081 NV-021",
        "uncorrectable (?:ECC|NVLink) error",
        "ECCUncorrectable",
        "ECC_UNCORRECTABLE",
    ),
    _sign(
        "GP-008 SL-025",
        r"\b(?:CUDA|HIP|GPU|VRAM|XPU)\b.{0,30}\bout of memory",
        "(?:cuda|hip)malloc failed: out of",
        "error_out_of_memory",
        "hipErrorOutOfMemory",
        "cudaErrorMemoryAllocation",
        "OOM when allocating tensor",
        "CUBLAS_STATUS_ALLOC_FAILED",
        r"\b(?:insufficient|not enough) GPU memory",
    ),
    _sign("NV-028 NV-082", "busy or unavailable", "devices?_?unavailable", also=r"\bprohibited\b"),
    _sign(
        "NV-082 NV-028 NV-080",
        r"CUDA-capable devices?\S{0,3} (?:are|is/are|is) busy or unavailable",
        "cudaErrorDevicesUnavailable",
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
    ),
    _sign(
        "PT-051 DK-026 NV-006",
        r"\blib(?:cuda|nvidia)\S{0,60}: (?:file too short|invalid ELF header)",
        r"\bcuda stub library\b",
        "cudaErrorStubLibrary|CUDA_ERROR_STUB_LIBRARY",
    ),
    _sign(
        "NV-027 NV-006",
        "PTX JIT compiler library (?:was )?not found",
        "jit_?compiler_?not_?found",
        r"\blib(?:nvidia-(?!ml)\S{1,40}|nvcuvid|nvoptix)\.so\S{0,12}\W{1,3}cannot open",
    ),
    _sign(
        "PT-058",
        r"\b(?:nvidia-smi|libcuda|libnvidia)\S{0,40}\W.{0,160}\bversion '?GLIBC_[\d.]+'? not found",
        r"\bversion '?GLIBC_[\d.]+'? not found \(required by \S{0,80}(?:nvidia|libcuda)",
    ),
    _sign("NV-062 SL-022", "kernel driver does not appear to be running on this host"),
    _sign(
        "SL-022 NV-062 NV-015",
        r"no NVIDIA GPU device is present: /dev/nvidia\d+ does not exist",
        r"failed call to cuInit: (?:UNKNOWN ERROR \(-1\)|CUresult\(-1\))",
        "NVIDIA driver was not detected",
        "cuda driver library init failure: 100",
    ),
    _sign(
        "NV-015 NV-080 NV-013",
        r"\bCUDA unknown error\b",
        "cuda driver library init failure: 999",
        r"\bcuInit\b.{0,40}\b(?:unknown error\b|999\b)",
        "OS call failed or operation not supported on this OS",
        r"\bcuda (?:runtime |driver )?error \(?(?:30|999)\b",
        "CUDA_ERROR_UNKNOWN",
        "cudaErrorUnknown",
    ),
    _sign(
        "AM-041",
        "NoBinaryForGpu",
        "hipErrorInvalidDeviceFunction",
        "HIP error: invalid device function",
        r"amdgpu: \S{1,40} +not supported in kfd",
        r"Cannot read \S{1,200}TensileLibrary",
    ),
    _sign(
        "AM-038 PT-053",
        r"/dev/(?:kfd|dri/renderD\d+)\b.{0,40}(?:permission denied|operation not permitted)",
    ),
    _sign(
        "AM-038 PT-053",
        r"\bnot (?:a )?member of \W?(?:render|video)\W? group",
        "HSA_STATUS_ERROR_OUT_OF_RESOURCES",
    ),
    _sign("SL-022 AM-084 AM-039 AM-038", "no AMD GPUs specified"),
    _sign("AM-039 SL-022 AM-084", r"open /dev/kfd\b.{0,40}no such file"),
    _sign("AM-084 AM-039", "ROCk module is NOT loaded"),
    _sign(
        "SL-022 AM-039 AM-038 AM-084",
        "no (?:ROCm-capable device|HIP GPUs? (?:is|are) available)",
        "hipErrorNoDevice",
    ),
    _sign("NV-030 NV-031", "access blocked by the operating system", "no adapters were found"),
    _sign(
        "DK-012 NV-013",
        "failed to initialize nvml: unknown error",
        also=r"\bno-cgroups ?= ?true",
    ),
    _sign("NV-013 DK-012 NV-080", "failed to initialize nvml: unknown error"),
    _sign(
        "DK-014 PT-053 DK-067",
        "failed to initialize nvml: (?:insufficient permissions|no permission)",
        r"\bSELinux is preventing .{0,120}/dev/(?:nvidia|dri|kfd|dxg)",
        r"\bavc: +denied\b.{0,400}(?:nvidia|renderD|\bkfd\b|xserver_misc_device_t|dri_device_t)",
        r"\bcontainer_t\b.{0,200}/dev/(?:nvidia|dri|kfd)",
    ),
    _sign("DK-010 NV-006", r"libnvidia-ml\.so(?:\.1)?: cannot open", also=r"\bsnap\b"),
    _sign(
        "NV-006 NV-062 DK-010 DK-033",
        r"libnvidia-ml\.so(?:\.1)?\W{1,3}cannot open",
        "NVML shared library not found",
        "NVML_?ERROR_?Library_?Not_?Found",
        r"nvidia-container-cli\S*: initialization error: (?:load library|cannot open shared object)",
    ),
    _sign(
        "NV-062 NV-002 NV-004 NV-084",
        "couldn.t communicate with the nvidia driver",
        r"\bmodule nvidia(?:[-_]\w+)* not found",
        "could not find module by name '?nvidia",
        "nvml: driver not loaded",
        "NVML_?ERROR_?Driver_?Not_?Loaded",
        r"\bnvidia\S{0,40} .{0,200}\bbad return status for module build",
        r"\bbad return status for module build\b.{0,200}\bnvidia",
        "failed to load the nvidia kernel module",
        "could not insert '?nvidia",
    ),
    _sign(
        "NV-062 SL-022",
        "could not open the device file /dev/nvidia",
        "found no nvidia driver on your system",
    ),
    _sign("NV-003 NV-018 NV-020 NV-062", r"\bno devices were found\b"),
    _sign(
        "NV-062 NV-006 SL-022",
        "command 'nvidia-smi' not found, but",
        "sudo: nvidia-smi: command not found",
    ),
    _sign(
        "SL-022 NV-062 NV-027 DK-079",
        r"nvidia-smi\W{0,4} ?(?:command )?not found",
        "command not found: nvidia-smi",
        r"nvidia-smi\W{0,4} ?(?:executable file not found|no such file)",
    ),
    _sign(
        "SL-022 NV-027 NV-006 PT-051",
        r"libcuda\.so(?:\.1)?\W{1,3}cannot open",
        r"could not (?:load|dlopen|find) \S{0,40} ?\S{0,10} ?'?libcuda\.so",
        "could not find cuda drivers",
        "CUDA driver library cannot be found",
        "unable to load cuda driver library",
    ),
    _sign(
        "PT-051 NV-006 NV-027 SL-022",
        "cuda libraries (?:are )?not accessible",
        "can't find cuda libraries",
    ),
    _sign(
        "SL-022 PT-050 NV-062",
        "no CUDA GPUs? (?:is|are) available",
        "no CUDA runtime is found",
        "no CUDA-capable device",
        "cudaErrorNoDevice",
        "CUDA_ERROR_NO_DEVICE",
        "torch is not able to use GPU",
        r"torch\.cuda\.is_available\(\)\W{0,4}(?:is |returns? )?false",
        "no GPU/TPU found",
        r"\bCUDA is not available",
        "no visible GPU devices",
        "you might not have a CUDA gpu",
        "only 0 devices available",
        r"list_physical_devices\(\W?GPU\W?\)\W{0,8}\[\]",
        r"torch\.cuda\.device_count\(\)\W{0,8}0\b",
        "no supported gpu backend found",
        "but your machine only has: \\[\\]",
        "failed to infer device type",
        "no compatible GPUs were discovered",
        "no nvidia devices detected",
        r"\b0 active drivers?\b",
        r"\binference compute\W{1,3}id=\S{1,8} library=cpu\b",
    ),
    _sign(
        "SL-022 GP-020 PT-053",
        "XPU device count is zero",
        r"\bno XPU devices?\b",
        "PI_ERROR_DEVICE_NOT_FOUND",
        "no device of requested type available",
    ),
    _sign("SL-022 GP-020 PT-053", r"\[opencl:cpu\b", also=r"\A(?!.*:gpu\b)"),
    _sign("SL-022 NV-027", "PLATFORM_NOT_FOUND_KHR", r"\bclGetPlatformIDs\b.{0,40}-1001\b"),
    _sign("PT-050 SL-020 DK-065", "invalid device ordinal", "CUDA_ERROR_INVALID_DEVICE"),
    # What came with the program, and no driver: its own build, its own libraries, a compiler
    _sign(
        "PT-060 SL-022",
        r"\bnot compiled with (?:CUDA|ROCm|GPU|XPU)\b",
        r"\b(?:compiled|built|installed) without (?:GPU|CUDA|ROCm|HIP) (?:support|enabled)",
        r"\blib(?:cudart|cublas|cudnn|cufft|curand|cusolver|cusparse|cupti|nccl|nvrtc|nvJitLink|nvvm"
        r"|nvToolsExt|amdhip64|hipblas|rocblas|MIOpen|rccl|hsa-runtime64)"
        r"[\w.-]{0,40}\W{1,3}cannot open shared object",
        r"could not (?:load|dlopen|find) \S{0,40} ?\S{0,10} ?\W?lib(?:cudart|cublas|cudnn|cufft|nvinfer)\b",
        "cannot dlopen some GPU libraries",
        "CUDA-enabled jaxlib is not installed",
        r"unable to load CUDA\. Is it installed",
        "CUDA setup failed despite (?:GPU|CUDA) being available",
        "libNVVM cannot be found",
    ),
    _sign(
        "PT-060 NV-023",
        r"undefined symbol: \w{0,20}(?:cublas|cudnn|nccl|cusparse|nvJitLink)",
        r"detected CUDA version \S{1,12} mismatches the version that was used to compile",
        "cuDNN version incompatibility",
        r"\bnvcc\W{0,4} ?(?:command )?not found",
        "command not found: nvcc",
        "CUDA_HOME environment variable is not set",
        r"cannot find -l(?:cudart|cuda|cublas|cudnn)\b",
    ),
    _sign("PT-060", r"\bno module named \W?(?:torch|tensorflow|jax|cupy)\b(?!\.)"),
)

OWN = (
    _sign("SL-006", "the start failed; 'dshpc-node status'", "dshpc: the cluster did not start"),
    _sign(
        "SL-007 SL-006", "dshpc: the cluster did not get ready", "the start was ended from outside"
    ),
    _sign("SL-027 DK-081", "the state volume has no room or cannot be written"),
    _sign("SL-008 SL-009", r"the controller (?:does not answer:|does not say how node)"),
    _sign("SL-046", r"dshpc: job \S{1,80} had \d+ processes, all that it may have"),
)
"""What the cluster's container says."""

ENGINE = (
    _sign("PT-001 DK-007 DK-009 DK-008", r"\bdocker passthrough failed"),
    _sign(
        "DK-045",
        "insufficient shared memory",
        "out of shared memory",
        r"/dev/shm\S{0,80}.{0,40}no space left",
        "DataLoader worker .{0,40}signal: bus error",
        "unable to allocate shared memory",
        "error while creating shared memory segment",
        "/dev/shm has only",
        "unable to (?:write to file|mmap) .{0,20}/torch_.{0,60}(?:no space left|cannot allocate)",
    ),
    _sign("DK-045 SL-037 SL-025", r"DataLoader worker .{0,40}exited unexpectedly"),
    _sign("SL-037 SL-025 SL-004", "DataLoader worker .{0,40}signal: killed"),
    _sign(
        "NV-030 NV-080",
        "driver error: failed to process request",
        also=r"\bWSL|\bWindows\b|docker desktop|microsoft",
    ),
    _sign("NV-080 NV-062 NV-030", "driver error: failed to process request"),
    _sign(
        "DK-068 NV-006 NV-001",
        r"nvidia-container-cli(?:\.real)?: mount error: .{0,300}no such file",
    ),
    _sign(
        "DK-086",
        r"(?<![\w/.-])docker: (?:command )?not found",
        r"command not found: docker(?![\w-])",
        "command 'docker' (?:not found|could not be found in this WSL 2)",
        "'docker' is not recognized",
    ),
    _sign(
        "HO-001",
        "could not be found in this WSL 1 distro",
        "please enable the virtual machine platform",
        "WSL ?2 is not supported with your current machine configuration",
        "WSL ?2 requires an update to its kernel component",
    ),
    _sign("DK-010 DK-072 DK-068", r"creating mount source path .{0,200}read-only file system"),
    _sign("DK-072", r"error response from daemon: .{0,200}read-only file system"),
    _sign(
        "DK-064 DK-007",
        "find runc path",
        "no runtime binary found from candidate list",
        r"\berror running (?:prestart )?hook .{0,40}signal: segmentation fault",
    ),
    _sign("DK-083 DK-037", "unknown flag: --gpus"),
    _sign(
        "DK-036 DK-084",
        "unsupported config option for services",
        r"version in \S{1,120} is unsupported",
    ),
    _sign("DK-073 DK-037", "request returned (?:500 )?internal server error for api route"),
    _sign(
        "DK-002",
        "docker-compose: (?:command )?not found",
        "command not found: docker-compose",
        "command 'docker-compose' not found",
        "'compose' is not a docker command",
        "unknown command: docker compose",
        r"bin/docker-compose: (?:line )?\d*:? ?(?:\S{1,60}: )?not: ",
    ),
    _sign(
        "DK-085",
        "'buildx' is not a docker command",
        "buildx component is missing",
        "requires BuildKit",
    ),
    _sign(
        "DK-074",
        "permission denied while trying to connect to the docker",
        r"\bdocker\b.{0,200}\bconnect\(self\.unix_socket\) PermissionError",
    ),
    _sign("DK-001 DK-074 DK-073", "couldn't connect to docker daemon"),
    _sign(
        "DK-001 DK-073 DK-072",
        "unable to configure the docker daemon with file",
        r"\bdocker\w{0,40}\b.{0,200}failed to start daemon",
        r"\bfailed to start daemon\b.{0,60}\b(?:error initializing|pid file|network|iptables)",
        "job for docker.service failed",
        r"docker\.service: (?:failed|main process exited|start request repeated)",
    ),
    _sign(
        "DK-001 DK-073 DK-082",
        "cannot connect to the docker daemon",
        r"\bdocker\b.{0,200}\bconnect\(self\.unix_socket\) (?:ConnectionRefused|FileNotFound)",
        "docker daemon (?:up and |not )?running",
        r"docker\.sock: (?:connect: )?(?:no such file|connection refused)",
        "failed to connect to the docker api",
        r"error during connect: (?:this error|in the default|\w+ .?http)",
        r"docker\w{0,40}engine: the system cannot find the file",
        "docker desktop is unable to start",
    ),
    _sign(
        "DK-010 DK-009",
        "(?:unknown|invalid) runtime",
        "unknown runtime specified",
        also=r"\bsnap install docker|/snap/",
    ),
    _sign("DK-010 DK-007", "could not select device driver", also=r"\bsnap install docker|/snap/"),
    _sign(
        "DK-009 DK-008 DK-007 DK-010",
        r"unknown (?:or invalid runtime name:|runtime specified) \W{0,4}(?:nvidia|amd)\b",
    ),
    _sign("DK-060 DK-061", r"could not select device driver \W{0,4}cdi\b"),
    # Names that no person writes: the toolkit made the specification, which has not this GPU
    _sign("DK-017 DK-016", r"\bunresolvable CDI devices? management\.nvidia\.com/"),
    _sign(
        "DK-007 DK-008 DK-010 NV-030 DK-033 DK-034 DK-035 DK-011",
        r"could not select device driver \W{0,8}(?:nvidia\W{1,4})?with capabilities",
    ),
    _sign(
        "DK-011 DK-064",
        r"bpf_prog_query\(BPF_CGROUP_DEVICE\) failed: operation not permitted",
        r"/devices\.allow: permission denied",
        "nvidia-container-cli: permission error: capability change failed",
    ),
    # An engine that runs Windows containers and is given an image of Linux (moby, image/store.go)
    _sign(
        "DK-001 DK-069",
        r"image operating system \W?linux\W? cannot be used on this platform",
        r"\bno matching manifest for windows/",
    ),
    _sign(
        "DK-069 HO-005",
        r"\bexec (?!\S*nvidia-container)\S{1,200}: exec format error",
        r"exec user process caused\S? \W?exec format error",
        "no matching manifest for linux/",
        "does not match the (?:specified|detected host) platform",
    ),
    _sign("DK-017 DK-016 DK-035", "unable to upgrade to tcp, received 500"),
    _sign("PT-058", r"error relocating \S{0,120}(?:nvidia|libcuda)"),
)

SLURM = (
    _sign("SL-013 SL-036 SL-022", "gres/gpu count (?:reported lower|too low)"),
    _sign(
        "SL-014",
        r"\blow (?:real_?memory|cpus|tmp_?disk|socket\*core)",
        "node configuration differs from hardware",
    ),
    _sign("SL-015", r"\bkill task failed\b", "due to job not ending with signals"),
    _sign("SL-016", r"\b(?:prolog|epilog) (?:error|failed)\b"),
    _sign("SL-052", r"\btaskprolog failed status="),
    # job_mgr.c and job_state_reason.c (24.11); squeue writes some with underscores
    _sign(
        "SL-051 SL-016",
        r"\blaunch[ _]failed[ _]requeued[ _]held\b",
        r"\blaunch failure limit exceeded requeued held\b",
        r"\bjobholdmaxrequeue\b",
    ),
    _sign(
        "SL-051", r"\bjobheld(?:user|admin)\b", r"\bjob requeued in (?:held|special exit) state\b"
    ),
    _sign("SL-017", "batch job complete failure"),
    # gres.c: "fatal: Invalid GRES record for gpu, count does not match File value"
    _sign("FI-005 SL-010 SL-020", r"\binvalid gres record\b"),
    _sign("SL-036 SL-010", r"(?:can't stat|waiting for) gres\.conf file"),
    _sign(
        "SL-021",
        "configured to autodetect nvml functionality, but",
        "built without gpu support",
        r"plugin (?:name )?for gpu/(?:nvml|rsmi|oneapi)\b",
    ),
    _sign(
        "SL-020 SL-023",
        "invalid generic resource",
        "invalid gres specification",
        "gres format wrong",
        "invalid GPU specification",
    ),
    _sign(
        "SL-030 SL-026",
        "incompatible versions of client and server",
        "credential data mismatch",
        "invalid job credential",
    ),
    _sign(
        "SL-028 SL-026",
        r"\b(?:expired|rewound) credential",
        "credential expired",
        "out of sync clocks",
    ),
    _sign(
        "SL-026 SL-028",
        "munge[ _](?:encode|decode) failed",
        r"\bmunged?: error:",
        r"\bmunge\.socket\.2\b.{0,80}(?:no such file|permission denied|refused)",
        "zero bytes were transmitted or received",
        r"\bmunged? communication error",
        "protocol authentication error",
        "invalid authentication credential",
        "has authentication error",
    ),
    _sign("SL-037 SL-025 SL-004", r"\binvoked oom-killer\b"),
    _sign(
        "SL-025 SL-037 SL-024",
        r"\boom.?kill event",
        "exceeded (?:job|step) memory limit",
        r"\bOUT_OF_MEMORY\b",
        r"\btasks? [\d,-]+: out of memory",
    ),
    _sign("SL-025 SL-037 SL-004", "DefaultCPUAllocator: (?:can't|not enough).{0,20} memory"),
    _sign("SL-037 SL-025 SL-004", "out of memory: killed process", r"\boom-kill:constraint"),
    _sign("SL-004 SL-037", r"\bOOMKilled\b"),
    _sign(
        "SL-046",
        "fork: (?:retry: )?resource temporarily unavailable",
        "pthread_create failed",
        r"\bcannot fork\b",
        "can't start new thread",
        "fork rejected by pids controller",
    ),
    _sign(
        "SL-009 SL-008",
        r"\bslurmctld is stopped",
        r"stopping slurmctld: \[failed\]",
        "slurmctld: fatal:",
        r"\bslurmctld: error \(spawn error\)",
        r"\bslurmctld\.service(?: failed|: (?:failed|start operation timed out|main process exited))",
        "failed to start slurm controller daemon",
        r"\bslurmctld (?:is in the|entered) FATAL state",
        r"\bslurmctld is not (?:available|running)\b",
        "waiting for slurmctld",
        r"\bslurmctld version .{1,2000}\bfatal:",
        r"cannot find \w{1,20} plugin for \w{1,20}/munge",
    ),
    _sign(
        "SL-032 SL-010",
        r"\bslurm.{0,200}(?:unable to resolve .{1,80}unknown host|name or service not known)",
    ),
    _sign(
        "SL-010 SL-036",
        "slurmd: fatal:",
        "slurmd initialization failed",
        r"\bslurmd\.service(?: failed|: (?:failed|start operation timed out|main process exited))",
        "failed to start slurm node daemon",
        "failed to fetch remote configs",
        r"\bslurmd: error \(spawn error\)",
        r"\bslurmd (?:is in the|entered) FATAL state",
        r"\bslurmd version .{1,2000}\bfatal:",
        r"(?:cannot|can't|couldn't) (?:create|load|initialize|find) .{0,60}"
        r"\b(?:proctrack|task|cgroup)(?:/\w+| plugin)",
    ),
    _sign(
        "SL-008 SL-009 SL-001",
        "unable to contact slurm controller",
        r"\b(?:slurm\w*|s(?:run|batch|alloc|info|queue|control)): .{0,80}socket timed out on send/recv",
        r"slurmctld\(primary\).{0,80}is down",
    ),
    _sign(
        "SL-018 SL-010",
        r"nodes? \S{1,80} not responding",
        r"\bnot responding, setting down",
        "node unexpectedly rebooted",
    ),
    _sign(
        "SL-023 SL-020",
        "requested node configuration is not available",
        "memory specification can not be satisfied",
        "more processors requested than permitted",
        "CPU count per node can not be satisfied",
        "memory required by task is not available",
        "node count specification invalid",
        r"\bdependencyneversatisfied",
    ),
    _sign("SL-012 SL-002", r"\bnode \S{1,80} is (?:being )?(?:drained|draining)\b"),
    _sign("SL-018 SL-002 SL-010", r"\bnode \S{1,80} is down\W"),
    _sign(
        "SL-012 SL-018 SL-002",
        r"\bReqNodeNotAvail\b",
        "nodes required for job are down, drained or reserved",
        "required nodes? not available",
    ),
    _sign(
        "SL-019 SL-013 SL-014", r"\bCoreSpec differ\b", r"\bINVALID_REG\b", r"\bstate to INVAL\b"
    ),
)

REST = (
    _sign(
        "DK-072 DK-081 HO-008 HO-009 SL-027",
        r"\A(?!.*(?:/sys/fs/cgroup|inotify)).*?(no space left on device|disk quota exceeded)",
    ),
    _sign(
        "NV-081 NV-020",
        r"\bXid(?: errors?| codes?)?[ :=#(]{1,3}(?:PCI:[\w:.]{1,20}\)?: ?)?\d{1,3}\b",
    ),
    _sign(
        "NV-101 NV-019",
        r"\bSXid(?: errors?| codes?)?[ :=#(]{1,3}(?:PCI:[\w:.]{1,20}\)?: ?)?\d{4,6}\b",
    ),
    _sign("DK-017 NV-001 NV-029", "nvidia-persistenced/socket: no such file"),
    _sign(
        "SL-012 SL-014", r"\bPARTITION AVAIL .{1,2000} ((?:drain|drained|drng|draining)[*~#@]? \S+)"
    ),
    _sign("SL-018 SL-010", r"\bNODES PARTITION .{1,4000} unknown\* "),
    _sign("SL-018 SL-012", r"\bPARTITION AVAIL .{1,2000} (down[*~#]? \S+)"),
    _sign("GP-001 NV-062 SL-022", r"\A\W{0,6}no GPUs? detected\W{0,6}(?:during setup)?\W{0,4}\Z"),
    _sign("PT-001 SL-022 FI-010", r"\bGPU visible on host but not in container"),
    _sign("SL-021 SL-022", r"\bcontainer built without GPU"),
    _sign("NV-023 NV-001 NV-049", r"\bCUDA version mismatch\b"),
    _sign("NV-080 NV-020 NV-081", r"\| +\d+ +ERR!", r"\bERR! +ERR! +ERR!"),
    _sign("NV-080 NV-082", "unable to create CUDA context"),
    _sign("NV-080 NV-062 NV-013", "failed to initialize nvml(?!: ?[a-z])"),
    _sign(
        "DK-081 HO-008 DK-072",
        r"\bUse% Mounted on\b.{0,4000}\b(100% /(?:var(?:/lib(?:/docker|/containers)?)?)?)(?: |\Z)",
    ),
    _sign("GP-001 SL-022", r"\bGPU count is 0\b"),
    _sign(
        "SL-022 PT-050 NV-062",
        r"\bno (?:(?:usable|supported|compatible|suitable|nvidia|amd|cuda|rocm) )*"
        r"GPUs?(?: devices?)? (?:(?:was|were|is|are) )?(?:found|detected|discovered|available)\b",
        r"\bGPU (?:is |was )?not (?:found|detected)\b",
    ),
)

FIRST: tuple[Sign, ...] = (*OWN, *LOST)
"""Before all else."""
NEXT: tuple[Sign, ...] = (*DRIVER, *CUDA, *ENGINE, *SLURM)
"""After the checks of the kernel's log, before the catalogue of refusals."""
LAST: tuple[Sign, ...] = REST
"""After both: words that others explain better."""
