"""The cluster's container as the engine sees it: whether it runs, and with which rights and GPUs."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from shlex import quote

from dshpc_setup.cluster.status import ClusterStatus
from dshpc_setup.diagnose.common import cluster, set_up
from dshpc_setup.diagnose.model import (
    Check,
    Known,
    Verdict,
    fault,
    fine,
    not_here,
    note,
    unknown,
    warning,
)
from dshpc_setup.diagnose.slurm_known import (
    NOT_IN_CONTAINER,
    RUNS,
    counted,
    gpus_inside,
    of_container,
    of_inside,
    reconfigure,
    restart,
)
from dshpc_setup.fixes import Fix
from dshpc_setup.observed import ContainerSeen, Inside

_LAST_LINES = 5  # of the container's log, as evidence
_OFTEN = 3  # restarts by the engine
_SMALL_SHM_MIB = 64  # Docker's own default
_SIGNALS = {
    137: "it was killed (SIGKILL)",
    139: "it crashed (SIGSEGV)",
    143: "it was told to end (SIGTERM)",
}
_UP = Fix("Start it", "dshpc up", automatic=True)


def _runs(known: Known) -> Verdict:
    found, seen = known.observed.cluster, known.observed.container
    if found is None:
        return note(
            "No cluster is set up in this folder.",
            fix=(set_up(known),),
            title="No cluster is set up",
        )
    if found.state == "running":
        return fine(f"{found.container}, health {found.health}")
    if found.problem:
        return fault(f"The container {found.container} cannot be asked.", found.problem)
    if found.state == "missing":
        return _missing(known, found)
    log = seen.log[-_LAST_LINES:] if seen else ()
    if found.state == "paused":
        frozen = f"The container {found.container} is paused: every process in it stands still."
        wake = Fix("Let it go on", f"docker unpause {quote(found.container)}")
        return replace(fault(frozen, fix=(wake,)), title="The cluster's container is paused")
    if found.state == "restarting":
        title = "The cluster's container is restarting"
        return replace(_ended(found, seen, log), title=title)
    return _ended(found, seen, log)


def _missing(known: Known, found: ClusterStatus) -> Verdict:
    seen = known.observed.container
    gone = seen is not None and seen.image_there is False
    cause = f"The container {found.container} does not exist."
    return replace(
        fault(
            cause + (" Its image is not on this engine either." if gone else ""),
            fix=(set_up(known) if gone else _UP,),
        ),
        title="The cluster's container does not exist",
    )


def _ended(found: ClusterStatus, seen: ContainerSeen | None, log: tuple[str, ...]) -> Verdict:
    code = seen.exit_code if seen else None
    how = ""
    if code is not None and found.state != "created":
        meaning = f": {_SIGNALS[code]}" if code in _SIGNALS else ""
        how = f" Its exit code was {code}{meaning}."
    look = Fix("Look at how it ended", f"docker logs --tail 50 {quote(found.container)}")
    return fault(
        f"The container {found.container} is {found.state}.{how}",
        *log,
        fix=(_UP, look) if code else (_UP,),
    )


def _out_of_memory(_: Known, seen: ContainerSeen) -> Verdict:
    if not seen.oom_killed:
        return fine()
    limit = f"its limit of {seen.memory_limit_mib} MiB" if seen.memory_limit_mib else "the machine"
    fixes = (
        Fix("Jobs keep to less memory when they ask for it", "sbatch --mem=8G script.sh"),
        Fix("Keep more memory back from jobs", "dshpc config set reserve_mib 4096"),
    )
    evidence = f"{seen.name}: OOMKilled, memory limit {seen.memory_limit_mib or 'none'}"
    if seen.status == "running":
        cause = f"The kernel killed a process in it, for {limit} had no memory left."
        return warning(cause, evidence, fix=fixes)
    cause = f"The kernel killed it, for {limit} had no memory left."
    return fault(cause, evidence, fix=(_UP, *fixes))


def _restarts(_: Known, seen: ContainerSeen) -> Verdict:
    often = f"The engine has started it again {seen.restarts} times."
    if seen.status != "restarting" and seen.restarts < _OFTEN:
        return fine(often) if seen.restarts else fine()
    fixes = (
        Fix("Look at how it ends", f"docker logs --tail 50 {quote(seen.name)}"),
        Fix("Stop it meanwhile", "dshpc down"),
    )
    words = (*([f"exit code {seen.exit_code}"] if seen.exit_code else []), *seen.log[-_LAST_LINES:])
    if seen.status == "restarting":
        return fault(f"It ends soon after each start. {often}", *words, fix=fixes)
    return warning(f"It has ended by itself again and again. {often}", *words, fix=fixes)


def _privileged(_: Known, seen: ContainerSeen) -> Verdict:
    if not seen.privileged:
        return fine()
    return warning(
        "Who is root in a privileged container is root on the machine, and every job can open every "
        "GPU. dshpc never asks for that: docker-compose.yml was edited, or somebody else made it.",
        f"{seen.name}: Privileged is true",
        fix=(
            Fix("Remove `privileged: true` from docker-compose.yml, then", "dshpc up"),
            Fix("Or take the file for this machine", "dshpc config accept docker-compose.yml"),
        ),
    )


def _published(_: Known, seen: ContainerSeen) -> Verdict:
    beyond = tuple(item for item in seen.published if not _local(item))
    if not beyond:
        return fine(*seen.published)
    return warning(
        "Other machines can reach these ports. Slurm needs none of them: everything of the cluster "
        "goes on inside its container.",
        *beyond,
        fix=(
            Fix("Remove `ports:` from docker-compose.yml, or write 127.0.0.1: before each, then",
                "dshpc up"),
        ),
    )  # fmt: skip


def _local(published: str) -> bool:
    """Whether "127.0.0.1:6817" or "[::1]:6817" is open to this machine alone."""
    address = published.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:  # "": every address
        return address == "localhost"


def _shared_memory(_: Known, seen: ContainerSeen) -> Verdict:
    if seen.shm_mib is None:
        return unknown("The engine does not say how large /dev/shm is.")
    if seen.shm_mib > _SMALL_SHM_MIB:
        return fine(f"{seen.shm_mib} MiB")
    return warning(
        "Programs that share data between processes fail with a bus error when /dev/shm is full: "
        "PyTorch's DataLoader with workers, NCCL between GPUs, MPI.",
        f"/dev/shm: {seen.shm_mib} MiB",
        fix=(
            Fix("Set its size", "dshpc config set shm_size 8g"),
            Fix("Then make the container anew", "configure-environment"),
        ),
    )


def _image_type(known: Known) -> Verdict:
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
        fix=(Fix("Build it for these GPUs and start it", "configure-environment", automatic=True),),
    )


def _handed_over(known: Known, inside: Inside) -> Verdict:
    if cluster(known).simulated or known.facts.gpus.simulated:
        return not_here("The GPUs are simulated.")
    if known.plan is None:
        return unknown("It is not known which GPUs the cluster is to use.")
    wanted, seen = len(known.plan.gres), gpus_inside(known)
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
            Fix("Write its GPU part anew and start it", "configure-environment", automatic=True),
            Fix("If it stays so, see which way into a container works", "dshpc passthrough"),
        ),
    )


def _device_files(known: Known, inside: Inside) -> Verdict:
    closed = tuple(path for path, opens in inside.device_files.items() if not opens)
    if not closed:
        return fine(*inside.device_files)
    sound = (gpu for gpu in known.facts.gpus.devices if not gpu.problems)
    on_host = {path for gpu in sound for path in gpu.device_files}
    if set(closed) <= on_host:
        fixes = (
            restart("The machine has them: hand them in anew; jobs that run are interrupted"),
            Fix("Or let the cluster do without them; jobs go on", "dshpc reconfigure"),
        )
    else:
        fixes = (
            reconfigure("Let the cluster do without them; jobs go on"),
            restart("Or, when they are back: hand them in anew; jobs that run are interrupted"),
        )
    return fault(
        "gres.conf names device files that cannot be opened in the container. Jobs that are given "
        "these GPUs fail, and slurmd does not start again: it waits for a missing file and ends.",
        *closed,
        fix=fixes,
    )


def _simulated(known: Known) -> Verdict:
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


_GPU_FAULTS = ("DSH-PT-001", "DSH-PT-050", "DSH-NV-020", "DSH-NV-013", "DSH-GP-001")

CONTAINER_CHECKS: tuple[Check, ...] = (
    Check(RUNS, "slurm", "The cluster's container runs", "The cluster's container is stopped",
          _runs, needs=("DSH-DK-001",), because=("DSH-SL-004", "DSH-SL-005")),
    Check("DSH-SL-004", "slurm", "No memory ran out in the container",
          "The cluster's container ran out of memory", of_container(_out_of_memory),
          needs=("DSH-DK-001",)),
    Check("DSH-SL-005", "slurm", "The container stays up",
          "The cluster's container restarts again and again", of_container(_restarts),
          needs=("DSH-DK-001",), because=("DSH-SL-004",)),
    Check("DSH-SL-034", "slurm", "The container is not privileged",
          "The cluster's container is privileged", of_container(_privileged),
          needs=("DSH-DK-001",)),
    Check("DSH-SL-035", "slurm", "No port of the cluster is open to other machines",
          "Ports of the cluster are open to other machines", of_container(_published),
          needs=("DSH-DK-001",)),
    Check("DSH-DK-045", "slurm", "Jobs have shared memory", "/dev/shm in the container is small",
          of_container(_shared_memory), needs=("DSH-DK-001",)),
)  # fmt: skip

GPU_CHECKS: tuple[Check, ...] = (
    Check("DSH-SL-021", "slurm", "The image was built for these GPUs",
          "The image was built without GPU support", _image_type, needs=(RUNS,)),
    Check(NOT_IN_CONTAINER, "slurm", "The container sees the machine's GPUs",
          "GPUs are visible on the host but not in the container", of_inside(_handed_over),
          needs=(RUNS,), because=(*_GPU_FAULTS, "DSH-FI-010")),
    Check("DSH-SL-036", "slurm", "The GPUs' device files can be opened",
          "A GPU's device file cannot be opened in the container", of_inside(_device_files),
          needs=(RUNS,), because=(*_GPU_FAULTS, NOT_IN_CONTAINER)),
    Check("DSH-SL-033", "slurm", "The cluster's GPUs are real", "The cluster's GPUs are simulated",
          _simulated, needs=(RUNS,)),
)  # fmt: skip
