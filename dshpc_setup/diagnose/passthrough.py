"""GPUs in containers: what the test-run showed."""

from __future__ import annotations

from dataclasses import replace

from dshpc_setup.diagnose.common import set_up
from dshpc_setup.diagnose.model import Check, CheckInput, Verdict, fault, fine, note, warning
from dshpc_setup.diagnose.proof import from_files, from_proof
from dshpc_setup.diagnose.ways import tested
from dshpc_setup.errors import configure
from dshpc_setup.passthrough import findings as f
from dshpc_setup.passthrough.words import describe_attempt, describe_proof

_WORKS = "DSH-PT-001"
_NOT_TESTED = "GPUs in containers were not tested"


def _passthrough(known: CheckInput) -> Verdict:
    if known.facts.gpus.simulated:
        return note("The GPUs are simulated: there is nothing to test.", title=_NOT_TESTED)
    if known.proof is None:
        return note("Not tested yet.", fix=(set_up(known),), title=_NOT_TESTED)
    if known.plan is not None and not known.plan.gres:
        left_out = known.plan.left_out[0] if known.plan.left_out else None
        return note(left_out or "The cluster is to use none.", title=_NOT_TESTED)
    if tested(known) is None:
        old = warning(
            "That was tested before the machine, its engine or the settings changed.",
            known.proof.reason,
            fix=(configure("Test it again"),),
        )
        return replace(old, title="The test of GPUs in containers is out of date")
    if known.proof.works:
        return fine(known.proof.reason)
    first = known.proof.to_fix
    return fault(
        describe_proof(known.proof),
        *(describe_attempt(row) for row in known.proof.attempts),
        fix=(
            *(first.fix if first is not None else ()),
            configure("Then test again", step="after"),
        ),
    )


# What the container saw: title, and what explains it.
_SEEN: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (f.FEWER_GPUS, "The container sees all of its GPUs", (f.STALE_CDI_SPEC,)),
    (f.OTHER_GPUS, "The container sees the GPUs that it was given", (f.STALE_CDI_SPEC,)),
    (f.MORE_GPUS, "The container sees no GPU beside those it was given", ()),
    (f.NODE_DENIED, "The user of jobs may open the device nodes", (f.SELINUX, f.NO_CGROUPS)),
    (f.NODE_DOES_NOT_OPEN, "The device nodes open in the container", (f.DRIVER_HANGS, f.LOST)),
    (f.LIBRARY_DOES_NOT_LOAD, "The driver's libraries load in the container",
     (f.IMAGE_WITHOUT_GLIBC, f.STALE_CDI_SPEC)),
    (f.LIBRARY_OF_ANOTHER_VERSION, "The driver's libraries are of the driver's version",
     (f.STALE_CDI_SPEC, f.DRIVER_IN_IMAGE, f.VERSIONS_DIFFER)),
    (f.TEST_HUNG, "The test container ended in time", (f.DRIVER_HANGS, f.LOST)),
    (f.IMAGE_WITHOUT_SHELL, "The image can run the test", (f.OTHER_PROCESSOR,)),
    (f.IMAGE_WITHOUT_GLIBC, "The image can load the driver", ()),
)  # fmt: skip

_BY_FILES = (f.NODE_DENIED, f.LIBRARY_DOES_NOT_LOAD, f.LIBRARY_OF_ANOTHER_VERSION)
"""What the search of the built-in engine for a driver's files tells before a test-run."""


def _causes() -> tuple[str, ...]:
    """All of the catalogue: the engine's first, then the driver's, then what the container saw.

    A fault of one card need not be why no container gets any, and a toolkit that is missing is.
    """
    order = ("DK", "NV", "AM", "PT")
    return tuple(sorted(f.TITLES, key=lambda identity: order.index(identity.split("-")[1])))


CHECKS: tuple[Check, ...] = (
    Check(_WORKS, "passthrough", "Containers can use the GPUs", "Containers cannot use the GPUs",
          _passthrough, needs=("DSH-GP-001", "DSH-DK-001"), because=_causes()),
    *(
        Check(identity, "passthrough", title, f.TITLES[identity],
              (from_files if identity in _BY_FILES else from_proof)(identity),
              needs=("DSH-GP-001", "DSH-DK-001"), because=because)
        for identity, title, because in _SEEN
    ),
)  # fmt: skip
