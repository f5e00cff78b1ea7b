"""Which engine does not run several nodes, and why."""

from __future__ import annotations

from dshpc_setup.errors import DshpcError, Fix, usage_error


def no_other_nodes() -> DshpcError:
    return usage_error(
        "Podman runs one node here, and several are asked for (the setting nodes).",
        "The nodes find each other by name, which takes Podman's own name service (aardvark-dns) "
        "and is not tried.",
        Fix("Use the built-in engine for several nodes", "configure-environment --engine builtin"),
        Fix("Or Docker", "configure-environment --engine docker", step="alternative"),
        Fix("Or have one", "configure-environment --nodes 1", step="alternative"),
    )
