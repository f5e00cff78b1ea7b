"""The facts of `dshpc detect` as text for a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Collection, Iterable

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import (
    SECTIONS,
    CdiSpec,
    Cpu,
    Engine,
    GpuDevice,
    Gpus,
    HostFacts,
    Memory,
    Platform,
)
from dshpc_setup.plan.devices import asked_as
from dshpc_setup.probes.engine_join import late_hooks, unknown_runtimes
from dshpc_setup.probes.trace import counted
from dshpc_setup.problems import in_words
from dshpc_setup.settings import Settings
from dshpc_setup.settings.lent import Toolkit
from dshpc_setup.setup.describe import describe_engine, gib, system_name
from dshpc_setup.setup.engine_choice import Choice
from dshpc_setup.terminal.command_names import as_called

_WIDTH = 80
_INDENT = 8
_MACHINES = {
    "kvm": "KVM",
    "qemu": "QEMU",
    "vmware": "VMware",
    "hyperv": "Hyper-V",
    "xen": "Xen",
    "virtualbox": "VirtualBox",
    "amazon": "Amazon EC2",
    "google": "Google Compute Engine",
    "apple": "Apple Virtualization",
    "parallels": "Parallels",
    "firecracker": "Firecracker",
    "bhyve": "bhyve",
    "uml": "User Mode Linux",
}


def lines(
    facts: HostFacts,
    sections: Collection[str] = SECTIONS,
    settings: Settings = Settings(),
    *,
    engine: Choice | None = None,
    kits: Collection[Toolkit] = (),
) -> list[str]:
    """The summary: the sections that were asked for, then what could not be asked.

    `settings`: what jobs call the GPUs, and which of them they get. `engine`: what would start a cluster
    here, where that is known. `kits`: the CUDA and ROCm of this machine.
    """
    found: list[str] = []
    for name, title, told in (
        ("platform", "System", _platform(facts.platform)),
        ("cpu", "CPUs", _cpu(facts.cpu)),
        ("memory", "Memory", _memory(facts.memory)),
        ("docker", "Docker", _docker(facts.engine)),
        ("docker", "Engine", _choice(engine)),
        ("gpus", "GPUs", _gpus(facts.gpus, settings)),
        ("gpus", "Toolkit", map(_toolkit, kits)),
    ):
        if name in sections:
            start = f"{title:<{_INDENT}}"
            for text in told:
                found += _wrapped(start, text)
                start = " " * _INDENT
    return found + _not_asked(facts, sections)


def _platform(it: Platform) -> Iterable[str]:
    system = system_name(it)
    known = [f"kernel {it.kernel}" if it.kernel else "", it.arch or ""]
    kind = "" if it.os_id == it.kind or not system else f" ({it.kind})"
    yield ", ".join([f"{system or it.kind}{kind}", *filter(None, known)])
    if it.state != "present":
        yield f"not all of it could be read ({it.state})"
    around = []
    if it.in_container:
        kind = f" ({it.container})" if it.container and it.container != "other" else ""
        around.append(f"in a container{kind}")
    if it.virtual_machine and it.virtual_machine != "none":
        name = _MACHINES.get(it.virtual_machine, it.virtual_machine)
        around.append("in a virtual machine" + (f" ({name})" if name != "unknown" else ""))
    if around:
        yield ", ".join(around)


def _cpu(it: Cpu) -> Iterable[str]:
    if it.usable is None and it.logical is None:
        yield f"unknown ({it.state})"
        return
    limited = f", limited by {it.limited_by}" if it.limited_by else ""
    shape = [
        counted(number, what)
        for number, what in (
            (it.sockets, "socket"),
            (it.cores_per_socket, "core"),
            (it.threads_per_core, "thread"),
        )
        if number
    ]
    usable = "unknown" if it.usable is None else it.usable
    yield f"{usable} of {it.logical or 'unknown'} usable{limited}"
    if len(shape) == 3:
        yield " x ".join(shape)


def _memory(it: Memory) -> Iterable[str]:
    limited = f", limited by {it.limited_by}" if it.limited_by else ""
    if it.total_mib is None and it.limit_mib is None:
        yield f"unknown ({it.state})"
    else:
        yield f"{gib(it.total_mib)}, {gib(it.usable_mib)} for jobs{limited}"


def _docker(it: Engine) -> Iterable[str]:
    yield describe_engine(it).removeprefix("Docker: ")
    if it.state not in ("present", "unsupported") and it.detail:
        yield f"{it.host}: {it.detail}" if it.host else it.detail
    others = [each for each in it.composes if it.compose and each.argv != it.compose.argv]
    for other in others:
        yield f"beside it compose {other.version.lstrip('v')} ({' '.join(other.argv)})"
    if it.state == "present" and it.kind in ("desktop", "snap", "remote"):
        yield {
            "desktop": f"its containers run in {it.application}'s virtual machine",
            "snap": "installed as a snap",
            "remote": f"{_elsewhere(it.host)}: {it.host or it.name or 'unknown'}",
        }[it.kind]
    yield from _handing_over(it)


def _choice(it: Choice | None) -> Iterable[str]:
    if it is not None:
        yield f"{it.kind} would start a cluster here: {it.words}"


def _toolkit(it: Toolkit) -> str:
    where = it.place if it.place == it.source else f"{it.place} ({it.source})"
    return f"{it.kind.upper().replace('ROCM', 'ROCm')} in {where}"


def _handing_over(it: Engine) -> Iterable[str]:
    """What hands GPUs to containers, and what of it is not in force or not right."""
    here = [each for each in it.toolkits if each.state == "present"]
    parts = [
        f"{gpu_vendors.of(each.vendor).toolkit_label}{f' {each.version}' if each.version else ''}"
        for each in here
    ]
    kinds: Counter[str] = Counter()
    for spec in it.cdi_specs:
        if spec.kind:
            kinds[spec.kind] += len(spec.devices)
    parts += [f"CDI {kind} ({counted(names, 'name')})" for kind, names in kinds.items()]
    if parts:
        yield ", ".join(parts)
    elif it.kind in ("engine", "snap"):
        for each in (gpu_vendors.of(each.vendor) for each in it.toolkits):
            if not each.nodes_suffice:
                told = f"the {each.toolkit_label} is not installed"
                yield f"{told}: containers get no {each.label} GPU"
    if hooks := late_hooks(it):
        yield f"{hooks[0]} was installed or changed after Docker was started: restart Docker"
    if it.newer and (unknown := unknown_runtimes(it)):
        yield f"Docker does not know the runtime {', '.join(unknown)} yet: restart Docker"
    for spec in it.cdi_specs:
        if wrong := _wrong(spec):
            yield f"{spec.path}: {wrong}"


def _wrong(it: CdiSpec) -> str | None:
    if it.state == "denied":
        return "this user may not read it, so what it says is not known"
    if it.state != "present":
        return f"it is no CDI specification that can be read: {it.detail or it.state}"
    if it.missing:
        more = f" and {len(it.missing) - 1} more" if len(it.missing) > 1 else ""
        return f"it names {it.missing[0]}{more}, not on this machine: regenerate it"
    return None


def _elsewhere(host: str | None) -> str:
    """A socket of this machine may lead into a virtual one (Colima, OrbStack) or away by ssh."""
    local = (host or "").startswith("unix://")
    return "in a virtual machine or on another one" if local else "on another machine"


def _gpus(it: Gpus, settings: Settings) -> Iterable[str]:
    simulated = " (SIMULATED)" if it.simulated else ""
    whose = [each.vendor for each in it.devices if each.driver_version == it.driver_version]
    maker = f"{gpu_vendors.label(whose[0])} " if it.vendor == "mixed" and whose else ""
    driver = f", {maker}driver {it.driver_version}" if it.driver_version and it.devices else ""
    cuda = f", CUDA {it.cuda_version}" if it.cuda_version and it.devices else ""
    none = {"absent": "none", "unsupported": "none can be used"}
    count = len(it.devices) or none.get(it.state, f"not known ({it.state})")
    yield f"{count}{simulated}{driver}{cuda}"
    if it.detail:
        yield it.detail
    for device in it.devices:
        yield from _device(device, settings)
    for unused in it.unused:
        name = unused.name or f"{gpu_vendors.label(unused.vendor)} graphics"
        where = f" at {unused.pci_bus_id}" if unused.pci_bus_id else ""
        yield f"not used: {name}{where}: {unused.reason}"
    for each in it.disagreements:
        said = "; ".join(f"{layer.source}: {layer.says}" for layer in each.layers)
        finding = f" ({each.finding})" if each.finding else ""
        meaning = each.meaning[:1].upper() + each.meaning[1:]
        yield f"the layers disagree about {each.about}: {said}. {meaning}{finding}"


def _device(it: GpuDevice, settings: Settings) -> Iterable[str]:
    shared = "shared with the CPUs" if it.unified_memory else ""
    size = gib(it.memory_mib) if it.memory_mib is not None else "memory"
    memory = f"{size} {shared or ('unknown' if it.memory_mib is None else '')}".rstrip()
    name = it.name or f"{gpu_vendors.label(it.vendor)} GPU"
    types = dict.fromkeys(asked_as(it, settings))
    use = ", ".join(f"--gres=gpu:{each}:1" for each in types) or "not for jobs"
    yield f"{it.index}: {name}, {memory}, {use}"
    parts = [it.pci_bus_id or "PCI address unknown", ", ".join(it.device_files) or "no device file"]
    if it.partition_of:
        parts.append(f"a partition of {it.partition_of}")
    if it.links:
        counts: Counter[str] = Counter()
        for link in it.links:
            counts[link.kind] += link.count
        kinds = {"nvlink": "NVLink", "xgmi": "xGMI"}
        parts += [f"{kinds[kind]} x {count}" for kind, count in counts.items()]
    yield f"   {'  '.join(parts)}"
    if it.mig_mode == "enabled":
        profiles = Counter(item.profile for item in it.mig)
        cut = ", ".join(f"{count} x {profile}" for profile, count in profiles.items())
        yield f"   MIG on: {cut or 'no instance'}"
    if it.problems:
        yield f"   problem: {in_words(it.problems)}"


def _not_asked(facts: HostFacts, sections: Collection[str]) -> list[str]:
    told = facts.unanswered([each for each in SECTIONS if each in sections])
    if not told:
        return []
    found = ["", "Not everything could be asked:"]
    for item in told:
        found += _wrapped("  - ", str(item))
    hints = [
        as_called("Where each answer came from: dshpc detect --explain"),
        as_called("How to fix it: dshpc doctor"),
    ]
    if any(item.state == "timeout" for item in facts.evidence):
        hints.insert(0, as_called("To wait longer: dshpc detect --deadline 30"))
    return found + [f"  {hint}" for hint in hints]


def _wrapped(start: str, text: str) -> list[str]:
    text = "".join(each if each.isprintable() else " " for each in text)
    inner = len(text) - len(text.lstrip())  # what stands below a device keeps its place
    return textwrap.wrap(
        text.lstrip(),
        _WIDTH,
        initial_indent=start + " " * inner,
        subsequent_indent=" " * (len(start) + inner),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [start.rstrip()]
