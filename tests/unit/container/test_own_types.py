"""Types that the user wrote down himself, in the Lua texts."""

from __future__ import annotations

import pytest

from dshpc_setup.container import own_types
from dshpc_setup.container.config import Candidate
from dshpc_setup.plan import ClusterPlan, GresLine

PLAN = ClusterPlan(
    "lab", "lab", "debug", 8, 14374, 1796, vendor="nvidia",
    gres=(GresLine("h100", "nvidia", ("/dev/nvidia0",), 0),),
)  # fmt: skip


def lua(gres: str) -> str:
    texts = {"slurm.conf": f"NodeName=lab CPUs=8 Gres={gres}\n", "job_submit.lua": "ours"}
    found = Candidate(texts, {"slurm.conf": "custom"}, {})
    return own_types.with_own_names(found, PLAN, "lab").texts["job_submit.lua"]


@pytest.mark.parametrize("kind", ["mine", "1g.10gb", "a_b-c+d"])
def test_a_type_of_the_users_own_is_known(kind: str) -> None:
    assert f'"{kind}"' in lua(f"gpu:{kind}:2")


@pytest.mark.parametrize("kind", ["x]y", "a\\d", "x'y", "\u00e4"])
def test_what_is_no_word_stays_out_of_the_lua_text(kind: str) -> None:
    text = lua(f"gpu:{kind}:2,gpu:mine:1")
    assert kind not in text
    assert '"mine"' in text
