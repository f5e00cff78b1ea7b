"""Slurm's accounting: whether slurmdbd and its database answer, where the setting asks for them."""

from __future__ import annotations

from dshpc_setup.diagnose.model import Check, CheckInput, Verdict, fine, unknown, warning
from dshpc_setup.diagnose.slurm_known import (
    CONTROLLER,
    LOG,
    RUNS,
    STATE_VOLUME,
    before_ready,
    of_inside,
)
from dshpc_setup.diagnose.slurm_upkeep import release
from dshpc_setup.errors import Fix
from dshpc_setup.observed.model import Daemon, Inside
from dshpc_setup.slurm.paths import Paths

ACCOUNTING = "DSH-SL-057"
_SERVICES = ("mariadb", "slurmdbd")


def _answers(known: CheckInput, inside: Inside) -> Verdict:
    daemons = [found for name in _SERVICES if (found := known.observed.daemon(name)) is not None]
    if not daemons:
        return fine("The setting accounting is off.")
    if before_ready(known):
        return unknown("The start has not come so far.")
    if (older := _older(known)) is not None:
        return older
    stopped = [each for each in daemons if not each.up]
    if inside.accounting_up is None and not stopped:
        return unknown("The container was not asked about its accounting.")
    if inside.accounting_up and not stopped:
        return fine(*map(_told, daemons))
    orders = [_order(each) for each in stopped if not each.wanted]
    return warning(
        "Slurm's accounting does not answer: jobs continue, and slurmctld keeps the records. Until it "
        "answers, sacct, sreport and sacctmgr fail, and new users can run nothing.",
        *map(_told, daemons),
        fix=(*orders, LOG),
    )


def _older(known: CheckInput) -> Verdict | None:
    """Of a slurmdbd that does not understand slurmctld, for it is of a release before that one's."""
    controller, database = (known.observed.daemon(name) for name in ("slurmctld", "slurmdbd"))
    versions = [release(each.version) for each in (controller, database) if each is not None]
    if not all(versions) or len(versions) < 2 or versions[1] >= versions[0]:
        return None
    return warning(
        "slurmdbd is older than slurmctld, and Slurm allows only the reverse: jobs continue, and slurmctld "
        "keeps the records until slurmdbd is of its release.",
        *(f"{each.name}: {each.version}" for each in (controller, database) if each is not None),
        fix=(Fix("Rebuild the image, with one version", "configure-environment"),),
    )


def _told(daemon: Daemon) -> str:
    state = f"process {daemon.pid}, up" if daemon.up else "down"
    since = "" if daemon.seconds is None else f" for {daemon.seconds} s"
    return f"{daemon.name}: {state}{since}"


def _order(daemon: Daemon) -> Fix:
    service = f"{Paths().services}/{daemon.name}"
    return Fix(
        f"Somebody stopped {daemon.name}, and its supervisor leaves it so: start it again",
        f"dshpc exec --root -- s6-svc -u {service}",
        automatic=True,
        repair=("start-daemon", daemon.name),
    )


ACCOUNTING_CHECKS: tuple[Check, ...] = (
    Check(
        ACCOUNTING,
        "slurm",
        "Slurm's accounting answers",
        "Slurm's accounting does not answer",
        of_inside(_answers),
        needs=(RUNS,),
        because=(CONTROLLER, STATE_VOLUME),
    ),
)
