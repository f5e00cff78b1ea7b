"""The vendors' container toolkits, CDI, and engines that are special about GPUs."""

from __future__ import annotations

from dshpc_setup.diagnose.model import Check
from dshpc_setup.diagnose.proof import from_facts, from_proof
from dshpc_setup.passthrough import findings as f

ENGINE = "DSH-DK-001"

ELSEWHERE = (f.REMOTE_ENGINE, f.DESKTOP_VM, f.SNAP)
"""Engines that reach no GPU of this machine, or only some: what is missing there is not the cause."""

# What the facts tell before any test-run. Titles of a fault are the catalogue's own.
_BY_FACTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (f.REMOTE_ENGINE, "The engine runs on this machine", ()),
    (f.DESKTOP_VM, "The engine's machine has the GPUs", ()),
    (f.SNAP, "Docker is no snap", ()),
    (f.NO_TOOLKIT, "The GPU vendor's container toolkit is there", ELSEWHERE),
    (f.NOT_RESTARTED, "The engine was started after the toolkit was installed", ELSEWHERE),
    (f.RUNTIME_NOT_REGISTERED, "The vendor's runtime is registered with the engine",
     (*ELSEWHERE, f.NO_TOOLKIT)),
    (f.ROOTLESS, "The engine may set the device rules of containers", ()),
    (f.NO_CGROUPS, "The toolkit sets the device rules of containers", ()),
    (f.TOOLKIT_MODE, "The toolkit's mode allows --gpus", ()),
    (f.ENGINE_WITHOUT_CDI, "The engine is new enough for CDI", ()),
    (f.CDI_OFF, "CDI is switched on in the engine", (f.SNAP, f.ENGINE_WITHOUT_CDI, f.NO_TOOLKIT)),
    (f.CDI_SPEC_UNREADABLE, "The engine can read the CDI specifications", ()),
    (f.STALE_CDI_SPEC, "The CDI specification is of this driver and these GPUs", ()),
    (f.NO_CDI_SPEC, "A CDI specification names the GPUs",
     (*ELSEWHERE, f.NO_TOOLKIT, f.CDI_SPEC_UNREADABLE)),
    (f.DESKTOP_CDI, "Docker Desktop hands over the GPUs", ()),
    (f.PODMAN, "Podman hands over the GPUs", (f.NO_CDI_SPEC, f.STALE_CDI_SPEC, f.CDI_SPEC_UNREADABLE)),
)  # fmt: skip

# What only a container that is started can tell.
_BY_TEST: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (f.SELINUX, "SELinux lets containers have the GPUs", ()),
    (f.TOOLKIT_BROKEN, "The NVIDIA Container Toolkit works", (f.ROOTLESS,)),
    (f.UNKNOWN_GPU, "The GPUs that are asked for are there", ()),
    (f.NO_NODE, "The device nodes are there", ELSEWHERE),
    (f.ENGINE_MAY_NOT_OPEN, "The engine may use the device nodes", (f.SELINUX, f.ROOTLESS)),
    (f.NO_MOUNT_SOURCE, "The files for the container are there", (f.STALE_CDI_SPEC,)),
    (f.DRIVER_IN_IMAGE, "The image carries no file of an NVIDIA driver", ()),
    (f.OTHER_PROCESSOR, "The image is for this type of processor", ()),
    (f.NO_IMAGE, "The image of the test is on this engine", ()),
    (f.REQUIREMENT_UNMET, "The requirements of the image hold here", ()),
    (f.REQUIREMENT_UNREADABLE, "The requirements of the image can be read", ()),
    (f.IMAGE_HIDES_GPUS, "The image asks for the GPUs", ()),
)  # fmt: skip


def _checks() -> tuple[Check, ...]:
    rows = [(row, from_facts) for row in _BY_FACTS] + [(row, from_proof) for row in _BY_TEST]
    return tuple(
        Check(
            identity, "engine", title, f.TITLES[identity], look(identity),
            needs=(ENGINE,), because=because,
        )
        for (identity, title, because), look in rows
    )  # fmt: skip


CHECKS: tuple[Check, ...] = _checks()
