"""Why a question about jobs failed: looked up afterwards, when it may take its time."""

from __future__ import annotations

import datetime
import re

from dshpc_setup.cli import exec as execution
from dshpc_setup.engine import containers
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine

_ASK_S = 20.0
# What dshpc-node says of an empty verb, and names all that it has
_KNOWN = re.compile(r"^\s*Known: (.+)\.$", re.MULTILINE)


def older(details: str) -> DshpcError:
    """The cluster's image does not know yet what is asked of it."""
    return DshpcError(
        "The cluster's image is older than this program: it does not know this command.",
        details,
        ("Rebuild the image, and start the cluster from it: configure-environment",),
    )


def knows(machine: Machine, call: execution.Call, verb: str) -> bool:
    """Whether the cluster's image has `dshpc-node job VERB`; where it does not say so, it has."""
    argv = [call.docker, "exec", call.container, "dshpc-node", "job", ""]
    done = machine.run(argv, deadline_s=_ASK_S)
    if known := _KNOWN.search(done.stderr):
        return verb in known[1].split(", ")
    return "There is no command" not in done.stderr


def stopped(machine: Machine, call: execution.Call, since: float, job: str) -> DshpcError | None:
    """That the cluster was stopped since then (seconds since 1970); None where it was not.

    One that was stopped and started again is meant, too.
    """
    found = containers.inspect(machine, call.container)
    if found is not None and found.running and _seconds(found.started) < since:
        return None
    runs_again = found is not None and found.running
    when = "now that it runs again" if runs_again else "when it starts"
    return DshpcError(
        f"The cluster was stopped; job {job} starts again {when}.",
        "",
        (f"See how it is: dshpc job show {job}" if runs_again else "Start it: dshpc up",),
    )


def _seconds(time: str | None) -> float:
    """An engine's RFC 3339 time, with nanoseconds or without; 0 for none."""
    match = re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", time or "")
    if match is None or not str(time).endswith("Z"):
        return 0.0
    return datetime.datetime.fromisoformat(f"{match[0]}+00:00").timestamp()
