"""slurmctld and slurmd: whether they run and answer, and what they need for it: key, room, clock, name."""

from __future__ import annotations

from dshpc_setup import slurm_releases
from dshpc_setup.container.key_set import LEAST_BYTES
from dshpc_setup.diagnose.common import cluster
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
    CONTROLLER,
    CONTROLLER_UP,
    KEY,
    LOG,
    NODE_DAEMON_UP,
    RUNS,
    STATE_VOLUME,
    before_ready,
    of_inside,
    restart,
)
from dshpc_setup.errors import Fix
from dshpc_setup.observed.model import Daemon, Inside, KeyFile
from dshpc_setup.slurm.paths import Paths
from dshpc_setup.terminal.sanitize import often

_PATHS = Paths()
_OFTEN = 3  # times that a daemon ended by itself since the container's start
_LATELY_S = 600
REST = "slurmrestd"
_DAEMONS = ("slurmctld", "slurmd", REST)


def _controller(known: CheckInput) -> Verdict:
    found, inside = cluster(known), known.observed.inside
    if before_ready(known):
        return unknown("The start has not come so far.")
    silent = inside is not None and inside.controller in ("down", "silent")
    if not found.problem and not silent:
        return fine()
    said = (found.problem, inside.controller_says if inside else None)
    words = dict.fromkeys(word for word in said if word)
    return fault(
        "Slurm's controller, slurmctld, does not answer: no job can be queued, started or looked at.",
        *words,
        fix=(LOG, restart()),
    )


def _daemon_up(name: str, without: str) -> Check:
    """That slurmctld, slurmd or slurmrestd runs; `without` says what does not work while it does not."""

    def look(known: CheckInput, inside: Inside) -> Verdict:
        if before_ready(known):
            return unknown("The start has not come so far.")
        daemon = known.observed.daemon(name)
        if daemon is None and name == REST:  # the setting does not ask for it
            return fine()
        if daemon is None or (not daemon.up and daemon.seconds is None):
            return unknown(f"The container was not asked about {name}.")
        if daemon.up:
            return fine(f"{name}: process {daemon.pid}, up for {daemon.seconds} s")
        since = "" if daemon.seconds is None else f" for {daemon.seconds} s"
        words = (f"{name}: down{since}, {_exits(daemon)}", *_errors_of(name, inside))
        if not daemon.wanted:
            service = f"{_PATHS.services}/{name}"
            order = f"dshpc exec --root -- s6-svc -u {service}"
            cause = f"Somebody stopped {name}, and its supervisor leaves it so: {without}"
            return fault(
                cause,
                *words,
                fix=(Fix("Start it again", order, automatic=True, repair=("start-daemon", name)),),
            )
        cause = f"{name} ends soon after each start: {without}"
        return fault(cause, *words, fix=(LOG, restart()))

    identity = {"slurmctld": CONTROLLER_UP, "slurmd": NODE_DAEMON_UP, REST: "DSH-SL-053"}[name]
    return Check(
        identity,
        "slurm",
        f"{name} runs",
        f"{name} has stopped",
        of_inside(look),
        needs=(RUNS,),
        because=(KEY, STATE_VOLUME, "DSH-SL-036"),
    )


def _exits(daemon: Daemon) -> str:
    times = often(daemon.exits)
    return f"ended by itself {times}" if daemon.exits else "never ended by itself"


def _errors_of(name: str, inside: Inside) -> tuple[str, ...]:
    """The daemon's last errors, less those of the other one and what is said where all is well."""
    others = [other for other in _DAEMONS if other != name]
    own = (
        line
        for line in inside.errors
        if slurm_releases.says("harmless").search(line) is None
        and (name in line or not any(other in line for other in others))
    )
    return tuple(own)[-3:]


def _again_and_again(_: CheckInput, inside: Inside) -> Verdict:
    ended = [item for item in inside.daemons if item.exits]
    if not ended:
        return fine()
    evidence = tuple(f"{item.name}: {_exits(item)}, up for {item.seconds} s" for item in ended)
    bad = [item for item in ended if item.exits >= _OFTEN or (item.seconds or 0) < _LATELY_S]
    if not bad:
        return note("A daemon stopped some time ago and was started again by itself.", *evidence)
    names = " and ".join(item.name for item in bad)
    return warning(
        f"{names} stopped without being told to, and was started again.",
        *evidence,
        *(line for item in bad for line in _errors_of(item.name, inside)),
        fix=(LOG,),
    )


def _key(known: CheckInput, inside: Inside) -> Verdict:
    key = inside.key
    if key is None:
        return unknown("The container was not asked about its key.")
    if key.state == "absent" and before_ready(known):
        return unknown("The start has not come so far.")
    if key.state == "absent":
        return fault(
            "Slurm's key is gone. Its daemons keep running with what they read, but cannot restart.",
            _PATHS.key,
            fix=(restart("The next start makes a new one; jobs that run are interrupted"),),
        )
    if key.state != "present":
        return unknown(f"The key cannot be looked at: {key.detail or key.state}.")
    inside_it = "dshpc exec --root --"
    wrong = _wrong_with(key)
    if wrong is None:
        return fine(_told(key))
    anew = Fix(
        "Remove it, so that the next start makes a new one (jobs that run are lost)",
        f"{inside_it} rm {_PATHS.key} && dshpc restart",
    )
    if _of_no_use(key):
        return fault(wrong, _told(key), fix=(anew,))
    fixes = [
        Fix(
            "Give it back to Slurm's user",
            f"{inside_it} chown slurm:slurm {_PATHS.key}",
            automatic=True,
            repair=("restrict-key", ""),
        ),
        Fix(
            "Close it to others",
            f"{inside_it} chmod 600 {_PATHS.key}",
            automatic=True,
            repair=("restrict-key", ""),
        ),
    ]
    if key.mode is not None and key.mode & 0o077:
        fixes.append(
            Fix(
                "Somebody may have read it: change it. Running jobs are not affected",
                "dshpc key rotate",
            )
        )
    return fault(wrong, _told(key), fix=tuple(fixes))


def _told(key: KeyFile) -> str:
    mode = "unknown" if key.mode is None else f"{key.mode:04o}"
    return f"{_PATHS.key}: mode {mode}, owner {key.owner}, {key.size} bytes"


def _of_no_use(key: KeyFile) -> bool:
    """Whether no change of its mode or owner would make it good."""
    short = key.size is not None and key.size < LEAST_BYTES
    open_to_others = key.mode is not None and bool(key.mode & 0o077)
    return short or (key.detail is not None and not open_to_others)


def _wrong_with(key: KeyFile) -> str | None:
    """A sentence or two; None for a key that Slurm takes and that others cannot read."""
    if key.size is not None and key.size < LEAST_BYTES:
        return f"Slurm's key holds only {key.size} bytes; Slurm refuses less than {LEAST_BYTES}."
    if key.mode is not None and key.mode & 0o077:
        return (
            f"Slurm's key has the mode {key.mode:04o}, and must have 0600: who can read it can run jobs "
            "as any user, and Slurm does not start with it."
        )
    if key.mode is not None and not key.mode & 0o400:
        return f"Slurm's key has the mode {key.mode:04o}: its owner cannot read it."
    if key.owner not in (None, "slurm"):
        return f"Slurm's key belongs to {key.owner}, and must belong to slurm."
    return f"Slurm's key cannot be used: {key.detail.rstrip('.')}." if key.detail else None


DAEMON_CHECKS: tuple[Check, ...] = (
    Check(KEY, "slurm", "Slurm's key is safe", "Something is wrong with Slurm's key",
          of_inside(_key), needs=(RUNS,)),
    _daemon_up("slurmctld", "no job can be queued or started."),
    _daemon_up("slurmd", "no job can start on this node."),
    _daemon_up(REST, "clients of Slurm's REST API get no answer."),
    Check(CONTROLLER, "slurm", "Slurm's controller answers",
          "Slurm's controller (slurmctld) does not answer", _controller, needs=(RUNS,),
          because=("DSH-SL-006", CONTROLLER_UP)),
    Check("DSH-SL-011", "slurm", "The daemons stay up",
          "A daemon of Slurm stopped by itself and was started again", of_inside(_again_and_again),
          needs=(RUNS,), because=(KEY, STATE_VOLUME, "DSH-SL-036", CONTROLLER_UP, NODE_DAEMON_UP)),
)  # fmt: skip
