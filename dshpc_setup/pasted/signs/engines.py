"""What container engines, their toolkits and compose tools say."""

from __future__ import annotations

from dshpc_setup.pasted.signs.sign import sign

ENGINE = (
    sign("PT-001 DK-007 DK-009 DK-008", r"\bdocker passthrough failed"),
    sign(
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
    sign("DK-045 SL-037 SL-025", r"DataLoader worker .{0,40}exited unexpectedly"),
    sign("SL-037 SL-025 SL-004", "DataLoader worker .{0,40}signal: killed"),
    sign(
        "NV-030 NV-080",
        "driver error: failed to process request",
        also=r"\bWSL|\bWindows\b|docker desktop|microsoft",
    ),
    sign("NV-080 NV-062 NV-030", "driver error: failed to process request"),
    sign(
        "DK-068 NV-006 NV-001",
        r"nvidia-container-cli(?:\.real)?: mount error: .{0,300}no such file",
    ),
    sign(
        "DK-086",
        r"(?<![\w/.-])docker: (?:command )?not found",
        r"command not found: docker(?![\w-])",
        "command 'docker' (?:not found|could not be found in this WSL 2)",
        "'docker' is not recognized",
    ),
    sign(
        "HO-001",
        "could not be found in this WSL 1 distro",
        "please enable the virtual machine platform",
        "WSL ?2 is not supported with your current machine configuration",
        "WSL ?2 requires an update to its kernel component",
    ),
    sign("DK-010 DK-072 DK-068", r"creating mount source path .{0,200}read-only file system"),
    sign("DK-072", r"error response from daemon: .{0,200}read-only file system"),
    sign(
        "DK-064 DK-007",
        "find runc path",
        "no runtime binary found from candidate list",
        r"\berror running (?:prestart )?hook .{0,40}signal: segmentation fault",
    ),
    sign("DK-083 DK-037", "unknown flag: --gpus"),
    sign(
        "DK-036 DK-084",
        "unsupported config option for services",
        r"version in \S{1,120} is unsupported",
    ),
    sign("DK-073 DK-037", "request returned (?:500 )?internal server error for api route"),
    sign(
        "DK-002",
        "docker-compose: (?:command )?not found",
        "command not found: docker-compose",
        "command 'docker-compose' not found",
        "'compose' is not a docker command",
        "unknown command: docker compose",
        r"bin/docker-compose: (?:line )?\d*:? ?(?:\S{1,60}: )?not: ",
    ),
    sign(
        "DK-085",
        "'buildx' is not a docker command",
        "buildx component is missing",
        "requires BuildKit",
    ),
    sign(
        "DK-074",
        "permission denied while trying to connect to the docker",
        r"\bdocker\b.{0,200}\bconnect\(self\.unix_socket\) PermissionError",
    ),
    sign("DK-001 DK-074 DK-073", "couldn't connect to docker daemon"),
    sign(
        "DK-001 DK-073 DK-072",
        "unable to configure the docker daemon with file",
        r"\bdocker\w{0,40}\b.{0,200}failed to start daemon",
        r"\bfailed to start daemon\b.{0,60}\b(?:error initializing|pid file|network|iptables)",
        "job for docker.service failed",
        r"docker\.service: (?:failed|main process exited|start request repeated)",
    ),
    sign(
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
    sign(
        "DK-010 DK-009",
        "(?:unknown|invalid) runtime",
        "unknown runtime specified",
        also=r"\bsnap install docker|/snap/",
    ),
    sign("DK-010 DK-007", "could not select device driver", also=r"\bsnap install docker|/snap/"),
    sign(
        "DK-009 DK-008 DK-007 DK-010",
        r"unknown (?:or invalid runtime name:|runtime specified) \W{0,4}(?:nvidia|amd)\b",
    ),
    sign("DK-060 DK-061", r"could not select device driver \W{0,4}cdi\b"),
    # Names that no person writes: the toolkit made the specification, which has not this GPU
    sign("DK-017 DK-016", r"\bunresolvable CDI devices? management\.nvidia\.com/"),
    sign(
        "DK-007 DK-008 DK-010 NV-030 DK-033 DK-034 DK-035 DK-011",
        r"could not select device driver \W{0,8}(?:nvidia\W{1,4})?with capabilities",
    ),
    sign(
        "DK-011 DK-064",
        r"bpf_prog_query\(BPF_CGROUP_DEVICE\) failed: operation not permitted",
        r"/devices\.allow: permission denied",
        "nvidia-container-cli: permission error: capability change failed",
    ),
    # An engine that runs Windows containers and is given an image of Linux (moby, image/store.go)
    sign(
        "DK-001 DK-069",
        r"image operating system \W?linux\W? cannot be used on this platform",
        r"\bno matching manifest for windows/",
    ),
    sign(
        "DK-069 HO-005",
        r"\bexec (?!\S*nvidia-container)\S{1,200}: exec format error",
        r"exec user process caused\S? \W?exec format error",
        "no matching manifest for linux/",
        "does not match the (?:specified|detected host) platform",
    ),
    sign("DK-017 DK-016 DK-035", "unable to upgrade to tcp, received 500"),
    sign("PT-058", r"error relocating \S{0,120}(?:nvidia|libcuda)"),
)
