"""How AMD's GPUs come into a container, beside their device nodes. Pure."""

from __future__ import annotations

from dshpc_setup import remedies
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.passthrough.model import Cause
from dshpc_setup.passthrough.vendor_ways import VendorWays
from dshpc_setup.passthrough.wanted import WantedGpus
from dshpc_setup.vendors.amd.descriptor import DESCRIPTOR
from dshpc_setup.versions import at_least

_NAME = DESCRIPTOR.name
_REQUEST_SINCE = "28.3"  # moby, daemon/devices_amd_linux.go
_REQUEST_BY_CDI_SINCE = "29.3"


def _ids(asked: WantedGpus) -> tuple[str, ...]:
    """AMD's toolkit counts its own GPUs."""
    all_of_them = [gpu.index for gpu in asked.facts.gpus.devices if gpu.vendor == _NAME]
    wanted = (line.index for line in asked.lines(_NAME))
    return tuple(str(all_of_them.index(index)) for index in wanted if index in all_of_them)


def _request(asked: WantedGpus) -> Handover | Cause:
    """By AMD's runtime, or from 29.3 on by CDI; an engine that has neither was not told of AMD."""
    from dshpc_setup.passthrough.candidates import no_toolkit

    engine, facts = asked.engine, asked.facts
    if not at_least(engine.server_version, _REQUEST_SINCE):
        return Cause(None, f"--gpus hands over AMD's GPUs from Docker {_REQUEST_SINCE} on")
    by_cdi = at_least(engine.server_version, _REQUEST_BY_CDI_SINCE) and any(
        map(DESCRIPTOR.named_in, engine.cdi_devices)
    )
    if not by_cdi and remedies.toolkit(facts, _NAME) is None:
        return no_toolkit(asked, _NAME)
    ids = () if asked.every(_NAME) else _ids(asked)
    return Handover("device-request", ids=ids, driver=_NAME)


WAYS = VendorWays(_ids, _request)
