"""Which mechanisms this engine may have for these GPUs, and why it cannot have the others. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from dshpc_setup import gpu_vendors, remedies
from dshpc_setup.engine_client import BUILTIN
from dshpc_setup.facts import GpuDevice, HostFacts, Vendor
from dshpc_setup.passthrough import driver_files, findings, vendor_ways
from dshpc_setup.passthrough.cdi_names import cdi_names
from dshpc_setup.passthrough.driver_files import WSL_DRIVER, DriverFiles
from dshpc_setup.passthrough.expected import DXG
from dshpc_setup.passthrough.handover import Handover, Mechanism
from dshpc_setup.passthrough.model import Attempt, Cause
from dshpc_setup.passthrough.wanted import WantedGpus
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.versions import at_least, numbers

_CDI_SINCE = "25.0"  # Docker; behind a setting until 28.2
_PODMAN_CDI_SINCE = "4.1"

# Of a name that Docker reads from a list, and of a node that it reads from "host:container".
_NAME = re.compile(r"[A-Za-z0-9][\w./:=-]*", re.ASCII)
_NODE = re.compile(r"(/dev(?:/(?!\.{1,2}[/:])[\w.+-]+)+):\1", re.ASCII)


def candidates(
    facts: HostFacts, plan: ClusterPlan, whole: bool = True, files: DriverFiles | None = None
) -> tuple[Attempt, ...]:
    """A row for each mechanism, best first: `untested` with its handover, or `impossible` and why.

    The plan hands out at least one GPU. `files` are those of the driver, which the built-in engine binds
    itself: without them its handover lacks them, as of a machine that is known by its facts alone.
    """
    asked = WantedGpus(facts, plan, whole, files)
    ways: tuple[tuple[Mechanism, Callable[[WantedGpus], Handover | Cause]], ...] = (
        ("cdi", _cdi),
        ("device-request", _device_request),
        ("runtime", _runtime),
        ("devices", _devices),
    )
    elsewhere = _elsewhere(asked)
    rows = []
    for mechanism, way in ways:
        found = elsewhere or _by_itself(asked, mechanism) or way(asked)
        if isinstance(found, Handover):
            found = _sound(_joined(asked, found))
        if isinstance(found, Cause):
            rows.append(Attempt(mechanism, "impossible", found.says, found.finding, fix=found.fix))
        else:
            rows.append(Attempt(mechanism, "untested", "it was not tested", handover=found))
    return tuple(rows)


def _sound(handover: Handover) -> Handover | Cause:
    """None of the names that the machine told may read as anything else on a command line."""
    odd = [name for name in handover.ids if not _NAME.fullmatch(name)]
    odd += [node for node in handover.devices if not _NODE.fullmatch(node)]
    return Cause(None, f"{odd[0]!r} cannot be handed over by its name") if odd else handover


def _joined(asked: WantedGpus, handover: Handover) -> Handover:
    """With the groups that own the nodes, and the nodes of vendors that the mechanism does not bring.

    Groups are numbers: a name would be looked up in the image. A rootless engine counts its own, so
    that this machine's number would be another group there, or none; the built-in one opens what its user
    may open.
    """
    own_ids = asked.engine.rootless or asked.engine.kind == BUILTIN
    known = () if own_ids else asked.plan.gpus
    groups = {group for gpu in known for group in gpu.group_ids}
    return replace(
        handover,
        devices=tuple(dict.fromkeys((*handover.devices, *_other_nodes(asked, handover)))),
        group_add=tuple(sorted(groups - {0})),
    )


def _other_nodes(asked: WantedGpus, handover: Handover) -> tuple[str, ...]:
    if asked.wsl or handover.mechanism == "devices":
        return ()
    brought = handover.vendors or {asked.vendor}
    return _as_devices(_raw_nodes(gpu for gpu in asked.plan.gpus if gpu.vendor not in brought))


# -- engines that reach none of this machine's GPUs -------------------------------------------------


def _elsewhere(asked: WantedGpus) -> Cause | None:
    engine, platform = asked.engine, asked.facts.platform
    if engine.kind == "remote":
        where = engine.host or "the address that DOCKER_HOST or a docker context names"
        return Cause(
            findings.REMOTE_ENGINE,
            f"the engine at {where} runs on another machine, which does not have these GPUs",
            remedies.local_engine(asked.facts),
        )
    # Its owner has put it there
    known = any(each.name in engine.runtimes for each in gpu_vendors.with_runtime())
    handed = known or bool(engine.cdi_devices)
    if engine.kind == "desktop" and engine.product and platform.kind == "wsl2" and not handed:
        return Cause(
            findings.DESKTOP_VM,
            f"{engine.product}'s engine runs in a WSL distribution of its own, without NVIDIA's container "
            "toolkit: it hands no GPU to containers",
            remedies.native_engine(asked.facts),
        )
    if engine.kind == "desktop" and platform.kind != "wsl2":
        return Cause(
            findings.DESKTOP_VM,
            f"{engine.application} runs containers in a virtual machine that no GPU of this machine reaches",
            remedies.native_engine(asked.facts),
        )
    return None


def _by_itself(asked: WantedGpus, mechanism: Mechanism) -> Cause | None:
    if asked.engine.kind != BUILTIN or mechanism == "devices":
        return None
    return Cause(None, "the built-in engine hands over device nodes and the driver's files itself")


# -- CDI --------------------------------------------------------------------------------------------


def _cdi(asked: WantedGpus) -> Handover | Cause:
    if (cause := _no_cdi(asked)) is not None:
        return cause
    first = cdi_names(asked.facts, asked.plan, asked.whole, asked.vendor)
    if isinstance(first, Cause):
        # A snap reads its own folder alone, which the toolkit's steps do not reach
        unread = asked.engine.kind == "snap" and first.finding == findings.NO_CDI_SPEC
        return snapped(asked) if unread else first
    names = list(first)
    for vendor in sorted(asked.vendors - {asked.vendor}):
        found = cdi_names(asked.facts, asked.plan, asked.whole, vendor)
        names += () if isinstance(found, Cause) else found  # their device nodes join instead
    environment = gpu_vendors.of(asked.vendor).capabilities
    return Handover("cdi", ids=tuple(names), environment=environment)


def _no_cdi(asked: WantedGpus) -> Cause | None:
    engine = asked.engine
    if engine.state != "present":
        return Cause(None, "whether the engine has CDI is not known: none answers")
    if engine.kind == "desktop":
        says = "Docker Desktop has no CDI specification of these GPUs: --gpus is its way"
        return Cause(findings.DESKTOP_CDI, says)
    podman = engine.kind == "podman"
    name, since = ("Podman", _PODMAN_CDI_SINCE) if podman else ("Docker", _CDI_SINCE)
    known = numbers(engine.server_version) is not None
    if known and not at_least(engine.server_version, since):
        says = f"{name} {engine.server_version} is older than {since}, the first that has CDI"
        return Cause(findings.ENGINE_WITHOUT_CDI, says, remedies.newer_docker(asked.facts, since))
    if not podman and not engine.cdi_folders and not engine.cdi_devices:
        if engine.kind == "snap":
            return snapped(asked)
        says = "CDI is not switched on in this engine"
        return Cause(findings.CDI_OFF, says, _cdi_from_nothing(asked))
    return None


def _cdi_from_nothing(asked: WantedGpus) -> remedies.Fixes:
    """The setting, and the specification without which it hands over nothing."""
    facts, vendor = asked.facts, asked.vendor
    known = gpu_vendors.of(vendor)
    if any(known.named_in(spec.kind) for spec in facts.engine.cdi_specs):
        return remedies.enable_cdi(facts)
    return remedies.first_cdi(facts, vendor)


# -- device requests --------------------------------------------------------------------------------


def _device_request(asked: WantedGpus) -> Handover | Cause:
    if asked.engine.kind == "podman":
        return Cause(findings.PODMAN, "Podman passes over --gpus: CDI is its way")
    request = vendor_ways.of(asked.vendor).request
    if request is None:
        known = gpu_vendors.all_of_them()
        able = " and ".join(each.label for each in known if vendor_ways.of(each.name).request)
        return Cause(None, f"--gpus hands over GPUs of {able} alone")
    return request(asked)


def no_toolkit(asked: WantedGpus, vendor: Vendor) -> Cause:
    if asked.engine.kind == "snap":
        return snapped(asked)
    fix = remedies.install_toolkit(asked.facts, vendor)
    return Cause(
        findings.NO_TOOLKIT, f"the {gpu_vendors.of(vendor).toolkit_label} is not installed", fix
    )


def snapped(asked: WantedGpus) -> Cause:
    says = "Docker is a snap, which sees neither the toolkit nor the CDI specifications of this machine"
    return Cause(findings.SNAP, says, remedies.replace_snap(asked.facts))


def _ids(asked: WantedGpus) -> tuple[str, ...]:
    """What the vendor's toolkit calls these GPUs: their indexes, where the vendor does not say."""
    ids = vendor_ways.of(asked.vendor).ids
    return (
        tuple(str(line.index) for line in asked.lines(asked.vendor)) if ids is None else ids(asked)
    )


# -- runtimes ---------------------------------------------------------------------------------------


def _runtime(asked: WantedGpus) -> Handover | Cause:
    vendor = asked.vendor
    if asked.engine.kind == "podman":
        return Cause(
            findings.PODMAN, "Podman passes over --runtime in Docker's API: CDI is its way"
        )
    known = gpu_vendors.of(vendor)
    if not known.runtimes:
        return Cause(None, f"{known.label} has no container runtime of its own")
    if vendor not in asked.engine.runtimes:
        return _no_runtime(asked, vendor)
    ids = _ids(asked)
    wanted = "all" if asked.every(vendor) else ",".join(ids)
    if not all(_NAME.fullmatch(name) for name in ids):
        return Cause(None, "a GPU cannot be handed over by its name")
    environment = {known.runtime_variable: wanted, **known.capabilities}
    return Handover("runtime", driver=vendor, environment=environment)


def _no_runtime(asked: WantedGpus, vendor: Vendor) -> Cause:
    engine, facts = asked.engine, asked.facts
    if engine.state != "present":
        return Cause(None, "which runtimes the engine has is not known: none answers")
    if engine.kind == "desktop":
        return Cause(None, "Docker Desktop takes no runtime of ours: --gpus is its way")
    if engine.kind == "snap":
        return snapped(asked)
    if vendor in engine.registered:
        return Cause(
            findings.NOT_RESTARTED,
            f"the runtime {vendor} is in daemon.json, and Docker was not restarted since",
            remedies.restart_docker(facts),
        )
    if remedies.toolkit(facts, vendor) is None:
        return no_toolkit(asked, vendor)
    return Cause(
        findings.RUNTIME_NOT_REGISTERED,
        f"the runtime {vendor} is not registered with this engine",
        (*remedies.register_runtime(facts, vendor), *remedies.restart_docker(facts)),
    )


# -- raw device nodes -------------------------------------------------------------------------------


def _devices(asked: WantedGpus) -> Handover | Cause:
    if asked.engine.kind == BUILTIN and asked.files is not None:
        return driver_files.handover(asked.files, asked)
    if asked.wsl:
        return _windows_devices(asked)
    if asked.engine.kind == BUILTIN:
        return Handover("devices", devices=_as_devices(driver_files.wanted_nodes(asked)))
    for each in map(gpu_vendors.of, sorted(asked.vendors)):
        if not each.nodes_suffice:
            return Cause(
                None,
                f"{each.label}'s GPUs need files of the driver beside their device nodes, which the "
                "other mechanisms bring",
            )
    return Handover("devices", devices=_as_devices(_raw_nodes(asked.plan.gpus)))


def _windows_devices(asked: WantedGpus) -> Handover:
    """WSL2 has one node for all GPUs, and the driver of Windows in a folder."""
    environment = {"LD_LIBRARY_PATH": f"{WSL_DRIVER}/lib"}
    for vendor in sorted(asked.vendors):
        environment |= gpu_vendors.of(vendor).wsl_environment
    return Handover(
        "devices",
        devices=_as_devices([DXG]),
        volumes=(f"{WSL_DRIVER}:{WSL_DRIVER}:ro",),
        environment=environment,
    )


def _raw_nodes(gpus: Iterable[GpuDevice]) -> tuple[str, ...]:
    nodes: list[str] = []
    for gpu in gpus:
        nodes += gpu_vendors.of(gpu.vendor).nodes.shared
        nodes += gpu.device_files
    return tuple(dict.fromkeys(nodes))


def _as_devices(nodes: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{node}:{node}" for node in nodes)
