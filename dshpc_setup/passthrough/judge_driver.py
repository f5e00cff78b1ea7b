"""The driver in a test container: do its libraries load, and which GPUs does its tool list? Pure."""

from __future__ import annotations

from dshpc_setup import remedies
from dshpc_setup.facts import HostFacts
from dshpc_setup.passthrough import findings
from dshpc_setup.passthrough.causes import of_refusal
from dshpc_setup.passthrough.expected import COMPUTE_LIBRARY, MANAGEMENT_LIBRARY, Expected
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.passthrough.look import Seen
from dshpc_setup.passthrough.model import Cause
from dshpc_setup.passthrough.stale import listed
from dshpc_setup.versions import at_least


def driver(seen: Seen, expected: Expected, handover: Handover, facts: HostFacts) -> Cause | None:
    """None where the libraries of the driver load and its tool, if there, lists these GPUs."""
    if not expected.libraries:
        return None
    return _libraries(seen, expected, facts) or _listing(seen, expected, handover, facts)


def _libraries(seen: Seen, expected: Expected, facts: HostFacts) -> Cause | None:
    missing = [
        name
        for name in expected.libraries
        if (found := seen.libraries.get(name)) is None or not found.loads
    ]
    if not missing:
        return _versions(seen, expected, facts)
    if seen.musl:
        return Cause(
            findings.IMAGE_WITHOUT_GLIBC,
            "the image has musl (Alpine), and NVIDIA's libraries need glibc: take a Debian, Ubuntu or "
            "Red Hat image",
        )
    if not seen.libraries:
        return Cause(
            findings.IMAGE_WITHOUT_SHELL,
            "the image cannot run the test: it has no loader of shared libraries (as images of busybox "
            "alone), so no program in it can use the driver",
        )
    if len(expected.libraries) > 1 and len(missing) == 1 and _is_gone(seen, missing[0]):
        return _without_capability(missing[0], facts)
    words = {found.words for name in missing if (found := seen.libraries.get(name))}
    said = "; ".join(filter(None, sorted(words)))
    return Cause(
        findings.LIBRARY_DOES_NOT_LOAD,
        f"the driver's {listed(missing)} does not load in the container"
        + (f": {said}" if said else ""),
        remedies.driver_libraries(facts),
    )


def _is_gone(seen: Seen, name: str) -> bool:
    """Not in the container at all; one that lacks a library itself says the same of another name."""
    found = seen.libraries.get(name)
    return found is None or "cannot be preloaded (cannot open shared object file)" in found.words


def _without_capability(name: str, facts: HostFacts) -> Cause:
    """One of the two libraries is there: the toolkit was to leave the other out."""
    fix = remedies.missing_capability(facts)
    why = "the machine lacks it, or the toolkit withholds the driver capability"
    if name == COMPUTE_LIBRARY:
        says = f"the container has NVML and no CUDA ({name}): {why} `compute`"
        return Cause(findings.NO_COMPUTE_CAPABILITY, says, fix)
    says = f"the container has CUDA and no NVML ({name}): {why} `utility`"
    return Cause(findings.LIBRARY_DOES_NOT_LOAD, says, fix)


def _versions(seen: Seen, expected: Expected, facts: HostFacts) -> Cause | None:
    """CUDA may be newer than the driver (an image's forward compatibility), NVML never."""
    wanted = expected.driver_version
    for name in expected.libraries:
        version = seen.libraries[name].version
        if not wanted or not version or version == wanted:
            continue
        if name == COMPUTE_LIBRARY and at_least(version, wanted):
            continue
        return Cause(
            findings.LIBRARY_OF_ANOTHER_VERSION,
            f"{name} in the container is of driver {version}, and this machine's driver is {wanted}",
            remedies.library_of_another_version(facts),
        )
    return None


def _listing(seen: Seen, expected: Expected, handover: Handover, facts: HostFacts) -> Cause | None:
    """By UUID; a warning before the list, or an exit code beside it, does no harm."""
    if seen.listing is None or MANAGEMENT_LIBRARY not in expected.libraries:
        return None  # the nodes, their numbers and the libraries have told by themselves
    if not seen.uuids:
        words = " ".join(seen.listing.split()).rstrip(".")
        words = words or f"it says nothing, and ends with exit code {seen.listing_code}"
        cause = of_refusal(seen.listing, handover.mechanism, facts)
        return cause or Cause(
            findings.FEWER_GPUS, f"nvidia-smi in the container lists no GPU: {words}"
        )
    found = set(seen.uuids)
    missing = [uuid for uuid in expected.uuids if uuid not in found]
    others = sorted(found - expected.allowed) if expected.allowed else []
    if missing and others:
        says = f"the container sees {listed(others)} in place of {listed(missing)}"
        return Cause(findings.OTHER_GPUS, says)
    if missing:
        there, count = len(expected.uuids) - len(missing), len(expected.uuids)
        says = f"the container sees {there} of {count} GPUs: there is no {listed(missing)}"
        return Cause(findings.FEWER_GPUS, says)
    if others:
        says = f"the container sees GPUs that were not asked for: {listed(others)}"
        return Cause(findings.MORE_GPUS, says)
    return None
