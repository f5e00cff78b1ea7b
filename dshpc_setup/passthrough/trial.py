"""The test container: one for each mechanism, ended by a deadline and removed in every case."""

from __future__ import annotations

import secrets
from dataclasses import replace

from dshpc_setup.facts import HostFacts
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.machine.no_answer import in_words
from dshpc_setup.passthrough.bench import Bench
from dshpc_setup.passthrough.expected import Expected
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.passthrough.judge import judge
from dshpc_setup.passthrough.look import SCRIPT, parse
from dshpc_setup.passthrough.model import Attempt

LABEL = "org.dshpc.test=1"
_ASK_S = 20.0
_HIDDEN = (
    "unable to upgrade to tcp"  # all that Docker's client says where Podman could not start it
)


def attempt(
    machine: Machine, facts: HostFacts, row: Attempt, expected: Expected, bench: Bench
) -> Attempt:
    """The row with its outcome; never raises for what the engine or the container does."""
    if row.handover is None:
        return row
    result, left = _run(machine, row.handover, expected, bench)
    if result.ok and not parse(result.stdout).ended:
        # A busy engine can lose what a short container printed, and knows only that it ended well
        result, left = _run(machine, row.handover, expected, bench)
    cause = judge(result, expected, row.handover, facts, bench.deadline_s)
    if cause is not None:
        told = replace(cause, says=f"{cause.says}{left}")
        return row.failed(told, result.text, ms=result.ms)
    counted = "the GPU was" if expected.count == 1 else f"all {expected.count} GPUs were"
    reason = f"{counted} seen and opened in a test container{left}"
    return replace(row, state="works", reason=reason, ms=result.ms)


def arguments(name: str, handover: Handover, expected: Expected, bench: Bench) -> list[str]:
    """`docker run` of the look, with the rights that jobs have in the cluster's container."""
    uid, gid = bench.user
    return [
        *("docker", "run", "--rm", "--pull", "never", "--name", name, "--label", LABEL),
        *("--stop-timeout", "0"),  # Podman grants it ten seconds to end, removed by force or not
        *("--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--user", f"{uid}:{gid}"),
        *handover.docker_flags(),
        *("--entrypoint", "/bin/sh", "--", bench.image, "-c", SCRIPT, "sh"),
        *(node.path for node in expected.nodes),
        *("--", *expected.libraries),
    ]


def _run(
    machine: Machine, handover: Handover, expected: Expected, bench: Bench
) -> tuple[CommandResult, str]:
    """How the container ended, and a word where it could not be removed."""
    name = f"dshpc-passthrough-{secrets.token_hex(4)}"
    left = ""
    result: CommandResult | None = None
    try:
        result = machine.run(
            arguments(name, handover, expected, bench), deadline_s=bench.deadline_s
        )
        if _HIDDEN in result.text:
            result = _with_true_words(machine, name, result)
    finally:  # Ctrl-C and a deadline end the client, not the container
        if result is None or not result.ok:
            left = _remove(machine, name)
    return result, left


def _with_true_words(machine: Machine, name: str, result: CommandResult) -> CommandResult:
    """Podman tells why a container does not start to who starts it by itself alone."""
    again = machine.run(["docker", "start", name], deadline_s=_ASK_S)
    if again.state != "present" or again.ok:
        return result
    return replace(result, stderr="\n".join(filter(None, (again.stderr.strip(), result.stderr))))


def _remove(machine: Machine, name: str) -> str:
    """Nothing where it is gone. An engine does not let it go while a hook of it runs."""
    gone = machine.run(["docker", "rm", "--force", name], deadline_s=_ASK_S)
    if gone.ok or gone.state == "absent" or "no such container" in gone.text.lower():
        return ""
    if gone.state == "timeout":
        return f" (the test container may still be there: {in_words(gone)}; docker rm -f {name})"
    return f" (the test container is still there; remove it: docker rm -f {name})"
