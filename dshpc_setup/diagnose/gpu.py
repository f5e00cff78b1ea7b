"""The GPUs, of any vendor: found, readable, fit for jobs."""

from __future__ import annotations

from collections import Counter

from dshpc_setup import gpu_vendors, problems, remedies
from dshpc_setup.diagnose import driver
from dshpc_setup.diagnose.common import answered, by_choice, in_plan, named
from dshpc_setup.diagnose.model import (
    Check,
    CheckInput,
    Verdict,
    fault,
    fine,
    not_here,
    note,
    unknown,
    warning,
)
from dshpc_setup.errors import Fix
from dshpc_setup.facts import Disagreement, UnusedGpu, Vendor
from dshpc_setup.problems import NO_NODE
from dshpc_setup.remedies import of_vendors

_DRIVERS = tuple(
    f"DSH-{number}"
    for number in "NV-001 NV-002 NV-004 NV-005 NV-084 NV-104 NV-103 NV-105 NV-102 NV-006 NV-031 NV-015 "
    "NV-013 NV-022 NV-030 NV-062 "
    "NV-020 NV-021 NV-003 NV-080 NV-083 AM-101 AM-084 AM-044 AM-039 AM-038 GP-020".split()
)
_CARDS = (
    *(f"DSH-NV-{number}" for number in "106 107 020 021 019 018 028 003".split()),
    "DSH-GP-004",
    NO_NODE,
)
_LEAST_FREE = 0.1  # of a GPU's memory
_MADE_UP = Fix(
    "To try the cluster with GPUs that are made up", "configure-environment --simulate h100:2"
)


def _gpus(known: CheckInput) -> Verdict:
    gpus = known.facts.gpus
    if gpus.state == "present":
        label = "simulated " if gpus.simulated else ""
        return fine(
            *(f"{label}{device.index}: {device.name or device.vendor}" for device in gpus.devices)
        )
    probes = {probe for vendor in gpu_vendors.all_of_them() for probe in vendor.evidence}
    evidence = tuple(answered(item) for item in known.facts.evidence if item.probe in probes)
    if gpus.state in ("absent", "unsupported") and _choice_is_unread(known):
        return unknown("Which GPUs the cluster is to have is not known: a setting cannot be used.")
    if gpus.state in ("absent", "unsupported"):
        cause = _sentence(gpus.detail or "there is none")
        return note(cause, *evidence, title="No GPU detected for jobs", fix=(_MADE_UP,))
    cause = gpus.detail or f"the GPUs could not be read: {gpus.state}"
    fix = _let_in(known) if gpus.state == "denied" else (_ask_driver(known),)
    return fault(_sentence(cause), *evidence, fix=fix)


def _choice_is_unread(known: CheckInput) -> bool:
    """Whether a setting that cannot be used may be the one that chooses GPUs, or makes some up."""
    wrong = known.observed.settings_wrong
    return any(it.kind in ("file", "name") or it.setting in ("simulate", "gpu") for it in wrong)


def _sentence(text: str) -> str:
    """With a capital letter and a full stop; names such as rocm-smi stay as they are."""
    first = text if text.startswith(("amd-smi", "rocm-smi", "/")) else text[:1].upper() + text[1:]
    return first if first.endswith((".", "?")) else f"{first}."


def _let_in(known: CheckInput) -> tuple[Fix, ...]:
    """Nothing of a GPU may be read, or none may be used, by this process: no driver fixes that."""
    if "control-group" not in known.facts.gpus.causes:
        return (Fix("See what this user may not read", "dshpc detect --explain", step="look"),)
    return (
        Fix("See in which control group this shell runs", "cat /proc/self/cgroup", step="look"),
        Fix("Inside a job or a container only the GPUs that were given to it can be used: ask for some, "
            "or run dshpc outside of it, on the machine itself"),
    )  # fmt: skip


def _ask_driver(known: CheckInput) -> Fix:
    """The tool of the vendor whose probe failed; that of the first one where it is not known."""
    failed = ("error", "denied", "timeout")
    told = {item.probe for item in known.facts.evidence if item.state in failed}
    unused = {item.vendor for item in known.facts.gpus.unused}
    first, *others = gpu_vendors.all_of_them()
    failing = (each for each in others if told.intersection(each.evidence) or unused == {each.name})
    vendor = next(failing, first)
    return Fix("See what the driver itself says", vendor.list_command, step="look")


def _broken_gpus(known: CheckInput) -> Verdict:
    broken = tuple(
        f"{named(device)}: {problems.in_words(device.problems) or 'it has no device file'}"
        for device in known.facts.gpus.devices
        if (device.problems or not device.device_files) and not in_plan(known, device)
    )
    if not broken:
        return fine()
    cause = "No job gets these GPUs: the plan leaves them out until they are well."
    return warning(
        cause, *broken, fix=(Fix("Once they are, take them in", "configure-environment"),)
    )


def _nodes(known: CheckInput) -> Verdict:
    """Whether the nodes are there of all that a library, a tool or the kernel lists."""
    gone = [item for item in known.facts.gpus.disagreements if item.finding == NO_NODE]
    gpus = known.facts.gpus.devices
    if not gone:
        return (
            fine(*(path for gpu in gpus for path in gpu.device_files))
            if gpus
            else not_here("There is no GPU.")
        )
    closed = [gpu for gpu in gpus if NO_NODE in gpu.problems]
    vendors_of = dict.fromkeys(gpu.vendor for gpu in (closed or gpus))
    steps = [
        step for vendor in vendors_of for step in _node_steps(known, vendor, whole=bool(closed))
    ]
    words = [line for item in gone for line in _both_sides(item)]
    if not closed:
        cause = (
            "Device nodes of MIG instances are missing: NVIDIA's tools make them as an instance is first "
            "used, or the command below does."
        )
        return warning(cause, *words, fix=tuple(steps))
    cause = "A GPU is listed and its device node is not there: no program can open it, and no job gets it."
    none = not any(gpu.device_files and not gpu.problems for gpu in gpus)
    return (fault if none else warning)(cause, *map(named, closed), *words, fix=tuple(steps))


def _node_steps(known: CheckInput, vendor: Vendor, *, whole: bool) -> tuple[Fix, ...]:
    """What makes the nodes of the vendor's GPUs, or of MIG instances where the cards have theirs."""
    if known.facts.platform.in_container:
        return (Fix("Restart the container, with the GPUs handed over"),)
    make = of_vendors.of(vendor).make_nodes
    if make is not None:
        return make(known.facts, whole)
    look = "See whether this /dev is the machine's own, and which nodes it has"
    return (
        Fix(look, f"findmnt /dev; ls -l {gpu_vendors.of(vendor).nodes.looked_at}", step="look"),
        *remedies.reboot(known.facts),
    )


def _unused(known: CheckInput) -> Verdict:
    """Hardware that no job gets by somebody's choice or by its kind; what is broken is told elsewhere."""
    chosen = [item for item in known.facts.gpus.unused if by_choice(item)]
    if not chosen:
        return fine()
    return note("Graphics hardware that no job gets.", *map(_unused_in_words, chosen))


def _unused_in_words(item: UnusedGpu) -> str:
    vendor = gpu_vendors.label(item.vendor)
    name = (
        item.name if item.name and item.name.startswith(vendor) else f"{vendor} {item.name or ''}"
    )
    return f"{', '.join(filter(None, (name.strip(), item.pci_bus_id)))}: {item.reason}"


def _layers(known: CheckInput) -> Verdict:
    """What two sources say differently; those that have a finding of their own are told by it."""
    own = driver.told_by_vendors(known)
    open_ = [
        item
        for item in known.facts.gpus.disagreements
        if item.finding is None and item.about not in own
    ]
    if not open_:
        return fine()
    cause = _sentence(_meaning(open_[0]))
    return warning(
        cause,
        *_both_sides(open_[0]),
        *(line for item in open_[1:] for line in (*_both_sides(item), _meaning(item))),
        fix=(Fix("See what each source says", "dshpc detect --explain", step="look"),),
    )


def _both_sides(item: Disagreement) -> tuple[str, ...]:
    return tuple(f"{item.about}: {layer.source}: {layer.says}" for layer in item.layers)


def _meaning(item: Disagreement) -> str:
    return f"{item.about}: {item.meaning}"


def _vendors(known: CheckInput) -> Verdict:
    counts = Counter(gpu_vendors.label(gpu.vendor) for gpu in known.facts.gpus.devices)
    read = ", ".join(f"{count} of {name}" for name, count in counts.items())
    if len(counts) < 2:
        return fine(read) if counts else not_here("there is no GPU")
    here = {gpu.vendor for gpu in known.facts.gpus.devices}
    first = next(name for name in gpu_vendors.names() if name in here)
    return note(
        "GPUs of several makers are in one machine. The image holds what each needs "
        "(GPU_TYPE=all), and a job that asks for any GPU may get either: name the type.",
        read,
        fix=(Fix("Use one maker's alone", f"dshpc config set gpu {first}"),),
    )


def _types(known: CheckInput) -> Verdict:
    """Several types of one maker: --gres=gpu:1 then means any of them."""
    usable = [gpu for gpu in known.facts.gpus.devices if not gpu.problems or in_plan(known, gpu)]
    types = Counter(gpu.slurm_type for gpu in usable)
    read = ", ".join(f"{count} x {name}" for name, count in types.items())
    if len(types) < 2 or len({gpu.vendor for gpu in usable}) > 1:
        return fine(read) if types else not_here("there is no GPU")
    line = known.plan.gres[0] if known.plan is not None and known.plan.gres else None
    first = line.slurm_type if line is not None else next(iter(types))
    return note(
        f"The GPUs are of {len(types)} types. A job that asks for --gres=gpu:1 gets any of them; "
        f"--gres=gpu:{first}:1 names one.",
        read,
    )


def _simulated(known: CheckInput) -> Verdict:
    if not known.facts.gpus.simulated:
        return fine()
    return note(
        "The GPUs are made up by the setting simulate: no job computes on them, and a real GPU of "
        "this machine is not used.",
        *(f"simulated {named(gpu)}" for gpu in known.facts.gpus.devices),
        fix=(Fix("Use what is really there", "configure-environment --simulate none"),),
    )


def _memory(known: CheckInput) -> Verdict:
    """What the next program finds taken; a job that fills its own GPU is as it should be."""
    if known.facts.gpus.simulated:
        return not_here("The GPUs are simulated.")
    seen = known.observed.gpu_memory
    if seen.state in ("absent", "unsupported"):
        return not_here("There is no GPU that tells how much of its memory is in use.")
    if seen.state != "present":
        return unknown("The GPUs were not asked how much of their memory is in use.")
    read = [f"{item.name}: {item.used_mib} of {item.total_mib} MiB in use" for item in seen.used]
    full = [
        line
        for item, line in zip(seen.used, read, strict=True)
        if item.total_mib - item.used_mib < item.total_mib * _LEAST_FREE
    ]
    if not full:
        return fine(*read)
    steps = _who_holds_it(known)
    held = _held_by_jobs(known)
    if held is not None and held < len(full):
        return warning(
            "Hardly any of its memory is free, and no job of this cluster holds it: a program outside of "
            'Slurm, or one that is left over. The next job on it ends with "CUDA out of memory".',
            *full,
            fix=steps,
        )
    cause = (
        'Hardly any of its memory is free: one more program on it ends with "CUDA out of memory".'
    )
    return note(cause, *full, fix=steps, title="A GPU's memory is nearly full")


def _held_by_jobs(known: CheckInput) -> int | None:
    """How many GPUs, or parts of them, Slurm has given out; None where that is not known."""
    cluster = known.observed.cluster
    if cluster is None or cluster.problem or cluster.simulated or not cluster.nodes:
        return None
    return sum(sum(node.gres_in_use.values()) for node in cluster.nodes)


def _who_holds_it(known: CheckInput) -> tuple[Fix, ...]:
    vendors = dict.fromkeys(gpu.vendor for gpu in known.facts.gpus.devices)
    lists = (Fix("See the programs that hold it, also those outside of Slurm", command, step="look")
             for vendor in vendors if (command := gpu_vendors.of(vendor).holders_command))  # fmt: skip
    return (
        Fix("See how much each GPU has left, and which job holds it", "dshpc gpus", step="look"),
        *lists,
        Fix("End those that nobody needs; a job that fills it by itself needs smaller batches, or a GPU "
            "with more memory"),
    )  # fmt: skip


CHECKS: tuple[Check, ...] = (
    Check("DSH-GP-001", "gpu", "GPUs are found and readable", "The GPUs cannot be read", _gpus,
          because=_DRIVERS),
    Check("DSH-GP-002", "gpu", "Every GPU can be scheduled", "GPUs are left out", _broken_gpus,
          needs=("DSH-GP-001",), because=_CARDS),
    Check(NO_NODE, "gpu", "Every GPU has its device node", "A GPU's device node is missing", _nodes,
          because=("DSH-AM-039", "DSH-GP-004")),
    Check("DSH-GP-003", "gpu", "All graphics hardware is in use", "Graphics hardware is not used",
          _unused),
    Check("DSH-GP-004", "gpu", "All sources say the same of the GPUs",
          "Sources contradict each other about the GPUs", _layers,
          because=tuple(f"DSH-NV-{number}" for number in "001 020 083 022 080 003".split())),
    Check("DSH-GP-005", "gpu", "The GPUs are of one maker", "GPUs of several makers", _vendors),
    Check("DSH-GP-006", "gpu", "The GPUs are of one type", "GPUs of several types", _types),
    Check("DSH-GP-007", "gpu", "The GPUs are real", "The GPUs are simulated", _simulated),
    Check("DSH-GP-008", "gpu", "The GPUs have memory left",
          "A GPU's memory is full (CUDA out of memory)", _memory),
)  # fmt: skip
