"""The cluster's container as the engine sees it: whether it runs, and with which rights and GPUs."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from shlex import quote

from dshpc_setup.diagnose.common import set_up
from dshpc_setup.diagnose.model import (
    Check,
    CheckInput,
    Verdict,
    fault,
    fine,
    note,
    unknown,
    warning,
)
from dshpc_setup.diagnose.slurm_known import (
    RUNS,
    of_container,
    of_inside,
)
from dshpc_setup.engine import containers
from dshpc_setup.engine.compose import FILE as COMPOSE_FILE
from dshpc_setup.errors import Fix, configure
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.observed.model import ContainerSeen, Inside
from dshpc_setup.terminal.sanitize import often

_LAST_LINES = 5  # of the container's log, as evidence
_OFTEN = 3  # restarts by the engine
_SMALL_SHM_MIB = 64  # Docker's own default
_SIGNALS = {
    137: "it was killed (SIGKILL)",
    139: "it crashed (SIGSEGV)",
    143: "it was terminated (SIGTERM)",
}
_UP = Fix("Start it", "dshpc up", automatic=True, repair=("start-cluster", ""))


def _runs(known: CheckInput) -> Verdict:
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
        wake = Fix("Resume it", "dshpc up", automatic=True, repair=("start-cluster", ""))
        title = "The cluster's container is paused"
        return replace(fault(frozen, _told(found), fix=(wake,)), title=title)
    if found.state == "restarting":
        title = "The cluster's container is restarting"
        return replace(_ended(found, seen, log), title=title)
    return _ended(found, seen, log)


def _missing(known: CheckInput, found: ClusterStatus) -> Verdict:
    seen = known.observed.container
    gone = seen is not None and seen.image_there is False
    cause = f"The container {found.container} does not exist."
    return replace(
        fault(
            cause + (" Its image is not on this engine either." if gone else ""),
            _told(found),
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
    look = Fix("Look at how it ended", "dshpc logs --tail 50", step="look")
    return fault(
        f"The container {found.container} {containers.how(found.state)}.{how}",
        _told(found),
        *log,
        fix=(_UP, look) if code else (_UP,),
    )


def _told(found: ClusterStatus) -> str:
    return f"{found.container}: {found.state}"


def _out_of_memory(_: CheckInput, seen: ContainerSeen) -> Verdict:
    """Of a container that ended; what happens in one that runs has causes of its own."""
    if not seen.oom_killed or seen.status == "running":
        return fine()
    limit, evidence, fixes = _used_up(seen)
    cause = f"The kernel killed it, for {limit} had no memory left."
    return fault(cause, evidence, fix=(_UP, *fixes))


def _process_out_of_memory(_: CheckInput, seen: ContainerSeen) -> Verdict:
    if not seen.oom_killed or seen.status != "running":
        return fine()
    limit, evidence, fixes = _used_up(seen)
    cause = f"The kernel killed a process in it, for {limit} had no memory left."
    return warning(cause, evidence, fix=fixes)


def _used_up(seen: ContainerSeen) -> tuple[str, str, tuple[Fix, ...]]:
    """What had no memory left, that as evidence, and what keeps it from coming again."""
    limit = f"its limit of {seen.memory_limit_mib} MiB" if seen.memory_limit_mib else "the machine"
    fixes = (
        Fix("Jobs keep to less memory when they ask for it", "sbatch --mem=8G script.sh"),
        Fix("Keep more memory back from jobs", "dshpc config set reserve_mib 4096"),
    )
    evidence = f"{seen.name}: OOMKilled, memory limit {seen.memory_limit_mib or 'none'}"
    return limit, evidence, fixes


def _restarts(_: CheckInput, seen: ContainerSeen) -> Verdict:
    again = f"The engine has started it again {often(seen.restarts)}."
    if seen.status != "restarting" and seen.restarts < _OFTEN:
        return fine(again) if seen.restarts else fine()
    fixes = (
        Fix("Look at how it ends", "dshpc logs --tail 50", step="look"),
        Fix("Stop it meanwhile", "dshpc down"),
    )
    words = (*([f"exit code {seen.exit_code}"] if seen.exit_code else []), *seen.log[-_LAST_LINES:])
    if seen.status == "restarting":
        return fault(f"It ends soon after each start. {again}", *words, fix=fixes)
    return warning(f"It has ended by itself again and again. {again}", *words, fix=fixes)


def _privileged(known: CheckInput, seen: ContainerSeen) -> Verdict:
    """Of the container, and of what the next `dshpc up` makes of docker-compose.yml."""
    asked = _asks_for_privileges(known)
    if not seen.privileged and not asked:
        return fine()
    next_time = "" if seen.privileged else " It is not in force yet: the next dshpc up does it."
    return warning(
        "Who is root in a privileged container is root on the machine, and every job can open every "
        "GPU. dshpc never asks for that: docker-compose.yml was edited, or somebody else made it."
        + next_time,
        *([f"{seen.name}: Privileged is true"] if seen.privileged else ()),
        *([f"{COMPOSE_FILE}: privileged: true"] if asked else ()),
        fix=(
            Fix("Remove `privileged: true` from docker-compose.yml, then", "dshpc up"),
            Fix(
                "Or take the file for this machine",
                "dshpc config accept docker-compose.yml",
                step="alternative",
            ),
        ),
    )


def _asks_for_privileges(known: CheckInput) -> bool:
    file = known.observed.file(COMPOSE_FILE)
    text = file.text if file is not None else None
    if text is None or "privileged" not in text:
        return False
    from dshpc_setup.render.gpu_part import parsed  # reads YAML, which the container cannot

    document = parsed(text.encode())
    services = document.get("services") if isinstance(document, dict) else None
    each = services.values() if isinstance(services, dict) else ()
    said = (item.get("privileged") for item in each if isinstance(item, dict))
    return any(isinstance(value, str) and value.lower() in ("true", "yes", "on") for value in said)


def _published(_: CheckInput, seen: ContainerSeen) -> Verdict:
    beyond = tuple(item for item in seen.published if not _local(item))
    if not beyond:
        return fine(*seen.published)
    return warning(
        "Other machines can reach these ports. Slurm needs none of them: the whole "
        "cluster runs inside its container.",
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


def _shared_memory(_: CheckInput, seen: ContainerSeen) -> Verdict:
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
            configure("Then recreate the container", step="after"),
        ),
    )


def _processes(_: CheckInput, inside: Inside) -> Verdict:
    if not inside.pids_refused:
        return fine(f"at most {inside.pids_limit}" if inside.pids_limit else "no limit")
    limit = inside.pids_limit or 0
    return warning(
        "The container had as many processes and threads as it may have, and the kernel refused it more: "
        'jobs fail with "Resource temporarily unavailable" or "can\'t start new thread".',
        f"limit: {limit}, refused: {often(inside.pids_refused)} since the container was made",
        fix=(
            Fix(
                "See who has many",
                "dshpc exec ps -eLo user= | sort | uniq -c | sort -n",
                step="look",
            ),
            Fix("Where they are wanted, allow more", f"dshpc config set pids_limit {limit * 2}"),
            configure("Then recreate the container", step="after"),
        ),
    )


def _sharing(_: CheckInput, seen: ContainerSeen) -> Verdict:
    if seen.sharing is None:
        return unknown("The engine did not tell of other clusters.")
    if not seen.sharing:
        return fine()
    one = seen.sharing[0]
    at = f" in {quote(one.folder)}"
    return warning(
        "Neither cluster knows of the other's jobs: a GPU is given to a job of each, which then share its "
        "memory and its time, or one of them fails (CUDA out of memory).",
        *(f"{each.prefix} ({each.folder}): {', '.join(each.gpus)}" for each in seen.sharing),
        fix=(
            Fix("Let each have GPUs of its own, in both folders", "dshpc config set devices 0,1"),
            configure("Then recreate the container", step="after"),
            Fix(f"Or stop the other one,{at}", f"dshpc down --dir {quote(one.folder)}", step="alternative"),
            Fix("Or remove one that was set up in this folder before",
                f"dshpc destroy --prefix {quote(one.prefix)}", step="alternative"),
        ),
    )  # fmt: skip


_ENGINE = ("DSH-DK-001", "DSH-DK-086")  # it answers, and there is a command to ask it by

CONTAINER_CHECKS: tuple[Check, ...] = (
    Check(RUNS, "slurm", "The cluster's container runs", "The cluster's container is stopped",
          _runs, needs=_ENGINE, because=("DSH-SL-004", "DSH-SL-005")),
    Check("DSH-SL-004", "slurm", "The container was not killed for memory (OOM)",
          "The cluster's container ran out of memory", of_container(_out_of_memory),
          needs=_ENGINE),
    Check("DSH-SL-005", "slurm", "The container stays up",
          "The cluster's container restarts again and again", of_container(_restarts),
          needs=_ENGINE, because=("DSH-SL-004",)),
    Check("DSH-SL-037", "slurm", "No process in the container ran out of memory",
          "A process in the cluster's container ran out of memory",
          of_container(_process_out_of_memory), needs=(RUNS,),
          because=("DSH-SL-024", "DSH-SL-025")),
    Check("DSH-SL-034", "slurm", "The container is not privileged",
          "The cluster's container is privileged", of_container(_privileged),
          needs=_ENGINE),
    Check("DSH-SL-035", "slurm", "No port of the cluster is open to other machines",
          "Ports of the cluster are open to other machines", of_container(_published),
          needs=_ENGINE),
    Check("DSH-SL-046", "slurm", "The container did not run out of processes",
          "The cluster's container ran out of processes", of_inside(_processes),
          needs=(RUNS,)),
    Check("DSH-SL-047", "slurm", "No other cluster has the same GPUs",
          "Another cluster has the same GPUs", of_container(_sharing), needs=(RUNS,)),
    Check("DSH-DK-045", "slurm", "Jobs have shared memory", "/dev/shm in the container is small",
          of_container(_shared_memory), needs=_ENGINE),
)  # fmt: skip
