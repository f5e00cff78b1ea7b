"""From the engine's error text, and the facts, to the cause: a finding of the catalogue. Pure."""

from __future__ import annotations

import re

from dshpc_setup.facts import HostFacts
from dshpc_setup.passthrough import refusals_devices as devices
from dshpc_setup.passthrough import refusals_engine as engine
from dshpc_setup.passthrough import refusals_toolkit as toolkit
from dshpc_setup.passthrough.handover import Mechanism
from dshpc_setup.passthrough.model import Cause
from dshpc_setup.passthrough.rules import Rule

RULES: tuple[Rule, ...] = (
    *engine.CONNECTION,
    *engine.COMPOSE,
    *toolkit.NVML,
    *toolkit.TOOLKIT,
    *engine.DEVICE_REQUEST,
    *engine.RUNTIME,
    *devices.CDI,
    *devices.NODES,
    *engine.IMAGE,
)
"""In order: what is more telling stands before what is more general."""

_MOST = 16 * 1024  # a text of an engine is short; a log that was caught by mistake is not

# The client of Docker and Podman say so after every error, and `pull` before it.
_ALWAYS_THERE = re.compile(r"(?m)^(?:See|Run) '(?:docker|podman) run --help'.*$")


def of_refusal(text: str, mechanism: Mechanism, facts: HostFacts) -> Cause | None:
    """Why a container was refused; None for a text that is not known, which is to be shown whole.

    `text` is what the engine, its client or the container said, of any length; never raises.
    """
    words = _ALWAYS_THERE.sub("", text[-_MOST:]).strip()
    for rule in RULES:
        cause = rule.cause(words, facts, mechanism)
        if cause is not None:
            return cause
    return None
