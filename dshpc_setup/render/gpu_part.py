"""How a compose file hands over GPUs, in words that can be compared whatever keys say it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dshpc_setup.render.gpu_lines import Claim, read

MOST_BYTES = 1 << 20  # of a YAML file

_OURS = "slurm"  # the service of docker-compose.yml.j2
_DEFAULT_RUNTIME = "runc"


def parsed(data: bytes) -> Any:
    """YAML as mappings, lists and texts; None where it is none, or too large."""
    from dshpc_setup.documents import yaml_nodes

    try:
        return yaml_nodes.load(data.decode()) if len(data) <= MOST_BYTES else None
    except ValueError:
        return None


def words(document: Any) -> tuple[str, ...]:
    """ "nvidia all by device request", "cdi nvidia.com/gpu=all", "/dev/kfd", "group 44"; sorted.

    `document` is a parsed compose file, numbers as texts. Of several services it is ours that counts,
    else the first.
    """
    services = _mapping(_mapping(document).get("services"))
    claims = list(read(_mapping(services.get(_OURS) or next(iter(services.values()), None))))
    variables = {
        item.name: "".join(item.value).strip() for item in claims if item.kind == "variable"
    }
    found = [text for claim in claims for text in _words(claim, variables)]
    if found:  # the groups are those of the nodes
        found += [f"group {claim.name}" for claim in claims if claim.kind == "group"]
    return tuple(sorted(set(found)))


def _words(claim: Claim, variables: dict[str, str]) -> Iterator[str]:
    if claim.kind == "request":
        yield f"{claim.name} {','.join(claim.value)} by device request"
    elif claim.kind == "runtime" and claim.name not in ("", _DEFAULT_RUNTIME):
        which = variables.get(f"{claim.name.upper()}_VISIBLE_DEVICES", "")
        yield f"runtime {claim.name} {which}".rstrip()
    elif claim.kind == "cdi":
        yield f"cdi {claim.name}"
    elif claim.kind == "node":
        (inside,) = claim.value
        made_up = claim.name == "/dev/null" and inside != claim.name
        yield f"simulated {inside}" if made_up else claim.name


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
