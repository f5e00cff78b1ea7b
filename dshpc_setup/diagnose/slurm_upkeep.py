"""What a cluster needs to go on: room, a right clock, a name, processes cleared away, one version."""

from __future__ import annotations

from dshpc_setup import slurm_releases
from dshpc_setup.diagnose.model import (
    Check,
    CheckInput,
    Verdict,
    fault,
    fine,
    not_here,
    unknown,
    warning,
)
from dshpc_setup.diagnose.slurm_known import RUNS, STATE_VOLUME, before_ready, of_inside, restart
from dshpc_setup.errors import Fix, configure
from dshpc_setup.facts import HostFacts
from dshpc_setup.observed.model import Disk, Inside

_ZOMBIES = 20
_CLOCK_WARN_S, _CLOCK_ERROR_S = 5.0, 60.0
_FREE_WARN_MIB, _FREE_ERROR_MIB = 200, 20
_FREE_SHARE, _FREE_AMPLE_MIB = 0.05, 2048  # 5 % of a large disk is room enough
_INODES_WARN, _INODES_ERROR = 1000, 50
_PACKAGES_DAYS = 90
_RENEW = Fix("Build the image from Debian's packages of today; queue, users, homes and key stay",
             "configure-environment --renew")  # fmt: skip


def _state_volume(_: CheckInput, inside: Inside) -> Verdict:
    disk = inside.state_volume
    if disk is None:
        return unknown("The container was not asked about its state volume.")
    evidence = [f"{disk.path}: {disk.free_mib} of {disk.size_mib} MiB free"]
    if disk.free_inodes is not None:
        evidence.append(f"{disk.free_inodes} inodes free")
    if inside.state_files_mib is not None:
        evidence.append(f"Slurm's saved state takes {inside.state_files_mib} MiB")
    level = _fullness(disk)
    if level is None:
        return fine(*evidence)
    fixes = (
        Fix("See what fills the disk that Docker keeps its volumes on",
            "df -h; docker system df", step="look"),
        Fix("Remove what Docker no longer uses: stopped containers, old build layers",
            "docker system prune"),
    )  # fmt: skip
    what = "no room" if level == "full" else "little room"
    cause = f"There is {what} for the queue: slurmctld writes every job down before it takes it."
    tell = fault if level == "full" else warning
    return tell(cause, *evidence, fix=fixes)


def _fullness(disk: Disk) -> str | None:
    """ "full", "filling", or None where there is room."""
    inodes = disk.free_inodes
    if disk.free_mib < _FREE_ERROR_MIB or (inodes is not None and inodes < _INODES_ERROR):
        return "full"
    small_share = disk.free_mib < min(disk.size_mib * _FREE_SHARE, _FREE_AMPLE_MIB)
    few = inodes is not None and inodes < _INODES_WARN
    return "filling" if disk.free_mib < _FREE_WARN_MIB or small_share or few else None


def _clock(known: CheckInput, inside: Inside) -> Verdict:
    if inside.time is None or inside.asked_at is None:
        return unknown("The container was not asked for the time.")
    off = inside.time - inside.asked_at
    evidence = f"{abs(off):.1f} s {'ahead of' if off > 0 else 'behind'} this machine"
    if abs(off) <= _CLOCK_WARN_S:
        return fine(evidence)
    cause = "The clock of the container's machine differs from this one's: times of jobs and files are wrong."
    if abs(off) <= _CLOCK_ERROR_S:
        return warning(cause, evidence, fix=_set_clock(known.facts))
    jump = " When it is set right while jobs run, Slurm refuses its own tokens: they are good for 60 s."
    return fault(cause + jump, evidence, fix=_set_clock(known.facts))


def _set_clock(facts: HostFacts) -> tuple[Fix, ...]:
    """A container has its kernel's clock: what differs is a virtual machine's, or another machine's."""
    if facts.engine.kind == "desktop":
        return (Fix("Restart Docker Desktop: its virtual machine slept, and its clock with it"),)
    if facts.platform.kind == "wsl2":
        return (
            Fix("Set WSL's clock by Windows'", "sudo hwclock -s"),
            Fix("If that fails, restart WSL, in PowerShell", "wsl --shutdown"),
        )
    return (
        Fix(
            "See whether this machine's clock is kept right; the same on the engine's",
            "timedatectl",
            step="look",
        ),
        Fix("Keep it right", "sudo timedatectl set-ntp true"),
    )


def _zombies(_: CheckInput, inside: Inside) -> Verdict:
    if inside.zombies <= _ZOMBIES:
        return fine(f"{inside.zombies} zombies")
    return warning(
        "Ended processes are not cleared away: their parent does not ask how they ended. Each holds a "
        "process number until no new process can start.",
        f"{inside.zombies} zombies",
        fix=(
            Fix("See whose they are",
                "dshpc exec --root -- ps -eo ppid,pid,stat,comm", step="look"),
            restart(),
        ),
    )  # fmt: skip


def _versions(_: CheckInput, inside: Inside) -> Verdict:
    daemons = {item.name: item for item in inside.daemons if item.version}
    if not daemons:
        return unknown("The container did not tell the versions of its daemons.")
    evidence = tuple(
        f"{item.name}: {item.version}, running {item.running_version or 'unknown'}"
        for item in daemons.values()
    )
    stale = [
        item.name
        for item in daemons.values()
        if item.running_version and item.running_version != item.version
    ]
    if stale:
        cause = (
            f"{' and '.join(stale)} was replaced by another version and still runs the former one."
        )
        return warning(cause, *evidence, fix=(restart(),))
    first, second = daemons.get("slurmctld"), daemons.get("slurmd")
    if first is None or second is None or first.version == second.version:
        return fine(*evidence)
    anew = Fix("Rebuild the image, with one version", "configure-environment")
    if release(second.version) > release(first.version):
        cause = "slurmd is newer than slurmctld. Slurm allows only the reverse."
        return fault(cause, *evidence, fix=(anew,))
    return warning("slurmctld and slurmd are of different versions.", *evidence, fix=(anew,))


def release(version: str | None) -> tuple[int, ...]:
    """ "24.11.5" -> (24, 11): what daemons must agree on; () where it is no such text."""
    parts = (version or "").split(".")[:2]
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def _own_version(known: CheckInput, inside: Inside) -> Verdict:
    here, there = known.observed.version, inside.wheel_version
    if here is None or there is None:
        return unknown("One of the two versions of dshpc is not known.")
    if here == there:
        return fine(here)
    return warning(
        "The image was built by another version of dshpc than the one that you call.",
        f"here: {here}",
        f"in the image: {there}",
        fix=(configure("Rebuild it with this one"),),
    )


def _packages(_: CheckInput, inside: Inside) -> Verdict:
    days = inside.packages_days
    if days is None:
        return unknown("The image does not say when its packages were put together.")
    evidence = f"Debian's packages of {_ago(days)}"
    if days <= _PACKAGES_DAYS:
        return fine(evidence)
    return warning(
        "Security updates of the months since then are not in the image.", evidence, fix=(_RENEW,)
    )


def _ago(days: int) -> str:
    return "today" if days < 1 else "yesterday" if days == 1 else f"{days} days ago"


def _holes(_: CheckInput, inside: Inside) -> Verdict:
    version = inside.slurm_package
    if version is None:
        return unknown("The image does not say which of Debian's packages its Slurm is.")
    package = slurm_releases.of(version.partition(":")[2] or version).package
    if package is None or package.has_fixes(version):
        return fine(version)
    return warning(
        f"This Slurm has holes that are known: {package.holes}. Who may submit jobs, or reach its ports, "
        "might use them.",
        f"slurmctld {version}; fixed in {package.fixed_text}",
        fix=(_RENEW,),
    )


def _host_name(known: CheckInput, inside: Inside) -> Verdict:
    if before_ready(known):
        return unknown("The start has not come so far.")
    if inside.host_name_resolves is None:
        return unknown("The container was not asked about its host name.")
    if inside.host_name_resolves:
        return fine(str(inside.host_name))
    return warning(
        "The container's host name has no address there. Slurm asks for it again and again: every srun "
        "waits about 20 s.",
        f"host name: {inside.host_name}",
        fix=(
            Fix("If docker-compose.yml is your own: give the service the host name that extra_hosts "
                "names, as in a new one", "dshpc config diff docker-compose.yml"),
            restart("Else the next start puts it right; jobs that run are interrupted"),
        ),
    )  # fmt: skip


_LENT_WRONG: dict[str, str] = {
    "gone": "is not there",
    "empty": "has no compiler any more",
    "replaced": "leads to another installation by now",
}


def _lent(known: CheckInput) -> Verdict:
    if known.observed.cluster is None:
        return not_here("No cluster is set up.")
    folders = known.observed.lent
    wrong = [each for each in folders if each.state in _LENT_WRONG]
    silent = [each.path for each in folders if each.state == "unknown"]
    if not wrong and silent:
        return unknown("Looking at what jobs are lent did not end.", *silent)
    if not wrong:
        return fine(*(f"{each.setting}: {each.path}" for each in folders))
    evidence = [
        f"{each.setting}: {each.path} {_LENT_WRONG[each.state]}"
        if each.path
        else "toolkit: host: no CUDA and no ROCm was found to lend"
        for each in wrong
    ]
    fixes = [
        Fix("Bring the folder back: mount it, or move it there again")
        if any(each.state == "gone" and each.path for each in wrong)
        else None,
        Fix("See where this machine's CUDA and ROCm are", "dshpc detect --only gpus", step="look")
        if any(each.setting == "toolkit" for each in wrong)
        else None,
        configure("Lend what is there now; jobs that would be stopped are named before"),
    ]
    fix = tuple(each for each in fixes if each is not None)
    if all(each.state == "replaced" for each in wrong):
        return warning("Jobs see the installation from before.", *evidence, fix=fix)
    cause = "Jobs are to see folders of this machine that are not there; the next start is refused."
    if not any(each.state == "gone" and each.path for each in wrong):
        cause = "Jobs are to be lent this machine's compilers, and do not find them."
    return warning(cause, *evidence, fix=fix)


UPKEEP_CHECKS: tuple[Check, ...] = (
    Check(STATE_VOLUME, "slurm", "The state volume has room",
          "The state volume is full, or nearly so", of_inside(_state_volume), needs=(RUNS,),
          because=("DSH-DK-081",)),
    Check("DSH-SL-028", "slurm", "The container's clock is right", "The container's clock is wrong",
          of_inside(_clock), needs=(RUNS,)),
    Check("DSH-SL-029", "slurm", "Ended processes are cleared away",
          "Zombie processes pile up in the container", of_inside(_zombies), needs=(RUNS,)),
    Check("DSH-SL-030", "slurm", "Slurm's daemons are of one version",
          "Slurm's daemons are of different versions", of_inside(_versions), needs=(RUNS,)),
    Check("DSH-SL-031", "slurm", "The image has this version of dshpc",
          "The image has another version of dshpc", of_inside(_own_version), needs=(RUNS,)),
    Check("DSH-SL-048", "slurm", "The image's packages are of late",
          "The image's packages are old", of_inside(_packages), needs=(RUNS,)),
    Check("DSH-SL-049", "slurm", "No holes of this Slurm are known",
          "The image's Slurm has holes that are known", of_inside(_holes), needs=(RUNS,)),
    Check("DSH-SL-067", "slurm", "What jobs are lent of this machine is there",
          "A folder that jobs are lent is gone, or another one", _lent),
    Check("DSH-SL-032", "slurm", "The container's host name resolves",
          "The container's host name does not resolve", of_inside(_host_name), needs=(RUNS,)),
)  # fmt: skip
