"""Steps for the vendors' container toolkits and their CDI specifications. Pure.

Sources: the install, CDI and troubleshooting guides of the NVIDIA Container Toolkit (apt, dnf and
zypper; nvidia-cdi-refresh from 1.18, which does not see changes of MIG), Arch's package of it, NixOS'
manual for hardware.nvidia-container-toolkit, the quick start and CDI guides of AMD's toolkit.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

from dshpc_setup import gpu_vendors
from dshpc_setup.errors import Fix, Want
from dshpc_setup.facts import HostFacts, Toolkit
from dshpc_setup.remedies import of_vendors
from dshpc_setup.remedies.engine import OWN_CONFIG, enable_cdi, restart_docker
from dshpc_setup.remedies.family import Fixes, toolkit
from dshpc_setup.remedies.of_vendors import FIRST
from dshpc_setup.versions import at_least

_NEW_CONTAINER = "dshpc down && dshpc up"  # to render anew would change no file, and so make none


def install_toolkit(facts: HostFacts, vendor: str = FIRST) -> Fixes:
    """Install the vendor's container toolkit and put it in force; () where the vendor has none."""
    own = of_vendors.of(vendor)
    if own.install is not None and (told := own.install(facts)) is not None:
        steps, done = told
        return steps if done else (*steps, *_in_force(facts, vendor))
    known = gpu_vendors.of(vendor)
    if known.toolkit is None:
        return ()
    guide = f": {own.guide}" if own.guide else ""
    return (Fix(f"Install the {known.toolkit.label}{guide}"), *_in_force(facts, vendor))


def reinstall_toolkit(facts: HostFacts) -> Fixes:
    """The newest NVIDIA toolkit over one that is broken or too old."""
    return install_toolkit(facts)


def _in_force(facts: HostFacts, vendor: str) -> Fixes:
    """What makes an installed toolkit usable by the engine: Podman reads CDI alone."""
    if facts.engine.kind == "podman":
        return generate_cdi(facts, vendor)
    return (*register_runtime(facts, vendor), *restart_docker(facts))


def register_runtime(facts: HostFacts, vendor: str = FIRST) -> Fixes:
    """Write the vendor's runtime into Docker's configuration; () for Podman, which takes none."""
    if facts.engine.kind == "podman":
        return ()
    known = gpu_vendors.of(vendor).toolkit
    if known is None:
        return ()
    configure = f"{known.ctk} runtime configure --runtime=docker"
    if facts.engine.rootless and known.rootless:
        text = f"Register the runtime {vendor} with your own Docker"
        return (Fix(text, f"{configure} {OWN_CONFIG}", repair=("register-runtime", vendor)),)
    text = f"Register the runtime {vendor} with Docker"
    return (Fix(text, f"sudo {configure}", repair=("register-runtime", vendor)),)


def toolkit_mode(facts: HostFacts) -> Fixes:
    """Where the toolkit's mode refuses --gpus: its runtime, or another mode."""
    return (
        *register_runtime(facts),
        *restart_docker(facts),
        Fix(
            "Or, where this is no Jetson, let the toolkit choose its mode",
            "sudo nvidia-ctk config --set nvidia-container-runtime.mode=auto --in-place",
            step="alternative",
        ),
    )


def generate_cdi(facts: HostFacts, vendor: str = FIRST) -> Fixes:
    """Write the vendor's CDI specification, over the old one where there is one."""
    known = gpu_vendors.of(vendor)
    generate = of_vendors.of(vendor).generate
    old = old_specs(facts, vendor)
    wanted: Want = ("write-cdi", vendor)
    if generate is not None:
        make = tuple(replace(each, repair=wanted) for each in generate(facts, old))
    elif known.toolkit is None:
        text = f"Write {known.label}'s CDI specification again with the tool that made it"
        return (Fix(text),)
    else:
        each = [f" --output {shlex.quote(path)}" for path in old] or [""]
        text, command = f"Write {known.label}'s CDI specification", known.toolkit.ctk
        make = tuple(
            Fix(text, f"sudo {command} cdi generate{where}", repair=wanted) for where in each
        )
    # A rootless Docker sees of /etc and /run what was there when it started
    again = restart_docker(facts) if facts.engine.rootless else ()
    return tuple(dict.fromkeys((*make, *_old_docker_without(facts), *again)))


def first_cdi(facts: HostFacts, vendor: str = FIRST) -> Fixes:
    """A specification where there is none yet: by the toolkit's tool, and the toolkit first."""
    has = gpu_vendors.of(vendor).toolkit is None or toolkit(facts, vendor) is not None
    install = () if has else install_toolkit(facts, vendor)
    then = generate_cdi(facts if has else _with_toolkit(facts, vendor), vendor)
    return tuple(dict.fromkeys((*install, *then)[::-1]))[::-1]  # the restart once, at the end


def _with_toolkit(facts: HostFacts, vendor: str) -> HostFacts:
    """The machine as it is when the vendor's toolkit has just been installed."""
    engine = facts.engine
    others = (each for each in engine.toolkits if each.vendor != vendor)
    return replace(facts, engine=replace(engine, toolkits=(Toolkit(vendor, "present"), *others)))


def old_specs(facts: HostFacts, vendor: str) -> tuple[str, ...]:
    """Where specifications of this vendor lie: a new one elsewhere would stand beside the old one."""
    return tuple(
        spec.path
        for spec in facts.engine.cdi_specs
        if gpu_vendors.of(vendor).named_in(spec.kind)
        or (spec.kind is None and vendor in spec.path.rsplit("/", 1)[-1])
    )


def _old_docker_without(facts: HostFacts) -> Fixes:
    """CDI switched on as well where this Docker has it off; nothing about a version without CDI."""
    return enable_cdi(facts) if at_least(facts.engine.server_version, "25.0") else ()


def handed_over_anew(facts: HostFacts, ids: tuple[str, ...] = ()) -> Fixes:
    """Fewer GPUs than were asked for: the specification of these CDI names anew, else the toolkit's view."""
    if ids and "/" in ids[0]:
        return generate_cdi(facts, ids[0].split(".")[0])
    if toolkit(facts, FIRST) is None:
        return ()
    return (
        Fix("See which GPUs NVIDIA's toolkit hands over", "nvidia-container-cli list", step="look"),
    )


def clashing_specs(facts: HostFacts) -> Fixes:
    """Specifications that name the devices, and that the engine does not take."""
    paths = [spec.path for spec in facts.engine.cdi_specs]
    several = f" ({', '.join(paths)}): each device may be in only one" if len(paths) > 1 else ""
    text = f"See what the engine says of its CDI specifications{several}"
    if facts.engine.kind == "podman":
        return (Fix(f"Look at the CDI specifications{several}", step="look"),)
    return (Fix(text, "docker info --format '{{json .Warnings}}'", step="look"),)


def rootless_gpus(facts: HostFacts) -> Fixes:
    """GPUs for an engine that does not run as root: CDI, else the hook without cgroups."""
    return (
        *generate_cdi(facts),
        Fix(
            "Or, where CDI cannot be had, let NVIDIA's hook leave cgroups alone "
            "(not where an engine that runs as root is used as well)",
            "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=true --in-place",
            step="alternative",
        ),
    )


def cgroups_on(_: HostFacts) -> Fixes:
    """Undo no-cgroups, which is for rootless engines alone."""
    command = "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place"
    return (
        Fix("Let NVIDIA's hook set device rules again", command),
        Fix(
            "Then, where the cluster is up, recreate its container (running jobs are lost)",
            _NEW_CONTAINER,
        ),
    )
