"""What engines say of devices: CDI specifications, device nodes, files to mount. First match counts.

Sources: the texts of Docker 20.10, 26.1 and 28.5 and of Podman 5.4, seen; moby (daemon/cdi.go),
container-device-interface (pkg/cdi), runc and crun, and public issue threads.
"""

from __future__ import annotations

from dshpc_setup import gpu_vendors, remedies
from dshpc_setup.passthrough import findings
from dshpc_setup.passthrough.rules import (
    Q,
    Rule,
    any_spec,
    both,
    by,
    engine_is,
    missing_of_spec,
    named_by_spec,
    no,
    selinux_enforces,
    spec_is,
    spec_misses_files,
)


def _unresolvable(vendor: str) -> tuple[Rule, ...]:
    pattern = rf"unresolvable CDI devices?\b(?P<names>[^\n]{{0,400}}?\b{vendor}\.com/[^\n:]*)"
    generate = (lambda facts: remedies.generate_cdi(facts, vendor),)
    return (
        Rule(
            findings.DESKTOP_CDI,
            pattern,
            "Docker Desktop has no CDI devices of these GPUs: --gpus is its way",
            when=engine_is("desktop"),
        ),
        Rule(
            findings.REMOTE_ENGINE,
            pattern,
            "the engine runs on another machine, which has no CDI specification of these GPUs",
            (remedies.local_engine,),
            engine_is("remote"),
        ),
        Rule(
            findings.CDI_SPEC_UNREADABLE,
            pattern,
            "a CDI specification names these GPUs, and the engine does not take it: it clashes with another "
            "one, or is of a later format than the engine's",
            (remedies.clashing_specs, *generate),
            named_by_spec,
        ),
        Rule(
            findings.STALE_CDI_SPEC,
            pattern,
            "the CDI specification is out of date: it does not name these GPUs",
            generate,
            spec_is(vendor, "present"),
        ),
        Rule(
            findings.CDI_SPEC_UNREADABLE,
            pattern,
            "the CDI specification cannot be read",
            generate,
            spec_is(vendor, "error", "denied"),
        ),
        Rule(
            findings.NO_CDI_SPEC,
            pattern,
            "no CDI specification names these GPUs",
            (lambda facts: remedies.first_cdi(facts, vendor),),
        ),
    )


# Podman's compatible API tells its client no more than this number, whatever the cause.
_PODMAN_SAYS_NOTHING = r"unable to upgrade to tcp, received 500"


def _no_file(name: str = "") -> str:
    """`name`: a pattern of the path's beginning."""
    return (
        r"(?:failed to fulfil mount request: open|error mounting|cannot stat|statfs) "
        rf"{Q}(?P<file>/(?!dev/){name}[^\s:\"'\\`]+)[^\n]{{0,400}}?no such file"
    )


_NO_FILE = _no_file()
_NO_GPU_FILE = _no_file(r"(?=[^\s:\"'\\`]{0,300}(?:nvidia|libcuda|nvoptix|nvcuvid|amdgpu|rocm))")
_OLD_SPEC = (
    "the CDI specification is out of date: it names {file}, which is not on this machine, as after an "
    "update of the driver"
)

CDI = (
    *(rule for vendor in gpu_vendors.names() for rule in _unresolvable(vendor)),
    Rule(
        findings.CDI_SPEC_UNREADABLE,
        r"unknown field [^\n]{0,3}additionalGids|CDI registry initialization failure"
        r"|failed to (?:load|parse|unmarshal) CDI Spec",
        "the engine cannot read a CDI specification: it is broken, or of a later format than the engine's",
        (remedies.generate_cdi,),
    ),
    Rule(
        findings.NO_UVM,
        rf"failed to stat CDI host device {Q}/dev/nvidia-uvm",
        "/dev/nvidia-uvm is missing, without which CUDA does not start",
        (remedies.load_uvm,),
    ),
    Rule(
        findings.STALE_CDI_SPEC,
        rf"failed to stat CDI host device {Q}(?P<node>/[^\s\"'\\:]+)",
        "the CDI specification is out of date: it names {node}, which is not on this machine",
        (remedies.generate_cdi,),
    ),
    Rule(findings.STALE_CDI_SPEC, _NO_FILE, _OLD_SPEC, (remedies.generate_cdi,), missing_of_spec),
    Rule(
        findings.STALE_CDI_SPEC,
        _NO_GPU_FILE,
        _OLD_SPEC,
        (remedies.generate_cdi,),
        no(by("devices")),
    ),
    Rule(
        findings.NO_MOUNT_SOURCE,
        rf"{_NO_FILE}|bind source path does not exist: (?P<bind>/\S+)",
        "{file}{bind}, which the container was to get, is not where the engine runs",
    ),
    Rule(
        findings.STALE_CDI_SPEC,
        _PODMAN_SAYS_NOTHING,
        "Podman refused the CDI devices: the CDI specification names files that are not on this machine",
        (remedies.generate_cdi,),
        both(engine_is("podman"), by("cdi"), spec_misses_files),
    ),
    Rule(
        findings.NO_CDI_SPEC,
        _PODMAN_SAYS_NOTHING,
        "Podman refused the CDI devices: no CDI specification can be read",
        (remedies.generate_cdi,),
        both(engine_is("podman"), by("cdi"), no(any_spec)),
    ),
)

# The rest of a node's path, whole: what a pattern gives back of it makes long texts slow.
_REST = r"[^\s\"'\\`:]{0,200}(?![^\s\"'\\`:])"
_NO_NODE = (
    rf"(?:error gathering device information while adding custom device|container create: stat|"
    rf"error stat'ing file|cannot stat|\bl?stat) {Q}(?P<node>/dev/"
)
_GONE = _REST + rf"){Q}: no such (?:file|device)"

NODES = (
    Rule(
        findings.NO_UVM,
        _NO_NODE + "nvidia-uvm" + _GONE,
        "{node} is missing, without which CUDA does not start",
        (remedies.load_uvm,),
    ),
    Rule(
        findings.NO_KFD,
        _NO_NODE + "kfd" + _GONE + r"|unable to open /dev/kfd[^\n]{0,400}no such file",
        "/dev/kfd is missing: AMD's driver is not loaded, or not for computing",
        (remedies.amd_driver,),
    ),
    Rule(
        findings.NO_WSL_GPU,
        _NO_NODE + "dxg" + _GONE,
        "{node} is missing: WSL has no GPU",
        (remedies.update_wsl,),
    ),
    Rule(
        findings.DRIVER_NOT_LOADED,
        _NO_NODE + r"nvidia(?:\d+|ctl)(?![\w-])" + _GONE,
        "{node} is missing: NVIDIA's driver is not loaded, or has not made the node",
        (remedies.load_driver,),
        no(engine_is("remote", "desktop")),
    ),
    Rule(findings.NO_NODE, _NO_NODE + _GONE, "{node} is not where the engine runs"),
    Rule(
        findings.NO_NODE,
        rf"(?P<node>/dev/{_REST}){Q}:? (?:is )?not a device node",
        "{node} is no device node: something made a file or folder of that name",
    ),
    Rule(
        findings.AMD_GROUP,
        r"unable to open /dev/(?:kfd|dri/\S+)[^\n]{0,400}permission denied",
        "the container's user may not open AMD's device nodes",
        (remedies.amd_groups,),
    ),
    Rule(
        findings.SELINUX,
        rf"(?P<node>/dev/(?:nvidia|dri|kfd|dxg){_REST})[^\n]{{0,400}}permission denied",
        "SELinux keeps the container from {node}",
        (remedies.selinux,),
        selinux_enforces,
    ),
    Rule(
        findings.ENGINE_MAY_NOT_OPEN,
        rf"(?P<node>/dev/(?:nvidia|dri|kfd|dxg){_REST})[^\n]{{0,400}}"
        r"(?P<words>permission denied|operation not permitted)",
        "the engine may not hand over {node}: {words}",
        (lambda facts: remedies.node_groups(facts, ()),),
    ),
)
