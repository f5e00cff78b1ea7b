"""The names that people say for GPUs whose types the user wrote down himself: `Type=nvidia`, say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dshpc_setup import gpu_vendors
from dshpc_setup.container import check
from dshpc_setup.container.config import Candidate
from dshpc_setup.errors import DshpcError
from dshpc_setup.slurm import slurm_conf

if TYPE_CHECKING:
    from dshpc_setup.plan import ClusterPlan

_MOST = 4096  # GPUs of a node: what is written there may be any number


def with_own_names(candidate: Candidate, plan: ClusterPlan, wanted: str) -> Candidate:
    """Lua texts that mean the types of the candidate's own slurm.conf, not those of the plan.

    A name that is a type of the node is left as it is; the vendor's stands for all of its types.
    """
    types = _types(candidate, wanted)
    if not candidate.customized or types is None or types == dict(plan.gres_counts):
        return candidate
    from dshpc_setup.plan import names
    from dshpc_setup.plan.model import GresLine
    from dshpc_setup.render.configuration import LUA_FILES, render_slurm

    vendor = plan.vendor
    lines = tuple(
        GresLine(kind, vendor, (), 0)
        for kind, count in types.items()
        for _ in range(min(count, _MOST))
    )
    one_vendor = gpu_vendors.find(vendor) is not None
    aliases = names.aliases((), lines) if one_vendor else {}
    texts = render_slurm(replace(plan, gres=lines, aliases=aliases, ambiguous={}))
    return replace(
        candidate, texts={**candidate.texts, **{name: texts[name] for name in LUA_FILES}}
    )


def _types(candidate: Candidate, wanted: str) -> Mapping[str, int] | None:
    """Type -> count of the node's Gres=; None where it cannot be said.

    Types that are no plain words are left out: they would stand in a Lua text as they are.
    """
    try:
        node = check.node_name(candidate, wanted)
    except DshpcError:
        return None
    entry = slurm_conf.node(candidate.texts["slurm.conf"], node)
    counts = slurm_conf.gres_counts(entry.values.get("gres", "")) if entry else None
    if counts is None:
        return None
    found = {name[4:]: count for name, count in counts.items() if name.startswith("gpu:")}
    plain = re.compile(r"[\w.+-]+", re.ASCII)
    return {kind: count for kind, count in found.items() if plain.fullmatch(kind)}
