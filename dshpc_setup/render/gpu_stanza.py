"""What a service of a compose file says to get its GPUs: a mechanism and a compose version in, keys out.

Pure. The same mechanism is written in three ways, since compose learnt them one after the other:
reservations (1.28), `gpus:` and CDI names among `devices:` (both 2.30). A version below 2.30 may
accept the two later ones and pass nothing on, so that `config -q` alone would not tell: Debian's
2.26.1 does with `gpus:`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dshpc_setup import gpu_vendors
from dshpc_setup.errors import DshpcError
from dshpc_setup.gpu_vendors import Descriptor
from dshpc_setup.passthrough.handover import DeviceRequest, GpuStanza, Handover

_RESERVATIONS_SINCE = (1, 28)
_GPUS_AND_CDI_SINCE = (2, 30)

PROFILING_REASON = (
    "seccomp unconfined and SYS_PTRACE: for AMD's profilers and debuggers (amd_profiling is yes)."
)
_PROFILED_REASON = "SYS_PTRACE: for AMD's profilers and debuggers (amd_profiling is yes)."
NO_PROFILING = "amd_profiling has no effect here: no GPU of AMD's Linux driver is handed over."


def gpu_stanza(handover: Handover, compose: str | None, *, profiling: bool = False) -> GpuStanza:
    """The keys for this mechanism, in the form that this version of compose knows.

    `compose` is the text of its version ("1.29.2", "v2.26.1", "2.40.3+ds1"); None, or a text that is
    no version, gets the form that every version from 1.28 on reads. `profiling` opens what AMD's
    tools need, and nothing where no AMD GPU is handed over. Raises DshpcError where this compose is
    too old for the mechanism: before 1.28 it knows `runtime:` and device nodes only.
    """
    version = compose_version(compose)
    too_old = version is not None and version < _RESERVATIONS_SINCE
    if too_old and handover.mechanism in ("cdi", "device-request"):
        raise _too_old(handover, compose or "")
    newest = version is not None and version >= _GPUS_AND_CDI_SINCE
    stanza = GpuStanza(
        comment=_says(handover),
        devices=_unique(handover.devices),
        group_add=tuple(dict.fromkeys(handover.group_add)),
        volumes=_unique(handover.volumes),
        environment=_environment(handover),
    )
    stanza = _with_mechanism(stanza, handover, newest)
    return _with_profiling(stanza, handover) if profiling else stanza


def with_profile(stanza: GpuStanza) -> GpuStanza:
    """The same where a seccomp profile of ours stands: it lets AMD's tools work by itself."""
    return replace(
        stanza,
        comment=stanza.comment.replace(PROFILING_REASON, _PROFILED_REASON),
        security_opt=tuple(each for each in stanza.security_opt if not each.startswith("seccomp")),
    )


def compose_version(text: str | None) -> tuple[int, int] | None:
    """Major and minor number of a version's text; None where it is none."""
    found = re.match(r"\s*v?(\d+)\.(\d+)", text or "", re.ASCII)
    return (int(found[1]), int(found[2])) if found else None


def _with_mechanism(stanza: GpuStanza, handover: Handover, newest: bool) -> GpuStanza:
    ids = _unique(handover.ids)
    if handover.mechanism == "cdi":
        # Compose cuts an entry of `devices` at its colons, and "nvidia.com/gpu=0:1" is a MIG device
        if newest and not any(":" in name for name in ids):
            return replace(stanza, devices=_unique((*ids, *stanza.devices)))
        return replace(stanza, reservations=(DeviceRequest("cdi", ids),))
    if handover.mechanism == "device-request":
        # "gpu" is what `docker run --gpus` asks for; the driver's capabilities go by the variable,
        # which also overrules an image's own, and which the engine's AMD driver does not stumble on
        requests = (DeviceRequest(handover.driver, ids),)
        return replace(stanza, gpus=requests) if newest else replace(stanza, reservations=requests)
    if handover.mechanism == "runtime":
        return replace(stanza, runtime=handover.driver)
    return stanza


def _environment(handover: Handover) -> Mapping[str, str]:
    """The variables of the mechanism, those of the handover last.

    NVIDIA_DRIVER_CAPABILITIES is read by the hook and the runtime. A CDI device does not need it,
    as its specification lists the libraries; it is set all the same, because an engine whose default
    runtime is NVIDIA's reads it beside CDI.
    """
    found: dict[str, str] = {}
    for vendor in _brought(handover):
        found |= vendor.capabilities
    if handover.mechanism == "runtime":
        found[gpu_vendors.of(handover.driver).runtime_variable] = ",".join(handover.ids) or "all"
    return {**found, **handover.environment}


def _with_profiling(stanza: GpuStanza, handover: Handover) -> GpuStanza:
    if not _has_profiling(handover):
        return replace(stanza, comment=f"{stanza.comment}\n{NO_PROFILING}")
    return replace(
        stanza,
        comment=f"{stanza.comment}\n{PROFILING_REASON}",
        security_opt=("seccomp=unconfined",),
        cap_add=("SYS_PTRACE",),
    )


def _brought(handover: Handover) -> Iterable[Descriptor]:
    return filter(None, map(gpu_vendors.find, sorted(handover.vendors)))


def _has_profiling(handover: Handover) -> bool:
    # A vendor's shared node is its alone, and stands beside NVIDIA's mechanism where a machine has both
    nodes = {node.split(":")[0] for node in handover.devices}
    return any(vendor.profiling for vendor in _brought(handover)) or any(
        vendor.profiling and nodes.intersection(vendor.nodes.shared)
        for vendor in gpu_vendors.all_of_them()
    )


def _says(handover: Handover) -> str:
    if handover.mechanism == "none":
        return "No GPU is handed over."
    if handover.mechanism == "simulated":
        return "Made-up GPUs: names of /dev/null."
    which = ", ".join(_unique(handover.ids)) or "all"
    if handover.mechanism == "devices":
        which = ", ".join(dict.fromkeys(node.split(":")[0] for node in handover.devices))
    return f"GPUs by {handover.way}: {which}."


def _too_old(handover: Handover, compose: str) -> DshpcError:
    words = "CDI" if handover.mechanism == "cdi" else "--gpus"
    return DshpcError(
        f"docker-compose {compose} cannot hand over GPUs.",
        f"The GPUs work here by {words}; compose can write that down from version 1.28 on.",
        ("Install Compose v2 (the package docker-compose-plugin or docker-compose-v2).",),
    )


def _unique(values: Iterable[str]) -> tuple[str, ...]:
    # compose refuses a list that says the same twice
    return tuple(dict.fromkeys(values))
