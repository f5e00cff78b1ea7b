"""Why a question about jobs failed: looked up afterwards, when it may take its time."""

from __future__ import annotations

import datetime
import re

from dshpc_setup.cli import exec as execution
from dshpc_setup.container.ends import CONCLUDED
from dshpc_setup.documents import foreign
from dshpc_setup.engine import containers
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.slurm.job_states import ENDED

_ASK_S = 20.0
_READY_S = 60  # which a start takes at most, where nothing is wrong
# What dshpc-node of an image before this version says of an empty verb: their words stay as they are
_KNOWN = re.compile(r"^\s*Known: (.+)\.$", re.MULTILINE)
_NO_VERBS = "There is no command"


def older(details: str) -> DshpcError:
    """The cluster's image does not know yet what is asked of it."""
    return DshpcError(
        "The cluster's image is older than this program: it does not know this command.",
        details,
        ("Rebuild the image, and start the cluster from it: configure-environment",),
    )


def knows(machine: Machine, call: execution.Call, verb: str) -> bool:
    """Whether the cluster's image has `dshpc-node job VERB`; where it does not say so, it has."""
    argv = call.engine.run_in(call.container, "dshpc-node", "job", "")
    done = machine.run(argv, deadline_s=_ASK_S)
    if (verbs := _verbs(done.stdout)) is not None:
        return verb in verbs
    if known := _KNOWN.search(done.stderr):
        return verb in known[1].split(", ")
    return _NO_VERBS not in done.stderr


def _verbs(text: str) -> list[object] | None:
    try:
        value = foreign.value(text)
    except (ValueError, RecursionError):
        return None
    found = value.get("verbs") if isinstance(value, dict) else None
    return found if isinstance(found, list) else None


def stopped(machine: Machine, call: execution.Call, since: float, job: str) -> DshpcError | None:
    """That the cluster was stopped since then (seconds since 1970); None where it was not.

    One that was stopped and started again is meant, too.
    """
    found = containers.inspect(machine, call.container)
    if found is not None and found.running and _seconds(found.started) < since:
        return None
    if found is None or not found.running:
        return DshpcError(
            f"The cluster was stopped; job {job} starts again when it starts, unless it had ended.",
            "",
            ("Start it: dshpc up",),
        )
    return DshpcError(
        f"The cluster was stopped; {_now(machine, call, job)}.",
        "",
        (f"See how it is: dshpc job show {job}",),
    )


def _now(machine: Machine, call: execution.Call, job: str) -> str:
    """What becomes of the job in the cluster that runs again: "job 7 starts again"."""

    def run(*words: str, deadline_s: float = _ASK_S) -> CommandResult:
        return machine.run(call.engine.run_in(call.container, *words), deadline_s=deadline_s)

    run("dshpc-node", "wait", "--timeout", str(_READY_S), deadline_s=_READY_S + 5)
    if run("test", "-e", f"{CONCLUDED}/{job}").ok:
        return f"job {job} had run to its end by then, and does not run again"
    asked = run("dshpc-node", "job", "show", job, "--json", "--work", call.work)
    jobs = _jobs(asked.stdout) if asked.ok else []
    if not jobs:
        return f"job {job} starts again now that it runs again, unless it had ended"
    if all(each.get("state") in ENDED for each in jobs):
        return (
            f"job {job} has ended: {', '.join(sorted({str(each.get('words')) for each in jobs}))}"
        )
    return f"job {job} starts again now that it runs again"


def _jobs(text: str) -> list[dict[str, object]]:
    """Of a `dshpc.job-report/1`."""
    try:
        value = foreign.value(text)
    except (ValueError, RecursionError):
        return []
    jobs = value.get("jobs") if isinstance(value, dict) else None
    return [each for each in jobs if isinstance(each, dict)] if isinstance(jobs, list) else []


def _seconds(time: str | None) -> float:
    """An engine's RFC 3339 time, with nanoseconds or without; 0 for none."""
    match = re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", time or "")
    if match is None or not str(time).endswith("Z"):
        return 0.0
    return datetime.datetime.fromisoformat(f"{match[0]}+00:00").timestamp()
