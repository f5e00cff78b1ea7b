"""The machine's GPUs in the cluster's container: built for, handed over, opened, still there."""

from __future__ import annotations

from dshpc_setup.diagnose.common import cluster, in_plan
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
from dshpc_setup.diagnose.slurm_known import (
    LOST_SINCE,
    NOT_IN_CONTAINER,
    RUNS,
    counted,
    gpus_inside,
    of_inside,
    reconfigure,
    restart,
)
from dshpc_setup.errors import Fix, configure
from dshpc_setup.observed.model import Inside
from dshpc_setup.slurm import blocked_jobs


def _image_type(known: CheckInput) -> Verdict:
    found, plan = cluster(known), known.plan
    if found.simulated or known.facts.gpus.simulated:
        return not_here("The GPUs are simulated.")
    if plan is None or plan.gpu_type == "none":
        return not_here("The cluster is to use no GPU.")
    built = found.image_gpu_type
    if built is None:
        return unknown("The image does not say which GPUs it was built for.")
    if built in ("all", plan.gpu_type):
        return fine(f"{found.image}: {built}")
    what, has = (
        ("without GPU support", "GPUs")
        if built == "none"
        else (f"for {built} GPUs alone", "GPUs of another kind")
    )
    return fault(
        f"The image was built {what}, and this machine has {has}: {plan.gpu_type}.",
        f"{found.image or 'the image'}: GPU_TYPE={built}",
        f"this machine: GPU_TYPE={plan.gpu_type}",
        fix=(configure("Build it for these GPUs and start it"),),
    )


def _handed_over(known: CheckInput, inside: Inside) -> Verdict:
    seen = gpus_inside(known)
    if seen and bool(cluster(known).simulated) != known.facts.gpus.simulated:
        return not_here("The GPUs are simulated on one side alone.")
    if known.plan is None:
        return unknown("It is not known which GPUs the cluster is to use.")
    wanted = len(known.plan.gres)
    if not wanted:
        return not_here("The cluster is to use no GPU.")
    if seen is None:
        return unknown(f"The container could not read its GPUs: {inside.gpus_state}.")
    evidence = (f"host: {known.plan.gres_text}", f"container: {', '.join(inside.gpus) or 'none'}")
    if seen >= wanted:
        return fine(*evidence)
    container = known.observed.container
    without = container is not None and not (container.gpus or container.devices)
    why = " It was started without any: docker-compose.yml has no GPU part." if without else ""
    tell = fault if not seen else warning
    return tell(
        f"The machine has {counted(wanted, 'GPU')} for the cluster, the container sees "
        f"{counted(seen, 'GPU')}.{why}",
        *evidence,
        fix=(
            configure("Write its GPU part again and start it"),
            Fix("If it stays so, see which way into a container works", "dshpc passthrough"),
        ),
    )


def _device_files(known: CheckInput, inside: Inside) -> Verdict:
    closed = tuple(path for path, opens in inside.device_files.items() if not opens)
    if not closed:
        return fine(*inside.device_files)
    gpus = known.facts.gpus.devices
    sound = (gpu for gpu in gpus if not gpu.problems or in_plan(known, gpu))
    on_host = {path for gpu in sound for path in gpu.device_files}
    if set(closed) <= on_host:
        fixes = (
            restart("The machine has them: hand them in again; jobs that run are interrupted"),
            Fix(
                "Or let the cluster do without them; running jobs are not affected",
                "dshpc reconfigure",
                step="alternative",
            ),
        )
    else:
        fixes = (
            reconfigure("Let the cluster do without them; running jobs are not affected"),
            restart(
                "Or, when they are back: hand them in again; jobs that run are interrupted",
                "alternative",
            ),
        )
    return fault(
        "gres.conf names device files that cannot be opened in the container. Jobs that are given "
        "these GPUs fail, and slurmd does not start again: it waits for a missing file and ends.",
        *closed,
        fix=fixes,
    )


def _simulated(known: CheckInput) -> Verdict:
    found, gpus = cluster(known), known.facts.gpus
    if not found.simulated:
        return fine()
    real = tuple(gpu.name or gpu.vendor for gpu in gpus.devices) if not gpus.simulated else ()
    if not real:
        return note("The cluster's GPUs are simulated: no job computes on them.")
    return warning(
        "The cluster's GPUs are made up (--simulate), and this machine has real ones: no job "
        "computes on them.",
        *real,
        fix=(Fix("Use the real ones", "configure-environment --simulate none"),),
    )


def _lost(known: CheckInput) -> Verdict:
    """GPUs that the last start that got ready had, and this one has not."""
    found = cluster(known)
    changes = [item.gpus for item in found.drift if item.gpus is not None]
    gone = [gpus for gpus in changes if gpus.gone]
    if not gone:
        return fine(*(item.what for item in found.drift if item.gpus is not None))
    fewer = sum(gpus.now - gpus.before for gpus in changes) < 0
    words = tuple(
        f"{', '.join(gpus.gone)} is gone: {gpus.before} of type {gpus.type} at the last start, "
        f"{gpus.now} now"
        for gpus in gone
    )
    jobs = tuple(job for job in found.pending or () if job.lacks_gpus)
    wait = " Jobs that ask for it wait until it is back." if fewer else ""
    tell = warning if fewer else note
    return tell(
        f"The cluster started with other GPUs than the last time.{wait}",
        *words,
        *blocked_jobs.lines(jobs),
        fix=(
            Fix("See whether this machine still has it", "dshpc detect --explain", step="look"),
            restart("When it is back: restart the cluster, and its jobs run; those that run now "
                    "are interrupted"),
            Fix("If it is gone for good: see which jobs wait for it, and give them up (dshpc scancel)",
                "dshpc squeue -t PD"),
        ) if fewer else (),
    )  # fmt: skip


_GPU_FAULTS = ("DSH-PT-001", "DSH-PT-050", "DSH-NV-020", "DSH-NV-013", "DSH-GP-001")

GPU_CHECKS: tuple[Check, ...] = (
    Check("DSH-SL-021", "slurm", "The image was built for these GPUs",
          "The image was built without GPU support", _image_type, needs=(RUNS,)),
    Check(NOT_IN_CONTAINER, "slurm", "The container sees the machine's GPUs",
          "GPUs are visible on the host but not in the container", of_inside(_handed_over),
          needs=(RUNS,), because=(*_GPU_FAULTS, "DSH-FI-010")),
    Check("DSH-SL-036", "slurm", "The GPUs' device files can be opened",
          "A GPU's device file cannot be opened in the container", of_inside(_device_files),
          needs=(RUNS,), because=(*_GPU_FAULTS, NOT_IN_CONTAINER)),
    Check(LOST_SINCE, "slurm", "The cluster has the GPUs of its last start",
          "A GPU was lost since the cluster's last start", _lost, needs=(RUNS,),
          because=(*_GPU_FAULTS, NOT_IN_CONTAINER)),
    Check("DSH-SL-033", "slurm", "The cluster's GPUs are real", "The cluster's GPUs are simulated",
          _simulated, needs=(RUNS,)),
)  # fmt: skip
