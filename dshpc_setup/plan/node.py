"""CPUs, memory and disk of the node, and what a job gets that does not say what it wants."""

from __future__ import annotations

from dshpc_setup.errors import DshpcError, Fix, usage_error
from dshpc_setup.facts import HostFacts, State

Shape = tuple[int, int, int]  # sockets, cores per socket, threads per core

_DATABASE_MIB = 384  # MariaDB with its buffers, and slurmdbd
_KEPT = 8  # of CPUs and memory one part in so many stays for jobs without a GPU


def cpus(facts: HostFacts) -> int:
    """CPUs that jobs may have: what every limit allows. Raises DshpcError where none is known."""
    limits = (facts.cpu.usable, facts.cpu.logical, facts.engine.cpus)
    known = [limit for limit in limits if limit]
    if not known:
        raise _unknown("how many CPUs this machine has", facts.cpu.state)
    return min(known)


def memory(facts: HostFacts, reserve_mib: int | None, *, accounting: bool = False) -> int:
    """MiB for jobs: what every limit allows, less the reserve (by default a tenth, and the database's).

    Raises DshpcError where no limit is known, and (usage) where the reserve leaves nothing.
    """
    limits = (facts.memory.limit_mib, facts.engine.memory_mib)
    known = [limit for limit in limits if limit]
    if not known:
        raise _unknown("how much memory this machine has", facts.memory.state)
    limit = min(known)
    database = min(_DATABASE_MIB, limit // 10) if accounting else 0
    kept = limit // 10 + database if reserve_mib is None else reserve_mib
    if kept >= limit > 1:
        raise usage_error(
            f"reserve_mib = {kept} leaves no memory for jobs: there are {limit} MiB.",
            "It is what jobs do not get. Without this setting it is a tenth.",
            Fix(
                "Give a smaller one, on the host",
                f"configure-environment --reserve-mib {limit // 10}",
            ),
        )
    return max(1, limit - kept)


def _unknown(what: str, state: State) -> DshpcError:
    return DshpcError(
        f"It could not be found out {what}.",
        f"The answer was: {state}.",
        (Fix("See what was looked at", "dshpc detect --explain", step="look"),),
    )


def memory_per_cpu(memory_mib: int, cpu_count: int, gpus: int, threads: int = 1) -> int:
    """MiB for each CPU of a job that does not say: an equal share of it all.

    Without a default, each job would take the whole memory and a second one would wait. No more than
    lets a job on one core, of `threads` CPUs, find room beside jobs on all GPUs.
    """
    share = memory_mib // max(cpu_count, gpus, 1)
    left = memory_mib - gpus * (share_of_a_gpu(memory_mib, gpus) or 0)
    return max(1, min(share, left // threads))


def share_of_a_gpu(whole: int, gpus: int, step: int = 1) -> int | None:
    """What a job gets with each GPU where it does not say: an equal share, in steps of `step`.

    Of seven eighths: a job without a GPU finds room beside jobs on all GPUs. None without a GPU, and
    where there is not one step for each.
    """
    if not gpus or whole < gpus * step:
        return None
    share = (whole - whole // _KEPT) // gpus
    return max(step, share - share % step)


def topology(facts: HostFacts, cpu_count: int) -> Shape | None:
    """Sockets, cores, threads: only where no limit makes the machine's own shape untrue."""
    cpu = facts.cpu
    if not (cpu.sockets and cpu.cores_per_socket and cpu.threads_per_core):
        return None
    shape = (cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core)
    whole = shape[0] * shape[1] * shape[2]
    return shape if whole == cpu.logical == cpu_count and cpu.limited_by is None else None


def oversubscribe(gpus: int, cpu_count: int, shape: Shape | None) -> int:
    """How many jobs share what is handed out as one, so that each GPU can have a job of its own.

    Where they must share, there is room for one more: a job without a GPU.
    """
    units = shape[0] * shape[1] if shape else cpu_count
    return -(-(gpus + 1) // units) if gpus > units else 1


def tmp_disk(facts: HostFacts) -> int | None:
    """MiB of the file system that holds a job's /tmp, in whole GiB; None where it is not known.

    A container's /tmp lies where the engine keeps its containers. Never more than there is: Slurm
    drains a node that has less ("Low TmpDisk").
    """
    size = facts.engine.disk_mib if facts.engine.state == "present" else facts.platform.tmp_disk_mib
    return None if size is None or size < 1024 else size - size % 1024
