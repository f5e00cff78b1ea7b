"""Which engines run several nodes, and why the others do not."""

from __future__ import annotations

from typing import Literal

from dshpc_setup.errors import DshpcError, Fix, usage_error

_WHY = {
    "builtin": "Its containers share the machine's own network, where the nodes would have one address.",
    "podman": "The nodes find each other by name, which takes Podman's own name service (aardvark-dns) "
    "and is not tried.",
}


def no_other_nodes(engine: Literal["builtin", "podman"]) -> DshpcError:
    name = {"builtin": "The built-in engine", "podman": "Podman"}[engine]
    return usage_error(
        f"{name} runs one node here, and several are asked for (the setting nodes).",
        _WHY[engine],
        Fix("Use Docker for several nodes", "configure-environment --engine docker"),
        Fix("Or have one", "configure-environment --nodes 1", step="alternative"),
    )
