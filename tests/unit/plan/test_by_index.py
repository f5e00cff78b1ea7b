"""`gres_type: index`: each GPU has a type of its own."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import GpuDevice, MigInstance
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.render.configuration import LUA_FILES, render_slurm
from dshpc_setup.settings import load
from tests.unit.plan.made import facts, gpu

T4 = ("t4", "Tesla T4")


def plan(*devices: GpuDevice, **flags: str) -> ClusterPlan:
    return plan_cluster(facts(*devices), load(flags={"gres_type": "index", **flags}))


def cut(index: int, instances: int) -> GpuDevice:
    mig = tuple(
        MigInstance("1g.10gb", f"MIG-{n}", 9728, ("/dev/nvidia0", f"/dev/c{n}"))
        for n in range(instances)
    )
    return replace(gpu(index), mig_mode="enabled", mig=mig)


def test_types_are_the_cards_indices() -> None:
    found = plan(gpu(0), gpu(2), gpu_sharing="shard:2")
    assert found.gres_text == "gpu:gpu0:1,gpu:gpu2:1,shard:4"
    assert found.gres_type == "index"
    text = render_slurm(found)["gres.conf"]
    assert re.findall(r"Type=(\S+) File=(\S+)", text) == [
        ("gpu0", "/dev/nvidia0"),
        ("gpu2", "/dev/nvidia2"),
    ]


def test_all_else_is_as_by_model() -> None:
    one, other = plan(gpu(0), gpu(1)), plan_cluster(facts(gpu(0), gpu(1)), load())
    same = replace(
        one, gres=other.gres, aliases=other.aliases, gres_type="model", ambiguous={}
    )  # features, shares of CPUs and memory
    assert same == other
    assert other.gres_text == "gpu:h100:2"


def test_instances_are_counted_on_their_card() -> None:
    found = plan(cut(0, 2), gpu(1), cut(2, 1))
    assert [line.slurm_type for line in found.gres] == ["gpu0.0", "gpu0.1", "gpu1", "gpu2.0"]
    assert [line.uuid for line in found.gres[:2]] == ["MIG-0", "MIG-1"]


def test_names_mean_any_gpu_where_all_are_of_one_model() -> None:
    found = plan(gpu(0), gpu(1))
    assert found.aliases == {"h100": ("",), "nvidia": ("",), "nvidia_h100_80gb_hbm3": ("",)}
    assert found.ambiguous == {}


def test_names_are_refused_where_there_are_several_models() -> None:
    found = plan(gpu(0), gpu(1, *T4), gpu(2))
    assert found.aliases == {}
    assert found.ambiguous["h100"] == ("gpu0", "gpu2")
    assert found.ambiguous["tesla_t4"] == ("gpu1",)
    assert found.ambiguous["nvidia"] == ("gpu0", "gpu1", "gpu2")
    assert '["h100"] = "gpu0, gpu2",' in render_slurm(found)["job_submit.lua"]
    assert plan(gpu(0), cut(1, 1)).aliases == {}  # a card and an instance are two kinds


def test_one_vendor_of_two_with_one_word_for_a_model() -> None:
    """Two makers' GPUs are several models, whatever their names."""
    other = replace(gpu(1), vendor="amd")
    assert plan(gpu(0), other).aliases == {}


def test_by_model_nothing_of_it_is_rendered() -> None:
    texts = render_slurm(plan_cluster(facts(gpu(0), gpu(1, *T4)), load()))
    assert not any("ambiguous" in texts[name] or 'name == ""' in texts[name] for name in LUA_FILES)


_MODELS = st.sampled_from([("h100", "NVIDIA H100"), T4, ("gpu", ""), ("gpu0", "Odd"), ("a", "A")])


@given(st.lists(_MODELS, min_size=1, max_size=12), st.sets(st.integers(0, 11)))
def test_types_are_told_apart_and_no_name_is_one(
    models: list[tuple[str, str]], mig: set[int]
) -> None:
    devices = [
        replace(cut(n, 2), slurm_type=kind[0]) if n in mig else gpu(n, *kind)
        for n, kind in enumerate(models)
    ]
    found = plan(*devices)
    types = [line.slurm_type for line in found.gres]
    assert len(set(types)) == len(types) == len(models) + len(mig & set(range(len(models))))
    assert all(re.fullmatch(r"gpu[0-9]+(\.[0-9]+)?", kind) for kind in types)
    assert not set(types) & {*found.aliases, *found.ambiguous}
    assert not (found.aliases and found.ambiguous)
    assert all(set(meant) <= set(types) and meant for meant in found.ambiguous.values())
