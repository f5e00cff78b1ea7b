"""Was the promise kept? How a test container ended, against what it had to see. Pure."""

from __future__ import annotations

from dataclasses import replace

from dshpc_setup import remedies
from dshpc_setup.facts import HostFacts
from dshpc_setup.machine import CommandResult
from dshpc_setup.passthrough import findings
from dshpc_setup.passthrough.causes import of_refusal
from dshpc_setup.passthrough.expected import Expected
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.passthrough.judge_driver import driver
from dshpc_setup.passthrough.judge_nodes import nodes
from dshpc_setup.passthrough.look import Seen, parse
from dshpc_setup.passthrough.model import Cause
from dshpc_setup.passthrough.stale import Stale, stale
from dshpc_setup.remedies.engine import PODMAN_SINCE
from dshpc_setup.versions import at_least

_REFUSED = 125  # the exit code of `docker run` where the engine did not start the container
_SH_FAILS = (126, 127)

# What an outdated CDI specification looks like from outside and from inside.
_OF_A_SPEC = frozenset(
    (
        findings.STALE_CDI_SPEC,
        findings.FEWER_GPUS,
        findings.OTHER_GPUS,
        findings.MORE_GPUS,
        findings.LIBRARY_DOES_NOT_LOAD,
        findings.LIBRARY_OF_ANOTHER_VERSION,
        findings.NO_COMPUTE_CAPABILITY,
        findings.VERSIONS_DIFFER,
        findings.DRIVER_NOT_LOADED,
        findings.NO_NODE,
        findings.NO_MOUNT_SOURCE,
    )
)


def judge(
    result: CommandResult,
    expected: Expected,
    handover: Handover,
    facts: HostFacts,
    deadline_s: float,
) -> Cause | None:
    """None where the container saw all that it was promised; else why not."""
    if result.state == "timeout":
        return Cause(
            findings.TEST_HUNG,
            f"the test container did not end within {max(deadline_s, result.ms / 1000):.0f} s: the "
            "driver, or the hook that "
            "hands it over, hangs",
            remedies.hung_driver(facts),
        )
    if not result.ok:
        cause = _refused(result, handover, facts)
        return _of_the_spec(cause, expected, handover, facts, Seen())
    seen = parse(result.stdout)
    if not seen.ended:
        words = " ".join(result.text.split())
        says = f"it said {words[:200]!r}" if words else "it said nothing"
        return Cause(
            findings.IMAGE_WITHOUT_SHELL,
            f"the image's /bin/sh did not run the test to its end: {says}",
        )
    found = nodes(seen, expected, handover, facts) or driver(seen, expected, handover, facts)
    if found is None:
        return None
    cause = _of_the_spec(found, expected, handover, facts, seen)
    return _passed_over(facts) if _gave_nothing(cause, expected, handover, facts, seen) else cause


def _gave_nothing(
    cause: Cause, expected: Expected, handover: Handover, facts: HostFacts, seen: Seen
) -> bool:
    """Whether Podman started the container without a word, and without any of the CDI devices."""
    states = {seen.nodes[node.path].state for node in expected.nodes if node.path in seen.nodes}
    engine = facts.engine
    old = engine.kind == "podman" and not at_least(engine.server_version, PODMAN_SINCE)
    old = old and not engine.by_command
    return (
        old
        and handover.mechanism == "cdi"
        and cause.finding == findings.FEWER_GPUS
        and states == {"absent"}
    )


def _passed_over(facts: HostFacts) -> Cause:
    """An older Podman leaves them unread, and says nothing of it."""
    return Cause(
        findings.PODMAN,
        f"Podman ({facts.engine.server_version or 'of an unknown version'}) started the container without "
        f"the CDI devices: it takes them from Docker's clients from {PODMAN_SINCE} on",
        remedies.newer_docker(facts),
    )


def _refused(result: CommandResult, handover: Handover, facts: HostFacts) -> Cause:
    if result.state == "error":
        return Cause(None, "the test container never stopped printing")
    if result.state != "present":
        return Cause(None, f"the docker command could not be run ({result.state})")
    cause = of_refusal(result.text, handover.mechanism, facts)
    if cause is not None:
        return cause
    # Docker ends with 127 as well where a file of the machine is missing: the words must name the shell
    if result.code in _SH_FAILS and "/bin/sh" in result.text:
        says = "the image cannot run the test: it has no /bin/sh that works"
        return Cause(findings.IMAGE_WITHOUT_SHELL, says)
    words = " ".join(result.text.split()).rstrip(".") or "without a word"
    if result.code == _REFUSED:
        return Cause(None, f"the engine refused: {words}")
    return Cause(None, f"the test container ended with exit code {result.code}: {words}")


def _of_the_spec(
    cause: Cause, expected: Expected, handover: Handover, facts: HostFacts, seen: Seen
) -> Cause:
    """The same, or that the CDI specification is out of date where that shows in the file itself."""
    if handover.mechanism != "cdi" or cause.finding not in _OF_A_SPEC:
        return cause
    found = stale(facts, handover, expected, seen)
    return cause if found is None else _stale(cause, found, facts)


def _stale(cause: Cause, found: Stale, facts: HostFacts) -> Cause:
    return replace(
        cause,
        finding=findings.STALE_CDI_SPEC,
        says=f"the CDI specification {found.path} is out of date: {found.why}",
        fix=remedies.generate_cdi(facts, found.vendor),
    )
