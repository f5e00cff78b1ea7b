"""What engines themselves say: Docker, containerd, runc, crun, Podman, compose. First match counts.

Sources: the texts of Docker 20.10, 26.1 and 28.5 and of Podman 5.4, seen; moby (daemon/devices.go,
daemon/cdi.go), container-device-interface (pkg/cdi), and public issue threads.
"""

from __future__ import annotations

from dshpc_setup import gpu_vendors, remedies
from dshpc_setup.passthrough import findings
from dshpc_setup.passthrough.handover import USUAL_DRIVER
from dshpc_setup.passthrough.rules import (
    Q,
    Rule,
    both,
    engine_is,
    no_hook,
    no_toolkit,
    on,
    registered,
    rootless,
)
from dshpc_setup.versions import at_least

_CDI_NAME = rf"{Q}(?P<name>[\w.-]+\.[a-z]+/[\w.-]+=[^\s\"'\\,]+)"

CONNECTION = (
    Rule(
        findings.ENGINE_DENIED,
        r"permission denied while trying to connect to the docker (?:daemon socket|api)"
        r"|(?:docker|podman)\.sock[^\n]{0,400}connect: permission denied",
        "this user may not use the engine",
        (remedies.docker_group,),
    ),
    Rule(
        findings.ENGINE_DENIED,
        r"authorization denied by plugin (?P<plugin>[^\s:]{1,80})"
        r"|plugin (?P<broken>[^\s:]{1,80}) failed with error: AuthZPlugin",
        "the engine's policy, the plugin {plugin}{broken}, refuses this user",
        (remedies.engine_policy,),
    ),
    Rule(
        findings.API_REFUSED,
        r"client version (?P<version>[\d.]+) is too (?P<age>old|new)",
        "the engine does not take this client's version of the API ({version}: too {age})",
        (remedies.matching_client,),
    ),
    Rule(
        findings.API_REFUSED,
        r"requires API version (?P<version>[\d.]+), but the docker daemon API version is (?P<own>[\d.]+)",
        "this needs API {version}, and the engine speaks {own}",
        (remedies.newer_docker,),
    ),
    Rule(
        findings.ENGINE_GONE,
        r"cannot connect to the docker daemon|failed to connect to the docker api|error during connect:"
        r"|unexpected EOF|unable to connect to podman|transport is closing|ttrpc: closed"
        r"|error waiting for container: (?:EOF|unexpected)",
        "the engine went away, or does not answer any more",
        (remedies.look_at_engine,),
    ),
    Rule(
        findings.DISK_FULL,
        # a cgroup or an inotify watch that cannot be had says the same words
        r"(?m)^(?!.*(?:/sys/fs/cgroup|inotify)).*(?:no space left on device|disk quota exceeded)",
        "the disk on which the engine keeps its data is full",
        (remedies.free_space,),
    ),
)

# Engines that hand over this machine's GPUs in no way, or in another one.
_ELSEWHERE = (
    (
        findings.REMOTE_ENGINE,
        "the engine runs on another machine, which has no toolkit for these GPUs",
        (remedies.local_engine,),
        engine_is("remote"),
    ),
    (
        findings.DESKTOP_VM,
        "Docker Desktop runs containers in a virtual machine that has no GPU of this machine",
        (remedies.native_engine,),
        both(engine_is("desktop"), on("linux", "macos")),
    ),
    (
        findings.NO_WSL_GPU,
        "Docker Desktop found no NVIDIA GPU in WSL",
        (remedies.native_engine, remedies.update_wsl),
        both(engine_is("desktop"), on("wsl1", "wsl2")),
    ),
    (
        findings.SNAP,
        "Docker is a snap, which does not see the toolkit of this machine",
        (remedies.replace_snap,),
        engine_is("snap"),
    ),
    (
        findings.PODMAN,
        "Podman hands over GPUs by CDI alone",
        (remedies.generate_cdi,),
        engine_is("podman"),
    ),
)


_NVIDIA_ALONE = (findings.NO_WSL_GPU, findings.PODMAN)


def _elsewhere(pattern: str, vendor: str = USUAL_DRIVER) -> tuple[Rule, ...]:
    return tuple(
        Rule(finding, pattern, says, fix, when)
        for finding, says, fix, when in _ELSEWHERE
        if vendor == USUAL_DRIVER or finding not in _NVIDIA_ALONE
    )


_NO_DRIVER = rf"could not select device driver {Q}(?:nvidia)?{Q} with capabilities"

DEVICE_REQUEST = (
    Rule(
        findings.CDI_OFF,
        rf"could not select device driver {Q}cdi{Q} with",
        "CDI is switched off in this engine",
        (remedies.enable_cdi,),
        lambda refusal: at_least(refusal.facts.engine.server_version, "25.0"),
    ),
    Rule(
        findings.ENGINE_WITHOUT_CDI,
        rf"could not select device driver {Q}cdi{Q} with|error gathering device information while adding "
        rf"custom device {_CDI_NAME}|[\w-]{{1,60}}\.com/\w+=\S+?{Q} is not an absolute path",
        "this engine, or the tool that speaks with it, does not know CDI",
        (remedies.newer_docker,),
    ),
    Rule(
        findings.NO_TOOLKIT,
        rf"could not select device driver {Q}amd{Q} with",
        "the AMD Container Toolkit is not installed",
        (lambda facts: remedies.install_toolkit(facts, "amd"),),
        no_toolkit("amd"),
    ),
    Rule(
        findings.NOT_RESTARTED,
        rf"could not select device driver {Q}amd{Q} with",
        "the AMD Container Toolkit is installed, and the engine did not find it when it started",
        (remedies.restart_docker,),
    ),
    *_elsewhere(_NO_DRIVER),
    Rule(
        findings.NO_TOOLKIT,
        _NO_DRIVER,
        "the NVIDIA Container Toolkit is not installed",
        (remedies.install_toolkit,),
        no_toolkit("nvidia"),
    ),
    Rule(
        findings.NO_TOOLKIT,
        _NO_DRIVER,
        "of the NVIDIA Container Toolkit the hook that --gpus needs is missing: only its base is installed",
        (remedies.install_toolkit,),
        no_hook,
    ),
    Rule(
        findings.ROOTLESS,
        _NO_DRIVER,
        "the rootless engine did not find the hook of the NVIDIA Container Toolkit, which is installed",
        (remedies.restart_docker, remedies.rootless_gpus),
        both(rootless, lambda refusal: not refusal.facts.engine.newer),
    ),
    Rule(
        findings.NOT_RESTARTED,
        _NO_DRIVER,
        "the NVIDIA Container Toolkit is installed, and the engine did not find its hook when it started",
        (remedies.restart_docker,),
    ),
)


def _runtime(vendor: str, toolkit: str) -> tuple[Rule, ...]:
    pattern = rf"unknown (?:or invalid runtime name:|runtime specified) {Q}{vendor}\b"
    return (
        *_elsewhere(pattern, vendor),
        Rule(
            findings.NOT_RESTARTED,
            pattern,
            f"the runtime {vendor} is in daemon.json, and the engine was not restarted since",
            (remedies.restart_docker,),
            registered(vendor),
        ),
        Rule(
            findings.NO_TOOLKIT,
            pattern,
            f"the {toolkit} is not installed",
            (lambda facts: remedies.install_toolkit(facts, vendor),),
            no_toolkit(vendor),
        ),
        Rule(
            findings.RUNTIME_NOT_REGISTERED,
            pattern,
            f"the runtime {vendor} is not registered with the engine",
            (lambda facts: remedies.register_runtime(facts, vendor), remedies.restart_docker),
        ),
    )


RUNTIME = tuple(
    rule for each in gpu_vendors.with_runtime() for rule in _runtime(each.name, each.toolkit_label)
)


COMPOSE = (
    Rule(
        findings.COMPOSE_TOO_OLD,
        r"unsupported config option for services\.[^\n]{0,400}'gpus'"
        r"|additional property gpus is not allowed"
        r"|additional properties are not allowed \('?(?:gpus|devices)'? (?:was|were) unexpected\)",
        "this compose does not know GPUs in the form that the file has",
        (remedies.other_compose_keys,),
    ),
)

_SHELL = rf"{Q}(?:/usr)?(?:/bin/)?(?:ba|da|a)?sh{Q}"
IMAGE = (
    Rule(
        findings.OTHER_PROCESSOR,
        r"exec format error|does not (?:match|provide) the (?:specified|detected)[^\n]{0,20} platform",
        "the image is for another type of processor than this machine's",
        (remedies.image_for_this_processor,),
    ),
    Rule(
        findings.IMAGE_WITHOUT_SHELL,
        rf"exec:? {_SHELL}: (?:executable file not found|stat |no such file)"
        rf"|exec {_SHELL}: no such file|executable file {_SHELL} not found"
        rf"|sh{Q}: stat /[^\s:]*sh: no such file",
        "the image cannot run the test: it has no sh",
    ),
    Rule(
        findings.NO_IMAGE,
        r"no such image|image not known|pull access denied|manifest unknown"
        r"|unable to find image '(?P<image>[^']+)' locally",
        "the image is not on this engine",
        (remedies.load_image,),
    ),
)
